//! How much memory a request will take, told from its bytes before it is decoded.
//!
//! Two bytes on the wire can become hundreds in memory: an empty span, an empty value in a list. So what a request may take is
//! bounded by what it holds, and not by its length alone. The estimate is on the high side.

use super::ingest::{Form, Kind};

/// A decoded record with the row made of it.
const RECORD: usize = 1600;
/// A decoded attribute, event or link.
const FIELD: usize = 160;
/// Decoded values in lists and maps, per byte on the wire: two bytes make one value.
const NESTED: usize = 40;
/// Text is there decoded, as a row and encoded.
const TEXT: usize = 3;
/// A JSON value, and what is made of it.
const JSON: usize = 120;

/// Bytes of memory that a request takes, about.
pub(super) fn weight(kind: Kind, form: Form, bytes: &[u8]) -> usize {
    let text = bytes.len().saturating_mul(TEXT);
    match form {
        Form::Json => {
            let values = bytes.iter().filter(|b| matches!(**b, b',' | b':' | b'{' | b'[')).count();
            text.saturating_add(values.saturating_mul(JSON))
        }
        // Metrics are decoded and dropped; their smallest parts are as small.
        Form::Protobuf if kind == Kind::Metrics => bytes.len().saturating_mul(NESTED),
        Form::Protobuf => text.saturating_add(resources(bytes)),
    }
}

/// `Resource*` (field 1 of the request) holds `Scope*` (field 2), which holds records (field 2): the same numbers for spans
/// and log records.
fn resources(bytes: &[u8]) -> usize {
    fields(bytes)
        .map(|(number, value)| match number {
            1 => fields(value)
                .map(|(n, v)| if n == 2 { records(v) } else { v.len().saturating_mul(NESTED) })
                .fold(FIELD, usize::saturating_add),
            _ => 0,
        })
        .fold(0, usize::saturating_add)
}

fn records(scope: &[u8]) -> usize {
    fields(scope)
        .map(|(n, v)| if n == 2 { record(v) } else { v.len().saturating_mul(NESTED) })
        .fold(FIELD, usize::saturating_add)
}

fn record(bytes: &[u8]) -> usize {
    let parts = fields(bytes).map(|(_, value)| FIELD.saturating_add(nested(value, 0)));
    parts.fold(RECORD, usize::saturating_add)
}

/// An attribute holds a value (field 2), which may be a list (5) or a map (6); an event holds attributes. What is no message
/// at all is text, which may look like one: the estimate is then too high and no harm is done.
fn nested(bytes: &[u8], depth: usize) -> usize {
    if bytes.len() < 4 || depth > 1 {
        return 0;
    }
    fields(bytes)
        .map(|(n, v)| match n {
            2 if matches!(v.first(), Some(0x2a | 0x32)) => v.len().saturating_mul(NESTED),
            3 => FIELD.saturating_add(nested(v, depth + 1)),
            _ => 0,
        })
        .fold(0, usize::saturating_add)
}

/// The length-delimited fields of a message. Ends where the bytes are no message any more: decoding will say so.
fn fields(mut bytes: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    std::iter::from_fn(move || {
        loop {
            let tag = varint(&mut bytes)?;
            match tag & 7 {
                0 => {
                    varint(&mut bytes)?;
                }
                1 => bytes = bytes.get(8..)?,
                5 => bytes = bytes.get(4..)?,
                2 => {
                    let n = usize::try_from(varint(&mut bytes)?).ok()?;
                    let value = bytes.get(..n)?;
                    bytes = &bytes[n..];
                    return Some((tag >> 3, value));
                }
                _ => return None,
            }
        }
    })
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut out = 0u64;
    for (i, b) in bytes.iter().enumerate().take(10) {
        out |= u64::from(b & 0x7f) << (7 * i);
        if b & 0x80 == 0 {
            *bytes = &bytes[i + 1..];
            return Some(out);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
    use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, KeyValue, any_value::Value};
    use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
    use prost::Message;

    fn request(spans: Vec<Span>) -> Vec<u8> {
        let scope_spans = vec![ScopeSpans { spans, ..ScopeSpans::default() }];
        ExportTraceServiceRequest {
            resource_spans: vec![ResourceSpans { scope_spans, ..ResourceSpans::default() }],
        }
        .encode_to_vec()
    }

    #[test]
    fn small_parts_weigh_what_they_become() {
        let weight = |r: &[u8]| weight(Kind::Traces, Form::Protobuf, r);
        let empty = request(vec![Span::default(); 1000]);
        assert!(empty.len() < 3000 && weight(&empty) >= 1000 * std::mem::size_of::<Span>());
        let list = AnyValue {
            value: Some(Value::ArrayValue(ArrayValue { values: vec![AnyValue::default(); 1000] })),
        };
        let attribute = KeyValue { key: "k".into(), value: Some(list), ..KeyValue::default() };
        let nested = request(vec![Span { attributes: vec![attribute], ..Span::default() }]);
        assert!(nested.len() < 3000 && weight(&nested) >= 1000 * std::mem::size_of::<AnyValue>());
        // Text weighs little more than itself.
        let text = AnyValue { value: Some(Value::StringValue("word ".repeat(2000))) };
        let attribute = KeyValue { key: "k".into(), value: Some(text), ..KeyValue::default() };
        let text = request(vec![Span { attributes: vec![attribute], ..Span::default() }]);
        assert!(weight(&text) < 5 * text.len(), "{}", weight(&text));
    }

    #[test]
    fn what_is_no_message_has_a_weight_too() {
        for bytes in [&[][..], &[0xff; 40], &[0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f], &[0x0b, 0x0b]] {
            assert!(weight(Kind::Traces, Form::Protobuf, bytes) <= 4 * FIELD);
        }
    }
}
