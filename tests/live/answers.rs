//! What senders are answered, as the OTLP specification says: what may be sent again and what may not.

use std::io::Write;
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, KeyValue, any_value::Value};
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message;

use super::{Collector, Start, each_once, get, post, request};

const PROTOBUF: (&str, &str) = ("content-type", "application/x-protobuf");
const JSON: (&str, &str) = ("content-type", "application/json");

fn gzip(data: &[u8]) -> Vec<u8> {
    let mut e = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    e.write_all(data).unwrap();
    e.finish().unwrap()
}

fn spans(spans: Vec<Span>) -> Vec<u8> {
    let scope_spans = vec![ScopeSpans { spans, ..ScopeSpans::default() }];
    ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans { scope_spans, ..ResourceSpans::default() }],
    }
    .encode_to_vec()
}

fn good(id: u8) -> Span {
    Span { trace_id: vec![id; 16], span_id: vec![id; 8], name: "good".into(), ..Span::default() }
}

fn with(id: u8, value: AnyValue) -> Span {
    let attribute = KeyValue { key: "k".into(), value: Some(value), ..KeyValue::default() };
    Span { attributes: vec![attribute], ..good(id) }
}

/// Lists in lists, so deep.
fn deep(levels: usize) -> AnyValue {
    let mut v = AnyValue { value: Some(Value::BoolValue(true)) };
    for _ in 0..levels {
        v = AnyValue { value: Some(Value::ArrayValue(ArrayValue { values: vec![v] })) };
    }
    v
}

/// A request that unpacks to so many bytes of one letter.
fn bomb(bytes: usize) -> Vec<u8> {
    gzip(&spans(vec![with(9, AnyValue { value: Some(Value::StringValue("a".repeat(bytes))) })]))
}

/// What can be sent: headers, body, and the codes of HTTP and gRPC that may answer it.
struct Case {
    what: &'static str,
    packing: Option<&'static str>,
    body: Vec<u8>,
    http: u16,
    grpc: u16,
}

fn cases() -> Vec<Case> {
    let case = |what, packing, body, http, grpc| Case { what, packing, body, http, grpc };
    let whole = request(&[1, 2, 3]);
    vec![
        case("whole", None, whole.clone(), 200, 0),
        case("gzip", Some("gzip"), gzip(&request(&[4])), 200, 0),
        case("zstd", Some("zstd"), zstd::encode_all(&request(&[5])[..], 3).unwrap(), 200, 0),
        case("nothing", None, Vec::new(), 200, 0),
        case("cut off", None, whole[..whole.len() - 7].to_vec(), 400, 3),
        case("noise", None, (0..=255u8).map(|b| b.wrapping_mul(73) ^ 0xa5).collect(), 400, 3),
        case("another encoding", Some("br"), whole.clone(), 415, 12),
        case("said to be packed", Some("gzip"), whole.clone(), 400, 3),
        case("a stream without its end", Some("gzip"), gzip(&whole)[..40].to_vec(), 400, 3),
        case("too large unpacked", Some("gzip"), bomb(64 << 20), 413, 8),
        case("too large packed", None, vec![0; (16 << 20) + 100], 413, 8),
        case("a million empty spans", None, spans(vec![Span::default(); 1_000_000]), 413, 8),
        case("nested", None, spans(vec![with(8, deep(60))]), 400, 3),
        case("lengths past the end", None, b"\x0a\xff\xff\xff\xff\x07abc".to_vec(), 400, 3),
    ]
}

/// A frame of gRPC, and its answer: the code, and whether it says that it may be sent again.
fn grpc(c: &Collector, packing: Option<&str>, body: &[u8]) -> (u16, bool) {
    let mut frame = vec![u8::from(packing.is_some())];
    frame.extend(u32::try_from(body.len()).unwrap().to_be_bytes());
    frame.extend(body);
    raw_grpc(c, packing, frame)
}

fn raw_grpc(c: &Collector, packing: Option<&str>, frame: Vec<u8>) -> (u16, bool) {
    let url = format!("http://{}/opentelemetry.proto.collector.trace.v1.TraceService/Export", c.grpc);
    let mut request =
        hyper::Request::post(url).header("content-type", "application/grpc").header("te", "trailers");
    if let Some(p) = packing {
        request = request.header("grpc-encoding", p);
    }
    let request = request.body(Full::new(Bytes::from(frame))).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = Client::builder(TokioExecutor::new()).http2_only(true).build_http();
        let answer = client.request(request).await.unwrap();
        assert_eq!(answer.status(), 200);
        let head = answer.headers().clone();
        let body = answer.into_body().collect().await.unwrap();
        let trailers = body.trailers().cloned().unwrap_or_default();
        let value = |k: &str| head.get(k).or_else(|| trailers.get(k)).map(|v| v.to_str().unwrap().to_owned());
        let again = value("grpc-status-details-bin").is_some_and(|d| {
            use base64::Engine;
            let d = base64::engine::general_purpose::STANDARD_NO_PAD.decode(d).unwrap();
            String::from_utf8_lossy(&d).contains("RetryInfo")
        });
        (value("grpc-status").unwrap().parse().unwrap(), again)
    })
}

#[test]
fn every_input_is_answered_with_the_code_that_fits_it() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    let mut c = Start::at(&store).start();
    for case in cases() {
        let mut headers = vec![PROTOBUF];
        headers.extend(case.packing.map(|p| ("content-encoding", p)));
        let a = post(c.http, "/v1/traces", &headers, &case.body);
        assert_eq!(a.status, case.http, "{}: {}", case.what, String::from_utf8_lossy(&a.body));
        assert!(!a.head.to_ascii_lowercase().contains("retry-after"), "{}", case.what);
        assert_eq!(grpc(&c, case.packing, &case.body), (case.grpc, false), "{}", case.what);
    }
    assert_eq!(c.metric("baton_defects_total"), 0.0);
    assert_eq!(c.metric("baton_request_memory_bytes "), 0.0);
    assert_eq!(c.terminate().0, Some(0));
    each_once(&store, [1, 2, 3, 4, 5]);
}

#[test]
fn frames_and_media_that_do_not_fit_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let c = Start::at(&dir.path().join("store")).start();
    for (frame, code) in [
        (vec![], 3),
        (vec![0, 0, 0], 3),
        (vec![0, 0, 0, 0, 9, 1], 3),
        (vec![0, 0, 0, 0, 0, 1], 3),
        (vec![7, 0, 0, 0, 0], 3),
        (vec![1, 0, 0, 0, 0], 3),
        (vec![0, 0xff, 0xff, 0xff, 0xff], 8),
        (vec![0, 0, 0, 0, 0], 0),
    ] {
        assert_eq!(raw_grpc(&c, None, frame.clone()).0, code, "{frame:?}");
    }
    for (headers, body, status) in [
        (vec![JSON], &b"{}"[..], 200),
        (vec![("content-type", "Application/JSON; charset=utf-8")], b"{}", 200),
        (vec![JSON], b"", 400),
        (vec![JSON], b"{}{}", 400),
        (vec![JSON], b"{\"resourceLogs\":[]}", 400),
        (vec![PROTOBUF], b"{}", 400),
        (vec![], b"{}", 415),
        (vec![("content-type", "text/plain")], b"{}", 415),
    ] {
        let a = post(c.http, "/v1/traces", &headers, body);
        assert_eq!(a.status, status, "{headers:?} {}", String::from_utf8_lossy(body));
    }
    assert_eq!((get(c.http, "/v1/traces").status, get(c.http, "/nothing").status), (405, 404));
    for path in ["/healthz", "/readyz", "/metrics", "/"] {
        assert_eq!(get(c.http, path).status, 200, "{path}");
    }
    // Metrics are taken and dropped, so that an exporter set up for everything does not fail.
    assert_eq!(post(c.http, "/v1/metrics", &[PROTOBUF], b"").status, 200);
    assert_eq!(post(c.http, "/v1/metrics", &[JSON], b"{\"resourceMetrics\":[]}").status, 200);
}

#[test]
fn failures_speak_the_language_of_the_request() {
    let dir = tempfile::tempdir().unwrap();
    let c = Start::at(&dir.path().join("store")).start();
    let a = post(c.http, "/v1/traces", &[PROTOBUF], b"\x0a\x05");
    assert!(a.head.contains("application/x-protobuf"), "{}", a.head);
    // google.rpc.Status: field 1 is the code.
    assert_eq!(a.body[..2], [8, 3]);
    let a = post(c.http, "/v1/traces", &[JSON], b"[]");
    let said: serde_json::Value = serde_json::from_slice(&a.body).unwrap();
    assert_eq!((said["code"].as_i64(), said["message"].as_str()), (Some(3), Some("no JSON object")));
}

#[test]
fn spans_that_cannot_be_kept_are_counted_and_named() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    let mut c = Start::at(&store).start();
    let bad = [
        Span { trace_id: vec![0; 16], ..good(1) },
        Span { span_id: vec![0; 8], ..good(1) },
        Span { trace_id: vec![1; 8], ..good(1) },
        Span { parent_span_id: vec![1; 7], ..good(1) },
    ];
    let body = spans(bad.into_iter().chain([good(2)]).collect());
    let a = post(c.http, "/v1/traces", &[PROTOBUF], &body);
    let said = ExportTraceServiceResponse::decode(&a.body[..]).unwrap().partial_success.unwrap();
    assert_eq!((a.status, said.rejected_spans), (200, 4));
    assert!(said.error_message.contains("spans[0]: trace id is all zero"), "{}", said.error_message);
    let json = br#"{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"00","spanId":"01"}]}]}]}"#;
    let a = post(c.http, "/v1/traces", &[JSON], json);
    let said: serde_json::Value = serde_json::from_slice(&a.body).unwrap();
    assert_eq!(said["partialSuccess"]["rejectedSpans"], "1");
    let message = said["partialSuccess"]["errorMessage"].as_str().unwrap();
    assert!(message.contains("spans[0]") && message.contains("traceId"), "{message}");
    assert_eq!(c.metric("baton_rejected_records_total"), 5.0);
    assert_eq!(c.terminate().0, Some(0));
    // The good one is kept; its number is made of its bytes.
    let kept = super::counts(&store);
    assert_eq!(kept.into_iter().collect::<Vec<_>>(), [(0x0202_0202_0202_0201, 1)]);
}

#[test]
fn hostile_senders_neither_fill_it_nor_stop_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    let config = "[collect]\nvisible_after = \"1s\"\nmemory_limit = \"256MiB\"\n";
    let mut c = Start { config, ..Start::at(&store) }.start();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let (bomb, many) = (bomb(64 << 20), spans(vec![good(9); 60_000]));
    let mut kept = Vec::new();
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    let a = post(c.http, "/v1/traces", &[PROTOBUF, ("content-encoding", "gzip")], &bomb);
                    assert!([413, 503].contains(&a.status), "{}", a.status);
                    let a = post(c.http, "/v1/traces", &[PROTOBUF], &many);
                    assert!([200, 413, 503].contains(&a.status), "{}", a.status);
                }
            });
        }
        let started = Instant::now();
        let mut id = 100;
        while started.elapsed() < Duration::from_secs(8) {
            match c.post(&[id]) {
                200 => kept.push(id),
                other => assert_eq!(other, 503),
            }
            id += 1;
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert!(kept.len() > 5, "only {} small requests were served", kept.len());
    let status = std::fs::read_to_string(format!("/proc/{}/status", c.child.id())).unwrap_or_default();
    let peak = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).unwrap_or("0 kB");
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(peak < 600 << 10, "{} MiB", peak >> 10);
    assert_eq!(c.terminate().0, Some(0));
    let found = super::counts(&store);
    assert!(kept.iter().all(|id| found.contains_key(id)));
}
