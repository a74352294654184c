//! OTLP as bytes: decoding one message, and reading files of many.
//!
//! Protobuf decodes with prost; JSON follows the OTLP/JSON rules (hex ids, 64-bit integers as numbers or
//! strings, unknown members ignored). What is decoded is the same either way.

mod json;
mod read;
mod split;
mod wire;

#[cfg(feature = "server")]
pub(crate) use split::uvarint;

pub use json::decode as decode_json;
pub use read::{Inputs, Options, Progress, expand, read_bytes, read_input};
pub use wire::traces as traces_in;

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use prost::Message;

/// What one message carries.
#[derive(Debug)]
pub enum Signal {
    /// Spans.
    Traces(ExportTraceServiceRequest),
    /// Log records.
    Logs(ExportLogsServiceRequest),
    /// Metrics; nothing is read from them.
    Metrics,
}

/// A part of an input that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file, or `-`.
    pub file: String,
    /// Where in it: a byte, a line, a message, a path inside the message.
    pub position: String,
    /// What is wrong.
    pub reason: String,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}: {}", self.file, self.position, self.reason)
    }
}

/// Why a message was refused as a whole.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub String);

/// Decodes one protobuf message without being told its type.
///
/// The three requests have the same outer shape; the inner fields differ in wire type, so the wrong
/// type fails to decode or yields no valid id.
///
/// # Errors
/// [`Refused`] where it is none of the three.
pub fn decode_protobuf(bytes: &[u8]) -> Result<Signal, Refused> {
    let traces = ExportTraceServiceRequest::decode(bytes);
    if let Ok(t) = &traces {
        let ids = |n: usize| {
            t.resource_spans
                .iter()
                .flat_map(|r| &r.scope_spans)
                .flat_map(|s| &s.spans)
                .take(n)
                .map(|s| s.trace_id.len() == 16 || s.span_id.len() == 8)
                .collect::<Vec<_>>()
        };
        let ids = ids(16);
        if (ids.is_empty() && !has_records(t)) || ids.contains(&true) {
            return traces.map(Signal::Traces).map_err(|e| Refused(e.to_string()));
        }
    }
    if let Ok(l) = ExportLogsServiceRequest::decode(bytes)
        && l.resource_logs.iter().any(|r| r.scope_logs.iter().any(|s| !s.log_records.is_empty()))
    {
        return Ok(Signal::Logs(l));
    }
    if let Ok(m) = ExportMetricsServiceRequest::decode(bytes)
        && m.resource_metrics
            .iter()
            .any(|r| r.scope_metrics.iter().any(|s| s.metrics.iter().any(|m| m.data.is_some())))
    {
        return Ok(Signal::Metrics);
    }
    match traces {
        Ok(t) => Ok(Signal::Traces(t)),
        Err(e) => Err(Refused(format!("no OTLP message: {}", first_line(&e.to_string())))),
    }
}

fn has_records(t: &ExportTraceServiceRequest) -> bool {
    t.resource_spans.iter().any(|r| r.scope_spans.iter().any(|s| !s.spans.is_empty()))
}

fn first_line(s: &str) -> &str {
    s.lines().next().unwrap_or(s)
}

#[cfg(test)]
mod tests {
    use super::*;
    use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
    use opentelemetry_proto::tonic::metrics::v1::{Gauge, Metric, ResourceMetrics, ScopeMetrics, metric};
    use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};

    #[test]
    fn the_three_requests_are_told_apart_by_content() {
        let span = Span { trace_id: vec![1; 16], span_id: vec![2; 8], name: "x".into(), ..Span::default() };
        let t = ExportTraceServiceRequest {
            resource_spans: vec![ResourceSpans {
                scope_spans: vec![ScopeSpans { spans: vec![span], ..ScopeSpans::default() }],
                ..ResourceSpans::default()
            }],
        };
        assert!(matches!(decode_protobuf(&t.encode_to_vec()), Ok(Signal::Traces(_))));
        let log = LogRecord { observed_time_unix_nano: 5, event_name: "e".into(), ..LogRecord::default() };
        let l = ExportLogsServiceRequest {
            resource_logs: vec![ResourceLogs {
                scope_logs: vec![ScopeLogs { log_records: vec![log], ..ScopeLogs::default() }],
                ..ResourceLogs::default()
            }],
        };
        assert!(matches!(decode_protobuf(&l.encode_to_vec()), Ok(Signal::Logs(_))));
        let metric = Metric {
            name: "m".into(),
            data: Some(metric::Data::Gauge(Gauge::default())),
            ..Metric::default()
        };
        let m = ExportMetricsServiceRequest {
            resource_metrics: vec![ResourceMetrics {
                scope_metrics: vec![ScopeMetrics { metrics: vec![metric], ..ScopeMetrics::default() }],
                ..ResourceMetrics::default()
            }],
        };
        assert!(matches!(decode_protobuf(&m.encode_to_vec()), Ok(Signal::Metrics)));
        assert!(decode_protobuf(b"\x0b\xff\xff").is_err());
    }
}
