//! The store on a local disk.
//!
//! ```text
//! <store>/key                                        secret of the fingerprints, 32 hex digits, mode 0600
//! <store>/spans/date=YYYY-MM-DD/hour=HH/<id>.parquet rows, by the first start of their trace in UTC; date=unknown without
//! ```
//!
//! Always: a file appears whole under its final name (temporary name, sync, rename, sync of the folder) or
//! not at all. `<id>` is the start of the SHA-256 of the file's bytes, so the same rows make the same file and writing
//! them twice changes nothing. Names from traces never become path parts. Within a file rows are sorted by trace and start,
//! and a trace is in one file where it can be.
//! A live collector puts the name of a journal segment and `-` in front of the id.
//! Limits: one file holds at most [`MAX_ROWS`] rows.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use baton_record::prints::PrintKey;
use baton_record::schema;
use baton_record::span::Span;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;
use sha2::{Digest, Sha256};

/// Rows of one file at most; also what is held in memory before a file is written.
pub const MAX_ROWS: usize = 100_000;
/// Of so many rows held, those of the last one part may belong to traces that go on.
const RECENT: usize = 20;
/// Bytes of kept text and fingerprints held in memory before a file is written, roughly.
const MAX_HELD: usize = 192 << 20;
/// How the names of files that are not whole yet begin and end.
pub(crate) const TEMPORARY: (&str, &str) = (".writing-", ".tmp");

/// Why the store could not be written or opened.
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
    /// The Parquet writer failed.
    #[error("{path}: {source}")]
    Parquet {
        /// Where.
        path: PathBuf,
        /// What it said.
        source: ParquetError,
    },
    /// The key file holds no key.
    #[error("{0}: holds no key of 32 hex digits")]
    Key(PathBuf),
}

type Result<T, E = Error> = std::result::Result<T, E>;

fn at(path: &Path) -> impl FnOnce(io::Error) -> Error + '_ {
    move |source| Error::Io { path: path.to_owned(), source }
}

/// A store folder that rows are written to.
#[derive(Debug)]
pub struct Store {
    root: PathBuf,
    key: PrintKey,
    rows: Vec<Span>,
    held: usize,
    /// Files written, not counting those that were there already.
    pub files_written: usize,
}

impl Store {
    /// Opens a store and makes it, with a random key, where it does not exist.
    ///
    /// # Errors
    /// Where the folder or its key cannot be read or made.
    pub fn open(root: &Path) -> Result<Self> {
        make_dir(&root.join("spans"))?;
        let path = root.join("key");
        let key = match fs::read_to_string(&path) {
            Ok(text) => PrintKey::from_hex(&text).ok_or_else(|| Error::Key(path.clone()))?,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let key = new_key(&path)?;
                sync_dir(root).map_err(at(root))?;
                key
            }
            Err(e) => return Err(at(&path)(e)),
        };
        Ok(Self { root: root.to_owned(), key, rows: Vec::new(), held: 0, files_written: 0 })
    }

    /// A store for one evaluation: its key is fixed and not written.
    ///
    /// # Errors
    /// Where the folder cannot be made.
    pub fn ephemeral(root: &Path) -> Result<Self> {
        make_dir(&root.join("spans"))?;
        Ok(Self {
            root: root.to_owned(),
            key: PrintKey::default(),
            rows: Vec::new(),
            held: 0,
            files_written: 0,
        })
    }

    /// The key of this store's fingerprints.
    pub fn key(&self) -> PrintKey {
        self.key
    }

    /// Rows held that are in no file yet.
    pub fn held_rows(&self) -> usize {
        self.rows.len()
    }

    /// True where so much is held that a file is due.
    pub fn is_full(&self) -> bool {
        self.rows.len() >= MAX_ROWS || self.held >= MAX_HELD
    }

    /// Takes rows; writes files when enough are held.
    ///
    /// # Errors
    /// Where a file cannot be written. Its rows, this one included, are still held.
    pub fn push(&mut self, row: Span) -> Result<()> {
        self.held += weight(&row);
        self.rows.push(row);
        if self.is_full() { self.spill() } else { Ok(()) }
    }

    /// Writes the traces that seem to have ended. Those that rows came for just now are held on, so that a trace is in one file
    /// where it can be; what is held on is at most half.
    fn spill(&mut self) -> Result<()> {
        let n = self.rows.len();
        let recent: HashSet<&str> = self.rows[n - n / RECENT..].iter().map(|r| r.trace_id.as_str()).collect();
        let open: Vec<bool> = self.rows.iter().map(|r| recent.contains(r.trace_id.as_str())).collect();
        let kept = if open.iter().filter(|o| **o).count() > n / 2 { vec![false; n] } else { open };
        let mut kept = kept.into_iter();
        let (held_on, ended): (Vec<Span>, Vec<Span>) =
            std::mem::take(&mut self.rows).into_iter().partition(|_| kept.next() == Some(true));
        self.held = held_on.iter().map(weight).sum();
        self.rows = held_on;
        self.write(ended)
    }

    /// Writes what is held.
    ///
    /// # Errors
    /// Where a file cannot be written. Its rows are held on, and the next call tries again.
    pub fn flush(&mut self) -> Result<()> {
        self.held = 0;
        let rows = std::mem::take(&mut self.rows);
        self.write(rows)
    }

    fn write(&mut self, mut rows: Vec<Span>) -> Result<()> {
        rows.sort_by(|a, b| (&a.trace_id, a.start, &a.span_id).cmp(&(&b.trace_id, b.start, &b.span_id)));
        // The first start of a trace decides for all of its rows.
        let folders: Vec<String> = rows
            .chunk_by(|a, b| a.trace_id == b.trace_id)
            .flat_map(|t| std::iter::repeat_n(partition(t.iter().find_map(|r| r.start)), t.len()))
            .collect();
        let mut parts: BTreeMap<String, Vec<Span>> = BTreeMap::new();
        for (row, folder) in rows.into_iter().zip(folders) {
            parts.entry(folder).or_default().push(row);
        }
        let mut failed = None;
        for (part, rows) in parts {
            match write_file(&self.root.join("spans").join(part), &rows) {
                Ok(new) => self.files_written += usize::from(new),
                Err(e) => {
                    self.held += rows.iter().map(weight).sum::<usize>();
                    self.rows.extend(rows);
                    failed = failed.or(Some(e));
                }
            }
        }
        failed.map_or(Ok(()), Err)
    }
}

fn weight(row: &Span) -> usize {
    let items = row.input.iter().chain(&row.output).flatten();
    400 + items
        .map(|i| {
            200 + i.text.as_ref().map_or(0, |t| t.len())
                + i.prints.shingles.len() * 4
                + i.prints.idents.len() * 8
        })
        .sum::<usize>()
        + row
            .payloads
            .iter()
            .map(|p| {
                300 + p.text.as_ref().map_or(0, |t| t.len())
                    + p.prints.shingles.len() * 4
                    + p.prints.idents.len() * 8
            })
            .sum::<usize>()
}

fn new_key(path: &Path) -> Result<PrintKey> {
    let mut key = [0u8; 16];
    getrandom::fill(&mut key).map_err(|e| at(path)(io::Error::other(e.to_string())))?;
    let text = baton_record::canonical::hex(&key);
    // Whole at once: another process that opens the store now finds no key or all of it. Readable by its owner alone.
    let dir = path.parent().unwrap_or(Path::new("."));
    let mut temporary = tempfile::NamedTempFile::new_in(dir).map_err(at(path))?;
    temporary.write_all(text.as_bytes()).and_then(|()| temporary.as_file().sync_all()).map_err(at(path))?;
    match temporary.persist_noclobber(path) {
        Ok(_) => {}
        Err(e) if e.error.kind() == io::ErrorKind::AlreadyExists => {
            let text = fs::read_to_string(path).map_err(at(path))?;
            return PrintKey::from_hex(&text).ok_or_else(|| Error::Key(path.to_owned()));
        }
        Err(e) => return Err(at(path)(e.error)),
    }
    Ok(PrintKey(key))
}

/// The folder of a start time.
pub(crate) fn partition(start: Option<i64>) -> String {
    let Some(ns) = start else { return "date=unknown/hour=00".to_owned() };
    let secs = ns.div_euclid(1_000_000_000);
    let (days, rest) = (secs.div_euclid(86_400), secs.rem_euclid(86_400));
    let (y, m, d) = civil(days);
    format!("date={y:04}-{m:02}-{d:02}/hour={:02}", rest / 3600)
}

/// Days since 1970-01-01 as a Gregorian date.
pub(crate) fn civil(days: i64) -> (i64, i64, i64) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let doe = z.rem_euclid(146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let m = if mp < 10 { mp + 3 } else { mp - 9 };
    (yoe + era * 400 + i64::from(m <= 2), m, doy - (153 * mp + 2) / 5 + 1)
}

/// `live`: a file that is soon merged with others, so that it is packed fast and not small.
fn properties(replaces: &[String], live: bool) -> WriterProperties {
    let mut marks = vec![KeyValue::new(schema::VERSION_KEY.to_owned(), schema::VERSION.to_owned())];
    if !replaces.is_empty() {
        let list = serde_json::Value::from(replaces).to_string();
        marks.push(KeyValue::new(schema::REPLACES_KEY.to_owned(), list));
    }
    let mut p = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(if live { 1 } else { 3 }).unwrap_or_default()))
        .set_max_row_group_row_count(Some(MAX_ROWS))
        // Statistics serve to skip by trace and time; on the rest they only cost space.
        .set_statistics_enabled(EnabledStatistics::None)
        .set_key_value_metadata(Some(marks))
        .set_created_by("baton".to_owned());
    for name in ["trace_id", "start", "end", "conversation_id", "service", "role"] {
        p = p.set_column_statistics_enabled(ColumnPath::from(name), EnabledStatistics::Page);
    }
    // Values that hardly repeat: a dictionary would be built and thrown away.
    for name in ["span_id", "parent_id", "start", "end", "response_id"] {
        p = p.set_column_dictionary_enabled(ColumnPath::from(name), false);
    }
    if live {
        // What items hold stands once per trace.
        for name in ["hash", "shingles", "idents", "text"] {
            let path = ["contents", "list", "item", name].map(str::to_owned).to_vec();
            p = p.set_column_dictionary_enabled(ColumnPath::new(path), false);
        }
    }
    p.build()
}

/// Writes rows to a file of the folder; false where the same file was there already.
fn write_file(dir: &Path, rows: &[Span]) -> Result<bool> {
    let parquet = |source| Error::Parquet { path: dir.to_owned(), source };
    let (_, new) = put(dir, "", &[], |w| {
        let mut encoder = schema::Encoder::default();
        for chunk in rows.chunks(8192) {
            w.write(&encoder.encode(chunk).map_err(|e| parquet(e.into()))?).map_err(parquet)?;
        }
        Ok::<_, Error>(())
    })?;
    Ok(new)
}

/// Begins a file of rows; a `live` one will be merged with others later.
pub(crate) fn writer<W: Write + Send>(
    to: W,
    replaces: &[String],
    live: bool,
) -> Result<ArrowWriter<W>, ParquetError> {
    ArrowWriter::try_new(to, schema::schema(), Some(properties(replaces, live)))
}

/// What takes the rows of a file.
pub(crate) type Writer<'a> = ArrowWriter<BufWriter<&'a File>>;

/// Puts a file of rows into a folder: under a temporary name first, then, whole and synced, under its own. Says its path, and
/// false where the same file was there already. The name is `prefix` (of a live
/// collector's file) and the id of the bytes. The paths it `replaces` stand
/// under [`schema::REPLACES_KEY`].
pub(crate) fn put<E: From<Error>>(
    dir: &Path,
    prefix: &str,
    replaces: &[String],
    fill: impl FnOnce(&mut Writer<'_>) -> Result<(), E>,
) -> Result<(PathBuf, bool), E> {
    let temporary = temporary_in(dir)?;
    let path = temporary.path().to_owned();
    let parquet = |source| Error::Parquet { path: path.clone(), source };
    let out = BufWriter::new(temporary.as_file());
    let mut w = writer(out, replaces, !prefix.is_empty()).map_err(parquet)?;
    fill(&mut w)?;
    let mut inner = w.into_inner().map_err(parquet)?;
    inner.flush().map_err(at(&path))?;
    drop(inner);
    let target = dir.join(format!("{prefix}{}.parquet", file_id(&path).map_err(at(&path))?));
    if target.exists() {
        // Who wrote it may have been stopped before its name was on disk.
        sync_dir(dir).map_err(at(dir))?;
        return Ok((target, false));
    }
    temporary.as_file().sync_all().map_err(at(&path))?;
    temporary.persist(&target).map_err(|e| at(&target)(e.error))?;
    sync_dir(dir).map_err(at(dir))?;
    Ok((target, true))
}

/// Makes a temporary file, and the folder where it does not exist.
fn temporary_in(dir: &Path) -> Result<tempfile::NamedTempFile> {
    let mut name = tempfile::Builder::new();
    name.prefix(TEMPORARY.0).suffix(TEMPORARY.1);
    make_dir(dir)?;
    match name.tempfile_in(dir) {
        // An old folder that was empty may be removed in between.
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            make_dir(dir)?;
            name.tempfile_in(dir).map_err(at(dir))
        }
        other => other.map_err(at(dir)),
    }
}

/// True where a file's bytes are those its name was given for.
///
/// # Errors
/// Where it cannot be read.
pub(crate) fn is_whole(path: &Path) -> io::Result<bool> {
    let stem = path.file_stem().and_then(|s| s.to_str()).unwrap_or_default();
    let id = stem.rsplit('-').next().unwrap_or_default();
    Ok(file_id(path)? == id)
}

/// The id of a file: the start of the SHA-256 of its bytes, in hex.
fn file_id(path: &Path) -> io::Result<String> {
    let mut f = File::open(path)?;
    let mut hash = Sha256::new();
    let mut buf = vec![0u8; 1 << 16];
    loop {
        match f.read(&mut buf)? {
            0 => break,
            n => hash.update(&buf[..n]),
        }
    }
    Ok(baton_record::canonical::hex(&hash.finalize()[..16]))
}

/// Makes a folder and those above it. Each is synced into the one above: a file is only as durable as the way to it.
pub(crate) fn make_dir(dir: &Path) -> Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    let above = dir.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    make_dir(above)?;
    match fs::create_dir(dir) {
        // Another process may have made it in between.
        Err(_) if dir.is_dir() => {}
        made => made.map_err(at(dir))?,
    }
    sync_dir(above).map_err(at(above))
}

/// Makes lasting what was added to a folder or removed from it.
#[cfg(unix)]
pub(crate) fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Makes lasting what was added to a folder or removed from it: nothing to do here.
#[cfg(not(unix))]
pub(crate) fn sync_dir(_: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(span: &str, start: Option<i64>) -> Span {
        Span { trace_id: "t".repeat(32), span_id: span.repeat(16), start, ..Span::default() }
    }

    fn files(root: &Path) -> Vec<String> {
        let mut v: Vec<String> = walkdir::WalkDir::new(root)
            .into_iter()
            .flatten()
            .filter(|e| e.file_type().is_file())
            .map(|e| e.path().strip_prefix(root).map(|p| p.display().to_string()).unwrap_or_default())
            .collect();
        v.sort();
        v
    }

    #[test]
    fn partitions_follow_the_start_time() {
        assert_eq!(partition(Some(1_795_973_864_000_000_000)), "date=2026-11-29/hour=17");
        assert_eq!(partition(Some(951_782_400_000_000_000)), "date=2000-02-29/hour=00");
        assert_eq!(partition(None), "date=unknown/hour=00");
    }

    #[test]
    fn writing_the_same_rows_twice_changes_nothing() -> std::result::Result<(), Box<dyn std::error::Error>> {
        let dir = tempfile::tempdir()?;
        for n in 0..2 {
            let mut s = Store::open(dir.path())?;
            s.push(row("b", Some(1_795_973_864_000_000_000)))?;
            s.push(row("a", None))?;
            s.flush()?;
            // One trace is in one file, also a row of it without a time.
            assert_eq!(s.files_written, if n == 0 { 1 } else { 0 });
        }
        let found = files(dir.path());
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found.iter().all(|f| !f.contains(".tmp")));
        Ok(())
    }

    #[test]
    fn rows_that_cannot_be_written_are_held_on() -> std::result::Result<(), Box<dyn std::error::Error>> {
        let dir = tempfile::tempdir()?;
        let mut s = Store::open(dir.path())?;
        // Where the folder of one day should be is a file; the other day can be written.
        let day = dir.path().join("spans/date=2000-02-29");
        fs::write(&day, "")?;
        s.push(row("a", Some(951_782_400_000_000_000)))?;
        s.push(Span { trace_id: "u".repeat(32), ..row("b", Some(1_795_973_864_000_000_000)) })?;
        let held = s.held;
        assert!(s.flush().is_err());
        assert_eq!((s.files_written, s.held_rows(), s.held), (1, 1, held / 2));
        fs::remove_file(&day)?;
        s.flush()?;
        assert_eq!((s.files_written, s.held_rows(), s.held), (2, 0, 0));
        Ok(())
    }

    #[test]
    fn a_store_keeps_its_key() -> std::result::Result<(), Box<dyn std::error::Error>> {
        let dir = tempfile::tempdir()?;
        let first = Store::open(dir.path())?.key();
        assert!(first == Store::open(dir.path())?.key());
        assert!(first != PrintKey::default());
        fs::write(dir.path().join("key"), "nonsense")?;
        assert!(matches!(Store::open(dir.path()), Err(Error::Key(_))));
        Ok(())
    }
}
