//! The assembled tables of a store, kept from one question to the next and brought up to date where spans have come or gone.
//!
//! ```text
//! <store>/tables/current -> 12               changed in one step, so that nobody reads half a refresh
//! <store>/tables/12/state.json               what the tables stand on
//! <store>/tables/12/traces/<n>               what decides which traces are one task, of each file of spans
//! <store>/tables/12/tasks/<unit>.parquet     and the other tables: a unit is a file of each, with the rows of whole tasks
//! ```
//!
//! A refresh makes a new folder. Units without a change are linked into it. Tasks with a trace that came, went or was joined
//! are taken out of the units they stand in and assembled again with those that are new, so the tables are the same as if they were
//! made at once. What a folder was replaced by stays a while for those who read it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use baton_record::canonical::sha256_hex;
use baton_record::config::Config;
use baton_record::prints::PrintKey;
use baton_record::schema;
use datafusion::parquet::file::reader::FileReader;
use datafusion::parquet::file::serialized_reader::SerializedFileReader;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::{ParquetReadOptions, SessionContext, col, lit};
use foldhash::{HashMap, HashSet};
use futures::StreamExt;
use serde::{Deserialize, Serialize};

use crate::aside::{Aside, Bucket};
use crate::assemble::{HistoryFilter, Rules};
use crate::group::{FileTraces, Groups, in_parallel};
use crate::plan::AssembleExec;
use crate::session::{Error, Limits, Result, io};
use crate::units;

/// How long a folder that was replaced stays for those who read it.
const GRACE: Duration = Duration::from_secs(600);
/// The link to the folder that counts.
const CURRENT: &str = "current";
/// In a folder: it was replaced, at the time of this file.
const REPLACED: &str = "replaced";
/// Rows that were set aside are held while they are assembled, and take some times the room that they take in files.
const BUCKET: usize = 8;
/// Units with fewer rows are merged, where there are more than [`MANY`].
const SMALL: usize = 128 * 1024;
const MANY: usize = 16;
/// Rows of units that are summed together.
const SUMMED: usize = 1 << 20;
/// Traces that are asked for by name in older files; of more, the files are read whole.
const NAMED: usize = 10_000;

/// What the tables of a folder stand on.
#[derive(Debug, Default, Serialize, Deserialize)]
struct State {
    /// Of the layout, the configuration and this program: tables that were made under another one are made anew.
    identity: String,
    /// The files of spans, below `spans`, each with its name below `traces`.
    files: BTreeMap<String, u64>,
    /// The last such name, and number of a refresh.
    next: u64,
    /// Units with the number of their rows.
    units: BTreeMap<String, usize>,
    /// Recordings of spans beyond the first of each. Never too few; where tasks were assembled again, too many.
    doubled: u64,
}

/// Tables that are up to date.
#[derive(Debug)]
pub(crate) struct Kept {
    /// The folder with a folder for each table.
    pub(crate) dir: PathBuf,
    /// No span was recorded twice.
    pub(crate) each_once: bool,
}

/// What a refresh needs.
pub(crate) struct Keeper<'a> {
    pub(crate) store: &'a Path,
    pub(crate) config: &'a Config,
    pub(crate) key: PrintKey,
    /// The files of spans that count, sorted.
    pub(crate) files: &'a [PathBuf],
    pub(crate) limits: Limits,
    /// For reading spans.
    pub(crate) ctx: &'a SessionContext,
}

impl Keeper<'_> {
    /// Brings the tables up to date where they are not.
    ///
    /// # Errors
    /// Where a file cannot be read or written, and the engine's.
    pub(crate) async fn up_to_date(&self) -> Result<Kept> {
        let identity = self.identity();
        let names: Vec<String> = self.files.iter().map(|f| self.name(f)).collect();
        // The files are sorted as paths, the names as text: the same ones may stand in another order.
        let fits = |s: &State| {
            s.identity == identity
                && s.files.len() == names.len()
                && names.iter().all(|n| s.files.contains_key(n))
        };
        let root = self.store.join("tables");
        if let Some((dir, state)) = current(&root).filter(|(_, s)| fits(s)) {
            return Ok(Kept { dir, each_once: state.doubled == 0 });
        }
        fs::create_dir_all(&root).map_err(io(&root))?;
        let lock = root.join("lock");
        let lock = fs::File::create(&lock).and_then(|f| f.lock().map(|()| f)).map_err(io(&lock))?;
        // Another process may have been at it.
        let before = current(&root);
        if let Some((dir, state)) = before.as_ref().filter(|(_, s)| fits(s)) {
            return Ok(Kept { dir: dir.clone(), each_once: state.doubled == 0 });
        }
        tidy(&root)?;
        let fresh = tempfile::Builder::new().prefix("new-").tempdir_in(&root).map_err(io(&root))?;
        let old = before.as_ref().filter(|(_, s)| s.identity == identity);
        let rules = Rules::new(self.config, self.key);
        let state = self
            .refresh(old.map(|(dir, s)| (dir.as_path(), s)), identity, &names, rules, fresh.path())
            .await?;
        let path = fresh.path().join("state.json");
        let text = serde_json::to_vec(&state).map_err(|e| io(&path)(e.into()))?;
        fs::write(&path, text).map_err(io(&path))?;
        let dir = put_in_place(&root, &fresh.keep())?;
        if let Some((old, _)) = before {
            let mark = old.join(REPLACED);
            fs::write(&mark, "").map_err(io(&mark))?;
        }
        drop(lock);
        Ok(Kept { dir, each_once: state.doubled == 0 })
    }

    /// All tables in another folder, as they would be under another history filter.
    ///
    /// # Errors
    /// As [`Self::up_to_date`].
    pub(crate) async fn anew(&self, filter: HistoryFilter, out: &Path) -> Result<Kept> {
        let names: Vec<String> = self.files.iter().map(|f| self.name(f)).collect();
        let rules = Rules { filter: Some(Arc::new(filter)), ..Rules::new(self.config, self.key) };
        let state = self.refresh(None, String::new(), &names, rules, out).await?;
        Ok(Kept { dir: out.to_owned(), each_once: state.doubled == 0 })
    }

    /// What the tables depend on beside the spans.
    fn identity(&self) -> String {
        let mut parts = vec![schema::VERSION.to_owned(), self.config.identity.clone()];
        // Another build of this program may assemble otherwise.
        if let Ok(m) = std::env::current_exe().and_then(fs::metadata) {
            let modified = m.modified().ok().and_then(|t| t.duration_since(UNIX_EPOCH).ok());
            parts.push(format!("{} {:?}", m.len(), modified));
        }
        sha256_hex(parts.join("\n").as_bytes())
    }

    /// A file's path below `spans`. Names of files say their content.
    fn name(&self, file: &Path) -> String {
        file.strip_prefix(self.store.join("spans")).unwrap_or(file).display().to_string()
    }

    async fn refresh(
        &self,
        old: Option<(&Path, &State)>,
        identity: String,
        names: &[String],
        rules: Rules,
        out: &Path,
    ) -> Result<State> {
        let nothing = State::default();
        let (old_dir, before) = old.map_or((None, &nothing), |(dir, s)| (Some(dir), s));
        // Names of units begin with the number of their refresh.
        let refresh = before.next + 1;
        let mut state = State { identity, next: refresh, doubled: before.doubled, ..State::default() };
        let known: Vec<bool> = names.iter().map(|n| before.files.contains_key(n)).collect();
        for name in names {
            let n = before.files.get(name).copied().unwrap_or_else(|| {
                state.next += 1;
                state.next
            });
            state.files.insert(name.clone(), n);
        }
        let numbers: Vec<u64> = names.iter().map(|n| state.files[n]).collect();
        let (groups, held) = self.traces(&numbers, old_dir, &known, &out.join("traces"))?;

        let mut stale = Stale::default();
        for h in held.iter().zip(&known).filter(|(_, known)| !**known).map(|(h, _)| h) {
            stale.fresh.extend(&h.traces);
        }
        stale.traces.extend(&stale.fresh);
        if let Some(dir) = old_dir {
            let gone: Vec<u64> =
                before.files.iter().filter(|(f, _)| !state.files.contains_key(*f)).map(|(_, n)| *n).collect();
            for n in &gone {
                stale.traces.extend(load(&dir.join("traces").join(n.to_string()))?.keys());
            }
            stale.close(&groups, &[]);
            // Where nothing that was there goes on, no task in the tables changes.
            let goes_on = |h: &Held| h.traces.iter().any(|t| stale.traces.contains(t));
            if !gone.is_empty() || held.iter().zip(&known).any(|(h, known)| *known && goes_on(h)) {
                stale.close(&groups, &units::tasks(dir, before.units.keys())?);
            }
        }
        let linked = self.keep_units(old_dir, before, &stale, refresh, &mut state, out)?;

        let rules = Arc::new(rules);
        let work = Work {
            apart: stale.apart(&groups),
            fresh: known.iter().enumerate().filter(|(_, k)| !**k).map(|(i, _)| i).collect(),
            older: older(&stale, &held, &known),
        };
        self.assemble(work, &groups, &rules, refresh, &mut state, out).await?;
        let new = state.units.iter().filter(|(u, _)| !linked.contains(*u));
        self.sum(new.map(|(u, rows)| (u.clone(), *rows)).collect(), out).await?;
        state.doubled += rules.doubled.load(Ordering::Relaxed);
        Ok(state)
    }

    /// Reads what decides of the files that are new into a folder, links what is known of the others, and joins. Also tells the traces
    /// of each file.
    fn traces(
        &self,
        numbers: &[u64],
        old: Option<&Path>,
        known: &[bool],
        dir: &Path,
    ) -> Result<(Groups, Vec<Held>)> {
        fs::create_dir_all(dir).map_err(io(dir))?;
        let path = |i: usize| dir.join(numbers[i].to_string());
        let mut read = Vec::new();
        for (i, known) in known.iter().enumerate() {
            match old.filter(|_| *known) {
                Some(old) => link(&old.join("traces").join(numbers[i].to_string()), &path(i))?,
                None => read.push(i),
            }
        }
        in_parallel(&read, self.limits.partitions, |i| {
            let found = FileTraces::read(&self.files[*i])?;
            let path = path(*i);
            let bytes = postcard::to_allocvec(&found).map_err(|e| io(&path)(std::io::Error::other(e)))?;
            fs::write(&path, bytes).map_err(io(&path))
        })?;
        let mut held = Vec::with_capacity(numbers.len());
        let groups = Groups::new(self.files, self.limits.partitions, |i| {
            let found = load(&path(i))?;
            held.push(Held { plain: found.plain, traces: found.keys().collect() });
            Ok(found)
        })?;
        Ok((groups, held))
    }

    /// Links the units without a change, which it names, and writes the others again without the tasks that are stale.
    fn keep_units(
        &self,
        old: Option<&Path>,
        before: &State,
        stale: &Stale,
        refresh: u64,
        state: &mut State,
        out: &Path,
    ) -> Result<BTreeSet<String>> {
        units::create(out)?;
        let mut linked = BTreeSet::new();
        let Some(old) = old else { return Ok(linked) };
        let merge = before.units.values().filter(|rows| **rows < SMALL).count() > MANY;
        let mut rewritten: Vec<String> = Vec::new();
        for (place, (unit, rows)) in before.units.iter().enumerate() {
            if stale.units.contains(&place) || (merge && *rows < SMALL) {
                rewritten.push(unit.clone());
            } else {
                units::link(old, out, unit)?;
                linked.insert(unit.clone());
                state.units.insert(unit.clone(), *rows);
            }
        }
        let name = format!("{refresh}-kept");
        let written = units::rewrite(old, out, &rewritten, &stale.tasks, &name, self.limits.partitions)?;
        state.units.extend(written);
        Ok(linked)
    }

    /// Sums the measures of units, which have so many rows.
    async fn sum(&self, units: Vec<(String, usize)>, out: &Path) -> Result<()> {
        let mut parts: Vec<Vec<String>> = Vec::new();
        let mut held = SUMMED;
        for (unit, rows) in units {
            match parts.last_mut().filter(|_| held < SUMMED) {
                Some(part) => part.push(unit),
                None => {
                    parts.push(vec![unit]);
                    held = 0;
                }
            }
            held += rows;
        }
        let jobs =
            parts.into_iter().map(|p| tokio::spawn(units::sum(self.ctx.runtime_env(), out.to_owned(), p)));
        let mut jobs = futures::stream::iter(jobs).buffer_unordered(self.limits.partitions);
        while let Some(done) = jobs.next().await {
            done.map_err(|_| Error::Worker)??;
        }
        Ok(())
    }

    async fn assemble(
        &self,
        work: Work,
        groups: &Groups,
        rules: &Arc<Rules>,
        refresh: u64,
        state: &mut State,
        out: &Path,
    ) -> Result<()> {
        let threads = self.limits.partitions;
        let rest = tempfile::Builder::new().prefix("aside-").tempdir_in(out).map_err(io(out))?;
        let rows = work.apart.keys().map(|t| groups.rows(*t)).sum();
        let buckets = self.bytes(rows)? / (self.limits.memory / BUCKET).max(1) + 1;
        let aside = (!work.apart.is_empty())
            .then(|| Arc::new(Aside::new(work.apart, rest.path().to_owned(), buckets)));
        let mut streams = 0;
        let mut jobs = Jobs::new();
        let name = |pass: u8, part: usize| format!("{refresh}-{pass}-{part:04}");
        if !work.fresh.is_empty() {
            let plan = self.scan(&work.fresh, None).await?;
            let plan = AssembleExec::new(plan, rules.clone(), aside.clone(), 0, false);
            streams = plan.properties().partitioning.partition_count();
            for p in 0..streams {
                let stream = plan.execute(p, self.ctx.task_ctx())?;
                jobs.spawn(units::write(stream, out.to_owned(), name(0, p)));
            }
        }
        if !work.older.files.is_empty() {
            let plan = self.scan(&work.older.files, work.older.names.as_deref()).await?;
            let plan = AssembleExec::new(plan, rules.clone(), aside.clone(), streams, true);
            for p in 0..plan.properties().partitioning.partition_count() {
                let stream = plan.execute(p, self.ctx.task_ctx())?;
                jobs.spawn(units::write(stream, out.to_owned(), name(1, p)));
            }
        }
        collect(jobs, state).await?;
        let Some(aside) = aside else { return Ok(()) };
        for b in 0..aside.buckets() {
            let aside = aside.clone();
            let bucket = tokio::task::spawn_blocking(move || Bucket::read(&aside, b, threads))
                .await
                .map_err(|_| Error::Worker)??;
            let bucket = Arc::new(bucket);
            let mut jobs = Jobs::new();
            for (n, part) in bucket.parts(threads).into_iter().enumerate() {
                let rows = futures::stream::iter(bucket.clone().assemble(part, rules.clone()));
                let name = format!("{refresh}-2-{b:04}-{n:04}");
                jobs.spawn(units::write(rows, out.to_owned(), name));
            }
            collect(jobs, state).await?;
        }
        Ok(())
    }

    /// Some files, each from its start to its end by one stream; only rows of the traces named, where there are names.
    async fn scan(&self, files: &[usize], names: Option<&[String]>) -> Result<Arc<dyn ExecutionPlan>> {
        let mut settings = self.ctx.copied_config();
        settings.options_mut().optimizer.repartition_file_scans = false;
        let ctx = SessionContext::new_with_config_rt(settings, self.ctx.runtime_env());
        let paths: Vec<String> = files.iter().map(|i| self.files[*i].display().to_string()).collect();
        let fields = schema::schema();
        let mut frame = ctx.read_parquet(paths, ParquetReadOptions::default().schema(&fields)).await?;
        if let Some(names) = names {
            frame = frame
                .filter(col("trace_id").in_list(names.iter().map(|n| lit(n.as_str())).collect(), false))?;
        }
        Ok(frame.create_physical_plan().await?)
    }

    /// How many bytes so many rows take, roughly.
    fn bytes(&self, rows: usize) -> Result<usize> {
        if rows == 0 {
            return Ok(0);
        }
        let (mut all, mut bytes) = (0usize, 0usize);
        for path in self.files {
            let file = fs::File::open(path).map_err(io(path))?;
            for g in SerializedFileReader::new(file)?.metadata().row_groups() {
                all += usize::try_from(g.num_rows()).unwrap_or(0);
                bytes += usize::try_from(g.total_byte_size()).unwrap_or(0);
            }
        }
        Ok((bytes / all.max(1)).saturating_mul(rows))
    }
}

type Jobs = tokio::task::JoinSet<Result<Vec<(String, usize)>>>;

async fn collect(mut jobs: Jobs, state: &mut State) -> Result<()> {
    while let Some(done) = jobs.join_next().await {
        state.units.extend(done.map_err(|_| Error::Worker)??);
    }
    Ok(())
}

/// The traces that a file of spans holds.
struct Held {
    /// All their ids are 32 hex digits.
    plain: bool,
    traces: Vec<u128>,
}

/// What is assembled.
struct Work {
    /// Traces whose rows are brought together first, each with the key of its task.
    apart: HashMap<u128, u128>,
    /// Places of the files that are new: all their traces are assembled.
    fresh: Vec<usize>,
    older: Older,
}

/// Files that were read before and hold traces that are assembled again.
struct Older {
    files: Vec<usize>,
    /// Those traces, where they are few.
    names: Option<Vec<String>>,
}

fn older(stale: &Stale, held: &[Held], known: &[bool]) -> Older {
    let mut files = Vec::new();
    let mut named: BTreeSet<u128> = BTreeSet::new();
    let mut plain = true;
    for (i, (h, _)) in held.iter().zip(known).enumerate().filter(|(_, (_, known))| **known) {
        let again: Vec<u128> = h.traces.iter().filter(|t| stale.traces.contains(*t)).copied().collect();
        if !again.is_empty() {
            named.extend(again);
            files.push(i);
            plain &= h.plain;
        }
    }
    let names = (plain && named.len() <= NAMED).then(|| named.iter().map(|t| format!("{t:032x}")).collect());
    Older { files, names }
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

fn load(path: &Path) -> Result<FileTraces> {
    let bytes = fs::read(path).map_err(io(path))?;
    postcard::from_bytes(&bytes).map_err(|e| io(path)(std::io::Error::other(e)))
}

/// The folder that counts and what it stands on; `None` where there is none that can be used.
fn current(root: &Path) -> Option<(PathBuf, State)> {
    let dir = root.join(fs::read_link(root.join(CURRENT)).ok()?);
    let state = serde_json::from_slice(&fs::read(dir.join("state.json")).ok()?).ok()?;
    Some((dir, state))
}

/// Gives a folder its number and makes it the one that counts.
fn put_in_place(root: &Path, fresh: &Path) -> Result<PathBuf> {
    let mut highest = 0u64;
    for name in entries(root)? {
        highest = highest.max(name.parse().unwrap_or(0));
    }
    let number = (highest + 1).to_string();
    let dir = root.join(&number);
    fs::rename(fresh, &dir).map_err(io(fresh))?;
    let link = root.join("next");
    std::os::unix::fs::symlink(&number, &link).map_err(io(&link))?;
    fs::rename(&link, root.join(CURRENT)).map_err(io(&link))?;
    Ok(dir)
}

/// Removes folders that nobody reads any more, and what a process left that did not end well.
fn tidy(root: &Path) -> Result<()> {
    let now = fs::read_link(root.join(CURRENT)).ok();
    for name in entries(root)? {
        let path = root.join(&name);
        let counts = name == "lock" || name == CURRENT || now.as_deref() == Some(Path::new(&name));
        let replaced = fs::metadata(path.join(REPLACED)).and_then(|m| m.modified()).ok();
        let read = replaced
            .and_then(|t| SystemTime::now().duration_since(t).ok())
            .is_some_and(|since| since < GRACE);
        if counts || read {
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

fn entries(dir: &Path) -> Result<Vec<String>> {
    let mut out = Vec::new();
    for entry in fs::read_dir(dir).map_err(io(dir))? {
        out.push(entry.map_err(io(dir))?.file_name().to_string_lossy().into_owned());
    }
    Ok(out)
}

/// A second name for a file, or a copy where the file system has no such.
pub(crate) fn link(from: &Path, to: &Path) -> Result<()> {
    fs::hard_link(from, to).or_else(|_| fs::copy(from, to).map(|_| ())).map_err(io(from))
}
