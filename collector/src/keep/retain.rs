//! Old hours are removed.
//!
//! Always in two steps: a run puts an empty `<file>.gone` beside a file, and from then on no reader counts it; a later run
//! deletes both, when no reader can have listed the file before. All rows of an hour go at once, files that were replaced
//! included.
//! Limits: an hour counts as old by the name of its folder, which says when its traces began; `date=unknown` by when each
//! file was written.

use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use serde::Serialize;

use super::walk::{Found, Hour, walk};
use super::{Error, GRACE, LEFTOVER, age, at, delete, lock, nanos, spans_of};
use crate::store::sync_dir;

/// What is removed.
#[derive(Debug, Clone)]
pub struct RetainSettings {
    /// How long rows are kept: an hour that ended so long ago, or longer, is removed.
    pub keep: Duration,
    /// How long files stay after they stopped counting.
    pub grace: Duration,
    /// Only say what would be done.
    pub dry_run: bool,
}

impl RetainSettings {
    /// Keeps rows for so long.
    pub fn new(keep: Duration) -> Self {
        Self { keep, grace: GRACE, dry_run: false }
    }
}

/// What [`retain()`] did. All names are relative to `spans/`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Retained {
    /// Nothing was changed; this is what would have been done.
    pub dry_run: bool,
    /// Files that count no more since this run.
    pub hidden: Vec<String>,
    /// Bytes of them, which are free once they are deleted.
    pub hidden_bytes: u64,
    /// Files deleted: those hidden by an earlier run, and in old hours what a crash left half written.
    pub deleted: Vec<String>,
    /// Files hidden that are still there, those of this run included.
    pub waiting: usize,
    /// Folders removed, since they were empty.
    pub folders: Vec<String>,
}

/// Removes the rows of hours that are older than settings say.
///
/// # Errors
/// [`Error::Busy`] where another process keeps this store in order; where a folder or file cannot be read or removed.
pub fn retain(store: &Path, settings: &RetainSettings, now: SystemTime) -> Result<Retained, Error> {
    let spans = spans_of(store)?;
    // Looking needs no lock, and makes no file.
    let _lock = if settings.dry_run { None } else { Some(lock(store)?) };
    let mut run = Run { settings, now, out: Retained { dry_run: settings.dry_run, ..Retained::default() } };
    for hour in walk(&spans)?.hours {
        run.hide(&hour)?;
        run.delete(&hour)?;
        run.remove_empty(&hour)?;
    }
    Ok(run.out)
}

struct Run<'a> {
    settings: &'a RetainSettings,
    now: SystemTime,
    out: Retained,
}

/// The tombstone of a file.
fn tombstone(file: &str) -> String {
    format!("{file}.gone")
}

impl Run<'_> {
    /// True where what ended at this time, in nanoseconds since 1970, is old.
    fn is_old(&self, end: i128) -> bool {
        let keep = i128::try_from(self.settings.keep.as_nanos()).unwrap_or(i128::MAX);
        end <= nanos(self.now).saturating_sub(keep)
    }

    /// True where all rows that may come into the folder are old; `None`: that is said file by file.
    fn hour_is_old(&self, hour: &Hour) -> Option<bool> {
        hour.start.map(|start| self.is_old((i128::from(start) + 3600) * 1_000_000_000))
    }

    /// The first step.
    fn hide(&mut self, hour: &Hour) -> Result<(), Error> {
        let old = |f: &&Found| self.hour_is_old(hour).unwrap_or_else(|| self.is_old(nanos(f.modified)));
        let visible = |f: &&Found| !hour.gone.iter().any(|g| g.name == tombstone(&f.name));
        let doomed: Vec<Found> = hour.files.iter().filter(old).filter(visible).cloned().collect();
        if doomed.is_empty() {
            return Ok(());
        }
        for f in doomed {
            self.out.hidden_bytes += f.bytes;
            self.out.waiting += 1;
            if !self.settings.dry_run {
                let mark =
                    hour.dir.join(tombstone(&f.path.file_name().unwrap_or_default().to_string_lossy()));
                match fs::OpenOptions::new().write(true).create_new(true).open(&mark) {
                    Ok(made) => made.sync_all().map_err(at(&mark))?,
                    Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                    Err(e) => return Err(at(&mark)(e)),
                }
            }
            self.out.hidden.push(f.name);
        }
        if self.settings.dry_run { Ok(()) } else { sync_dir(&hour.dir).map_err(at(&hour.dir)) }
    }

    /// The second step, for what earlier runs hid. The file goes before its tombstone, else a crash would bring it back.
    fn delete(&mut self, hour: &Hour) -> Result<(), Error> {
        let (due, waiting): (Vec<&Found>, Vec<&Found>) =
            hour.gone.iter().partition(|g| age(g.modified, self.now) >= self.settings.grace);
        let file = |g: &Found| hour.files.iter().find(|f| tombstone(&f.name) == g.name);
        self.out.waiting += waiting.iter().filter(|g| file(g).is_some()).count();
        let mut files: Vec<&Found> = due.iter().filter_map(|g| file(g)).collect();
        if self.hour_is_old(hour).unwrap_or(false) {
            files.extend(hour.temporary.iter().filter(|t| age(t.modified, self.now) > LEFTOVER));
        }
        for list in [files, due] {
            for f in &list {
                if !self.settings.dry_run {
                    delete(&f.path)?;
                }
                if !f.name.ends_with(".gone") {
                    self.out.deleted.push(f.name.clone());
                }
            }
            if !list.is_empty() && !self.settings.dry_run {
                sync_dir(&hour.dir).map_err(at(&hour.dir))?;
            }
        }
        Ok(())
    }

    /// Removes the folder of an old hour, and that of its day, where nothing is in them.
    fn remove_empty(&mut self, hour: &Hour) -> Result<(), Error> {
        if self.settings.dry_run || self.hour_is_old(hour) == Some(false) {
            return Ok(());
        }
        let mut dir = Some(hour.dir.as_path());
        let mut name = hour.name.as_str();
        while let (Some(d), false) = (dir, name.is_empty()) {
            match fs::remove_dir(d) {
                Ok(()) => self.out.folders.push(name.to_owned()),
                Err(e) => match e.kind() {
                    io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::NotFound => break,
                    _ => return Err(at(d)(e)),
                },
            }
            dir = d.parent();
            if let Some(above) = dir {
                sync_dir(above).map_err(at(above))?;
            }
            name = name.rsplit_once('/').map_or("", |(above, _)| above);
        }
        Ok(())
    }
}
