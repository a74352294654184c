//! From the rows of a segment to Parquet files of the store.
//!
//! A segment becomes one file per hour, `date=…/hour=…/<segment>.parquet`, in the order and layout of every other file of the
//! store. A file that is there already is whole, so it is not written again.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use arrow::array::{Array, AsArray, RecordBatch, StringViewArray, TimestampNanosecondArray};
use arrow::compute::interleave_record_batch;
use arrow::error::ArrowError;
use parquet::errors::ParquetError;

use super::journal::NotKept;
use crate::store;

/// Rows handed to the writer at once.
const CHUNK: usize = 8192;

/// A row's place, with what it is sorted by.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Row<'a> {
    trace: &'a str,
    start: Option<i64>,
    span: &'a str,
    batch: usize,
    row: usize,
}

/// The keys of a batch.
struct Keys<'a> {
    trace: &'a StringViewArray,
    span: &'a StringViewArray,
    start: &'a TimestampNanosecondArray,
}

impl<'a> Keys<'a> {
    fn new(batch: &'a RecordBatch) -> Result<Self, ArrowError> {
        let column = |name: &str| {
            batch.column_by_name(name).ok_or_else(|| ArrowError::SchemaError(format!("no column {name}")))
        };
        Ok(Self {
            trace: column("trace_id")?.as_string_view(),
            span: column("span_id")?.as_string_view(),
            start: column("start")?.as_primitive(),
        })
    }
}

/// The rows by folder, each folder's in the order of the store: places as batch and row.
fn places(batches: &[RecordBatch]) -> Result<BTreeMap<String, Vec<(usize, usize)>>, ArrowError> {
    let keys: Vec<Keys<'_>> = batches.iter().map(Keys::new).collect::<Result<_, _>>()?;
    let mut rows = Vec::with_capacity(batches.iter().map(RecordBatch::num_rows).sum());
    for (b, k) in keys.iter().enumerate() {
        rows.extend((0..batches[b].num_rows()).map(|row| Row {
            trace: k.trace.value(row),
            start: k.start.is_valid(row).then(|| k.start.value(row)),
            span: k.span.value(row),
            batch: b,
            row,
        }));
    }
    rows.sort_unstable();
    let mut out: BTreeMap<String, Vec<(usize, usize)>> = BTreeMap::new();
    for trace in rows.chunk_by(|a, b| a.trace == b.trace) {
        // The first start of a trace decides for all of its rows.
        let folder = store::partition(trace.iter().find_map(|r| r.start));
        out.entry(folder).or_default().extend(trace.iter().map(|r| (r.batch, r.row)));
    }
    Ok(out)
}

/// The rows of a segment as whole files in memory, each with its folder.
///
/// # Errors
/// [`NotKept::Never`] where the rows cannot be written at all.
pub(super) fn files(batches: &[RecordBatch]) -> Result<Vec<(String, Vec<u8>)>, NotKept> {
    let refs: Vec<&RecordBatch> = batches.iter().collect();
    let never = |e: ParquetError| NotKept::Never(e.to_string());
    let mut out = Vec::new();
    for (folder, places) in places(batches).map_err(|e| never(e.into()))? {
        let mut w = store::writer(Vec::new(), &[], true).map_err(never)?;
        for chunk in places.chunks(CHUNK) {
            let rows = interleave_record_batch(&refs, chunk).map_err(|e| never(e.into()))?;
            w.write(&rows).map_err(never)?;
        }
        out.push((folder, w.into_inner().map_err(never)?));
    }
    Ok(out)
}

/// Writes the rows of a segment to a local store; gives the bytes written.
///
/// # Errors
/// [`NotKept::Later`] where the file system refuses, [`NotKept::Never`] where the rows cannot be written at all.
pub fn local(root: &Path, name: &str, batches: &[RecordBatch]) -> Result<u64, NotKept> {
    let refs: Vec<&RecordBatch> = batches.iter().collect();
    let prefix = format!("{name}-");
    let mut bytes = 0;
    for (folder, places) in places(batches).map_err(|e| NotKept::Never(e.to_string()))? {
        let dir = root.join("spans").join(folder);
        let later = |e: io::Error| NotKept::Later(format!("{}: {e}", dir.display()));
        if holds(&dir, &prefix).map_err(later)? {
            continue;
        }
        let parquet = |source| store::Error::Parquet { path: dir.clone(), source };
        let written = store::put(&dir, &prefix, &[], |w| {
            for chunk in places.chunks(CHUNK) {
                let rows = interleave_record_batch(&refs, chunk).map_err(|e| parquet(e.into()))?;
                w.write(&rows).map_err(parquet)?;
            }
            Ok(())
        });
        let (path, _) = written.map_err(not_kept)?;
        bytes += path.metadata().map_err(later)?.len();
    }
    Ok(bytes)
}

/// True where a folder holds a file whose name starts so.
fn holds(dir: &Path, prefix: &str) -> io::Result<bool> {
    let entries = match std::fs::read_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
        entries => entries?,
    };
    for e in entries {
        if e?.file_name().to_str().is_some_and(|n| n.starts_with(prefix)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What the file system refused may work later; what cannot be written as Parquet never will.
fn not_kept(e: store::Error) -> NotKept {
    match &e {
        store::Error::Parquet { source: ParquetError::External(inner), .. } if inner.is::<io::Error>() => {
            NotKept::Later(e.to_string())
        }
        store::Error::Parquet { .. } => NotKept::Never(e.to_string()),
        _ => NotKept::Later(e.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_record::span::Span;

    #[test]
    fn rows_go_to_the_hour_of_their_trace_in_order() -> Result<(), Box<dyn std::error::Error>> {
        let hour = 3_600_000_000_000i64;
        let span = |trace: u64, id: u64, start: Option<i64>| Span {
            trace_id: format!("{trace:032x}"),
            span_id: format!("{id:016x}"),
            start,
            ..Span::default()
        };
        let encode = |rows: &[Span]| baton_record::schema::Encoder::default().encode(rows);
        let batches = [
            encode(&[span(2, 1, Some(hour + 5)), span(2, 2, None)])?,
            encode(&[span(1, 3, Some(2 * hour)), span(2, 4, Some(hour - 1)), span(3, 5, None)])?,
        ];
        let dir = tempfile::tempdir()?;
        assert!(local(dir.path(), "a-1", &batches).map_err(|e| format!("{e:?}"))? > 0);
        // Again: the files are there.
        assert_eq!(local(dir.path(), "a-1", &batches).map_err(|e| format!("{e:?}"))?, 0);
        let ids = |folder: &str| -> Result<Vec<String>, Box<dyn std::error::Error>> {
            let mut files = std::fs::read_dir(dir.path().join("spans").join(folder))?;
            let path = files.next().ok_or("no file")??.path();
            assert!(store::is_whole(&path)? && files.next().is_none());
            let file = std::fs::File::open(path)?;
            let reader = parquet::arrow::arrow_reader::ParquetRecordBatchReader::try_new(file, 100)?;
            let mut out = Vec::new();
            for batch in reader {
                let batch = batch?;
                let column = arrow::compute::cast(batch.column(1), &arrow::datatypes::DataType::Utf8View)?;
                out.extend(column.as_string_view().iter().flatten().map(|s| s[15..].to_owned()));
            }
            Ok(out)
        };
        // Trace 2 began before the hour; all of it is there.
        assert_eq!(ids("date=1970-01-01/hour=00")?, ["2", "4", "1"]);
        assert_eq!(ids("date=1970-01-01/hour=02")?, ["3"]);
        assert_eq!(ids("date=unknown/hour=00")?, ["5"]);
        Ok(())
    }
}
