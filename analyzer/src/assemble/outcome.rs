//! What is known of a task as a whole: whether it reached its end, what was done again, what that cost
//! (METRICS.md section 3).

use foldhash::HashSet;

use baton_record::names::{bare_tool_name, is_final_answer_tool, slug, slug_of};
use baton_record::schema::unpack_u64;
use baton_record::span::ItemKind;

use super::inference::Inference;
use super::judge::Task;
use super::repeats::Kind;
use super::transfers::Transfer;
use crate::tables::{Tables, TaskRow};

impl Task<'_> {
    /// Did the last model call give a final answer?
    fn completed(&self) -> Option<bool> {
        for n in self.g.order.iter().rev() {
            for (name, score, label) in self.g.nodes[*n].s.evaluations() {
                if matches!(
                    slug_of(name).as_ref(),
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
                                slug_of(l).as_ref(),
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
        let leads = self.leads();
        let last = self
            .infs
            .iter()
            .filter(|f| leads.get(f.run).is_none_or(|leads| *leads))
            .max_by_key(|f| (f.end, f.start))
            .or_else(|| self.infs.iter().max_by_key(|f| (f.end, f.start)))?;
        if self.g.nodes[last.node].error {
            return Some(false);
        }
        if let Some(o) = &last.output {
            let calls =
                o.iter().any(|i| i.kind == ItemKind::Call && !i.name().is_some_and(is_final_answer_tool));
            let text =
                o.iter().any(|i| i.kind == ItemKind::Text || i.name().is_some_and(is_final_answer_tool));
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

    /// The runs that nobody waits for, by run: those with no run around them, and those that took control from one that leads,
    /// although they run below it (as a receiver in another process does, below the span that handed over).
    fn leads(&self) -> Vec<bool> {
        let mut leads: Vec<bool> = self.runs.runs.iter().map(|r| r.parent_run.is_none()).collect();
        let took = |t: &Transfer<'_>| t.outcome == "accepted" && t.mode != "return_to_caller";
        let passed: Vec<(usize, usize)> =
            self.transfers.iter().filter(|t| took(t)).filter_map(|t| t.from_run.zip(t.to_run)).collect();
        loop {
            let before = leads.iter().filter(|l| **l).count();
            for (from, to) in &passed {
                leads[*to] |= leads[*from];
            }
            if leads.iter().filter(|l| **l).count() == before {
                return leads;
            }
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
            let steps: Vec<u64> = t.payloads.iter().flat_map(|p| unpack_u64(p.steps())).collect();
            if steps.is_empty() || t.outcome != "accepted" {
                continue;
            }
            let mut seen: HashSet<String> = HashSet::default();
            for c in self.calls_under(i) {
                let tool = slug(bare_tool_name(self.calls[c].name));
                if steps.contains(&rules_key(&tool)) && seen.insert(tool) {
                    n += 1;
                }
            }
        }
        Some(n)
    }

    pub(super) fn write_task(&self, out: &mut Tables, service: Option<&str>, partial: Option<&'static str>) {
        let mut traces: Vec<(i64, &str)> =
            self.g.traces().into_iter().map(|(trace, start)| (start, trace)).collect();
        traces.sort_unstable();
        let trace_ids: Vec<&str> = traces.iter().map(|(_, t)| *t).collect();
        let mut runs: Vec<(i64, &str)> = (0..self.runs.runs.len())
            .filter(|r| self.runs.runs[*r].merged.is_none())
            .filter_map(|r| self.agent(r).map(|a| (self.runs.runs[r].start, a)))
            .collect();
        runs.sort();
        let mut agents: Vec<&str> = Vec::new();
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
            agents: &agents,
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
            last_activity: self.last_activity,
        });
    }

    /// Tokens and time of wasted calls and of bounces.
    fn waste(&self, wasted: &[usize]) -> (i64, i64) {
        let mut asked: HashSet<usize> = HashSet::default();
        let mut ns = 0;
        let all: HashSet<usize> = wasted.iter().copied().collect();
        for &c in wasted {
            let call = &self.calls[c];
            if let (Some(a), Some(b), Some(_)) = (call.start, call.end, call.node) {
                ns = i64::saturating_add(ns, b.saturating_sub(a).max(0));
            }
            // A turn is wasted where all it asked for is.
            if let Some(k) = call.inference
                && self.asked_by(k).all(|x| all.contains(&x))
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
                    ns = i64::saturating_add(ns, f.end.saturating_sub(f.start).max(0));
                }
            }
        }
        let tokens = asked
            .iter()
            .map(|k| self.infs[*k].input_tokens.unwrap_or(0) + self.infs[*k].output_tokens.unwrap_or(0))
            .sum();
        (tokens, ns)
    }
}
