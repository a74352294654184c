//! The statistics of a comparison: intervals by a bootstrap over tasks, and a permutation test that holds its level over all
//! comparisons together.
//!
//! A rate is the sum of numerators by the sum of denominators, so a resample draws whole tasks and sums anew: the transfers of one
//! task depend on each other, and drawing them one by one would make intervals too narrow.
//!
//! The interval alone decides nothing. Of a hundred intervals of 95 % some five miss the truth, and where a fault is rare (none in
//! 20 tasks here, 40 in 2000 there) the bootstrap of the 20 knows only zeros and is far too sure. So a verdict rests on a permutation
//! test: if nothing changed, it does not matter which side a task stands on, and relabelled tasks say how large a difference
//! chance makes. Each relabelling gives the largest statistic of all comparisons; a difference counts where that largest one rarely
//! reaches it. This holds the chance of even one false alarm among all comparisons at the level (Westfall and Young 1993), also where
//! measures depend on each other, which Bonferroni pays for, and also with few tasks.

#[cfg(test)]
mod tests;

/// Resamples of the bootstrap, and relabellings of the test. With the data's own one they are 2000, so that a level is met exactly.
pub const RESAMPLES: usize = 1999;

/// Units of one side that are drawn from. Where there are more tasks, some of them, chosen at random, make one unit: the time
/// stays bounded, and the standard error of a difference is then itself known to about 1.6 %.
const MAX_UNITS: usize = 2048;

/// Everything random starts here, so that the same data give the same answer.
const SEED: u64 = 0x0062_6174_6f6e;

/// What a task adds to one comparison.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cell {
    /// Place of the comparison.
    pub column: usize,
    /// Numerator.
    pub n: f64,
    /// Denominator, above 0.
    pub d: f64,
}

/// Tasks, each with what it adds.
#[derive(Debug, Clone, Default)]
pub struct Units {
    ends: Vec<usize>,
    cells: Vec<Cell>,
}

impl Units {
    /// Adds a task.
    pub fn push(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.cells.extend(cells);
        self.ends.push(self.cells.len());
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// True without any.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// One of them.
    pub fn get(&self, i: usize) -> &[Cell] {
        let from = if i == 0 { 0 } else { self.ends[i - 1] };
        &self.cells[from..self.ends[i]]
    }

    /// Numerator and denominator of each column.
    fn sums(&self, columns: usize) -> Vec<(f64, f64)> {
        let mut out = vec![(0.0, 0.0); columns];
        for c in &self.cells {
            out[c.column].0 += c.n;
            out[c.column].1 += c.d;
        }
        out
    }

    /// The same, with the tasks of `order` in groups of `size` that count as one.
    fn merged(&self, order: &[usize], size: usize, columns: usize) -> Self {
        let mut out = Self::default();
        let mut sums = vec![(0.0, 0.0); columns];
        for group in order.chunks(size) {
            let mut used: Vec<usize> = Vec::new();
            for c in group.iter().flat_map(|i| self.get(*i)) {
                if sums[c.column].1 == 0.0 {
                    used.push(c.column);
                }
                sums[c.column].0 += c.n;
                sums[c.column].1 += c.d;
            }
            out.push(used.into_iter().map(|column| {
                let (n, d) = std::mem::take(&mut sums[column]);
                Cell { column, n, d }
            }));
        }
        out
    }
}

/// Two sides.
#[derive(Debug, Clone)]
pub struct Sides {
    /// The one compared with.
    pub a: Units,
    /// The other.
    pub b: Units,
    /// Task `i` of one belongs to task `i` of the other.
    pub paired: bool,
}

impl Sides {
    /// Only some columns, which keep their places.
    pub fn only(&self, columns: &[bool]) -> Self {
        let some = |u: &Units| {
            let mut out = Units::default();
            (0..u.len()).for_each(|i| out.push(u.get(i).iter().filter(|c| columns[c.column]).copied()));
            out
        };
        Self { a: some(&self.a), b: some(&self.b), paired: self.paired }
    }

    /// With so many tasks of each side in one unit.
    fn merged(&self, [a, b]: [usize; 2], columns: usize) -> std::borrow::Cow<'_, Self> {
        if a == 1 && b == 1 {
            return std::borrow::Cow::Borrowed(self);
        }
        // Both sides of a pair are in the same order.
        let shuffled = |u: &Units| {
            let mut order: Vec<usize> = (0..u.len()).collect();
            let mut rng = Rng::new(0, u64::MAX);
            for i in (1..order.len()).rev() {
                order.swap(i, rng.below(i + 1));
            }
            order
        };
        std::borrow::Cow::Owned(Self {
            a: self.a.merged(&shuffled(&self.a), a, columns),
            b: self.b.merged(&shuffled(&self.b), b, columns),
            paired: self.paired,
        })
    }
}

/// The difference of two rates; `None` where one has no denominator.
fn difference(a: (f64, f64), b: (f64, f64)) -> Option<f64> {
    (a.1 > 0.0 && b.1 > 0.0).then(|| b.0 / b.1 - a.0 / a.1)
}

/// The 95 % interval of each column's difference, b less a: percentiles of the bootstrap over tasks.
pub fn intervals(sides: &Sides, columns: usize) -> Vec<Option<[f64; 2]>> {
    let size = |u: &Units| u.len().div_ceil(MAX_UNITS).max(1);
    let sides = sides.merged([size(&sides.a), size(&sides.b)], columns);
    let (a, b) = (&sides.a, &sides.b);
    if a.is_empty() || b.is_empty() {
        return vec![None; columns];
    }
    let resampled = spread(|r| {
        let mut rng = Rng::new(1, r);
        let (mut x, mut y) = (vec![(0.0, 0.0); columns], vec![(0.0, 0.0); columns]);
        let add = |sums: &mut Vec<(f64, f64)>, cells: &[Cell]| {
            for c in cells {
                sums[c.column].0 += c.n;
                sums[c.column].1 += c.d;
            }
        };
        for _ in 0..a.len() {
            let i = rng.below(a.len());
            add(&mut x, a.get(i));
            if sides.paired {
                add(&mut y, b.get(i));
            }
        }
        if !sides.paired {
            (0..b.len()).for_each(|_| add(&mut y, b.get(rng.below(b.len()))));
        }
        x.into_iter().zip(y).map(|(x, y)| difference(x, y).unwrap_or(f64::NAN)).collect()
    });
    (0..columns)
        .map(|c| {
            let mut found: Vec<f64> = resampled.iter().map(|r| r[c]).filter(|d| !d.is_nan()).collect();
            found.sort_by(f64::total_cmp);
            Some([quantile(&found, 0.025)?, quantile(&found, 0.975)?])
        })
        .collect()
}

/// A quantile of sorted values, linear between them.
fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let at = share * sorted.len().checked_sub(1)? as f64;
    let (low, high) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    Some(low + (high - low) * at.fract())
}

/// What the test says of one column.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Chance {
    /// How often chance alone makes a difference like this in this column.
    pub p: f64,
    /// How often chance alone makes one like this in any tested column.
    pub adjusted: f64,
}

/// The permutation test of the columns in `family`; `None` for others. Both ways count.
pub fn chances(sides: &Sides, columns: usize, family: &[bool]) -> Vec<Option<Chance>> {
    // The same number of tasks in a unit of both sides, so that units may be exchanged.
    let size = sides.a.len().min(sides.b.len()).div_ceil(MAX_UNITS).max(1);
    let sides = sides.merged([size, size], columns);
    let (seen, relabelled) = if sides.paired {
        let pairs = Pairs::new(&sides, columns);
        (pairs.statistics(None), spread(|r| pairs.statistics(Some(Rng::new(2, r)))))
    } else {
        let pool = Pool::new(&sides, columns);
        (pool.statistics(None), spread(|r| pool.statistics(Some(Rng::new(2, r)))))
    };
    // The largest of the family, for each relabelling.
    let largest: Vec<f64> = relabelled
        .iter()
        .map(|t| t.iter().zip(family).filter(|(_, f)| **f).fold(0.0, |m: f64, (t, _)| m.max(*t)))
        .collect();
    seen.iter()
        .enumerate()
        .map(|(c, t)| {
            // Equal statistics may differ in their last digits, by the order of summing.
            let least = t * (1.0 - 1e-9);
            let share = |reached: usize| (reached + 1) as f64 / (RESAMPLES + 1) as f64;
            family[c].then(|| Chance {
                p: share(relabelled.iter().filter(|r| r[c] >= least).count()),
                adjusted: share(largest.iter().filter(|m| **m >= least).count()),
            })
        })
        .collect()
}

/// By how much tasks miss the rate of both sides together: what a relabelling moves.
fn residuals(sides: &Sides, columns: usize) -> Vec<f64> {
    let (a, b) = (sides.a.sums(columns), sides.b.sums(columns));
    a.iter().zip(b).map(|(a, b)| if a.1 + b.1 > 0.0 { (a.0 + b.0) / (a.1 + b.1) } else { 0.0 }).collect()
}

/// Tasks in pairs: a relabelling exchanges the two of some pairs.
struct Pairs {
    /// By how much the second of a pair is above the first, as `n`.
    units: Units,
    /// Root of the sum of squares, by column. No exchange changes it.
    spread: Vec<f64>,
}

impl Pairs {
    fn new(sides: &Sides, columns: usize) -> Self {
        let rate = residuals(sides, columns);
        let mut out = Self { units: Units::default(), spread: vec![0.0; columns] };
        for i in 0..sides.a.len() {
            let mut above = std::collections::BTreeMap::new();
            let (a, b) = (sides.a.get(i), sides.b.get(i));
            for (c, sign) in a.iter().map(|c| (c, -1.0)).chain(b.iter().map(|c| (c, 1.0))) {
                *above.entry(c.column).or_default() += sign * (c.n - rate[c.column] * c.d);
            }
            above.iter().for_each(|(c, z): (&usize, &f64)| out.spread[*c] += z * z);
            out.units.push(above.into_iter().map(|(column, n)| Cell { column, n, d: 1.0 }));
        }
        out.spread.iter_mut().for_each(|s| *s = s.sqrt());
        out
    }

    /// Of the pairs as they are, or with some exchanged.
    fn statistics(&self, mut rng: Option<Rng>) -> Vec<f64> {
        let mut sums = vec![0.0; self.spread.len()];
        for i in 0..self.units.len() {
            let sign = if rng.as_mut().is_some_and(|r| r.below(2) == 1) { -1.0 } else { 1.0 };
            for c in self.units.get(i) {
                sums[c.column] += sign * c.n;
            }
        }
        sums.iter().zip(&self.spread).map(|(z, s)| if *s > 0.0 { z.abs() / s } else { 0.0 }).collect()
    }
}

/// Sums over units of one side, for one column.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    units: f64,
    d: f64,
    /// Residuals, and their squares.
    e: f64,
    e2: f64,
}

impl Sum {
    fn less(self, o: Self) -> Self {
        Self { units: self.units - o.units, d: self.d - o.d, e: self.e - o.e, e2: self.e2 - o.e2 }
    }

    /// Variance of the rate: its own or, where that is larger, the one that the variance of both sides gives it. A side without a
    /// single fault has no variance of its own, and one fault in few tasks is a large difference with a large variance.
    fn variance(self, both: Self) -> f64 {
        let own = (self.e2 - self.e * self.e / self.units.max(1.0)) / (self.d * self.d);
        own.max(both.e2 / both.d / self.d)
    }
}

/// Tasks of two sides that have nothing to do with each other: a relabelling draws other ones for the smaller side.
struct Pool {
    /// All; `n` is the residual.
    units: Units,
    all: Vec<Sum>,
    /// The smaller side, as places from its first.
    first: usize,
    len: usize,
}

impl Pool {
    fn new(sides: &Sides, columns: usize) -> Self {
        let rate = residuals(sides, columns);
        let (a, b) = (&sides.a, &sides.b);
        let a_is_smaller = a.len() <= b.len();
        let mut out = Self {
            units: Units::default(),
            all: Vec::new(),
            first: if a_is_smaller { 0 } else { a.len() },
            len: a.len().min(b.len()),
        };
        for cells in (0..a.len()).map(|i| a.get(i)).chain((0..b.len()).map(|i| b.get(i))) {
            out.units.push(cells.iter().map(|c| Cell { n: c.n - rate[c.column] * c.d, ..*c }));
        }
        let mut all = vec![Sum::default(); columns];
        (0..out.units.len()).for_each(|i| out.add(&mut all, i));
        out.all = all;
        out
    }

    fn add(&self, sums: &mut [Sum], unit: usize) {
        for c in self.units.get(unit) {
            let s = &mut sums[c.column];
            s.units += 1.0;
            s.d += c.d;
            s.e += c.n;
            s.e2 += c.n * c.n;
        }
    }

    /// Of the sides as they are, or with the smaller one drawn anew.
    fn statistics(&self, rng: Option<Rng>) -> Vec<f64> {
        let mut small = vec![Sum::default(); self.all.len()];
        match rng {
            None => (self.first..self.first + self.len).for_each(|i| self.add(&mut small, i)),
            Some(mut rng) => {
                drawn(self.units.len(), self.len, &mut rng).for_each(|i| self.add(&mut small, i))
            }
        }
        small.iter().zip(&self.all).map(|(s, all)| Self::statistic(*s, *all)).collect()
    }

    fn statistic(small: Sum, all: Sum) -> f64 {
        let large = all.less(small);
        if small.units < 1.0 || large.units < 1.0 {
            return 0.0;
        }
        let variance = small.variance(all) + large.variance(all);
        if variance > 0.0 { (small.e / small.d - large.e / large.d).abs() / variance.sqrt() } else { 0.0 }
    }
}

/// So many different places below `of`, at random (Floyd's method).
fn drawn(of: usize, many: usize, rng: &mut Rng) -> impl Iterator<Item = usize> {
    let mut taken = std::collections::BTreeSet::new();
    for last in of - many..of {
        let i = rng.below(last + 1);
        taken.insert(if taken.contains(&i) { last } else { i });
    }
    taken.into_iter()
}

/// Does the resamples on all processors. Each has random numbers of its own, so the answer is the same on any machine.
fn spread(one: impl Fn(u64) -> Vec<f64> + Sync) -> Vec<Vec<f64>> {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut out: Vec<Vec<f64>> = vec![Vec::new(); RESAMPLES];
    std::thread::scope(|s| {
        for (t, chunk) in out.chunks_mut(RESAMPLES.div_ceil(threads)).enumerate() {
            let one = &one;
            s.spawn(move || {
                for (i, place) in chunk.iter_mut().enumerate() {
                    *place = one((t * RESAMPLES.div_ceil(threads) + i) as u64);
                }
            });
        }
    });
    out
}

/// SplitMix64 (Steele, Lea and Flood 2014): a few lines that stay the same, so that answers do too.
#[derive(Debug, Clone)]
struct Rng(u64);

impl Rng {
    /// Random numbers of their own for each purpose and resample.
    fn new(purpose: u64, resample: u64) -> Self {
        let mut seed = Self(SEED ^ purpose.rotate_left(56));
        let first = seed.next();
        Self(first ^ Self(resample).next())
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `n`.
    fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }
}
