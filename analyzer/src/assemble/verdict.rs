//! Who lost the rule (METRICS.md section 4): for each agent run and each constraint that a rule or a judgement speaks of, when
//! the run first saw it, and where it was lost before that.
//!
//! A verdict is given only where nothing that is missing could change it. A run that saw the constraint has not followed it,
//! whichever way it came: also where the payload dropped it and forwarded history still shows it.

use foldhash::{HashMap, HashSet};

use baton_record::schema::unpack_u32;
use baton_record::span::Role;

use super::Rules;
use super::constraints::{Sought, carries, received};
use super::context::view_unknown;
use super::emit::Keys;
use super::judge::Task;
use super::judgement::{Constraints, failed};
use crate::tables::{EvaluationRow, RunConstraintRow, Tables};

/// A constraint that may have been broken.
struct Subject {
    id: String,
    hash: String,
    text: Option<String>,
    shingles: Vec<u32>,
}

/// Where a span with a judgement stands.
#[derive(Default, Clone, Copy)]
struct Place {
    transfer: Option<usize>,
    call: Option<usize>,
    run: Option<usize>,
    /// What was seen after it does not count. `None`: the whole run is judged.
    time: Option<i64>,
}

/// When a run first saw a constraint, and the verdict on what it did before that.
struct Fate {
    seen_at: Option<i64>,
    verdict: &'static str,
    missing: Option<String>,
}

impl Task<'_> {
    /// Writes the judgements, and what runs knew of the constraints that rules and judgements speak of.
    pub(super) fn write_verdicts(&self, rules: &Rules, out: &mut Tables, keys: &Keys<'_>) {
        let judged = self.g.nodes.iter().any(|n| !n.evaluations.is_empty());
        if !judged && rules.policies.iter().all(|p| !p.has_rule) {
            return;
        }
        let subjects = self.subjects(rules, judged);
        let mut started: HashMap<usize, usize> = HashMap::default();
        for (i, t) in self.transfers.iter().enumerate().filter(|(_, t)| t.outcome == "accepted") {
            if let Some(r) = t.to_run {
                started.entry(r).or_insert(i);
            }
        }
        // By run: the subjects asked about.
        let mut asked: Vec<Vec<usize>> = vec![Vec::new(); self.runs.runs.len()];
        let ruled: Vec<usize> =
            (0..rules.policies.len().min(subjects.len())).filter(|k| rules.policies[*k].has_rule).collect();
        for c in (0..self.calls.len()).filter(|c| self.is_tool[*c]) {
            if let Some(r) = self.calls[c].run.filter(|r| asked[*r].is_empty()) {
                asked[r].clone_from(&ruled);
            }
        }
        if judged {
            self.write_judgements(out, keys, &subjects, &started, &mut asked);
        }
        let told = received(&self.g, &self.runs);
        let sought: Vec<Sought<'_>> =
            subjects.iter().map(|s| Sought::new(rules, &s.id, &s.shingles)).collect();
        for (r, asked) in asked.iter().enumerate().filter(|(_, a)| !a.is_empty()) {
            let told = told.get(&r);
            let seen = self.seen(r, asked, &sought, told);
            for (s, seen_at) in asked.iter().zip(seen) {
                let through = started.get(&r).copied();
                let fate = self.fate(r, through, &subjects[*s], &sought[*s], seen_at, told.is_some());
                out.run_constraints.push(RunConstraintRow {
                    run_id: keys.runs[r].as_str(),
                    task_id: &self.id,
                    agent: keys.agents[r],
                    handoff_id: through.map(|t| keys.handoffs[t].as_str()),
                    constraint_id: &subjects[*s].id,
                    text: subjects[*s].text.as_deref(),
                    seen_at: fate.seen_at,
                    verdict: fate.verdict,
                    missing: fate.missing.as_deref(),
                    last_activity: self.last_activity,
                });
            }
        }
    }

    /// The catalogue in its order; where judgements may name others also what contracts and durable state hold.
    fn subjects(&self, rules: &Rules, judged: bool) -> Vec<Subject> {
        let mut all: Vec<Subject> = rules
            .policies
            .iter()
            .map(|p| Subject {
                id: p.id.clone(),
                hash: p.hash.clone(),
                text: p.text.clone(),
                shingles: p.shingles.clone(),
            })
            .collect();
        if !judged {
            return all;
        }
        let mut known: HashSet<String> = all.iter().map(|s| s.id.clone()).collect();
        for (t, f) in self.transfers.iter().zip(&self.facts) {
            for c in t.payloads.iter().flat_map(|p| p.constraints()) {
                if !known.insert(c.id.to_owned()) {
                    continue;
                }
                all.push(Subject {
                    id: c.id.to_owned(),
                    hash: c.hash.to_owned(),
                    text: c.text.map(str::to_owned),
                    shingles: unpack_u32(c.shingles).collect(),
                });
            }
            for x in &f.constraints.list {
                if !known.insert(x.id.clone()) {
                    continue;
                }
                all.push(Subject {
                    id: x.id.clone(),
                    hash: x.hash.clone(),
                    text: x.text.clone(),
                    shingles: Vec::new(),
                });
            }
        }
        all
    }

    fn write_judgements(
        &self,
        out: &mut Tables,
        keys: &Keys<'_>,
        subjects: &[Subject],
        started: &HashMap<usize, usize>,
        asked: &mut [Vec<usize>],
    ) {
        let constraints = Constraints::new(subjects.iter().map(|s| s.id.as_str()));
        let call_of: HashMap<usize, usize> = (0..self.calls.len())
            .filter(|c| self.is_tool[*c])
            .filter_map(|c| Some((self.calls[c].node?, c)))
            .collect();
        let mut transfer_of: HashMap<usize, usize> = HashMap::default();
        for (i, t) in self.transfers.iter().enumerate() {
            let role = self.g.nodes[t.evidence].s.role;
            let evidence = Some(t.evidence).filter(|_| matches!(role, Role::Handoff | Role::Tool));
            for n in t.call.and_then(|c| self.calls[c].node).into_iter().chain(evidence) {
                transfer_of.entry(n).or_insert(i);
            }
        }
        for &n in self.g.order.iter().filter(|n| !self.g.nodes[**n].evaluations.is_empty()) {
            let at = self.place(n, &call_of, &transfer_of);
            let handoff = at.transfer.or_else(|| started.get(&at.run?).copied());
            let s = self.g.nodes[n].s;
            // Scores of Baton's own that were sent out are no judgement of anyone else.
            let others = self.g.nodes[n].evaluations.iter().filter(|(name, ..)| !name.starts_with("baton."));
            for &(name, score, label) in others {
                let subject = constraints.named(name, label);
                if let (Some(r), Some(s)) = (at.run, subject)
                    && !asked[r].contains(&s)
                {
                    asked[r].push(s);
                }
                out.evaluations.push(EvaluationRow {
                    task_id: &self.id,
                    trace_id: s.trace_id,
                    span_id: s.span_id,
                    handoff_id: handoff.map(|t| keys.handoffs[t].as_str()),
                    run_id: at.run.map(|r| keys.runs[r].as_str()),
                    agent: at.run.and_then(|r| keys.agents[r]),
                    call: at.call.map(|c| keys.calls[c].as_str()),
                    tool: at.call.map(|c| self.calls[c].name),
                    name,
                    score,
                    label,
                    failed: failed(name, score, label, subject.is_some()),
                    constraint_id: subject.map(|s| subjects[s].id.as_str()),
                    time: at.time.filter(|t| *t > 0 && *t < i64::MAX),
                    last_activity: self.last_activity,
                });
            }
        }
    }

    /// What a judgement on a span is about: the transfer, the tool call, the model call or the run that the span is or stands in.
    fn place(
        &self,
        node: usize,
        call_of: &HashMap<usize, usize>,
        transfer_of: &HashMap<usize, usize>,
    ) -> Place {
        let own = self.runs.of_node[node];
        for n in std::iter::once(node).chain(self.g.ancestors(node)) {
            // What stands around the run is not what is judged, except the transfer that started it.
            let outside = own.is_some() && self.runs.of_node[n] != own;
            if let Some(&t) = transfer_of.get(&n) {
                return Place { transfer: Some(t), run: self.transfers[t].to_run, ..Place::default() };
            }
            if outside {
                break;
            }
            if let Some(&c) = call_of.get(&n) {
                let call = &self.calls[c];
                let time = Some(call.start.unwrap_or(call.order));
                return Place { call: Some(c), run: call.run, time, ..Place::default() };
            }
            if self.g.nodes[n].s.role == Role::Inference {
                let time = Some(self.g.nodes[n].start);
                return Place { run: self.runs.of_node[n], time, ..Place::default() };
            }
        }
        Place { run: own, ..Place::default() }
    }

    /// For each subject asked about: when the run first saw it, by the word of its own tracing or in the input of a model call.
    fn seen(
        &self,
        run: usize,
        asked: &[usize],
        sought: &[Sought<'_>],
        told: Option<&Vec<String>>,
    ) -> Vec<Option<i64>> {
        let own = &self.runs.runs[run];
        let mut seen: Vec<Option<i64>> = asked
            .iter()
            .map(|s| told.filter(|ids| ids.iter().any(|id| id == sought[*s].id)).map(|_| own.start))
            .collect();
        // A history repeats its items in each call.
        let mut looked_at: HashSet<i64> = HashSet::default();
        for f in own.inferences.iter().map(|k| &self.infs[*k]) {
            for (s, at) in asked.iter().zip(&mut seen).filter(|(_, at)| at.is_none()) {
                if f.policies.contains(sought[*s].id) {
                    *at = Some(f.start);
                }
            }
            for i in f.input.iter().flatten().chain(&f.instructions) {
                if i.hash.is_some_and(|h| !i.blanked && !looked_at.insert(h)) {
                    continue;
                }
                for (s, at) in asked.iter().zip(&mut seen).filter(|(_, at)| at.is_none()) {
                    if sought[*s].in_item(i) {
                        *at = Some(f.start);
                    }
                }
            }
        }
        seen
    }

    /// The verdict on a run, which transfer `through` started, for what it did before it saw a constraint.
    fn fate(
        &self,
        run: usize,
        through: Option<usize>,
        subject: &Subject,
        sought: &Sought<'_>,
        seen_at: Option<i64>,
        told: bool,
    ) -> Fate {
        let first = self.runs.runs[run].inferences.first().map(|k| &self.infs[*k]);
        let give = |verdict, missing: Option<String>| Fate { seen_at, verdict, missing };
        if seen_at.is_some_and(|at| first.is_none_or(|f| at <= f.start)) {
            return give("model", None);
        }
        // Only the first view tells what the transfer brought (METRICS.md section 1, receiver's view).
        let masked = first.is_some_and(|f| f.view.masked).then_some("content masked");
        if let Some(why) = view_unknown(first).or(masked).filter(|_| !told) {
            return give("unknown", Some(format!("the agent's view: {why}")));
        }
        let Some(i) = through else {
            let name = self.agent(run);
            let maybe = self
                .transfers
                .iter()
                .any(|t| t.outcome == "unknown" && t.candidates.iter().any(|c| Some(c.as_str()) == name));
            return match maybe {
                true => give("unknown", Some("which agent a transfer went to".to_owned())),
                false => give("state", None),
            };
        };
        let (t, f) = (&self.transfers[i], &self.facts[i]);
        if carries(t, &subject.hash, sought) {
            return give("filter", None);
        }
        let cut = t.payloads.iter().any(|p| !p.complete).then_some("payload cut off");
        if let Some(why) = f.payload.unknown.or(cut) {
            return give("unknown", Some(format!("the payload: {why}")));
        }
        let same = |id: &str, hash: &str| id == subject.id || (!hash.is_empty() && hash == subject.hash);
        if f.constraints.list.iter().any(|x| x.held && same(&x.id, &x.hash)) {
            return give("payload", None);
        }
        let earlier = self.transfers[..i].iter().zip(&self.facts).filter(|(t, _)| t.outcome == "accepted");
        match earlier.filter_map(|(_, f)| f.payload.unknown).next() {
            Some(why) => give("unknown", Some(format!("an earlier payload: {why}"))),
            None => give("state", None),
        }
    }
}
