//! What is computed of the measures once and kept: sums over few minutes, a service and a pair of agents (`measure_sums`), from which
//! rates of many transfers come without asking each again, and how bad each transfer is (`handoff_scores`).
//!
//! They are kept with the tables, a file for each unit of them, so that a refresh computes only what is new.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StringViewArray};
use datafusion::arrow::compute::{cast, concat};
use datafusion::arrow::datatypes::{DataType, Int64Type, TimeUnit, TimestampNanosecondType};
use datafusion::datasource::MemTable;
use datafusion::prelude::SessionContext;
use foldhash::HashMap;
use futures::StreamExt;

use crate::evaluate::Names;
use crate::group::scan;
use crate::measures::{ALL, Subject};
use crate::session::Result;
use crate::tables::{self, HandoffScoreRow, HandoffScores, MeasureSumRow, MeasureSums};

/// The transfers themselves, counted as if they were a measure.
pub const HANDOFFS: &str = "handoffs";
/// Length of the times that sums are of.
const STEP: i64 = 300_000_000_000;
/// Windows of whole hours can be told apart in the sums.
pub(crate) const HOUR: i64 = 3_600_000_000_000;

/// What makes a transfer bad, and how much: a measure, whether its shortfall or its count is meant, and the weight.
const WORST: [(&str, bool, i64); 6] = [
    ("constraint_retention", true, 5),
    ("leaks", false, 5),
    ("lost_tool_results", false, 3),
    ("redundant_tool_calls", false, 2),
    ("known_failure_retries", false, 2),
    ("retriage", false, 1),
];
/// That of a transfer that failed.
const FAILED: i64 = 4;

/// What a sum is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Cell {
    /// Place of the unit in which the tables hold it.
    unit: usize,
    time: Option<i64>,
    last_activity: Option<i64>,
    service: Option<usize>,
    from: Option<usize>,
    to: Option<usize>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    subjects: i64,
    numerator: i64,
    denominator: i64,
}

/// Transfers or tasks, each with the place of its cell.
#[derive(Default)]
struct Subjects {
    ids: Vec<StringViewArray>,
    cells: Vec<usize>,
    /// Of transfers: how bad each is before its measures are asked, and its last activity.
    scores: Vec<(i64, Option<i64>)>,
}

/// Finds the place of a subject by its id.
struct Finder<'a> {
    ids: &'a StringViewArray,
    /// Most measures give their rows in the order of the table.
    next: usize,
    places: Option<HashMap<&'a str, usize>>,
}

impl Finder<'_> {
    fn place(&mut self, id: &str) -> Option<usize> {
        let here = self.next;
        if here >= self.ids.len() || self.ids.value(here) != id {
            let ids = self.ids;
            let places =
                self.places.get_or_insert_with(|| (0..ids.len()).map(|i| (ids.value(i), i)).collect());
            self.next = *places.get(id)?;
        }
        self.next += 1;
        Some(self.next - 1)
    }
}

/// Columns of transfers, and of tasks, by which sums are told apart.
const OF_HANDOFFS: [&str; 7] =
    ["handoff_id", "time", "last_activity", "service", "from_agent", "to_agent", "outcome"];
const OF_TASKS: [&str; 3] = ["task_id", "last_activity", "service"];

/// All that is summed, and into which cell.
#[derive(Default)]
pub(crate) struct Sources {
    names: Names,
    places: HashMap<Cell, usize>,
    cells: Vec<Cell>,
    handoffs: Subjects,
    tasks: Subjects,
    transfers: Sums,
}

impl Sources {
    /// Adds the transfers and tasks of a unit.
    ///
    /// # Errors
    /// Where its files cannot be read.
    pub(crate) fn add_unit(&mut self, unit: usize, handoffs: &Path, tasks: &Path) -> Result<()> {
        for (path, columns) in [(handoffs, &OF_HANDOFFS[..]), (tasks, &OF_TASKS[..])] {
            let mut failed = None;
            scan(path, columns, |batch| failed = failed.take().or(self.add(unit, batch).err()))?;
            failed.map_or(Ok(()), Err)?;
        }
        Ok(())
    }

    fn add(&mut self, unit: usize, batch: &RecordBatch) -> Result<()> {
        let column = |name: &str, t: &DataType| batch.column_by_name(name).map(|c| cast(c, t)).transpose();
        let text = |name| column(name, &DataType::Utf8View);
        let instant = DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()));
        let time = |name| column(name, &instant);
        let [handoff, task, service] = ["handoff_id", "task_id", "service"].map(text);
        let [from, to, outcome] = ["from_agent", "to_agent", "outcome"].map(text);
        let (handoff, task, service, from, to, outcome) = (handoff?, task?, service?, from?, to?, outcome?);
        let last = time("last_activity")?;
        let at = time("time")?.or_else(|| last.clone());
        let floor = |c: &Option<ArrayRef>, i: usize, step: i64| {
            let c = c.as_ref().filter(|c| c.is_valid(i))?;
            Some(c.as_primitive::<TimestampNanosecondType>().value(i).div_euclid(step) * step)
        };
        for i in 0..batch.num_rows() {
            let mut name = |c: &Option<ArrayRef>| {
                let c = c.as_ref().filter(|c| c.is_valid(i))?;
                Some(self.names.place(c.as_string_view().value(i)))
            };
            let cell = Cell {
                unit,
                service: name(&service),
                from: name(&from),
                to: name(&to),
                time: floor(&at, i, STEP),
                last_activity: floor(&last, i, HOUR),
            };
            let place = *self.places.entry(cell).or_insert_with(|| {
                self.cells.push(cell);
                self.cells.len() - 1
            });
            match &outcome {
                Some(outcome) => {
                    let is = |o: &str| outcome.is_valid(i) && outcome.as_string_view().value(i) == o;
                    self.transfers.known(place, i64::from(is("accepted")), 1);
                    self.handoffs.cells.push(place);
                    self.handoffs.scores.push((if is("failed") { FAILED } else { 0 }, floor(&last, i, 1)));
                }
                None => self.tasks.cells.push(place),
            }
        }
        let (subjects, ids) = match handoff {
            Some(ids) => (&mut self.handoffs, Some(ids)),
            None => (&mut self.tasks, task),
        };
        subjects.ids.extend(ids.map(|ids| ids.as_string_view().clone()));
        Ok(())
    }
}

/// Sums of one measure: what is known by cell, and what is not by cell and reason.
#[derive(Default)]
struct Sums {
    known: Vec<Option<Sum>>,
    unknown: BTreeMap<(usize, usize), i64>,
}

impl Sums {
    fn known(&mut self, cell: usize, numerator: i64, denominator: i64) {
        if self.known.len() <= cell {
            self.known.resize(cell + 1, None);
        }
        let sum = self.known[cell].get_or_insert_default();
        sum.subjects += 1;
        sum.numerator = sum.numerator.saturating_add(numerator);
        sum.denominator = sum.denominator.saturating_add(denominator);
    }
}

/// What is computed of one unit.
#[derive(Debug, Default, Clone)]
pub(crate) struct Computed {
    /// Rows of `measure_sums`, a batch for each measure that has some.
    pub(crate) sums: Vec<RecordBatch>,
    /// Rows of `handoff_scores`.
    pub(crate) scores: Vec<RecordBatch>,
}

/// Computes over the tables of a context, which hold what the sources hold, for each unit.
///
/// # Errors
/// The engine's.
pub(crate) async fn compute(ctx: &SessionContext, sources: &Sources, units: usize) -> Result<Vec<Computed>> {
    let joined = [joined(&sources.handoffs)?, joined(&sources.tasks)?];
    let mut finders = joined.each_ref().map(|ids| Finder { ids, next: 0, places: None });
    let mut reasons = Names::default();
    let mut out = vec![Computed::default(); units];
    let mut scores = sources.handoffs.scores.clone();
    for m in ALL {
        let weight = WORST.iter().find(|(name, ..)| *name == m.name);
        let (subjects, finder) = match m.subject {
            Subject::Handoff => (&sources.handoffs, 0),
            Subject::Task => (&sources.tasks, 1),
        };
        let finder = &mut finders[finder];
        finder.next = 0;
        let mut sums = Sums::default();
        let sql = format!("SELECT id, rated, numerator, denominator, unknown FROM (\n{}) m", m.sql);
        let mut rows = ctx.sql(&sql).await?.execute_stream().await?;
        while let Some(batch) = rows.next().await {
            let batch = batch?;
            let ids = cast(batch.column(0), &DataType::Utf8View)?;
            let rated = batch.column(1).as_boolean();
            let [numerator, denominator] = [2, 3].map(|i| cast(batch.column(i), &DataType::Int64));
            let (numerator, denominator) = (numerator?, denominator?);
            let unknown = cast(batch.column(4), &DataType::Utf8View)?;
            let (ids, unknown) = (ids.as_string_view(), unknown.as_string_view());
            let int = |c: &ArrayRef, i: usize| {
                if c.is_valid(i) { c.as_primitive::<Int64Type>().value(i) } else { 0 }
            };
            for i in 0..batch.num_rows() {
                let Some(place) = finder.place(ids.value(i)) else { continue };
                if let Some((_, shortfall, weight)) = weight.filter(|_| unknown.is_null(i)) {
                    let (n, d) = (int(&numerator, i), int(&denominator, i));
                    let bad = if *shortfall { d - n } else { n };
                    scores[place].0 += weight * bad.max(0);
                }
                if !rated.is_valid(i) || !rated.value(i) {
                    continue;
                }
                let cell = subjects.cells[place];
                if unknown.is_valid(i) {
                    *sums.unknown.entry((cell, reasons.place(unknown.value(i)))).or_default() += 1;
                } else {
                    sums.known(cell, int(&numerator, i), int(&denominator, i));
                }
            }
        }
        write(m.name, &sums, sources, &reasons, &mut out);
    }
    write(HANDOFFS, &sources.transfers, sources, &reasons, &mut out);
    let mut tables: Vec<HandoffScores> = (0..units).map(|_| HandoffScores::new()).collect();
    for (place, (score, last_activity)) in scores.into_iter().enumerate().filter(|(_, (score, _))| *score > 0)
    {
        let unit = sources.cells[sources.handoffs.cells[place]].unit;
        tables[unit].push(HandoffScoreRow { handoff_id: joined[0].value(place), score, last_activity });
    }
    for (computed, mut table) in out.iter_mut().zip(tables) {
        computed.scores.push(RecordBatch::from(table.finish()));
    }
    Ok(out)
}

fn joined(subjects: &Subjects) -> Result<StringViewArray> {
    let ids: Vec<&dyn Array> = subjects.ids.iter().map(|a| a as &dyn Array).collect();
    if ids.is_empty() {
        return Ok(StringViewArray::from_iter_values::<&str, _>([]));
    }
    Ok(concat(&ids)?.as_string_view().clone())
}

/// Adds the rows of one measure to the batches of each unit, sorted by what they are of.
fn write(measure: &str, sums: &Sums, sources: &Sources, reasons: &Names, out: &mut [Computed]) {
    let known = sums.known.iter().enumerate().filter_map(|(cell, sum)| Some((cell, None, (*sum)?)));
    let unknown = sums.unknown.iter().map(|((cell, reason), n)| {
        (*cell, Some(reasons.name(*reason)), Sum { subjects: *n, ..Sum::default() })
    });
    let name = |n: Option<usize>| n.map(|n| sources.names.name(n));
    let mut rows: Vec<_> = known
        .chain(unknown)
        .map(|(cell, unknown, sum)| {
            let c = &sources.cells[cell];
            ((c.unit, c.time, c.last_activity, name(c.service), name(c.from), name(c.to), unknown), sum)
        })
        .collect();
    rows.sort_unstable_by_key(|(key, _)| *key);
    for rows in rows.chunk_by(|(a, _), (b, _)| a.0 == b.0) {
        let mut table = MeasureSums::new();
        for ((_, time, last_activity, service, from_agent, to_agent, unknown), sum) in rows.iter().copied() {
            table.push(MeasureSumRow {
                measure,
                time,
                last_activity,
                service,
                from_agent,
                to_agent,
                unknown,
                subjects: sum.subjects,
                numerator: unknown.is_none().then_some(sum.numerator),
                denominator: unknown.is_none().then_some(sum.denominator),
            });
        }
        let unit = rows.first().map_or(0, |(key, _)| key.0);
        out[unit].sums.push(RecordBatch::from(table.finish()));
    }
}

/// Registers the sums over the tables of a context, for windows that those on disk cannot tell.
///
/// # Errors
/// The engine's.
pub(crate) async fn register(ctx: &SessionContext) -> Result<()> {
    let mut sources = Sources::default();
    for (table, columns) in [("handoffs", &OF_HANDOFFS[..]), ("tasks", &OF_TASKS[..])] {
        let mut rows = ctx.table(table).await?.select_columns(columns)?.execute_stream().await?;
        while let Some(batch) = rows.next().await {
            sources.add(0, &batch?)?;
        }
    }
    let batches = compute(ctx, &sources, 1).await?.into_iter().map(|c| c.sums).collect();
    let table = MemTable::try_new(tables::schema_of(&MeasureSums::fields()), batches)?;
    ctx.register_table(MeasureSums::NAME, Arc::new(table))?;
    Ok(())
}
