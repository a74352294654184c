//! Spans of a Rust agent, written as Parquet from inside its process: no receiver, no query engine.
//!
//! [`HandoffProcessor`] is a `SpanProcessor` of the OpenTelemetry SDK. Its rows are those that
//! an import of the same spans as OTLP makes.
//!
//! ```
//! use baton_collector::processor::HandoffProcessor;
//! use opentelemetry::KeyValue;
//! use opentelemetry::trace::{Span, Tracer, TracerProvider};
//! use opentelemetry_sdk::Resource;
//! use opentelemetry_sdk::trace::SdkTracerProvider;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let store = folder.path().join("store");
//! let processor = HandoffProcessor::builder(&store).build()?;
//! let provider = SdkTracerProvider::builder()
//!     .with_resource(Resource::builder().with_service_name("refunds").build())
//!     // A clone is the same processor; the one kept here tells what was dropped.
//!     .with_span_processor(processor.clone())
//!     .build();
//!
//! let mut span = provider.tracer("agent").start("handoff Triage -> Refunds");
//! span.set_attribute(KeyValue::new("baton.handoff.from_agent", "Triage"));
//! span.set_attribute(KeyValue::new("baton.handoff.to_agent", "Refunds"));
//! span.end();
//!
//! provider.shutdown()?;
//! assert_eq!(processor.dropped(), 0);
//! # Ok(())
//! # }
//! ```
//!
//! Ending a span moves it into a bounded queue and does nothing else. A thread of its own makes rows of the spans and
//! writes them at every flush interval. Where the queue is full the span is dropped and counted: an agent never waits.
//!
//! While the store cannot be written, rows are held up to a bound and every interval tries again. Beyond the bound spans
//! are dropped and counted. A file that was written but could not be confirmed may be written again; rows that
//! stand twice count once when they are read.
//!
//! A processor that is dropped without a shutdown still writes what it has, but nobody waits for it: at the end of
//! a process, shut the provider down.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

use baton_record::config::Config;
use crossbeam_queue::ArrayQueue;
use opentelemetry::Context;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::trace::v1 as proto;
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{Span, SpanData, SpanProcessor};

use crate::dialect;
use crate::raw::{self, Attrs};
use crate::reading::Reader;
use crate::store::{self, Store};

/// The queue is allocated whole; more than this is taken for a mistake.
const MAX_QUEUE: usize = 1 << 20;
/// Set in [`Shared::state`] from shutdown on.
const CLOSED: usize = 1 << (usize::BITS - 1);

/// Settings of a [`HandoffProcessor`], from [`HandoffProcessor::builder`].
#[derive(Debug)]
pub struct Builder {
    store: PathBuf,
    config: Config,
    queue_size: usize,
    batch_size: usize,
    flush_interval: Duration,
    flush_timeout: Duration,
    max_held_rows: usize,
}

impl Builder {
    fn new(store: &Path, var: impl Fn(&str) -> Option<String>) -> Self {
        let number = |name: &str| {
            let text = var(name)?;
            let number = text.trim().parse::<u32>();
            if number.is_err() {
                tracing::warn!(variable = name, value = text, "not a whole number; the default is used");
            }
            number.ok()
        };
        let count = |name, default| number(name).map_or(default, |n| n as usize);
        let time = |name, default| Duration::from_millis(number(name).unwrap_or(default).into());
        Self {
            store: store.to_owned(),
            config: Config::default(),
            queue_size: count("OTEL_BSP_MAX_QUEUE_SIZE", 2048),
            batch_size: count("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512),
            flush_interval: time("OTEL_BSP_SCHEDULE_DELAY", 10_000),
            flush_timeout: time("OTEL_BSP_EXPORT_TIMEOUT", 30_000),
            max_held_rows: store::MAX_ROWS,
        }
    }

    /// How spans are read: which text is kept, the tokenizer, the policy catalogue.
    pub fn with_config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Spans that wait at most, 1 to 1,048,576; beyond them spans are dropped. 2048 by default.
    pub fn with_queue_size(mut self, spans: usize) -> Self {
        self.queue_size = spans;
        self
    }

    /// So many waiting spans wake the thread before the interval is over. 512 by default, at most the queue's size.
    pub fn with_batch_size(mut self, spans: usize) -> Self {
        self.batch_size = spans;
        self
    }

    /// How often files are written: rows can be read at the latest after this. 10 seconds by default.
    pub fn with_flush_interval(mut self, interval: Duration) -> Self {
        self.flush_interval = interval;
        self
    }

    /// How long `force_flush` waits. 30 seconds by default.
    pub fn with_flush_timeout(mut self, timeout: Duration) -> Self {
        self.flush_timeout = timeout;
        self
    }

    /// Rows held in memory at most: then a file is written before its time, and where that fails spans are dropped.
    /// [`store::MAX_ROWS`] by default.
    pub fn with_max_held_rows(mut self, rows: usize) -> Self {
        self.max_held_rows = rows;
        self
    }

    /// Opens the store and starts the thread.
    ///
    /// # Errors
    /// Where the store cannot be opened or made, or the thread not be started.
    pub fn build(self) -> Result<HandoffProcessor, store::Error> {
        let path = self.store.clone();
        let (processor, worker) = self.parts()?;
        thread::Builder::new()
            .name("baton-processor".to_owned())
            .spawn(move || worker.run())
            .map_err(|source| store::Error::Io { path, source })?;
        Ok(processor)
    }

    fn parts(self) -> Result<(HandoffProcessor, Worker), store::Error> {
        let store = Store::open(&self.store)?;
        let reader = Reader::new(Arc::new(self.config), store.key());
        let queue_size = self.queue_size.clamp(1, MAX_QUEUE);
        let shared = Arc::new(Shared {
            queue: ArrayQueue::new(queue_size),
            state: AtomicUsize::new(0),
            batch_size: self.batch_size.clamp(1, queue_size),
            dropped: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
        });
        let (control, messages) = mpsc::channel();
        let worker = Worker {
            shared: Arc::clone(&shared),
            messages,
            store,
            reader,
            resource: Vec::new(),
            // A thread that never sleeps would serve nobody.
            flush_interval: self.flush_interval.max(Duration::from_millis(1)),
            max_held_rows: self.max_held_rows.max(1),
            failing: false,
        };
        Ok((HandoffProcessor { shared, control, flush_timeout: self.flush_timeout }, worker))
    }
}

/// Writes the spans of this process to a store. Clones are the same processor.
#[derive(Debug, Clone)]
pub struct HandoffProcessor {
    shared: Arc<Shared>,
    control: Sender<Message>,
    flush_timeout: Duration,
}

impl HandoffProcessor {
    /// A processor for the store at a path, which is made where there is none.
    ///
    /// Defaults are those of the `BatchSpanProcessor` of the OpenTelemetry specification, but for a flush interval
    /// of 10 seconds. The variables `OTEL_BSP_MAX_QUEUE_SIZE`, `OTEL_BSP_MAX_EXPORT_BATCH_SIZE`, `OTEL_BSP_SCHEDULE_DELAY`
    /// (the flush interval) and `OTEL_BSP_EXPORT_TIMEOUT` (the flush timeout) change them; what the builder is told wins.
    pub fn builder(store: impl AsRef<Path>) -> Builder {
        Builder::new(store.as_ref(), |name| std::env::var(name).ok())
    }

    /// Spans lost so far: the queue was full, they ended after the shutdown, or the store could not be written for too long.
    pub fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }

    /// Spans that could not be read so far: an id that is all zero.
    pub fn rejected(&self) -> u64 {
        self.shared.rejected.load(Ordering::Relaxed)
    }

    /// Asks the thread and waits; `None` where the thread is gone.
    fn ask(&self, message: impl FnOnce(Reply) -> Message, timeout: Duration) -> Option<OTelSdkResult> {
        let (reply, answer) = mpsc::sync_channel(1);
        self.control.send(message(reply)).ok()?;
        match answer.recv_timeout(timeout) {
            Ok(result) => Some(result),
            Err(RecvTimeoutError::Timeout) => Some(Err(OTelSdkError::Timeout(timeout))),
            Err(RecvTimeoutError::Disconnected) => None,
        }
    }
}

impl SpanProcessor for HandoffProcessor {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        if !span.span_context.is_sampled() {
            return;
        }
        let shared = &*self.shared;
        // Read first: where nothing is taken any more, threads do not fight over the counter.
        if !shared.takes(shared.state.load(Ordering::Relaxed)) {
            return shared.refuse();
        }
        // Counted before it is queued: the thread never takes out what was not counted, and at the end it knows what is
        // still on its way.
        let before = shared.state.fetch_add(1, Ordering::AcqRel);
        if !shared.takes(before) {
            shared.state.fetch_sub(1, Ordering::AcqRel);
            return shared.refuse();
        }
        if shared.queue.push(span).is_err() {
            // The queue holds no more than was counted, so there is always room. Were there none, this keeps the count true.
            shared.state.fetch_sub(1, Ordering::AcqRel);
            return shared.refuse();
        }
        if before + 1 == shared.batch_size {
            // An error says that the thread is gone; then the queue fills, and drops are counted.
            let _ = self.control.send(Message::Wake);
        }
    }

    /// Returns when everything that ended before is in files under their final names.
    fn force_flush(&self) -> OTelSdkResult {
        self.ask(Message::Flush, self.flush_timeout).unwrap_or_else(|| {
            Err(if self.shared.is_closed() { OTelSdkError::AlreadyShutdown } else { gone() })
        })
    }

    /// Writes what is queued and ends the thread, which goes on with that also after the timeout.
    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        if self.shared.state.fetch_or(CLOSED, Ordering::AcqRel) & CLOSED != 0 {
            return Err(OTelSdkError::AlreadyShutdown);
        }
        self.ask(Message::Shutdown, timeout).unwrap_or_else(|| Err(gone()))
    }

    /// Counts for the spans that end after it, so one processor serves one provider. It waits until the thread knows it.
    fn set_resource(&mut self, resource: &Resource) {
        let attributes = ResourceAttributesWithSchema::from(resource).attributes.0;
        let _ = self.ask(|reply| Message::Resource(attributes, reply), self.flush_timeout);
    }
}

fn gone() -> OTelSdkError {
    OTelSdkError::InternalFailure("the thread that writes has ended".to_owned())
}

/// What the ends of the queue share.
#[derive(Debug)]
struct Shared {
    queue: ArrayQueue<SpanData>,
    /// Spans queued or about to be, and [`CLOSED`].
    state: AtomicUsize,
    batch_size: usize,
    dropped: AtomicU64,
    rejected: AtomicU64,
}

impl Shared {
    /// Whether a span is taken in this state. A closed one is larger than every capacity.
    fn takes(&self, state: usize) -> bool {
        state < self.queue.capacity()
    }

    fn is_closed(&self) -> bool {
        self.state.load(Ordering::Acquire) & CLOSED != 0
    }

    fn queued(&self) -> usize {
        self.state.load(Ordering::Acquire) & !CLOSED
    }

    #[cold]
    fn refuse(&self) {
        self.drop_spans(
            1,
            if self.is_closed() { "they end after the shutdown" } else { "the queue is full" },
        );
    }

    /// Counts, and warns the first time.
    fn drop_spans(&self, n: u64, why: &str) {
        if n > 0 && self.dropped.fetch_add(n, Ordering::Relaxed) == 0 {
            tracing::warn!("spans are dropped: {why}; there is no further warning before the shutdown");
        }
    }
}

type Reply = SyncSender<OTelSdkResult>;

/// What the thread is told.
enum Message {
    /// A batch waits.
    Wake,
    Flush(Reply),
    Shutdown(Reply),
    Resource(Vec<KeyValue>, Reply),
}

/// The thread that reads and writes.
struct Worker {
    shared: Arc<Shared>,
    messages: Receiver<Message>,
    store: Store,
    reader: Reader,
    resource: Vec<KeyValue>,
    flush_interval: Duration,
    max_held_rows: usize,
    /// The last attempt to write failed.
    failing: bool,
}

impl Worker {
    fn run(mut self) {
        // Nothing that happens here may become a span of the same processor.
        let _suppressed = Context::enter_telemetry_suppressed_scope();
        let mut last = Instant::now();
        loop {
            // Only the span that completes a batch wakes; more than a batch may be left by then.
            let wait = if self.batch_waits() {
                Duration::ZERO
            } else {
                self.flush_interval.saturating_sub(last.elapsed())
            };
            match self.messages.recv_timeout(wait) {
                Ok(Message::Wake) | Err(RecvTimeoutError::Timeout) => {}
                Ok(Message::Flush(reply)) => {
                    // It may have stopped waiting.
                    let _ = reply.send(self.write());
                    last = Instant::now();
                }
                Ok(Message::Resource(attributes, reply)) => {
                    self.drain();
                    self.resource = attributes;
                    let _ = reply.send(Ok(()));
                }
                Ok(Message::Shutdown(reply)) => {
                    let _ = reply.send(self.finish());
                    return;
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let _ = self.finish();
                    return;
                }
            }
            if last.elapsed() >= self.flush_interval {
                // Failures are told and tried again; nobody waits for this result.
                let _ = self.write();
                last = Instant::now();
            } else if self.batch_waits() {
                self.drain();
            }
        }
    }

    fn batch_waits(&self) -> bool {
        self.shared.queued() >= self.shared.batch_size
    }

    /// Makes rows of the spans that are queued now. What comes meanwhile waits, so that this ends.
    fn drain(&mut self) {
        let mut left = self.shared.queued();
        let mut batch = Vec::with_capacity(left.min(self.shared.batch_size));
        while left > 0 {
            let n = left.min(self.shared.batch_size);
            batch.extend(std::iter::from_fn(|| self.shared.queue.pop()).take(n));
            if batch.is_empty() {
                // The rest was counted and is not queued yet.
                break;
            }
            // There is room again before the slow part.
            self.shared.state.fetch_sub(batch.len(), Ordering::AcqRel);
            left -= batch.len();
            for span in batch.drain(..) {
                self.keep(span);
            }
        }
    }

    fn keep(&mut self, span: SpanData) {
        let scope = span.instrumentation_scope.name().to_owned();
        let span = proto::Span::from(span);
        let Ok((row, _)) =
            dialect::read_span(&self.reader, &Attrs::of(&self.resource), &scope, &raw::Span::from(&span))
        else {
            self.shared.rejected.fetch_add(1, Ordering::Relaxed);
            return;
        };
        if self.is_full() && !self.failing {
            let _ = self.flush();
        }
        if self.is_full() {
            self.shared.drop_spans(1, "the store cannot be written and too many rows are held");
        } else if let Err(e) = self.store.push(row) {
            self.failed(&e);
        }
    }

    fn is_full(&self) -> bool {
        self.store.held_rows() >= self.max_held_rows || self.store.is_full()
    }

    /// Everything queued now goes to files.
    fn write(&mut self) -> OTelSdkResult {
        self.drain();
        self.flush()
    }

    fn flush(&mut self) -> OTelSdkResult {
        match self.store.flush() {
            Ok(()) => {
                self.failing = false;
                Ok(())
            }
            Err(e) => {
                self.failed(&e);
                Err(OTelSdkError::InternalFailure(e.to_string()))
            }
        }
    }

    /// Tells once that writing fails, until it works again.
    fn failed(&mut self, e: &store::Error) {
        if !self.failing {
            tracing::error!("the store cannot be written: {e}; up to {} rows are held", self.max_held_rows);
        }
        self.failing = true;
    }

    /// Writes everything, also what other threads are just about to queue.
    fn finish(&mut self) -> OTelSdkResult {
        self.drain();
        while self.shared.queued() > 0 {
            thread::yield_now();
            self.drain();
        }
        let result = self.flush();
        self.shared.drop_spans(self.store.held_rows() as u64, "the store cannot be written");
        let dropped = self.shared.dropped.load(Ordering::Relaxed);
        if dropped > 0 {
            tracing::warn!(dropped, "spans were dropped");
        }
        result
    }
}

#[cfg(test)]
mod tests;
