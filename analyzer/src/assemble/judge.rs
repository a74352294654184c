//! What is known of one task: its model calls, tool calls and transfers, and for each transfer what it carried
//! and cost. What cannot be known keeps its reason.

use foldhash::{HashMap, HashSet};

use std::sync::atomic::Ordering;

use baton_record::contract::Field;
use baton_record::names::is_final_answer_tool;
use baton_record::schema::{Contents, SpanRef, unpack_u32, unpack_u64};
use baton_record::span::{ItemKind, Role};

use super::Rules;
use super::bounces::{self, Bounce};
use super::calls::{self, Call};
use super::constraints::{Constraints, Tracker};
use super::context::{self, Context, Leak};
use super::graph::Graph;
use super::inference::{self, Inference};
use super::intents;
use super::repeats::{self, Kind, Repeat};
use super::runs::{self, Runs};
use super::transfers::{self, Transfer};
use super::whatif::WhatIf;
use crate::tables::Tables;

/// Everything that was found about one task.
pub(super) struct Task<'a> {
    pub id: String,
    /// Last start or end of a span.
    pub last_activity: Option<i64>,
    pub g: Graph<'a>,
    pub infs: Vec<Inference<'a>>,
    pub runs: Runs<'a>,
    pub calls: Vec<Call<'a>>,
    /// Which of the calls are tool calls.
    pub is_tool: Vec<bool>,
    pub transfers: Vec<Transfer<'a>>,
    /// For each call: the transfer under which it counts.
    pub under: Vec<Option<usize>>,
    at: Places,
    pub repeats: Vec<Option<Repeat>>,
    pub facts: Vec<Facts>,
    pub bounces: Vec<Bounce>,
    pub duplicates: i64,
    pub key: baton_record::prints::PrintKey,
    /// Another history filter, in whose light transfers are to be judged.
    whatif: Option<WhatIf<'a>>,
}

/// Where things are, so that a long task is not searched through for each of its parts.
struct Places {
    /// By transfer: the calls that count under it.
    calls_under: Index,
    /// By run: its calls.
    calls_of: Index,
    /// By model call: the calls it asked for.
    asked: Index,
    /// By the sender's model call: the transfers it asked for.
    sent: Index,
}

/// The places of what has a key: key and place, sorted.
struct Index(Vec<(usize, usize)>);

impl Index {
    fn new(keys: impl Iterator<Item = Option<usize>>) -> Self {
        let mut all: Vec<(usize, usize)> =
            keys.enumerate().filter_map(|(place, key)| Some((key?, place))).collect();
        all.sort_unstable();
        Self(all)
    }

    fn of(&self, key: usize) -> impl Iterator<Item = usize> + '_ {
        let from = self.0.partition_point(|(k, _)| *k < key);
        self.0[from..].iter().take_while(move |(k, _)| *k == key).map(|(_, place)| *place)
    }
}

/// A value, or why it cannot be known.
pub(super) type Known<T> = Result<T, &'static str>;

/// What is known of one transfer.
pub(super) struct Facts {
    pub payload: Payload,
    pub context: Context,
    pub constraints: Constraints,
    pub leaks: Known<Vec<Leak>>,
    pub calls_unknown: Option<&'static str>,
    pub repeats_unknown: Option<&'static str>,
    pub lost: Known<i64>,
    pub reused: Vec<String>,
    pub refs: Vec<String>,
    pub first_action: Known<i64>,
    pub retriage: Known<bool>,
}

#[derive(Default)]
pub(super) struct Payload {
    pub unknown: Option<&'static str>,
    pub fields: u32,
    pub aliases: Vec<String>,
    pub narrative: bool,
    pub tokens: Option<i64>,
    /// Its text, as kept.
    pub text: Option<String>,
}

/// Assembles and writes one task.
pub(super) fn task<'a>(
    rules: &Rules,
    rows: &'a [SpanRef<'a>],
    contents: &'a Contents<'a>,
    task_id: Option<&str>,
    out: &mut Tables,
) {
    let made = rules.filter.as_ref().map(|f| f.make(rows, contents)).unwrap_or_default();
    let made_rows = made.rows();
    let made_contents = Contents::of(&made_rows);
    let changed = made.changed(&made_rows, &made_contents);
    let mut g = Graph::new(rows, contents);
    if g.doubled > 0 {
        rules.doubled.fetch_add(g.doubled as u64, Ordering::Relaxed);
    }
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
    let at = Places {
        calls_under: Index::new(under.iter().copied()),
        calls_of: Index::new(calls.iter().map(|c| c.run)),
        asked: Index::new(calls.iter().map(|c| c.inference)),
        sent: Index::new(transfers.iter().map(|t| t.sender)),
    };
    let mut t = Task {
        id: identity(&g, task_id),
        last_activity: g.nodes.iter().flat_map(|n| [n.s.start, n.s.end]).flatten().max(),
        g,
        infs,
        runs,
        calls,
        is_tool,
        transfers,
        under,
        at,
        repeats,
        facts: Vec::new(),
        bounces: Vec::new(),
        duplicates: duplicates + mirrored,
        key: rules.key,
        whatif: rules.filter.clone().map(|f| WhatIf::new(f, changed)),
    };
    t.judge(rules);
    t.write(rules, out);
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
        .find_map(|i| g.nodes[i].s.conversation_id());
    let any = root.or_else(|| g.order.iter().find_map(|i| g.nodes[*i].s.conversation_id()));
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
    let mut started: HashMap<usize, usize> = HashMap::default();
    let mut left: HashMap<usize, (i64, Option<usize>)> = HashMap::default();
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
        let mut whatif = self.whatif.take();
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
            if let Some(w) = &mut whatif {
                w.judge(self, rules, i, receiver, &mut f);
            }
            facts.push(f);
        }
        self.facts = facts;
        let redoes: Vec<bool> = (0..self.transfers.len())
            .map(|i| self.calls_under(i).any(|c| self.repeats[c].is_some_and(|r| r.kind == Kind::Redundant)))
            .collect();
        let roots: Vec<i64> = self.g.traces().into_iter().map(|(_, start)| start).collect();
        let turn_of = |t: i64| roots.iter().filter(|s| **s <= t).count();
        self.bounces = bounces::find(&self.infs, &self.runs, &self.transfers, &redoes, &turn_of);
    }

    pub(super) fn calls_under(&self, transfer: usize) -> impl Iterator<Item = usize> + '_ {
        self.at.calls_under.of(transfer)
    }

    /// The calls that a model call asked for.
    pub(super) fn asked_by(&self, inference: usize) -> impl Iterator<Item = usize> + '_ {
        self.at.asked.of(inference)
    }

    /// The calls of a run.
    pub(super) fn calls_of(&self, run: usize) -> impl Iterator<Item = usize> + '_ {
        self.at.calls_of.of(run)
    }

    /// What the sender put into the transfer (METRICS.md section 1, payload).
    fn payload(&self, t: &Transfer<'_>) -> Payload {
        let mut p = Payload::default();
        let rows: Vec<_> = t.payloads.iter().collect();
        // What the sender's own tracing says of its payload counts, whether its content is kept or not.
        let said = t.explicit.is_some_and(|h| h.fields().is_some());
        if let Some(h) = t.explicit {
            p.tokens = h.payload_tokens();
            p.fields = h.fields().unwrap_or(0);
            p.narrative = p.fields & Field::Narrative.bit() != 0;
        }
        p.unknown = self.payload_unknown(t).filter(|_| !said);
        if p.unknown.is_some() && rows.is_empty() {
            return p;
        }
        for r in &rows {
            p.fields |= r.fields();
            p.narrative |= r.narrative;
            for a in r.aliases().iter() {
                if !p.aliases.iter().any(|x| x == a) {
                    p.aliases.push(a.to_owned());
                }
            }
        }
        // The arguments and the state they are copied to say the same twice: the larger one counts.
        let largest = rows.iter().filter(|r| !r.empty).max_by_key(|r| r.tokens());
        p.text = largest.and_then(|r| r.text()).map(str::to_owned);
        if p.tokens.is_none() && p.unknown.is_none() {
            p.tokens = largest.and_then(|r| r.tokens().map(i64::from));
        }
        if (t.in_text || rows.iter().all(|r| r.empty)) && p.unknown.is_none() && !said {
            // The tool takes nothing but the target: the text of the same turn is what was said.
            let said: Vec<_> = t
                .sender
                .into_iter()
                .flat_map(|k| self.infs[k].output.iter().flatten())
                .filter(|i| i.kind == ItemKind::Text)
                .collect();
            p.tokens = Some(said.iter().filter_map(|i| i.tokens().map(i64::from)).sum());
            p.narrative |= !said.is_empty() && !t.in_text;
            let texts: Vec<&str> = said.iter().filter_map(|i| i.text()).collect();
            p.text = (!texts.is_empty()).then(|| texts.join("\n"));
        }
        p
    }

    /// Why what was put into the transfer is not known.
    fn payload_unknown(&self, t: &Transfer<'_>) -> Option<&'static str> {
        let args = t.call.and_then(|c| self.calls[c].item).map(|i| i.args);
        if t.payloads.iter().any(|r| !r.complete) {
            let masked = args == Some(baton_record::span::Args::Masked);
            return Some(if masked { "payload masked" } else { "payload cut off" });
        }
        if t.captured || !t.payloads.is_empty() {
            return None;
        }
        Some(match (t.detection, t.call) {
            ("agent_change", _) => "no transfer call is recorded",
            (_, None) => "the transfer call is not recorded",
            (_, Some(_)) => "content not captured",
        })
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
                let question = self.infs[k].output.iter().flatten().any(|x| x.asks());
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
        Ok(self.asked_by(turn).filter(|c| self.is_lost(*c)).count() as i64)
    }

    /// It ran, in the turn of a transfer that was taken, and its result reaches no later message.
    pub(super) fn is_lost(&self, c: usize) -> bool {
        let call = &self.calls[c];
        if !self.is_tool[c] || call.answered || call.error || call.node.is_none() {
            return false;
        }
        let Some(turn) = call.inference else { return false };
        self.at.sent.of(turn).map(|t| &self.transfers[t]).any(|t| {
            t.outcome == "accepted"
                && t.call.is_some()
                && t.to_run.and_then(|r| self.runs.runs[r].inferences.first()).is_some_and(|k| {
                    let f = &self.infs[*k];
                    f.input.is_some() && !f.view.lossy && !f.view.hidden && !f.view.cut
                })
                // A delegation's caller sees its other results when it goes on.
                && (t.mode != "return_to_caller"
                    || self.infs.iter().any(|f| Some(f.run) == t.from_run && f.start > t.time))
        })
    }

    fn artifacts(&self, rules: &Rules, t: &Transfer<'_>, f: &mut Facts) {
        let mut refs: Vec<String> =
            t.payloads.iter().flat_map(|p| p.artifacts().iter().map(str::to_owned)).collect();
        refs.extend(t.explicit.iter().flat_map(|h| h.artifacts().iter().map(str::to_owned)));
        refs.sort();
        refs.dedup();
        if let Some(run) = t.to_run.filter(|_| !refs.is_empty()) {
            let mut used: HashSet<u64> = HashSet::default();
            let mut shingles: HashSet<u32> = HashSet::default();
            let mut add = |i: &baton_record::schema::ItemRef<'_>| {
                used.extend(unpack_u64(i.idents()).map(|h| h | 1));
                shingles.extend(unpack_u32(i.shingles()));
            };
            for c in self.calls_of(run).map(|c| &self.calls[c]) {
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
    pub(super) fn blame(&self, c: usize, repeat: Repeat) -> (Vec<&'static str>, &'static str) {
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
                .flat_map(|r| unpack_u64(r.idents()))
                .filter(|h| baton_record::prints::is_strong(*h))
                .collect();
            let carried =
                self.transfers[t].payloads.iter().any(|p| unpack_u64(p.idents()).any(|h| facts.contains(&h)));
            match f.payload.unknown {
                Some(_) => "unknown",
                None if carried => "filter",
                None => "payload",
            }
        };
        (prevented, cause)
    }
}
