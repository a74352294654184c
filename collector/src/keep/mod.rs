//! Keeping a store in order: small files are merged ([`compact()`]), old hours are removed ([`retain()`]), and what is there
//! is verified ([`check()`]).
//!
//! Always: all of it is safe beside running collectors and readers, and a crash at any point leaves a store that reads the
//! same. No file is changed, and none is deleted while a reader may still count on it. A merged file names the files it
//! replaces ([`schema::REPLACES_KEY`]), and they are deleted a while later. A file that is going to be removed gets an empty
//! `<file>.gone` beside it first. [`live_files`] is what a reader does with both.
//!
//! Limits: only regular files in `spans/date=*/hour=*/` are merged or removed, and symbolic links there are not followed.

use std::collections::HashSet;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use baton_record::schema;
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};
use parquet::file::statistics::Statistics;
use serde::Serialize;
use walkdir::WalkDir;

use crate::store;

mod check;
mod compact;
mod merge;
#[cfg(feature = "server")]
pub mod remote;
mod retain;
mod tally;
mod walk;

pub use check::{Checked, FolderRows, check};
pub use compact::{CompactSettings, Compacted, MAX_BYTES, Merge, MergedFile, compact};
pub use retain::{RetainSettings, Retained, retain};

/// How long a file stays after it stopped counting, unless settings say otherwise: readers may have listed it before.
pub const GRACE: Duration = Duration::from_secs(600);
/// A temporary file older than this was left by a crash.
const LEFTOVER: Duration = Duration::from_secs(3600);

/// Why a store could not be kept in order.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file system said no.
    #[error("{path}: {source}")]
    Io {
        /// Where.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// A file could not be written.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// The object store said no.
    #[cfg(feature = "server")]
    #[error(transparent)]
    Objects(#[from] baton_record::objects::Error),
    /// Another process is at it.
    #[error("{0}: held by another process that keeps this store in order; nothing was done")]
    Busy(PathBuf),
    /// Not a store.
    #[error("{0}: no store, it has no folder `spans`")]
    NoStore(PathBuf),
    /// Not a duration.
    #[error("`{0}` is no duration: a whole number with d, h, m or s is, as in 90d")]
    Duration(String),
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> Error + '_ {
    move |source| Error::Io { path: path.to_owned(), source }
}

/// Something wrong with a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The file, relative to `spans/`.
    pub file: String,
    /// Where in it: a column, a row; `None`: the file as a whole.
    pub place: Option<String>,
    /// What is wrong.
    pub reason: String,
}

impl Problem {
    fn new(file: &str, reason: impl ToString) -> Self {
        Self { file: file.to_owned(), place: None, reason: reason.to_string() }
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.place {
            Some(place) => write!(f, "{}: {place}: {}", self.file, self.reason),
            None => write!(f, "{}: {}", self.file, self.reason),
        }
    }
}

/// Reads a duration: a whole number of days, hours, minutes or seconds, such as `90d`, `24h`, `30m` and `45s`.
///
/// # Errors
/// Where it is something else, or too long to count.
pub fn parse_duration(text: &str) -> Result<Duration, Error> {
    baton_record::collect::duration(text).ok_or_else(|| Error::Duration(text.to_owned()))
}

/// The Parquet files of a store, sorted by path.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct LiveFiles {
    /// Those that count. One whose footer cannot be read is among them: whoever reads it says so.
    pub live: Vec<PathBuf>,
    /// Those whose rows stand in another present file.
    pub replaced: Vec<PathBuf>,
    /// Those that are going to be removed.
    pub gone: Vec<PathBuf>,
}

/// Tells which files below the folder `spans` count. Only footers are read.
///
/// A file does not count where `<file>.gone` stands beside it, or where another present file of this layout says that it
/// replaces it; this other one may itself be replaced or going to be removed, since its rows have come or gone with it.
///
/// # Errors
/// Where a folder cannot be read.
pub fn live_files(spans: &Path) -> io::Result<LiveFiles> {
    let mut out = LiveFiles::default();
    for f in survey(spans)? {
        match f.state {
            State::Live => &mut out.live,
            State::Replaced => &mut out.replaced,
            State::Gone => &mut out.gone,
        }
        .push(f.path);
    }
    Ok(out)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Live,
    Replaced,
    Gone,
}

/// A file with what its footer says.
#[derive(Debug)]
struct Seen {
    path: PathBuf,
    /// Relative to `spans/`, with `/`.
    name: String,
    state: State,
    footer: Result<Footer, String>,
}

/// What a footer says.
#[derive(Debug, Clone, Default)]
struct Footer {
    rows: u64,
    /// Of all columns together, before compression.
    encoded: u64,
    /// The first start of a row; `None`: none has one.
    first: Option<i64>,
    replaces: Vec<String>,
}

/// All Parquet files below `spans`, sorted. Links are followed, as readers always did.
fn survey(spans: &Path) -> io::Result<Vec<Seen>> {
    let (mut files, mut gone): (Vec<PathBuf>, HashSet<PathBuf>) = Default::default();
    for entry in WalkDir::new(spans).follow_links(true) {
        let path = match entry {
            Ok(e) if !e.file_type().is_dir() => e.into_path(),
            Ok(_) => continue,
            // Deleted since its folder was listed.
            Err(e) if e.depth() > 0 && kind(&e) == Some(io::ErrorKind::NotFound) => continue,
            Err(e) => return Err(e.into()),
        };
        match path.extension().and_then(|e| e.to_str()) {
            Some("parquet") => files.push(path),
            Some("gone") => _ = gone.insert(path.with_extension("")),
            _ => {}
        }
    }
    files.sort();
    let mut out = Vec::with_capacity(files.len());
    for path in files {
        let footer = match footer(&path) {
            Err(Unread::Vanished) => continue,
            Err(Unread::Because(reason)) => Err(reason),
            Ok(f) => Ok(f),
        };
        let state = if gone.contains(&path) { State::Gone } else { State::Live };
        out.push(Seen { name: name_of(spans, &path), path, state, footer });
    }
    let replaced: HashSet<String> =
        out.iter().filter_map(|f| f.footer.as_ref().ok()).flat_map(|f| f.replaces.iter().cloned()).collect();
    for f in out.iter_mut().filter(|f| f.state == State::Live && replaced.contains(&f.name)) {
        f.state = State::Replaced;
    }
    Ok(out)
}

fn kind(e: &walkdir::Error) -> Option<io::ErrorKind> {
    e.io_error().map(io::Error::kind)
}

enum Unread {
    Vanished,
    Because(String),
}

fn footer(path: &Path) -> Result<Footer, Unread> {
    let file = File::open(path).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => Unread::Vanished,
        _ => Unread::Because(e.to_string()),
    })?;
    let meta = ParquetMetaDataReader::new()
        .parse_and_finish(&file)
        .map_err(|e| Unread::Because(format!("no Parquet file: {e}")))?;
    read_footer(&meta).map_err(Unread::Because)
}

fn read_footer(meta: &ParquetMetaData) -> Result<Footer, String> {
    let mark = |key: &str| {
        let marks = meta.file_metadata().key_value_metadata()?;
        marks.iter().find(|k| k.key == key)?.value.as_deref()
    };
    match mark(schema::VERSION_KEY) {
        Some(schema::VERSION) => {}
        found => {
            let found = found.unwrap_or("none");
            return Err(format!("layout version {found}, expected {}", schema::VERSION));
        }
    }
    let mut out = Footer::default();
    if let Some(list) = mark(schema::REPLACES_KEY) {
        out.replaces = serde_json::from_str(list)
            .map_err(|e| format!("{}: no list of paths: {e}", schema::REPLACES_KEY))?;
    }
    let start = meta
        .file_metadata()
        .schema_descr()
        .columns()
        .iter()
        .position(|c| c.path().parts() == ["start"])
        .ok_or("no column start")?;
    for g in meta.row_groups() {
        out.rows += u64::try_from(g.num_rows()).map_err(|e| e.to_string())?;
        out.encoded += u64::try_from(g.total_byte_size()).map_err(|e| e.to_string())?;
        if let Some(Statistics::Int64(s)) = g.columns().get(start).and_then(|c| c.statistics()) {
            out.first = out.first.into_iter().chain(s.min_opt().copied()).min();
        }
    }
    Ok(out)
}

/// The path relative to `spans/`, with `/`.
fn name_of(spans: &Path, path: &Path) -> String {
    let below = path.strip_prefix(spans).unwrap_or(path);
    below.iter().map(|p| p.to_string_lossy()).collect::<Vec<_>>().join("/")
}

/// The folder of the rows. A link in its place is refused: what is behind it is not this store's.
fn spans_of(store: &Path) -> Result<PathBuf, Error> {
    let spans = store.join("spans");
    match fs::symlink_metadata(&spans) {
        Ok(m) if m.is_dir() => Ok(spans),
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(at(&spans)(e)),
        _ => Err(Error::NoStore(store.to_owned())),
    }
}

/// The lock of all that changes which files count. It is free again when the file is closed, also by a crash.
fn lock(store: &Path) -> Result<File, Error> {
    let path = store.join("compact.lock");
    let file = fs::OpenOptions::new().create(true).append(true).open(&path).map_err(at(&path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::Busy(path)),
        Err(TryLockError::Error(e)) => Err(at(&path)(e)),
    }
}

/// How long ago; nothing where it is yet to come.
fn age(then: SystemTime, now: SystemTime) -> Duration {
    now.duration_since(then).unwrap_or_default()
}

/// Nanoseconds since 1970.
fn nanos(t: SystemTime) -> i128 {
    match t.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(d) => d.as_nanos().cast_signed(),
        Err(e) => -e.duration().as_nanos().cast_signed(),
    }
}

/// Deletes a file; it may be gone already.
fn delete(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(at(path)(e)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read() {
        for (text, seconds) in [("90d", 7_776_000), ("24h", 86_400), ("30m", 1800), ("45s", 45), ("0s", 0)] {
            assert_eq!(parse_duration(text).map_err(|e| e.to_string()), Ok(Duration::from_secs(seconds)));
        }
        for text in ["", "d", "90", "90 d", "+9d", "-9d", "1.5h", "9w", "9é", "9d9h", "999999999999999999d"]
        {
            let said = parse_duration(text).map(|_| ()).map_err(|e| e.to_string());
            assert!(said.as_ref().is_err_and(|e| e.starts_with(&format!("`{text}`"))), "{text}: {said:?}");
        }
    }

    #[test]
    fn times_before_1970_are_negative() {
        let t = SystemTime::UNIX_EPOCH;
        assert_eq!(nanos(t - Duration::from_secs(2)), -2_000_000_000);
        assert_eq!(nanos(t + Duration::from_nanos(5)), 5);
    }
}
