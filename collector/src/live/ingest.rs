//! From a request's body to rows in the journal, on threads of their own.
//!
//! Reading is work for the processor, so it does not stand in the way of the network: a fixed number of threads unpack, decode,
//! read with the dialects and encode. What all requests together hold is bounded by a [`Budget`].

use std::io::Read;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Bytes;
use baton_record::span::Span;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use prost::Message;
use tokio::sync::oneshot;

use super::crew::{Crew, STACK};
use super::journal::{Journal, Refusal};
use super::metrics::Metrics;
use super::segment::Entry;
use super::weigh::weight;
use crate::import::{Summary, rows_of_logs, rows_of_spans};
use crate::otlp::{Signal, decode_json, traces_in};
use crate::raw::{Placed, Traces};
use crate::reading::Reader;

/// What a request carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Spans.
    Traces,
    /// Log records.
    Logs,
    /// Metrics, which are taken and dropped.
    Metrics,
}

impl Kind {
    /// Its name in messages and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Traces => "traces",
            Self::Logs => "logs",
            Self::Metrics => "metrics",
        }
    }
}

/// How a body is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Protobuf.
    Protobuf,
    /// OTLP/JSON.
    Json,
}

/// How a body is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    /// Not at all.
    Plain,
    /// gzip.
    Gzip,
    /// Zstandard.
    Zstd,
}

impl Packing {
    /// The packing of a `Content-Encoding` or `grpc-encoding`.
    pub fn from_name(name: &str) -> Option<Self> {
        match name.trim().to_ascii_lowercase().as_str() {
            "" | "identity" => Some(Self::Plain),
            "gzip" | "x-gzip" => Some(Self::Gzip),
            "zstd" => Some(Self::Zstd),
            _ => None,
        }
    }
}

/// A request was taken: what of it was not kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Taken {
    /// Records that were not kept, and will not be if sent again.
    pub rejected: i64,
    /// Why, of the first of them.
    pub message: String,
}

/// A request was not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// It is no OTLP request; it never will be.
    #[error("{0}")]
    Malformed(String),
    /// It is larger than this collector takes; sent again it will be as large.
    #[error("{what} of more than {limit} bytes: send less at once")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// There is no room at the moment; it may be sent again.
    #[error("{0}")]
    Busy(String),
    /// A defect of this collector; the same request would meet it again.
    #[error("this request could not be read, which is a defect of the collector")]
    Defect,
}

/// Bytes that all requests under way may hold together.
#[derive(Debug)]
pub struct Budget {
    used: AtomicUsize,
    limit: usize,
}

/// A part of a budget, given back when dropped.
#[derive(Debug)]
pub struct Share {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Budget {
    /// A budget of so many bytes.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { used: AtomicUsize::new(0), limit })
    }

    /// A share of nothing, to be grown.
    pub fn share(self: &Arc<Self>) -> Share {
        Share { budget: self.clone(), bytes: 0 }
    }

    /// Bytes in use.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// The limit.
    pub fn limit(&self) -> usize {
        self.limit
    }
}

impl Share {
    /// Takes more.
    ///
    /// # Errors
    /// [`Failure::Busy`] where there is no more at the moment.
    pub fn grow(&mut self, bytes: usize) -> Result<(), Failure> {
        let limit = self.budget.limit;
        let fits = |used: usize| used.checked_add(bytes).filter(|n| *n <= limit);
        match self.budget.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits) {
            Ok(_) => {
                self.bytes += bytes;
                Ok(())
            }
            Err(_) => {
                Err(Failure::Busy("requests under way hold all the memory there is for them".to_owned()))
            }
        }
    }

    /// Gives back all but so many bytes.
    pub fn shrink(&mut self, bytes: usize) {
        let back = self.bytes.saturating_sub(bytes);
        self.bytes -= back;
        self.budget.used.fetch_sub(back, Ordering::Relaxed);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A request that waits to be read.
pub struct Job {
    /// What it carries.
    pub kind: Kind,
    /// How it is written.
    pub form: Form,
    /// How it is packed.
    pub packing: Packing,
    /// Its body.
    pub body: Bytes,
    /// What it holds of the budget.
    pub share: Share,
}

type Answer = oneshot::Sender<Result<Taken, Failure>>;

/// The threads that read requests.
pub struct Pool {
    jobs: Mutex<Option<SyncSender<(Job, Answer)>>>,
}

/// Requests that may wait to be read; the budget bounds what they hold.
const WAITING: usize = 1024;
/// Bytes of a request that are worth handing to another thread: starting one takes 50 µs, reading them at least 200.
const PART: usize = 128 << 10;

impl Pool {
    /// Starts threads. They read with clones of a reader, so that what one has seen the others know.
    ///
    /// # Errors
    /// Where a thread cannot be started.
    pub fn start(
        threads: usize,
        reader: &Reader,
        max_body: usize,
        journal: Arc<Journal>,
        metrics: Arc<Metrics>,
    ) -> std::io::Result<Self> {
        let (jobs, queue) = sync_channel::<(Job, Answer)>(WAITING);
        let queue = Arc::new(Mutex::new(queue));
        let crew = Arc::new(Crew::default());
        for n in 0..threads.max(1) {
            let (queue, reader, journal, metrics, crew) =
                (queue.clone(), reader.clone(), journal.clone(), metrics.clone(), crew.clone());
            std::thread::Builder::new().name(format!("baton-read-{n}")).stack_size(STACK).spawn(
                move || {
                    let bodies = || Bodies::new(reader.clone(), max_body, metrics.clone(), crew.clone());
                    let mut worker = Worker { bodies: bodies(), journal };
                    while let Some((job, answer)) = crew.wait(|| next(&queue)) {
                        let kind = job.kind;
                        // A defect in reading one request must not end the collector for all.
                        let work = std::panic::AssertUnwindSafe(|| worker.take(job, answer));
                        if std::panic::catch_unwind(work).is_err() {
                            metrics.defect(kind);
                            worker.bodies = bodies();
                        }
                    }
                },
            )?;
        }
        Ok(Self { jobs: Mutex::new(Some(jobs)) })
    }

    /// Reads a request; the answer comes when its rows are in the journal.
    ///
    /// # Errors
    /// Why it was not taken.
    pub async fn read(&self, job: Job) -> Result<Taken, Failure> {
        let (answer, wait) = oneshot::channel();
        let sent = {
            let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
            match jobs.as_ref() {
                None => return Err(Failure::Busy(Refusal::Closed.to_string())),
                Some(jobs) => jobs.try_send((job, answer)),
            }
        };
        match sent {
            Err(TrySendError::Full(_)) => Err(Failure::Busy(format!("{WAITING} requests wait already"))),
            Err(TrySendError::Disconnected(_)) => Err(Failure::Busy(Refusal::Closed.to_string())),
            // The thread dropped the answer: it panicked.
            Ok(()) => wait.await.unwrap_or(Err(Failure::Defect)),
        }
    }

    /// Takes no more; what waits is read.
    pub fn close(&self) {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

fn next(queue: &Mutex<Receiver<(Job, Answer)>>) -> Option<(Job, Answer)> {
    queue.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
}

struct Worker {
    bodies: Bodies,
    journal: Arc<Journal>,
}

impl Worker {
    fn take(&mut self, mut job: Job, answer: Answer) {
        let (entry, taken) = match self.bodies.read(&mut job) {
            Ok((Some(entry), taken)) => (entry, taken),
            // Whoever asked may be gone.
            Ok((None, taken)) => {
                let _ = answer.send(Ok(taken));
                return;
            }
            Err(e) => {
                let _ = answer.send(Err(e));
                return;
            }
        };
        let share = job.share;
        let done = move |outcome: Result<(), Refusal>| {
            drop(share);
            let _ = answer.send(outcome.map(|()| taken).map_err(|e| Failure::Busy(e.to_string())));
        };
        self.journal.append(entry, Box::new(done));
    }
}

/// What a request held.
#[derive(Debug)]
pub struct Held {
    /// Its rows.
    pub rows: Vec<Span>,
    /// What of it is not kept, for the sender.
    pub taken: Taken,
    /// Log records that hold nothing for Baton.
    pub skipped: u64,
}

/// From a request to its rows. Takes the job's body, and what the rows need of its share. Threads of the crew that have nothing to
/// do help with a large one.
///
/// # Errors
/// Why it is not taken.
pub fn read(reader: &Reader, job: &mut Job, max_body: usize, crew: &Crew) -> Result<Held, Failure> {
    let Job { kind, form, packing, ref mut body, ref mut share } = *job;
    let bytes = unpack(packing, std::mem::take(body), max_body, share)?;
    let weight = weight(kind, form, &bytes);
    if weight > share.budget.limit {
        // It would never fit, so it is not to be sent again.
        return Err(Failure::TooLarge { what: "a decoded request", limit: share.budget.limit });
    }
    share.grow(weight)?;
    // Most requests are traces in the form that exporters send: read where they stand.
    let traces = (kind == Kind::Traces && form == Form::Protobuf).then(|| traces_in(&bytes)).flatten();
    match traces {
        Some(traces) => Ok(rows(reader, crew, share, bytes.len(), &Records::Traces(traces), Vec::new())),
        None => {
            let Request { signal, rejected } = decode(kind, form, &bytes)?;
            let records = match &signal {
                Some(Signal::Traces(t)) => Records::Traces(Traces::from(t)),
                Some(Signal::Logs(l)) => Records::Logs(l),
                Some(Signal::Metrics) | None => Records::None,
            };
            Ok(rows(reader, crew, share, bytes.len(), &records, rejected))
        }
    }
}

fn rows(
    reader: &Reader,
    crew: &Crew,
    share: &mut Share,
    bytes: usize,
    records: &Records<'_>,
    rejected: Vec<(String, String)>,
) -> Held {
    let mut rows = Vec::new();
    let mut taken = Taken::default();
    let mut summary = Summary::default();
    for (path, reason) in rejected {
        refuse(&mut taken, &path, &reason);
    }
    let mut reject = |path: String, reason: String| refuse(&mut taken, &path, &reason);
    match records {
        Records::Traces(t) => {
            let n = t.spans().count();
            rows.reserve(n);
            // Where spans stand, and rows of which a second list is made.
            let extra = n * (size_of::<Placed>() + size_of::<Span>());
            let parts = if crew.is_free() { n.min(bytes / PART) } else { 1 };
            if parts > 1 && share.grow(extra).is_ok() {
                let spans: Vec<Placed> = t.spans().collect();
                let parts: Vec<&[Placed]> = spans.chunks(n.div_ceil(parts)).collect();
                let read = |n: usize| {
                    let (mut rows, mut rejected) = (Vec::with_capacity(parts[n].len()), Vec::new());
                    let spans = parts[n].iter().copied();
                    let mut reject = |path, reason| rejected.push((path, reason));
                    let mut sink = |row| rows.push(row);
                    rows_of_spans(reader, spans, &mut Summary::default(), &mut reject, &mut sink);
                    (rows, rejected)
                };
                for (part, rejected) in crew.each(parts.len(), read) {
                    rows.extend(part);
                    rejected.into_iter().for_each(|(path, reason)| reject(path, reason));
                }
            } else {
                rows_of_spans(reader, t.spans(), &mut summary, &mut reject, &mut |row| rows.push(row));
            }
        }
        Records::Logs(l) => rows_of_logs(reader, l, &mut summary, &mut reject, &mut |row| rows.push(row)),
        Records::None => {}
    }
    Held { rows, taken, skipped: summary.logs_skipped }
}

/// Turns bodies into entries of the journal: the work of one reading thread.
pub struct Bodies {
    reader: Reader,
    max_body: usize,
    metrics: Arc<Metrics>,
    crew: Arc<Crew>,
}

impl Bodies {
    /// Reads with a reader.
    pub fn new(reader: Reader, max_body: usize, metrics: Arc<Metrics>, crew: Arc<Crew>) -> Self {
        Self { reader, max_body, metrics, crew }
    }

    /// Reads a request. What it takes in memory is added to its share; no entry: none of its records is kept.
    ///
    /// # Errors
    /// Why it was not taken.
    pub fn read(&self, job: &mut Job) -> Result<(Option<Entry>, Taken), Failure> {
        let Held { rows, taken, skipped } = read(&self.reader, job, self.max_body, &self.crew)?;
        let kind = job.kind;
        if kind != Kind::Metrics {
            let rejected = u64::try_from(taken.rejected).unwrap_or(0);
            self.metrics.received(kind, rows.len() as u64 + skipped + rejected);
            for (reason, n) in [("invalid", rejected), ("no_span", skipped)] {
                if n > 0 {
                    self.metrics.rejected(kind, reason, n);
                }
            }
        }
        if rows.is_empty() {
            return Ok((None, taken));
        }
        self.metrics.rows(&rows);
        match Entry::encode(rows) {
            Ok(entry) => {
                // What waits for the journal is small beside what reading took.
                job.share.shrink(entry.len());
                Ok((Some(entry), taken))
            }
            Err(_) => {
                self.metrics.defect(kind);
                Err(Failure::Defect)
            }
        }
    }
}

/// What rows are made of.
enum Records<'a> {
    Traces(Traces<'a>),
    Logs(&'a ExportLogsServiceRequest),
    None,
}

fn refuse(taken: &mut Taken, path: &str, reason: &str) {
    if taken.rejected == 0 {
        taken.message = format!("{path}: {reason}");
    }
    taken.rejected += 1;
}

/// Unpacks a body; stops at the limit.
fn unpack(packing: Packing, body: Bytes, limit: usize, share: &mut Share) -> Result<Bytes, Failure> {
    let source: Box<dyn Read + '_> = match packing {
        Packing::Plain => return Ok(body),
        Packing::Gzip => Box::new(flate2::read::MultiGzDecoder::new(&body[..])),
        Packing::Zstd => {
            let mut d =
                zstd::Decoder::new(&body[..]).map_err(|e| Failure::Malformed(format!("zstd: {e}")))?;
            // What a decoder may keep of the past; no exporter asks for more.
            d.window_log_max(WINDOW_LOG).map_err(|e| Failure::Malformed(format!("zstd: {e}")))?;
            Box::new(d)
        }
    };
    let mut out = Vec::with_capacity((body.len() * 4).min(limit));
    share.grow(out.capacity())?;
    let mut source = source.take(limit as u64 + 1);
    let mut chunk = vec![0u8; 64 << 10];
    loop {
        match source.read(&mut chunk) {
            Ok(0) => break,
            Ok(n) if out.len() + n > limit => {
                return Err(Failure::TooLarge { what: "an unpacked body", limit });
            }
            Ok(n) => {
                if out.len() + n > out.capacity() {
                    // Doubling: the old and the new buffer are there at once for a moment.
                    share.grow(out.capacity().max(n))?;
                }
                out.extend_from_slice(&chunk[..n]);
            }
            Err(e) => return Err(Failure::Malformed(format!("the body cannot be unpacked: {e}"))),
        }
    }
    Ok(out.into())
}

/// zstd windows of at most 8 MiB, what the format asks every decoder to support.
const WINDOW_LOG: u32 = 23;

struct Request {
    signal: Option<Signal>,
    /// Records that the decoder left out: path and reason.
    rejected: Vec<(String, String)>,
}

fn decode(kind: Kind, form: Form, bytes: &[u8]) -> Result<Request, Failure> {
    match form {
        Form::Protobuf => {
            let malformed =
                |e: prost::DecodeError| Failure::Malformed(format!("no OTLP {} request: {e}", kind.name()));
            let signal = match kind {
                Kind::Traces => Signal::Traces(ExportTraceServiceRequest::decode(bytes).map_err(malformed)?),
                Kind::Logs => Signal::Logs(ExportLogsServiceRequest::decode(bytes).map_err(malformed)?),
                Kind::Metrics => {
                    ExportMetricsServiceRequest::decode(bytes).map_err(malformed)?;
                    Signal::Metrics
                }
            };
            Ok(Request { signal: Some(signal), rejected: Vec::new() })
        }
        Form::Json => {
            let mut doc = decode_json(bytes).map_err(|e| Failure::Malformed(e.to_string()))?;
            let fits = |s: &Signal| {
                matches!(
                    (s, kind),
                    (Signal::Traces(_), Kind::Traces)
                        | (Signal::Logs(_), Kind::Logs)
                        | (Signal::Metrics, Kind::Metrics)
                )
            };
            if let Some(other) = doc.signals.iter().find(|s| !fits(s)) {
                let other = match other {
                    Signal::Traces(_) => "traces",
                    Signal::Logs(_) => "logs",
                    Signal::Metrics => "metrics",
                };
                return Err(Failure::Malformed(format!("carries {other}, and was sent as {}", kind.name())));
            }
            Ok(Request { signal: doc.signals.pop(), rejected: doc.rejected })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn gzip(data: &[u8]) -> std::io::Result<Bytes> {
        let mut e = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        e.write_all(data)?;
        Ok(e.finish()?.into())
    }

    #[test]
    fn unpacking_stops_at_the_limit_and_at_the_budget() -> std::io::Result<()> {
        let zeros = vec![0u8; 1 << 20];
        for (packing, body) in
            [(Packing::Gzip, gzip(&zeros)?), (Packing::Zstd, zstd::encode_all(&zeros[..], 1)?.into())]
        {
            let budget = Budget::new(8 << 20);
            let mut share = budget.share();
            assert_eq!(unpack(packing, body.clone(), 1 << 20, &mut share).map(|b| b.len()), Ok(1 << 20));
            let small = unpack(packing, body.clone(), (1 << 20) - 1, &mut budget.share());
            assert!(
                matches!(small, Err(Failure::TooLarge { limit, .. }) if limit == (1 << 20) - 1),
                "{small:?}"
            );
            let budget = Budget::new(100 << 10);
            assert!(matches!(unpack(packing, body, 1 << 20, &mut budget.share()), Err(Failure::Busy(_))));
            // All is given back.
            assert_eq!(budget.used(), 0);
            let mut share = budget.share();
            share.grow(1000).map_err(std::io::Error::other)?;
            share.shrink(2000);
            assert_eq!(budget.used(), 1000);
            share.shrink(300);
            assert_eq!(budget.used(), 300);
            drop(share);
            assert_eq!(budget.used(), 0);
        }
        Ok(())
    }

    #[test]
    fn what_cannot_be_unpacked_is_malformed() -> std::io::Result<()> {
        let whole = gzip(b"some text that is packed")?;
        let budget = Budget::new(1 << 20);
        for (packing, body) in [
            (Packing::Gzip, whole.slice(..whole.len() - 5)),
            (Packing::Gzip, Bytes::from_static(b"plain")),
            (Packing::Zstd, Bytes::from_static(b"plain")),
        ] {
            let r = unpack(packing, body, 1 << 20, &mut budget.share());
            assert!(matches!(r, Err(Failure::Malformed(_))), "{r:?}");
        }
        Ok(())
    }

    #[test]
    fn a_large_request_gives_the_same_rows_however_many_read_it() {
        use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
        let span = |n: usize| Span {
            trace_id: vec![1; 16],
            // Two of them cannot be kept.
            span_id: if n % 250 == 249 { Vec::new() } else { (n as u64 + 1).to_be_bytes().to_vec() },
            name: format!("{n} {}", "x".repeat(3000)),
            ..Span::default()
        };
        let scopes =
            |from: usize| ScopeSpans { spans: (from..from + 100).map(span).collect(), ..Default::default() };
        let resource = |from: usize| ResourceSpans {
            scope_spans: vec![scopes(from), scopes(from + 100)],
            ..Default::default()
        };
        let request =
            ExportTraceServiceRequest { resource_spans: vec![resource(0), resource(200), resource(400)] };
        let body = Bytes::from(request.encode_to_vec());
        assert!(body.len() > 10 * PART);
        let reader = Reader::new(Arc::default(), baton_record::prints::PrintKey::default());
        let budget = Budget::new(1 << 30);
        let read_by = |crew: &Crew| {
            let mut job = Job {
                kind: Kind::Traces,
                form: Form::Protobuf,
                packing: Packing::Plain,
                body: body.clone(),
                share: budget.share(),
            };
            read(&reader, &mut job, 16 << 20, crew).map(|h| (format!("{:?}", h.rows), h.rows.len(), h.taken))
        };
        let crew = Crew::default();
        let alone = read_by(&crew);
        assert_eq!(crew.wait(|| crew.wait(|| read_by(&crew))), alone);
        let message = "resourceSpans[1].scopeSpans[0].spans[49]: ";
        assert!(
            matches!(&alone, Ok((_, 598, t)) if t.rejected == 2 && t.message.starts_with(message)),
            "{alone:?}"
        );
    }

    #[test]
    fn a_signal_sent_to_the_wrong_place_is_told() {
        let r = decode(Kind::Traces, Form::Json, br#"{"resourceLogs":[]}"#);
        assert!(matches!(r, Err(Failure::Malformed(m)) if m.contains("carries logs")));
        assert!(decode(Kind::Logs, Form::Json, b"{}").is_ok());
    }
}
