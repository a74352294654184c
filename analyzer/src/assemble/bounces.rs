//! Control that goes back with the same goal (METRICS.md section 3, bounces).

use foldhash::HashSet;

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
        .flat_map(|p| unpack_u64(p.texts).map(u64::cast_signed))
        .collect();
    let accepted: Vec<usize> = (0..transfers.len())
        .filter(|i| transfers[*i].outcome == "accepted" && transfers[*i].to_run.is_some())
        .collect();
    let goals: Vec<Goal> = transfers
        .iter()
        .map(|t| Goal {
            stated: t.payloads.iter().find_map(|p| p.goal),
            shingles: t
                .payloads
                .iter()
                .filter(|p| p.narrative || p.structured)
                .flat_map(|p| unpack_u32(p.shingles))
                .collect(),
            idents: t.payloads.iter().flat_map(|p| unpack_u64(p.idents)).map(|h| h | 1).collect(),
            known: t.captured && t.payloads.iter().any(|p| !p.empty),
            epoch: turn_of(t.time).max(users_before(infs, &said, t.time)),
        })
        .collect();
    let agent = |r: Option<usize>| r.map(|r| runs.runs[r].slug.clone().unwrap_or_else(|| format!("#{r}")));
    let mut out = Vec::new();
    let mut skip = 0;
    for (n, &k) in accepted.iter().enumerate() {
        let t = &transfers[k];
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
        let to = agent(t.to_run);
        let passed_on_before =
            accepted[..n].iter().any(|&j| agent(transfers[j].from_run) == to && same(&goals[j], &goals[k]));
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

/// How many different messages of the user the agents had seen before a moment.
fn users_before(infs: &[Inference<'_>], said: &HashSet<i64>, time: i64) -> usize {
    let mut seen: HashSet<i64> = HashSet::default();
    for f in infs.iter().filter(|f| f.start <= time) {
        for i in f
            .input
            .iter()
            .flatten()
            .filter(|i| i.kind == ItemKind::Text && i.speaker == Speaker::User && !i.retold)
        {
            if let Some(h) = i.hash.filter(|h| !said.contains(h)) {
                seen.insert(h);
            }
        }
    }
    seen.len()
}
