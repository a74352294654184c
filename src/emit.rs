//! `baton eval --emit`: scores of transfers as `gen_ai.evaluation.result` events, sent as OTLP log records on the spans of the
//! transfers. Nothing is sent unless it is asked for.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use baton_analyzer::report::scores::{Score, Scores};
use baton_analyzer::report::text;
use baton_analyzer::session::Session;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_client::LogsServiceClient;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::resource::v1::Resource;
use tonic::transport::{Channel, Endpoint};

use crate::{Usage, source, terminal};

/// Events of one request.
const BATCH: usize = 1000;
/// An answer is waited for so long.
const PATIENCE: Duration = Duration::from_secs(10);
/// A request that the receiver is too busy for is sent so often.
const TRIES: u32 = 5;

/// Where scores go.
pub(crate) struct Target {
    url: String,
    endpoint: Endpoint,
}

impl Target {
    /// Reads `otlp://HOST:PORT`.
    pub(crate) fn parse(url: &str) -> Result<Self> {
        let wrong = || Usage(format!("--emit {}: an address is otlp://HOST:PORT", text::plain(url)));
        let rest = url.strip_prefix("otlp://").map(|r| r.trim_end_matches('/')).ok_or_else(wrong)?;
        let port = rest.rsplit_once(':').and_then(|(host, port)| {
            (!host.is_empty() && !host.contains('/')).then(|| port.parse::<u16>().ok()).flatten()
        });
        port.ok_or_else(wrong)?;
        let endpoint = Endpoint::from_shared(format!("http://{rest}")).map_err(|_| wrong())?;
        let endpoint = endpoint.connect_timeout(PATIENCE).timeout(PATIENCE);
        Ok(Self { url: url.to_owned(), endpoint })
    }
}

/// Sends all scores, and says on standard error how many.
pub(crate) async fn send(session: &Session, target: &Target) -> Result<()> {
    let place = || format!("--emit {}", text::plain(&target.url));
    let channel = target.endpoint.connect().await.with_context(place)?;
    let mut client = LogsServiceClient::new(channel);
    let token = std::env::var("BATON_TOKEN").ok();
    let mut scores = Scores::new(session).await?;
    let mut waiting: Vec<Score> = scores.violations().await?;
    let mut sent = 0;
    loop {
        let next = scores.next().await?;
        let last = next.is_none();
        waiting.extend(next.into_iter().flatten());
        while waiting.len() >= BATCH || (last && !waiting.is_empty()) {
            let rest = waiting.split_off(waiting.len().min(BATCH));
            let records: Vec<LogRecord> = waiting.iter().filter_map(event).collect();
            sent += records.len();
            export(&mut client, request(records), token.as_deref()).await.with_context(place)?;
            waiting = rest;
        }
        if last {
            break;
        }
    }
    terminal::note(&format!("{sent} scores sent to {}", text::plain(&target.url)));
    Ok(())
}

/// Sends one request, again where the receiver asks for it.
async fn export(
    client: &mut LogsServiceClient<Channel>,
    body: ExportLogsServiceRequest,
    token: Option<&str>,
) -> Result<()> {
    for n in 1.. {
        let mut request = tonic::Request::new(body.clone());
        if let Some(t) = token {
            request.metadata_mut().insert("authorization", format!("Bearer {t}").parse()?);
        }
        match client.export(request).await {
            Ok(answer) => {
                let partial = answer.into_inner().partial_success.unwrap_or_default();
                if partial.rejected_log_records > 0 {
                    let why = text::plain(&partial.error_message);
                    bail!("{} scores were rejected: {why}", partial.rejected_log_records);
                }
                return Ok(());
            }
            // The receiver may have taken what timed out: the same score twice is one.
            Err(s) if n < TRIES && is_retryable(s.code()) => {
                tokio::time::sleep(Duration::from_millis(100 << n)).await;
            }
            Err(s) => bail!("{:?}: {}", s.code(), text::plain(s.message())),
        }
    }
    Ok(())
}

/// What OTLP says may be sent again (specification, OTLP/gRPC response).
pub(crate) fn is_retryable(code: tonic::Code) -> bool {
    matches!(
        code,
        tonic::Code::Unavailable
            | tonic::Code::Cancelled
            | tonic::Code::DeadlineExceeded
            | tonic::Code::Aborted
            | tonic::Code::OutOfRange
            | tonic::Code::DataLoss
    )
}

fn request(log_records: Vec<LogRecord>) -> ExportLogsServiceRequest {
    let scope = InstrumentationScope {
        name: "baton".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    };
    let name = attribute("service.name", Value::StringValue("baton".to_owned()));
    let resource = Resource { attributes: vec![name], ..Resource::default() };
    let scope_logs = vec![ScopeLogs { scope: Some(scope), log_records, ..ScopeLogs::default() }];
    ExportLogsServiceRequest {
        resource_logs: vec![ResourceLogs { resource: Some(resource), scope_logs, ..ResourceLogs::default() }],
    }
}

/// A score as an event on its span; `None` where the ids are none of OpenTelemetry's.
fn event(s: &Score) -> Option<LogRecord> {
    let trace = u128::from_str_radix(&s.trace_id, 16).ok().filter(|_| s.trace_id.len() == 32)?;
    let span = u64::from_str_radix(&s.span_id, 16).ok().filter(|_| s.span_id.len() == 16)?;
    let now = u64::try_from(source::now()).unwrap_or(0);
    let text = |key, v: &String| attribute(key, Value::StringValue(v.clone()));
    let mut attributes = vec![text("gen_ai.evaluation.name", &s.name)];
    attributes.extend(s.value.map(|v| attribute("gen_ai.evaluation.score.value", Value::DoubleValue(v))));
    attributes.extend(s.label.as_ref().map(|l| text("gen_ai.evaluation.score.label", l)));
    attributes.extend(s.explanation.as_ref().map(|e| text("gen_ai.evaluation.explanation", e)));
    Some(LogRecord {
        time_unix_nano: now,
        observed_time_unix_nano: now,
        event_name: "gen_ai.evaluation.result".to_owned(),
        trace_id: trace.to_be_bytes().to_vec(),
        span_id: span.to_be_bytes().to_vec(),
        attributes,
        ..LogRecord::default()
    })
}

fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}
