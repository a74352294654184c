//! Which run took which transfer, and what became of the others (METRICS.md section 1: handoff, mode, outcome, confidence).

use baton_record::attr;
use baton_record::names::slug;
use baton_record::schema::{HandoffRef, PayloadRef};
use baton_record::span::{ItemKind, Role, Source};

use super::calls::Call;
use super::graph::Graph;
use super::inference::Inference;
use super::intents::{Intent, last_before, to_human};
use super::runs::{Runs, continues};

/// A transfer as it is reported.
#[derive(Debug, Clone)]
pub(super) struct Transfer<'a> {
    pub from_run: Option<usize>,
    pub from_name: Option<String>,
    pub to_run: Option<usize>,
    pub to_name: Option<String>,
    pub mode: &'static str,
    pub outcome: &'static str,
    pub detection: &'static str,
    pub confidence: &'static str,
    pub candidates: Vec<String>,
    pub explicit: Option<HandoffRef<'a>>,
    pub call: Option<usize>,
    pub time: i64,
    /// The sender's model call that asked for it, or its last one before.
    pub sender: Option<usize>,
    pub payloads: Vec<PayloadRef<'a>>,
    pub captured: bool,
    /// The text of the turn is the payload, and a contract was found in it.
    pub in_text: bool,
    /// Spans that speak of it, or the receiver's first.
    pub evidence: usize,
}

/// Starts closer than this are the same moment.
const SAME: i64 = 1_000_000;

struct Matcher<'m, 'a> {
    g: &'m Graph<'a>,
    infs: &'m [Inference<'a>],
    runs: &'m mut Runs<'a>,
    calls: &'m [Call<'a>],
    intents: Vec<Intent<'a>>,
    /// The intent that started a run.
    by_run: Vec<Option<usize>>,
    /// The run taken was named by the intent.
    named: Vec<bool>,
    /// Runs that start without an announcement, with their sender.
    changes: Vec<(usize, usize, bool)>,
    /// Runs that may be the receiver of an intent that does not tell.
    ambiguous: Vec<(usize, Vec<usize>)>,
}

/// Finds the transfers of a task.
pub(super) fn find<'a>(
    g: &Graph<'a>,
    infs: &mut [Inference<'a>],
    runs: &mut Runs<'a>,
    calls: &mut [Call<'a>],
    intents: Vec<Intent<'a>>,
) -> Vec<Transfer<'a>> {
    let (n, k) = (runs.runs.len(), intents.len());
    let mut m = Matcher {
        g,
        infs,
        runs,
        calls,
        intents,
        by_run: vec![None; n],
        named: vec![false; k],
        changes: Vec::new(),
        ambiguous: Vec::new(),
    };
    m.nested();
    m.by_name();
    m.contained();
    m.unnamed();
    m.rest();
    let out = m.report();
    settle(infs, runs, calls);
    out
}

/// Moves what belongs to a merged run to the run that it goes on as.
fn settle(infs: &mut [Inference<'_>], runs: &mut Runs<'_>, calls: &mut [Call<'_>]) {
    let target = |runs: &Runs<'_>, mut r: usize| {
        let mut steps = 0;
        while let Some(t) = runs.runs[r].merged.filter(|t| *t != usize::MAX) {
            r = t;
            steps += 1;
            if steps > runs.runs.len() {
                break;
            }
        }
        r
    };
    for r in 0..runs.runs.len() {
        let t = target(runs, r);
        if t != r {
            let (moved, tools, end) = (
                std::mem::take(&mut runs.runs[r].inferences),
                std::mem::take(&mut runs.runs[r].tools),
                runs.runs[r].end,
            );
            runs.runs[t].inferences.extend(moved);
            runs.runs[t].inferences.sort_unstable();
            runs.runs[t].tools.extend(tools);
            runs.runs[t].end = runs.runs[t].end.max(end);
        }
    }
    for f in infs.iter_mut().filter(|f| f.run != usize::MAX) {
        f.run = target(runs, f.run);
    }
    for c in calls.iter_mut() {
        c.run = c.run.map(|r| target(runs, r));
    }
    for i in 0..runs.of_node.len() {
        runs.of_node[i] = runs.of_node[i].map(|r| target(runs, r));
    }
}

impl<'a> Matcher<'_, 'a> {
    fn live(&self) -> Vec<usize> {
        let mut v: Vec<usize> =
            (0..self.runs.runs.len()).filter(|r| self.runs.runs[*r].merged.is_none()).collect();
        v.sort_by_key(|r| (self.runs.runs[*r].start, self.g.nodes[self.runs.runs[*r].root].s.span_id));
        v
    }

    fn is_target(&self, r: usize, s: &str) -> bool {
        let run = &self.runs.runs[r];
        run.slug.as_deref() == Some(s) || run.aliases.iter().any(|a| a == s)
    }

    fn take(&mut self, x: usize, r: usize, named: bool) {
        self.intents[x].taken_by = Some(r);
        self.by_run[r] = Some(x);
        self.named[x] = named;
    }

    /// A run below a transfer's span is its receiver. A run below another tool's span makes that tool an agent.
    fn nested(&mut self) {
        for r in self.live() {
            let Some(via) = self.runs.runs[r].via else { continue };
            let here: Vec<usize> = (0..self.intents.len())
                .filter(|x| self.intents[*x].nodes.contains(&via) && self.intents[*x].taken_by.is_none())
                .collect();
            let by_name = here
                .iter()
                .copied()
                .find(|x| self.intents[*x].target.as_ref().is_some_and(|(_, s)| self.is_target(r, s)));
            if let Some(x) = by_name.or_else(|| here.first().copied()) {
                self.take(x, r, by_name.is_some());
                // A delegation tool whose agent the telemetry does not name has the name that was asked for.
                if self.runs.runs[r].agent.is_none() {
                    self.runs.runs[r].slug = self.intents[x].target.as_ref().map(|(_, s)| s.clone());
                }
                continue;
            }
            if self.intents.iter().any(|x| x.nodes.contains(&via)) || self.g.nodes[via].s.role != Role::Tool {
                continue;
            }
            let Some(c) = self.calls.iter().position(|c| c.node == Some(via)) else { continue };
            let call = &self.calls[c];
            self.intents.push(Intent {
                run: call.run,
                from_name: None,
                target: None,
                time: call.order,
                call: Some(c),
                nodes: vec![via],
                explicit: None,
                sure: true,
                returns: true,
                back: false,
                mode: None,
                failed: false,
                turn: call.inference.or_else(|| last_before(self.infs, call.run, call.order)),
                payloads: call.payloads.clone(),
                captured: call.item.is_some_and(|i| {
                    matches!(i.args, baton_record::span::Args::Whole | baton_record::span::Args::Bare)
                }),
                weak: false,
                taken_by: None,
            });
            self.named.push(false);
            self.take(self.intents.len() - 1, r, false);
        }
    }

    /// A run of the named agent that starts after the transfer was asked for.
    fn by_name(&mut self) {
        let live = self.live();
        for x in self.order() {
            let intent = &self.intents[x];
            if intent.taken_by.is_some() || to_human(intent) {
                continue;
            }
            let Some((_, s)) = intent.target.clone() else { continue };
            let from = intent.turn.map_or(intent.time, |k| self.infs[k].start);
            let found = live.iter().copied().find(|r| {
                let run = &self.runs.runs[*r];
                self.by_run[*r].is_none()
                    && Some(*r) != intent.run
                    && self.is_target(*r, &s)
                    && run.start >= from
                    && (run.via.is_none() || run.via.is_some_and(|v| intent.nodes.contains(&v)))
            });
            if let Some(r) = found {
                self.take(x, r, true);
            }
        }
    }

    fn order(&self) -> Vec<usize> {
        let mut v: Vec<usize> = (0..self.intents.len()).collect();
        v.sort_by_key(|x| self.intents[*x].time);
        v
    }

    /// A run beside its caller, within the time of a tool call whose arguments it got as its first message.
    fn contained(&mut self) {
        for r in self.live() {
            let run = &self.runs.runs[r];
            if self.by_run[r].is_some() || run.via.is_some() || run.inferences.is_empty() {
                continue;
            }
            let first = &self.infs[run.inferences[0]];
            let asked: Option<i64> = first.input.as_ref().and_then(|i| i.first()).and_then(|i| i.hash);
            let mut candidates: Vec<(bool, usize)> = Vec::new();
            for (c, call) in self.calls.iter().enumerate() {
                let fits = match call.node {
                    // A tool span around it in time, of another agent that goes on.
                    Some(n) => {
                        let end = self.g.end(n);
                        self.g.nodes[n].start <= run.start
                            && run.end <= end.saturating_add(SAME)
                            && call.run != Some(r)
                            && call.run.is_some()
                    }
                    // Only messages: after the call was made, before its result was read.
                    None => {
                        call.run != Some(r)
                            && call.order <= run.start.saturating_add(SAME)
                            && call.run.is_some()
                    }
                };
                if !fits || self.intents.iter().any(|x| x.call == Some(c) && x.taken_by.is_some()) {
                    continue;
                }
                let same = asked.is_some_and(|h| {
                    call.payloads
                        .iter()
                        .any(|p| baton_record::schema::unpack_u64(p.texts()).any(|t| t.cast_signed() == h))
                });
                if same || (call.node.is_some() && !call.node.is_some_and(|n| self.g.is_below(run.root, n))) {
                    candidates.push((same, c));
                }
            }
            let sure: Vec<usize> = candidates.iter().filter(|(same, _)| *same).map(|(_, c)| *c).collect();
            let pick = match (sure.as_slice(), candidates.as_slice()) {
                ([c, ..], _) => Some(*c),
                // Without the text, only a single tool call around it is evidence, and only where no history says otherwise.
                ([], [(_, c)])
                    if asked.is_none()
                        && self.calls[*c].node.is_some_and(|n| self.g.nodes[n].s.start.is_some()) =>
                {
                    Some(*c)
                }
                _ => None,
            };
            let Some(c) = pick else { continue };
            let call = &self.calls[c];
            let x = match self.intents.iter().position(|x| x.call == Some(c) && x.taken_by.is_none()) {
                Some(x) => x,
                None => {
                    self.intents.push(Intent {
                        run: call.run,
                        from_name: None,
                        target: None,
                        time: call.order,
                        call: Some(c),
                        nodes: call.node.into_iter().collect(),
                        explicit: None,
                        sure: true,
                        returns: true,
                        back: false,
                        mode: None,
                        failed: false,
                        turn: call.inference.or_else(|| last_before(self.infs, call.run, call.order)),
                        payloads: call.payloads.clone(),
                        captured: true,
                        weak: false,
                        taken_by: None,
                    });
                    self.named.push(false);
                    self.intents.len() - 1
                }
            };
            self.take(x, r, false);
            if let (None, Some((_, s))) = (self.runs.runs[r].agent, &self.intents[x].target) {
                self.runs.runs[r].slug = Some(s.clone());
            }
        }
    }

    /// A transfer that names no receiver, or one that no agent is called: the next run that starts.
    fn unnamed(&mut self) {
        for x in self.order() {
            let intent = &self.intents[x];
            if intent.taken_by.is_some() || intent.failed || to_human(intent) || intent.weak || !intent.sure {
                continue;
            }
            // Another transfer of the same turn was taken: this one is refused.
            if self.same_turn(x).any(|y| self.intents[y].taken_by.is_some()) {
                continue;
            }
            // The sender went on: nobody took over.
            let goes_on = self.infs.iter().any(|f| Some(f.run) == intent.run && f.start > intent.time)
                && intent.target.is_some();
            let scope = intent.run.map(|r| self.runs.runs[r].scope);
            let mut next: Vec<usize> = self
                .live()
                .into_iter()
                .filter(|r| {
                    let run = &self.runs.runs[*r];
                    self.by_run[*r].is_none()
                        && Some(*r) != intent.run
                        && run.start >= intent.time.saturating_sub(SAME)
                        && run.via.is_none()
                        && !run.anonymous
                        && scope.is_none_or(|s| run.scope == s || run.scope.is_none() || s.is_none())
                })
                .collect();
            next.sort_by_key(|r| self.runs.runs[*r].start);
            let Some(&first) = next.first() else { continue };
            if goes_on {
                continue;
            }
            let together: Vec<usize> = next
                .iter()
                .copied()
                .filter(|r| self.runs.runs[*r].start.saturating_sub(self.runs.runs[first].start) < SAME)
                .collect();
            if together.len() > 1 {
                self.ambiguous.push((x, together));
            } else {
                self.take(x, first, false);
            }
        }
    }

    fn same_turn(&self, x: usize) -> impl Iterator<Item = usize> + '_ {
        let (turn, run, call) = (self.intents[x].turn, self.intents[x].run, self.intents[x].call);
        (0..self.intents.len()).filter(move |y| {
            let o = &self.intents[*y];
            *y != x && o.run == run && turn.is_some() && o.turn == turn && (o.call != call || call.is_none())
        })
    }

    /// Runs that nothing announces: a first run, one that goes on, a change of agents.
    fn rest(&mut self) {
        let live = self.live();
        for &r in &live {
            if self.by_run[r].is_some() || self.ambiguous.iter().any(|(_, c)| c.contains(&r)) {
                continue;
            }
            let run = &self.runs.runs[r];
            if run.via.is_some()
                && self.g.nodes[run.via.unwrap_or(0)].s.role == Role::Tool
                && run.parent_run.is_some()
                && !self.has_sibling_before(r, &live)
            {
                continue;
            }
            // Goes on: the same agent ran last, or its history is that of an earlier run of it.
            if let Some(p) = self.goes_on_from(r, &live) {
                self.runs.runs[r].merged = Some(p);
                continue;
            }
            if run.anonymous {
                // Without a name and without an announcement it is no agent of its own.
                if let Some(p) = live.iter().copied().rfind(|p| {
                    *p != r
                        && self.runs.runs[*p].scope == run.scope
                        && self.runs.runs[*p].anonymous
                        && self.runs.runs[*p].start <= run.start
                        && self.runs.runs[*p].merged.is_none()
                }) && self.by_run[p].is_none()
                {
                    self.runs.runs[r].merged = Some(p);
                }
                continue;
            }
            if let Some(p) = run.parent_run.filter(|_| run.via.is_none())
                && self.previous(r, &live).is_none()
            {
                self.changes.push((p, r, true));
                continue;
            }
            let Some(p) = self.previous(r, &live) else { continue };
            // The silent return of a transfer: its caller goes on.
            let sender = self.by_run[p].and_then(|x| self.intents[x].run);
            if let Some(s) = sender.filter(|s| self.runs.runs[*s].slug == run.slug && *s != r) {
                self.runs.runs[r].merged = Some(s);
                continue;
            }
            self.changes.push((p, r, false));
        }
    }

    fn has_sibling_before(&self, r: usize, live: &[usize]) -> bool {
        self.previous(r, live).is_some()
    }

    /// The run beside this one that ended last before it started.
    fn previous(&self, r: usize, live: &[usize]) -> Option<usize> {
        let run = &self.runs.runs[r];
        live.iter()
            .copied()
            .filter(|p| {
                let o = &self.runs.runs[*p];
                *p != r
                    && o.parent_run == run.parent_run
                    && o.via == run.via
                    && (o.scope == run.scope)
                    && o.end <= run.start.saturating_add(SAME)
                    && o.start <= run.start
                    && !o.anonymous
                    && o.merged.is_none_or(|m| m != usize::MAX)
            })
            .max_by_key(|p| (self.runs.runs[*p].end, self.runs.runs[*p].start))
            .map(|p| self.runs.runs[p].merged.filter(|m| *m != usize::MAX).unwrap_or(p))
    }

    fn goes_on_from(&self, r: usize, live: &[usize]) -> Option<usize> {
        let run = &self.runs.runs[r];
        let slug = run.slug.as_ref();
        let mut before: Vec<usize> = live
            .iter()
            .copied()
            .filter(|p| {
                *p != r && self.runs.runs[*p].start <= run.start && self.runs.runs[*p].merged.is_none()
            })
            .collect();
        before.sort_by_key(|p| (self.runs.runs[*p].start, *p));
        // A caller's client span and the remote agent's own span are one run.
        if let Some(p) = before.iter().copied().find(|p| {
            let o = &self.runs.runs[*p];
            slug.is_some()
                && o.slug.as_ref() == slug
                && o.end >= run.end
                && o.inferences.is_empty()
                && o.tools.is_empty()
        }) {
            return Some(p);
        }
        // The last agent at this level, in this trace or in the one before.
        let level: Vec<usize> = before
            .iter()
            .copied()
            .filter(|p| {
                self.runs.runs[*p].via.is_none()
                    && self.runs.runs[*p].parent_run == run.parent_run
                    && run.via.is_none()
            })
            .collect();
        let last = level
            .iter()
            .copied()
            .max_by_key(|p| (self.runs.runs[*p].end.min(run.start), self.runs.runs[*p].start));
        if let Some(p) = last.filter(|p| {
            self.runs.runs[*p].slug.as_ref() == slug
                && (slug.is_some() || (run.anonymous && self.runs.runs[*p].anonymous))
        }) {
            return Some(p);
        }
        // Interleaved runs: it continues the history of an earlier run of the same agent.
        let first = run.inferences.first().and_then(|k| self.infs[*k].input.as_ref())?;
        level.iter().copied().rev().find(|p| {
            let o = &self.runs.runs[*p];
            slug.is_some()
                && o.slug.as_ref() == slug
                && o.inferences.last().is_some_and(|k| {
                    self.infs[*k].input.as_ref().is_some_and(|i| i.len() < first.len())
                        && continues(&self.infs[*k], first)
                })
                && o.end > run.start.saturating_sub(SAME)
        })
    }

    fn name_of(&self, r: usize) -> Option<String> {
        self.runs.runs[r]
            .agent
            .map(str::to_owned)
            .or_else(|| self.by_run[r].and_then(|x| self.intents[x].target.as_ref()).map(|(t, _)| t.clone()))
    }

    /// A target as its own spans or the SDK spell it; else in the spelling of the sender, since a tool's name has
    /// lost capitals and spaces.
    fn spelled(&self, x: &Intent<'a>, target: &(String, String)) -> String {
        if let Some(a) =
            self.runs.runs.iter().find(|r| r.slug.as_ref() == Some(&target.1)).and_then(|r| r.agent)
        {
            return a.to_owned();
        }
        if let Some(a) = self
            .intents
            .iter()
            .filter_map(|i| i.explicit)
            .flat_map(|h| h.requested().iter().chain(h.to().iter()))
            .find(|a| slug(a) == target.1)
        {
            return a.to_owned();
        }
        let sender = self.sender_name(x).unwrap_or_default();
        let words = || target.1.split('_').filter(|w| !w.is_empty());
        if target.0 != target.1 {
            return target.0.clone();
        }
        if sender.contains(' ') && sender.starts_with(char::is_uppercase) {
            return words().map(capital).collect::<Vec<_>>().join(" ");
        }
        if sender.contains('-') && !sender.contains('_') {
            return words().collect::<Vec<_>>().join("-");
        }
        target.0.clone()
    }

    fn sender_name(&self, x: &Intent<'a>) -> Option<String> {
        x.run.and_then(|r| self.name_of(r)).or_else(|| x.from_name.map(str::to_owned))
    }

    fn report(&self) -> Vec<Transfer<'a>> {
        let mut out = Vec::new();
        for (i, x) in self.intents.iter().enumerate() {
            if let Some(t) = self.report_intent(i, x) {
                out.push(t);
            }
        }
        for &(p, r, nested) in &self.changes {
            let run = &self.runs.runs[r];
            let hinted = run.parent_agent.is_some_and(|a| self.runs.runs[p].slug.as_ref() == Some(&slug(a)));
            let sender = last_before(self.infs, Some(p), run.start);
            out.push(Transfer {
                from_run: Some(p),
                from_name: self.name_of(p),
                to_run: Some(r),
                to_name: self.name_of(r),
                mode: if nested { "return_to_caller" } else { "pass_control" },
                outcome: "accepted",
                detection: if hinted { "explicit" } else { "agent_change" },
                confidence: if hinted { "certain" } else { "likely" },
                candidates: Vec::new(),
                explicit: None,
                call: None,
                time: run.start,
                sender,
                payloads: Vec::new(),
                captured: false,
                in_text: false,
                evidence: run.root,
            });
        }
        out.sort_by_key(|a| (a.time, self.order_key(a)));
        out
    }

    /// Of transfers at one moment: those that were taken first, then by name.
    fn order_key(&self, t: &Transfer<'a>) -> (bool, i64, Option<String>) {
        (t.outcome != "accepted", t.to_run.map_or(i64::MAX, |r| self.runs.runs[r].start), t.to_name.clone())
    }

    fn report_intent(&self, i: usize, x: &Intent<'a>) -> Option<Transfer<'a>> {
        let ambiguous = self.ambiguous.iter().find(|(y, _)| *y == i);
        let human = to_human(x);
        if x.taken_by.is_none() && ambiguous.is_none() && (x.weak || !x.sure) {
            return None;
        }
        // A delegation that only a message asks for, with neither a span nor a result: not known to have been made.
        if x.taken_by.is_none()
            && x.returns
            && x.nodes.is_empty()
            && x.call.is_some_and(|c| !self.calls[c].answered)
        {
            return None;
        }
        // The sender's own word, or another one was taken in the same turn.
        let told = x.explicit.is_some()
            && x.nodes
                .iter()
                .any(|n| self.g.nodes[*n].s.error() == Some(attr::BATON_HANDOFF_OUTCOME_REFUSED));
        let refused = x.taken_by.is_none()
            && (told
                || self.same_turn(i).any(|y| {
                    self.intents[y].taken_by.is_some() || self.ambiguous.iter().any(|(z, _)| *z == y)
                }));
        let outcome = match (x.taken_by, ambiguous) {
            (Some(_), _) => "accepted",
            (None, Some(_)) => "unknown",
            _ if human => "accepted",
            // An error of the turn ("several handoffs requested") speaks of what was not taken.
            _ if refused => "refused",
            _ if x.failed => "failed",
            _ => "pending",
        };
        let to_name = match (x.taken_by, ambiguous) {
            (Some(r), _) => self.name_of(r),
            (None, Some(_)) => None,
            _ => x.target.as_ref().map(|t| self.spelled(x, t)),
        };
        let explicit_ends = x.explicit.is_some_and(|h| !h.to().is_empty());
        let confidence = match (x.taken_by, ambiguous) {
            (_, Some(_)) => "ambiguous",
            (Some(_), _) if explicit_ends || self.named[i] => "certain",
            (Some(_), _) => "likely",
            _ if x.target.is_some() => "certain",
            _ => "likely",
        };
        let detection =
            if x.explicit.is_some() && (explicit_ends || x.call.is_none()) { "explicit" } else { "tool" };
        let candidates =
            ambiguous.map(|(_, c)| c.iter().filter_map(|r| self.name_of(*r)).collect()).unwrap_or_default();
        let sender = x.turn.or_else(|| last_before(self.infs, x.run, x.time));
        let mut payloads = x.payloads.clone();
        let mut in_text = false;
        if x.captured && payloads.iter().all(|p| p.empty) {
            payloads.extend(sender.into_iter().flat_map(|k| said(&self.infs[k])));
            in_text = payloads.iter().any(|p| !p.empty);
        }
        Some(Transfer {
            from_run: x.run,
            from_name: self.sender_name(x),
            to_run: x.taken_by,
            to_name,
            mode: self.mode(x),
            outcome,
            detection,
            confidence,
            candidates,
            explicit: x.explicit,
            call: x.call,
            time: x.time,
            sender,
            payloads,
            captured: x.captured,
            in_text,
            evidence: x
                .nodes
                .first()
                .copied()
                .or_else(|| x.turn.map(|k| self.infs[k].node))
                .or_else(|| x.taken_by.map(|r| self.runs.runs[r].root))
                .unwrap_or(0),
        })
    }

    fn mode(&self, x: &Intent<'a>) -> &'static str {
        match x.mode.map(slug).as_deref() {
            Some("pass_control" | "handoff" | "transfer" | "one_way") => return "pass_control",
            Some("return_to_caller" | "delegate" | "delegation" | "round_trip") => return "return_to_caller",
            Some("hand_back" | "return") => return "hand_back",
            _ => {}
        }
        if x.back {
            return "hand_back";
        }
        if x.returns {
            return "return_to_caller";
        }
        // A receiver inside the sender's tool span, and a sender that goes on after it: it waited.
        if let (Some(r), Some(s)) = (x.taken_by, x.run)
            && let Some(via) = self.runs.runs[r].via
            && x.nodes.contains(&via)
        {
            let end = self.runs.runs[r].end;
            if self.infs.iter().any(|f| f.run == s && f.start >= end) {
                return "return_to_caller";
            }
        }
        "pass_control"
    }
}

/// Contracts in the text of a model call's answer.
fn said<'a>(f: &Inference<'a>) -> Vec<PayloadRef<'a>> {
    let text = |p: &PayloadRef<'a>| {
        usize::try_from(p.pos)
            .ok()
            .and_then(|i| f.output.as_ref()?.get(i))
            .is_some_and(|i| i.kind == ItemKind::Text)
    };
    f.payloads.iter().filter(|p| p.source == Source::Output && p.structured && text(p)).copied().collect()
}

fn capital(word: &str) -> String {
    let mut c = word.chars();
    c.next().map(|f| f.to_uppercase().chain(c).collect()).unwrap_or_default()
}
