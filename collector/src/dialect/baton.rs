//! Own attributes, `baton.*`: a handoff span of ours is at the same time a legal GenAI span, so it is
//! read as one and the rest is laid on top. Attributes of ours on spans of other dialects count too.

use baton_record::attr;
use baton_record::constraint::Constraint;
use baton_record::contract::{self, Field};
use baton_record::span::{ConstraintRow, Handoff, PayloadRow, Role, Signal, Source, Span};
use serde_json::Value;

use super::{Dialect, genai};
use crate::raw::Raw;
use crate::reading::Reader;

/// Baton's own spans.
pub static DIALECT: Dialect = Dialect {
    name: "baton",
    about: "Spans of Baton's own tracing layer: baton.* attributes on a span of the open transfer proposal.",
    shows: "Everything that was recorded: both ends, mode, reason, contract, constraints in state, payload and view, history before and after, artifacts.",
    hides: "Only what the application did not record, such as the contract's text when content is off.",
    matches: |raw| {
        raw.attrs.has(attr::BATON_HANDOFF_ID)
            || (raw.attrs.has(attr::BATON_HANDOFF_FROM_AGENT) && raw.attrs.has(attr::BATON_HANDOFF_TO_AGENT))
    },
    read: genai::read,
};

/// Lays `baton.*` attributes on a row.
pub(super) fn overlay(reader: &Reader, raw: &Raw<'_>, span: &mut Span) {
    let a = raw.attrs;
    if !a.any_under(attr::PREFIX) {
        return;
    }
    span.task_id = a.text(attr::BATON_TASK_ID).map(str::to_owned);
    let own = |k: &str| a.text(k).map(str::to_owned);
    if a.has(attr::BATON_HANDOFF_FROM_AGENT)
        || a.has(attr::BATON_HANDOFF_TO_AGENT)
        || a.has(attr::BATON_HANDOFF_ID)
    {
        let mut h = Handoff {
            signal: Signal::Explicit,
            from: own(attr::BATON_HANDOFF_FROM_AGENT).or_else(|| span.agent.clone()),
            to: a.strings(attr::BATON_HANDOFF_TO_AGENT),
            mode: own(attr::BATON_HANDOFF_MODE).or_else(|| own("gen_ai.transfer.mode")),
            reason: own(attr::BATON_HANDOFF_REASON),
            payload_tokens: a.int(attr::BATON_HANDOFF_PAYLOAD_TOKENS),
            items_before: a.int(attr::BATON_HANDOFF_HISTORY_ITEMS_BEFORE),
            items_after: a.int(attr::BATON_HANDOFF_HISTORY_ITEMS_AFTER),
            tokens_before: a.int(attr::BATON_HANDOFF_HISTORY_TOKENS_BEFORE),
            tokens_after: a.int(attr::BATON_HANDOFF_HISTORY_TOKENS_AFTER),
            filtered: a.int(attr::BATON_HANDOFF_HISTORY_FILTERED_COUNT),
            constraints_hash: own(attr::BATON_HANDOFF_CONSTRAINTS_HASH),
            constraint_ids: a.strings(attr::BATON_HANDOFF_CONSTRAINTS_IDS),
            constraint_hashes: a.strings(attr::BATON_HANDOFF_CONSTRAINTS_HASHES),
            artifacts: a.strings(attr::BATON_HANDOFF_ARTIFACTS),
            state_constraint_ids: a.strings(attr::BATON_HANDOFF_STATE_CONSTRAINTS_IDS),
            ..Handoff::default()
        };
        if a.has(attr::BATON_HANDOFF_CONTRACT_FIELDS) {
            h.fields = Some(
                a.strings(attr::BATON_HANDOFF_CONTRACT_FIELDS)
                    .iter()
                    .filter_map(|f| Field::from_name(f))
                    .map(Field::bit)
                    .fold(0, |x, y| x | y),
            );
        }
        span.handoff = Some(h);
        // It is the transfer and no call of a tool, whatever it is to other readers: where another instrumentation writes the
        // tool's own span, that one is the call, and this one speaks of it.
        if matches!(span.role, Role::Other | Role::Step | Role::Tool) {
            span.role = Role::Handoff;
        }
    } else if a.has(attr::BATON_RECEIVED_CONSTRAINTS_IDS) || a.has(attr::BATON_RECEIVED_CONSTRAINTS_HASH) {
        span.handoff = Some(Handoff {
            signal: Signal::Received,
            constraint_ids: a.strings(attr::BATON_RECEIVED_CONSTRAINTS_IDS),
            constraints_hash: own(attr::BATON_RECEIVED_CONSTRAINTS_HASH),
            ..Handoff::default()
        });
    }
    let text = a.text(attr::BATON_HANDOFF_CONTRACT).map(baton_record::json::parse_loose);
    if let Some((v @ Value::Object(_), form)) = text {
        let mut p = contract::read(&v, &reader.config().aliases);
        p.complete &= form != baton_record::json::Form::Truncated;
        span.payloads.extend(reader.payload(p, Source::Contract, 0, span.call_id.clone()));
    } else if a.has(attr::BATON_HANDOFF_CONTRACT_FIELDS) {
        span.payloads.push(without_content(raw, span));
    }
}

/// The payload of a span that does not write it: fields, constraints, references and tokens are told beside it.
fn without_content(raw: &Raw<'_>, span: &Span) -> PayloadRow {
    let a = raw.attrs;
    let h = span.handoff.as_ref();
    let fields = h.and_then(|h| h.fields).unwrap_or_default();
    let tokens = a.int(attr::BATON_HANDOFF_PAYLOAD_TOKENS).and_then(|n| i32::try_from(n).ok());
    let hashes = a.strings(attr::BATON_HANDOFF_CONSTRAINTS_HASHES);
    let row = |id: String, hash: Option<String>, retired: bool| {
        // An id alone has the hash of a constraint without text.
        let hash = hash.unwrap_or_else(|| Constraint::hard(&id, "").hash);
        let constraint = Constraint { text: None, hash, retired, ..Constraint::hard(&id, "") };
        ConstraintRow { constraint, shingles: Vec::new() }
    };
    let active = a.strings(attr::BATON_HANDOFF_CONSTRAINTS_IDS);
    let retired = a.strings(attr::BATON_HANDOFF_CONSTRAINTS_RETIRED);
    let constraints = active
        .into_iter()
        .enumerate()
        .map(|(i, id)| row(id, hashes.get(i).cloned(), false))
        .chain(retired.into_iter().map(|id| row(id, None, true)))
        .collect();
    PayloadRow {
        source: Source::Contract,
        call_id: span.call_id.clone(),
        complete: true,
        empty: fields == 0 && tokens == Some(0),
        structured: fields & !Field::Narrative.bit() != 0,
        narrative: fields & Field::Narrative.bit() != 0,
        fields,
        constraints,
        artifacts: a.strings(attr::BATON_HANDOFF_ARTIFACTS),
        tokens,
        ..PayloadRow::default()
    }
}
