//! What the collector says of itself, for Prometheus.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arrow::array::{AsArray, RecordBatch, TimestampNanosecondArray};
use baton_record::span::Span;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::ingest::{Budget, Kind};
use super::journal::{Event, Journal};

/// How a request came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// OTLP over HTTP.
    Http,
    /// OTLP over gRPC.
    Grpc,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Signal {
    signal: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    signal: &'static str,
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Request {
    protocol: &'static str,
    signal: &'static str,
    code: u16,
}

/// A transfer that a span spoke of, for the page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// When, in nanoseconds since 1970.
    pub time: Option<i64>,
    /// Service of the span.
    pub service: Option<String>,
    /// Sender by the span's word.
    pub from: Option<String>,
    /// Receivers by the span's word.
    pub to: Vec<String>,
    /// Its trace.
    pub trace: String,
}

/// Transfers the page shows.
const SHOWN: usize = 20;

/// Counters, gauges and histograms.
pub struct Metrics {
    registry: Registry,
    received: Family<Signal, Counter>,
    rejected: Family<Reason, Counter>,
    dropped: Family<Reason, Counter>,
    requests: Family<Request, Counter>,
    stored: Counter,
    defects: Counter,
    disk_errors: Counter,
    keep_errors: Counter,
    damaged: Counter,
    parquet_bytes: Counter,
    answer: Histogram,
    sync: Histogram,
    keep: Histogram,
    lag: Histogram,
    memory_used: Gauge<i64, AtomicI64>,
    memory_limit: Gauge<i64, AtomicI64>,
    journal_bytes: Gauge<i64, AtomicI64>,
    journal_segments: Gauge<i64, AtomicI64>,
    queue_bytes: Gauge<i64, AtomicI64>,
    journal: OnceLock<std::sync::Arc<Journal>>,
    /// Rows in the journal and not yet in Parquet.
    waiting: AtomicU64,
    seen: Mutex<VecDeque<Seen>>,
}

fn times() -> Histogram {
    Histogram::new([0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0])
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// All at zero.
    pub fn new() -> Self {
        let mut r = Registry::with_prefix("baton");
        let m = Self {
            received: Family::default(),
            rejected: Family::default(),
            dropped: Family::default(),
            requests: Family::default(),
            stored: Counter::default(),
            defects: Counter::default(),
            disk_errors: Counter::default(),
            keep_errors: Counter::default(),
            damaged: Counter::default(),
            parquet_bytes: Counter::default(),
            answer: times(),
            sync: times(),
            keep: times(),
            lag: Histogram::new([0.5, 1.0, 2.5, 5.0, 7.5, 10.0, 15.0, 30.0, 60.0, 300.0, 3600.0]),
            memory_used: Gauge::default(),
            memory_limit: Gauge::default(),
            journal_bytes: Gauge::default(),
            journal_segments: Gauge::default(),
            queue_bytes: Gauge::default(),
            journal: OnceLock::new(),
            waiting: AtomicU64::new(0),
            seen: Mutex::new(VecDeque::with_capacity(SHOWN)),
            registry: Registry::default(),
        };
        r.register("received_records", "Records in requests that could be read", m.received.clone());
        r.register("rejected_records", "Records not kept and reported to their sender", m.rejected.clone());
        r.register(
            "dropped_records",
            "Records taken and not kept, since nothing is done with them",
            m.dropped.clone(),
        );
        r.register("requests", "Requests answered, by HTTP or gRPC code", m.requests.clone());
        r.register("stored_rows", "Rows written to Parquet", m.stored.clone());
        r.register(
            "defects",
            "Requests whose reading failed for a defect of the collector",
            m.defects.clone(),
        );
        r.register("journal_errors", "Appends to the journal that the disk refused", m.disk_errors.clone());
        r.register(
            "store_errors",
            "Segments that could not be written to the store at once",
            m.keep_errors.clone(),
        );
        r.register("damaged_segments", "Segments set aside as damaged", m.damaged.clone());
        r.register_with_unit("parquet", "Bytes of Parquet written", Unit::Bytes, m.parquet_bytes.clone());
        r.register_with_unit("answer", "Time from a request to its answer", Unit::Seconds, m.answer.clone());
        r.register_with_unit(
            "journal_sync",
            "Time to append and sync a group of requests",
            Unit::Seconds,
            m.sync.clone(),
        );
        r.register_with_unit(
            "store_write",
            "Time to turn a segment into Parquet",
            Unit::Seconds,
            m.keep.clone(),
        );
        r.register_with_unit(
            "visibility_lag",
            "Time from the end of a span until it can be asked for",
            Unit::Seconds,
            m.lag.clone(),
        );
        r.register_with_unit(
            "request_memory",
            "Memory that requests under way hold",
            Unit::Bytes,
            m.memory_used.clone(),
        );
        r.register_with_unit(
            "request_memory_limit",
            "Memory that requests may hold",
            Unit::Bytes,
            m.memory_limit.clone(),
        );
        r.register_with_unit(
            "journal",
            "Bytes of journal not yet in Parquet",
            Unit::Bytes,
            m.journal_bytes.clone(),
        );
        r.register("journal_segments", "Segments not yet in Parquet", m.journal_segments.clone());
        r.register_with_unit(
            "journal_queue",
            "Bytes that wait to be appended",
            Unit::Bytes,
            m.queue_bytes.clone(),
        );
        Self { registry: r, ..m }
    }

    /// The journal whose sizes are shown.
    pub(super) fn watch(&self, journal: std::sync::Arc<Journal>) {
        let _ = self.journal.set(journal);
    }

    /// In the text form of OpenMetrics.
    pub fn encode(&self, budget: &Budget) -> String {
        let set = |g: &Gauge<i64, AtomicI64>, n: u64| {
            g.set(i64::try_from(n).unwrap_or(i64::MAX));
        };
        set(&self.memory_used, budget.used() as u64);
        set(&self.memory_limit, budget.limit() as u64);
        if let Some(j) = self.journal.get() {
            set(&self.journal_bytes, j.bytes());
            set(&self.journal_segments, j.segments());
            set(&self.queue_bytes, j.queued());
        }
        let mut out = String::new();
        if prometheus_client::encoding::text::encode(&mut out, &self.registry).is_err() {
            let _ = writeln!(out, "# EOF");
        }
        out
    }

    /// A request was answered.
    pub(super) fn answered(&self, protocol: Protocol, kind: Kind, code: u16, took: Duration) {
        let protocol = match protocol {
            Protocol::Http => "http",
            Protocol::Grpc => "grpc",
        };
        self.requests.get_or_create(&Request { protocol, signal: kind.name(), code }).inc();
        self.answer.observe(took.as_secs_f64());
    }

    /// Something happened in the journal.
    pub(super) fn journal(&self, event: &Event<'_>) {
        match event {
            Event::Appended { rows, took, .. } => {
                self.waiting.fetch_add(*rows, Ordering::Relaxed);
                self.sync.observe(took.as_secs_f64());
            }
            Event::Refused(_) => {
                self.disk_errors.inc();
            }
            Event::Kept { batches, rows, bytes, took } => {
                self.stored.inc_by(*rows);
                self.parquet_bytes.inc_by(*bytes);
                self.keep.observe(took.as_secs_f64());
                let _ = self
                    .waiting
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| Some(n.saturating_sub(*rows)));
                batches.iter().for_each(|b| self.lags(b));
            }
            Event::Waiting { .. } => {
                self.keep_errors.inc();
            }
            Event::Damaged { .. } => {
                self.damaged.inc();
            }
            Event::Adopted { .. } => {}
        }
    }

    fn lags(&self, batch: &RecordBatch) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let now = i64::try_from(now).unwrap_or(i64::MAX);
        let Some(end) = batch.column_by_name("end") else { return };
        let end: &TimestampNanosecondArray = end.as_primitive();
        for end in end.iter().flatten() {
            // A clock that runs ahead is no negative lag.
            self.lag.observe(now.saturating_sub(end).max(0) as f64 / 1e9);
        }
    }

    /// Rows written to Parquet since the start.
    pub fn stored(&self) -> u64 {
        self.stored.get()
    }

    /// Rows acknowledged and not yet in Parquet.
    pub fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// The last transfers that spans spoke of, newest first.
    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    /// Records came in.
    pub(super) fn received(&self, kind: Kind, records: u64) {
        self.received.get_or_create(&Signal { signal: kind.name() }).inc_by(records);
    }

    /// Records were not kept, for a reason.
    pub(super) fn rejected(&self, kind: Kind, reason: &'static str, records: u64) {
        // A record about no span is taken in the sender's eyes: it has nothing to mend.
        let family = if reason == "invalid" { &self.rejected } else { &self.dropped };
        family.get_or_create(&Reason { signal: kind.name(), reason }).inc_by(records);
    }

    /// Rows are about to be put into the journal: those that speak of a transfer are shown.
    pub(super) fn rows(&self, rows: &[Span]) {
        for row in rows {
            let Some(h) = &row.handoff else { continue };
            let seen = Seen {
                time: row.start,
                service: row.service.clone(),
                from: h.from.clone().or_else(|| row.agent.clone()),
                to: h.to.clone(),
                trace: row.trace_id.clone(),
            };
            let mut list = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            list.truncate(SHOWN - 1);
            list.push_front(seen);
        }
    }

    /// A request met a defect.
    pub(super) fn defect(&self, _: Kind) {
        self.defects.inc();
    }
}
