//! From rows to Arrow.

use std::collections::HashSet;
use std::hash::BuildHasher;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BinaryViewBuilder, BooleanArray, BooleanBuilder, Float64Builder, Int32Array,
    Int32Builder, Int64Array, Int64Builder, ListArray, RecordBatch, StringViewArray, StringViewBuilder,
    StructArray, TimestampNanosecondBuilder,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::Field;
use arrow::error::ArrowError;
use foldhash::quality::FixedState;

use super::{CONSTRAINT, CONTENT, EVALUATION, ITEM, PAYLOAD, fields, schema};
use crate::constraint::ConstraintKind;
use crate::span::{
    Args, ConstraintRow, Control, Evaluation, Handoff, Item, PayloadRow, Record, Span, Status,
};

struct ListBuilder {
    offsets: Vec<i32>,
    valid: Vec<bool>,
    len: i32,
}

impl ListBuilder {
    fn with_capacity(lists: usize) -> Self {
        let mut offsets = Vec::with_capacity(lists + 1);
        offsets.push(0);
        Self { offsets, valid: Vec::with_capacity(lists), len: 0 }
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
    /// Most lists are empty.
    fn with_capacity(lists: usize) -> Self {
        Self { list: ListBuilder::with_capacity(lists), child: StringViewBuilder::with_capacity(0) }
    }

    fn push<S: AsRef<str>>(&mut self, items: &[S]) {
        self.list.push((!items.is_empty()).then_some(items.len()));
        items.iter().for_each(|s| self.child.append_value(s));
    }

    fn finish(mut self) -> ArrayRef {
        self.list.finish(Arc::new(self.child.finish()))
    }
}

fn put_bytes<const N: usize>(b: &mut BinaryViewBuilder, items: impl Iterator<Item = [u8; N]>) {
    let mut buf = Vec::with_capacity(items.size_hint().1.unwrap_or(0) * N);
    items.for_each(|x| buf.extend_from_slice(&x));
    if buf.is_empty() { b.append_null() } else { b.append_value(buf) }
}

macro_rules! builders {
    ($name:ident { $($field:ident : $ty:ty),* $(,)? }) => {
        struct $name { $($field: $ty),* }
        impl $name {
            /// Arrow's own default is room for 1,024 rows in each of a hundred builders, and most requests are smaller.
            fn with_capacity(n: usize) -> Self { Self { $($field: <$ty>::with_capacity(n)),* } }
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
            // What has a hash is found in `contents`.
            let own = i.hash.is_none();
            put_bytes(&mut self.shingles, i.prints.shingles.iter().filter(|_| own).map(|x| x.to_le_bytes()));
            put_bytes(&mut self.idents, i.prints.idents.iter().filter(|_| own).map(|x| x.to_le_bytes()));
            self.text.append_option(i.text.as_deref().filter(|_| own));
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

builders!(ContentsBuilder {
    list: ListBuilder,
    hash: Int64Builder,
    shingles: BinaryViewBuilder,
    idents: BinaryViewBuilder,
    text: StringViewBuilder,
});

impl ContentsBuilder {
    fn push(&mut self, s: &Span, seen: &mut HashSet<(i64, u64)>) {
        let mut n = 0;
        for i in s.input.iter().chain(&s.output).flatten() {
            let Some(hash) = i.hash.filter(|_| !i.prints.is_empty() || i.text.is_some()) else { continue };
            // One item may come in two spellings (JSON, Python) whose fingerprints differ a little: both are kept.
            let spelling = FixedState::default().hash_one((&i.prints.shingles, &i.prints.idents));
            if !seen.insert((hash, spelling)) {
                continue;
            }
            n += 1;
            self.hash.append_value(hash);
            put_bytes(&mut self.shingles, i.prints.shingles.iter().map(|x| x.to_le_bytes()));
            put_bytes(&mut self.idents, i.prints.idents.iter().map(|x| x.to_le_bytes()));
            self.text.append_option(i.text.as_deref());
        }
        self.list.push((n > 0).then_some(n));
    }

    fn finish(mut self) -> ArrayRef {
        let arrays: Vec<ArrayRef> = vec![
            Arc::new(self.hash.finish()),
            Arc::new(self.shingles.finish()),
            Arc::new(self.idents.finish()),
            Arc::new(self.text.finish()),
        ];
        self.list.finish(Arc::new(StructArray::new(fields(&CONTENT), arrays, None)))
    }
}

fn text_column<'a>(spans: &[&'a Span], f: impl Fn(&'a Span) -> Option<&'a str>) -> ArrayRef {
    Arc::new(spans.iter().map(|s| f(s)).collect::<StringViewArray>())
}

fn strings_column<'a>(spans: &[&'a Span], f: impl Fn(&'a Handoff) -> &'a [String]) -> ArrayRef {
    let mut b = Strings::with_capacity(spans.len());
    spans.iter().for_each(|s| b.push(s.handoff.as_ref().map_or(&[][..], &f)));
    b.finish()
}

/// Encodes the rows of one file, batch after batch. Rows of one trace stand together, so that what their items hold is
/// stored once.
#[derive(Debug, Default)]
pub struct Encoder {
    trace: String,
    seen: HashSet<(i64, u64)>,
}

impl Encoder {
    /// Encodes rows.
    ///
    /// # Errors
    /// Arrow's own, should the columns not fit the schema (a defect).
    pub fn encode(&mut self, spans: &[Span]) -> Result<RecordBatch, ArrowError> {
        self.encode_refs(&spans.iter().collect::<Vec<_>>())
    }

    /// Encodes rows that stand in another order elsewhere.
    ///
    /// # Errors
    /// Arrow's own, should the columns not fit the schema (a defect).
    pub fn encode_refs(&mut self, spans: &[&Span]) -> Result<RecordBatch, ArrowError> {
        let mut contents = ContentsBuilder::with_capacity(spans.len());
        for s in spans {
            if s.trace_id != self.trace {
                self.trace.clone_from(&s.trace_id);
                self.seen.clear();
            }
            contents.push(s, &mut self.seen);
        }
        batch(spans, contents.finish())
    }
}

fn batch(spans: &[&Span], contents: ArrayRef) -> Result<RecordBatch, ArrowError> {
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
    let long = |f: fn(&Span) -> Option<i64>| -> ArrayRef {
        Arc::new(spans.iter().map(|s| f(s)).collect::<Int64Array>())
    };
    let count = |f: fn(&Span) -> usize| spans.iter().map(|s| f(s)).sum::<usize>();
    let mut input = Items::with_capacity(count(|s| s.input.as_ref().map_or(0, Vec::len)));
    let mut output = Items::with_capacity(count(|s| s.output.as_ref().map_or(0, Vec::len)));
    let mut payloads = Payloads::with_capacity(count(|s| s.payloads.len()));
    let mut evaluations = Evaluations::with_capacity(count(|s| s.evaluations.len()));
    let mut contract_fields = Strings::with_capacity(spans.len());
    let mut view_policies = Strings::with_capacity(spans.len());
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
        contents,
    ];
    RecordBatch::try_new(schema(), arrays)
}
