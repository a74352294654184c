//! What the tasks of one side add to each measure.

use std::collections::HashMap;

use super::resample::{Cell, Units};
use crate::evaluate::{Names, Stream};
use crate::measures::{ALL, Subject};
use crate::session::{Result, Session};

/// Pairs of agents that are compared by themselves: those with the most transfers. Names come from traces, so their number has
/// no bound of its own.
const MAX_PAIRS: usize = 100;

/// Sender and receiver; `None`: unnamed.
pub type Pair = (Option<String>, Option<String>);

/// What a task adds to a measure: itself, or by its transfers of one pair.
#[derive(Debug, Clone, Copy)]
struct Entry {
    task: usize,
    /// Place in [`ALL`].
    measure: usize,
    /// Place in [`Sample::pairs`].
    pair: Option<usize>,
    n: i64,
    d: i64,
}

/// The whole tasks of one side.
#[derive(Debug, Clone, Default)]
pub(super) struct Sample {
    /// Ids, in order, so that resamples are the same whatever order files have.
    pub(super) tasks: Vec<String>,
    /// Transfers that count in rates.
    pub(super) handoffs: i64,
    /// Pairs, and the transfers of each.
    pairs: Vec<(Pair, i64)>,
    /// By task, measure and pair, each once.
    entries: Vec<Entry>,
}

impl Sample {
    /// Reads some measures of a side, by their places in [`ALL`]; with a service, only its tasks and transfers.
    pub(super) async fn read(session: &Session, service: Option<&str>, measures: &[usize]) -> Result<Self> {
        let mut out = Self::default();
        let mut rows = Stream::new(session, "SELECT task_id, service FROM tasks WHERE NOT partial").await?;
        while rows.advance().await? {
            let r = rows.row();
            if service.is_none_or(|s| r.text("service") == Some(s)) {
                out.tasks.extend(r.text("task_id").map(str::to_owned));
            }
        }
        out.tasks.sort();
        let tasks: HashMap<&str, usize> =
            out.tasks.iter().enumerate().map(|(i, t)| (t.as_str(), i)).collect();
        // Task and pair of each transfer.
        let mut handoffs: HashMap<String, (usize, usize)> = HashMap::new();
        let mut names = Names::default();
        let sql = "SELECT handoff_id, task_id, from_agent, to_agent FROM handoffs WHERE rated";
        let mut rows = Stream::new(session, sql).await?;
        while rows.advance().await? {
            let r = rows.row();
            let Some(task) = r.text("task_id").and_then(|t| tasks.get(t)) else { continue };
            let (from, to) = (r.text("from_agent"), r.text("to_agent"));
            // Names may hold anything; in this form no two pairs look the same.
            let pair = names.place(&format!("{from:?} {to:?}"));
            if pair == out.pairs.len() {
                out.pairs.push(((from.map(str::to_owned), to.map(str::to_owned)), 0));
            }
            out.pairs[pair].1 += 1;
            out.handoffs += 1;
            handoffs.insert(r.text("handoff_id").unwrap_or_default().to_owned(), (*task, pair));
        }
        for measure in measures.iter().copied() {
            let m = &ALL[measure];
            let mut rows = Stream::new(session, m.sql).await?;
            while rows.advance().await? {
                let r = rows.row();
                if r.flag("rated") != Some(true) || r.text("unknown").is_some() {
                    continue;
                }
                let id = r.text("id").unwrap_or_default();
                let found = match m.subject {
                    Subject::Handoff => handoffs.get(id).map(|(t, p)| (*t, Some(*p))),
                    Subject::Task => tasks.get(id).map(|t| (*t, None)),
                };
                let (Some((task, pair)), Some(n), Some(d)) =
                    (found, r.int("numerator"), r.int("denominator"))
                else {
                    continue;
                };
                if d > 0 {
                    out.entries.push(Entry { task, measure, pair, n, d });
                }
            }
        }
        let key = |e: &Entry| (e.task, e.measure, e.pair);
        out.entries.sort_unstable_by_key(key);
        out.entries.dedup_by(|later, first| {
            let same = key(later) == key(first);
            if same {
                (first.n, first.d) = (first.n + later.n, first.d + later.d);
            }
            same
        });
        Ok(out)
    }
}

/// What is compared: some measures, each over everything and, where its rows are transfers, by pair.
#[derive(Debug, Default)]
pub(super) struct Columns {
    /// Place in [`ALL`], and the pair.
    pub(super) all: Vec<(usize, Option<Pair>)>,
    /// Where a measure begins, by its place in [`ALL`].
    first: Vec<Option<usize>>,
    pairs: Vec<Pair>,
    /// Pairs that are not compared by themselves.
    pub(super) left_out: usize,
}

impl Columns {
    /// Of two sides.
    pub(super) fn new(sides: &[Sample; 2], measures: &[usize]) -> Self {
        let mut counts: HashMap<&Pair, i64> = HashMap::new();
        sides.iter().flat_map(|s| &s.pairs).for_each(|(p, n)| *counts.entry(p).or_default() += n);
        let mut counts: Vec<(&Pair, i64)> = counts.into_iter().collect();
        counts.sort_by(|x, y| (y.1, x.0).cmp(&(x.1, y.0)));
        let mut pairs: Vec<Pair> = counts.iter().take(MAX_PAIRS).map(|(p, _)| (*p).clone()).collect();
        pairs.sort();
        let mut out = Self {
            left_out: counts.len() - pairs.len(),
            first: vec![None; ALL.len()],
            pairs,
            ..Self::default()
        };
        for m in measures {
            out.first[*m] = Some(out.all.len());
            out.all.push((*m, None));
            if ALL[*m].subject == Subject::Handoff {
                out.all.extend(out.pairs.iter().map(|p| (*m, Some(p.clone()))));
            }
        }
        out
    }

    /// What some tasks of a side add to each column.
    pub(super) fn units(&self, sample: &Sample, tasks: &[usize]) -> Units {
        let pairs: Vec<Option<usize>> =
            sample.pairs.iter().map(|(p, _)| self.pairs.binary_search(p).ok()).collect();
        let mut out = Units::default();
        for t in tasks {
            let from = sample.entries.partition_point(|e| e.task < *t);
            let own = sample.entries[from..].iter().take_while(|e| e.task == *t);
            let mut cells: Vec<Cell> = Vec::new();
            for e in own {
                let Some(first) = self.first[e.measure] else { continue };
                let (n, d) = (e.n as f64, e.d as f64);
                match cells.iter_mut().rev().find(|c| c.column == first) {
                    Some(c) => (c.n, c.d) = (c.n + n, c.d + d),
                    None => cells.push(Cell { column: first, n, d }),
                }
                let pair = e.pair.and_then(|p| pairs[p]);
                cells.extend(pair.map(|p| Cell { column: first + 1 + p, n, d }));
            }
            cells.sort_by_key(|c| c.column);
            out.push(cells);
        }
        out
    }
}
