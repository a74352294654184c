//! Real exporters: what they send is what a recorded file of the same holds.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use baton_collector::otlp::{Signal, expand, read_input};
use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry_otlp::WithExportConfig;
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanExporter, SpanLinks};
use prost::Message;

use super::super::{root, run, stdout};
use super::{Start, post, request, trace_of};

/// Sends the spans of some numbers; true where they were acknowledged.
pub(super) type Send = Box<dyn FnMut(&[u64]) -> bool>;

/// Makes a sender. Over HTTP where an address is given, else through the
/// OpenTelemetry exporter over gRPC.
pub(super) fn export(http: Option<SocketAddr>, grpc: SocketAddr) -> Send {
    if let Some(http) = http {
        return Box::new(move |ids| {
            post(http, "/v1/traces", &[("content-type", "application/x-protobuf")], &request(ids)).status
                == 200
        });
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let exporter = runtime.block_on(async {
        opentelemetry_otlp::SpanExporter::builder()
            .with_tonic()
            .with_endpoint(format!("http://{grpc}"))
            .with_timeout(Duration::from_secs(5))
            .build()
            .unwrap()
    });
    Box::new(move |ids| runtime.block_on(exporter.export(ids.iter().map(|n| data(*n)).collect())).is_ok())
}

fn data(n: u64) -> SpanData {
    let context = SpanContext::new(
        TraceId::from_bytes(trace_of(n)),
        SpanId::from_bytes((n + 1).to_be_bytes()),
        TraceFlags::SAMPLED,
        false,
        TraceState::default(),
    );
    let at = |ns| SystemTime::UNIX_EPOCH + Duration::from_nanos(1_790_000_000_000_000_000 + n + ns);
    SpanData {
        span_context: context,
        parent_span_id: SpanId::INVALID,
        parent_span_is_remote: false,
        span_kind: SpanKind::Internal,
        name: format!("span {n}").into(),
        start_time: at(0),
        end_time: at(1000),
        attributes: Vec::new(),
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links: SpanLinks::default(),
        status: Status::Unset,
        instrumentation_scope: Default::default(),
    }
}

#[test]
fn recorded_runs_posted_body_by_body_give_the_report_of_their_import() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    let mut c = Start::at(&store).start();
    let inputs = expand(&[root().join("sample-traces").display().to_string()]);
    let mut posted = 0;
    for input in &inputs.files {
        let mut sink = |signal: Signal| -> Result<(), String> {
            let (path, body) = match signal {
                Signal::Traces(t) => ("/v1/traces", t.encode_to_vec()),
                Signal::Logs(l) => ("/v1/logs", l.encode_to_vec()),
                Signal::Metrics => return Ok(()),
            };
            posted += 1;
            let a = post(c.http, path, &[("content-type", "application/x-protobuf")], &body);
            if a.status == 200 { Ok(()) } else { Err(format!("{}: {}", input.path.display(), a.status)) }
        };
        read_input(input, &mut |_| (), &mut sink, &mut Vec::new()).unwrap();
    }
    assert!(posted > 20, "{posted}");
    assert_eq!(c.terminate().0, Some(0));
    let live = run(&["eval", "--store", store.to_str().unwrap(), "--format", "json"]);
    let imported = run(&["eval", "sample-traces", "--format", "json"]);
    assert_eq!(stdout(&live), stdout(&imported));
}
