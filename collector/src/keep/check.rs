//! Whether a store is as it should be.
//!
//! Every Parquet file is read to its last page. Nothing is changed, and no file, however bad, keeps the rest from being read.
//! Limits: rows of a file that cannot be read are not known, so they are in no sum; the file is among the problems. Damage can
//! bring a decoder to panic; that is caught, but the process's panic hook may have printed it.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::SystemTime;

use arrow::array::AsArray;
use baton_record::schema;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde::Serialize;

use super::merge::{BATCH, Key, Keys, open};
use super::tally::Tally;
use super::walk::{Found, Tree, walk};
use super::{Error, LEFTOVER, Problem, State, age, at, spans_of, survey};
use crate::store::is_whole;

/// Files that count in a folder, and their rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct FolderRows {
    /// Files.
    pub files: u64,
    /// Rows that could be read.
    pub rows: u64,
}

/// What [`check()`] found. All names are relative to `spans/`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Checked {
    /// What is wrong. A store without entries here is sound.
    pub problems: Vec<Problem>,
    /// By folder, the files that count.
    pub folders: BTreeMap<String, FolderRows>,
    /// Files that count.
    pub files: u64,
    /// Rows of them that could be read.
    pub rows: u64,
    /// Different traces of these rows.
    pub traces: u64,
    /// Rows of spans whose trace and span ids another row has: assembly counts one of them. Log records are not among them:
    /// a span may have many.
    pub doubles: u64,
    /// Files that were replaced, and will be deleted.
    pub replaced: Vec<String>,
    /// Files that old age hides, and that will be deleted.
    pub gone: Vec<String>,
    /// Tombstones without their file.
    pub orphans: Vec<String>,
    /// What a crash left half written.
    pub leftovers: Vec<String>,
    /// What does not belong here: other files, folders of other names, symbolic links.
    pub unknown: Vec<String>,
}

impl Checked {
    /// True where no file is bad.
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }
}

/// Verifies a store.
///
/// # Errors
/// Where a folder cannot be read, or the disk for temporary files is full. A bad file is no error.
pub fn check(store: &Path, now: SystemTime) -> Result<Checked, Error> {
    let spans = spans_of(store)?;
    let Tree { hours, unknown } = walk(&spans)?;
    let states: HashMap<String, State> =
        survey(&spans).map_err(at(&spans))?.into_iter().map(|s| (s.name, s.state)).collect();
    let mut out = Checked { unknown, ..Checked::default() };
    let mut counts = Counts::default();
    // Where ids are sorted that do not fit in memory.
    let disk = std::env::temp_dir();
    for hour in &hours {
        for f in &hour.files {
            // Deleted since the folder was listed: nothing to verify.
            let Some(state) = states.get(&f.name) else { continue };
            match state {
                State::Replaced => out.replaced.push(f.name.clone()),
                State::Gone => out.gone.push(f.name.clone()),
                State::Live => {}
            }
            let live = *state == State::Live;
            let rows = file(f, live.then_some(&mut counts), &mut out.problems).map_err(at(&disk))?;
            if live {
                let folder = out.folders.entry(hour.name.clone()).or_default();
                folder.files += 1;
                folder.rows += rows;
                out.files += 1;
                out.rows += rows;
            }
        }
        let alone = |g: &&Found| !hour.files.iter().any(|f| g.name == format!("{}.gone", f.name));
        out.orphans.extend(hour.gone.iter().filter(alone).map(|g| g.name.clone()));
        let left = hour.temporary.iter().filter(|t| age(t.modified, now) > LEFTOVER);
        out.leftovers.extend(left.map(|t| t.name.clone()));
    }
    let finish = |t: Tally| t.finish().map_err(at(&disk));
    out.traces = finish(counts.traces)?.1;
    let (added, distinct) = finish(counts.spans)?;
    out.doubles = added - distinct;
    Ok(out)
}

/// Ids of the files that count.
#[derive(Default)]
struct Counts {
    traces: Tally,
    spans: Tally,
}

/// Why reading a file ended early.
enum Stop {
    /// The file is bad.
    Bad(Option<String>, String),
    /// Ids could not be counted.
    Disk(io::Error),
}

/// Verifies a file; says how many rows could be read.
fn file(f: &Found, counts: Option<&mut Counts>, problems: &mut Vec<Problem>) -> io::Result<u64> {
    let mut tell = |place, reason| problems.push(Problem { file: f.name.clone(), place, reason });
    match is_whole(&f.path) {
        Ok(true) => {}
        Ok(false) => tell(None, "damaged or renamed: the name is not that of these bytes".to_owned()),
        // It was deleted just now.
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(e) => tell(None, e.to_string()),
    }
    if let Err(super::Unread::Because(reason)) = super::footer(&f.path) {
        tell(None, reason);
        return Ok(0);
    }
    let mut rows = 0;
    // Decoders of other crates are made for files that a writer wrote; damage may bring them to panic.
    let read = catch_unwind(AssertUnwindSafe(|| rows_of(&f.path, &mut rows, counts)));
    match read {
        Ok(Ok(())) => {}
        Ok(Err(Stop::Disk(e))) => return Err(e),
        Ok(Err(Stop::Bad(place, reason))) => tell(place, reason),
        Err(_) => tell(locate(&f.path), "cannot be decoded".to_owned()),
    }
    Ok(rows)
}

/// Reads all rows, counts them, and says where their order breaks.
fn rows_of(path: &Path, rows: &mut u64, mut counts: Option<&mut Counts>) -> Result<(), Stop> {
    let mut last: Option<Key> = None;
    let mut unsorted: Option<u64> = None;
    let (reader, expected) = open(path, BATCH).map_err(|e| Stop::Bad(None, e))?;
    for batch in reader {
        let batch = batch.map_err(|e| Stop::Bad(locate(path), e.to_string()))?;
        let bad = || Stop::Bad(None, "no columns of ids".to_owned());
        let keys = Keys::of(&batch).ok_or_else(bad)?;
        let record = batch.column_by_name("record").and_then(|c| c.as_string_view_opt()).ok_or_else(bad)?;
        for row in 0..batch.num_rows() {
            let key = keys.at(row);
            if last.as_ref().is_some_and(|l| *l > key) {
                unsorted = unsorted.or(Some(*rows));
            }
            if let Some(c) = counts.as_deref_mut() {
                if last.as_ref().is_none_or(|l| l.0 != key.0) {
                    c.traces.add(&[&key.0]).map_err(Stop::Disk)?;
                }
                if record.value(row) != "log" {
                    c.spans.add(&[&key.0, &key.2]).map_err(Stop::Disk)?;
                }
            }
            last = Some(key);
            *rows += 1;
        }
    }
    if *rows != expected as u64 {
        return Err(Stop::Bad(None, format!("{rows} rows, {expected} by its footer")));
    }
    match unsorted {
        Some(row) => Err(Stop::Bad(Some(format!("row {row}")), "not sorted".to_owned())),
        None => Ok(()),
    }
}

/// The column that cannot be decoded, and about where.
fn locate(path: &Path) -> Option<String> {
    schema::COLUMNS.iter().enumerate().find_map(|(i, column)| {
        let mut rows = 0;
        let read = catch_unwind(AssertUnwindSafe(|| -> Option<()> {
            let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path).ok()?).ok()?;
            let mask = ProjectionMask::roots(reader.parquet_schema(), [i]);
            for batch in reader.with_projection(mask).with_batch_size(BATCH).build().ok()? {
                rows += batch.ok()?.num_rows();
            }
            Some(())
        }));
        (!matches!(read, Ok(Some(())))).then(|| format!("column {}, after row {rows}", column.name))
    })
}
