//! From Arrow to borrowed rows.
//!
//! A row is a place in its columns: what assembly asks of every row is decoded at once, the rest when it is asked for. Half
//! of the rows of a service are of no interest beyond their place in the tree.

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Float64Array, Int64Array, ListArray, RecordBatch,
    StringViewArray, TimestampNanosecondArray,
};
use arrow::datatypes::DataType;
use arrow::error::ArrowError;

use super::items::{
    ContentColumns, ContentRef, Contents, ItemColumns, ItemRef, Names, PayloadColumns, PayloadRef, range,
    text,
};
use super::{COLUMNS, schema};
use crate::contract::Field;
use crate::span::{Control, Role, Signal, Status, View};

/// Typed access to the columns of a batch of `spans/`, without copying.
#[derive(Debug)]
pub struct SpanColumns {
    columns: Vec<Typed>,
    rows: usize,
    /// Items of `input` and `output`.
    input: ItemColumns,
    output: ItemColumns,
    payloads: PayloadColumns,
    contents: ContentColumns,
}

/// A column of a known type. One that holds nothing but NULL is looked at once per batch.
#[derive(Debug)]
enum Typed {
    Null,
    Text(StringViewArray),
    Long(Int64Array),
    Time(TimestampNanosecondArray),
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
            DataType::Boolean => Self::Flag(a.as_boolean().clone()),
            DataType::List(_) => Self::List(a.as_list().clone()),
            _ => Self::Null,
        }
    }
}

/// A borrowed span; the fields and functions are those of [`crate::span::Span`].
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)]
pub struct SpanRef<'a> {
    columns: &'a SpanColumns,
    row: usize,
    pub trace_id: &'a str,
    pub span_id: &'a str,
    pub parent_id: Option<&'a str>,
    pub log: bool,
    pub start: Option<i64>,
    pub end: Option<i64>,
    pub status: Status,
    pub role: Role,
    pub view: View,
}

/// Functions that read one column.
macro_rules! read {
    ($($name:ident: $kind:ident $column:literal),* $(,)?) => {
        $(read!(@ $name $kind $column);)*
    };
    (@ $name:ident text $column:literal) => {
        #[inline]
        pub fn $name(&self) -> Option<&'a str> {
            self.columns.string($column, self.row)
        }
    };
    (@ $name:ident long $column:literal) => {
        #[inline]
        pub fn $name(&self) -> Option<i64> {
            self.columns.long($column, self.row)
        }
    };
    (@ $name:ident names $column:literal) => {
        #[inline]
        pub fn $name(&self) -> Names<'a> {
            self.columns.names($column, self.row)
        }
    };
}

#[allow(missing_docs)]
impl<'a> SpanRef<'a> {
    read! {
        service: text 7,
        error: text 13,
        agent: text 17,
        node: text 19,
        parent_agent: text 20,
        conversation_id: text 21,
        task_id: text 22,
        model: text 23,
        response_id: text 24,
        previous_response_id: text 25,
        input_tokens: long 26,
        output_tokens: long 27,
        finish: text 28,
        tool: text 29,
        call_id: text 30,
        view_policies: names 56,
    }

    #[inline]
    pub fn remote_parent(&self) -> bool {
        self.columns.flag(3, self.row)
    }

    #[inline]
    pub fn scope(&self) -> &'a str {
        self.columns.string(8, self.row).unwrap_or_default()
    }

    #[inline]
    pub fn name(&self) -> &'a str {
        self.columns.string(10, self.row).unwrap_or_default()
    }

    pub fn control(&self) -> Control {
        match self.columns.string(14, self.row) {
            Some("transfer") => Control::Transfer,
            Some("pause") => Control::Pause,
            _ => Control::None,
        }
    }

    /// Its items get what they hold from `contents`.
    pub fn input(&self, contents: &'a Contents<'a>) -> Option<Vec<ItemRef<'a>>> {
        self.columns.input.items(self.row, contents)
    }

    /// Likewise.
    pub fn output(&self, contents: &'a Contents<'a>) -> Option<Vec<ItemRef<'a>>> {
        self.columns.output.items(self.row, contents)
    }

    pub fn payloads(&self) -> Vec<PayloadRef<'a>> {
        self.columns.payloads.payloads(self.row)
    }

    #[inline]
    pub fn handoff(&self) -> Option<HandoffRef<'a>> {
        let signal = self.columns.string(38, self.row)?;
        Some(HandoffRef { columns: self.columns, row: self.row, signal: Signal::from_name(signal) })
    }

    /// Name, score and label of each.
    pub fn evaluations(&self) -> Vec<(&'a str, Option<f64>, Option<&'a str>)> {
        let Some((list, r)) = self.columns.list(57, self.row) else { return Vec::new() };
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
    }

    /// What items hold that stand on no earlier row; see [`Contents`].
    #[inline]
    pub fn contents(&self) -> impl Iterator<Item = ContentRef<'a>> + use<'a> {
        self.columns.contents.contents(self.row)
    }
}

/// What a span says about a transfer; the field and functions are those of [`crate::span::Handoff`].
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)]
pub struct HandoffRef<'a> {
    columns: &'a SpanColumns,
    row: usize,
    pub signal: Signal,
}

#[allow(missing_docs)]
impl<'a> HandoffRef<'a> {
    read! {
        from: text 39,
        to: names 40,
        mode: text 41,
        reason: text 42,
        requested: names 43,
        payload_tokens: long 44,
        items_before: long 45,
        items_after: long 46,
        tokens_before: long 47,
        tokens_after: long 48,
        filtered: long 49,
        constraints_hash: text 50,
        constraint_ids: names 51,
        constraint_hashes: names 52,
        artifacts: names 54,
        state_constraint_ids: names 55,
    }

    pub fn fields(&self) -> Option<u32> {
        let names = self.columns.names(53, self.row);
        (!names.is_empty()).then(|| names.iter().filter_map(Field::from_name).map(Field::bit).sum())
    }
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
            contents: ContentColumns::new(&list("contents")?)?,
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

    #[inline]
    fn string(&self, c: usize, row: usize) -> Option<&str> {
        match &self.columns[c] {
            Typed::Text(a) => text(a, row),
            _ => None,
        }
    }

    #[inline]
    fn long(&self, c: usize, row: usize) -> Option<i64> {
        match &self.columns[c] {
            Typed::Long(a) if a.is_valid(row) => Some(a.value(row)),
            _ => None,
        }
    }

    #[inline]
    fn time(&self, c: usize, row: usize) -> Option<i64> {
        match &self.columns[c] {
            Typed::Time(a) if a.is_valid(row) => Some(a.value(row)),
            _ => None,
        }
    }

    #[inline]
    fn flag(&self, c: usize, row: usize) -> bool {
        matches!(&self.columns[c], Typed::Flag(a) if a.value(row))
    }

    #[inline]
    fn list(&self, c: usize, row: usize) -> Option<(&ListArray, std::ops::Range<usize>)> {
        match &self.columns[c] {
            Typed::List(a) => range(a, row).map(|r| (a, r)),
            _ => None,
        }
    }

    #[inline]
    fn names(&self, c: usize, row: usize) -> Names<'_> {
        match &self.columns[c] {
            Typed::List(a) => Names::of(a, row),
            _ => Names::default(),
        }
    }

    /// The trace of a row.
    #[inline]
    pub fn trace_id(&self, row: usize) -> &str {
        self.string(0, row).unwrap_or_default()
    }

    /// One row.
    #[inline]
    pub fn span(&self, row: usize) -> SpanRef<'_> {
        SpanRef {
            columns: self,
            row,
            trace_id: self.trace_id(row),
            span_id: self.string(1, row).unwrap_or_default(),
            parent_id: self.string(2, row),
            log: self.string(4, row) == Some("log"),
            start: self.time(5, row),
            end: self.time(6, row),
            status: match self.string(12, row) {
                Some("ok") => Status::Ok,
                Some("error") => Status::Error,
                _ => Status::Unset,
            },
            role: Role::from_name(self.string(16, row).unwrap_or_default()),
            view: View {
                lossy: self.flag(31, row),
                cut: self.flag(32, row),
                masked: self.flag(33, row),
                hidden: self.flag(34, row),
            },
        }
    }
}
