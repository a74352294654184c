//! The assembled tables of a store, kept from one question to the next and brought up to date where spans have come or gone.
//!
//! ```text
//! <store>/tables/current -> 12               changed in one step, so that nobody reads half a refresh; on an object store a file `12`
//! <store>/tables/12/state.json               what the tables stand on
//! <store>/tables/12/tasks/<unit>.parquet     and the other tables: a unit is a file of each, with the rows of whole tasks
//! <store>/tables/traces/<file>               what decides which traces are one task, of each file of spans
//! ```
//!
//! A refresh makes a new folder. Units without a change are linked into it. Tasks with a trace that came, went or was joined
//! are taken out of the units they stand in and assembled again with those that are new, so the tables are the same as if they were
//! made at once. What a folder was replaced by stays a while for those who read it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use baton_record::canonical::sha256_hex;
use baton_record::config::Config;
use baton_record::objects::{self, Listed};
use baton_record::schema;
use foldhash::{HashMap, HashSet};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use crate::assemble::HistoryFilter;
use crate::engine::Engine;
use crate::files::Live;
use crate::group::{FileTraces, Groups};
use crate::place::{Local, Place};
use crate::session::{Error, Limits, Result, io};
use crate::units::{self, TaskTraces};
use crate::work::{ASIDE, BUILD, Done, Job, Part, TRACES, Worker, runs, traces_of, unpacked};

/// How long a folder that was replaced stays for those who read it.
const GRACE: Duration = Duration::from_secs(600);
/// How long a refresh may take on an object store, where nothing tells whether its process lives.
const LONGEST: Duration = Duration::from_secs(24 * 3600);
/// How long a listing is waited for that lacks what was put.
const LAG: Duration = Duration::from_secs(60);
/// Where the tables lie.
const TABLES: &str = "tables";
/// There: the folder that counts.
const CURRENT: &str = "tables/current";
/// In a folder: what it stands on.
const STATE: &str = "state.json";
/// In a folder: it was replaced, at the time of this file.
const REPLACED: &str = "replaced";
/// In a folder of an object store: somebody makes it.
const CLAIMED: &str = "claimed";
/// Rows that were set aside are held while they are assembled, and take some times the room that they take in files.
const BUCKET: usize = 8;
/// So many rows that were set aside are worth more than one bucket.
const MANY_ROWS: usize = 100_000;
/// Units with fewer rows are merged, where there are more than [`MANY`].
const SMALL: usize = 128 * 1024;
const MANY: usize = 16;
/// Traces that are asked for by name in older files; of more, the files are read whole.
const NAMED: usize = 10_000;

/// What the tables of a folder stand on.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub(crate) struct State {
    /// Of the layout, the configuration and this program: tables that were made under another one are made anew.
    identity: String,
    /// The files of spans that count.
    files: BTreeSet<String>,
    /// Of all files of spans that were there: those they replace.
    pub(crate) replaces: BTreeMap<String, Vec<String>>,
    /// Number of the refresh.
    refresh: u64,
    /// Units with the number of their rows.
    units: BTreeMap<String, usize>,
    /// Recordings of spans beyond the first of each. Never too few; where tasks were assembled again, too many.
    doubled: u64,
}

/// Tables and what they stand on.
#[derive(Debug, Clone)]
pub(crate) struct Kept {
    /// The folder with a folder for each table, below the store.
    pub(crate) folder: String,
    pub(crate) state: State,
}

impl Kept {
    /// No span was recorded twice.
    pub(crate) fn each_once(&self) -> bool {
        self.state.doubled == 0
    }

    /// The files of a table, below the store.
    pub(crate) fn files(&self, table: &str) -> impl Iterator<Item = String> {
        self.state.units.keys().map(move |u| format!("{}/{table}/{u}.parquet", self.folder))
    }
}

/// The tables that count; `None` where there are none that can be used.
///
/// # Errors
/// The object store's.
pub(crate) async fn current(place: &Place) -> Result<Option<Kept>> {
    let Some(folder) = current_folder(place).await? else { return Ok(None) };
    let state = match place.read(&format!("{folder}/{STATE}")).await {
        Ok(bytes) => bytes.and_then(|b| serde_json::from_slice(&b).ok()),
        // What a folder holds may be damaged; of an object store no answer is none.
        Err(Error::Io { .. }) => None,
        Err(e) => return Err(e),
    };
    Ok(state.map(|state| Kept { folder, state }))
}

/// The folder that counts, below the store.
///
/// # Errors
/// The object store's.
pub(crate) async fn current_folder(place: &Place) -> Result<Option<String>> {
    let number = match place {
        Place::Folder(root) => {
            fs::read_link(root.join(CURRENT)).ok().and_then(|n| Some(n.to_str()?.to_owned()))
        }
        Place::Objects(_) => {
            place.read(CURRENT).await?.map(|n| String::from_utf8_lossy(&n).trim().to_owned())
        }
    };
    Ok(number.filter(|n| n.parse::<u64>().is_ok()).map(|n| format!("{TABLES}/{n}")))
}

/// Waits until a listing shows all files of tables: questions find them by one, and a listing may lag behind.
///
/// # Errors
/// Where it still lacks some after a while.
pub(crate) async fn wait_until_listed(place: &Place, kept: &Kept) -> Result<()> {
    let Place::Objects(objects) = place else { return Ok(()) };
    let until = Instant::now() + LAG;
    loop {
        let found: HashSet<String> = objects.list(&kept.folder).await?.into_iter().map(|f| f.name).collect();
        let all = kept.state.units.keys().flat_map(|u| units::files(u));
        let missing = all.filter(|f| !found.contains(&format!("{}/{f}", kept.folder))).count();
        if missing == 0 {
            return Ok(());
        }
        if Instant::now() > until {
            let reason = format!("the listing still lacks {missing} objects that were put; ask again later");
            return Err(objects::Error::Content { object: objects.url(&kept.folder), reason }.into());
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// What a refresh needs.
pub(crate) struct Keeper<'a> {
    pub(crate) worker: Arc<Worker>,
    pub(crate) engine: &'a Engine,
    pub(crate) live: &'a Live,
    pub(crate) limits: &'a Limits,
}

/// The folder that a refresh makes.
struct Making {
    /// Below the store.
    name: String,
    /// Of a store in a folder: goes away where the refresh does not end well.
    folder: Option<TempDir>,
}

/// What a configuration and this program make of spans.
fn identity(config: &Config) -> String {
    sha256_hex([schema::VERSION, &config.identity, BUILD].join("\n").as_bytes())
}

impl Keeper<'_> {
    fn place(&self) -> &Place {
        &self.worker.place
    }

    /// Brings the tables up to date where they are not; `before`: those that were there.
    ///
    /// # Errors
    /// Where a file cannot be read or written, and the engine's.
    pub(crate) async fn up_to_date(&self, before: Option<Kept>) -> Result<Kept> {
        let identity = identity(&self.worker.config);
        let fits = |k: &Kept| {
            let files = &self.live.files;
            k.state.identity == identity
                && k.state.files.len() == files.len()
                && files.iter().all(|f| k.state.files.contains(&f.name))
        };
        if let Some(kept) = before.as_ref().filter(|k| fits(k)) {
            return Ok(kept.clone());
        }
        let _lock = self.lock()?;
        // Another process may have been at it.
        let before = current(self.place()).await?;
        if let Some(kept) = before.as_ref().filter(|k| fits(k)) {
            return Ok(kept.clone());
        }
        self.tidy(before.as_ref()).await?;
        let making = self.make(before.as_ref()).await?;
        let old = before.as_ref().filter(|k| k.state.identity == identity);
        let state = self.refresh(old, identity, None, &making.name).await?;
        let text = serde_json::to_vec(&state)
            .map_err(|e| Error::Io { path: self.place().address(&making.name).into(), source: e.into() })?;
        self.place().write(&format!("{}/{STATE}", making.name), text).await?;
        let folder = self.put_in_place(making).await?;
        if let Some(old) = &before {
            self.place().write(&format!("{}/{REPLACED}", old.folder), Vec::new()).await?;
        }
        Ok(Kept { folder, state })
    }

    /// All tables in a folder of this machine, as they would be under another history filter.
    ///
    /// # Errors
    /// As [`Self::up_to_date`].
    pub(crate) async fn anew(&mut self, filter: HistoryFilter, out: &Path) -> Result<Kept> {
        let made = Place::Folder(out.to_owned());
        self.worker = Arc::new(Worker { made, ..Worker::clone(&self.worker) });
        // Executors know no folder of this machine.
        self.engine = &Engine::Local;
        let state = self.refresh(None, String::new(), Some(Arc::new(filter)), ".").await?;
        Ok(Kept { folder: ".".to_owned(), state })
    }

    /// One process at a time makes the tables of a folder. On an object store, two may: each makes a folder of its own.
    fn lock(&self) -> Result<Option<fs::File>> {
        let Place::Folder(root) = self.place() else { return Ok(None) };
        let tables = root.join(TABLES);
        fs::create_dir_all(&tables).map_err(io(&tables))?;
        let path = tables.join("lock");
        Ok(Some(fs::File::create(&path).and_then(|f| f.lock().map(|()| f)).map_err(io(&path))?))
    }

    async fn make(&self, before: Option<&Kept>) -> Result<Making> {
        match self.place() {
            Place::Folder(root) => {
                let tables = root.join(TABLES);
                let folder =
                    tempfile::Builder::new().prefix("new-").tempdir_in(&tables).map_err(io(&tables))?;
                let name = folder.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
                Ok(Making { name: format!("{TABLES}/{name}"), folder: Some(folder) })
            }
            Place::Objects(o) => {
                let mut number = before.map_or(1, |k| number_of(&k.folder) + 1);
                while !o.create(&format!("{TABLES}/{number}/{CLAIMED}"), "").await? {
                    number += 1;
                }
                Ok(Making { name: format!("{TABLES}/{number}"), folder: None })
            }
        }
    }

    /// Gives a folder its number and makes it the one that counts.
    async fn put_in_place(&self, making: Making) -> Result<String> {
        match self.place() {
            Place::Folder(root) => {
                let tables = root.join(TABLES);
                let mut highest = 0;
                for name in entries(&tables)? {
                    highest = highest.max(name.parse().unwrap_or(0));
                }
                let number = (highest + 1).to_string();
                let (from, to) = (root.join(&making.name), tables.join(&number));
                fs::rename(&from, &to).map_err(io(&from))?;
                making.folder.map(TempDir::keep);
                let link = tables.join("next");
                std::os::unix::fs::symlink(&number, &link).map_err(io(&link))?;
                fs::rename(&link, root.join(CURRENT)).map_err(io(&link))?;
                Ok(format!("{TABLES}/{number}"))
            }
            Place::Objects(o) => {
                o.put(CURRENT, number_of(&making.name).to_string()).await?;
                Ok(making.name)
            }
        }
    }

    /// Removes folders that nobody reads any more, and what a process left that did not end well.
    async fn tidy(&self, now: Option<&Kept>) -> Result<()> {
        let counts = now.map_or("", |k| &k.folder);
        let since = |t: SystemTime| SystemTime::now().duration_since(t).unwrap_or_default();
        let used: HashSet<String> = now.iter().flat_map(|k| &k.state.files).map(|f| traces_of(f)).collect();
        let is_unused = |f: &Listed| !used.contains(&f.name) && since(f.modified) > GRACE;
        match self.place() {
            Place::Folder(root) => {
                let mut unused = self.place().list(TRACES).await?;
                unused.retain(is_unused);
                self.place().remove(unused.into_iter().map(|f| f.name).collect()).await?;
                let tables = root.join(TABLES);
                for name in entries(&tables)? {
                    let path = tables.join(&name);
                    let replaced = fs::metadata(path.join(REPLACED)).and_then(|m| m.modified()).ok();
                    if ["lock", "current", "traces"].contains(&name.as_str())
                        || format!("{TABLES}/{name}") == counts
                        || replaced.is_some_and(|t| since(t) < GRACE)
                    {
                        continue;
                    }
                    let removed = if path.is_dir() && !path.is_symlink() {
                        fs::remove_dir_all(&path)
                    } else {
                        fs::remove_file(&path)
                    };
                    removed.map_err(io(&path))?;
                }
                Ok(())
            }
            Place::Objects(_) => {
                let all = self.place().list(TABLES).await?;
                let folder = |f: &Listed| {
                    let number = f.name.strip_prefix(TABLES)?.strip_prefix('/')?.split_once('/')?.0;
                    number.parse::<u64>().ok().map(|n| format!("{TABLES}/{n}"))
                };
                let mut over: HashMap<String, bool> = HashMap::default();
                for f in &all {
                    let Some(folder) = folder(f).filter(|n| n != counts) else { continue };
                    let mark = f.name.rsplit('/').next().unwrap_or_default();
                    match mark {
                        REPLACED => _ = over.insert(folder, since(f.modified) > GRACE),
                        CLAIMED if since(f.modified) > LONGEST => _ = over.entry(folder).or_insert(true),
                        _ => {}
                    }
                }
                let is_over = |f: &&Listed| match folder(f) {
                    Some(folder) => over.get(&folder) == Some(&true),
                    None => f.name.starts_with(TRACES) && is_unused(f),
                };
                self.place().remove(all.iter().filter(is_over).map(|f| f.name.clone()).collect()).await
            }
        }
    }

    async fn run(&self, job: &Job, parts: Vec<Part>) -> Result<Vec<Done>> {
        if parts.is_empty() {
            return Ok(Vec::new());
        }
        self.engine.run(&self.worker, job, parts, self.limits).await
    }

    async fn refresh(
        &self,
        old: Option<&Kept>,
        identity: String,
        filter: Option<Arc<HistoryFilter>>,
        out: &str,
    ) -> Result<State> {
        let nothing = State::default();
        let files = &self.live.files;
        // An earlier refresh that did not come to its end may have found out some. What a machine lost when it failed is empty.
        let found = self.place().list(TRACES).await?.into_iter().filter(|f| f.size > 0);
        let there: HashSet<String> = found.map(|f| f.name).collect();
        // What a file held that is gone cannot be found out again.
        let names: BTreeSet<String> = files.iter().map(|f| f.name.clone()).collect();
        let old = old.filter(|k| k.state.files.difference(&names).all(|f| there.contains(&traces_of(f))));
        let before = old.map_or(&nothing, |k| &k.state);
        let mut state = State {
            identity,
            files: names,
            replaces: self.live.replaces.clone(),
            refresh: before.refresh + 1,
            units: BTreeMap::new(),
            doubled: before.doubled,
        };
        let known: Vec<bool> = files.iter().map(|f| before.files.contains(&f.name)).collect();
        let (groups, held) = self.traces(&there).await?;

        let mut stale = Stale::default();
        for h in held.iter().zip(&known).filter(|(_, known)| !**known).map(|(h, _)| h) {
            stale.fresh.extend(&h.traces);
        }
        stale.traces.extend(&stale.fresh);
        if let Some(old) = old {
            let gone: Vec<&String> = before.files.difference(&state.files).collect();
            for file in &gone {
                let found: FileTraces = unpacked(self.place(), &traces_of(file)).await?;
                stale.traces.extend(found.keys());
            }
            stale.close(&groups, &[]);
            // Where nothing that was there goes on, no task in the tables changes.
            let goes_on = |h: &Held| h.traces.iter().any(|t| stale.traces.contains(t));
            if !gone.is_empty() || held.iter().zip(&known).any(|(h, known)| *known && goes_on(h)) {
                stale.close(&groups, &self.tasks(old).await?);
            }
        }
        self.keep_units(old, &stale, &mut state, out).await?;

        let apart = stale.apart(&groups);
        let rows: usize = apart.keys().map(|t| groups.rows(*t)).sum();
        let (older, named) = older(&stale, files, &held, &known);
        let buckets = self.buckets(rows, &held);
        let job = Job { out: out.to_owned(), refresh: state.refresh, buckets, named, filter };
        if job.buckets > 0 {
            self.worker.set_apart(&job, apart).await?;
        }
        let fresh: Vec<&Listed> =
            files.iter().zip(&known).filter(|(_, known)| !**known).map(|(f, _)| f).collect();
        let mut parts = Vec::new();
        for files in runs(&fresh, self.limits.partitions) {
            parts.push(Part::Assemble { number: parts.len(), files, older: false });
        }
        for files in runs(&older, self.limits.partitions) {
            parts.push(Part::Assemble { number: parts.len(), files, older: true });
        }
        let mut aside: BTreeMap<usize, Vec<String>> = BTreeMap::new();
        for done in self.run(&job, parts).await? {
            state.units.extend(done.units);
            state.doubled += done.doubled;
            done.aside.into_iter().for_each(|(bucket, file)| aside.entry(bucket).or_default().push(file));
        }
        let mut leftovers: Vec<String> = aside.values().flatten().cloned().collect();
        let parts = aside.into_iter().map(|(number, mut files)| {
            files.sort();
            Part::Bucket { number, files }
        });
        for done in self.run(&job, parts.collect()).await? {
            state.units.extend(done.units);
            state.doubled += done.doubled;
        }
        if job.buckets > 0 {
            leftovers.push(format!("{out}/{ASIDE}/traces"));
            self.worker.made.remove(leftovers).await?;
        }
        Ok(state)
    }

    /// Finds out what decides about the traces of files of which it is not there yet, and joins. Also tells the traces of each file.
    async fn traces(&self, there: &HashSet<String>) -> Result<(Groups, Vec<Held>)> {
        let files = &self.live.files;
        let new: Vec<&Listed> = files.iter().filter(|f| !there.contains(&traces_of(&f.name))).collect();
        let parts = runs(&new, self.limits.partitions).into_iter().map(Part::Traces);
        self.run(&Job::default(), parts.collect()).await?;
        let mut groups = Groups::default();
        let mut held = Vec::with_capacity(files.len());
        let names: Vec<String> = files.iter().map(|f| traces_of(&f.name)).collect();
        // Some at a time: of an object store they are fetched.
        for names in names.chunks(256) {
            let local = self.place().local(names).await?;
            for path in &local.paths {
                let bytes = fs::read(path).map_err(io(path))?;
                let found: FileTraces =
                    postcard::from_bytes(&bytes).map_err(|e| io(path)(std::io::Error::other(e)))?;
                held.push(Held { plain: found.plain, bytes: found.bytes, traces: found.keys().collect() });
                groups.add(found);
            }
        }
        let local = match groups.suspects() {
            true => {
                let names: Vec<String> = files.iter().map(|f| f.name.clone()).collect();
                self.place().local(&names).await?
            }
            false => Local::default(),
        };
        groups.join(&local.paths, self.limits.partitions)?;
        Ok((groups, held))
    }

    /// All tasks in the tables.
    async fn tasks(&self, old: &Kept) -> Result<Vec<TaskTraces>> {
        let files: Vec<String> = old.files("tasks").collect();
        units::tasks(&self.place().local(&files).await?.paths)
    }

    /// Links the units without a change, and writes the others again without the tasks that are stale.
    async fn keep_units(
        &self,
        old: Option<&Kept>,
        stale: &Stale,
        state: &mut State,
        out: &str,
    ) -> Result<()> {
        let made = &self.worker.made;
        let shop = made.workshop(out)?;
        units::empty(shop.path())?;
        let Some(old) = old else { return made.publish(shop.path(), out).await };
        let before = &old.state.units;
        let merge = before.values().filter(|rows| **rows < SMALL).count() > MANY;
        let mut rewritten: Vec<&String> = Vec::new();
        let mut links = Vec::new();
        for (place, (unit, rows)) in before.iter().enumerate() {
            if stale.units.contains(&place) || (merge && *rows < SMALL) {
                rewritten.push(unit);
            } else {
                links.extend(
                    units::files(unit).map(|f| (format!("{}/{f}", old.folder), format!("{out}/{f}"))),
                );
                state.units.insert(unit.clone(), *rows);
            }
        }
        let name = format!("{}-kept", state.refresh);
        let threads = self.limits.partitions;
        let from = (made, old.folder.as_str());
        let written = units::rewrite(from, &rewritten, &stale.tasks, shop.path(), &name, threads).await?;
        self.worker.sum(shop.path(), written.as_slice()).await?;
        state.units.extend(written);
        made.publish(shop.path(), out).await?;
        made.link(links).await
    }

    /// Buckets for so many rows; 0: there are none.
    fn buckets(&self, rows: usize, held: &[Held]) -> usize {
        if rows == 0 {
            return 0;
        }
        let (bytes, all) = held.iter().fold((0, 0), |(b, n), h| (b + h.bytes.0, n + h.bytes.1));
        let threads = self.limits.partitions.max(1);
        let each = (self.limits.memory / BUCKET / threads).max(1) as u64;
        let wanted = (bytes / all.max(1)).saturating_mul(rows as u64) / each + 1;
        let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
        if rows > MANY_ROWS { wanted.max(threads) } else { wanted }
    }
}

fn number_of(folder: &str) -> u64 {
    folder.rsplit('/').next().and_then(|n| n.parse().ok()).unwrap_or(0)
}

/// The traces that a file of spans holds.
struct Held {
    /// All their ids are 32 hex digits.
    plain: bool,
    /// Bytes of its rows, and how many rows.
    bytes: (u64, u64),
    traces: Vec<u128>,
}

/// Files that were read before and hold traces that are assembled again, and those traces, where they are few.
fn older<'a>(
    stale: &Stale,
    files: &'a [Listed],
    held: &[Held],
    known: &[bool],
) -> (Vec<&'a Listed>, Option<Vec<String>>) {
    let mut out = Vec::new();
    let mut named: BTreeSet<u128> = BTreeSet::new();
    let mut plain = true;
    for ((file, h), _) in files.iter().zip(held).zip(known).filter(|(_, known)| **known) {
        let again: Vec<u128> = h.traces.iter().filter(|t| stale.traces.contains(*t)).copied().collect();
        if !again.is_empty() {
            named.extend(again);
            out.push(file);
            plain &= h.plain;
        }
    }
    let names = (plain && named.len() <= NAMED).then(|| named.iter().map(|t| format!("{t:032x}")).collect());
    (out, names)
}
/// What is to be assembled again.
#[derive(Debug, Default)]
struct Stale {
    /// Traces of new files.
    fresh: HashSet<u128>,
    /// Traces whose task changes.
    traces: HashSet<u128>,
    /// Tasks in the tables that such a trace is of.
    tasks: HashSet<String>,
    /// Units with such tasks, by their place in the old folder's list.
    units: BTreeSet<usize>,
}

impl Stale {
    /// Adds what hangs together with the traces: by the new grouping, by the tasks in the tables, and by their names, since rows are
    /// told apart by these.
    fn close(&mut self, groups: &Groups, tasks: &[units::TaskTraces]) {
        let mut members: HashMap<u128, Vec<u128>> = HashMap::default();
        for (trace, task) in &groups.apart {
            members.entry(*task).or_default().push(*trace);
        }
        loop {
            let size = (self.traces.len(), self.tasks.len());
            let found: Vec<u128> = self
                .traces
                .iter()
                .filter_map(|t| members.get(groups.apart.get(t)?))
                .flatten()
                .copied()
                .collect();
            self.traces.extend(found);
            for t in tasks {
                if self.tasks.contains(&t.task) || t.traces.iter().any(|x| self.traces.contains(x)) {
                    self.traces.extend(&t.traces);
                    self.tasks.insert(t.task.clone());
                    self.units.insert(t.unit);
                }
            }
            if size == (self.traces.len(), self.tasks.len()) {
                return;
            }
        }
    }

    /// Traces that cannot be assembled from one new file, each with the key of its task.
    fn apart(&self, groups: &Groups) -> HashMap<u128, u128> {
        let task = |t: &u128| match groups.apart.get(t) {
            Some(task) => Some((*t, *task)),
            None => (!self.fresh.contains(t)).then_some((*t, *t)),
        };
        self.traces.iter().filter_map(task).collect()
    }
}

fn entries(dir: &Path) -> Result<Vec<String>> {
    let mut out = Vec::new();
    for entry in fs::read_dir(dir).map_err(io(dir))? {
        out.push(entry.map_err(io(dir))?.file_name().to_string_lossy().into_owned());
    }
    Ok(out)
}
