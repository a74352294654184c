use std::fs;
use std::fs::File;
use std::path::Path;
use std::sync::Mutex;

use arrow::array::RecordBatch;
use baton_record::config::ContentMode;
use baton_record::schema::SpanColumns;
use baton_record::span::Role;
use opentelemetry::trace::{
    SpanContext, SpanId, SpanKind, Status, TraceContextExt, TraceFlags, TraceId, TraceState, Tracer,
    TracerProvider,
};
use opentelemetry::{KeyValue as Attribute, StringValue, Value};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::transform::trace::tonic::group_spans_by_resource_and_scope;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use prost::Message as _;

use super::*;
use crate::import::import;
use crate::otlp::expand;

type Outcome = Result<(), Box<dyn std::error::Error>>;

/// Long enough for a loaded machine, short enough to fail.
const PATIENCE: Duration = Duration::from_secs(20);
const HOUR: Duration = Duration::from_secs(3600);

/// The names of the store's files, without temporary ones.
fn files(store: &Path) -> Vec<String> {
    let mut names: Vec<String> = walkdir::WalkDir::new(store.join("spans"))
        .into_iter()
        .flatten()
        .filter(|e| e.file_type().is_file() && e.path().extension().is_some_and(|x| x == "parquet"))
        .filter_map(|e| Some(e.path().strip_prefix(store).ok()?.display().to_string()))
        .collect();
    names.sort();
    names
}

fn batches(store: &Path) -> Vec<RecordBatch> {
    files(store)
        .iter()
        .flat_map(|f| {
            let file = File::open(store.join(f)).unwrap();
            ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap().map(Result::unwrap)
        })
        .collect()
}

fn rows(store: &Path) -> usize {
    batches(store).iter().map(RecordBatch::num_rows).sum()
}

/// The column `service` of each row, by span id.
fn services(store: &Path) -> Vec<(String, Option<String>)> {
    let mut out = Vec::new();
    for columns in batches(store).iter().map(|b| SpanColumns::new(b).unwrap()) {
        for span in (0..columns.len()).map(|i| columns.span(i)) {
            out.push((span.span_id.to_owned(), span.service().map(str::to_owned)));
        }
    }
    out.sort();
    out
}

fn span(id: u64) -> SpanData {
    SpanData {
        span_context: SpanContext::new(
            TraceId::from(7),
            SpanId::from(id),
            TraceFlags::SAMPLED,
            false,
            TraceState::default(),
        ),
        parent_span_id: SpanId::INVALID,
        parent_span_is_remote: false,
        span_kind: SpanKind::Internal,
        name: "step".into(),
        start_time: std::time::UNIX_EPOCH + Duration::from_secs(1_795_973_864),
        end_time: std::time::UNIX_EPOCH + Duration::from_secs(1_795_973_865),
        attributes: Vec::new(),
        dropped_attributes_count: 0,
        events: Default::default(),
        links: Default::default(),
        status: Status::Unset,
        instrumentation_scope: Default::default(),
    }
}

fn unsampled(id: u64) -> SpanData {
    let span_context = SpanContext::new(
        TraceId::from(7),
        SpanId::from(id),
        TraceFlags::default(),
        false,
        TraceState::default(),
    );
    SpanData { span_context, ..span(id) }
}

/// A builder whose thread writes only when told.
fn quiet(store: &Path) -> Builder {
    HandoffProcessor::builder(store).with_flush_interval(HOUR)
}

/// Waits until something is so.
fn until(what: &str, is: impl Fn() -> bool) {
    let start = Instant::now();
    while !is() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Sees the same spans as the processor before it.
#[derive(Debug, Clone, Default)]
struct Capture(Arc<Mutex<Vec<SpanData>>>);

impl SpanProcessor for Capture {
    fn on_start(&self, _: &mut Span, _: &Context) {}
    fn on_end(&self, span: SpanData) {
        self.0.lock().unwrap().push(span);
    }
    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }
    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

fn texts(of: &[&'static str]) -> Value {
    Value::Array(of.iter().map(|s| StringValue::from(*s)).collect::<Vec<_>>().into())
}

/// A run of two agents with a handoff, a model call, a failing tool and a caller in another process.
fn agents(provider: &SdkTracerProvider) {
    let (agent, model) = (provider.tracer("my.agent"), provider.tracer("my.model"));
    let caller = SpanContext::new(
        TraceId::from(0xabc),
        SpanId::from(0xdef),
        TraceFlags::SAMPLED,
        true,
        TraceState::default(),
    );
    let outside = Context::new().with_remote_span_context(caller);
    let triage = agent
        .span_builder("invoke_agent Triage")
        .with_attributes([
            Attribute::new("gen_ai.operation.name", "invoke_agent"),
            Attribute::new("gen_ai.agent.name", "Triage"),
        ])
        .start_with_context(&agent, &outside);
    let inside = outside.with_span(triage);
    let call = model
        .span_builder("chat gpt")
        .with_kind(SpanKind::Client)
        .with_attributes([
            Attribute::new("gen_ai.operation.name", "chat"),
            Attribute::new("gen_ai.request.model", "gpt"),
            Attribute::new("gen_ai.usage.input_tokens", 17),
            Attribute::new(
                "gen_ai.input.messages",
                r#"[{"role":"user","parts":[{"type":"text","content":"Refund ORD-48213, please."}]}]"#,
            ),
            Attribute::new(
                "gen_ai.output.messages",
                r#"[{"role":"assistant","parts":[{"type":"tool_call","id":"c1","name":"transfer_to_refunds",
                    "arguments":{"order":"ORD-48213"}}],"finish_reason":"tool_call"}]"#,
            ),
        ])
        .start_with_context(&model, &inside);
    drop(call);
    let tool = agent
        .span_builder("execute_tool lookup")
        .with_attributes([
            Attribute::new("gen_ai.operation.name", "execute_tool"),
            Attribute::new("gen_ai.tool.name", "lookup"),
        ])
        .start_with_context(&agent, &inside);
    let failing = inside.with_span(tool);
    failing.span().record_error(&std::io::Error::other("no such order"));
    failing.span().set_status(Status::error("no such order"));
    failing.span().end();
    let handoff = agent
        .span_builder("handoff Triage -> Refunds")
        .with_attributes([
            Attribute::new("baton.handoff.id", "h-1"),
            Attribute::new("baton.handoff.from_agent", "Triage"),
            Attribute::new("baton.handoff.to_agent", "Refunds"),
            Attribute::new("baton.handoff.constraints.ids", texts(&["refund-window", "no-cash"])),
            Attribute::new("baton.handoff.constraints.hashes", texts(&["aa", "bb"])),
            Attribute::new("baton.handoff.history.items_before", 4),
            Attribute::new("baton.handoff.contract", r#"{"intent":"refund","order_id":"ORD-48213"}"#),
        ])
        .start_with_context(&agent, &inside);
    drop(handoff);
    inside.span().end();
}

#[test]
fn rows_are_those_of_an_import_of_the_same_spans() -> Outcome {
    let dir = tempfile::tempdir()?;
    let (own, imported) = (dir.path().join("own"), dir.path().join("imported"));
    let config = || Config { content: ContentMode::Full, ..Config::default() };
    let processor = quiet(&own).with_config(config()).build()?;
    let resource = Resource::builder_empty()
        .with_service_name("refund-desk")
        .with_attribute(Attribute::new("deployment.environment.name", "test"))
        .build();
    let capture = Capture::default();
    let provider = SdkTracerProvider::builder()
        .with_resource(resource.clone())
        .with_span_processor(processor.clone())
        .with_span_processor(capture.clone())
        .build();
    agents(&provider);
    provider.force_flush()?;

    // The import, with the key of the same store.
    fs::create_dir_all(&imported)?;
    fs::copy(own.join("key"), imported.join("key"))?;
    let spans = std::mem::take(&mut *capture.0.lock().unwrap());
    let request = ExportTraceServiceRequest {
        resource_spans: group_spans_by_resource_and_scope(
            spans,
            &ResourceAttributesWithSchema::from(&resource),
        ),
    };
    let file = dir.path().join("spans.pb");
    fs::write(&file, request.encode_to_vec())?;
    let mut store = Store::open(&imported)?;
    let reader = Reader::new(Arc::new(config()), store.key());
    let inputs = expand(&[file.display().to_string()]);
    let summary = import(&inputs, &reader, &mut store, false, &mut |_| {})?;
    assert_eq!((summary.spans, summary.problems.len()), (4, 0), "{:?}", summary.problems);

    let (a, b) = (batches(&own), batches(&imported));
    let all = |batches: &[RecordBatch]| -> Vec<String> {
        batches
            .iter()
            .flat_map(|b| (0..b.num_rows()).map(|i| format!("{:?}", b.slice(i, 1).columns())))
            .collect()
    };
    assert_eq!(all(&a), all(&b));
    // The same bytes: the name of a file is their digest.
    assert_eq!(files(&own), files(&imported));

    let columns = SpanColumns::new(&a[0])?;
    let spans: Vec<_> = (0..columns.len()).map(|i| columns.span(i)).collect();
    assert!(spans.iter().all(|s| s.service() == Some("refund-desk")));
    let of = |name: &str| spans.iter().find(|s| s.name().starts_with(name)).unwrap();
    let handoff = of("handoff").handoff().unwrap();
    assert_eq!(handoff.from(), Some("Triage"));
    assert_eq!(handoff.to().iter().collect::<Vec<_>>(), ["Refunds"]);
    assert_eq!(handoff.constraint_ids().iter().collect::<Vec<_>>(), ["refund-window", "no-cash"]);
    assert_eq!((of("chat").role, of("chat").scope()), (Role::Inference, "my.model"));
    assert!(of("invoke_agent").remote_parent() && !of("handoff").remote_parent());
    assert_eq!(of("handoff").parent_id, Some(of("invoke_agent").span_id));
    assert_eq!(of("execute_tool").status, baton_record::span::Status::Error);
    assert_eq!((processor.dropped(), processor.rejected()), (0, 0));
    Ok(())
}

#[test]
fn a_full_queue_drops_and_counts_and_nobody_waits() -> Outcome {
    let dir = tempfile::tempdir()?;
    let (processor, worker) =
        quiet(dir.path()).with_queue_size(4).with_flush_timeout(Duration::from_millis(20)).parts()?;
    // Nothing is taken out: the thread does not run yet.
    (1..=7).for_each(|id| processor.on_end(span(id)));
    assert_eq!(processor.dropped(), 3);
    assert!(matches!(processor.force_flush(), Err(OTelSdkError::Timeout(_))));
    let thread = thread::spawn(|| worker.run());
    until("the first four are written", || rows(dir.path()) == 4);
    // There is room again.
    processor.on_end(span(8));
    processor.shutdown()?;
    assert!(thread.join().is_ok());
    assert_eq!((rows(dir.path()), processor.dropped()), (5, 3));
    Ok(())
}

/// Counts warnings.
struct Warnings(Arc<AtomicU64>);

impl tracing::Subscriber for Warnings {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        if *event.metadata().level() == tracing::Level::WARN {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn the_first_dropped_span_is_told_and_no_other() -> Outcome {
    let dir = tempfile::tempdir()?;
    let (processor, _worker) = quiet(dir.path()).with_queue_size(1).parts()?;
    let told = Arc::new(AtomicU64::new(0));
    tracing::subscriber::with_default(Warnings(Arc::clone(&told)), || {
        processor.on_end(span(1));
        assert_eq!(told.load(Ordering::Relaxed), 0);
        (2..100).for_each(|id| processor.on_end(span(id)));
    });
    assert_eq!((processor.dropped(), told.load(Ordering::Relaxed)), (98, 1));
    Ok(())
}

#[test]
fn a_flush_makes_visible_what_ended_before() -> Outcome {
    let dir = tempfile::tempdir()?;
    let processor = quiet(dir.path()).build()?;
    for id in 1..=30 {
        processor.on_end(span(id));
        processor.force_flush()?;
        assert_eq!(rows(dir.path()), id as usize);
    }
    Ok(())
}

#[test]
fn rows_are_visible_after_the_interval() -> Outcome {
    let dir = tempfile::tempdir()?;
    let processor =
        HandoffProcessor::builder(dir.path()).with_flush_interval(Duration::from_millis(30)).build()?;
    for id in 1..=2 {
        processor.on_end(span(id));
        until("a row comes without a flush", || rows(dir.path()) == id as usize);
    }
    Ok(())
}

#[test]
fn a_batch_is_taken_before_the_interval() -> Outcome {
    let dir = tempfile::tempdir()?;
    let processor = quiet(dir.path()).with_queue_size(4).with_batch_size(4).build()?;
    for round in 0..50 {
        (1..=4).for_each(|id| processor.on_end(span(round * 4 + id)));
        until("the queue is emptied", || processor.shared.queued() == 0);
    }
    assert_eq!(processor.dropped(), 0);
    processor.shutdown()?;
    assert_eq!(rows(dir.path()), 200);
    Ok(())
}

#[test]
fn unsampled_and_invalid_spans_are_not_kept() -> Outcome {
    let dir = tempfile::tempdir()?;
    let processor = quiet(dir.path()).build()?;
    processor.on_end(unsampled(1));
    processor.on_end(span(0));
    processor.on_end(span(2));
    let provider = SdkTracerProvider::builder()
        .with_sampler(Sampler::AlwaysOff)
        .with_span_processor(processor.clone())
        .build();
    drop(provider.tracer("t").start("not sampled"));
    provider.shutdown()?;
    assert_eq!((rows(dir.path()), processor.dropped(), processor.rejected()), (1, 0, 1));
    Ok(())
}

#[test]
fn a_shutdown_drains_and_is_the_end() -> Outcome {
    let dir = tempfile::tempdir()?;
    let processor = quiet(dir.path()).build()?;
    (1..=600).for_each(|id| processor.on_end(span(id)));
    processor.shutdown()?;
    assert_eq!((rows(dir.path()), processor.dropped()), (600, 0));
    assert!(matches!(processor.shutdown(), Err(OTelSdkError::AlreadyShutdown)));
    assert!(matches!(processor.force_flush(), Err(OTelSdkError::AlreadyShutdown)));
    processor.on_end(span(601));
    processor.clone().set_resource(&Resource::builder_empty().build());
    assert_eq!((rows(dir.path()), processor.dropped()), (600, 1));
    Ok(())
}

#[test]
fn a_shutdown_that_takes_too_long_is_told_and_goes_on() -> Outcome {
    let dir = tempfile::tempdir()?;
    let (processor, worker) = quiet(dir.path()).parts()?;
    processor.on_end(span(1));
    let timeout = Duration::from_millis(20);
    assert!(
        matches!(processor.shutdown_with_timeout(timeout), Err(OTelSdkError::Timeout(t)) if t == timeout)
    );
    processor.on_end(span(2));
    worker.run();
    assert_eq!((rows(dir.path()), processor.dropped()), (1, 1));
    Ok(())
}

#[test]
fn without_a_shutdown_the_thread_writes_and_ends() -> Outcome {
    let dir = tempfile::tempdir()?;
    let (processor, worker) = quiet(dir.path()).parts()?;
    processor.on_end(span(1));
    drop(processor);
    worker.run();
    assert_eq!(rows(dir.path()), 1);
    Ok(())
}

#[test]
fn a_thread_that_is_gone_is_told() -> Outcome {
    let dir = tempfile::tempdir()?;
    let (processor, worker) = quiet(dir.path()).with_queue_size(2).with_batch_size(1).parts()?;
    drop(worker);
    (1..=3).for_each(|id| processor.on_end(span(id)));
    assert_eq!(processor.dropped(), 1);
    assert!(matches!(processor.force_flush(), Err(OTelSdkError::InternalFailure(_))));
    assert!(matches!(processor.shutdown(), Err(OTelSdkError::InternalFailure(_))));
    Ok(())
}

#[test]
fn a_resource_counts_for_the_spans_after_it() -> Outcome {
    let dir = tempfile::tempdir()?;
    let mut processor = quiet(dir.path()).build()?;
    processor.on_end(span(1));
    for id in 2..50 {
        let resource = Resource::builder_empty().with_service_name(id.to_string());
        processor.set_resource(&resource.build());
        processor.on_end(span(id));
    }
    processor.shutdown()?;
    let expected: Vec<_> =
        (1..50).map(|id| (format!("{id:016x}"), (id > 1).then(|| id.to_string()))).collect();
    assert_eq!(services(dir.path()), expected);
    Ok(())
}

/// What is ended while a store cannot be written is there once it can be.
fn recovers(break_it: impl Fn(&Path), mend_it: impl Fn(&Path)) -> Outcome {
    let dir = tempfile::tempdir()?;
    let store = dir.path().join("store");
    let processor = quiet(&store).build()?;
    processor.on_end(span(1));
    processor.force_flush()?;
    break_it(&store);
    for id in 2..=3 {
        processor.on_end(span(id));
        let result = processor.force_flush();
        assert!(matches!(&result, Err(OTelSdkError::InternalFailure(_))), "{result:?}");
    }
    mend_it(&store);
    processor.on_end(span(4));
    processor.force_flush()?;
    assert_eq!((rows(&store), processor.dropped()), (4, 0));
    processor.shutdown()?;
    Ok(())
}

#[test]
fn a_store_that_became_a_file_loses_nothing() -> Outcome {
    recovers(
        |store| {
            fs::rename(store, store.with_extension("away")).unwrap();
            fs::write(store, "").unwrap();
        },
        |store| {
            fs::remove_file(store).unwrap();
            fs::rename(store.with_extension("away"), store).unwrap();
        },
    )
}

#[cfg(unix)]
#[test]
fn a_store_that_became_read_only_loses_nothing() -> Outcome {
    use std::os::unix::fs::PermissionsExt;
    // Modes do not bind the superuser; the file in the folder's place shows the same to everyone.
    let probe = tempfile::tempdir()?;
    fs::set_permissions(probe.path(), fs::Permissions::from_mode(0o555))?;
    if File::create(probe.path().join("x")).is_ok() {
        return Ok(());
    }
    let mode = |store: &Path, mode: u32| {
        for e in walkdir::WalkDir::new(store.join("spans")).into_iter().flatten() {
            if e.file_type().is_dir() {
                fs::set_permissions(e.path(), fs::Permissions::from_mode(mode)).unwrap();
            }
        }
    };
    recovers(|store| mode(store, 0o555), |store| mode(store, 0o755))
}

#[test]
fn a_store_that_mends_itself_is_written_without_being_asked() -> Outcome {
    let dir = tempfile::tempdir()?;
    let processor =
        HandoffProcessor::builder(dir.path()).with_flush_interval(Duration::from_millis(30)).build()?;
    let spans = dir.path().join("spans");
    fs::remove_dir(&spans)?;
    fs::write(&spans, "")?;
    processor.on_end(span(1));
    assert!(processor.force_flush().is_err());
    fs::remove_file(&spans)?;
    until("the row comes at an interval", || rows(dir.path()) == 1);
    Ok(())
}

#[test]
fn what_is_held_for_a_broken_store_is_bounded_and_counted() -> Outcome {
    let dir = tempfile::tempdir()?;
    let processor = quiet(dir.path()).with_max_held_rows(3).build()?;
    let spans = dir.path().join("spans");
    fs::remove_dir(&spans)?;
    fs::write(&spans, "")?;
    (1..=5).for_each(|id| processor.on_end(span(id)));
    assert!(processor.force_flush().is_err());
    assert_eq!(processor.dropped(), 2);
    fs::remove_file(&spans)?;
    processor.force_flush()?;
    assert_eq!(rows(dir.path()), 3);
    // With a store that works the bound only makes files earlier.
    (6..=13).for_each(|id| processor.on_end(span(id)));
    processor.force_flush()?;
    assert_eq!((rows(dir.path()), processor.dropped()), (11, 2));
    // What a last attempt cannot write is lost, and told.
    processor.on_end(span(14));
    fs::remove_dir_all(&spans)?;
    fs::write(&spans, "")?;
    assert!(matches!(processor.shutdown(), Err(OTelSdkError::InternalFailure(_))));
    assert_eq!(processor.dropped(), 3);
    Ok(())
}

#[test]
fn a_store_that_cannot_be_made_is_an_error_at_once() -> Outcome {
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("file");
    fs::write(&file, "")?;
    assert!(matches!(HandoffProcessor::builder(&file).build(), Err(store::Error::Io { .. })));
    Ok(())
}

#[test]
fn many_threads_lose_nothing_that_is_not_counted() -> Outcome {
    const THREADS: u64 = 8;
    const EACH: u64 = 500;
    // A queue that is large enough, and one that is not.
    for (queue, batch) in [(5000, 64), (16, 8)] {
        let dir = tempfile::tempdir()?;
        let processor = quiet(dir.path()).with_queue_size(queue).with_batch_size(batch).build()?;
        let (half, rest) = (std::sync::Barrier::new(THREADS as usize + 1), AtomicU64::new(0));
        thread::scope(|s| {
            for t in 0..THREADS {
                let (processor, half, rest) = (&processor, &half, &rest);
                s.spawn(move || {
                    for n in 0..EACH {
                        if n == EACH / 2 {
                            half.wait();
                        }
                        processor.on_end(span(1 + t * EACH + n));
                        rest.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            half.wait();
            // In the midst of it.
            assert!(processor.force_flush().is_ok());
            assert!(processor.shutdown_with_timeout(PATIENCE).is_ok());
        });
        let ended = rest.load(Ordering::Relaxed);
        assert_eq!(ended, THREADS * EACH);
        assert_eq!(rows(dir.path()) as u64 + processor.dropped(), ended, "queue of {queue}");
        assert!(queue < 5000 || rows(dir.path()) as u64 >= ended / 2);
        assert_eq!(processor.shared.queued(), 0);
    }
    Ok(())
}

#[test]
fn settings_come_from_the_environment_unless_they_make_no_sense() {
    let path = Path::new("store");
    let from = |text: &'static str| Builder::new(path, move |_| Some(text.to_owned()));
    let all = |b: Builder| (b.queue_size, b.batch_size, b.flush_interval, b.flush_timeout);
    let second = Duration::from_secs(1);
    let defaults = (2048, 512, 10 * second, 30 * second);
    assert_eq!(all(Builder::new(path, |_| None)), defaults);
    assert_eq!(all(from("-1")), defaults);
    assert_eq!(all(from(" 3000 ")), (3000, 3000, 3 * second, 3 * second));
    assert_eq!(from("3000").with_queue_size(5).queue_size, 5);
}

#[test]
fn settings_without_sense_do_no_harm() -> Outcome {
    let dir = tempfile::tempdir()?;
    for (id, n, time) in [(1, 0, Duration::ZERO), (2, usize::MAX >> 1, Duration::MAX)] {
        let processor = HandoffProcessor::builder(dir.path())
            .with_queue_size(n.min(MAX_QUEUE / 64))
            .with_batch_size(n)
            .with_flush_interval(time)
            .with_max_held_rows(n)
            .build()?;
        processor.on_end(span(id));
        processor.shutdown_with_timeout(PATIENCE)?;
        assert_eq!(rows(dir.path()), id as usize);
    }
    Ok(())
}
