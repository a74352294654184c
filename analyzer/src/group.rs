//! Which traces are one task (METRICS.md section 1, task): joined by `baton.task.id`, else by the root's conversation.
//! A trace with nothing but recordings of model calls that stand in another trace goes with that one.
//!
//! Reads a few columns of every file. Files are sorted by trace, so a trace that stands in one file alone and is a task
//! alone needs no sorting later; `Groups::apart` lists the others.

use foldhash::{HashMap, HashSet};
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use datafusion::arrow::array::{Array, AsArray, RecordBatch, StringViewArray};
use datafusion::arrow::datatypes::TimestampNanosecondType;
use datafusion::parquet::arrow::ProjectionMask;
use datafusion::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use datafusion::parquet::file::metadata::RowGroupMetaData;
use serde::{Deserialize, Serialize};
use siphasher::sip128::{Hasher128, SipHasher13};

use crate::session::{Error, Result};

/// A trace id as a number; one of another form as its hash.
pub fn trace_key(id: &str) -> u128 {
    if id.len() == 32
        && let Ok(n) = u128::from_str_radix(id, 16)
    {
        return n;
    }
    name_key(id)
}

fn name_key(name: &str) -> u128 {
    let mut h = SipHasher13::new();
    h.write(name.as_bytes());
    h.finish128().as_u128()
}

/// What decides about a trace. Times first, so that the earliest wins; what follows only decides between equal times, in
/// whatever order the rows come.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Trace {
    /// The earliest root: start, conversation, whether it is of an agent or model.
    root: Option<(i64, Option<u128>, bool)>,
    /// The earliest span with a conversation: start, conversation.
    other: Option<(i64, u128)>,
    task_ids: Vec<u128>,
    /// It shows agents, tools or workflows, not only model calls.
    shows_more: bool,
    inferences: bool,
    files: u32,
    rows: usize,
}

fn earliest<T: Ord + Copy>(slot: &mut Option<T>, new: T) {
    *slot = Some(slot.map_or(new, |old| old.min(new)));
}

impl Trace {
    fn add(&mut self, other: &Trace) {
        other.root.iter().for_each(|r| earliest(&mut self.root, *r));
        other.other.iter().for_each(|r| earliest(&mut self.other, *r));
        for t in &other.task_ids {
            if !self.task_ids.contains(t) {
                self.task_ids.push(*t);
            }
        }
        self.shows_more |= other.shows_more;
        self.inferences |= other.inferences;
        self.files += other.files;
        self.rows += other.rows;
    }

    /// The conversation of the root. Where the root is no agent's (a web server's span), that of the first span that has
    /// one. A nested agent's own conversation opens no task.
    fn conversation(&self) -> Option<u128> {
        match self.root {
            Some((_, own, true)) => own,
            Some((_, Some(own), false)) => Some(own),
            _ => self.other.map(|(_, c)| c),
        }
    }

    fn only_inferences(&self) -> bool {
        self.inferences && !self.shows_more
    }
}

/// The traces of one file, and what decides about them.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct FileTraces {
    /// The id of every trace is 32 hex digits: its key says the id.
    pub(crate) plain: bool,
    /// Bytes of the rows, unpacked, and how many rows there are.
    pub(crate) bytes: (u64, u64),
    traces: Vec<(u128, Trace)>,
}

/// Which traces belong together.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    /// Traces that cannot be assembled file by file, of several files or of one task with another trace, each with the key of
    /// its task: its smallest trace.
    pub(crate) apart: HashMap<u128, u128>,
    traces: HashMap<u128, Trace>,
}

impl Groups {
    /// Takes in the traces of a file.
    pub(crate) fn add(&mut self, file: FileTraces) {
        for (id, t) in file.traces {
            self.traces.entry(id).or_default().add(&t);
        }
    }

    /// True where there are traces of nothing but model calls, which [`Self::join`] looks for in the files.
    pub(crate) fn suspects(&self) -> bool {
        self.traces.values().any(Trace::only_inferences)
    }

    /// Finds out what belongs together, once the traces of all files are taken in. The files are read on `threads` threads, and only
    /// where there are suspects.
    ///
    /// # Errors
    /// Where a file cannot be read.
    pub(crate) fn join(&mut self, files: &[PathBuf], threads: usize) -> Result<()> {
        let suspects: HashSet<u128> =
            self.traces.iter().filter(|(_, t)| t.only_inferences()).map(|(id, _)| *id).collect();
        let doubles =
            if suspects.is_empty() { Vec::new() } else { doubles(files, threads, &suspects, &self.traces)? };
        self.apart = join(&self.traces, &doubles);
        Ok(())
    }

    /// The number of rows of a trace.
    pub(crate) fn rows(&self, trace: u128) -> usize {
        self.traces.get(&trace).map_or(0, |t| t.rows)
    }
}

impl FileTraces {
    /// Reads what decides of a file.
    ///
    /// # Errors
    /// Where it cannot be read.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        traces_of(path)
    }

    /// The keys of the traces, sorted.
    pub(crate) fn keys(&self) -> impl Iterator<Item = u128> {
        self.traces.iter().map(|(id, _)| *id)
    }
}

/// What a function gives for each of a list, on `threads` threads.
pub(crate) fn in_parallel<A: Sync, T: Send>(
    files: &[A],
    threads: usize,
    f: impl Fn(&A) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let chunk = files.len().div_ceil(threads.max(1)).max(1);
    std::thread::scope(|s| {
        let workers: Vec<_> = files
            .chunks(chunk)
            .map(|part| s.spawn(|| part.iter().map(&f).collect::<Result<Vec<T>>>()))
            .collect();
        let mut out = Vec::new();
        for w in workers {
            out.extend(w.join().map_err(|_| Error::Worker)??);
        }
        Ok(out)
    })
}

/// Batches of some columns of a file. Gives the bytes of all its rows, unpacked, and how many there are.
pub(crate) fn scan(path: &Path, columns: &[&str], mut each: impl FnMut(&RecordBatch)) -> Result<(u64, u64)> {
    let file = File::open(path).map_err(|source| Error::Io { path: path.to_owned(), source })?;
    let builder = ParquetRecordBatchReaderBuilder::try_new(file)?;
    let groups = builder.metadata().row_groups();
    let sum =
        |of: fn(&RowGroupMetaData) -> i64| groups.iter().map(|g| u64::try_from(of(g)).unwrap_or(0)).sum();
    let size = (sum(RowGroupMetaData::total_byte_size), sum(RowGroupMetaData::num_rows));
    let mask = ProjectionMask::columns(builder.parquet_schema(), columns.iter().copied());
    for batch in builder.with_projection(mask).with_batch_size(16 * 1024).build()? {
        each(&batch?);
    }
    Ok(size)
}

fn text<'a>(batch: &'a RecordBatch, name: &str) -> Option<&'a StringViewArray> {
    batch.column_by_name(name)?.as_string_view_opt()
}

/// The traces of one file.
fn traces_of(path: &Path) -> Result<FileTraces> {
    let mut out: Vec<(u128, Trace)> = Vec::new();
    let mut plain = true;
    let mut last = String::new();
    let columns = ["trace_id", "parent_id", "record", "start", "role", "conversation_id", "task_id"];
    let bytes = scan(path, &columns, |batch| {
        let (Some(trace), Some(parent), Some(record), Some(role), Some(conversation), Some(task)) = (
            text(batch, "trace_id"),
            text(batch, "parent_id"),
            text(batch, "record"),
            text(batch, "role"),
            text(batch, "conversation_id"),
            text(batch, "task_id"),
        ) else {
            return;
        };
        let start =
            batch.column_by_name("start").and_then(|c| c.as_primitive_opt::<TimestampNanosecondType>());
        for i in 0..batch.num_rows() {
            let id = trace.value(i);
            if out.is_empty() || id != last {
                id.clone_into(&mut last);
                plain &= id.len() == 32 && id.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
                out.push((trace_key(id), Trace { files: 1, ..Trace::default() }));
            }
            let Some((_, t)) = out.last_mut() else { continue };
            t.rows += 1;
            if record.value(i) != "span" {
                continue;
            }
            let role = role.value(i);
            match role {
                "agent" | "tool" | "handoff" | "workflow" => t.shows_more = true,
                "inference" => t.inferences = true,
                _ => {}
            }
            let at = start.filter(|s| s.is_valid(i)).map_or(i64::MAX, |s| s.value(i));
            let conversation = conversation.is_valid(i).then(|| name_key(conversation.value(i)));
            if parent.is_null(i) {
                earliest(&mut t.root, (at, conversation, role != "other"));
            }
            if let Some(c) = conversation {
                earliest(&mut t.other, (at, c));
            }
            if task.is_valid(i) {
                let id = name_key(task.value(i));
                if !t.task_ids.contains(&id) {
                    t.task_ids.push(id);
                }
            }
        }
    })?;
    // Rows of one trace stand together in our files; of another writer's they may not.
    out.sort_by_key(|(id, _)| *id);
    out.dedup_by(|b, a| {
        let same = a.0 == b.0;
        if same {
            b.1.files = 0;
            a.1.add(&b.1);
            a.1.files = 2;
        }
        same
    });
    Ok(FileTraces { plain, bytes, traces: out })
}

/// Traces of nothing but model calls that all stand in other traces, each with those traces.
fn doubles(
    files: &[PathBuf],
    threads: usize,
    suspects: &HashSet<u128>,
    traces: &HashMap<u128, Trace>,
) -> Result<Vec<(u128, u128)>> {
    let response = |id: &str| {
        let mut h = DefaultHasher::new();
        id.hash(&mut h);
        h.finish()
    };
    let calls = |path: &Path, keep: &dyn Fn(u128, Option<u64>) -> bool| {
        let mut out: Vec<(u128, Option<u64>)> = Vec::new();
        scan(path, &["trace_id", "record", "role", "response_id"], |batch| {
            let (Some(trace), Some(record), Some(role), Some(id)) = (
                text(batch, "trace_id"),
                text(batch, "record"),
                text(batch, "role"),
                text(batch, "response_id"),
            ) else {
                return;
            };
            for i in 0..batch.num_rows() {
                if record.value(i) == "span" && role.value(i) == "inference" {
                    let (t, r) = (trace_key(trace.value(i)), id.is_valid(i).then(|| response(id.value(i))));
                    if keep(t, r) {
                        out.push((t, r));
                    }
                }
            }
        })?;
        Ok(out)
    };
    let asked: Vec<(u128, Option<u64>)> =
        in_parallel(files, threads, |p| calls(p, &|t, _| suspects.contains(&t)))?
            .into_iter()
            .flatten()
            .collect();
    // A call without an id could be any.
    let unknown: HashSet<u128> = asked.iter().filter(|(_, r)| r.is_none()).map(|(t, _)| *t).collect();
    let wanted: HashSet<u64> = asked.iter().filter_map(|(_, r)| *r).collect();
    let mut found: HashMap<u64, Vec<u128>> = HashMap::default();
    for (t, r) in in_parallel(files, threads, |p| calls(p, &|_, r| r.is_some_and(|r| wanted.contains(&r))))?
        .into_iter()
        .flatten()
    {
        found.entry(r.unwrap_or_default()).or_default().push(t);
    }
    for v in found.values_mut() {
        // Those that show more first, then by id.
        v.sort_by_key(|t| (!traces.get(t).is_some_and(|x| x.shows_more), *t));
        v.dedup();
    }
    let mut by_trace: HashMap<u128, Vec<Option<u128>>> = HashMap::default();
    for (t, r) in &asked {
        let other = r.and_then(|r| found.get(&r)).and_then(|v| v.iter().copied().find(|o| o != t));
        by_trace.entry(*t).or_default().push(other);
    }
    let mut out: Vec<(u128, u128)> = by_trace
        .into_iter()
        .filter(|(t, others)| !unknown.contains(t) && others.iter().all(Option::is_some))
        .flat_map(|(t, others)| others.into_iter().flatten().map(move |o| (t, o)))
        .collect();
    out.sort_unstable();
    out.dedup();
    Ok(out)
}

/// The traces that are one task with others or stand in several files, each with the key of its task.
fn join(traces: &HashMap<u128, Trace>, doubles: &[(u128, u128)]) -> HashMap<u128, u128> {
    let mut parent: HashMap<u128, u128> = HashMap::default();
    let mut first: HashMap<(bool, u128), u128> = HashMap::default();
    let mut together = |parent: &mut HashMap<u128, u128>, name: (bool, u128), t: u128| {
        let f = *first.entry(name).or_insert(t);
        if f != t {
            union(parent, f, t);
        }
    };
    for (id, t) in traces {
        for task in &t.task_ids {
            together(&mut parent, (true, *task), *id);
        }
        if let Some(c) = t.conversation().filter(|_| t.task_ids.is_empty()) {
            together(&mut parent, (false, c), *id);
        }
    }
    for (a, b) in doubles {
        union(&mut parent, *a, *b);
    }
    // The key of a task is its smallest trace, so it does not depend on the order of joining.
    let joined: Vec<u128> = parent.keys().copied().collect();
    let mut smallest: HashMap<u128, u128> = HashMap::default();
    for &t in &joined {
        let e = smallest.entry(find(&mut parent, t)).or_insert(t);
        *e = (*e).min(t);
    }
    let mut out: HashMap<u128, u128> = HashMap::default();
    for &t in &joined {
        out.insert(t, smallest[&find(&mut parent, t)]);
    }
    for id in traces.iter().filter(|(_, t)| t.files > 1).map(|(id, _)| *id) {
        out.entry(id).or_insert(id);
    }
    out
}

/// The representative of a trace; one that is not in the map stands for itself.
fn find(parent: &mut HashMap<u128, u128>, t: u128) -> u128 {
    let mut root = t;
    while let Some(&p) = parent.get(&root).filter(|p| **p != root) {
        root = p;
    }
    let mut at = t;
    while let Some(p) = parent.insert(at, root).filter(|p| *p != at && at != root) {
        at = p;
    }
    root
}

fn union(parent: &mut HashMap<u128, u128>, a: u128, b: u128) {
    let (a, b) = (find(parent, a), find(parent, b));
    parent.insert(a.max(b), a.min(b));
}
