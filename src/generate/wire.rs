//! Spans and messages in the form of the OpenTelemetry GenAI conventions.

use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status};
use prost::Message;

/// An attribute of text.
pub(super) fn text(key: &str, value: impl Into<String>) -> KeyValue {
    attribute(key, Value::StringValue(value.into()))
}

/// An attribute of a whole number.
pub(super) fn int(key: &str, value: i64) -> KeyValue {
    attribute(key, Value::IntValue(value))
}

/// An attribute of one text in a list.
pub(super) fn list(key: &str, value: &str) -> KeyValue {
    let values = vec![AnyValue { value: Some(Value::StringValue(value.to_owned())) }];
    attribute(key, Value::ArrayValue(ArrayValue { values }))
}

fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

/// A span without attributes.
pub(super) fn span(
    trace: [u8; 16],
    id: [u8; 8],
    parent: Option<[u8; 8]>,
    name: impl Into<String>,
    kind: i32,
) -> Span {
    Span {
        trace_id: trace.to_vec(),
        span_id: id.to_vec(),
        parent_span_id: parent.map(|p| p.to_vec()).unwrap_or_default(),
        name: name.into(),
        kind,
        ..Span::default()
    }
}

/// Marks a span as failed.
pub(super) fn fail(span: &mut Span) {
    span.status = Some(Status { message: "upstream timeout".to_owned(), code: 2 });
}

/// One request.
pub(super) fn request(spans: Vec<Span>) -> ExportTraceServiceRequest {
    let scope = InstrumentationScope { name: "generated".to_owned(), ..InstrumentationScope::default() };
    let resource = Resource { attributes: vec![text("service.name", "returns-desk")], ..Resource::default() };
    let scope_spans = vec![ScopeSpans { scope: Some(scope), spans, ..ScopeSpans::default() }];
    ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            resource: Some(resource),
            scope_spans,
            ..ResourceSpans::default()
        }],
    }
}

/// Spans of a request.
pub(super) fn spans(request: &ExportTraceServiceRequest) -> u64 {
    let scopes = request.resource_spans.iter().flat_map(|r| &r.scope_spans);
    scopes.map(|s| s.spans.len() as u64).sum()
}

/// Spans that an answer says were rejected.
pub(super) fn rejected(answer: &[u8]) -> u64 {
    let answer = ExportTraceServiceResponse::decode(answer).unwrap_or_default();
    let partial = answer.partial_success.unwrap_or_default();
    u64::try_from(partial.rejected_spans).unwrap_or(0)
}
