//! Many small files of an hour become few large ones.
//!
//! Always: one merged file takes the place of whole files, so that the moment it appears decides for all their rows at once. It
//! is written as every file of the store is, and names what it replaces: its inputs, and what those named that is still
//! there. What is replaced is deleted by a later run, and only where the merged file is intact then.
//! Limits: a merged file has at most [`MAX_ROWS`] rows and [`MAX_BYTES`]. Files are taken in the order of their first
//! start, so that a trace, whose rows came one after the other, is in one file where it can be. `date=unknown` is left as it is:
//! what lies there is removed by the age of its files, and merging would make old rows young.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::Path;
use std::time::{Duration, SystemTime};

use serde::Serialize;

use super::merge::{self, BATCH, Failure};
use super::walk::{Found, Hour, walk};
use super::{
    Error, Footer, GRACE, LEFTOVER, Problem, Seen, State, age, at, delete, footer, lock, name_of, nanos,
    spans_of, survey,
};
use crate::store::{MAX_ROWS, is_whole, sync_dir};

/// Bytes of a merged file at most, encoded and before compression, as its inputs say: what the Parquet writer may hold.
pub const MAX_BYTES: u64 = 192 << 20;
/// Files read at the same time, where each is read in one batch.
const MAX_INPUTS: u64 = 64;
/// As how many a file counts that takes several batches: its reader stays open, and holds megabytes.
const LARGE: u64 = 4;
/// Bytes of a batch of a file that counts as one, roughly.
const SHARE: u64 = 768 << 10;

/// What is merged.
#[derive(Debug, Clone)]
pub struct CompactSettings {
    /// Hours that have not ended, too.
    pub all: bool,
    /// How long ago an hour must have ended: rows come a little late.
    pub settle: Duration,
    /// How long replaced files stay.
    pub grace: Duration,
    /// Only say what would be done.
    pub dry_run: bool,
}

impl Default for CompactSettings {
    fn default() -> Self {
        Self { all: false, settle: Duration::from_secs(600), grace: GRACE, dry_run: false }
    }
}

/// Files merged into one, or that would be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Merge {
    /// The folder, relative to `spans/`.
    pub folder: String,
    /// How many files.
    pub files: usize,
    /// Their rows.
    pub rows: u64,
    /// Their bytes on disk.
    pub bytes: u64,
    /// What they became; `None` in a dry run.
    pub into: Option<MergedFile>,
}

/// A merged file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MergedFile {
    /// The file, relative to `spans/`.
    pub file: String,
    /// Its rows: fewer than before where some were equal.
    pub rows: u64,
    /// Its bytes on disk.
    pub bytes: u64,
}

/// What [`compact()`] did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Compacted {
    /// Nothing was changed; this is what would have been done.
    pub dry_run: bool,
    /// What was merged. Files that were merged may have been merged again.
    pub merged: Vec<Merge>,
    /// Replaced files deleted, and files that a crash left half written; relative to `spans/`.
    pub deleted: Vec<String>,
    /// Replaced files that are still there.
    pub waiting: usize,
    /// Files left alone, and why.
    pub problems: Vec<Problem>,
}

/// Merges the small files of hours that have ended, and deletes files that earlier runs replaced.
///
/// # Errors
/// [`Error::Busy`] where another process is at it; where a folder cannot be read or a file not be written. A file that is
/// damaged or not of this layout is no error: it is left alone and reported.
pub fn compact(store: &Path, settings: &CompactSettings, now: SystemTime) -> Result<Compacted, Error> {
    let spans = spans_of(store)?;
    // Looking needs no lock, and makes no file.
    let _lock = if settings.dry_run { None } else { Some(lock(store)?) };
    let mut hours = walk(&spans)?.hours;
    let seen: BTreeMap<String, Seen> =
        survey(&spans).map_err(at(&spans))?.into_iter().map(|s| (s.name.clone(), s)).collect();
    let mut run = Run { spans: &spans, settings, now, present: HashSet::new(), out: Compacted::default() };
    run.out.dry_run = settings.dry_run;
    for (name, s) in &seen {
        if let Err(reason) = &s.footer {
            run.out.problems.push(Problem::new(name, reason));
        }
    }
    run.clean(&mut hours, &seen)?;
    run.present = hours.iter().flat_map(|h| &h.files).map(|f| f.name.clone()).collect();
    for hour in &hours {
        if run.is_closed(hour) {
            let live = |f: &&Found| seen.get(&f.name).is_some_and(|s| s.state == State::Live);
            let files = hour.files.iter().filter(live).filter_map(|f| {
                let footer = seen.get(&f.name)?.footer.as_ref().ok()?;
                Some(File { found: f.clone(), footer: footer.clone() })
            });
            run.hour(hour, files.collect())?;
        }
    }
    Ok(run.out)
}

/// A file that may be merged.
struct File {
    found: Found,
    footer: Footer,
}

impl File {
    /// As how many files it counts while it is read.
    fn weight(&self) -> u64 {
        let in_one = self.footer.rows <= BATCH as u64 && self.footer.encoded <= SHARE;
        if in_one { 1 } else { LARGE }
    }

    /// Rows read at once.
    fn batch(&self) -> usize {
        let each = (self.footer.encoded / self.footer.rows.max(1)).max(1);
        usize::try_from(self.weight() * SHARE / each).unwrap_or(BATCH).clamp(8, BATCH)
    }
}

struct Run<'a> {
    spans: &'a Path,
    settings: &'a CompactSettings,
    now: SystemTime,
    /// Names of all files that are there.
    present: HashSet<String>,
    out: Compacted,
}

impl Run<'_> {
    fn is_closed(&self, hour: &Hour) -> bool {
        let Some(start) = hour.start else { return false };
        let end = (i128::from(start) + 3600) * 1_000_000_000 + self.settings.settle.as_nanos().cast_signed();
        self.settings.all || end <= nanos(self.now)
    }

    /// Deletes what was replaced long enough ago, and what crashes left.
    fn clean(&mut self, hours: &mut [Hour], seen: &BTreeMap<String, Seen>) -> Result<(), Error> {
        let replacers = self.replacers(hours, seen);
        let mut intact: HashMap<String, bool> = HashMap::new();
        for hour in hours {
            let (mut doomed, mut kept) = (Vec::new(), Vec::new());
            for f in std::mem::take(&mut hour.files) {
                let s = seen.get(&f.name).filter(|s| s.state == State::Replaced);
                let by = replacers.get(&f.name).map_or(&[][..], Vec::as_slice);
                if s.is_some() && by.iter().any(|f| *intact.entry(f.name.clone()).or_insert_with(|| whole(f)))
                {
                    // Those that replace others themselves come last: after a crash, what they replace must not come back.
                    let last = s.and_then(|s| s.footer.as_ref().ok()).is_some_and(|f| !f.replaces.is_empty());
                    doomed.push((last, f));
                } else {
                    self.out.waiting += usize::from(s.is_some());
                    kept.push(f);
                }
            }
            hour.files = kept;
            doomed.sort_by_key(|(last, _)| *last);
            let left = hour.temporary.iter().filter(|t| age(t.modified, self.now) > LEFTOVER).cloned();
            let doomed: Vec<Found> = doomed.into_iter().map(|(_, f)| f).chain(left).collect();
            if doomed.is_empty() {
                continue;
            }
            for f in doomed {
                if !self.settings.dry_run {
                    delete(&f.path)?;
                }
                self.out.deleted.push(f.name);
            }
            if !self.settings.dry_run {
                sync_dir(&hour.dir).map_err(at(&hour.dir))?;
            }
        }
        let broken = intact.into_iter().filter(|(_, whole)| !whole).map(|(name, _)| name);
        for name in broken.collect::<BTreeSet<_>>() {
            self.out.problems.push(Problem::new(&name, "damaged or renamed; what it replaces is kept"));
        }
        Ok(())
    }

    /// For each name the files that replace it and are old enough for it to be deleted.
    fn replacers(&self, hours: &[Hour], seen: &BTreeMap<String, Seen>) -> HashMap<String, Vec<Found>> {
        let mut out: HashMap<String, Vec<Found>> = HashMap::new();
        for f in
            hours.iter().flat_map(|h| &h.files).filter(|f| age(f.modified, self.now) >= self.settings.grace)
        {
            let footer = seen.get(&f.name).and_then(|s| s.footer.as_ref().ok());
            for name in footer.iter().flat_map(|x| &x.replaces) {
                out.entry(name.clone()).or_default().push(f.clone());
            }
        }
        out
    }

    /// Merges until nothing more fits together.
    fn hour(&mut self, hour: &Hour, mut files: Vec<File>) -> Result<(), Error> {
        loop {
            let groups = plan(&mut files);
            if groups.is_empty() {
                return Ok(());
            }
            if self.settings.dry_run {
                for (from, to) in groups {
                    self.out.merged.push(told(hour, &files[from..to]));
                }
                return Ok(());
            }
            let mut next: Vec<File> = Vec::new();
            let mut rest = files.into_iter();
            let mut at = 0;
            for (from, to) in groups {
                next.extend(rest.by_ref().take(from - at));
                next.extend(self.group(hour, rest.by_ref().take(to - from).collect())?);
                at = to;
            }
            next.extend(rest);
            files = next;
        }
    }

    /// Merges files into one. Says what is there now: that one, or the files without a bad one, which is left alone.
    fn group(&mut self, hour: &Hour, mut files: Vec<File>) -> Result<Vec<File>, Error> {
        // Only what is as it was written is read: no decoder has to cope with damage.
        files.retain(|f| {
            let whole = whole(&f.found);
            if !whole {
                self.out.problems.push(Problem::new(&f.found.name, "damaged or renamed; left alone"));
            }
            whole
        });
        if files.len() < 2 {
            return Ok(files);
        }
        let mut replaces: BTreeSet<String> = files.iter().map(|f| f.found.name.clone()).collect();
        let earlier = files.iter().flat_map(|f| &f.footer.replaces);
        replaces.extend(earlier.filter(|name| self.present.contains(*name)).cloned());
        let replaces: Vec<String> = replaces.into_iter().collect();
        let inputs: Vec<(&Path, usize)> = files.iter().map(|f| (f.found.path.as_path(), f.batch())).collect();
        match merge::merge(&inputs, &hour.dir, &replaces) {
            Err(Failure::Output(e)) => Err(e.into()),
            Err(Failure::Input(i, reason)) => {
                let bad = files.remove(i);
                self.out.problems.push(Problem::new(&bad.found.name, reason));
                Ok(files)
            }
            Ok((path, rows)) => {
                let meta = path.metadata().map_err(at(&path))?;
                let name = name_of(self.spans, &path);
                let found = Found {
                    name: name.clone(),
                    bytes: meta.len(),
                    modified: meta.modified().map_err(at(&path))?,
                    path,
                };
                let mut merge = told(hour, &files);
                merge.into = Some(MergedFile { file: name.clone(), rows, bytes: found.bytes });
                self.out.merged.push(merge);
                self.out.waiting += files.len();
                self.present.insert(name.clone());
                match footer(&found.path) {
                    Ok(footer) => Ok(vec![File { found, footer }]),
                    // Written a moment ago: the disk is at fault, and nothing is deleted on its word.
                    Err(_) => {
                        self.out.problems.push(Problem::new(&name, "cannot be read again"));
                        Ok(Vec::new())
                    }
                }
            }
        }
    }
}

/// True where the bytes are those that the file's name was made from.
fn whole(f: &Found) -> bool {
    is_whole(&f.path).unwrap_or(false)
}

/// Sorts files and says which neighbours go together, as ranges of two files or more.
fn plan(files: &mut [File]) -> Vec<(usize, usize)> {
    files.sort_by(|a, b| (a.footer.first, &a.found.name).cmp(&(b.footer.first, &b.found.name)));
    let mut out = Vec::new();
    let (mut from, mut rows, mut bytes, mut inputs) = (0, 0, 0, 0);
    for (i, f) in files.iter().enumerate() {
        rows += f.footer.rows;
        bytes += f.footer.encoded;
        inputs += f.weight();
        if rows > MAX_ROWS as u64 || bytes > MAX_BYTES || inputs > MAX_INPUTS {
            out.push((from, i));
            (from, rows, bytes, inputs) = (i, f.footer.rows, f.footer.encoded, f.weight());
        }
    }
    out.push((from, files.len()));
    out.retain(|(from, to)| to - from > 1);
    out
}

/// True where of live files, by name, some would be merged.
#[cfg(feature = "server")]
pub(super) fn has_work(files: Vec<(String, Footer)>) -> bool {
    let file = |(name, footer): (String, Footer)| {
        let found = Found { path: name.as_str().into(), bytes: 0, modified: SystemTime::UNIX_EPOCH, name };
        File { found, footer }
    };
    !plan(&mut files.into_iter().map(file).collect::<Vec<_>>()).is_empty()
}

fn told(hour: &Hour, files: &[File]) -> Merge {
    Merge {
        folder: hour.name.clone(),
        files: files.len(),
        rows: files.iter().map(|f| f.footer.rows).sum(),
        bytes: files.iter().map(|f| f.found.bytes).sum(),
        into: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(first: i64, rows: u64, encoded: u64) -> File {
        let found = Found {
            path: Path::new("x").to_owned(),
            name: String::new(),
            bytes: 1,
            modified: SystemTime::UNIX_EPOCH,
        };
        File { found, footer: Footer { rows, encoded, first: Some(first), replaces: Vec::new() } }
    }

    /// What is merged of files with a first start, rows and bytes.
    fn planned(files: &[(i64, u64, u64)]) -> Vec<Vec<i64>> {
        let mut files: Vec<File> = files.iter().map(|(f, r, e)| file(*f, *r, *e)).collect();
        let groups = plan(&mut files);
        groups.iter().map(|(a, b)| files[*a..*b].iter().filter_map(|f| f.footer.first).collect()).collect()
    }

    #[test]
    fn neighbours_in_time_go_together_as_far_as_limits_allow() {
        let max = MAX_ROWS as u64;
        let none: [[i64; 0]; 0] = [];
        assert_eq!(planned(&[]), none);
        assert_eq!(planned(&[(1, 5, 5)]), none);
        assert_eq!(planned(&[(3, 5, 5), (1, 5, 5), (2, 5, 5)]), [[1, 2, 3]]);
        // Rows: exactly as many as may be, and one more.
        assert_eq!(planned(&[(1, max - 2, 5), (2, 2, 5), (3, 2, 5), (4, 1, 5)]), [[1, 2], [3, 4]]);
        assert_eq!(planned(&[(1, max, 5), (2, 1, 5)]), none);
        // A file that is too large itself stands in between.
        assert_eq!(planned(&[(1, 1, 5), (2, max + 1, 5), (3, 1, 5), (4, 1, 5)]), [[3, 4]]);
        assert_eq!(planned(&[(1, 1, MAX_BYTES - 5), (2, 1, 5), (3, 1, 5), (4, 1, 5)]), [[1, 2], [3, 4]]);
        // Readers: many for files read at once, few for others.
        let sizes = |rows, encoded| {
            let many: Vec<_> = (0..70).map(|n| (n, rows, encoded)).collect();
            planned(&many).iter().map(Vec::len).collect::<Vec<_>>()
        };
        assert_eq!(sizes(1024, SHARE), [64, 6]);
        assert_eq!(sizes(1025, SHARE), [16, 16, 16, 16, 6]);
        assert_eq!(sizes(1, SHARE + 1), [16, 16, 16, 16, 6]);
    }

    #[test]
    fn a_batch_is_a_file_or_its_share() {
        assert_eq!(file(1, 1024, SHARE).batch(), 1024);
        assert_eq!(file(1, 3, SHARE).batch(), 8);
        assert_eq!(file(1, 90_000, 90_000 << 10).batch(), 1024);
        assert_eq!(file(1, 90_000, 90_000 << 12).batch(), 768);
        assert_eq!(file(1, 4, 180 << 20).batch(), 8);
        assert_eq!(file(1, 0, 0).batch(), BATCH);
    }
}
