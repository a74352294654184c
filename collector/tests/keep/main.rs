//! A store kept in order: the same rows at every step, whatever happens in between.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use arrow::array::ArrayRef;
use arrow::compute::cast;
use arrow::datatypes::DataType;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use baton_collector::keep::{self, CompactSettings};
use baton_collector::store::Store;
use baton_record::prints::Prints;
use baton_record::schema::SpanColumns;
use baton_record::span::{Item, Record, Span};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use sha2::{Digest, Sha256};

mod check;
mod compact;
mod retain;
mod split;

/// 2020-01-01 00:00 UTC, in seconds.
const DAY: i64 = 1_577_836_800;
const HOUR: &str = "date=2020-01-01/hour=00";

fn minutes(n: u64) -> Duration {
    Duration::from_secs(60 * n)
}

/// A time on that day.
fn clock(seconds: i64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(DAY + seconds).unwrap())
}

/// So long after the files of a test were written that replaced and hidden ones are due.
fn later() -> SystemTime {
    SystemTime::now() + minutes(11)
}

/// A row, its start in seconds of that day.
fn row(trace: u32, span: u32, start: Option<i64>) -> Span {
    Span {
        trace_id: format!("{trace:032x}"),
        span_id: format!("{span:016x}"),
        start: start.map(|s| (DAY + s) * 1_000_000_000),
        name: "step".into(),
        ..Span::default()
    }
}

/// An item that holds something; `spelling` changes what it holds, not its hash.
fn item(hash: i64, spelling: u32) -> Item {
    Item {
        hash: Some(hash),
        prints: Prints { shingles: vec![hash.unsigned_abs() as u32, spelling], idents: vec![7] }.into(),
        text: Some(format!("a text long enough to stand outside of its view, {hash} {spelling}").into()),
        ..Item::default()
    }
}

fn log(s: Span) -> Span {
    Span { record: Record::Log, ..s }
}

/// Writes rows as one process would: one file per folder.
fn write(store: &Path, rows: &[Span]) {
    let mut s = Store::open(store).unwrap();
    rows.iter().for_each(|r| s.push(r.clone()).unwrap());
    s.flush().unwrap();
}

/// All rows of files as text, and what the items of each trace hold, sorted.
fn rows_of(files: &[PathBuf]) -> Vec<String> {
    let mut out = Vec::new();
    let mut held = std::collections::BTreeSet::new();
    for f in files {
        let reader = ParquetRecordBatchReaderBuilder::try_new(fs::File::open(f).unwrap()).unwrap();
        for batch in reader.build().unwrap() {
            let batch = batch.unwrap();
            let options = FormatOptions::default().with_null("NULL");
            // Times as numbers: to write UTC out, Arrow asks for tables of time zones.
            let plain: Vec<ArrayRef> = batch
                .schema()
                .fields()
                .iter()
                .zip(batch.columns())
                .filter(|(f, _)| f.name() != "contents")
                .map(|(f, c)| match f.data_type() {
                    DataType::Timestamp(..) => cast(c, &DataType::Int64).unwrap(),
                    _ => c.clone(),
                })
                .collect();
            let columns: Vec<ArrayFormatter<'_>> =
                plain.iter().map(|c| ArrayFormatter::try_new(c.as_ref(), &options).unwrap()).collect();
            let spans = SpanColumns::new(&batch).unwrap();
            for row in 0..batch.num_rows() {
                let cells: Vec<String> = columns.iter().map(|c| c.value(row).to_string()).collect();
                out.push(cells.join("|"));
                let span = spans.span(row);
                held.extend(span.contents().map(|c| format!("{} {c:?}", span.trace_id)));
            }
        }
    }
    out.extend(held);
    out.sort();
    out
}

/// The rows that a reader counts.
fn live_rows(store: &Path) -> Vec<String> {
    rows_of(&keep::live_files(&store.join("spans")).unwrap().live)
}

/// The same, equal ones once.
fn different_rows(store: &Path) -> Vec<String> {
    let mut rows = live_rows(store);
    rows.dedup();
    rows
}

/// Every file and folder, with bytes and the time of change.
fn tree(store: &Path) -> BTreeMap<PathBuf, (Vec<u8>, SystemTime)> {
    walkdir::WalkDir::new(store)
        .into_iter()
        .map(|e| {
            let path = e.unwrap().into_path();
            let changed = path.symlink_metadata().unwrap().modified().unwrap();
            (path.clone(), (fs::read(&path).unwrap_or_default(), changed))
        })
        .collect()
}

/// Names of the files of a folder, sorted.
fn names(dir: &Path) -> Vec<String> {
    let mut v: Vec<String> = fs::read_dir(dir)
        .map(|d| d.map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect())
        .unwrap_or_default();
    v.sort();
    v
}

fn compact(store: &Path, now: SystemTime) -> keep::Compacted {
    keep::compact(store, &CompactSettings::default(), now).unwrap()
}

/// Gives a file the name that its bytes ask for.
fn name_by_bytes(path: &Path) -> PathBuf {
    let id = baton_record::canonical::hex(&Sha256::digest(fs::read(path).unwrap())[..16]);
    let to = path.with_file_name(format!("{id}.parquet"));
    fs::rename(path, &to).unwrap();
    to
}

/// Writes rows in a file of another layout version, properly named.
fn write_version(dir: &Path, version: &str, rows: &[Span]) -> PathBuf {
    use parquet::file::{metadata::KeyValue, properties::WriterProperties};
    let mark = KeyValue::new(baton_record::schema::VERSION_KEY.to_owned(), version.to_owned());
    let properties = WriterProperties::builder().set_key_value_metadata(Some(vec![mark])).build();
    let path = dir.join("new");
    let batch = baton_record::schema::Encoder::default().encode(rows).unwrap();
    let file = fs::File::create(&path).unwrap();
    let mut w = parquet::arrow::ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
    w.write(&batch).unwrap();
    w.close().unwrap();
    name_by_bytes(&path)
}
