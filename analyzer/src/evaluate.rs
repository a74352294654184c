//! The evaluation: all measures over the tables, and the rows that reports show.

use std::collections::HashMap;
use std::sync::LazyLock;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Float64Type, Int64Type, TimestampNanosecondType};
use datafusion::execution::SendableRecordBatchStream;
use futures::StreamExt;

use crate::measures::{self, Measure, Subject};
use crate::session::{Result, Session};

/// A rate over everything.
#[derive(Debug, Clone)]
pub struct Total {
    /// The measure.
    pub measure: &'static Measure,
    /// Sum of numerators of the known rows, scaled.
    pub numerator: Option<f64>,
    /// Sum of their denominators.
    pub denominator: i64,
    /// Rated rows that are not known.
    pub unknown: i64,
    /// Why, with how many rows each, the most frequent first.
    pub reasons: Vec<(String, i64)>,
}

impl Total {
    /// Numerator by denominator; `None` without a denominator.
    pub fn value(&self) -> Option<f64> {
        (self.denominator > 0).then(|| self.numerator.map(|n| n / self.denominator as f64)).flatten()
    }
}

/// One row of a measure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value<'a> {
    /// Numerator (scaled) and denominator.
    Known(f64, i64),
    /// Why it is not known.
    Unknown(&'a str),
}

/// The rates of all measures.
///
/// # Errors
/// The engine's.
pub async fn totals(session: &Session) -> Result<Vec<Total>> {
    session.sums().await?;
    let mut out: Vec<Total> = measures::ALL
        .iter()
        .map(|measure| Total { measure, numerator: None, denominator: 0, unknown: 0, reasons: Vec::new() })
        .collect();
    let sql = "SELECT measure, unknown, SUM(subjects) AS n, SUM(numerator) AS numerator, SUM(denominator) AS denominator \
               FROM measure_sums GROUP BY measure, unknown ORDER BY n DESC, unknown";
    for r in Rows::new(&session.query(sql).await?)?.all() {
        let Some(t) = out.iter_mut().find(|t| Some(t.measure.name) == r.text("measure")) else { continue };
        match r.text("unknown") {
            Some(why) => {
                let n = r.int("n").unwrap_or(0);
                t.unknown += n;
                t.reasons.push((why.to_owned(), n));
            }
            None => {
                t.denominator = r.int("denominator").unwrap_or(0);
                t.numerator =
                    r.int("numerator").filter(|_| t.denominator > 0).map(|n| n as f64 * t.measure.scale);
            }
        }
    }
    Ok(out)
}

/// All measures of transfers, row by row, held small: a report may have millions.
#[derive(Debug, Default)]
pub struct PerHandoff {
    places: HashMap<String, usize>,
    reasons: Names,
    /// By measure: its scale, and a cell for each transfer.
    cells: HashMap<&'static str, (f64, Vec<Cell>)>,
}

#[derive(Debug, Clone, Copy)]
enum Cell {
    Known(i64, i64),
    /// Place of the reason.
    Unknown(usize),
    Absent,
}

impl PerHandoff {
    /// Asks all of them.
    ///
    /// # Errors
    /// The engine's.
    pub async fn new(session: &Session) -> Result<Self> {
        Self::of(session, |_| true).await
    }

    /// Asks those measures whose names are wanted.
    ///
    /// # Errors
    /// The engine's.
    pub async fn of(session: &Session, wanted: impl Fn(&str) -> bool) -> Result<Self> {
        let mut out = Self::default();
        let mut ids = Stream::new(session, "SELECT handoff_id FROM handoffs").await?;
        while ids.advance().await? {
            let n = out.places.len();
            out.places.insert(ids.row().text("handoff_id").unwrap_or_default().to_owned(), n);
        }
        for m in measures::ALL.iter().filter(|m| m.subject == Subject::Handoff && wanted(m.name)) {
            let mut cells = vec![Cell::Absent; out.places.len()];
            let mut rows = Stream::new(session, m.sql).await?;
            while rows.advance().await? {
                let r = rows.row();
                let Some(place) = r.text("id").and_then(|id| out.places.get(id)) else { continue };
                cells[*place] = match (r.text("unknown"), r.int("numerator"), r.int("denominator")) {
                    (None, Some(n), Some(d)) => Cell::Known(n, d),
                    (why, ..) => Cell::Unknown(out.reasons.place(why.unwrap_or("not known"))),
                };
            }
            out.cells.insert(m.name, (m.scale, cells));
        }
        Ok(out)
    }

    /// The number of transfers.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// True where there is none.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The place of a transfer, from 0.
    pub fn place(&self, handoff: &str) -> Option<usize> {
        self.places.get(handoff).copied()
    }

    /// A measure of the transfer at a place; `None` where it has no row.
    pub fn get(&self, measure: &str, place: usize) -> Option<Value<'_>> {
        let (scale, cells) = self.cells.get(measure)?;
        match cells.get(place)? {
            Cell::Known(n, d) => Some(Value::Known(*n as f64 * scale, *d)),
            Cell::Unknown(why) => Some(Value::Unknown(self.reasons.name(*why))),
            Cell::Absent => None,
        }
    }
}

/// Texts that come often, each held once.
#[derive(Debug, Default)]
pub struct Names {
    places: HashMap<String, usize>,
    names: Vec<String>,
}

impl Names {
    /// The place of a text.
    pub fn place(&mut self, name: &str) -> usize {
        if let Some(place) = self.places.get(name) {
            return *place;
        }
        self.places.insert(name.to_owned(), self.names.len());
        self.names.push(name.to_owned());
        self.names.len() - 1
    }

    /// The text at a place that [`Self::place`] gave.
    pub fn name(&self, place: usize) -> &str {
        self.names.get(place).map_or("", String::as_str)
    }
}

/// The rows of an answer one after the other, as they come.
pub struct Stream {
    batches: SendableRecordBatchStream,
    rows: Rows,
    /// One more than the place of the row in `rows`; 0 before the first.
    next: usize,
}

impl Stream {
    /// Asks.
    ///
    /// # Errors
    /// The engine's.
    pub async fn new(session: &Session, sql: &str) -> Result<Self> {
        let batches = session.context().sql(sql).await?.execute_stream().await?;
        Ok(Self { batches, rows: Rows::new(&[])?, next: 0 })
    }

    /// Goes to the next row; false where there is none.
    ///
    /// # Errors
    /// The engine's.
    pub async fn advance(&mut self) -> Result<bool> {
        while self.next >= self.rows.lens.first().copied().unwrap_or(0) {
            let Some(batch) = self.batches.next().await else {
                self.rows = Rows::new(&[])?;
                self.next = 0;
                return Ok(false);
            };
            self.rows = Rows::new(&[batch?])?;
            self.next = 0;
        }
        self.next += 1;
        Ok(true)
    }

    /// The row gone to last.
    pub fn row(&self) -> Row<'_> {
        Row { columns: self.rows.batches.first().unwrap_or(&NO_COLUMNS), i: self.next.saturating_sub(1) }
    }
}

static NO_COLUMNS: LazyLock<HashMap<String, ArrayRef>> = LazyLock::new(HashMap::new);

/// Rows of an answer, read by column name.
pub struct Rows {
    batches: Vec<HashMap<String, ArrayRef>>,
    lens: Vec<usize>,
}

/// One row.
pub struct Row<'a> {
    columns: &'a HashMap<String, ArrayRef>,
    i: usize,
}

impl Rows {
    /// Over the batches of an answer.
    ///
    /// # Errors
    /// Where a column cannot be cast to its plain type.
    pub fn new(batches: &[RecordBatch]) -> Result<Self> {
        let mut out = Self { batches: Vec::new(), lens: Vec::new() };
        for b in batches {
            let mut columns = HashMap::new();
            for (f, c) in b.schema().fields().iter().zip(b.columns()) {
                let c = match c.data_type() {
                    DataType::Utf8 | DataType::LargeUtf8 | DataType::Dictionary(..) => {
                        cast(c, &DataType::Utf8View)?
                    }
                    t if t.is_integer() && *t != DataType::Int64 => cast(c, &DataType::Int64)?,
                    _ => c.clone(),
                };
                columns.insert(f.name().clone(), c);
            }
            out.lens.push(b.num_rows());
            out.batches.push(columns);
        }
        Ok(out)
    }

    /// The rows as a list.
    pub fn all(&self) -> impl Iterator<Item = Row<'_>> {
        self.batches.iter().zip(&self.lens).flat_map(|(columns, n)| (0..*n).map(move |i| Row { columns, i }))
    }
}

impl<'a> Row<'a> {
    fn column(&self, name: &str) -> Option<&'a ArrayRef> {
        self.columns.get(name).filter(|c| c.is_valid(self.i))
    }

    /// A text.
    pub fn text(&self, name: &str) -> Option<&'a str> {
        let c = self.column(name)?;
        (*c.data_type() == DataType::Utf8View).then(|| c.as_string_view().value(self.i))
    }

    /// A whole number.
    pub fn int(&self, name: &str) -> Option<i64> {
        let c = self.column(name)?;
        match c.data_type() {
            DataType::Int64 => Some(c.as_primitive::<Int64Type>().value(self.i)),
            DataType::Float64 => Some(c.as_primitive::<Float64Type>().value(self.i) as i64),
            _ => None,
        }
    }

    /// A number with its fraction.
    pub fn float(&self, name: &str) -> Option<f64> {
        let c = self.column(name)?;
        (*c.data_type() == DataType::Float64).then(|| c.as_primitive::<Float64Type>().value(self.i))
    }

    /// A truth value.
    pub fn flag(&self, name: &str) -> Option<bool> {
        let c = self.column(name)?;
        (*c.data_type() == DataType::Boolean).then(|| c.as_boolean().value(self.i))
    }

    /// A time in nanoseconds.
    pub fn time(&self, name: &str) -> Option<i64> {
        let c = self.column(name)?;
        matches!(c.data_type(), DataType::Timestamp(..))
            .then(|| c.as_primitive::<TimestampNanosecondType>().value(self.i))
    }

    /// A list of texts.
    pub fn texts(&self, name: &str) -> Vec<String> {
        let Some(c) = self.column(name) else { return Vec::new() };
        let Some(l) = c.as_list_opt::<i32>() else { return Vec::new() };
        let v = l.value(self.i);
        let Ok(v) = cast(&v, &DataType::Utf8View) else { return Vec::new() };
        v.as_string_view().iter().flatten().map(str::to_owned).collect()
    }
}
