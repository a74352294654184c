//! OTLP over HTTP and over gRPC, as the OTLP specification says: content types, codes, partial success.
//!
//! gRPC is HTTP/2 with a frame around each message. The two unary methods are answered here and not through generated code,
//! since the codes decide whether a sender tries again, and generated code chooses other ones for what is malformed or too large.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use axum::routing::{get, post};
use base64::Engine;
use http_body_util::{BodyExt, Full};
use opentelemetry_proto::tonic::collector::logs::v1::{ExportLogsPartialSuccess, ExportLogsServiceResponse};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsPartialSuccess, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceResponse,
};
use prost::Message;
use serde_json::{Value, json};

use super::ingest::{Budget, Failure, Form, Job, Kind, Packing, Pool, Share, Taken};
use super::metrics::{Metrics, Protocol};
use super::page;

/// What the handlers share.
pub struct App {
    pub(super) pool: Pool,
    pub(super) budget: Arc<Budget>,
    pub(super) metrics: Arc<Metrics>,
    /// Bytes of a body, packed or not.
    pub(super) max_body: usize,
    /// A body must have arrived after this time.
    pub(super) body_timeout: Duration,
    pub(super) token: Option<Token>,
    /// True once requests are taken, false again when the collector ends.
    pub(super) ready: std::sync::atomic::AtomicBool,
    pub(super) about: page::About,
}

/// A bearer token, kept as its digest: comparing digests tells nothing about how much of a guess was right.
pub struct Token([u8; 32]);

impl Token {
    /// From the token itself.
    pub fn new(token: &str) -> Self {
        use sha2::Digest;
        Self(sha2::Sha256::digest(token.as_bytes()).into())
    }

    fn fits(&self, headers: &HeaderMap) -> bool {
        let given = headers.get(AUTHORIZATION).and_then(|v| v.to_str().ok());
        let given = given.and_then(|v| v.split_once(' ')).filter(|(s, _)| s.eq_ignore_ascii_case("bearer"));
        given.is_some_and(|(_, t)| Self::new(t.trim()).0 == self.0)
    }
}

/// What is asked of a sender who was refused.
const RETRY_SECONDS: u32 = 1;

/// The routes of OTLP over HTTP, with health, metrics and the page.
pub fn http_routes(app: Arc<App>) -> Router {
    Router::new()
        .route("/v1/traces", post(|s, r| http_export(s, r, Kind::Traces)))
        .route("/v1/logs", post(|s, r| http_export(s, r, Kind::Logs)))
        .route("/v1/metrics", post(|s, r| http_export(s, r, Kind::Metrics)))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(scrape))
        .route("/", get(front))
        .with_state(app)
}

/// The routes of OTLP over gRPC.
pub fn grpc_routes(app: Arc<App>) -> Router {
    let method =
        |signal: &str, service: &str| format!("/opentelemetry.proto.collector.{signal}.v1.{service}/Export");
    Router::new()
        .route(&method("trace", "TraceService"), post(|s, r| grpc_export(s, r, Kind::Traces)))
        .route(&method("logs", "LogsService"), post(|s, r| grpc_export(s, r, Kind::Logs)))
        .route(&method("metrics", "MetricsService"), post(|s, r| grpc_export(s, r, Kind::Metrics)))
        .fallback(|| async { grpc_failure(12, "no such method", false) })
        .with_state(app)
}

async fn ready(State(app): State<Arc<App>>) -> (StatusCode, &'static str) {
    if app.ready.load(std::sync::atomic::Ordering::Relaxed) {
        (StatusCode::OK, "ready\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not ready\n")
    }
}

async fn scrape(State(app): State<Arc<App>>, headers: HeaderMap) -> Response<Body> {
    if app.token.as_ref().is_some_and(|t| !t.fits(&headers)) {
        return plain(StatusCode::UNAUTHORIZED, "text/plain", "a bearer token is needed\n".to_owned());
    }
    plain(
        StatusCode::OK,
        "application/openmetrics-text; version=1.0.0; charset=utf-8",
        app.metrics.encode(&app.budget),
    )
}

async fn front(State(app): State<Arc<App>>, headers: HeaderMap) -> Response<Body> {
    if app.token.as_ref().is_some_and(|t| !t.fits(&headers)) {
        return plain(StatusCode::UNAUTHORIZED, "text/plain", "a bearer token is needed\n".to_owned());
    }
    let mut r = plain(StatusCode::OK, "text/html; charset=utf-8", page::html(&app.about, &app.metrics));
    // Nothing on the page comes from elsewhere, and names from traces are text.
    r.headers_mut().insert(
        "content-security-policy",
        HeaderValue::from_static("default-src 'none'; style-src 'unsafe-inline'"),
    );
    r
}

fn plain(status: StatusCode, content_type: &'static str, text: String) -> Response<Body> {
    let mut r = Response::new(Body::from(text));
    *r.status_mut() = status;
    r.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    r
}

/// Takes the rest of a body that is refused and forgets it. Whoever still sends when the connection is closed may not see the
/// answer, take that for a broken connection, and send the same again.
async fn drain(mut body: Body) {
    let taken = async {
        let mut left = DRAINED;
        while let Some(Ok(frame)) = body.frame().await {
            left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
            if left == 0 {
                break;
            }
        }
    };
    let _ = tokio::time::timeout(DRAIN_TIME, taken).await;
}

/// So much of a refused body is taken, for so long.
const DRAINED: usize = 256 << 20;
const DRAIN_TIME: Duration = Duration::from_secs(5);

/// Reads a body within the limits.
async fn body(
    app: &App,
    headers: &HeaderMap,
    mut body: Body,
    extra: usize,
) -> Result<(Bytes, Share), Failure> {
    let read = within_limits(app, headers, &mut body, extra).await;
    if matches!(read, Err(Failure::TooLarge { .. } | Failure::Busy(_))) {
        drain(body).await;
    }
    read
}

async fn within_limits(
    app: &App,
    headers: &HeaderMap,
    body: &mut Body,
    extra: usize,
) -> Result<(Bytes, Share), Failure> {
    let limit = app.max_body + extra;
    let too_large = || Failure::TooLarge { what: "a body", limit: app.max_body };
    let announced: Option<usize> =
        headers.get(CONTENT_LENGTH).and_then(|v| v.to_str().ok()).and_then(|v| v.parse().ok());
    if announced.is_some_and(|n| n > limit) {
        return Err(too_large());
    }
    let mut share = app.budget.share();
    let read = async {
        let (mut parts, mut len): (Vec<Bytes>, usize) = (Vec::new(), 0);
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|e| Failure::Malformed(format!("the body ended early: {e}")))?;
            let Ok(data) = frame.into_data() else { continue };
            len += data.len();
            if len > limit {
                return Err(too_large());
            }
            // Parts and the whole are there at once for a moment.
            share.grow(data.len() * 2)?;
            parts.push(data);
        }
        Ok(if parts.len() == 1 { parts.swap_remove(0) } else { parts.concat().into() })
    };
    match tokio::time::timeout(app.body_timeout, read).await {
        Ok(read) => read.map(|b| (b, share)),
        // The way was slow; another time it may not be.
        Err(_) => Err(Failure::Busy("the body did not arrive in time".to_owned())),
    }
}

async fn http_export(
    State(app): State<Arc<App>>,
    request: axum::extract::Request,
    kind: Kind,
) -> Response<Body> {
    let started = Instant::now();
    let response = http_answer(&app, request, kind).await;
    app.metrics.answered(Protocol::Http, kind, response.status().as_u16(), started.elapsed());
    response
}

async fn http_answer(app: &App, request: axum::extract::Request, kind: Kind) -> Response<Body> {
    let (parts, content) = request.into_parts();
    let media = parts.headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let form = match media.split(';').next().unwrap_or_default().trim().to_ascii_lowercase().as_str() {
        "application/x-protobuf" => Form::Protobuf,
        "application/json" => Form::Json,
        other => {
            let what = format!("content type `{other}`: send application/x-protobuf or application/json");
            drain(content).await;
            return http_failure(StatusCode::UNSUPPORTED_MEDIA_TYPE, 3, &what, Form::Json);
        }
    };
    if app.token.as_ref().is_some_and(|t| !t.fits(&parts.headers)) {
        drain(content).await;
        return http_failure(StatusCode::UNAUTHORIZED, 16, "a bearer token is needed", form);
    }
    let coding = parts.headers.get(CONTENT_ENCODING).map_or(Some(""), |v| v.to_str().ok());
    let Some(packing) = coding.and_then(Packing::from_name) else {
        let what = "content encoding: send gzip, zstd or none";
        drain(content).await;
        let mut r = http_failure(StatusCode::UNSUPPORTED_MEDIA_TYPE, 3, what, form);
        r.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip, zstd, identity"));
        return r;
    };
    let outcome = match body(app, &parts.headers, content, 0).await {
        Ok((body, share)) => app.pool.read(Job { kind, form, packing, body, share }).await,
        Err(e) => Err(e),
    };
    match outcome {
        Ok(taken) => http_success(kind, form, taken),
        Err(e) => {
            let (status, code) = match e {
                Failure::Malformed(_) => (StatusCode::BAD_REQUEST, 3),
                Failure::TooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, 8),
                Failure::Busy(_) => (StatusCode::SERVICE_UNAVAILABLE, 14),
                Failure::Defect => (StatusCode::INTERNAL_SERVER_ERROR, 13),
            };
            http_failure(status, code, &e.to_string(), form)
        }
    }
}

fn http_success(kind: Kind, form: Form, taken: Taken) -> Response<Body> {
    match form {
        Form::Protobuf => with(StatusCode::OK, "application/x-protobuf", success(kind, taken).into()),
        Form::Json => {
            let member = match kind {
                Kind::Traces => "rejectedSpans",
                Kind::Logs => "rejectedLogRecords",
                Kind::Metrics => "rejectedDataPoints",
            };
            let body = if taken == Taken::default() {
                json!({})
            } else {
                // 64-bit numbers are strings in protobuf's JSON.
                json!({"partialSuccess": {member: taken.rejected.to_string(), "errorMessage": taken.message}})
            };
            with(StatusCode::OK, "application/json", body.to_string().into())
        }
    }
}

fn with(status: StatusCode, content_type: &'static str, body: Bytes) -> Response<Body> {
    let mut r = Response::new(Body::from(body));
    *r.status_mut() = status;
    r.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    r
}

/// The answer to a request that was taken, in protobuf.
fn success(kind: Kind, taken: Taken) -> Vec<u8> {
    let partial = taken != Taken::default();
    let Taken { rejected, message } = taken;
    match kind {
        Kind::Traces => ExportTraceServiceResponse {
            partial_success: partial
                .then_some(ExportTracePartialSuccess { rejected_spans: rejected, error_message: message }),
        }
        .encode_to_vec(),
        Kind::Logs => ExportLogsServiceResponse {
            partial_success: partial.then_some(ExportLogsPartialSuccess {
                rejected_log_records: rejected,
                error_message: message,
            }),
        }
        .encode_to_vec(),
        Kind::Metrics => ExportMetricsServiceResponse {
            partial_success: partial.then_some(ExportMetricsPartialSuccess {
                rejected_data_points: rejected,
                error_message: message,
            }),
        }
        .encode_to_vec(),
    }
}

/// `google.rpc.Status`, the body of every OTLP failure.
#[derive(Clone, PartialEq, Message)]
struct RpcStatus {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<Detail>,
}

/// `google.protobuf.Any`.
#[derive(Clone, PartialEq, Message)]
struct Detail {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

/// `google.rpc.RetryInfo` with its duration, of which only whole seconds are used.
#[derive(Clone, PartialEq, Message)]
struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    retry_delay: Option<Delay>,
}

/// `google.protobuf.Duration`.
#[derive(Clone, PartialEq, Message)]
struct Delay {
    #[prost(int64, tag = "1")]
    seconds: i64,
}

fn status(code: i32, message: &str, retry: bool) -> RpcStatus {
    let info = RetryInfo { retry_delay: Some(Delay { seconds: i64::from(RETRY_SECONDS) }) };
    let detail = || Detail {
        type_url: "type.googleapis.com/google.rpc.RetryInfo".to_owned(),
        value: info.encode_to_vec(),
    };
    RpcStatus { code, message: message.to_owned(), details: retry.then(detail).into_iter().collect() }
}

fn http_failure(status_code: StatusCode, code: i32, message: &str, form: Form) -> Response<Body> {
    let retry = status_code == StatusCode::SERVICE_UNAVAILABLE;
    let mut r = match form {
        Form::Protobuf => {
            with(status_code, "application/x-protobuf", status(code, message, retry).encode_to_vec().into())
        }
        Form::Json => {
            let body: Value = json!({"code": code, "message": message});
            with(status_code, "application/json", body.to_string().into())
        }
    };
    if retry {
        r.headers_mut().insert(RETRY_AFTER, HeaderValue::from(RETRY_SECONDS));
    }
    if status_code == StatusCode::UNAUTHORIZED {
        r.headers_mut().insert("www-authenticate", HeaderValue::from_static("Bearer"));
    }
    r
}

async fn grpc_export(
    State(app): State<Arc<App>>,
    request: axum::extract::Request,
    kind: Kind,
) -> Response<Body> {
    let started = Instant::now();
    let (code, response) = match grpc_answer(&app, request, kind).await {
        Ok(taken) => (0, grpc_success(kind, taken)),
        Err((code, message)) => (code, grpc_failure(code, &message, code == UNAVAILABLE)),
    };
    app.metrics.answered(Protocol::Grpc, kind, code, started.elapsed());
    response
}

const UNAVAILABLE: u16 = 14;
/// A flag and a length stand before each message.
const FRAME: usize = 5;

async fn grpc_answer(app: &App, request: axum::extract::Request, kind: Kind) -> Result<Taken, (u16, String)> {
    let (parts, content) = request.into_parts();
    let media = parts.headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    if !media.starts_with("application/grpc") {
        return Err((3, format!("content type `{media}`: send application/grpc")));
    }
    if app.token.as_ref().is_some_and(|t| !t.fits(&parts.headers)) {
        return Err((16, "a bearer token is needed".to_owned()));
    }
    let failed = |e: Failure| {
        let code = match e {
            Failure::Malformed(_) => 3,
            Failure::TooLarge { .. } => 8,
            Failure::Busy(_) => UNAVAILABLE,
            Failure::Defect => 13,
        };
        (code, e.to_string())
    };
    let (frame, share) = body(app, &parts.headers, content, FRAME).await.map_err(failed)?;
    let head = frame.get(..FRAME).ok_or_else(|| (3, "the message has no frame".to_owned()))?;
    let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
    if length > app.max_body {
        return Err(failed(Failure::TooLarge { what: "a message", limit: app.max_body }));
    }
    if frame.len() - FRAME != length {
        let what = format!("the frame announces {length} bytes, {} came", frame.len() - FRAME);
        return Err((3, what));
    }
    let packing = match head[0] {
        0 => Packing::Plain,
        1 => {
            let name = parts.headers.get("grpc-encoding").and_then(|v| v.to_str().ok()).unwrap_or_default();
            match Packing::from_name(name) {
                Some(Packing::Plain) => {
                    return Err((3, "packed, and grpc-encoding does not say how".to_owned()));
                }
                Some(p) => p,
                None => return Err((12, format!("grpc-encoding `{name}`: send gzip, zstd or identity"))),
            }
        }
        n => return Err((3, format!("the frame has flag {n}, not 0 or 1"))),
    };
    let body = frame.slice(FRAME..);
    app.pool.read(Job { kind, form: Form::Protobuf, packing, body, share }).await.map_err(failed)
}

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

fn grpc_success(kind: Kind, taken: Taken) -> Response<Body> {
    let message = success(kind, taken);
    let mut body = Vec::with_capacity(message.len() + FRAME);
    body.push(0);
    body.extend_from_slice(&u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes());
    body.extend_from_slice(&message);
    let mut trailers = HeaderMap::new();
    trailers.insert(GRPC_STATUS, HeaderValue::from_static("0"));
    let body = Full::new(Bytes::from(body)).with_trailers(async move { Some(Ok(trailers)) });
    grpc_response(Body::new(body))
}

fn grpc_response(body: Body) -> Response<Body> {
    let mut r = Response::new(body);
    r.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    r.headers_mut().insert("grpc-accept-encoding", HeaderValue::from_static("identity,gzip,zstd"));
    r
}

fn grpc_failure(code: u16, message: &str, retry: bool) -> Response<Body> {
    let mut r = grpc_response(Body::empty());
    let h = r.headers_mut();
    h.insert(GRPC_STATUS, HeaderValue::from(code));
    if let Ok(v) = HeaderValue::from_str(&percent(message)) {
        h.insert("grpc-message", v);
    }
    let details = status(i32::from(code), message, retry).encode_to_vec();
    let details = base64::engine::general_purpose::STANDARD_NO_PAD.encode(details);
    if let Ok(v) = HeaderValue::from_str(&details) {
        h.insert("grpc-status-details-bin", v);
    }
    r
}

/// Percent-encoding as the gRPC specification asks for in messages.
fn percent(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    // A header has its limits too.
    for b in text.bytes().take(1000) {
        match b {
            b' '..=b'~' if b != b'%' => out.push(char::from(b)),
            _ => out.push_str(&format!("%{b:02X}")),
        }
    }
    out
}
