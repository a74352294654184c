//! From what was found to rows.

use foldhash::HashMap;
use std::borrow::Cow;
use std::hash::Hasher;

use baton_record::constraint::set_hash;
use baton_record::contract::{REQUIRED, field_names};
use siphasher::sip::SipHasher13;

use super::Rules;
use super::constraints::At;
use super::judge::Task;
use super::repeats::Kind;
use crate::tables::{
    AgentRunRow, HandoffConstraintRow, HandoffRow, InferenceRow, LeakRow, Tables, ToolCallRow,
};

impl Task<'_> {
    fn outcome(&self, c: usize) -> &'static str {
        if self.calls[c].error {
            "error"
        } else if self.is_lost(c) {
            "lost"
        } else {
            "ok"
        }
    }

    pub(super) fn agent(&self, r: usize) -> Option<&str> {
        self.runs.runs[r].agent.or_else(|| {
            self.transfers.iter().find(|t| t.to_run == Some(r)).and_then(|t| t.to_name.as_deref())
        })
    }

    fn keys(&self) -> Keys<'_> {
        let span = |n: usize| (self.g.nodes[n].s.trace_id, self.g.nodes[n].s.span_id);
        let of = |kind: &str, n: usize| short(&[kind, span(n).0, span(n).1]);
        let calls = self.calls.iter().enumerate().map(|(c, call)| {
            let (n, place) = match (call.node, call.inference) {
                (Some(n), _) => (n, Cow::Borrowed("")),
                (None, Some(k)) => {
                    (self.infs[k].node, Cow::Owned(format!("{}/{c}", call.call_id.unwrap_or_default())))
                }
                (None, None) => (0, Cow::Owned(c.to_string())),
            };
            short(&[span(n).0, span(n).1, call.name, &place])
        });
        let mut seen: HashMap<Id, usize> = HashMap::default();
        let handoffs = self.transfers.iter().map(|t| {
            let call = t.call.and_then(|c| self.calls[c].call_id).unwrap_or_default();
            let (trace, id) = span(t.evidence);
            let key = short(&["handoff", trace, id, call, t.to_name.as_deref().unwrap_or_default()]);
            let n = seen.entry(key).or_default();
            *n += 1;
            if *n == 1 { key } else { short(&[key.as_str(), &n.to_string()]) }
        });
        Keys {
            calls: calls.collect(),
            handoffs: handoffs.collect(),
            runs: self.runs.runs.iter().map(|r| of("run", r.root)).collect(),
            inferences: self.infs.iter().map(|f| of("inference", f.node)).collect(),
            agents: (0..self.runs.runs.len()).map(|r| self.agent(r)).collect(),
        }
    }

    pub(super) fn write(&self, rules: &Rules, out: &mut Tables) {
        let partial = self.g.partial;
        let service = self.g.order.iter().find_map(|i| self.g.nodes[*i].s.service());
        let keys = self.keys();
        self.write_handoffs(out, &keys, service, partial.is_some());
        self.write_calls(out, &keys, service, partial.is_some());
        self.write_runs(out, &keys);
        self.write_task(out, service, partial);
        self.write_verdicts(rules, out, &keys);
        self.write_findings(out, &keys.handoffs, partial);
    }

    fn write_handoffs(&self, out: &mut Tables, keys: &Keys<'_>, service: Option<&str>, partial: bool) {
        let mut hop = 0;
        for (i, t) in self.transfers.iter().enumerate() {
            let f = &self.facts[i];
            let fields: Vec<&str> = field_names(f.payload.fields).collect();
            let active: Vec<&str> = f
                .constraints
                .list
                .iter()
                .filter(|c| c.active && !c.soft && !c.hash.is_empty())
                .map(|c| c.hash.as_str())
                .collect();
            let computed = (!active.is_empty()).then(|| set_hash(active.iter().copied()));
            let hash = t.explicit.and_then(|h| h.constraints_hash()).or(computed.as_deref());
            let s = self.g.nodes[t.evidence].s;
            let accepted = t.outcome == "accepted";
            let run_key = |r: Option<usize>| r.map(|r| keys.runs[r].as_str());
            let c = &f.context;
            out.handoffs.push(HandoffRow {
                handoff_id: keys.handoffs[i].as_str(),
                task_id: &self.id,
                trace_id: s.trace_id,
                span_id: s.span_id,
                seq: i as i64,
                time: Some(t.time).filter(|t| *t > 0 && *t < i64::MAX),
                service: s.service().or(service),
                from_agent: t.from_name.as_deref(),
                to_agent: t.to_name.as_deref(),
                mode: t.mode,
                outcome: t.outcome,
                detection: t.detection,
                confidence: t.confidence,
                candidates: &refs_of(&t.candidates),
                reason: t.explicit.and_then(|h| h.reason()),
                call_id: t.call.and_then(|c| self.calls[c].call_id),
                sender_run_id: run_key(t.from_run),
                receiver_run_id: run_key(t.to_run),
                rated: accepted && !partial,
                payload_tokens: f.payload.tokens.filter(|_| {
                    f.payload.unknown.is_none() || t.explicit.is_some_and(|h| h.payload_tokens().is_some())
                }),
                payload_fields: &fields,
                payload_aliases: &refs_of(&f.payload.aliases),
                payload_narrative: f.payload.narrative,
                required_present: f
                    .payload
                    .unknown
                    .is_none()
                    .then(|| REQUIRED.iter().filter(|x| f.payload.fields & x.bit() != 0).count() as i64),
                payload_unknown: f.payload.unknown,
                payload_text: f.payload.text.as_deref(),
                sender_inference_id: t.sender.map(|k| keys.inferences[k].as_str()),
                receiver_inference_id: t
                    .to_run
                    .and_then(|r| self.runs.runs[r].inferences.first())
                    .map(|k| keys.inferences[*k].as_str()),
                constraints_hash: hash,
                retention_unknown: f.constraints.retention_unknown.as_deref(),
                retention_payload_unknown: f.constraints.payload_unknown.as_deref(),
                items_before: c.items_before,
                items_after: c.items_after,
                filtered_items: c.filtered,
                filtered_results: c.filtered_results,
                added_items: c.added,
                duplicate_items: c.duplicates,
                retold_items: c.retold,
                tokens_before: c.tokens_before,
                tokens_after: c.tokens_after,
                before_unknown: c.before_unknown,
                after_unknown: c.after_unknown,
                calls_unknown: f.calls_unknown,
                repeats_unknown: f.repeats_unknown,
                lost_tool_results: f.lost.ok(),
                lost_unknown: f.lost.err(),
                leaks_unknown: f.leaks.as_ref().err().copied(),
                artifact_refs: &refs_of(&f.refs),
                artifacts_reused: &refs_of(&f.reused),
                artifacts_unknown: if f.refs.is_empty() {
                    Some(f.payload.unknown.unwrap_or("no references in the payload"))
                } else if t.to_run.is_none() {
                    Some("no receiver ran")
                } else if f.refs.iter().any(|r| r.contains(baton_record::span::REDACTED)) {
                    // What was masked is found in no call.
                    Some("a reference is masked")
                } else {
                    None
                },
                first_action_ns: f.first_action.ok(),
                first_action_unknown: f.first_action.err(),
                retriage: f.retriage.ok(),
                retriage_unknown: f.retriage.err(),
                last_activity: self.last_activity,
            });
            for x in &f.constraints.list {
                self.write_constraint(out, keys.handoffs[i].as_str(), hop, x);
            }
            for l in f.leaks.iter().flatten() {
                out.leaks.push(LeakRow {
                    handoff_id: keys.handoffs[i].as_str(),
                    task_id: &self.id,
                    call: keys.calls[l.call].as_str(),
                    tool: self.calls[l.call].name,
                    item: l.item,
                    overlap: &refs_of(&l.overlap),
                    last_activity: self.last_activity,
                });
            }
            hop += i64::from(accepted);
        }
    }

    fn write_constraint(&self, out: &mut Tables, handoff: &str, hop: i64, x: &At) {
        out.handoff_constraints.push(HandoffConstraintRow {
            handoff_id: handoff,
            task_id: &self.id,
            hop,
            id: &x.id,
            hash: &x.hash,
            text: x.text.as_deref(),
            soft: x.soft,
            active: x.active,
            stated: x.stated,
            in_payload: x.in_payload,
            in_view: x.in_view,
            counted: x.counted,
            got: x.got,
            cause: x.cause,
            last_activity: self.last_activity,
        });
    }

    fn write_calls(&self, out: &mut Tables, keys: &Keys<'_>, service: Option<&str>, partial: bool) {
        for c in (0..self.calls.len()).filter(|c| self.is_tool[*c]) {
            let call = &self.calls[c];
            let s =
                self.g.nodes[call.node.or_else(|| call.inference.map(|k| self.infs[k].node)).unwrap_or(0)].s;
            let known = self.under[c].is_some_and(|t| self.facts[t].repeats_unknown.is_none());
            let repeat = self.repeats[c].filter(|r| r.kind == Kind::Own || known);
            let (prevented, cause) = match repeat {
                Some(r) if r.kind != Kind::Own => {
                    let (p, c) = self.blame(c, r);
                    (p, Some(c))
                }
                _ => (Vec::new(), None),
            };
            let duration = match (call.node, call.start, call.end) {
                (Some(_), Some(a), Some(b)) => Some(b - a).filter(|d| *d >= 0),
                _ => None,
            };
            out.tool_calls.push(ToolCallRow {
                id: keys.calls[c].as_str(),
                task_id: &self.id,
                trace_id: s.trace_id,
                service: s.service().or(service),
                agent: call.run.and_then(|r| keys.agents[r]),
                run_id: call.run.map(|r| keys.runs[r].as_str()),
                tool: call.name,
                call_id: call.call_id,
                outcome: self.outcome(c),
                args_digest: call.digest,
                args: call.item.and_then(|i| i.text()),
                start: call.start.filter(|t| *t > 0 && *t < i64::MAX),
                end: call.end,
                duration_ns: duration,
                handoff_id: self.under[c].map(|t| keys.handoffs[t].as_str()),
                rated: self.under[c].is_some() && !partial,
                repeats: repeat.map(|r| keys.calls[r.earlier].as_str()),
                repeat_kind: repeat.map(|r| r.kind.name()),
                prevented_by: &prevented,
                cause,
                last_activity: self.last_activity,
            });
        }
    }

    fn write_runs(&self, out: &mut Tables, keys: &Keys<'_>) {
        for (r, run) in self.runs.runs.iter().enumerate().filter(|(_, r)| r.merged.is_none()) {
            let s = self.g.nodes[run.root].s;
            let tools = self.calls_of(r).filter(|c| self.is_tool[*c]).count();
            out.agent_runs.push(AgentRunRow {
                run_id: keys.runs[r].as_str(),
                task_id: &self.id,
                trace_id: s.trace_id,
                agent: keys.agents[r],
                parent_run_id: run.parent_run.map(|p| keys.runs[p].as_str()),
                handoff_id: self
                    .transfers
                    .iter()
                    .position(|t| t.to_run == Some(r) && t.outcome == "accepted")
                    .map(|t| keys.handoffs[t].as_str()),
                start: Some(run.start).filter(|t| *t > 0 && *t < i64::MAX),
                end: Some(run.end).filter(|t| *t > 0 && *t < i64::MAX),
                inferences: run.inferences.len() as i64,
                tool_calls: tools as i64,
                last_activity: self.last_activity,
            });
        }
        for (k, f) in self.infs.iter().enumerate() {
            let s = self.g.nodes[f.node].s;
            let run = Some(f.run).filter(|r| *r != usize::MAX);
            out.inferences.push(InferenceRow {
                inference_id: keys.inferences[k].as_str(),
                task_id: &self.id,
                run_id: run.map(|r| keys.runs[r].as_str()),
                agent: run.and_then(|r| keys.agents[r]),
                trace_id: s.trace_id,
                span_id: s.span_id,
                model: f.model,
                response_id: f.response_id,
                start: s.start,
                end: s.end,
                input_tokens: f.input_tokens,
                output_tokens: f.output_tokens,
                finish: f.finish,
                recordings: f.recordings,
                last_activity: self.last_activity,
            });
        }
    }
}

pub(super) fn refs_of(v: &[String]) -> Vec<&str> {
    v.iter().map(String::as_str).collect()
}

/// The ids of what was found, each computed once, and the names of the agents by run.
pub(super) struct Keys<'t> {
    pub calls: Vec<Id>,
    pub handoffs: Vec<Id>,
    pub runs: Vec<Id>,
    inferences: Vec<Id>,
    pub agents: Vec<Option<&'t str>>,
}

/// 16 hex digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Id([u8; 16]);

impl Id {
    fn new(n: u64) -> Self {
        let digit = |place: usize| b"0123456789abcdef"[(n >> (60 - 4 * place)) as usize & 15];
        Self(std::array::from_fn(digit))
    }

    pub(super) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

/// A short id that depends on nothing but the parts.
fn short(parts: &[&str]) -> Id {
    let mut h = SipHasher13::new();
    for p in parts {
        h.write(p.as_bytes());
        h.write_u8(0xff);
    }
    Id::new(h.finish())
}
