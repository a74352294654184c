//! Two sets of runs compared: by how much each measure differs, and whether that is more than chance. METRICS section 6.
//!
//! Where both sides hold the same tasks (a suite of scenarios that names its tasks), each task is compared with itself. Otherwise
//! tasks have nothing to do with each other. In both cases a measure of transfers is compared over everything and for
//! each pair of agents by itself. [`resample`] says how chance is told.

pub mod resample;
mod sample;

use crate::measures::{ALL, Direction, Measure};
use crate::session::{Result, Session};
use resample::Sides;
pub use sample::Pair;
use sample::{Columns, Sample};

/// Tasks that a measure must be known of, on each side, before a difference is judged.
pub const MIN_TASKS: usize = 10;

/// The chance of even one false alarm in a comparison where nothing changed, where none is stated.
pub const LEVEL: f64 = 0.01;

/// The levels that the number of relabellings can tell.
pub const LEVELS: std::ops::RangeInclusive<f64> = 0.002..=0.2;

/// Tasks that are listed as those that moved most.
const MOVED: usize = 5;

/// One side.
#[derive(Clone, Copy)]
pub struct Side<'a> {
    /// Where its rows are.
    pub session: &'a Session,
    /// Only tasks and transfers of this service.
    pub service: Option<&'a str>,
}

/// What a difference says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Changed for the better, beyond chance.
    Better,
    /// Changed for the worse, beyond chance.
    Worse,
    /// Chance may have made it.
    NoEvidence,
    /// One side has too few tasks.
    NotEnoughData,
    /// The measure has no good direction.
    NoDirection,
}

impl Verdict {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Worse => "worse",
            Self::NoEvidence => "no evidence",
            Self::NotEnoughData => "not enough data",
            Self::NoDirection => "no direction",
        }
    }
}

/// A rate of one side.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// Sum of numerators, scaled.
    pub numerator: f64,
    /// Sum of denominators.
    pub denominator: i64,
    /// Tasks that add to it.
    pub tasks: usize,
}

impl Rate {
    /// `None` without a denominator.
    pub fn value(&self) -> Option<f64> {
        (self.denominator > 0).then(|| self.numerator / self.denominator as f64)
    }
}

/// A task that makes up a part of a difference.
#[derive(Debug, Clone, PartialEq)]
pub struct Moved {
    /// The task.
    pub task_id: String,
    /// Its own rate on the first side; `None`: it is not there, or not known.
    pub a: Option<f64>,
    /// On the second.
    pub b: Option<f64>,
    /// Its part of the difference. All parts together are the difference.
    pub part: f64,
}

/// One measure, over everything or for one pair of agents.
#[derive(Debug, Clone)]
pub struct Change {
    /// The measure.
    pub measure: &'static Measure,
    /// The pair; `None`: everything.
    pub pair: Option<Pair>,
    /// First side.
    pub a: Rate,
    /// Second side.
    pub b: Rate,
    /// Second less first; `None` where one is not known.
    pub difference: Option<f64>,
    /// Its 95 % interval; `None` without enough data.
    pub interval: Option<[f64; 2]>,
    /// How often chance makes such a difference in this comparison.
    pub p: Option<f64>,
    /// How often chance makes one like it in any of the comparisons.
    pub adjusted_p: Option<f64>,
    /// What it says.
    pub verdict: Verdict,
    /// The tasks that make up most of the difference, in its direction.
    pub moved: Vec<Moved>,
}

/// A comparison.
#[derive(Debug, Clone)]
pub struct Comparison {
    /// Each task is compared with itself.
    pub paired: bool,
    /// Tasks of each side that are compared.
    pub tasks: [usize; 2],
    /// Tasks of each side that are not, since the other side does not have them.
    pub alone: [usize; 2],
    /// Transfers of each side that count in rates.
    pub handoffs: [i64; 2],
    /// Pairs of agents that are not compared by themselves, having the fewest transfers.
    pub pairs_left_out: usize,
    /// How many differences were tested together.
    pub tested: usize,
    /// The chance of even one false alarm among them.
    pub level: f64,
    /// All of them: measures in their order, each over everything and then by pair.
    pub changes: Vec<Change>,
}

/// Compares two sides in some measures.
///
/// # Errors
/// The engine's.
pub async fn compare(
    a: Side<'_>,
    b: Side<'_>,
    measures: &[&'static Measure],
    level: f64,
) -> Result<Comparison> {
    let places: Vec<usize> =
        (0..ALL.len()).filter(|i| measures.iter().any(|m| m.name == ALL[*i].name)).collect();
    let samples = [
        Sample::read(a.session, a.service, &places).await?,
        Sample::read(b.session, b.service, &places).await?,
    ];
    // Here it only calculates, for seconds where there is much.
    tokio::task::spawn_blocking(move || judge(&samples, &places, level))
        .await
        .map_err(|_| crate::session::Error::Worker)
}

/// Which tasks are compared: their places on both sides, and whether they belong together.
fn design([a, b]: &[Sample; 2]) -> (bool, [Vec<usize>; 2]) {
    // Ids are in order.
    let other = |id: &String| b.tasks.binary_search(id).ok();
    let shared: Vec<(usize, usize)> =
        a.tasks.iter().enumerate().filter_map(|(i, t)| other(t).map(|j| (i, j))).collect();
    // A few tasks that both have by accident must not make the others be left out.
    if !shared.is_empty() && shared.len() * 2 >= a.tasks.len().max(b.tasks.len()) {
        let (x, y) = shared.into_iter().unzip();
        return (true, [x, y]);
    }
    (false, [(0..a.tasks.len()).collect(), (0..b.tasks.len()).collect()])
}

fn judge(samples: &[Sample; 2], measures: &[usize], level: f64) -> Comparison {
    let (paired, tasks) = design(samples);
    let columns = Columns::new(samples, measures);
    let sides =
        Sides { a: columns.units(&samples[0], &tasks[0]), b: columns.units(&samples[1], &tasks[1]), paired };
    let rates = [rates(&sides.a, &columns), rates(&sides.b, &columns)];
    let enough: Vec<bool> = (0..columns.all.len())
        .map(|c| rates[0][c].tasks >= MIN_TASKS && rates[1][c].tasks >= MIN_TASKS)
        .collect();
    let directed = |c: usize| ALL[columns.all[c].0].direction != Direction::Neutral;
    let family: Vec<bool> = enough.iter().enumerate().map(|(c, e)| *e && directed(c)).collect();
    let judged = sides.only(&enough);
    let intervals = resample::intervals(&judged, columns.all.len());
    let chances = resample::chances(&judged, columns.all.len(), &family);
    let mut changes: Vec<Change> = columns
        .all
        .iter()
        .enumerate()
        .map(|(c, (m, pair))| {
            let measure = &ALL[*m];
            let [a, b] = [rates[0][c], rates[1][c]];
            let scaled = |v: f64| v * measure.scale;
            let difference = a.value().zip(b.value()).map(|(a, b)| b - a);
            let interval = intervals[c].filter(|_| enough[c]).map(|i| i.map(scaled));
            let adjusted_p = chances[c].map(|p| p.adjusted);
            let verdict = verdict(measure, enough[c], difference, interval, adjusted_p, level);
            let (p, pair, moved) = (chances[c].map(|p| p.p), pair.clone(), Vec::new());
            Change { measure, pair, a, b, difference, interval, p, adjusted_p, verdict, moved }
        })
        .collect();
    let ids: Vec<&str> = tasks[1].iter().map(|t| samples[1].tasks[*t].as_str()).collect();
    for (c, change) in changes.iter_mut().enumerate() {
        // Of many pairs, only for those that say something.
        if change.pair.is_none() || matches!(change.verdict, Verdict::Better | Verdict::Worse) {
            change.moved = moved(&sides, c, change, &ids);
        }
    }
    Comparison {
        paired,
        tasks: [tasks[0].len(), tasks[1].len()],
        alone: [0, 1].map(|i| samples[i].tasks.len() - tasks[i].len()),
        handoffs: [samples[0].handoffs, samples[1].handoffs],
        pairs_left_out: columns.left_out,
        tested: family.iter().filter(|f| **f).count(),
        level,
        changes,
    }
}

fn rates(units: &resample::Units, columns: &Columns) -> Vec<Rate> {
    let mut out = vec![Rate { numerator: 0.0, denominator: 0, tasks: 0 }; columns.all.len()];
    for c in (0..units.len()).flat_map(|i| units.get(i)) {
        let r = &mut out[c.column];
        r.numerator += c.n * ALL[columns.all[c.column].0].scale;
        r.denominator += c.d as i64;
        r.tasks += 1;
    }
    out
}

fn verdict(
    measure: &Measure,
    enough: bool,
    difference: Option<f64>,
    interval: Option<[f64; 2]>,
    adjusted_p: Option<f64>,
    level: f64,
) -> Verdict {
    let up = match measure.direction {
        _ if !enough => return Verdict::NotEnoughData,
        Direction::Neutral => return Verdict::NoDirection,
        Direction::Up => true,
        Direction::Down => false,
    };
    let without_zero = interval.is_some_and(|[low, high]| low > 0.0 || high < 0.0);
    let beyond_chance = adjusted_p.is_some_and(|p| p <= level);
    match difference {
        Some(d) if without_zero && beyond_chance && (d > 0.0) == up => Verdict::Better,
        Some(_) if without_zero && beyond_chance => Verdict::Worse,
        _ => Verdict::NoEvidence,
    }
}

/// What tasks add to the difference: how far each is from the first side's rate on the second side, less, where tasks are
/// compared with themselves, the same on the first side.
fn moved(sides: &Sides, column: usize, change: &Change, ids: &[&str]) -> Vec<Moved> {
    let (Some(rate), Some(difference)) = (change.a.value(), change.difference) else { return Vec::new() };
    let own = |units: &resample::Units, i: usize| {
        let cells = units.get(i);
        let at = cells.binary_search_by_key(&column, |c| c.column).ok()?;
        Some((cells[at].n * change.measure.scale, cells[at].d))
    };
    let first = |i| if sides.paired { own(&sides.a, i) } else { None };
    let far = |cell: Option<(f64, f64)>, side: &Rate| {
        cell.map_or(0.0, |(n, d)| (n - rate * d) / side.denominator as f64)
    };
    let mut parts: Vec<(f64, usize)> = (0..ids.len())
        .map(|i| (far(own(&sides.b, i), &change.b) - far(first(i), &change.a), i))
        .filter(|(part, _)| part * difference > 0.0)
        .collect();
    parts.sort_by(|x, y| y.0.abs().total_cmp(&x.0.abs()).then(x.1.cmp(&y.1)));
    parts.truncate(MOVED);
    let value = |cell: Option<(f64, f64)>| cell.map(|(n, d)| n / d);
    parts
        .into_iter()
        .map(|(part, i)| Moved {
            task_id: ids[i].to_owned(),
            a: value(first(i)),
            b: value(own(&sides.b, i)),
            part,
        })
        .collect()
}
