//! From Arrow to borrowed rows.

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryViewArray, BooleanArray, Float64Array, Int32Array, Int64Array, ListArray,
    RecordBatch, StringViewArray, StructArray, TimestampNanosecondArray,
};
use arrow::datatypes::DataType;
use arrow::error::ArrowError;

use super::{COLUMNS, schema};
use crate::span::{Args, Control, Status};

/// Typed access to the columns of a batch of `spans/`, without copying.
pub struct SpanColumns {
    columns: Vec<Typed>,
    rows: usize,
    /// Items of `input` and `output`.
    input: ItemColumns,
    output: ItemColumns,
    payloads: PayloadColumns,
}

/// A column of a known type. One that holds nothing but NULL is looked at once per batch.
enum Typed {
    Null,
    Text(StringViewArray),
    Long(Int64Array),
    Time(TimestampNanosecondArray),
    Int(Int32Array),
    Flag(BooleanArray),
    List(ListArray),
}

impl Typed {
    fn new(a: &ArrayRef) -> Self {
        match a.data_type() {
            _ if a.null_count() == a.len() => Self::Null,
            DataType::Utf8View => Self::Text(a.as_string_view().clone()),
            DataType::Int64 => Self::Long(a.as_primitive().clone()),
            DataType::Timestamp(..) => Self::Time(a.as_primitive().clone()),
            DataType::Int32 => Self::Int(a.as_primitive().clone()),
            DataType::Boolean => Self::Flag(a.as_boolean().clone()),
            DataType::List(_) => Self::List(a.as_list().clone()),
            _ => Self::Null,
        }
    }
}

struct ItemColumns {
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

struct PayloadColumns {
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

/// A borrowed item. The fields are those of [`crate::span::Item`]; what it holds comes from [`Contents`].
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)]
pub struct ItemRef<'a> {
    pub kind: crate::span::ItemKind,
    pub speaker: crate::span::Speaker,
    pub name: Option<&'a str>,
    pub call_id: Option<&'a str>,
    pub hash: Option<i64>,
    pub tokens: Option<i32>,
    pub blanked: bool,
    pub retold: bool,
    pub asks: bool,
    pub cut: bool,
    pub error: Option<bool>,
    pub args: Args,
    pub args_digest: Option<&'a str>,
    pub sole: Option<i64>,
    pub shingles: &'a [u8],
    pub idents: &'a [u8],
    pub text: Option<&'a str>,
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

/// What the items of some rows hold, by hash.
#[derive(Debug, Default)]
pub struct Contents<'a> {
    /// Sorted.
    all: Vec<ContentRef<'a>>,
}

impl<'a> Contents<'a> {
    /// Collects what rows hold; all rows of the traces concerned must be among them.
    pub fn of(rows: &[SpanRef<'a>]) -> Self {
        let mut all: Vec<ContentRef<'a>> = rows.iter().flat_map(|r| r.contents.iter().copied()).collect();
        // Sorted by more than the hash, so that of two spellings the same one is found in whatever order they came.
        all.sort_unstable();
        all.dedup_by_key(|c| c.hash);
        Self { all }
    }

    /// Gives items what they hold.
    pub fn fill(&self, items: &mut [ItemRef<'a>]) {
        for i in items {
            let Some(hash) = i.hash else { continue };
            if let Ok(k) = self.all.binary_search_by_key(&hash, |c| c.hash) {
                let c = &self.all[k];
                (i.shingles, i.idents, i.text) = (c.shingles, c.idents, c.text);
            }
        }
    }
}

/// A borrowed payload. The fields are those of [`crate::span::PayloadRow`].
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub struct PayloadRef<'a> {
    pub source: crate::span::Source,
    pub pos: i32,
    pub call_id: Option<&'a str>,
    pub complete: bool,
    pub empty: bool,
    pub structured: bool,
    pub narrative: bool,
    pub fields: u32,
    pub aliases: Vec<&'a str>,
    pub targets: Vec<&'a str>,
    pub constraints: Vec<ConstraintRef<'a>>,
    pub artifacts: Vec<&'a str>,
    pub goal: Option<i64>,
    pub policies: Vec<&'a str>,
    pub steps: &'a [u8],
    pub tokens: Option<i32>,
    pub texts: &'a [u8],
    pub shingles: &'a [u8],
    pub idents: &'a [u8],
    pub text: Option<&'a str>,
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

/// A borrowed span. The fields are those of [`crate::span::Span`].
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub struct SpanRef<'a> {
    pub trace_id: &'a str,
    pub span_id: &'a str,
    pub parent_id: Option<&'a str>,
    pub remote_parent: bool,
    pub log: bool,
    pub start: Option<i64>,
    pub end: Option<i64>,
    pub service: Option<&'a str>,
    pub scope: &'a str,
    pub dialect: &'a str,
    pub name: &'a str,
    pub status: Status,
    pub error: Option<&'a str>,
    pub control: Control,
    pub dropped: i32,
    pub role: crate::span::Role,
    pub agent: Option<&'a str>,
    pub agent_id: Option<&'a str>,
    pub node: Option<&'a str>,
    pub parent_agent: Option<&'a str>,
    pub conversation_id: Option<&'a str>,
    pub task_id: Option<&'a str>,
    pub model: Option<&'a str>,
    pub response_id: Option<&'a str>,
    pub previous_response_id: Option<&'a str>,
    pub input_tokens: Option<i64>,
    pub output_tokens: Option<i64>,
    pub finish: Option<&'a str>,
    pub tool: Option<&'a str>,
    pub call_id: Option<&'a str>,
    pub view: crate::span::View,
    pub input: Option<Vec<ItemRef<'a>>>,
    pub output: Option<Vec<ItemRef<'a>>>,
    pub payloads: Vec<PayloadRef<'a>>,
    pub handoff: Option<Box<HandoffRef<'a>>>,
    pub view_policies: Vec<&'a str>,
    pub evaluations: Vec<(&'a str, Option<f64>, Option<&'a str>)>,
    /// What items hold that stand on no earlier row; see [`Contents`].
    pub contents: Vec<ContentRef<'a>>,
}

/// What a span says about a transfer. The fields are those of [`crate::span::Handoff`].
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub struct HandoffRef<'a> {
    pub signal: crate::span::Signal,
    pub from: Option<&'a str>,
    pub to: Vec<&'a str>,
    pub mode: Option<&'a str>,
    pub reason: Option<&'a str>,
    pub requested: Vec<&'a str>,
    pub payload_tokens: Option<i64>,
    pub items_before: Option<i64>,
    pub items_after: Option<i64>,
    pub tokens_before: Option<i64>,
    pub tokens_after: Option<i64>,
    pub filtered: Option<i64>,
    pub constraints_hash: Option<&'a str>,
    pub constraint_ids: Vec<&'a str>,
    pub constraint_hashes: Vec<&'a str>,
    pub fields: Option<u32>,
    pub artifacts: Vec<&'a str>,
    pub state_constraint_ids: Vec<&'a str>,
}

/// The `u32`s of a packed column.
pub fn unpack_u32(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect()
}

/// The `u64`s of a packed column.
pub fn unpack_u64(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes.chunks_exact(8).map(|c| u64::from_le_bytes([c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7]]))
}

fn child<T: Array + Clone + 'static>(s: &StructArray, name: &str) -> Result<T, ArrowError> {
    let c =
        s.column_by_name(name).ok_or_else(|| ArrowError::SchemaError(format!("spans: no column {name}")))?;
    c.as_any()
        .downcast_ref::<T>()
        .cloned()
        .ok_or_else(|| ArrowError::SchemaError(format!("spans: column {name} has type {}", c.data_type())))
}

impl ItemColumns {
    fn new(list: &ListArray) -> Result<Self, ArrowError> {
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

    fn items(&self, row: usize) -> Option<Vec<ItemRef<'_>>> {
        range(&self.list, row).map(|r| r.map(|i| self.item(i)).collect())
    }

    fn item(&self, i: usize) -> ItemRef<'_> {
        ItemRef {
            kind: crate::span::ItemKind::from_name(self.kind.value(i)),
            speaker: crate::span::Speaker::from_name(self.speaker.value(i)),
            name: text(&self.name, i),
            call_id: text(&self.call_id, i),
            hash: self.hash.is_valid(i).then(|| self.hash.value(i)),
            tokens: self.tokens.is_valid(i).then(|| self.tokens.value(i)),
            blanked: self.blanked.value(i),
            retold: self.retold.value(i),
            asks: self.asks.value(i),
            cut: self.cut.value(i),
            error: self.error.is_valid(i).then(|| self.error.value(i)),
            args: text(&self.args, i).map_or(Args::Absent, Args::from_name),
            args_digest: text(&self.args_digest, i),
            sole: self.sole.is_valid(i).then(|| self.sole.value(i)),
            shingles: bytes(&self.shingles, i),
            idents: bytes(&self.idents, i),
            text: text(&self.text, i),
        }
    }
}

impl PayloadColumns {
    fn new(list: &ListArray) -> Result<Self, ArrowError> {
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

    fn payload(&self, i: usize) -> PayloadRef<'_> {
        PayloadRef {
            source: crate::span::Source::from_name(self.source.value(i)),
            pos: self.pos.value(i),
            call_id: text(&self.call_id, i),
            complete: self.complete.value(i),
            empty: self.empty.value(i),
            structured: self.structured.value(i),
            narrative: self.narrative.value(i),
            fields: self.fields.value(i).cast_unsigned(),
            aliases: texts(&self.aliases, i),
            targets: texts(&self.targets, i),
            constraints: constraints(&self.constraints, i),
            artifacts: texts(&self.artifacts, i),
            goal: self.goal.is_valid(i).then(|| self.goal.value(i)),
            policies: texts(&self.policies, i),
            steps: bytes(&self.steps, i),
            tokens: self.tokens.is_valid(i).then(|| self.tokens.value(i)),
            texts: bytes(&self.texts, i),
            shingles: bytes(&self.shingles, i),
            idents: bytes(&self.idents, i),
            text: text(&self.text, i),
        }
    }
}

fn range(list: &ListArray, row: usize) -> Option<std::ops::Range<usize>> {
    let o = list.value_offsets();
    list.is_valid(row).then(|| o[row] as usize..o[row + 1] as usize)
}

fn text(a: &StringViewArray, i: usize) -> Option<&str> {
    a.is_valid(i).then(|| a.value(i))
}

fn bytes(a: &BinaryViewArray, i: usize) -> &[u8] {
    if a.is_valid(i) { a.value(i) } else { &[] }
}

fn texts(a: &ListArray, row: usize) -> Vec<&str> {
    let Some(r) = range(a, row) else { return Vec::new() };
    let v = a.values().as_string_view();
    r.map(|i| v.value(i)).collect()
}

fn constraints(a: &ListArray, row: usize) -> Vec<ConstraintRef<'_>> {
    let Some(r) = range(a, row) else { return Vec::new() };
    let s = a.values().as_struct();
    r.map(|i| ConstraintRef {
        id: s.column(0).as_string_view().value(i),
        hash: s.column(1).as_string_view().value(i),
        soft: s.column(2).as_boolean().value(i),
        retired: s.column(3).as_boolean().value(i),
        shingles: bytes(s.column(4).as_binary_view(), i),
        text: text(s.column(5).as_string_view(), i),
    })
    .collect()
}

impl SpanColumns {
    /// Takes a batch whose columns have the names and types of [`COLUMNS`].
    ///
    /// # Errors
    /// Where a column lacks or cannot be cast to its type.
    pub fn new(batch: &RecordBatch) -> Result<Self, ArrowError> {
        let mut arrays = Vec::with_capacity(COLUMNS.len());
        for c in COLUMNS.iter() {
            let a = batch
                .column_by_name(c.name)
                .ok_or_else(|| ArrowError::SchemaError(format!("spans: no column {}", c.name)))?;
            arrays.push(if *a.data_type() == c.data_type {
                a.clone()
            } else {
                arrow::compute::cast(a, &c.data_type)?
            });
        }
        // Arrow checks lengths and NULLs here, so that decoding can rely on them.
        let batch = RecordBatch::try_new(schema(), arrays)?;
        let list = |name: &str| {
            batch
                .column_by_name(name)
                .map(|c| c.as_list::<i32>().clone())
                .ok_or_else(|| ArrowError::SchemaError(name.to_owned()))
        };
        Ok(Self {
            input: ItemColumns::new(&list("input")?)?,
            output: ItemColumns::new(&list("output")?)?,
            payloads: PayloadColumns::new(&list("payloads")?)?,
            columns: batch.columns().iter().map(Typed::new).collect(),
            rows: batch.num_rows(),
        })
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// True where there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn string(&self, c: usize, row: usize) -> Option<&str> {
        match &self.columns[c] {
            Typed::Text(a) => text(a, row),
            _ => None,
        }
    }

    fn long(&self, c: usize, row: usize) -> Option<i64> {
        match &self.columns[c] {
            Typed::Long(a) if a.is_valid(row) => Some(a.value(row)),
            _ => None,
        }
    }

    fn time(&self, c: usize, row: usize) -> Option<i64> {
        match &self.columns[c] {
            Typed::Time(a) if a.is_valid(row) => Some(a.value(row)),
            _ => None,
        }
    }

    fn int(&self, c: usize, row: usize) -> i32 {
        match &self.columns[c] {
            Typed::Int(a) => a.value(row),
            _ => 0,
        }
    }

    fn flag(&self, c: usize, row: usize) -> bool {
        matches!(&self.columns[c], Typed::Flag(a) if a.value(row))
    }

    fn list(&self, c: usize, row: usize) -> Option<(&ListArray, std::ops::Range<usize>)> {
        match &self.columns[c] {
            Typed::List(a) => range(a, row).map(|r| (a, r)),
            _ => None,
        }
    }

    fn names(&self, c: usize, row: usize) -> Vec<&str> {
        let Some((list, r)) = self.list(c, row) else { return Vec::new() };
        let v = list.values().as_string_view();
        r.map(|i| v.value(i)).collect()
    }

    fn contents(&self, row: usize) -> Vec<ContentRef<'_>> {
        let Some((list, r)) = self.list(58, row) else { return Vec::new() };
        let s = list.values().as_struct();
        let hash: &Int64Array = s.column(0).as_primitive();
        r.map(|i| ContentRef {
            hash: hash.value(i),
            shingles: bytes(s.column(1).as_binary_view(), i),
            idents: bytes(s.column(2).as_binary_view(), i),
            text: text(s.column(3).as_string_view(), i),
        })
        .collect()
    }

    /// Decodes one row.
    pub fn span(&self, row: usize) -> SpanRef<'_> {
        let handoff = self.string(38, row).map(|signal| {
            let names = self.names(53, row);
            Box::new(HandoffRef {
                signal: crate::span::Signal::from_name(signal),
                from: self.string(39, row),
                to: self.names(40, row),
                mode: self.string(41, row),
                reason: self.string(42, row),
                requested: self.names(43, row),
                payload_tokens: self.long(44, row),
                items_before: self.long(45, row),
                items_after: self.long(46, row),
                tokens_before: self.long(47, row),
                tokens_after: self.long(48, row),
                filtered: self.long(49, row),
                constraints_hash: self.string(50, row),
                constraint_ids: self.names(51, row),
                constraint_hashes: self.names(52, row),
                fields: (!names.is_empty()).then(|| {
                    names
                        .iter()
                        .filter_map(|n| crate::contract::Field::from_name(n))
                        .map(crate::contract::Field::bit)
                        .sum()
                }),
                artifacts: self.names(54, row),
                state_constraint_ids: self.names(55, row),
            })
        });
        let evaluations = self
            .list(57, row)
            .map(|(list, r)| {
                let s = list.values().as_struct();
                let score: &Float64Array = s.column(1).as_primitive();
                r.map(|i| {
                    (
                        s.column(0).as_string_view().value(i),
                        score.is_valid(i).then(|| score.value(i)),
                        text(s.column(2).as_string_view(), i),
                    )
                })
                .collect()
            })
            .unwrap_or_default();
        SpanRef {
            trace_id: self.string(0, row).unwrap_or_default(),
            span_id: self.string(1, row).unwrap_or_default(),
            parent_id: self.string(2, row),
            remote_parent: self.flag(3, row),
            log: self.string(4, row) == Some("log"),
            start: self.time(5, row),
            end: self.time(6, row),
            service: self.string(7, row),
            scope: self.string(8, row).unwrap_or_default(),
            dialect: self.string(9, row).unwrap_or_default(),
            name: self.string(10, row).unwrap_or_default(),
            status: match self.string(12, row) {
                Some("ok") => Status::Ok,
                Some("error") => Status::Error,
                _ => Status::Unset,
            },
            error: self.string(13, row),
            control: match self.string(14, row) {
                Some("transfer") => Control::Transfer,
                Some("pause") => Control::Pause,
                _ => Control::None,
            },
            dropped: self.int(15, row),
            role: crate::span::Role::from_name(self.string(16, row).unwrap_or_default()),
            agent: self.string(17, row),
            agent_id: self.string(18, row),
            node: self.string(19, row),
            parent_agent: self.string(20, row),
            conversation_id: self.string(21, row),
            task_id: self.string(22, row),
            model: self.string(23, row),
            response_id: self.string(24, row),
            previous_response_id: self.string(25, row),
            input_tokens: self.long(26, row),
            output_tokens: self.long(27, row),
            finish: self.string(28, row),
            tool: self.string(29, row),
            call_id: self.string(30, row),
            view: crate::span::View {
                lossy: self.flag(31, row),
                cut: self.flag(32, row),
                masked: self.flag(33, row),
                hidden: self.flag(34, row),
            },
            input: self.input.items(row),
            output: self.output.items(row),
            payloads: range(&self.payloads.list, row)
                .map(|r| r.map(|i| self.payloads.payload(i)).collect())
                .unwrap_or_default(),
            handoff,
            view_policies: self.names(56, row),
            evaluations,
            contents: self.contents(row),
        }
    }
}
