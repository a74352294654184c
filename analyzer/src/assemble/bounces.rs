//! Control that goes back with the same goal (METRICS.md section 3, bounces).

use foldhash::{HashMap, HashSet};

use baton_record::schema::{unpack_u32, unpack_u64};
use baton_record::span::{ItemKind, Speaker};

use super::inference::Inference;
use super::runs::Runs;
use super::transfers::Transfer;

/// One episode: the transfer that brought control back, and the one that passed the same goal on again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bounce {
    pub back: usize,
    pub again: Option<usize>,
}

struct Goal {
    stated: Option<i64>,
    shingles: Vec<u32>,
    /// Identifiers and numbers in the payload.
    idents: HashSet<u64>,
    known: bool,
    epoch: usize,
}

/// Goals that an agent passed on, for [`same`].
#[derive(Default)]
struct Passed {
    stated: HashSet<i64>,
    epochs: HashSet<usize>,
    /// Of goals that are not stated.
    epochs_unstated: HashSet<usize>,
}

impl Passed {
    fn add(&mut self, g: &Goal) {
        self.epochs.insert(g.epoch);
        match g.stated {
            Some(s) => self.stated.insert(s),
            None => self.epochs_unstated.insert(g.epoch),
        };
    }

    fn holds(&self, g: &Goal) -> bool {
        match g.stated {
            Some(s) => self.stated.contains(&s) || self.epochs_unstated.contains(&g.epoch),
            None => self.epochs.contains(&g.epoch),
        }
    }
}

/// Texts that share this part of the smaller one say the same.
const ALIKE: f64 = 0.6;

/// The episodes of a task. `redoes[i]`: the receiver of transfer i repeats what is done already.
pub(super) fn find(
    infs: &[Inference<'_>],
    runs: &Runs<'_>,
    transfers: &[Transfer<'_>],
    redoes: &[bool],
    turn_of: &dyn Fn(i64) -> usize,
) -> Vec<Bounce> {
    let said: HashSet<i64> = transfers
        .iter()
        .flat_map(|t| &t.payloads)
        .flat_map(|p| unpack_u64(p.texts()).map(u64::cast_signed))
        .collect();
    let accepted: Vec<usize> = (0..transfers.len())
        .filter(|i| transfers[*i].outcome == "accepted" && transfers[*i].to_run.is_some())
        .collect();
    let seen = first_seen(infs, &said);
    // Only delegations are compared by their texts.
    let texts = |t: &Transfer<'_>| t.mode == "return_to_caller";
    let goals: Vec<Goal> = transfers
        .iter()
        .map(|t| Goal {
            stated: t.payloads.iter().find_map(|p| p.goal()),
            shingles: t
                .payloads
                .iter()
                .filter(|p| texts(t) && (p.narrative || p.structured))
                .flat_map(|p| unpack_u32(p.shingles()))
                .collect(),
            idents: t
                .payloads
                .iter()
                .filter(|_| texts(t))
                .flat_map(|p| unpack_u64(p.idents()))
                .map(|h| h | 1)
                .collect(),
            known: t.captured && t.payloads.iter().any(|p| !p.empty),
            epoch: turn_of(t.time).max(seen.partition_point(|s| *s <= t.time)),
        })
        .collect();
    // An agent as a number: runs of one name are one agent, a run without a name is its own.
    let mut names: HashMap<&str, usize> = HashMap::default();
    let agents: Vec<usize> = (0..runs.runs.len())
        .map(|r| runs.runs[r].slug.as_deref().map_or(r, |s| *names.entry(s).or_insert(r)))
        .collect();
    let agent = |r: Option<usize>| r.map(|r| agents[r]);
    // What each agent passed on so far.
    let mut passed: HashMap<Option<usize>, Passed> = HashMap::default();
    let mut out = Vec::new();
    let mut skip = 0;
    for (n, &k) in accepted.iter().enumerate() {
        let t = &transfers[k];
        let to = agent(t.to_run);
        let passed_on_before = passed.get(&to).is_some_and(|p| p.holds(&goals[k]));
        passed.entry(agent(t.from_run)).or_default().add(&goals[k]);
        if t.mode == "return_to_caller" {
            // The same goal delegated again after it came back.
            let again = accepted[..n].iter().any(|&j| {
                let e = &transfers[j];
                e.mode == "return_to_caller"
                    && agent(e.from_run) == agent(t.from_run)
                    && same_delegated(&goals[j], &goals[k])
                    && e.to_run.is_some_and(|r| runs.runs[r].end <= t.time)
            });
            if again {
                out.push(Bounce { back: k, again: Some(k) });
            }
            continue;
        }
        if n < skip {
            continue;
        }
        if !passed_on_before {
            continue;
        }
        // Until control comes back to it once more.
        let until = accepted[n + 1..]
            .iter()
            .position(|&m| agent(transfers[m].to_run) == to)
            .map_or(accepted.len(), |p| n + 1 + p);
        let again = accepted[n + 1..until.max(n + 1)]
            .iter()
            .position(|&m| {
                // A delegation passes a part on, unless it states the same goal.
                let whole = transfers[m].mode != "return_to_caller" || goals[m].stated.is_some();
                agent(transfers[m].from_run) == to && whole && same(&goals[m], &goals[k])
            })
            .map(|p| n + 1 + p);
        if again.is_some() || redoes[k] {
            out.push(Bounce { back: k, again: again.map(|m| accepted[m]) });
            skip = again.map_or(n + 1, |m| m + 1);
        }
    }
    out
}

fn same(a: &Goal, b: &Goal) -> bool {
    match (a.stated, b.stated) {
        (Some(x), Some(y)) => x == y,
        _ => a.epoch == b.epoch,
    }
}

/// Two delegations are of one goal where they say so, or where their texts are alike; without any text
/// they are not known to be.
fn same_delegated(a: &Goal, b: &Goal) -> bool {
    match (a.stated, b.stated) {
        (Some(x), Some(y)) => return x == y,
        _ if !a.known || !b.known => return false,
        // One form of words about two things is two goals. Asking again with more known is one.
        _ if !a.idents.is_subset(&b.idents) && !b.idents.is_subset(&a.idents) => return false,
        _ => {}
    }
    let (x, y): (HashSet<u32>, HashSet<u32>) =
        (a.shingles.iter().copied().collect(), b.shingles.iter().copied().collect());
    let small = x.len().min(y.len());
    small > 0 && x.intersection(&y).count() as f64 >= ALIKE * small as f64
}

/// When each different message of the user was first in an agent's view, sorted.
fn first_seen(infs: &[Inference<'_>], said: &HashSet<i64>) -> Vec<i64> {
    let mut first: HashMap<i64, i64> = HashMap::default();
    for f in infs {
        for i in f
            .input
            .iter()
            .flatten()
            .filter(|i| i.kind == ItemKind::Text && i.speaker == Speaker::User && !i.retold())
        {
            if let Some(h) = i.hash.filter(|h| !said.contains(h)) {
                let t = first.entry(h).or_insert(f.start);
                *t = f.start.min(*t);
            }
        }
    }
    let mut times: Vec<i64> = first.into_values().collect();
    times.sort_unstable();
    times
}

#[cfg(test)]
mod tests {
    use super::*;

    fn goal(shingles: &[u32], idents: &[u64]) -> Goal {
        Goal {
            stated: None,
            shingles: shingles.to_vec(),
            idents: idents.iter().copied().collect(),
            known: true,
            epoch: 0,
        }
    }

    #[test]
    fn asking_again_with_more_known_is_the_same_goal() {
        let first = goal(&[1, 2, 3, 4], &[7]);
        assert!(same_delegated(&first, &goal(&[1, 2, 3, 4, 5, 6], &[7, 9])));
        assert!(same_delegated(&first, &goal(&[1, 2, 3], &[])));
        // The same words about something else.
        assert!(!same_delegated(&first, &goal(&[1, 2, 3, 4], &[9])));
        assert!(!same_delegated(&first, &goal(&[5, 6, 7, 8], &[7])));
        assert!(!same_delegated(&first, &Goal { known: false, ..goal(&[1, 2, 3, 4], &[7]) }));
        assert!(!same_delegated(
            &Goal { stated: Some(1), ..goal(&[1], &[]) },
            &Goal { stated: Some(2), ..goal(&[1], &[]) }
        ));
    }

    #[test]
    fn what_was_passed_on_is_found_as_by_comparing_each() {
        let goals: Vec<Goal> = [(Some(1), 0), (None, 0), (Some(2), 1), (None, 2), (Some(1), 3)]
            .map(|(stated, epoch)| Goal { stated, epoch, ..goal(&[], &[]) })
            .into();
        for n in 0..goals.len() {
            let mut passed = Passed::default();
            goals[..n].iter().for_each(|g| passed.add(g));
            for g in &goals {
                assert_eq!(passed.holds(g), goals[..n].iter().any(|e| same(e, g)));
            }
        }
    }
}
