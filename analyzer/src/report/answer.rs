//! The answer to a question in SQL: as a table, as CSV, as JSON.

use std::io::{self, Write};

use comfy_table::presets::NOTHING;
use comfy_table::{Cell, CellAlignment, ContentArrangement, Table};
use datafusion::arrow::array::{Array, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::json::writer::{JsonArray, WriterBuilder};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};

use super::text;

fn arrow(e: ArrowError) -> io::Error {
    match e {
        ArrowError::IoError(_, e) => e,
        e => io::Error::other(e),
    }
}

/// Each row's cells as text; NULL is `None`.
fn rows(
    batches: &[RecordBatch],
    mut each: impl FnMut(Vec<Option<String>>) -> io::Result<()>,
) -> io::Result<()> {
    let options = FormatOptions::default()
        .with_timestamp_format(Some("%Y-%m-%dT%H:%M:%S%.9f"))
        .with_timestamp_tz_format(Some("%Y-%m-%dT%H:%M:%S%.9fZ"));
    for b in batches {
        let formats = b
            .columns()
            .iter()
            .map(|c| ArrayFormatter::try_new(c.as_ref(), &options))
            .collect::<Result<Vec<_>, _>>()
            .map_err(arrow)?;
        for i in 0..b.num_rows() {
            let cells = b
                .columns()
                .iter()
                .zip(&formats)
                .map(|(c, f)| c.is_valid(i).then(|| f.value(i).to_string()))
                .collect();
            each(cells)?;
        }
    }
    Ok(())
}

/// As a table for a terminal.
///
/// # Errors
/// Where it cannot be written.
pub fn table(fields: &Schema, batches: &[RecordBatch], out: &mut dyn Write) -> io::Result<()> {
    let mut grid = Table::new();
    grid.load_preset(NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    let numeric: Vec<bool> = fields.fields().iter().map(|f| f.data_type().is_numeric()).collect();
    let cell = |i: usize, s: String| {
        let c = Cell::new(s);
        if numeric.get(i) == Some(&true) { c.set_alignment(CellAlignment::Right) } else { c }
    };
    grid.set_header(fields.fields().iter().enumerate().map(|(i, f)| cell(i, text::plain(f.name()))));
    let mut n = 0usize;
    rows(batches, |cells| {
        n += 1;
        grid.add_row(
            cells
                .into_iter()
                .enumerate()
                .map(|(i, c)| cell(i, c.map_or_else(|| "NULL".to_owned(), |c| text::plain(&c)))),
        );
        Ok(())
    })?;
    for l in grid.lines() {
        writeln!(out, "{}", l.trim_end())?;
    }
    writeln!(out, "({n} {})", if n == 1 { "row" } else { "rows" })?;
    out.flush()
}

/// As CSV with a header line. NULL is an empty cell; text that a spreadsheet would take for a formula gets a `'` in front.
///
/// # Errors
/// Where it cannot be written.
pub fn csv(fields: &Schema, batches: &[RecordBatch], out: &mut dyn Write) -> io::Result<()> {
    let mut w = ::csv::Writer::from_writer(out);
    let number: Vec<bool> = fields
        .fields()
        .iter()
        .map(|f| f.data_type().is_numeric() || *f.data_type() == DataType::Boolean)
        .collect();
    w.write_record(fields.fields().iter().map(|f| text::csv(f.name())))?;
    rows(batches, |cells| {
        let cells = cells.into_iter().enumerate().map(|(i, c)| match c {
            None => String::new(),
            Some(c) if number.get(i) == Some(&true) => c,
            Some(c) => text::csv(&c),
        });
        w.write_record(cells).map_err(io::Error::from)
    })?;
    w.flush()
}

/// As one JSON array of objects; NULL is `null`.
///
/// # Errors
/// Where it cannot be written.
pub fn json(batches: &[RecordBatch], out: &mut dyn Write) -> io::Result<()> {
    let mut w = WriterBuilder::new().with_explicit_nulls(true).build::<_, JsonArray>(&mut *out);
    for b in batches {
        w.write(b).map_err(arrow)?;
    }
    w.finish().map_err(arrow)?;
    drop(w);
    writeln!(out)?;
    out.flush()
}
