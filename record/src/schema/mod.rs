//! The stored form of [`crate::span::Span`]: Arrow schema, encoding and decoding.
//!
//! Bytes: Parquet files under `spans/`, one row per span or log record, zstd, statistics and dictionaries as
//! the writer sets them. The layout's number is [`VERSION`]; it stands in the file metadata under
//! [`VERSION_KEY`]. Always: an item list that is NULL was not captured, one that is empty was captured and empty.
//! Hashes are under the store's key, so files of two stores are not to be mixed.
//!
//! A conversation is sent again with every turn. So `input` and `output` name each item by its hash, and what the item
//! holds (fingerprints and text) stands once per trace and file, in `contents` of the first row that has it.

use std::sync::{Arc, LazyLock};

use arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit};

mod decode;
mod encode;
mod items;

pub use decode::{HandoffRef, SpanColumns, SpanRef};
pub use encode::Encoder;
pub use items::{
    ConstraintRef, ContentRef, Contents, ItemRef, Names, PayloadRef, packed_holds, unpack_u32, unpack_u64,
};

/// Number of this layout. A reader refuses files of another one.
pub const VERSION: &str = "1";
/// Where [`VERSION`] stands in the Parquet file metadata.
pub const VERSION_KEY: &str = "baton.spans.version";
/// Where a file that others were merged into names them, in the Parquet file metadata: a JSON array of paths relative to
/// `spans/`. A reader leaves out every file that another present file names, so that each row counts once.
pub const REPLACES_KEY: &str = "baton.spans.replaces";

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
            "as in `contents`, of an item without a hash; NULL: see there, or none",
        ),
        col("idents", BinaryView, true, "likewise; NULL: see there, or none"),
        col("text", Utf8View, true, "likewise; NULL: see there, or none"),
    ]
});

/// The columns of one entry of `contents`.
pub static CONTENT: LazyLock<Vec<Column>> = LazyLock::new(|| {
    use DataType::{BinaryView, Int64, Utf8View};
    vec![
        col("hash", Int64, false, "`hash` of the items that hold this"),
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
        col("text", Utf8View, true, "the text; NULL: content mode `none`"),
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
        col(
            "contents",
            list_of(&fields(&CONTENT)),
            true,
            "what items hold that stand on no earlier row of this trace in this file; NULL: nothing new",
        ),
    ]
});

static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| Arc::new(Schema::new(fields(&COLUMNS))));

/// The Arrow schema of `spans/`.
pub fn schema() -> SchemaRef {
    SCHEMA.clone()
}

/// The documented schema as Markdown tables, for the README of the store.
pub fn markdown() -> String {
    let mut out = String::new();
    let parts: [(&str, &[Column]); 6] = [
        ("spans", &COLUMNS),
        ("input[], output[]", &ITEM),
        ("contents[]", &CONTENT),
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
    use crate::constraint::{Constraint, ConstraintKind};
    use crate::prints::Prints;
    use crate::span::{
        Args, ConstraintRow, Control, Evaluation, Handoff, Item, ItemKind, PayloadRow, Record, Role, Signal,
        Source, Span, Speaker, Status, View,
    };

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
            prints: Arc::new(Prints { shingles: vec![1, 2], idents: vec![3] }),
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
        let batch = Encoder::default().encode(&[Span::default(), full()]).map_err(|e| e.to_string());
        let cols = SpanColumns::new(batch.as_ref().unwrap_or_else(|e| panic!("{e}")))
            .unwrap_or_else(|e| panic!("{e}"));
        let s = cols.span(1);
        assert_eq!(
            (s.trace_id, s.parent_id, s.log, s.start, s.status, s.control()),
            ("t", Some("p"), true, Some(1), Status::Error, Control::Pause)
        );
        let none = Contents::default();
        let items = s.input(&none).unwrap_or_default();
        assert_eq!(items.len(), 2);
        assert_eq!(
            (items[0].kind, items[0].name(), items[0].hash, items[0].args),
            (ItemKind::Call, Some("lookup"), Some(-5), Args::Whole)
        );
        assert_eq!(s.output(&none).as_ref().map(Vec::len), Some(0));
        assert_eq!(cols.span(0).output(&none).as_ref().map(Vec::len), None);
        let p = &s.payloads()[0];
        let c: Vec<_> = p.constraints().collect();
        assert_eq!(
            (p.fields(), p.targets().iter().collect(), c[0].id, c[0].soft),
            (33, vec!["x"], "a", true)
        );
        let h = s.handoff();
        assert_eq!(
            h.map(|h| (h.signal, h.to().iter().collect(), h.fields(), h.items_after())),
            Some((Signal::Received, vec!["b"], Some(3), Some(4)))
        );
        assert_eq!(s.evaluations(), [("n", Some(0.5), None)]);
    }

    #[test]
    fn what_an_item_holds_is_stored_once_per_trace_and_found_again() {
        let masked =
            Item { prints: Arc::new(Prints { shingles: vec![7], idents: vec![] }), ..Item::default() };
        let other = |s: Span| Span { trace_id: "u".into(), ..s };
        let mut again = full();
        again.input.get_or_insert_default().push(masked);
        let rows = [full(), again, other(full())];
        let batch = Encoder::default().encode(&rows).map_err(|e| e.to_string());
        let cols = SpanColumns::new(batch.as_ref().unwrap_or_else(|e| panic!("{e}")))
            .unwrap_or_else(|e| panic!("{e}"));
        let spans: Vec<_> = (0..3).map(|i| cols.span(i)).collect();
        assert_eq!(spans.iter().map(|s| s.contents().count()).collect::<Vec<_>>(), [1, 0, 1]);
        let contents = Contents::of(&spans[..2]);
        let items = spans[1].input(&contents).unwrap_or_default();
        assert_eq!((unpack_u32(items[0].shingles()).collect(), items[0].text()), (vec![1, 2], Some("{}")));
        assert!(unpack_u32(items[2].shingles()).eq([7]));
        assert!(packed_holds(items[0].shingles(), 2) && !packed_holds(items[0].shingles(), 3));
    }

    #[test]
    fn every_column_says_why_it_is_there() {
        for c in COLUMNS.iter().chain(ITEM.iter()).chain(PAYLOAD.iter()).chain(CONTENT.iter()) {
            assert!(c.why.len() > 8 || c.why.starts_with("NULL"), "{}", c.name);
            assert!(!c.nullable || c.why.contains("NULL"), "{} does not say what NULL means", c.name);
        }
    }
}
