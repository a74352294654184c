//! From what was found to rows.

use std::collections::{HashMap, HashSet};

use baton_record::canonical::sha256_hex;
use baton_record::constraint::set_hash;
use baton_record::contract::{Field, REQUIRED, field_names};
use baton_record::names::{bare_tool_name, is_final_answer_tool, slug};
use baton_record::schema::{SpanRef, unpack_u32, unpack_u64};
use baton_record::span::{ItemKind, Role};

use super::Rules;
use super::bounces::{self, Bounce};
use super::calls::{self, Call};
use super::constraints::{At, Constraints, Tracker};
use super::context::{self, Context, Leak};
use super::graph::Graph;
use super::inference::{self, Inference};
use super::intents;
use super::repeats::{self, Kind, Repeat};
use super::runs::{self, Runs};
use super::transfers::{self, Transfer};
use crate::tables::{
    AgentRunRow, FindingRow, HandoffConstraintRow, HandoffRow, InferenceRow, LeakRow, Tables, TaskRow,
    ToolCallRow,
};

/// Everything that was found about one task.
struct Task<'a> {
    id: String,
    g: Graph<'a>,
    infs: Vec<Inference<'a>>,
    runs: Runs<'a>,
    calls: Vec<Call<'a>>,
    /// Which of the calls are tool calls.
    is_tool: Vec<bool>,
    transfers: Vec<Transfer<'a>>,
    /// For each call: the transfer under which it counts.
    under: Vec<Option<usize>>,
    repeats: Vec<Option<Repeat>>,
    facts: Vec<Facts>,
    bounces: Vec<Bounce>,
    duplicates: i64,
    key: baton_record::prints::PrintKey,
}

/// A value, or why it cannot be known.
type Known<T> = Result<T, &'static str>;

/// What is known of one transfer.
struct Facts {
    payload: Payload,
    context: Context,
    constraints: Constraints,
    leaks: Known<Vec<Leak>>,
    calls_unknown: Option<&'static str>,
    repeats_unknown: Option<&'static str>,
    lost: Known<i64>,
    reused: Vec<String>,
    refs: Vec<String>,
    first_action: Known<i64>,
    retriage: Known<bool>,
}

#[derive(Default)]
struct Payload {
    unknown: Option<&'static str>,
    fields: u32,
    aliases: Vec<String>,
    narrative: bool,
    tokens: Option<i64>,
}

/// Assembles and writes one task.
pub(super) fn task<'a>(rules: &Rules, rows: &'a [SpanRef<'a>], task_id: Option<&str>, out: &mut Tables) {
    let mut g = Graph::new(rows);
    let mirrored = inference::drop_mirrors(&mut g);
    let (mut infs, duplicates) = inference::collect(&mut g);
    let mut runs = runs::build(&g, &mut infs);
    let mut calls = calls::collect(&mut g, &infs, &mut runs);
    if infs.is_empty() && calls.is_empty() && runs.runs.iter().all(|r| r.merged.is_some()) {
        return; // A trace that sets things up, or nothing an agent did.
    }
    let intents = intents::collect(&g, &infs, &runs, &calls);
    let transfers = transfers::find(&g, &mut infs, &mut runs, &mut calls, intents);
    let is_tool = tool_calls(&infs, &calls, &transfers);
    let under = under_transfers(&calls, &is_tool, &transfers);
    let before: Vec<Option<i64>> = under.iter().map(|u| u.map(|t| transfers[t].time)).collect();
    let repeats = repeats::find(rules, &calls, &is_tool, &before);
    let mut t = Task {
        id: identity(&g, task_id),
        g,
        infs,
        runs,
        calls,
        is_tool,
        transfers,
        under,
        repeats,
        facts: Vec::new(),
        bounces: Vec::new(),
        duplicates: duplicates + mirrored,
        key: rules.key,
    };
    t.judge(rules);
    t.write(out);
}

fn identity(g: &Graph<'_>, task_id: Option<&str>) -> String {
    if let Some(t) = task_id {
        return t.to_owned();
    }
    let mut traces: Vec<&str> = g.nodes.iter().map(|n| n.s.trace_id).collect();
    traces.sort_unstable();
    traces.dedup();
    let root = g
        .order
        .iter()
        .copied()
        .filter(|i| g.nodes[*i].parent.is_none())
        .find_map(|i| g.nodes[i].s.conversation_id);
    let any = root.or_else(|| g.order.iter().find_map(|i| g.nodes[*i].s.conversation_id));
    match any {
        Some(c) if traces.len() > 1 || root.is_some() => c.to_owned(),
        _ => g.order.first().map(|i| g.nodes[*i].s.trace_id).unwrap_or_default().to_owned(),
    }
}

/// Tool calls are what ran: a span shows it, or a later message holds the result. Transfers, agents used as tools and
/// final-answer pseudo tools are none.
fn tool_calls(infs: &[Inference<'_>], calls: &[Call<'_>], transfers: &[Transfer<'_>]) -> Vec<bool> {
    let moved: HashSet<usize> = transfers.iter().filter_map(|t| t.call).collect();
    calls
        .iter()
        .enumerate()
        .map(|(i, c)| {
            let transfer_like =
                moved.contains(&i) || baton_record::names::transfer_name(c.name).is_some_and(|n| n.is_sure());
            let own_result = c.inference.is_some_and(|k| {
                infs[k]
                    .output
                    .iter()
                    .flatten()
                    .any(|x| x.kind == ItemKind::Result && x.call_id.is_some() && x.call_id == c.call_id)
            });
            !transfer_like && !is_final_answer_tool(c.name) && (c.node.is_some() || c.answered || own_result)
        })
        .collect()
}

/// For each tool call the transfer under which it counts: the one that started its run, until the run hands off.
fn under_transfers(calls: &[Call<'_>], is_tool: &[bool], transfers: &[Transfer<'_>]) -> Vec<Option<usize>> {
    let mut started: HashMap<usize, usize> = HashMap::new();
    let mut left: HashMap<usize, (i64, Option<usize>)> = HashMap::new();
    for (i, t) in transfers.iter().enumerate().filter(|(_, t)| t.outcome == "accepted") {
        if let Some(r) = t.to_run {
            started.entry(r).or_insert(i);
        }
        if let Some(r) = t.from_run {
            left.entry(r).or_insert((t.time, t.sender));
        }
    }
    calls
        .iter()
        .enumerate()
        .map(|(i, c)| {
            let r = c.run.filter(|_| is_tool[i])?;
            let t = *started.get(&r)?;
            let (time, turn) = left.get(&r).copied().unwrap_or((i64::MAX, None));
            // A call of the same turn as the transfer still belongs to the run.
            (c.order <= time || (turn.is_some() && c.inference == turn)).then_some(t)
        })
        .collect()
}

impl Task<'_> {
    fn judge(&mut self, rules: &Rules) {
        let mut tracker = Tracker::default();
        let mut facts = Vec::with_capacity(self.transfers.len());
        for i in 0..self.transfers.len() {
            let t = &self.transfers[i];
            let receiver = t.to_run.and_then(|r| self.runs.runs[r].inferences.first().copied());
            let payload = self.payload(t);
            let context = context::compare(&self.infs, t, receiver);
            let constraints =
                tracker.step(rules, &self.g, &self.runs, &self.infs, t, receiver, payload.unknown);
            let leaks = if t.to_run.is_some() {
                context::leaks(&self.infs, &self.calls, t, receiver, &context)
            } else {
                Err("no receiver ran")
            };
            let mut f = Facts {
                payload,
                context,
                constraints,
                leaks,
                calls_unknown: None,
                repeats_unknown: None,
                lost: Err(""),
                reused: Vec::new(),
                refs: Vec::new(),
                first_action: Err(""),
                retriage: Err(""),
            };
            self.actions(i, &mut f);
            self.artifacts(rules, t, &mut f);
            f.lost = self.lost(t, receiver);
            facts.push(f);
        }
        self.facts = facts;
        let redoes: Vec<bool> = (0..self.transfers.len())
            .map(|i| self.calls_under(i).any(|c| self.repeats[c].is_some_and(|r| r.kind == Kind::Redundant)))
            .collect();
        let roots: Vec<i64> = {
            let mut first: HashMap<&str, i64> = HashMap::new();
            for n in &self.g.nodes {
                let e = first.entry(n.s.trace_id).or_insert(n.start);
                *e = (*e).min(n.start);
            }
            first.into_values().collect()
        };
        let turn_of = |t: i64| roots.iter().filter(|s| **s <= t).count();
        self.bounces = bounces::find(&self.infs, &self.runs, &self.transfers, &redoes, &turn_of);
    }

    fn calls_under(&self, transfer: usize) -> impl Iterator<Item = usize> + '_ {
        (0..self.calls.len()).filter(move |c| self.under[*c] == Some(transfer))
    }

    /// What the sender put into the transfer (METRICS.md section 1, payload).
    fn payload(&self, t: &Transfer<'_>) -> Payload {
        let mut p = Payload::default();
        if let Some(h) = t.explicit.filter(|h| h.fields.is_some() || h.payload_tokens.is_some()) {
            p.tokens = h.payload_tokens;
            if let Some(f) = h.fields {
                p.fields = f;
                p.narrative = f & Field::Narrative.bit() != 0;
                return p;
            }
        }
        let rows: Vec<_> = t.payloads.iter().collect();
        if rows.iter().any(|r| !r.complete) {
            let masked = t
                .call
                .and_then(|c| self.calls[c].item)
                .is_some_and(|i| i.args == baton_record::span::Args::Masked);
            p.unknown = Some(if masked { "payload masked" } else { "payload cut off" });
        } else if !t.captured && rows.is_empty() {
            p.unknown = Some(if t.detection == "agent_change" {
                "no transfer call is recorded"
            } else if t.call.is_none() {
                "the transfer call is not recorded"
            } else {
                "content not captured"
            });
            return p;
        }
        for r in &rows {
            p.fields |= r.fields;
            p.narrative |= r.narrative;
            for a in &r.aliases {
                if !p.aliases.iter().any(|x| x == a) {
                    p.aliases.push((*a).to_owned());
                }
            }
        }
        if p.tokens.is_none() && p.unknown.is_none() {
            let largest =
                rows.iter().filter(|r| !r.empty).map(|r| r.tokens.map(i64::from)).collect::<Vec<_>>();
            // The arguments and the state they are copied to say the same twice: the larger one counts.
            p.tokens = largest.into_iter().flatten().max();
        }
        if rows.iter().all(|r| r.empty) && p.unknown.is_none() {
            // The tool takes nothing but the target: the text of the same turn is what was said.
            let said: Vec<_> = t
                .sender
                .into_iter()
                .flat_map(|k| self.infs[k].output.iter().flatten())
                .filter(|i| i.kind == ItemKind::Text)
                .collect();
            p.tokens = Some(said.iter().filter_map(|i| i.tokens.map(i64::from)).sum());
            p.narrative = !said.is_empty();
            for r in t.sender.into_iter().flat_map(|k| &self.infs[k].payloads).filter(|r| {
                r.call_id.is_none() && r.structured && r.source == baton_record::span::Source::Output
            }) {
                p.fields |= r.fields;
            }
        }
        p
    }

    /// The receiver's tool calls, its repeats, its first correct action, whether it began again.
    fn actions(&self, i: usize, f: &mut Facts) {
        let t = &self.transfers[i];
        let Some(run) = t.to_run.filter(|_| t.outcome == "accepted") else {
            let why = "no receiver ran";
            f.calls_unknown = Some(why);
            f.repeats_unknown = Some(why);
            f.first_action = Err(why);
            f.retriage = Err(why);
            return;
        };
        let own: Vec<usize> = self.calls_under(i).collect();
        let spans_show_tools = self.g.nodes.iter().any(|n| n.s.role == Role::Tool);
        let outputs = self.runs.runs[run].inferences.iter().all(|k| self.infs[*k].output.is_some())
            && !self.runs.runs[run].inferences.is_empty();
        if own.is_empty() && !spans_show_tools && !outputs {
            f.calls_unknown = Some("neither tool spans nor messages show tool calls");
        }
        f.repeats_unknown = f.calls_unknown.or_else(|| repeats::unknown(&self.calls, &self.is_tool, &own));
        let start = |c: &Call<'_>| c.start.unwrap_or(c.order);
        let raw_time = t.call.and_then(|c| self.calls[c].start).unwrap_or(t.time);
        let first_answer = self.runs.runs[run].inferences.iter().copied().find(|k| {
            let o = self.infs[*k].output.as_ref();
            o.is_some_and(|o| {
                o.iter().any(|x| x.kind == ItemKind::Text) && !o.iter().any(|x| x.kind == ItemKind::Call)
            })
        });
        f.first_action = if let Some(why) = f.repeats_unknown.filter(|_| !own.is_empty()) {
            Err(why)
        } else {
            let good = own.iter().copied().find(|c| {
                !self.calls[*c].error
                    && !self.repeats[*c]
                        .is_some_and(|r| matches!(r.kind, Kind::Redundant | Kind::KnownFailure))
            });
            let at = match good {
                Some(c) => Some(start(&self.calls[c])),
                None if own.is_empty() => first_answer.map(|k| self.infs[k].end),
                None => None,
            };
            match at.map(|a| a.checked_sub(raw_time)) {
                Some(Some(d)) if d >= 0 => Ok(d),
                Some(_) => Err("negative: clocks disagree"),
                None => Err("the receiver took no correct action"),
            }
        };
        // The first action: a call, or a text to the user.
        let first_call = own.first().copied();
        let asked =
            first_answer.filter(|k| first_call.is_none_or(|c| self.infs[*k].end <= start(&self.calls[c])));
        f.retriage = match (first_call, asked) {
            (_, Some(k)) => {
                let question = self.infs[k].output.iter().flatten().any(|x| x.asks);
                let held = (0..self.calls.len()).any(|c| {
                    self.is_tool[c]
                        && !self.calls[c].error
                        && self.calls[c].order < t.time
                        && self.calls[c].run != Some(run)
                });
                Ok(question && held && f.context.filtered.is_none_or(|n| n > 0))
            }
            (Some(c), None) => match f.repeats_unknown {
                Some(why) => Err(why),
                None => Ok(self.repeats[c].is_some_and(|r| r.kind == Kind::Redundant)),
            },
            (None, None) if f.calls_unknown.is_some() || !outputs => {
                Err(f.calls_unknown.unwrap_or("content not captured"))
            }
            (None, None) => Ok(false),
        };
    }

    /// Calls of the transfer's turn that ran and whose result no later message holds.
    fn lost(&self, t: &Transfer<'_>, receiver: Option<usize>) -> Result<i64, &'static str> {
        let Some(turn) = t.sender else { return Err("no model call is recorded") };
        let Some(receiver) = receiver else { return Err("no receiver's model call is recorded") };
        if self.infs[turn].output.is_none() || self.infs[receiver].input.is_none() {
            return Err("messages not captured");
        }
        if self.infs[receiver].view.lossy || self.infs[receiver].view.hidden || self.infs[receiver].view.cut {
            return Err("messages are not complete");
        }
        Ok((0..self.calls.len())
            .filter(|c| self.is_lost(*c) && self.calls[*c].inference == Some(turn))
            .count() as i64)
    }

    /// It ran, in the turn of a transfer that was taken, and its result reaches no later message.
    fn is_lost(&self, c: usize) -> bool {
        let call = &self.calls[c];
        if !self.is_tool[c] || call.answered || call.error || call.node.is_none() {
            return false;
        }
        self.transfers.iter().any(|t| {
            t.outcome == "accepted"
                && t.sender.is_some()
                && t.call.is_some()
                && t.sender == call.inference
                && t.to_run.and_then(|r| self.runs.runs[r].inferences.first()).is_some_and(|k| {
                    let f = &self.infs[*k];
                    f.input.is_some() && !f.view.lossy && !f.view.hidden && !f.view.cut
                })
                // A delegation's caller sees its other results when it goes on.
                && !(t.mode == "return_to_caller" && !self.infs.iter().any(|f| Some(f.run) == t.from_run && f.start > t.time))
        })
    }

    fn artifacts(&self, rules: &Rules, t: &Transfer<'_>, f: &mut Facts) {
        let mut refs: Vec<String> =
            t.payloads.iter().flat_map(|p| p.artifacts.iter().map(|s| (*s).to_owned())).collect();
        refs.extend(t.explicit.iter().flat_map(|h| h.artifacts.iter().map(|s| (*s).to_owned())));
        refs.sort();
        refs.dedup();
        if let Some(run) = t.to_run.filter(|_| !refs.is_empty()) {
            let mut used: HashSet<u64> = HashSet::new();
            let mut shingles: HashSet<u32> = HashSet::new();
            let mut add = |i: &baton_record::schema::ItemRef<'_>| {
                used.extend(unpack_u64(i.idents).map(|h| h | 1));
                shingles.extend(unpack_u32(i.shingles));
            };
            for c in self.calls.iter().filter(|c| c.run == Some(run)) {
                c.item.iter().chain(&c.results).for_each(&mut add);
            }
            for k in &self.runs.runs[run].inferences {
                self.infs[*k].output.iter().flatten().for_each(&mut add);
            }
            f.reused = refs
                .iter()
                .filter(|r| {
                    let p = rules.key.prints(r);
                    if p.idents.is_empty() {
                        !p.shingles.is_empty() && p.shingles.iter().all(|s| shingles.contains(s))
                    } else {
                        p.idents.iter().all(|h| used.contains(&(h | 1)))
                    }
                })
                .cloned()
                .collect();
        }
        f.refs = refs;
    }

    /// Contract fields whose presence would have prevented a repeat, and who lost the fact.
    fn blame(&self, c: usize, repeat: Repeat) -> (Vec<&'static str>, &'static str) {
        let Some(t) = self.under[c] else { return (Vec::new(), "unknown") };
        let f = &self.facts[t];
        let fields: &[Field] = if repeat.kind == Kind::KnownFailure {
            &[Field::KnownFailures, Field::AttemptedTools]
        } else {
            &[Field::AttemptedTools, Field::Evidence, Field::Status]
        };
        let mut prevented: Vec<&'static str> = Vec::new();
        if f.payload.unknown.is_none() {
            prevented = fields.iter().filter(|x| f.payload.fields & x.bit() == 0).map(|x| x.name()).collect();
            let large = f.context.tokens_after.is_some_and(|n| n >= 2000);
            if prevented.len() < fields.len() && large {
                prevented = vec!["noisy_context"];
            }
        }
        let earlier = &self.calls[repeat.earlier];
        let Some(run) = self.calls[c].run else { return (prevented, "unknown") };
        let views: Vec<&Inference<'_>> = self.runs.runs[run]
            .inferences
            .iter()
            .map(|k| &self.infs[*k])
            .filter(|i| i.start <= self.calls[c].order)
            .collect();
        let is_result = |i: &baton_record::schema::ItemRef<'_>| {
            i.kind == ItemKind::Result
                && !i.blanked
                && ((i.call_id.is_some() && i.call_id == earlier.call_id)
                    || (i.hash.is_some() && earlier.results.iter().any(|r| r.hash == i.hash)))
        };
        let cause = if views.iter().any(|v| v.input.iter().flatten().any(is_result)) {
            "model"
        } else if views.iter().any(|v| v.input.is_none() || v.view.lossy || v.view.hidden || v.view.cut)
            || views.is_empty()
        {
            "unknown"
        } else {
            let facts: HashSet<u64> = earlier
                .results
                .iter()
                .flat_map(|r| unpack_u64(r.idents))
                .filter(|h| baton_record::prints::is_strong(*h))
                .collect();
            let carried =
                self.transfers[t].payloads.iter().any(|p| unpack_u64(p.idents).any(|h| facts.contains(&h)));
            match f.payload.unknown {
                Some(_) => "unknown",
                None if carried => "filter",
                None => "payload",
            }
        };
        (prevented, cause)
    }

    fn call_key(&self, c: usize) -> String {
        let call = &self.calls[c];
        let (n, pos) = match (call.node, call.inference) {
            (Some(n), _) => (n, String::new()),
            (None, Some(k)) => (self.infs[k].node, format!("{}/{}", call.call_id.unwrap_or_default(), c)),
            (None, None) => (0, c.to_string()),
        };
        let s = self.g.nodes[n].s;
        short(&[s.trace_id, s.span_id, call.name, &pos])
    }

    fn outcome(&self, c: usize) -> &'static str {
        if self.calls[c].error {
            "error"
        } else if self.is_lost(c) {
            "lost"
        } else {
            "ok"
        }
    }

    fn run_key(&self, r: usize) -> String {
        let s = self.g.nodes[self.runs.runs[r].root].s;
        short(&["run", s.trace_id, s.span_id])
    }

    fn agent(&self, r: Option<usize>) -> Option<String> {
        let r = r?;
        self.runs.runs[r]
            .agent
            .map(str::to_owned)
            .or_else(|| self.transfers.iter().find(|t| t.to_run == Some(r)).and_then(|t| t.to_name.clone()))
    }

    fn handoff_keys(&self) -> Vec<String> {
        let mut seen: HashMap<String, usize> = HashMap::new();
        self.transfers
            .iter()
            .map(|t| {
                let s = self.g.nodes[t.evidence].s;
                let call = t.call.and_then(|c| self.calls[c].call_id).unwrap_or_default();
                let key = short(&[
                    "handoff",
                    s.trace_id,
                    s.span_id,
                    call,
                    t.to_name.as_deref().unwrap_or_default(),
                ]);
                let n = seen.entry(key.clone()).or_default();
                *n += 1;
                if *n == 1 { key } else { short(&[&key, &n.to_string()]) }
            })
            .collect()
    }

    fn write(&self, out: &mut Tables) {
        let partial = self.g.partial;
        let service = self.g.order.iter().find_map(|i| self.g.nodes[*i].s.service);
        let handoff_ids = self.handoff_keys();
        self.write_handoffs(out, &handoff_ids, service, partial.is_some());
        self.write_calls(out, &handoff_ids, service, partial.is_some());
        self.write_runs(out, &handoff_ids);
        self.write_task(out, service, partial);
        self.write_findings(out, &handoff_ids, partial);
    }

    fn write_handoffs(&self, out: &mut Tables, ids: &[String], service: Option<&str>, partial: bool) {
        let mut hop = 0;
        for (i, t) in self.transfers.iter().enumerate() {
            let f = &self.facts[i];
            let names = |v: &[String]| v.to_vec();
            let fields: Vec<&str> = field_names(f.payload.fields).collect();
            let active: Vec<&str> = f
                .constraints
                .list
                .iter()
                .filter(|c| c.active && !c.soft && !c.hash.is_empty())
                .map(|c| c.hash.as_str())
                .collect();
            let computed = (!active.is_empty()).then(|| set_hash(active.iter().copied()));
            let hash = t.explicit.and_then(|h| h.constraints_hash).or(computed.as_deref());
            let (candidates, aliases, refs, reused) =
                (names(&t.candidates), names(&f.payload.aliases), names(&f.refs), names(&f.reused));
            let s = self.g.nodes[t.evidence].s;
            let accepted = t.outcome == "accepted";
            let run_key = |r: Option<usize>| r.map(|r| self.run_key(r));
            let c = &f.context;
            out.handoffs.push(HandoffRow {
                handoff_id: &ids[i],
                task_id: &self.id,
                trace_id: s.trace_id,
                seq: i as i64,
                time: Some(t.time).filter(|t| *t > 0 && *t < i64::MAX),
                service: s.service.or(service),
                from_agent: t.from_name.as_deref(),
                to_agent: t.to_name.as_deref(),
                mode: t.mode,
                outcome: t.outcome,
                detection: t.detection,
                confidence: t.confidence,
                candidates: &refs_of(&candidates),
                reason: t.explicit.and_then(|h| h.reason),
                call_id: t.call.and_then(|c| self.calls[c].call_id),
                sender_run_id: run_key(t.from_run).as_deref(),
                receiver_run_id: run_key(t.to_run).as_deref(),
                rated: accepted && !partial,
                payload_tokens: f.payload.tokens.filter(|_| {
                    f.payload.unknown.is_none() || t.explicit.is_some_and(|h| h.payload_tokens.is_some())
                }),
                payload_fields: &fields,
                payload_aliases: &refs_of(&aliases),
                payload_narrative: f.payload.narrative,
                required_present: f
                    .payload
                    .unknown
                    .is_none()
                    .then(|| REQUIRED.iter().filter(|x| f.payload.fields & x.bit() != 0).count() as i64),
                payload_unknown: f.payload.unknown,
                constraints_hash: hash,
                retention_unknown: f.constraints.retention_unknown.as_deref(),
                retention_payload_unknown: f.constraints.payload_unknown.as_deref(),
                items_before: c.items_before,
                items_after: c.items_after,
                filtered_items: c.filtered,
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
                artifact_refs: &refs_of(&refs),
                artifacts_reused: &refs_of(&reused),
                artifacts_unknown: if f.refs.is_empty() {
                    Some(f.payload.unknown.unwrap_or("no references in the payload"))
                } else if t.to_run.is_none() {
                    Some("no receiver ran")
                } else {
                    None
                },
                first_action_ns: f.first_action.ok(),
                first_action_unknown: f.first_action.err(),
                retriage: f.retriage.ok(),
                retriage_unknown: f.retriage.err(),
            });
            for x in &f.constraints.list {
                self.write_constraint(out, &ids[i], hop, x);
            }
            for l in f.leaks.iter().flatten() {
                out.leaks.push(LeakRow {
                    handoff_id: &ids[i],
                    task_id: &self.id,
                    call: &self.call_key(l.call),
                    tool: self.calls[l.call].name,
                    item: l.item,
                    overlap: &refs_of(&l.overlap),
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
            soft: x.soft,
            active: x.active,
            stated: x.stated,
            in_payload: x.in_payload,
            in_view: x.in_view,
            counted: x.counted,
            got: x.got,
            cause: x.cause,
        });
    }

    fn write_calls(&self, out: &mut Tables, handoff_ids: &[String], service: Option<&str>, partial: bool) {
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
                id: &self.call_key(c),
                task_id: &self.id,
                trace_id: s.trace_id,
                service: s.service.or(service),
                agent: self.agent(call.run).as_deref(),
                run_id: call.run.map(|r| self.run_key(r)).as_deref(),
                tool: call.name,
                call_id: call.call_id,
                outcome: self.outcome(c),
                args_digest: call.digest,
                start: call.start.filter(|t| *t > 0 && *t < i64::MAX),
                end: call.end,
                duration_ns: duration,
                handoff_id: self.under[c].map(|t| handoff_ids[t].as_str()),
                rated: self.under[c].is_some() && !partial,
                repeats: repeat.map(|r| self.call_key(r.earlier)).as_deref(),
                repeat_kind: repeat.map(|r| r.kind.name()),
                prevented_by: &prevented,
                cause,
            });
        }
    }

    fn write_runs(&self, out: &mut Tables, handoff_ids: &[String]) {
        for (r, run) in self.runs.runs.iter().enumerate().filter(|(_, r)| r.merged.is_none()) {
            let s = self.g.nodes[run.root].s;
            let tools =
                (0..self.calls.len()).filter(|c| self.is_tool[*c] && self.calls[*c].run == Some(r)).count();
            out.agent_runs.push(AgentRunRow {
                run_id: &self.run_key(r),
                task_id: &self.id,
                trace_id: s.trace_id,
                agent: self.agent(Some(r)).as_deref(),
                parent_run_id: run.parent_run.map(|p| self.run_key(p)).as_deref(),
                handoff_id: self
                    .transfers
                    .iter()
                    .position(|t| t.to_run == Some(r) && t.outcome == "accepted")
                    .map(|t| handoff_ids[t].as_str()),
                start: Some(run.start).filter(|t| *t > 0 && *t < i64::MAX),
                end: Some(run.end).filter(|t| *t > 0 && *t < i64::MAX),
                inferences: run.inferences.len() as i64,
                tool_calls: tools as i64,
            });
        }
        for f in &self.infs {
            let s = self.g.nodes[f.node].s;
            let run = Some(f.run).filter(|r| *r != usize::MAX);
            out.inferences.push(InferenceRow {
                inference_id: &short(&["inference", s.trace_id, s.span_id]),
                task_id: &self.id,
                run_id: run.map(|r| self.run_key(r)).as_deref(),
                agent: self.agent(run).as_deref(),
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
            });
        }
    }

    /// Did the last model call give a final answer?
    fn completed(&self) -> Option<bool> {
        for n in self.g.order.iter().rev() {
            for (name, score, label) in &self.g.nodes[*n].s.evaluations {
                if matches!(
                    slug(name).as_str(),
                    "task_completion"
                        | "task_completed"
                        | "completed"
                        | "completion"
                        | "task_success"
                        | "goal_achieved"
                        | "outcome"
                ) {
                    let good = label
                        .map(|l| {
                            matches!(
                                slug(l).as_str(),
                                "pass" | "passed" | "true" | "yes" | "success" | "completed" | "achieved"
                            )
                        })
                        .or_else(|| score.map(|s| s >= 0.5));
                    if good.is_some() {
                        return good;
                    }
                }
            }
        }
        let last = self
            .infs
            .iter()
            .filter(|f| f.run == usize::MAX || self.runs.runs[f.run].parent_run.is_none())
            .max_by_key(|f| (f.end, f.start))
            .or_else(|| self.infs.iter().max_by_key(|f| (f.end, f.start)))?;
        if self.g.nodes[last.node].error {
            return Some(false);
        }
        if let Some(o) = &last.output {
            let calls =
                o.iter().any(|i| i.kind == ItemKind::Call && !i.name.is_some_and(is_final_answer_tool));
            let text = o.iter().any(|i| i.kind == ItemKind::Text || i.name.is_some_and(is_final_answer_tool));
            if calls || text {
                return Some(text && !calls);
            }
        }
        match last.finish {
            Some("stop") => Some(true),
            Some(_) => Some(false),
            None => None,
        }
    }

    fn redone_steps(&self) -> Option<i64> {
        let accepted: Vec<usize> =
            (0..self.transfers.len()).filter(|i| self.transfers[*i].outcome == "accepted").collect();
        if !accepted.is_empty() && accepted.iter().all(|i| self.facts[*i].payload.unknown.is_some()) {
            return None;
        }
        Some(0)
    }

    fn redone(&self, rules_key: &dyn Fn(&str) -> u64) -> Option<i64> {
        let base = self.redone_steps()?;
        let mut n = base;
        for (i, t) in self.transfers.iter().enumerate() {
            let steps: HashSet<u64> = t.payloads.iter().flat_map(|p| unpack_u64(p.steps)).collect();
            if steps.is_empty() || t.outcome != "accepted" {
                continue;
            }
            let mut seen: HashSet<String> = HashSet::new();
            for c in self.calls_under(i) {
                let tool = slug(bare_tool_name(self.calls[c].name));
                if steps.contains(&rules_key(&tool)) && seen.insert(tool) {
                    n += 1;
                }
            }
        }
        Some(n)
    }

    fn write_task(&self, out: &mut Tables, service: Option<&str>, partial: Option<&'static str>) {
        let mut traces: Vec<(i64, &str)> = Vec::new();
        let mut first: HashMap<&str, i64> = HashMap::new();
        for n in &self.g.nodes {
            let e = first.entry(n.s.trace_id).or_insert(n.start);
            *e = (*e).min(n.start);
        }
        traces.extend(first.iter().map(|(t, s)| (*s, *t)));
        traces.sort_unstable();
        let trace_ids: Vec<&str> = traces.iter().map(|(_, t)| *t).collect();
        let mut runs: Vec<(i64, String)> = (0..self.runs.runs.len())
            .filter(|r| self.runs.runs[*r].merged.is_none())
            .filter_map(|r| self.agent(Some(r)).map(|a| (self.runs.runs[r].start, a)))
            .collect();
        runs.sort();
        let mut agents: Vec<String> = Vec::new();
        for (_, a) in runs {
            if !agents.contains(&a) {
                agents.push(a);
            }
        }
        let sum = |f: fn(&Inference<'_>) -> Option<i64>| {
            let known: Vec<i64> = self.infs.iter().filter_map(f).collect();
            (!known.is_empty()).then(|| known.iter().sum::<i64>())
        };
        let named = !agents.is_empty();
        let bounces = (named || !self.transfers.is_empty()).then_some(self.bounces.len() as i64);
        let completed = self.completed();
        let redone = self.redone(&|tool| self.key.ident(tool));
        let accepted: Vec<usize> =
            (0..self.transfers.len()).filter(|i| self.transfers[*i].outcome == "accepted").collect();
        let repeats_known = accepted.iter().all(|i| self.facts[*i].repeats_unknown.is_none());
        let wasted: Vec<usize> = (0..self.calls.len())
            .filter(|c| {
                self.is_tool[*c]
                    && self.under[*c].is_some()
                    && self.repeats[*c]
                        .is_some_and(|r| matches!(r.kind, Kind::Redundant | Kind::KnownFailure))
            })
            .collect();
        let redundant = wasted.iter().any(|c| self.repeats[*c].is_some_and(|r| r.kind == Kind::Redundant));
        let rework_free = match (completed, bounces, redone) {
            (Some(false), _, _) => Some(false),
            (_, Some(b), _) if b > 0 => Some(false),
            (_, _, Some(r)) if r > 0 => Some(false),
            _ if redundant && repeats_known => Some(false),
            (Some(true), Some(0), Some(0)) if repeats_known => Some(true),
            _ => None,
        };
        let (tokens, ns) = self.waste(&wasted);
        let start = self.g.nodes.iter().filter_map(|n| n.s.start).min();
        let end = self.g.nodes.iter().filter_map(|n| n.s.end).max();
        out.tasks.push(TaskRow {
            task_id: &self.id,
            trace_ids: &trace_ids,
            service,
            agents: &refs_of(&agents),
            start,
            end,
            completed,
            partial: partial.is_some(),
            partial_reason: partial,
            bounces,
            redone_steps: redone,
            rework_free,
            input_tokens: sum(|f| f.input_tokens),
            output_tokens: sum(|f| f.output_tokens),
            inferences: self.infs.len() as i64,
            duplicate_inferences: self.duplicates,
            handoffs: self.transfers.len() as i64,
            tool_calls: self.is_tool.iter().filter(|t| **t).count() as i64,
            wasted_calls: repeats_known.then_some(wasted.len() as i64),
            wasted_tokens: repeats_known.then_some(tokens),
            wasted_ns: repeats_known.then_some(ns),
        });
    }

    /// Tokens and time of wasted calls and of bounces.
    fn waste(&self, wasted: &[usize]) -> (i64, i64) {
        let mut asked: HashSet<usize> = HashSet::new();
        let mut ns = 0;
        for &c in wasted {
            let call = &self.calls[c];
            if let (Some(a), Some(b), Some(_)) = (call.start, call.end, call.node) {
                ns += (b - a).max(0);
            }
            // A turn is wasted where all it asked for is.
            if let Some(k) = call.inference
                && (0..self.calls.len())
                    .filter(|x| self.calls[*x].inference == Some(k))
                    .all(|x| wasted.contains(&x))
            {
                asked.insert(k);
            }
        }
        for b in &self.bounces {
            let from = self.transfers[b.back].time;
            let to = b.again.map_or(from, |m| self.transfers[m].time);
            for (k, f) in self.infs.iter().enumerate() {
                if f.start >= from && f.start <= to && Some(f.run) == self.transfers[b.back].to_run {
                    asked.insert(k);
                    ns += (f.end - f.start).max(0);
                }
            }
        }
        let tokens = asked
            .iter()
            .map(|k| self.infs[*k].input_tokens.unwrap_or(0) + self.infs[*k].output_tokens.unwrap_or(0))
            .sum();
        (tokens, ns)
    }

    fn write_findings(&self, out: &mut Tables, ids: &[String], partial: Option<&'static str>) {
        let mut add = |kind: &str, severity: &str, handoff: Option<&str>, text: String| {
            out.findings.push(FindingRow {
                kind,
                severity,
                task_id: &self.id,
                handoff_id: handoff,
                text: &text,
            })
        };
        if let Some(why) = partial {
            add(
                "partial_task",
                "warning",
                None,
                format!("The data holds only part of this task: {why}. It stays out of the rates."),
            );
        }
        if self.g.conflicts > 0 {
            add(
                "span_conflict",
                "warning",
                None,
                format!(
                    "{} spans came twice with other content; the fuller recording counts.",
                    self.g.conflicts
                ),
            );
        }
        if self.duplicates > 0 {
            add(
                "double_instrumentation",
                "info",
                None,
                format!("{} model calls are recorded more than once; each counts once.", self.duplicates),
            );
        }
        for (i, t) in self.transfers.iter().enumerate() {
            let f = &self.facts[i];
            let id = Some(ids[i].as_str());
            let from = t.from_name.as_deref().unwrap_or("an unnamed agent");
            let to = t.to_name.as_deref().unwrap_or("an unnamed agent");
            match t.outcome {
                "failed" => {
                    add("failed_handoff", "error", id, format!("The transfer from {from} to {to} failed."))
                }
                "refused" => add(
                    "refused_handoff",
                    "warning",
                    id,
                    format!("{from} asked for {to} in a turn in which another transfer was taken."),
                ),
                "pending" => add(
                    "pending_handoff",
                    "warning",
                    id,
                    format!("{from} handed over to {to}; no receiver is seen."),
                ),
                "unknown" => add(
                    "ambiguous_receiver",
                    "warning",
                    id,
                    format!(
                        "{from} handed over, and the receiver may be any of: {}.",
                        t.candidates.join(", ")
                    ),
                ),
                _ => {}
            }
            if t.outcome != "accepted" {
                continue;
            }
            let own: Vec<usize> = self.calls_under(i).collect();
            let count =
                |k: Kind| own.iter().filter(|c| self.repeats[**c].is_some_and(|r| r.kind == k)).count();
            if f.repeats_unknown.is_none() {
                let n = count(Kind::Redundant);
                if n > 0 {
                    add(
                        "redundant_calls",
                        "warning",
                        id,
                        format!(
                            "{to} repeated {n} of {} tool calls that were done before {from} handed over.",
                            own.len()
                        ),
                    );
                }
                let n = count(Kind::KnownFailure);
                if n > 0 {
                    add(
                        "known_failure_retry",
                        "warning",
                        id,
                        format!("{to} retried {n} calls that had failed before {from} handed over."),
                    );
                }
            }
            for x in f.constraints.list.iter().filter(|x| x.cause.is_some()) {
                let how = match x.cause {
                    Some("dropped_by_filter") => "the payload carried it, and the history filter dropped it",
                    Some("not_in_state") => "no durable state or contract held it",
                    _ => "the payload did not carry it",
                };
                add(
                    "constraint_lost",
                    "error",
                    id,
                    format!("{to} did not get the constraint {}: {how}.", x.id),
                );
            }
            if let Ok(l) = &f.leaks
                && !l.is_empty()
            {
                add(
                    "leak",
                    "error",
                    id,
                    format!("Filtered tool output survives in prose that {to} sees: {} cases.", l.len()),
                );
            }
            if f.lost.is_ok_and(|n| n > 0) {
                add(
                    "lost_result",
                    "warning",
                    id,
                    format!(
                        "A tool result of the turn in which {from} handed over reaches no later message."
                    ),
                );
            }
            if f.payload.unknown.is_none() && f.payload.fields == 0 && !f.payload.narrative {
                add(
                    "empty_payload",
                    "warning",
                    id,
                    format!("{from} handed over to {to} with an empty payload."),
                );
            }
        }
        for b in &self.bounces {
            let t = &self.transfers[b.back];
            add(
                "bounce",
                "warning",
                Some(&ids[b.back]),
                format!(
                    "The same goal went back to {} and was passed on or done again.",
                    if t.mode == "return_to_caller" {
                        t.from_name.as_deref().unwrap_or("the caller")
                    } else {
                        t.to_name.as_deref().unwrap_or("its sender")
                    }
                ),
            );
        }
    }
}

fn refs_of(v: &[String]) -> Vec<&str> {
    v.iter().map(String::as_str).collect()
}

/// A short id that depends on nothing but the parts.
fn short(parts: &[&str]) -> String {
    sha256_hex(parts.join("\u{1f}").as_bytes())[..16].to_owned()
}
