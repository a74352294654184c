//! The same on an object store.
//!
//! What a run has to see of the store is mirrored in a temporary folder, with the times of the objects; the run changes the mirror as it
//! would a store; then the store is given what is new in it, and after that loses what is gone. So there is one way of keeping order.
//! An hour is mirrored at a time, and only where something is to be done in it.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use baton_record::objects::{self, Listed, Objects, all, each};
use tempfile::TempDir;
use walkdir::WalkDir;

use super::check::{self, Checked};
use super::compact::{self, CompactSettings, Compacted};
use super::retain::{self, RetainSettings, Retained};
use super::{Error, Footer, age, at, footer, nanos, read_footer};

const SPANS: &str = "spans";
/// Is there while a run is under way.
const LOCK: &str = "compact.lock";
/// A run that was not heard of for longer did not come to its end.
const LONGEST: Duration = Duration::from_secs(3600);

/// Merges small files, as [`super::compact()`] does.
///
/// # Errors
/// As there, and the object store's.
pub async fn compact(
    objects: &Objects,
    settings: &CompactSettings,
    now: SystemTime,
) -> Result<Compacted, Error> {
    let lock = Lock::take(objects, settings.dry_run, now).await?;
    let mut out = Compacted { dry_run: settings.dry_run, ..Compacted::default() };
    let done = async {
        for (_, files) in hours(objects.list(SPANS).await?) {
            if !worth(objects, &files, settings, now).await? {
                continue;
            }
            let mirror = Mirror::of(objects, &files, true).await?;
            let found = compact::compact(mirror.store(), settings, now)?;
            mirror.give_back(objects).await?;
            lock.renew(objects).await?;
            out.merged.extend(found.merged);
            out.deleted.extend(found.deleted);
            out.waiting += found.waiting;
            out.problems.extend(found.problems);
        }
        Ok(())
    }
    .await;
    lock.give_back(objects).await;
    done.map(|()| out)
}

/// Removes the rows of old hours, as [`super::retain()`] does.
///
/// # Errors
/// As there, and the object store's.
pub async fn retain(
    objects: &Objects,
    settings: &RetainSettings,
    now: SystemTime,
) -> Result<Retained, Error> {
    let lock = Lock::take(objects, settings.dry_run, now).await?;
    let done = async {
        // Names, sizes and times decide.
        let mirror = Mirror::of(objects, &objects.list(SPANS).await?, false).await?;
        let mut out = retain::retain(mirror.store(), settings, now)?;
        mirror.give_back(objects).await?;
        // There are no folders.
        out.folders.clear();
        Ok(out)
    }
    .await;
    lock.give_back(objects).await;
    done
}

/// Verifies a store, as [`super::check()`] does, an hour at a time: a span that stands in two hours is not seen to be there twice.
///
/// # Errors
/// As there, and the object store's.
pub async fn check(objects: &Objects, now: SystemTime) -> Result<Checked, Error> {
    let listed = objects.list(SPANS).await?;
    if listed.is_empty() && objects.key().await?.is_none() {
        return Err(Error::NoStore(PathBuf::from(objects.url(""))));
    }
    let mut out = Checked::default();
    for (_, files) in hours(listed) {
        let found = check::check(Mirror::of(objects, &files, true).await?.store(), now)?;
        out.problems.extend(found.problems);
        out.folders.extend(found.folders);
        out.files += found.files;
        out.rows += found.rows;
        out.traces += found.traces;
        out.doubles += found.doubles;
        out.replaced.extend(found.replaced);
        out.gone.extend(found.gone);
        out.orphans.extend(found.orphans);
        out.leftovers.extend(found.leftovers);
        out.unknown.extend(found.unknown);
    }
    Ok(out)
}

/// Objects by their folder.
fn hours(listed: Vec<Listed>) -> BTreeMap<String, Vec<Listed>> {
    let mut out: BTreeMap<String, Vec<Listed>> = BTreeMap::new();
    for f in listed {
        let folder = f.name.rsplit_once('/').map_or("", |(folder, _)| folder).to_owned();
        out.entry(folder).or_default().push(f);
    }
    out
}

/// True where something is to be done in a folder: only footers are read to say so.
async fn worth(
    objects: &Objects,
    files: &[Listed],
    settings: &CompactSettings,
    now: SystemTime,
) -> Result<bool, Error> {
    let parquet: Vec<&Listed> = files.iter().filter(|f| f.name.ends_with(".parquet")).collect();
    if parquet.len() < 2 {
        return Ok(false);
    }
    let read = parquet.iter().map(|f| (f.name.clone(), f.size)).collect();
    let found = all(read, |(name, size): (String, u64)| async move {
        match objects.footer(&name, size).await {
            // It is no Parquet file, which is told of the mirror.
            Err(objects::Error::Content { .. }) => Ok(None),
            found => found,
        }
    });
    let footers = found.await?.into_iter().map(|m| read_footer(&m?).ok());
    let Some(footers) = footers.collect::<Option<Vec<Footer>>>() else {
        // One is damaged, or gone.
        return Ok(true);
    };
    let name = |f: &Listed| f.name.strip_prefix("spans/").unwrap_or(&f.name).to_owned();
    let gone: HashSet<String> =
        files.iter().filter_map(|f| Some(f.name.strip_suffix(".gone")?.to_owned())).collect();
    let replaced: HashSet<&String> = footers.iter().flat_map(|f| &f.replaces).collect();
    let due = |(f, footer): (&&Listed, &Footer)| {
        age(f.modified, now) >= settings.grace
            && footer.replaces.iter().any(|r| parquet.iter().any(|p| name(p) == *r))
    };
    if parquet.iter().zip(&footers).any(due) {
        return Ok(true);
    }
    let live = parquet
        .iter()
        .zip(footers.iter().cloned())
        .filter(|(f, _)| !replaced.contains(&name(f)) && !gone.contains(&f.name))
        .map(|(f, footer)| (name(f), footer));
    Ok(compact::has_work(live.collect()))
}

/// Held while a run is under way: what it says, where it is held.
struct Lock(Option<String>);

impl Lock {
    async fn take(objects: &Objects, looking: bool, now: SystemTime) -> Result<Self, Error> {
        if looking {
            return Ok(Self(None));
        }
        let taker = format!("{} {}", std::process::id(), nanos(now));
        for _ in 0..2 {
            // The answer may get lost, and then it is there when it is made again.
            if objects.create(LOCK, taker.clone()).await?
                || objects.get(LOCK).await?.is_some_and(|holder| *holder == *taker.as_bytes())
            {
                return Ok(Self(Some(taker)));
            }
            let held = objects.modified(LOCK).await?;
            if held.is_none_or(|since| age(since, SystemTime::now()) <= LONGEST) {
                break;
            }
            objects.delete(vec![LOCK.to_owned()]).await?;
        }
        Err(Error::Busy(PathBuf::from(objects.url(LOCK))))
    }

    /// Says that the run goes on.
    async fn renew(&self, objects: &Objects) -> Result<(), Error> {
        match &self.0 {
            Some(taker) => Ok(objects.put(LOCK, taker.clone()).await?),
            None => Ok(()),
        }
    }

    /// Where that fails, the lock is old some time.
    async fn give_back(self, objects: &Objects) {
        if self.0.is_some() {
            let _ = objects.delete(vec![LOCK.to_owned()]).await;
        }
    }
}

/// Some files of a store, in a folder.
struct Mirror {
    dir: TempDir,
    before: BTreeSet<String>,
    /// Files that replace others: they go last, or what they replace would come back.
    last: HashSet<String>,
}

impl Mirror {
    async fn of(objects: &Objects, files: &[Listed], content: bool) -> Result<Self, Error> {
        let dir = tempfile::Builder::new().prefix("baton-").tempdir().map_err(at(&std::env::temp_dir()))?;
        fs::create_dir(dir.path().join(SPANS)).map_err(at(dir.path()))?;
        for f in files {
            let folder = dir.path().join(&f.name);
            let folder = folder.parent().unwrap_or(dir.path());
            fs::create_dir_all(folder).map_err(at(folder))?;
        }
        let gone = Mutex::new(HashSet::new());
        each(files.to_vec(), |f: Listed| async {
            let f = f;
            let path = dir.path().join(&f.name);
            if content && !objects.fetch(&f.name, &path).await? {
                gone.lock().unwrap_or_else(PoisonError::into_inner).insert(f.name);
                return Ok::<_, Error>(());
            }
            let file = File::options().create(true).append(true).open(&path).map_err(at(&path))?;
            if !content {
                // No byte of it is on the disk.
                file.set_len(f.size).map_err(at(&path))?;
            }
            file.set_modified(f.modified).map_err(at(&path))
        })
        .await?;
        let gone = gone.into_inner().unwrap_or_else(PoisonError::into_inner);
        for name in &gone {
            let path = dir.path().join(name);
            let _ = fs::remove_file(path);
        }
        let before: BTreeSet<String> =
            files.iter().map(|f| f.name.clone()).filter(|n| !gone.contains(n)).collect();
        let replacing = |name: &&String| {
            name.ends_with(".parquet") && footer(&dir.path().join(name)).is_ok_and(|f| !f.replaces.is_empty())
        };
        let last = before.iter().filter(replacing).cloned().collect();
        Ok(Self { dir, before, last })
    }

    fn store(&self) -> &Path {
        self.dir.path()
    }

    /// Does to the store what was done to the mirror.
    async fn give_back(self, objects: &Objects) -> Result<(), Error> {
        let mut after = BTreeSet::new();
        for entry in WalkDir::new(self.dir.path().join(SPANS)) {
            let entry = entry.map_err(|e| at(self.dir.path())(e.into()))?;
            if entry.file_type().is_file() {
                let below = entry.path().strip_prefix(self.dir.path()).unwrap_or(entry.path());
                after.insert(below.iter().map(|p| p.to_string_lossy()).collect::<Vec<_>>().join("/"));
            }
        }
        let new = after.difference(&self.before).cloned().collect();
        let mirror = self.dir.path();
        each(new, |name: String| async move { objects.send(&mirror.join(&name), &name).await }).await?;
        let gone = self.before.difference(&after).cloned();
        // A file goes before its tombstone.
        let last = |n: &String| n.ends_with(".gone") || self.last.contains(n);
        let (last, first): (Vec<String>, Vec<String>) = gone.partition(last);
        objects.delete(first).await?;
        objects.delete(last).await?;
        Ok(())
    }
}
