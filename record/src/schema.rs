//! The stored form of [`crate::span::Span`]: Arrow schema, encoding and decoding.
//!
//! Bytes: Parquet files under `spans/`, one row per span or log record, zstd, statistics and dictionaries as
//! the writer sets them. The layout's number is [`VERSION`]; it stands in the file metadata under
//! [`VERSION_KEY`]. Always: an item list that is NULL was not captured, one that is empty was captured and empty.
//! Hashes are under the store's key, so files of two stores are not to be mixed.

use std::sync::{Arc, LazyLock};

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryViewArray, BinaryViewBuilder, BooleanArray, BooleanBuilder, Float64Array,
    Float64Builder, Int32Array, Int32Builder, Int64Array, Int64Builder, ListArray, RecordBatch,
    StringViewArray, StringViewBuilder, StructArray, TimestampNanosecondArray, TimestampNanosecondBuilder,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit};
use arrow::error::ArrowError;

use crate::constraint::ConstraintKind;
use crate::span::{
    Args, ConstraintRow, Control, Evaluation, Handoff, Item, PayloadRow, Record, Span, Status,
};

/// Number of this layout. A reader refuses files of another one.
pub const VERSION: &str = "1";
/// Where [`VERSION`] stands in the Parquet file metadata.
pub const VERSION_KEY: &str = "baton.spans.version";

/// A column with the reason it exists and the meaning of NULL.
pub struct Column {
    /// Name.
    pub name: &'static str,
    /// Type.
    pub data_type: DataType,
    /// Whether NULL may stand there.
    pub nullable: bool,
    /// Why it is stored, and what NULL means.
    pub why: &'static str,
}

fn utc() -> DataType {
    DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()))
}

fn list(item: DataType) -> DataType {
    DataType::List(Arc::new(Field::new("item", item, true)))
}

fn list_of(fields: &Fields) -> DataType {
    list(DataType::Struct(fields.clone()))
}

fn fields(columns: &[Column]) -> Fields {
    columns.iter().map(|c| Field::new(c.name, c.data_type.clone(), c.nullable)).collect()
}

fn col(name: &'static str, data_type: DataType, nullable: bool, why: &'static str) -> Column {
    Column { name, data_type, nullable, why }
}

/// The columns of one entry of `input` and `output`.
pub static ITEM: LazyLock<Vec<Column>> = LazyLock::new(|| {
    use DataType::{BinaryView, Boolean, Int32, Int64, Utf8View};
    vec![
        col("kind", Utf8View, false, "`text`, `tool_call`, `tool_result` or `instructions`"),
        col("speaker", Utf8View, false, "`user`, `assistant`, `system` or `tool`"),
        col("name", Utf8View, true, "tool of a call or result, author of a text; NULL: not named"),
        col("call_id", Utf8View, true, "joins a call with its result; NULL: not given"),
        col("hash", Int64, true, "equal hash, equal item; NULL: content masked"),
        col("tokens", Int32, true, "tokens of the content; NULL: not counted (content masked or too large)"),
        col("blanked", Boolean, false, "the content was blanked in place"),
        col("retold", Boolean, false, "the item re-tells a transcript"),
        col("asks", Boolean, false, "the text asks something"),
        col("cut", Boolean, false, "the item is cut off"),
        col("error", Boolean, true, "a result's own error flag; NULL: it has none"),
        col(
            "args",
            Utf8View,
            true,
            "how a call's arguments are known: `whole`, `bare`, `cut`, `masked`; NULL: not captured, or no call",
        ),
        col("args_digest", Utf8View, true, "SHA-256 of the canonical arguments, hex; NULL: not known"),
        col(
            "sole",
            Int64,
            true,
            "hash of the value of a call's only argument, to join it with an unwrapped one; NULL: no or several arguments",
        ),
        col(
            "shingles",
            BinaryView,
            true,
            "fingerprint: sorted `u32` little endian, three-word runs and short clauses; NULL: none",
        ),
        col(
            "idents",
            BinaryView,
            true,
            "fingerprint: sorted `u64` little endian, identifiers, lowest bit set for strong ones; NULL: none",
        ),
        col("text", Utf8View, true, "the content; NULL: content mode `none`, or masked"),
    ]
});

/// The columns of one entry of `payloads[].constraints`.
pub static CONSTRAINT: LazyLock<Vec<Column>> = LazyLock::new(|| {
    use DataType::{BinaryView, Boolean, Utf8View};
    vec![
        col("id", Utf8View, false, "the constraint's id"),
        col("hash", Utf8View, false, "SHA-256 of `{id,text}`, hex"),
        col("soft", Boolean, false, "a wish and no rule"),
        col("retired", Boolean, false, "no longer in force"),
        col(
            "shingles",
            BinaryView,
            true,
            "what a text must hold where it holds this rule; NULL: the rule has no text",
        ),
        col("text", Utf8View, true, "the rule; NULL: content mode `none`, or no text"),
    ]
});

/// The columns of one entry of `payloads`.
pub static PAYLOAD: LazyLock<Vec<Column>> = LazyLock::new(|| {
    use DataType::{BinaryView, Boolean, Int32, Int64, Utf8View};
    vec![
        col(
            "source",
            Utf8View,
            false,
            "where it stands: `output`, `input` (messages), `update` (state) or `contract` (attributes)",
        ),
        col("pos", Int32, false, "position in that list"),
        col("call_id", Utf8View, true, "the call it belongs to; NULL: none"),
        col("complete", Boolean, false, "false: cut off or masked"),
        col("empty", Boolean, false, "nothing was put in"),
        col("structured", Boolean, false, "an object with contract fields was found"),
        col("narrative", Boolean, false, "free text was found"),
        col("fields", Int32, false, "contract fields present, one bit each in the order of `contract::ALL`"),
        col(
            "aliases",
            list(Utf8View),
            true,
            "keys that filled a field under another name, `key>field`; NULL: none",
        ),
        col("targets", list(Utf8View), true, "names in routing arguments; NULL: none"),
        col("constraints", list_of(&fields(&CONSTRAINT)), true, "constraints stated; NULL: none"),
        col("artifacts", list(Utf8View), true, "references to artifacts; NULL: none"),
        col("goal", Int64, true, "hash of the stated intent; NULL: none stated"),
        col(
            "policies",
            list(Utf8View),
            true,
            "ids of catalogue constraints whose patterns it matches; NULL: none",
        ),
        col("steps", BinaryView, true, "hashes (`u64`) of names in completed steps; NULL: none"),
        col("tokens", Int32, true, "tokens without routing arguments; NULL: not counted"),
        col(
            "texts",
            BinaryView,
            true,
            "hashes (`i64`) of the text arguments, to find them as a message; NULL: none",
        ),
        col("shingles", BinaryView, true, "fingerprint, as in items; NULL: none"),
        col("idents", BinaryView, true, "fingerprint, as in items; NULL: none"),
        col("text", Utf8View, true, "the payload as JSON; NULL: content mode `none`"),
    ]
});

/// The columns of one entry of `evaluations`.
pub static EVALUATION: LazyLock<Vec<Column>> = LazyLock::new(|| {
    vec![
        col("name", DataType::Utf8View, false, "`gen_ai.evaluation.name`"),
        col("score", DataType::Float64, true, "`gen_ai.evaluation.score.value`; NULL: none"),
        col("label", DataType::Utf8View, true, "`gen_ai.evaluation.score.label`; NULL: none"),
    ]
});

/// The columns of `spans/`.
pub static COLUMNS: LazyLock<Vec<Column>> = LazyLock::new(|| {
    use DataType::{Boolean, Int32, Int64, Utf8View};
    vec![
        col("trace_id", Utf8View, false, "groups spans; hex, since people read it"),
        col("span_id", Utf8View, false, "with `trace_id` the identity of the row: equal ids count once"),
        col("parent_id", Utf8View, true, "the tree; NULL: root"),
        col("remote_parent", Boolean, false, "the parent is in another process, so its absence is no gap"),
        col("record", Utf8View, false, "`span`, or `log` for a log record that carries content of the span"),
        col("start", utc(), true, "order and durations; NULL: not given or out of range"),
        col("end", utc(), true, "likewise; NULL also: never ended"),
        col("service", Utf8View, true, "`service.name`, for grouping; NULL: not given"),
        col("scope", Utf8View, false, "instrumentation scope: two scopes may record one call twice"),
        col("dialect", Utf8View, false, "which dialect read the span"),
        col("name", Utf8View, false, "shown in stories"),
        col("otel_kind", Int32, false, "OTLP span kind, raw value"),
        col("status", Utf8View, false, "`unset`, `ok` or `error`"),
        col("error", Utf8View, true, "class of the error; NULL: none"),
        col(
            "control",
            Utf8View,
            true,
            "`transfer` or `pause`: an exception that is control flow; NULL: none",
        ),
        col("dropped", Int32, false, "attributes the sender dropped: content may lack"),
        col(
            "role",
            Utf8View,
            false,
            "what the span is: agent, workflow, inference, tool, handoff, step, definition, other",
        ),
        col(
            "agent",
            Utf8View,
            true,
            "the agent by the span's own word; NULL: it says none, the tree decides",
        ),
        col("agent_id", Utf8View, true, "an id of the agent; NULL: none"),
        col("node", Utf8View, true, "graph node; NULL: none"),
        col("parent_agent", Utf8View, true, "the agent before, by this span's word; NULL: it says none"),
        col(
            "conversation_id",
            Utf8View,
            true,
            "conversation, session or thread: joins traces to tasks; NULL: none",
        ),
        col("task_id", Utf8View, true, "`baton.task.id`; NULL: none"),
        col("model", Utf8View, true, "model of an inference; NULL: not given"),
        col(
            "response_id",
            Utf8View,
            true,
            "tells one model call recorded twice from two calls; NULL: not given",
        ),
        col("previous_response_id", Utf8View, true, "the server keeps the history; NULL: it does not"),
        col("input_tokens", Int64, true, "cached ones included; NULL: not given"),
        col("output_tokens", Int64, true, "NULL: not given"),
        col("finish", Utf8View, true, "why the model stopped; NULL: not given"),
        col("tool", Utf8View, true, "tool of a tool span; NULL: none"),
        col("call_id", Utf8View, true, "call of a tool span; NULL: not given"),
        col("view_lossy", Boolean, false, "the convention drops tool items or instructions"),
        col("view_cut", Boolean, false, "messages are cut off"),
        col("view_masked", Boolean, false, "messages are masked"),
        col("view_hidden", Boolean, false, "a server-managed conversation hides earlier items"),
        col(
            "input",
            list_of(&fields(&ITEM)),
            true,
            "messages in, or the call of a tool span; NULL: not captured",
        ),
        col(
            "output",
            list_of(&fields(&ITEM)),
            true,
            "messages out, or the result of a tool span; NULL: not captured",
        ),
        col(
            "payloads",
            list_of(&fields(&PAYLOAD)),
            true,
            "what calls and state updates say as a payload; NULL: nothing to say",
        ),
        col(
            "handoff_signal",
            Utf8View,
            true,
            "how the span speaks of a transfer: `explicit`, `command`, `goto`, `received`; NULL: it does not",
        ),
        col("handoff_from", Utf8View, true, "sender; NULL: not said"),
        col("handoff_to", list(Utf8View), true, "receivers; NULL: not said"),
        col("handoff_mode", Utf8View, true, "mode by the span's own word; NULL: not said"),
        col("handoff_reason", Utf8View, true, "reason; NULL: not said"),
        col("handoff_requested", list(Utf8View), true, "all that were asked for in one turn; NULL: not said"),
        col("handoff_payload_tokens", Int64, true, "as the sender counted; NULL: not said"),
        col("history_items_before", Int64, true, "NULL: not said"),
        col("history_items_after", Int64, true, "NULL: not said"),
        col("history_tokens_before", Int64, true, "NULL: not said"),
        col("history_tokens_after", Int64, true, "NULL: not said"),
        col("history_filtered_count", Int64, true, "NULL: not said"),
        col("constraints_hash", Utf8View, true, "hash of the active set; NULL: not said"),
        col(
            "constraint_ids",
            list(Utf8View),
            true,
            "active constraints, or what the receiver got; NULL: not said",
        ),
        col("constraint_hashes", list(Utf8View), true, "their hashes; NULL: not said"),
        col("contract_fields", list(Utf8View), true, "contract fields present; NULL: not said"),
        col("artifact_refs", list(Utf8View), true, "references handed over; NULL: not said"),
        col("state_constraint_ids", list(Utf8View), true, "constraints in durable state; NULL: not said"),
        col(
            "view_policies",
            list(Utf8View),
            true,
            "ids of catalogue constraints whose patterns the input matches; NULL: none",
        ),
        col("evaluations", list_of(&fields(&EVALUATION)), true, "judgements of the span; NULL: none"),
    ]
});

static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| Arc::new(Schema::new(fields(&COLUMNS))));

/// The Arrow schema of `spans/`.
pub fn schema() -> SchemaRef {
    SCHEMA.clone()
}

// ---------------------------------------------------------------------------------------- encoding

struct ListBuilder {
    offsets: Vec<i32>,
    valid: Vec<bool>,
    len: i32,
}

impl ListBuilder {
    fn new() -> Self {
        Self { offsets: vec![0], valid: Vec::new(), len: 0 }
    }

    /// `None`: the list is NULL.
    fn push(&mut self, n: Option<usize>) {
        self.len += i32::try_from(n.unwrap_or(0)).unwrap_or(i32::MAX);
        self.offsets.push(self.len);
        self.valid.push(n.is_some());
    }

    fn finish(self, child: ArrayRef) -> ArrayRef {
        let field = Arc::new(Field::new("item", child.data_type().clone(), true));
        Arc::new(ListArray::new(
            field,
            OffsetBuffer::new(self.offsets.into()),
            child,
            Some(NullBuffer::from(self.valid)),
        ))
    }
}

struct Strings {
    list: ListBuilder,
    child: StringViewBuilder,
}

impl Strings {
    fn new() -> Self {
        Self { list: ListBuilder::new(), child: StringViewBuilder::new() }
    }

    fn push<S: AsRef<str>>(&mut self, items: &[S]) {
        self.list.push((!items.is_empty()).then_some(items.len()));
        items.iter().for_each(|s| self.child.append_value(s));
    }

    fn finish(mut self) -> ArrayRef {
        self.list.finish(Arc::new(self.child.finish()))
    }
}

fn put_bytes<const N: usize>(b: &mut BinaryViewBuilder, items: impl ExactSizeIterator<Item = [u8; N]>) {
    if items.len() == 0 {
        b.append_null();
    } else {
        let mut buf = Vec::with_capacity(items.len() * N);
        items.for_each(|x| buf.extend_from_slice(&x));
        b.append_value(buf);
    }
}

macro_rules! builders {
    ($name:ident { $($field:ident : $ty:ty),* $(,)? }) => {
        struct $name { $($field: $ty),* }
        impl $name {
            fn new() -> Self { Self { $($field: <$ty>::new()),* } }
        }
    };
}

builders!(Items {
    list: ListBuilder,
    kind: StringViewBuilder,
    speaker: StringViewBuilder,
    name: StringViewBuilder,
    call_id: StringViewBuilder,
    hash: Int64Builder,
    tokens: Int32Builder,
    blanked: BooleanBuilder,
    retold: BooleanBuilder,
    asks: BooleanBuilder,
    cut: BooleanBuilder,
    error: BooleanBuilder,
    args: StringViewBuilder,
    args_digest: StringViewBuilder,
    sole: Int64Builder,
    shingles: BinaryViewBuilder,
    idents: BinaryViewBuilder,
    text: StringViewBuilder,
});

impl Items {
    fn push(&mut self, items: Option<&[Item]>) {
        self.list.push(items.map(<[Item]>::len));
        for i in items.unwrap_or_default() {
            self.kind.append_value(i.kind.name());
            self.speaker.append_value(i.speaker.name());
            self.name.append_option(i.name.as_deref());
            self.call_id.append_option(i.call_id.as_deref());
            self.hash.append_option(i.hash);
            self.tokens.append_option(i.tokens);
            self.blanked.append_value(i.blanked);
            self.retold.append_value(i.retold);
            self.asks.append_value(i.asks);
            self.cut.append_value(i.cut);
            self.error.append_option(i.error);
            self.args.append_option((i.args != Args::Absent).then(|| i.args.name()));
            self.args_digest.append_option(i.args_digest.as_deref());
            self.sole.append_option(i.sole);
            put_bytes(&mut self.shingles, i.prints.shingles.iter().map(|x| x.to_le_bytes()));
            put_bytes(&mut self.idents, i.prints.idents.iter().map(|x| x.to_le_bytes()));
            self.text.append_option(i.text.as_deref());
        }
    }

    fn finish(mut self) -> ArrayRef {
        let arrays: Vec<ArrayRef> = vec![
            Arc::new(self.kind.finish()),
            Arc::new(self.speaker.finish()),
            Arc::new(self.name.finish()),
            Arc::new(self.call_id.finish()),
            Arc::new(self.hash.finish()),
            Arc::new(self.tokens.finish()),
            Arc::new(self.blanked.finish()),
            Arc::new(self.retold.finish()),
            Arc::new(self.asks.finish()),
            Arc::new(self.cut.finish()),
            Arc::new(self.error.finish()),
            Arc::new(self.args.finish()),
            Arc::new(self.args_digest.finish()),
            Arc::new(self.sole.finish()),
            Arc::new(self.shingles.finish()),
            Arc::new(self.idents.finish()),
            Arc::new(self.text.finish()),
        ];
        self.list.finish(Arc::new(StructArray::new(fields(&ITEM), arrays, None)))
    }
}

builders!(Constraints {
    list: ListBuilder,
    id: StringViewBuilder,
    hash: StringViewBuilder,
    soft: BooleanBuilder,
    retired: BooleanBuilder,
    shingles: BinaryViewBuilder,
    text: StringViewBuilder,
});

impl Constraints {
    fn push(&mut self, items: &[ConstraintRow]) {
        self.list.push((!items.is_empty()).then_some(items.len()));
        for c in items {
            self.id.append_value(&c.constraint.id);
            self.hash.append_value(&c.constraint.hash);
            self.soft.append_value(c.constraint.kind == ConstraintKind::Soft);
            self.retired.append_value(c.constraint.retired);
            put_bytes(&mut self.shingles, c.shingles.iter().map(|x| x.to_le_bytes()));
            self.text.append_option(c.constraint.text.as_deref());
        }
    }

    fn finish(mut self) -> ArrayRef {
        let arrays: Vec<ArrayRef> = vec![
            Arc::new(self.id.finish()),
            Arc::new(self.hash.finish()),
            Arc::new(self.soft.finish()),
            Arc::new(self.retired.finish()),
            Arc::new(self.shingles.finish()),
            Arc::new(self.text.finish()),
        ];
        self.list.finish(Arc::new(StructArray::new(fields(&CONSTRAINT), arrays, None)))
    }
}

builders!(Payloads {
    list: ListBuilder,
    source: StringViewBuilder,
    pos: Int32Builder,
    call_id: StringViewBuilder,
    complete: BooleanBuilder,
    empty: BooleanBuilder,
    structured: BooleanBuilder,
    narrative: BooleanBuilder,
    fields: Int32Builder,
    aliases: Strings,
    targets: Strings,
    constraints: Constraints,
    artifacts: Strings,
    goal: Int64Builder,
    policies: Strings,
    steps: BinaryViewBuilder,
    tokens: Int32Builder,
    texts: BinaryViewBuilder,
    shingles: BinaryViewBuilder,
    idents: BinaryViewBuilder,
    text: StringViewBuilder,
});

impl Payloads {
    fn push(&mut self, items: &[PayloadRow]) {
        self.list.push((!items.is_empty()).then_some(items.len()));
        for p in items {
            self.source.append_value(p.source.name());
            self.pos.append_value(p.pos);
            self.call_id.append_option(p.call_id.as_deref());
            self.complete.append_value(p.complete);
            self.empty.append_value(p.empty);
            self.structured.append_value(p.structured);
            self.narrative.append_value(p.narrative);
            self.fields.append_value(p.fields.cast_signed());
            self.aliases.push(&p.aliases);
            self.targets.push(&p.targets);
            self.constraints.push(&p.constraints);
            self.artifacts.push(&p.artifacts);
            self.goal.append_option(p.goal);
            self.policies.push(&p.policies);
            put_bytes(&mut self.steps, p.steps.iter().map(|x| x.to_le_bytes()));
            self.tokens.append_option(p.tokens);
            put_bytes(&mut self.texts, p.texts.iter().map(|x| x.to_le_bytes()));
            put_bytes(&mut self.shingles, p.prints.shingles.iter().map(|x| x.to_le_bytes()));
            put_bytes(&mut self.idents, p.prints.idents.iter().map(|x| x.to_le_bytes()));
            self.text.append_option(p.text.as_deref());
        }
    }

    fn finish(mut self) -> ArrayRef {
        let arrays: Vec<ArrayRef> = vec![
            Arc::new(self.source.finish()),
            Arc::new(self.pos.finish()),
            Arc::new(self.call_id.finish()),
            Arc::new(self.complete.finish()),
            Arc::new(self.empty.finish()),
            Arc::new(self.structured.finish()),
            Arc::new(self.narrative.finish()),
            Arc::new(self.fields.finish()),
            self.aliases.finish(),
            self.targets.finish(),
            self.constraints.finish(),
            self.artifacts.finish(),
            Arc::new(self.goal.finish()),
            self.policies.finish(),
            Arc::new(self.steps.finish()),
            Arc::new(self.tokens.finish()),
            Arc::new(self.texts.finish()),
            Arc::new(self.shingles.finish()),
            Arc::new(self.idents.finish()),
            Arc::new(self.text.finish()),
        ];
        self.list.finish(Arc::new(StructArray::new(fields(&PAYLOAD), arrays, None)))
    }
}

builders!(Evaluations {
    list: ListBuilder,
    name: StringViewBuilder,
    score: Float64Builder,
    label: StringViewBuilder
});

impl Evaluations {
    fn push(&mut self, items: &[Evaluation]) {
        self.list.push((!items.is_empty()).then_some(items.len()));
        for e in items {
            self.name.append_value(&e.name);
            self.score.append_option(e.score);
            self.label.append_option(e.label.as_deref());
        }
    }

    fn finish(mut self) -> ArrayRef {
        let arrays: Vec<ArrayRef> =
            vec![Arc::new(self.name.finish()), Arc::new(self.score.finish()), Arc::new(self.label.finish())];
        self.list.finish(Arc::new(StructArray::new(fields(&EVALUATION), arrays, None)))
    }
}

fn text_column<'a>(spans: &'a [Span], f: impl Fn(&'a Span) -> Option<&'a str>) -> ArrayRef {
    Arc::new(spans.iter().map(f).collect::<StringViewArray>())
}

fn strings_column<'a>(spans: &'a [Span], f: impl Fn(&'a Handoff) -> &'a [String]) -> ArrayRef {
    let mut b = Strings::new();
    spans.iter().for_each(|s| b.push(s.handoff.as_ref().map_or(&[][..], &f)));
    b.finish()
}

/// Encodes rows.
///
/// # Errors
/// Arrow's own, should the columns not fit the schema (a defect).
pub fn encode(spans: &[Span]) -> Result<RecordBatch, ArrowError> {
    let handoff = |f: fn(&Handoff) -> Option<i64>| -> ArrayRef {
        Arc::new(spans.iter().map(|s| s.handoff.as_ref().and_then(f)).collect::<Int64Array>())
    };
    let time = |f: fn(&Span) -> Option<i64>| -> ArrayRef {
        let mut b = TimestampNanosecondBuilder::with_capacity(spans.len()).with_timezone("UTC");
        spans.iter().for_each(|s| b.append_option(f(s)));
        Arc::new(b.finish())
    };
    let flag = |f: fn(&Span) -> bool| -> ArrayRef {
        Arc::new(spans.iter().map(|s| Some(f(s))).collect::<BooleanArray>())
    };
    let int = |f: fn(&Span) -> i32| -> ArrayRef {
        Arc::new(spans.iter().map(|s| Some(f(s))).collect::<Int32Array>())
    };
    let long =
        |f: fn(&Span) -> Option<i64>| -> ArrayRef { Arc::new(spans.iter().map(f).collect::<Int64Array>()) };
    let (mut input, mut output, mut payloads, mut evaluations) =
        (Items::new(), Items::new(), Payloads::new(), Evaluations::new());
    let (mut contract_fields, mut view_policies) = (Strings::new(), Strings::new());
    for s in spans {
        view_policies.push(&s.view_policies);
        input.push(s.input.as_deref());
        output.push(s.output.as_deref());
        payloads.push(&s.payloads);
        evaluations.push(&s.evaluations);
        let names: Vec<&str> = s
            .handoff
            .as_ref()
            .and_then(|h| h.fields)
            .map(|f| crate::contract::field_names(f).collect())
            .unwrap_or_default();
        contract_fields.push(&names);
    }
    let arrays = vec![
        text_column(spans, |s| Some(&s.trace_id)),
        text_column(spans, |s| Some(&s.span_id)),
        text_column(spans, |s| s.parent_id.as_deref()),
        flag(|s| s.remote_parent),
        text_column(spans, |s| Some(if s.record == Record::Log { "log" } else { "span" })),
        time(|s| s.start),
        time(|s| s.end),
        text_column(spans, |s| s.service.as_deref()),
        text_column(spans, |s| Some(&s.scope)),
        text_column(spans, |s| Some(&s.dialect)),
        text_column(spans, |s| Some(&s.name)),
        int(|s| s.otel_kind),
        text_column(spans, |s| {
            Some(match s.status {
                Status::Unset => "unset",
                Status::Ok => "ok",
                Status::Error => "error",
            })
        }),
        text_column(spans, |s| s.error.as_deref()),
        text_column(spans, |s| match s.control {
            Control::None => None,
            Control::Transfer => Some("transfer"),
            Control::Pause => Some("pause"),
        }),
        int(|s| s.dropped),
        text_column(spans, |s| Some(s.role.name())),
        text_column(spans, |s| s.agent.as_deref()),
        text_column(spans, |s| s.agent_id.as_deref()),
        text_column(spans, |s| s.node.as_deref()),
        text_column(spans, |s| s.parent_agent.as_deref()),
        text_column(spans, |s| s.conversation_id.as_deref()),
        text_column(spans, |s| s.task_id.as_deref()),
        text_column(spans, |s| s.model.as_deref()),
        text_column(spans, |s| s.response_id.as_deref()),
        text_column(spans, |s| s.previous_response_id.as_deref()),
        long(|s| s.input_tokens),
        long(|s| s.output_tokens),
        text_column(spans, |s| s.finish.as_deref()),
        text_column(spans, |s| s.tool.as_deref()),
        text_column(spans, |s| s.call_id.as_deref()),
        flag(|s| s.view.lossy),
        flag(|s| s.view.cut),
        flag(|s| s.view.masked),
        flag(|s| s.view.hidden),
        input.finish(),
        output.finish(),
        payloads.finish(),
        text_column(spans, |s| s.handoff.as_ref().map(|h| h.signal.name())),
        text_column(spans, |s| s.handoff.as_ref().and_then(|h| h.from.as_deref())),
        strings_column(spans, |h| &h.to),
        text_column(spans, |s| s.handoff.as_ref().and_then(|h| h.mode.as_deref())),
        text_column(spans, |s| s.handoff.as_ref().and_then(|h| h.reason.as_deref())),
        strings_column(spans, |h| &h.requested),
        handoff(|h| h.payload_tokens),
        handoff(|h| h.items_before),
        handoff(|h| h.items_after),
        handoff(|h| h.tokens_before),
        handoff(|h| h.tokens_after),
        handoff(|h| h.filtered),
        text_column(spans, |s| s.handoff.as_ref().and_then(|h| h.constraints_hash.as_deref())),
        strings_column(spans, |h| &h.constraint_ids),
        strings_column(spans, |h| &h.constraint_hashes),
        contract_fields.finish(),
        strings_column(spans, |h| &h.artifacts),
        strings_column(spans, |h| &h.state_constraint_ids),
        view_policies.finish(),
        evaluations.finish(),
    ];
    RecordBatch::try_new(schema(), arrays)
}

// ---------------------------------------------------------------------------------------- decoding

/// Typed access to the columns of a batch of `spans/`, without copying.
pub struct SpanColumns {
    batch: RecordBatch,
    /// Items of `input` and `output`.
    input: ItemColumns,
    output: ItemColumns,
    payloads: PayloadColumns,
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

/// A borrowed item. The fields are those of [`Item`].
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

/// A borrowed payload. The fields are those of [`PayloadRow`].
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

/// A borrowed span. The fields are those of [`Span`].
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
}

/// What a span says about a transfer. The fields are those of [`Handoff`].
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
            batch,
        })
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.batch.num_rows()
    }

    /// True where there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn string(&self, c: usize, row: usize) -> Option<&str> {
        text(self.batch.column(c).as_string_view(), row)
    }

    fn long(&self, c: usize, row: usize) -> Option<i64> {
        let a = self.batch.column(c).as_primitive::<arrow::datatypes::Int64Type>();
        a.is_valid(row).then(|| a.value(row))
    }

    fn time(&self, c: usize, row: usize) -> Option<i64> {
        let a: &TimestampNanosecondArray = self.batch.column(c).as_primitive();
        a.is_valid(row).then(|| a.value(row))
    }

    fn int(&self, c: usize, row: usize) -> i32 {
        self.batch.column(c).as_primitive::<arrow::datatypes::Int32Type>().value(row)
    }

    fn flag(&self, c: usize, row: usize) -> bool {
        self.batch.column(c).as_boolean().value(row)
    }

    fn names(&self, c: usize, row: usize) -> Vec<&str> {
        texts(self.batch.column(c).as_list::<i32>(), row)
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
        let evaluations = range(self.batch.column(57).as_list::<i32>(), row)
            .map(|r| {
                let s = self.batch.column(57).as_list::<i32>().values().as_struct();
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
        }
    }
}

/// The documented schema as Markdown tables, for the README of the store.
pub fn markdown() -> String {
    let mut out = String::new();
    let parts: [(&str, &[Column]); 5] = [
        ("spans", &COLUMNS),
        ("input[], output[]", &ITEM),
        ("payloads[]", &PAYLOAD),
        ("payloads[].constraints[]", &CONSTRAINT),
        ("evaluations[]", &EVALUATION),
    ];
    for (title, columns) in parts {
        out.push_str(&format!(
            "### `{title}`\n\n| column | type | why, and what NULL means |\n|---|---|---|\n"
        ));
        for c in columns {
            let ty = match &c.data_type {
                DataType::Utf8View => "text".to_owned(),
                DataType::BinaryView => "binary".to_owned(),
                DataType::Timestamp(..) => "timestamp (ns, UTC)".to_owned(),
                DataType::List(f) if matches!(f.data_type(), DataType::Struct(_)) => {
                    "list of struct".to_owned()
                }
                DataType::List(_) => "list of text".to_owned(),
                other => other.to_string().to_lowercase(),
            };
            out.push_str(&format!(
                "| `{}` | {ty}{} | {} |\n",
                c.name,
                if c.nullable { "" } else { ", not null" },
                c.why
            ));
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::constraint::Constraint;
    use crate::prints::Prints;
    use crate::span::{ItemKind, Role, Signal, Source, Speaker, View};

    fn full() -> Span {
        let item = Item {
            kind: ItemKind::Call,
            speaker: Speaker::Assistant,
            name: Some("lookup".into()),
            call_id: Some("c1".into()),
            hash: Some(-5),
            tokens: Some(7),
            cut: true,
            error: Some(false),
            args: Args::Whole,
            args_digest: Some("ab".into()),
            sole: Some(9),
            prints: Prints { shingles: vec![1, 2], idents: vec![3] },
            text: Some("{}".into()),
            ..Item::default()
        };
        Span {
            trace_id: "t".into(),
            span_id: "s".into(),
            parent_id: Some("p".into()),
            record: Record::Log,
            start: Some(1),
            end: Some(2),
            service: Some("svc".into()),
            status: Status::Error,
            error: Some("E".into()),
            control: Control::Pause,
            dropped: 3,
            role: Role::Tool,
            agent: Some("a".into()),
            view: View { cut: true, ..View::default() },
            input: Some(vec![item.clone(), Item::default()]),
            output: Some(vec![]),
            payloads: vec![PayloadRow {
                source: Source::Update,
                fields: 33,
                constraints: vec![ConstraintRow {
                    constraint: Constraint::new("a", "b", ConstraintKind::Soft),
                    shingles: vec![8],
                }],
                steps: vec![5],
                texts: vec![-1],
                targets: vec!["x".into()],
                ..PayloadRow::default()
            }],
            handoff: Some(Handoff {
                signal: Signal::Received,
                to: vec!["b".into()],
                fields: Some(3),
                items_after: Some(4),
                ..Handoff::default()
            }),
            evaluations: vec![Evaluation { name: "n".into(), score: Some(0.5), label: None }],
            ..Span::default()
        }
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        let batch = encode(&[Span::default(), full()]).map_err(|e| e.to_string());
        let cols = SpanColumns::new(batch.as_ref().unwrap_or_else(|e| panic!("{e}")))
            .unwrap_or_else(|e| panic!("{e}"));
        let s = cols.span(1);
        assert_eq!(
            (s.trace_id, s.parent_id, s.log, s.start, s.status, s.control),
            ("t", Some("p"), true, Some(1), Status::Error, Control::Pause)
        );
        let items = s.input.as_ref().map(|i| i.as_slice()).unwrap_or_default();
        assert_eq!(items.len(), 2);
        assert_eq!(
            (items[0].kind, items[0].name, items[0].hash, items[0].args, unpack_u32(items[0].shingles)),
            (ItemKind::Call, Some("lookup"), Some(-5), Args::Whole, vec![1, 2])
        );
        assert_eq!(s.output.as_ref().map(Vec::len), Some(0));
        assert_eq!(cols.span(0).output.as_ref().map(Vec::len), None);
        let p = &s.payloads[0];
        assert_eq!(
            (p.fields, p.targets.as_slice(), p.constraints[0].id, p.constraints[0].soft),
            (33, &["x"][..], "a", true)
        );
        let h = s.handoff.as_ref();
        assert_eq!(
            h.map(|h| (h.signal, h.to.clone(), h.fields, h.items_after)),
            Some((Signal::Received, vec!["b"], Some(3), Some(4)))
        );
        assert_eq!(s.evaluations, [("n", Some(0.5), None)]);
    }

    #[test]
    fn every_column_says_why_it_is_there() {
        for c in COLUMNS.iter().chain(ITEM.iter()).chain(PAYLOAD.iter()) {
            assert!(c.why.len() > 8 || c.why.starts_with("NULL"), "{}", c.name);
            assert!(!c.nullable || c.why.contains("NULL"), "{} does not say what NULL means", c.name);
        }
    }
}
