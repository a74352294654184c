//! Entries of the lists in a row, borrowed: items, what they hold, payloads, names.
//!
//! An entry is a place in its columns. What nearly every use asks for is decoded at once, the rest when it is asked for:
//! most columns of most entries are never looked at.

use std::ops::Range;

use arrow::array::{
    Array, AsArray, BinaryViewArray, BooleanArray, Int32Array, Int64Array, ListArray, StringViewArray,
    StructArray,
};
use arrow::error::ArrowError;

use super::decode::SpanRef;
use crate::span::{Args, ItemKind, Source, Speaker};

#[derive(Debug)]
pub(super) struct ItemColumns {
    list: ListArray,
    kind: StringViewArray,
    speaker: StringViewArray,
    name: StringViewArray,
    call_id: StringViewArray,
    hash: Int64Array,
    tokens: Int32Array,
    blanked: BooleanArray,
    retold: BooleanArray,
    asks: BooleanArray,
    cut: BooleanArray,
    error: BooleanArray,
    args: StringViewArray,
    args_digest: StringViewArray,
    sole: Int64Array,
    shingles: BinaryViewArray,
    idents: BinaryViewArray,
    text: StringViewArray,
}

/// A borrowed item; the fields and functions are those of [`crate::span::Item`].
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)]
pub struct ItemRef<'a> {
    columns: &'a ItemColumns,
    place: u32,
    pub kind: ItemKind,
    pub speaker: Speaker,
    pub args: Args,
    pub blanked: bool,
    pub hash: Option<i64>,
    pub call_id: Option<&'a str>,
    /// What stands in `contents` under its hash.
    content: Option<&'a ContentRef<'a>>,
}

#[allow(missing_docs)]
impl<'a> ItemRef<'a> {
    #[inline]
    fn at(&self) -> usize {
        self.place as usize
    }

    #[inline]
    pub fn name(&self) -> Option<&'a str> {
        text(&self.columns.name, self.at())
    }

    #[inline]
    pub fn tokens(&self) -> Option<i32> {
        self.columns.tokens.is_valid(self.at()).then(|| self.columns.tokens.value(self.at()))
    }

    #[inline]
    pub fn retold(&self) -> bool {
        self.columns.retold.value(self.at())
    }

    #[inline]
    pub fn asks(&self) -> bool {
        self.columns.asks.value(self.at())
    }

    #[inline]
    pub fn cut(&self) -> bool {
        self.columns.cut.value(self.at())
    }

    #[inline]
    pub fn error(&self) -> Option<bool> {
        self.columns.error.is_valid(self.at()).then(|| self.columns.error.value(self.at()))
    }

    #[inline]
    pub fn args_digest(&self) -> Option<&'a str> {
        text(&self.columns.args_digest, self.at())
    }

    #[inline]
    pub fn sole(&self) -> Option<i64> {
        long(&self.columns.sole, self.at())
    }

    #[inline]
    pub fn shingles(&self) -> &'a [u8] {
        self.content.map_or_else(|| bytes(&self.columns.shingles, self.at()), |c| c.shingles)
    }

    #[inline]
    pub fn idents(&self) -> &'a [u8] {
        self.content.map_or_else(|| bytes(&self.columns.idents, self.at()), |c| c.idents)
    }

    #[inline]
    pub fn text(&self) -> Option<&'a str> {
        self.content.map_or_else(|| text(&self.columns.text, self.at()), |c| c.text)
    }
}

impl ItemColumns {
    pub(super) fn new(list: &ListArray) -> Result<Self, ArrowError> {
        let s = list.values().as_struct();
        Ok(Self {
            list: list.clone(),
            kind: child(s, "kind")?,
            speaker: child(s, "speaker")?,
            name: child(s, "name")?,
            call_id: child(s, "call_id")?,
            hash: child(s, "hash")?,
            tokens: child(s, "tokens")?,
            blanked: child(s, "blanked")?,
            retold: child(s, "retold")?,
            asks: child(s, "asks")?,
            cut: child(s, "cut")?,
            error: child(s, "error")?,
            args: child(s, "args")?,
            args_digest: child(s, "args_digest")?,
            sole: child(s, "sole")?,
            shingles: child(s, "shingles")?,
            idents: child(s, "idents")?,
            text: child(s, "text")?,
        })
    }

    pub(super) fn items<'a>(&'a self, row: usize, contents: &'a Contents<'a>) -> Option<Vec<ItemRef<'a>>> {
        range(&self.list, row).map(|r| r.map(|i| self.item(i, contents)).collect())
    }

    #[inline]
    fn item<'a>(&'a self, i: usize, contents: &'a Contents<'a>) -> ItemRef<'a> {
        let kind = ItemKind::from_name(self.kind.value(i));
        let hash = long(&self.hash, i);
        ItemRef {
            columns: self,
            place: i as u32,
            kind,
            speaker: Speaker::from_name(self.speaker.value(i)),
            args: text(&self.args, i).map_or(Args::Absent, Args::from_name),
            blanked: self.blanked.value(i),
            hash,
            call_id: text(&self.call_id, i),
            content: hash.and_then(|h| contents.get(h)),
        }
    }
}

/// What an item holds. The fields are those of [`super::CONTENT`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub struct ContentRef<'a> {
    pub hash: i64,
    pub shingles: &'a [u8],
    pub idents: &'a [u8],
    pub text: Option<&'a str>,
}

#[derive(Debug)]
pub(super) struct ContentColumns {
    list: ListArray,
    hash: Int64Array,
    shingles: BinaryViewArray,
    idents: BinaryViewArray,
    text: StringViewArray,
}

impl ContentColumns {
    pub(super) fn new(list: &ListArray) -> Result<Self, ArrowError> {
        let s = list.values().as_struct();
        Ok(Self {
            list: list.clone(),
            hash: child(s, "hash")?,
            shingles: child(s, "shingles")?,
            idents: child(s, "idents")?,
            text: child(s, "text")?,
        })
    }

    #[inline]
    pub(super) fn contents(&self, row: usize) -> impl Iterator<Item = ContentRef<'_>> {
        range(&self.list, row).unwrap_or_default().map(|i| ContentRef {
            hash: self.hash.value(i),
            shingles: bytes(&self.shingles, i),
            idents: bytes(&self.idents, i),
            text: text(&self.text, i),
        })
    }
}

/// What the items of some rows hold, by hash.
#[derive(Debug, Default)]
pub struct Contents<'a> {
    /// Sorted.
    all: Vec<ContentRef<'a>>,
}

impl<'a> Contents<'a> {
    /// Collects what rows hold; all rows of the traces concerned must be among them.
    #[inline]
    pub fn of(rows: &[SpanRef<'a>]) -> Self {
        let mut out = Self::default();
        out.collect(rows);
        out
    }

    /// [`Self::of`] other rows.
    pub fn collect(&mut self, rows: &[SpanRef<'a>]) {
        self.all.clear();
        self.all.extend(rows.iter().flat_map(SpanRef::contents));
        // Sorted by more than the hash, so that of two spellings the same one is found in whatever order they came.
        self.all.sort_unstable();
        self.all.dedup_by_key(|c| c.hash);
    }

    #[inline]
    fn get(&self, hash: i64) -> Option<&ContentRef<'a>> {
        self.all.binary_search_by_key(&hash, |c| c.hash).ok().map(|k| &self.all[k])
    }

    /// The number of different contents.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// True where there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

#[derive(Debug)]
pub(super) struct PayloadColumns {
    list: ListArray,
    source: StringViewArray,
    pos: Int32Array,
    call_id: StringViewArray,
    complete: BooleanArray,
    empty: BooleanArray,
    structured: BooleanArray,
    narrative: BooleanArray,
    fields: Int32Array,
    aliases: ListArray,
    targets: ListArray,
    constraints: ListArray,
    artifacts: ListArray,
    goal: Int64Array,
    policies: ListArray,
    steps: BinaryViewArray,
    tokens: Int32Array,
    texts: BinaryViewArray,
    shingles: BinaryViewArray,
    idents: BinaryViewArray,
    text: StringViewArray,
}

/// A borrowed payload; the fields and functions are those of [`crate::span::PayloadRow`].
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)]
pub struct PayloadRef<'a> {
    columns: &'a PayloadColumns,
    place: u32,
    pub pos: i32,
    pub source: Source,
    pub complete: bool,
    pub empty: bool,
    pub structured: bool,
    pub narrative: bool,
}

#[allow(missing_docs)]
impl<'a> PayloadRef<'a> {
    #[inline]
    fn at(&self) -> usize {
        self.place as usize
    }

    pub fn call_id(&self) -> Option<&'a str> {
        text(&self.columns.call_id, self.at())
    }

    #[inline]
    pub fn fields(&self) -> u32 {
        self.columns.fields.value(self.at()).cast_unsigned()
    }

    pub fn aliases(&self) -> Names<'a> {
        Names::of(&self.columns.aliases, self.at())
    }

    #[inline]
    pub fn targets(&self) -> Names<'a> {
        Names::of(&self.columns.targets, self.at())
    }

    pub fn constraints(&self) -> impl Iterator<Item = ConstraintRef<'a>> + use<'a> {
        let list = &self.columns.constraints;
        let s = list.values().as_struct();
        range(list, self.at()).unwrap_or_default().map(move |i| ConstraintRef {
            id: s.column(0).as_string_view().value(i),
            hash: s.column(1).as_string_view().value(i),
            soft: s.column(2).as_boolean().value(i),
            retired: s.column(3).as_boolean().value(i),
            shingles: bytes(s.column(4).as_binary_view(), i),
            text: text(s.column(5).as_string_view(), i),
        })
    }

    pub fn artifacts(&self) -> Names<'a> {
        Names::of(&self.columns.artifacts, self.at())
    }

    #[inline]
    pub fn goal(&self) -> Option<i64> {
        long(&self.columns.goal, self.at())
    }

    pub fn policies(&self) -> Names<'a> {
        Names::of(&self.columns.policies, self.at())
    }

    pub fn steps(&self) -> &'a [u8] {
        bytes(&self.columns.steps, self.at())
    }

    #[inline]
    pub fn tokens(&self) -> Option<i32> {
        self.columns.tokens.is_valid(self.at()).then(|| self.columns.tokens.value(self.at()))
    }

    pub fn texts(&self) -> &'a [u8] {
        bytes(&self.columns.texts, self.at())
    }

    #[inline]
    pub fn shingles(&self) -> &'a [u8] {
        bytes(&self.columns.shingles, self.at())
    }

    #[inline]
    pub fn idents(&self) -> &'a [u8] {
        bytes(&self.columns.idents, self.at())
    }

    #[inline]
    pub fn text(&self) -> Option<&'a str> {
        text(&self.columns.text, self.at())
    }
}

/// A borrowed constraint.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)]
pub struct ConstraintRef<'a> {
    pub id: &'a str,
    pub hash: &'a str,
    pub soft: bool,
    pub retired: bool,
    pub shingles: &'a [u8],
    pub text: Option<&'a str>,
}

impl PayloadColumns {
    pub(super) fn new(list: &ListArray) -> Result<Self, ArrowError> {
        let s = list.values().as_struct();
        Ok(Self {
            list: list.clone(),
            source: child(s, "source")?,
            pos: child(s, "pos")?,
            call_id: child(s, "call_id")?,
            complete: child(s, "complete")?,
            empty: child(s, "empty")?,
            structured: child(s, "structured")?,
            narrative: child(s, "narrative")?,
            fields: child(s, "fields")?,
            aliases: child(s, "aliases")?,
            targets: child(s, "targets")?,
            constraints: child(s, "constraints")?,
            artifacts: child(s, "artifacts")?,
            goal: child(s, "goal")?,
            policies: child(s, "policies")?,
            steps: child(s, "steps")?,
            tokens: child(s, "tokens")?,
            texts: child(s, "texts")?,
            shingles: child(s, "shingles")?,
            idents: child(s, "idents")?,
            text: child(s, "text")?,
        })
    }

    pub(super) fn payloads(&self, row: usize) -> Vec<PayloadRef<'_>> {
        let payload = |i: usize| PayloadRef {
            columns: self,
            place: i as u32,
            pos: self.pos.value(i),
            source: Source::from_name(self.source.value(i)),
            complete: self.complete.value(i),
            empty: self.empty.value(i),
            structured: self.structured.value(i),
            narrative: self.narrative.value(i),
        };
        range(&self.list, row).map(|r| r.map(payload).collect()).unwrap_or_default()
    }
}

/// A borrowed list of names; one that is NULL is empty.
#[derive(Debug, Clone, Copy, Default)]
pub struct Names<'a> {
    values: Option<&'a StringViewArray>,
    from: usize,
    to: usize,
}

impl<'a> Names<'a> {
    #[inline]
    pub(super) fn of(list: &'a ListArray, row: usize) -> Self {
        let r = range(list, row).unwrap_or_default();
        Self { values: list.values().as_string_view_opt(), from: r.start, to: r.end }
    }

    /// The names.
    #[inline]
    pub fn iter(self) -> impl Iterator<Item = &'a str> + Clone {
        (self.from..self.to).filter_map(move |i| self.values.map(|v| v.value(i)))
    }

    /// True where there are none.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.from == self.to
    }

    /// Whether a name is among them.
    #[inline]
    pub fn contains(self, name: &str) -> bool {
        self.iter().any(|n| n == name)
    }
}

/// The `u32`s of a packed column.
#[inline]
pub fn unpack_u32(bytes: &[u8]) -> impl ExactSizeIterator<Item = u32> + Clone + '_ {
    bytes.chunks_exact(4).map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]]))
}

/// The `u64`s of a packed column.
#[inline]
pub fn unpack_u64(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes.chunks_exact(8).map(|c| u64::from_le_bytes([c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7]]))
}

/// Whether a sorted packed column holds a `u32`.
#[inline]
pub fn packed_holds(bytes: &[u8], x: u32) -> bool {
    let chunks = bytes.as_chunks::<4>().0;
    chunks.binary_search_by_key(&x, |c| u32::from_le_bytes(*c)).is_ok()
}

fn child<T: Array + Clone + 'static>(s: &StructArray, name: &str) -> Result<T, ArrowError> {
    let c =
        s.column_by_name(name).ok_or_else(|| ArrowError::SchemaError(format!("spans: no column {name}")))?;
    c.as_any()
        .downcast_ref::<T>()
        .cloned()
        .ok_or_else(|| ArrowError::SchemaError(format!("spans: column {name} has type {}", c.data_type())))
}

#[inline]
pub(super) fn range(list: &ListArray, row: usize) -> Option<Range<usize>> {
    let o = list.value_offsets();
    list.is_valid(row).then(|| o[row] as usize..o[row + 1] as usize)
}

#[inline]
pub(super) fn text(a: &StringViewArray, i: usize) -> Option<&str> {
    a.is_valid(i).then(|| a.value(i))
}

#[inline]
fn long(a: &Int64Array, i: usize) -> Option<i64> {
    a.is_valid(i).then(|| a.value(i))
}

#[inline]
fn bytes(a: &BinaryViewArray, i: usize) -> &[u8] {
    if a.is_valid(i) { a.value(i) } else { &[] }
}
