//! What ending a span costs the agent: `on_end` of [`HandoffProcessor`] beside that of the SDK's `BatchSpanProcessor` with an
//! exporter that does nothing, for a handoff span with ten constraints.
//!
//! ```text
//! cargo bench -p baton-collector --bench processor
//! ```
//!
//! Only `on_end` is timed, and of both processors with the queue of 2048 and the batch of 512 that the specification names. The
//! time printed is that of a round of [`ROUND`] spans; the throughput is spans per second. A flush outside the clock follows every
//! round, so the queue cannot be full, however slow its thread; that no span was dropped is checked. A round completes no batch, so
//! both threads sleep meanwhile: what is not in it is waking them, once per batch, and the processor time they need later.
//!
//! The flushes of the two leave the caches in very different states. So before every timed round both end a round that is not
//! timed, in the same order.

use std::error::Error;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use baton_collector::processor::HandoffProcessor;
use baton_record::attr;
use criterion::{Criterion, Throughput};
use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue, StringValue, Value};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, SpanData, SpanExporter, SpanProcessor,
};

/// Spans of a round; less than a batch.
const ROUND: u64 = 500;
const QUEUE: usize = 2048;
const BATCH: usize = 512;

fn texts(of: impl Fn(u64) -> String) -> Value {
    Value::Array((0..10).map(|i| StringValue::from(of(i))).collect::<Vec<_>>().into())
}

fn handoff(id: u64, start: SystemTime) -> SpanData {
    SpanData {
        span_context: SpanContext::new(
            TraceId::from(1),
            SpanId::from(id + 1),
            TraceFlags::SAMPLED,
            false,
            TraceState::default(),
        ),
        parent_span_id: SpanId::from(u64::MAX),
        parent_span_is_remote: false,
        span_kind: SpanKind::Internal,
        name: "handoff Triage -> Refunds".into(),
        start_time: start,
        end_time: start + Duration::from_millis(3),
        attributes: vec![
            KeyValue::new(attr::BATON_HANDOFF_ID, "3f0c1f5e-6d0a-4f43-9d4b-0a1b2c3d4e5f"),
            KeyValue::new(attr::BATON_HANDOFF_FROM_AGENT, "Triage"),
            KeyValue::new(attr::BATON_HANDOFF_TO_AGENT, "Refunds"),
            KeyValue::new(attr::BATON_HANDOFF_MODE, "pass_control"),
            KeyValue::new(attr::BATON_HANDOFF_REASON, "The customer asks for a refund"),
            KeyValue::new(attr::BATON_HANDOFF_CONSTRAINTS_IDS, texts(|i| format!("constraint-{i}"))),
            KeyValue::new(attr::BATON_HANDOFF_CONSTRAINTS_HASHES, texts(|i| format!("{i:064x}"))),
            KeyValue::new(attr::BATON_HANDOFF_HISTORY_ITEMS_BEFORE, 12),
            KeyValue::new(attr::BATON_HANDOFF_HISTORY_ITEMS_AFTER, 4),
            KeyValue::new(attr::BATON_HANDOFF_PAYLOAD_TOKENS, 180),
        ],
        dropped_attributes_count: 0,
        events: Default::default(),
        links: Default::default(),
        status: Status::Unset,
        instrumentation_scope: InstrumentationScope::builder("bench").build(),
    }
}

/// Counts and forgets.
#[derive(Debug)]
struct Nothing(Arc<AtomicU64>);

impl SpanExporter for Nothing {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.0.fetch_add(batch.len() as u64, Ordering::Relaxed);
        Ok(())
    }
}

/// Ends a round of spans and tells how long that took. Then flushes.
fn round(processor: &dyn SpanProcessor, start: SystemTime) -> Duration {
    let spans: Vec<SpanData> = (0..ROUND).map(|id| handoff(id, start)).collect();
    let clock = Instant::now();
    for span in spans {
        processor.on_end(black_box(span));
    }
    let time = clock.elapsed();
    assert!(processor.force_flush().is_ok());
    time
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut c = Criterion::default()
        .sample_size(50)
        // Of timed work: with the flushes it is far more on the clock.
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_millis(80))
        .configure_from_args();

    let exported = Arc::new(AtomicU64::new(0));
    let config =
        BatchConfigBuilder::default().with_max_queue_size(QUEUE).with_max_export_batch_size(BATCH).build();
    let sdk = BatchSpanProcessor::builder(Nothing(Arc::clone(&exported))).with_batch_config(config).build();
    let store = tempfile::tempdir()?;
    let own =
        HandoffProcessor::builder(store.path()).with_queue_size(QUEUE).with_batch_size(BATCH).build()?;

    let start = SystemTime::now();
    let both: [(&str, &dyn SpanProcessor); 2] = [("sdk", &sdk), ("baton", &own)];
    let mut ended = 0;
    let mut group = c.benchmark_group("on_end");
    group.throughput(Throughput::Elements(ROUND));
    for (name, processor) in both {
        group.bench_function(name, |b| {
            b.iter_custom(|rounds| {
                let mut time = Duration::ZERO;
                for _ in 0..rounds {
                    for (_, p) in both {
                        round(p, start);
                    }
                    time += round(processor, start);
                    ended += ROUND * if name == "sdk" { 2 } else { 1 };
                }
                time
            });
        });
    }
    group.finish();
    sdk.shutdown()?;
    assert_eq!(exported.load(Ordering::Relaxed), ended);
    own.shutdown()?;
    assert_eq!((own.dropped(), own.rejected()), (0, 0));
    c.final_summary();
    Ok(())
}
