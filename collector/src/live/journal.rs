//! The journal: what is acknowledged is in it and synced, until it is in Parquet.
//!
//! One thread appends: it takes all requests that wait, writes them as one batch, syncs once and answers each. Another turns
//! closed segments into Parquet and removes them. A collector writes a folder of its own under a lock; folders of collectors
//! that ended are adopted, so a crash costs nothing but the time to read them. The name of a Parquet file derives from its
//! segment, so a segment read again makes no second file.

use std::collections::VecDeque;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;

use super::segment::{self, EXTENSION, Entry, Segment};

/// Settings of a journal.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Its folder.
    pub dir: PathBuf,
    /// Answer only when the disk has it; without, a crash of the machine (not of the process) may lose what was acknowledged.
    pub sync: bool,
    /// A segment is closed at this size in bytes.
    pub segment_bytes: u64,
    /// A segment is closed this long after its first rows.
    pub segment_age: Duration,
    /// Bytes of all segments at most; past them requests are refused until some are turned into Parquet.
    pub limit: u64,
}

impl Settings {
    /// The defaults, for a folder.
    pub fn new(dir: PathBuf) -> Self {
        Self { dir, sync: true, segment_bytes: 32 << 20, segment_age: Duration::from_secs(5), limit: 4 << 30 }
    }
}

/// Why rows were not taken. The sender may try again in every case.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The journal holds as much as it may.
    #[error("the journal holds {0} bytes, its limit")]
    Full(u64),
    /// More requests wait to be appended than may.
    #[error("{0} requests wait to be put into the journal")]
    Waiting(usize),
    /// The disk refused.
    #[error("the journal cannot be written: {0}")]
    Disk(String),
    /// The collector is about to end.
    #[error("the collector is shutting down")]
    Closed,
}

/// What happens in a journal, for metrics and messages.
#[derive(Debug)]
pub enum Event<'a> {
    /// Requests were appended and synced.
    Appended {
        /// Requests.
        requests: usize,
        /// Their rows.
        rows: u64,
        /// Time to write and sync.
        took: Duration,
    },
    /// The disk refused an append.
    Refused(&'a io::Error),
    /// A segment became Parquet.
    Kept {
        /// Its batches.
        batches: &'a [RecordBatch],
        /// Rows.
        rows: u64,
        /// Bytes of Parquet.
        bytes: u64,
        /// Time to read, sort and write.
        took: Duration,
    },
    /// A segment could not be turned into Parquet; it is tried again.
    Waiting {
        /// The segment.
        segment: &'a Path,
        /// Why.
        reason: &'a str,
    },
    /// A segment is damaged: what could be read of it is kept, the file is set aside.
    Damaged {
        /// Where it is now.
        segment: &'a Path,
        /// Where in it, and what.
        reason: &'a str,
    },
    /// Segments of a collector that ended are taken over.
    Adopted {
        /// Its folder.
        dir: &'a Path,
        /// Number of segments.
        segments: usize,
    },
}

/// Why a segment's rows were not kept.
#[derive(Debug)]
pub enum NotKept {
    /// Later it may work: the disk is full, the object store away.
    Later(String),
    /// It will never work (a defect, or damage that the checksum did not show).
    Never(String),
}

/// Writes the rows of a segment to the store under a name; gives the bytes written. A name that is there already is whole.
pub type Keep = Box<dyn FnMut(&str, &[RecordBatch]) -> Result<u64, NotKept> + Send>;
/// Is told what happens.
pub type Watch = Arc<dyn Fn(Event<'_>) + Send + Sync>;
/// Is called with the outcome of an append.
pub type Done = Box<dyn FnOnce(Result<(), Refusal>) + Send>;

enum Command {
    Append(Entry, Done),
    /// Close the segment that is open and answer when everything so far is Parquet.
    Flush(SyncSender<()>),
}

enum Work {
    /// A closed segment; `torn` where it may end in the middle of a batch that was not acknowledged.
    Segment {
        path: PathBuf,
        torn: bool,
    },
    Flush(SyncSender<()>),
}

/// A journal that is written.
pub struct Journal {
    commands: Mutex<Option<SyncSender<Command>>>,
    state: Arc<State>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct State {
    /// Bytes of segments, open ones included.
    bytes: AtomicU64,
    /// Bytes that wait to be appended.
    queued: AtomicU64,
    segments: AtomicU64,
    limit: u64,
}

/// Requests that may wait to be appended.
const QUEUE: usize = 4096;
/// Bytes appended as one batch at most, unless one request alone is larger.
const GROUP: usize = 8 << 20;
/// How often folders of collectors that ended are looked for.
const ADOPT: Duration = Duration::from_secs(60);

impl Journal {
    /// Opens a journal: takes a folder of its own and the segments of collectors that ended.
    ///
    /// # Errors
    /// Where the folder cannot be made or locked.
    pub fn open(settings: Settings, keep: Keep, watch: Watch) -> io::Result<Self> {
        fs::create_dir_all(&settings.dir)?;
        let own = Folder::own(&settings.dir)?;
        let state = Arc::new(State { limit: settings.limit, ..State::default() });
        let (commands, queue) = mpsc::sync_channel(QUEUE);
        let (work, todo) = mpsc::channel();
        let mut flusher = Flusher {
            todo,
            root: settings.dir.clone(),
            own: own.dir.clone(),
            pending: VecDeque::new(),
            adopted: Vec::new(),
            keep,
            watch: watch.clone(),
            state: state.clone(),
            looked: Instant::now(),
        };
        // Before the first request, so that the limit holds with what was left over.
        flusher.adopt();
        let writer = Writer { queue, work, own, next: 0, open: None, settings, watch, state: state.clone() };
        let spawn = |name: &str, f: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new().name(name.to_owned()).spawn(f)
        };
        let threads = vec![
            spawn("baton-append", Box::new(move || writer.run()))?,
            spawn("baton-keep", Box::new(move || flusher.run()))?,
        ];
        Ok(Self { commands: Mutex::new(Some(commands)), state, threads: Mutex::new(threads) })
    }

    /// Appends rows; `done` is called when they are in the journal, from another thread or, where they are refused
    /// at once, from this one. Never waits.
    pub fn append(&self, entry: Entry, done: Done) {
        let held = self.bytes();
        if held >= self.state.limit {
            return done(Err(Refusal::Full(self.state.limit)));
        }
        let n = entry.len() as u64;
        let guard = self.commands.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(commands) = guard.as_ref() else {
            drop(guard);
            return done(Err(Refusal::Closed));
        };
        self.state.queued.fetch_add(n, Ordering::Relaxed);
        let sent = commands.try_send(Command::Append(entry, done));
        drop(guard);
        if let Err(e) = sent {
            self.state.queued.fetch_sub(n, Ordering::Relaxed);
            let (command, refusal) = match e {
                mpsc::TrySendError::Full(c) => (c, Refusal::Waiting(QUEUE)),
                mpsc::TrySendError::Disconnected(c) => (c, Refusal::Closed),
            };
            if let Command::Append(_, done) = command {
                done(Err(refusal));
            }
        }
    }

    /// Bytes in the journal and on their way into it.
    pub fn bytes(&self) -> u64 {
        self.state.bytes.load(Ordering::Relaxed) + self.state.queued.load(Ordering::Relaxed)
    }

    /// Bytes on their way into the journal.
    pub fn queued(&self) -> u64 {
        self.state.queued.load(Ordering::Relaxed)
    }

    /// Segments that are not Parquet yet.
    pub fn segments(&self) -> u64 {
        self.state.segments.load(Ordering::Relaxed)
    }

    /// Turns everything appended so far into Parquet; false where that was not done in time.
    pub fn flush(&self, timeout: Duration) -> bool {
        let (done, wait) = mpsc::sync_channel(1);
        let sent = {
            let guard = self.commands.lock().unwrap_or_else(PoisonError::into_inner);
            guard.as_ref().is_some_and(|c| c.send(Command::Flush(done)).is_ok())
        };
        sent && wait.recv_timeout(timeout).is_ok()
    }

    /// Takes no more, turns everything into Parquet and ends. What is not done in time stays in the journal for the next
    /// start; false then.
    pub fn close(&self, timeout: Duration) -> bool {
        let until = Instant::now() + timeout;
        let flushed = self.flush(timeout);
        self.commands.lock().unwrap_or_else(PoisonError::into_inner).take();
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for t in threads {
            while !t.is_finished() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(2));
            }
            if t.is_finished() {
                let _ = t.join();
            }
        }
        flushed
    }
}

/// A collector's folder of segments, locked as long as this lives.
#[derive(Debug)]
struct Folder {
    dir: PathBuf,
    lock: File,
}

impl Folder {
    /// A new folder.
    fn own(root: &Path) -> io::Result<Self> {
        loop {
            let mut id = [0u8; 8];
            getrandom::fill(&mut id).map_err(|e| io::Error::other(e.to_string()))?;
            let dir = root.join(baton_record::canonical::hex(&id));
            fs::create_dir(&dir)?;
            // Held open for reading alone: an idle collector has nothing open for writing.
            let path = dir.join("lock");
            let lock = match File::create(&path).and_then(|_| File::open(&path)) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                lock => lock?,
            };
            // Another collector may hold it to adopt it, empty as it is, and then remove it.
            if lock.try_lock().is_ok() && dir.join("lock").exists() {
                return Ok(Self { dir, lock });
            }
        }
    }

    /// The folder of a collector that ended; `None` where one runs.
    fn adopt(dir: &Path) -> Option<Self> {
        let path = dir.join("lock");
        let lock = match File::open(&path) {
            // Its collector was killed before it had one.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                File::create_new(&path).and_then(|_| File::open(&path))
            }
            lock => lock,
        };
        let lock = lock.ok()?;
        match lock.try_lock() {
            Ok(()) => Some(Self { dir: dir.to_owned(), lock }),
            Err(TryLockError::WouldBlock | TryLockError::Error(_)) => None,
        }
    }

    /// Its segments in the order they were written.
    fn segments(&self) -> Vec<PathBuf> {
        let mut found: Vec<(u64, PathBuf)> = fs::read_dir(&self.dir)
            .into_iter()
            .flatten()
            .flatten()
            .map(|e| e.path())
            .filter(|p| p.extension().is_some_and(|x| x == EXTENSION))
            .filter_map(|p| Some((p.file_stem()?.to_str()?.parse().ok()?, p)))
            .collect();
        found.sort();
        found.into_iter().map(|(_, p)| p).collect()
    }

    /// Removes the folder, which holds nothing any more.
    fn remove(&self) {
        let _ = fs::remove_file(self.dir.join("lock")).and_then(|()| fs::remove_dir(&self.dir));
        let _ = self.lock.unlock();
    }
}

struct Writer {
    queue: Receiver<Command>,
    work: mpsc::Sender<Work>,
    own: Folder,
    next: u64,
    open: Option<(Segment, Instant)>,
    settings: Settings,
    watch: Watch,
    state: Arc<State>,
}

impl Writer {
    fn run(mut self) {
        loop {
            let command = match &self.open {
                None => self.queue.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some((_, since)) => {
                    self.queue.recv_timeout(self.settings.segment_age.saturating_sub(since.elapsed()))
                }
            };
            match command {
                Ok(Command::Flush(done)) => self.flush(done),
                Ok(Command::Append(entry, done)) => self.group(entry, done),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            let due = self.open.as_ref().is_some_and(|(s, since)| {
                s.len() >= self.settings.segment_bytes || since.elapsed() >= self.settings.segment_age
            });
            if due {
                self.rotate(false);
            }
        }
        self.rotate(false);
    }

    fn flush(&mut self, done: SyncSender<()>) {
        self.rotate(false);
        let _ = self.work.send(Work::Flush(done));
    }

    /// Appends a request and all that wait with it.
    fn group(&mut self, entry: Entry, done: Done) {
        let mut bytes = entry.len();
        let (mut entries, mut dones, mut flush) = (vec![entry], vec![done], None);
        while bytes < GROUP && flush.is_none() {
            match self.queue.try_recv() {
                Ok(Command::Append(e, d)) => {
                    bytes += e.len();
                    entries.push(e);
                    dones.push(d);
                }
                Ok(Command::Flush(d)) => flush = Some(d),
                Err(_) => break,
            }
        }
        let started = Instant::now();
        let outcome = self.append(&entries);
        self.state.queued.fetch_sub(bytes as u64, Ordering::Relaxed);
        match &outcome {
            Ok(()) => (self.watch)(Event::Appended {
                requests: entries.len(),
                rows: entries.iter().map(|e| u64::from(e.rows)).sum(),
                took: started.elapsed(),
            }),
            Err(e) => (self.watch)(Event::Refused(e)),
        }
        let answer = outcome.map_err(|e| Refusal::Disk(e.to_string()));
        dones.into_iter().for_each(|d| d(answer.clone()));
        if let Some(d) = flush {
            self.flush(d);
        }
    }

    fn append(&mut self, entries: &[Entry]) -> io::Result<()> {
        let (segment, _) = match &mut self.open {
            Some(open) => open,
            none => {
                let path = self.own.dir.join(format!("{:010}.{EXTENSION}", self.next));
                self.next += 1;
                let segment = Segment::create(&path)?;
                self.state.segments.fetch_add(1, Ordering::Relaxed);
                none.insert((segment, Instant::now()))
            }
        };
        let before = segment.len();
        let done = segment.append(entries, self.settings.sync);
        self.state.bytes.fetch_add(segment.len() - before, Ordering::Relaxed);
        if done.is_err() {
            // What the file holds is whole; what a disk that failed once makes of the next write is not known.
            self.rotate(true);
        }
        done
    }

    fn rotate(&mut self, torn: bool) {
        let Some((segment, _)) = self.open.take() else { return };
        if segment.is_empty() {
            let _ = fs::remove_file(segment.path());
            self.state.segments.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let _ = self.work.send(Work::Segment { path: segment.path().to_owned(), torn });
    }
}

struct Flusher {
    todo: Receiver<Work>,
    root: PathBuf,
    own: PathBuf,
    pending: VecDeque<Work>,
    adopted: Vec<Folder>,
    keep: Keep,
    watch: Watch,
    state: Arc<State>,
    looked: Instant,
}

/// How long to wait after a failure: first, and at most.
const WAIT: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(5));

impl Flusher {
    fn run(mut self) {
        let mut wait = WAIT.0;
        let mut open = true;
        while open || !self.pending.is_empty() {
            let failed = match self.pending.pop_front() {
                None => false,
                Some(Work::Flush(done)) => {
                    let _ = done.send(());
                    false
                }
                Some(Work::Segment { path, torn }) => {
                    let kept = self.keep(&path, torn);
                    if !kept {
                        self.pending.push_front(Work::Segment { path, torn });
                    }
                    !kept
                }
            };
            self.adopted.retain(|f| {
                let left = !f.segments().is_empty();
                if !left {
                    f.remove();
                }
                left
            });
            let pause = match (failed, self.pending.is_empty()) {
                (true, _) => wait,
                (false, true) => ADOPT,
                (false, false) => Duration::ZERO,
            };
            wait = if failed { (wait * 2).min(WAIT.1) } else { WAIT.0 };
            if failed && !open {
                // Nobody waits any more; the segments stay for the next start.
                break;
            }
            match self.todo.recv_timeout(pause) {
                Ok(w) => {
                    self.pending.push_back(w);
                    self.pending.extend(self.todo.try_iter());
                    if failed {
                        std::thread::sleep(Duration::from_millis(20));
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    open = false;
                    if failed {
                        break;
                    }
                }
            }
            if self.looked.elapsed() >= ADOPT {
                self.adopt();
            }
        }
        // The folder of this collector: empty unless something went wrong.
        let _ = fs::remove_file(self.own.join("lock")).and_then(|()| fs::remove_dir(&self.own));
    }

    /// Turns a segment into Parquet and removes it; false: to be tried again.
    fn keep(&mut self, path: &Path, torn: bool) -> bool {
        let started = Instant::now();
        let read = match segment::read(path) {
            Ok(r) => r,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return true,
            Err(e) => {
                (self.watch)(Event::Waiting { segment: path, reason: &e.to_string() });
                return false;
            }
        };
        let rows = read.batches.iter().map(|b| b.num_rows() as u64).sum();
        let mut damage = read.damage;
        if damage.is_none() && read.tail > 0 && !torn {
            damage = Some(format!("its last {} bytes are no whole batch", read.tail));
        }
        if rows > 0 {
            match (self.keep)(&name(path), &read.batches) {
                Ok(bytes) => {
                    (self.watch)(Event::Kept { batches: &read.batches, rows, bytes, took: started.elapsed() })
                }
                Err(NotKept::Later(reason)) => {
                    (self.watch)(Event::Waiting { segment: path, reason: &reason });
                    return false;
                }
                Err(NotKept::Never(reason)) => damage = Some(reason),
            }
        }
        let size = fs::metadata(path).map_or(0, |m| m.len());
        let gone = match damage {
            None => fs::remove_file(path),
            Some(reason) => self.set_aside(path, &reason),
        };
        if let Err(e) = gone {
            (self.watch)(Event::Waiting { segment: path, reason: &e.to_string() });
            return false;
        }
        self.forget(size);
        true
    }

    fn forget(&self, size: u64) {
        let sub = |a: &AtomicU64, n: u64| {
            // The head of a stream is not counted while it is written, so the sum may be a little low.
            let _ = a.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |v| Some(v.saturating_sub(n)));
        };
        sub(&self.state.bytes, size);
        sub(&self.state.segments, 1);
    }

    fn set_aside(&self, path: &Path, reason: &str) -> io::Result<()> {
        let dir = self.root.join("damaged");
        fs::create_dir_all(&dir)?;
        let to = dir.join(format!("{}.{EXTENSION}", name(path)));
        fs::rename(path, &to)?;
        (self.watch)(Event::Damaged { segment: &to, reason });
        Ok(())
    }

    /// Takes over the folders of collectors that ended.
    fn adopt(&mut self) {
        self.looked = Instant::now();
        for entry in fs::read_dir(&self.root).into_iter().flatten().flatten() {
            let dir = entry.path();
            let other = dir.is_dir()
                && dir != self.own
                && entry.file_name() != "damaged"
                && self.adopted.iter().all(|f| f.dir != dir);
            let Some(folder) = other.then(|| Folder::adopt(&dir)).flatten() else { continue };
            let segments = folder.segments();
            if segments.is_empty() {
                folder.remove();
                continue;
            }
            (self.watch)(Event::Adopted { dir: &dir, segments: segments.len() });
            // Only the one that was open when its collector ended may be torn.
            let last = segments.last().cloned();
            for s in segments {
                let size = fs::metadata(&s).map_or(0, |m| m.len());
                self.state.bytes.fetch_add(size, Ordering::Relaxed);
                self.state.segments.fetch_add(1, Ordering::Relaxed);
                let torn = last.as_ref() == Some(&s);
                self.pending.push_back(Work::Segment { path: s, torn });
            }
            self.adopted.push(folder);
        }
    }
}

/// The name of what a segment becomes: its collector's folder and its number.
fn name(path: &Path) -> String {
    let part = |p: Option<&std::ffi::OsStr>| p.map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
    format!("{}-{}", part(path.parent().and_then(Path::file_name)), part(path.file_stem()))
}
