//! The evaluation: all measures over the tables, and the rows that reports show.

use std::collections::HashMap;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Float64Type, Int64Type, TimestampNanosecondType};

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
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Numerator (scaled) and denominator.
    Known(f64, i64),
    /// Why it is not known.
    Unknown(String),
}

/// The rates of all measures.
///
/// # Errors
/// The engine's.
pub async fn totals(session: &Session) -> Result<Vec<Total>> {
    let mut out = Vec::with_capacity(measures::ALL.len());
    for m in measures::ALL {
        let mut t = Total { measure: m, numerator: None, denominator: 0, unknown: 0, reasons: Vec::new() };
        for r in Rows::new(&session.query(&m.total_sql()).await?)?.all() {
            match r.text("unknown") {
                Some(why) => {
                    let n = r.int("n").unwrap_or(0);
                    t.unknown += n;
                    t.reasons.push((why.to_owned(), n));
                }
                None => {
                    t.denominator = r.int("denominator").unwrap_or(0);
                    t.numerator =
                        r.int("numerator").filter(|_| t.denominator > 0).map(|n| n as f64 * m.scale);
                }
            }
        }
        out.push(t);
    }
    Ok(out)
}

/// The rows of a measure by id.
///
/// # Errors
/// The engine's.
pub async fn rows(session: &Session, measure: &Measure) -> Result<HashMap<String, Value>> {
    let batches = session.query(measure.sql).await?;
    let mut out = HashMap::new();
    for r in Rows::new(&batches)?.all() {
        let Some(id) = r.text("id") else { continue };
        let v = match (r.text("unknown"), r.int("numerator"), r.int("denominator")) {
            (Some(why), ..) => Value::Unknown(why.to_owned()),
            (None, Some(n), Some(d)) => Value::Known(n as f64 * measure.scale, d),
            _ => Value::Unknown("not known".to_owned()),
        };
        out.insert(id.to_owned(), v);
    }
    Ok(out)
}

/// All measures of one subject, by name and id.
pub type PerRow = HashMap<&'static str, HashMap<String, Value>>;

/// The rows of all measures of a subject.
///
/// # Errors
/// The engine's.
pub async fn all_rows(session: &Session, subject: Subject) -> Result<PerRow> {
    let mut out = HashMap::new();
    for m in measures::ALL.iter().filter(|m| m.subject == subject) {
        out.insert(m.name, rows(session, m).await?);
    }
    Ok(out)
}

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
