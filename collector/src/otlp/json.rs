//! OTLP/JSON into the protobuf types.

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{
    AnyValue, ArrayValue, InstrumentationScope, KeyValue, KeyValueList, any_value::Value as Any,
};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status, span};
use serde_json::Value;

use super::{Refused, Signal, first_line};

/// What one document holds, and the records in it that cannot be kept (path, reason).
#[derive(Debug, Default)]
pub struct Document {
    /// Its signals; empty for a document without any.
    pub signals: Vec<Signal>,
    /// Records that were left out.
    pub rejected: Vec<(String, String)>,
    /// True where one of the OTLP top-level members stands in it.
    pub is_otlp: bool,
}

/// Decodes one JSON document. Null and absent are the same; unknown members are ignored; of a member
/// that stands twice the last one counts.
///
/// # Errors
/// [`Refused`] where it is no JSON object or a member has the wrong shape.
pub fn decode(text: &[u8]) -> Result<Document, Refused> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let v: Value = serde_json::from_slice(text)
        .map_err(|e| Refused(format!("no JSON: {}", first_line(&e.to_string()))))?;
    let Value::Object(top) = &v else { return Err(Refused("no JSON object".to_owned())) };
    let mut doc = Document::default();
    let member = |a: &str, b: &str| top.get(a).or_else(|| top.get(b));
    if let Some(list) = member("resourceSpans", "resource_spans") {
        doc.is_otlp = true;
        let mut req = ExportTraceServiceRequest::default();
        for (i, r) in array(list, "resourceSpans")?.iter().enumerate() {
            let path = format!("resourceSpans[{i}]");
            let mut rs = ResourceSpans { resource: resource(r, &path)?, ..ResourceSpans::default() };
            for (j, s) in list_of(r, "scopeSpans", &path)?.iter().enumerate() {
                let path = format!("{path}.scopeSpans[{j}]");
                let mut ss = ScopeSpans { scope: scope(s, &path)?, ..ScopeSpans::default() };
                for (k, x) in list_of(s, "spans", &path)?.iter().enumerate() {
                    let path = format!("{path}.spans[{k}]");
                    match span(x, &path)? {
                        Ok(span) => ss.spans.push(span),
                        Err(reason) => doc.rejected.push((path, reason)),
                    }
                }
                rs.scope_spans.push(ss);
            }
            req.resource_spans.push(rs);
        }
        doc.signals.push(Signal::Traces(req));
    }
    if let Some(list) = member("resourceLogs", "resource_logs") {
        doc.is_otlp = true;
        let mut req = ExportLogsServiceRequest::default();
        for (i, r) in array(list, "resourceLogs")?.iter().enumerate() {
            let path = format!("resourceLogs[{i}]");
            let mut rl = ResourceLogs { resource: resource(r, &path)?, ..ResourceLogs::default() };
            for (j, s) in list_of(r, "scopeLogs", &path)?.iter().enumerate() {
                let path = format!("{path}.scopeLogs[{j}]");
                let mut sl = ScopeLogs { scope: scope(s, &path)?, ..ScopeLogs::default() };
                for (k, x) in list_of(s, "logRecords", &path)?.iter().enumerate() {
                    let path = format!("{path}.logRecords[{k}]");
                    match log(x, &path)? {
                        Ok(l) => sl.log_records.push(l),
                        Err(reason) => doc.rejected.push((path, reason)),
                    }
                }
                rl.scope_logs.push(sl);
            }
            req.resource_logs.push(rl);
        }
        doc.signals.push(Signal::Logs(req));
    }
    if member("resourceMetrics", "resource_metrics").is_some() {
        doc.is_otlp = true;
        doc.signals.push(Signal::Metrics);
    }
    Ok(doc)
}

fn array<'a>(v: &'a Value, path: &str) -> Result<&'a [Value], Refused> {
    match v {
        Value::Array(a) => Ok(a),
        Value::Null => Ok(&[]),
        _ => Err(Refused(format!("{path} is no array"))),
    }
}

fn list_of<'a>(v: &'a Value, key: &str, path: &str) -> Result<&'a [Value], Refused> {
    let snake = || snake_case(key);
    v.get(key).or_else(|| v.get(snake())).map_or(Ok(&[]), |x| array(x, &format!("{path}.{key}")))
}

fn snake_case(key: &str) -> String {
    let mut s = String::new();
    for c in key.chars() {
        if c.is_ascii_uppercase() {
            s.push('_');
        }
        s.push(c.to_ascii_lowercase());
    }
    s
}

fn get<'a>(v: &'a Value, key: &str) -> Option<&'a Value> {
    v.get(key).or_else(|| v.get(snake_case(key))).filter(|x| !x.is_null())
}

fn text(v: &Value, key: &str, path: &str) -> Result<String, Refused> {
    match get(v, key) {
        None => Ok(String::new()),
        Some(Value::String(s)) => Ok(s.clone()),
        Some(_) => Err(Refused(format!("{path}.{key} is no string"))),
    }
}

fn unsigned(v: &Value, key: &str, path: &str) -> Result<u64, Refused> {
    let bad = || Refused(format!("{path}.{key} is no unsigned 64-bit integer"));
    match get(v, key) {
        None => Ok(0),
        Some(Value::Number(n)) => n
            .as_u64()
            .or_else(|| {
                n.as_f64().filter(|f| f.fract() == 0.0 && (0.0..1.8e19).contains(f)).map(|f| f as u64)
            })
            .ok_or_else(bad),
        Some(Value::String(s)) => s.trim().parse().map_err(|_| bad()),
        Some(_) => Err(bad()),
    }
}

/// An enumeration is a number. A name is not allowed in OTLP/JSON and reads as 0.
fn enumeration(v: &Value, key: &str) -> i32 {
    get(v, key).and_then(Value::as_i64).and_then(|n| i32::try_from(n).ok()).unwrap_or(0)
}

fn small(v: &Value, key: &str) -> u32 {
    get(v, key)
        .and_then(|x| x.as_u64().or_else(|| x.as_str().and_then(|s| s.parse().ok())))
        .and_then(|n| u32::try_from(n).ok())
        .unwrap_or(0)
}

fn id(v: &Value, key: &str, bytes: usize) -> Result<Vec<u8>, String> {
    let Some(x) = get(v, key) else { return Ok(Vec::new()) };
    let Value::String(s) = x else { return Err(format!("{key} is no string")) };
    if s.is_empty() {
        return Ok(Vec::new());
    }
    if s.len() != bytes * 2 {
        return Err(format!("{key} has {} characters and not {} hex digits", s.chars().count(), bytes * 2));
    }
    let mut out = Vec::with_capacity(bytes);
    for pair in s.as_bytes().chunks(2) {
        let h = std::str::from_utf8(pair)
            .ok()
            .and_then(|p| u8::from_str_radix(p, 16).ok())
            .filter(|_| pair.iter().all(u8::is_ascii_hexdigit));
        out.push(h.ok_or_else(|| format!("{key} is not hexadecimal"))?);
    }
    Ok(out)
}

fn resource(v: &Value, path: &str) -> Result<Option<Resource>, Refused> {
    let Some(r) = get(v, "resource") else { return Ok(None) };
    Ok(Some(Resource { attributes: attributes(r, &format!("{path}.resource"))?, ..Resource::default() }))
}

fn scope(v: &Value, path: &str) -> Result<Option<InstrumentationScope>, Refused> {
    let Some(s) = get(v, "scope") else { return Ok(None) };
    let path = format!("{path}.scope");
    Ok(Some(InstrumentationScope {
        name: text(s, "name", &path)?,
        version: text(s, "version", &path)?,
        ..InstrumentationScope::default()
    }))
}

fn attributes(v: &Value, path: &str) -> Result<Vec<KeyValue>, Refused> {
    list_of(v, "attributes", path)?
        .iter()
        .enumerate()
        .map(|(i, a)| {
            let path = format!("{path}.attributes[{i}]");
            Ok(KeyValue {
                key: text(a, "key", &path)?,
                value: get(a, "value").map(any),
                ..KeyValue::default()
            })
        })
        .collect()
}

fn any(v: &Value) -> AnyValue {
    let Value::Object(m) = v else { return AnyValue { value: None } };
    let mut value = None;
    for (k, x) in m {
        if x.is_null() {
            continue;
        }
        let read = match k.as_str() {
            "stringValue" | "string_value" => x.as_str().map(|s| Any::StringValue(s.to_owned())),
            "boolValue" | "bool_value" => x.as_bool().map(Any::BoolValue),
            "intValue" | "int_value" => integer(x),
            "doubleValue" | "double_value" => double(x).map(Any::DoubleValue),
            "bytesValue" | "bytes_value" => x.as_str().and_then(base64).map(Any::BytesValue),
            "arrayValue" | "array_value" => Some(Any::ArrayValue(ArrayValue {
                values: x
                    .get("values")
                    .and_then(Value::as_array)
                    .map(|a| a.iter().map(any).collect())
                    .unwrap_or_default(),
            })),
            "kvlistValue" | "kvlist_value" => {
                let values = x.get("values").and_then(Value::as_array).map(|a| {
                    a.iter()
                        .map(|kv| KeyValue {
                            key: kv.get("key").and_then(Value::as_str).unwrap_or_default().to_owned(),
                            value: kv.get("value").filter(|v| !v.is_null()).map(any),
                            ..KeyValue::default()
                        })
                        .collect()
                });
                Some(Any::KvlistValue(KeyValueList { values: values.unwrap_or_default() }))
            }
            _ => continue,
        };
        // Of two members the last one counts, as in protobuf.
        value = read.or(value);
    }
    AnyValue { value }
}

fn integer(v: &Value) -> Option<Any> {
    match v {
        Value::Number(n) => n
            .as_i64()
            .or_else(|| n.as_f64().filter(|f| f.fract() == 0.0 && f.abs() < 9.2e18).map(|f| f as i64))
            .map(Any::IntValue)
            .or_else(|| Some(Any::DoubleValue(n.as_f64()?))),
        Value::String(s) => s.trim().parse().ok().map(Any::IntValue).or_else(|| {
            double(v).filter(|f| f.fract() == 0.0 && f.abs() < 9.2e18).map(|f| Any::IntValue(f as i64))
        }),
        _ => None,
    }
}

fn double(v: &Value) -> Option<f64> {
    match v {
        Value::Number(n) => n.as_f64(),
        Value::String(s) => match s.as_str() {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            other => other.trim().parse().ok(),
        },
        _ => None,
    }
}

fn base64(s: &str) -> Option<Vec<u8>> {
    use base64::Engine;
    use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
    STANDARD.decode(s).or_else(|_| URL_SAFE_NO_PAD.decode(s.trim_end_matches('='))).ok()
}

fn span(v: &Value, path: &str) -> Result<Result<Span, String>, Refused> {
    let ids = (|| Ok::<_, String>((id(v, "traceId", 16)?, id(v, "spanId", 8)?, id(v, "parentSpanId", 8)?)))();
    let (trace_id, span_id, parent_span_id) = match ids {
        Ok(x) => x,
        Err(reason) => return Ok(Err(reason)),
    };
    let mut s = Span {
        trace_id,
        span_id,
        parent_span_id,
        name: text(v, "name", path)?,
        kind: enumeration(v, "kind"),
        flags: small(v, "flags"),
        start_time_unix_nano: unsigned(v, "startTimeUnixNano", path)?,
        end_time_unix_nano: unsigned(v, "endTimeUnixNano", path)?,
        attributes: attributes(v, path)?,
        dropped_attributes_count: small(v, "droppedAttributesCount"),
        dropped_events_count: small(v, "droppedEventsCount"),
        ..Span::default()
    };
    for (i, e) in list_of(v, "events", path)?.iter().enumerate() {
        let path = format!("{path}.events[{i}]");
        s.events.push(span::Event {
            time_unix_nano: unsigned(e, "timeUnixNano", &path)?,
            name: text(e, "name", &path)?,
            attributes: attributes(e, &path)?,
            dropped_attributes_count: small(e, "droppedAttributesCount"),
        });
    }
    if let Some(st) = get(v, "status") {
        s.status = Some(Status {
            message: text(st, "message", &format!("{path}.status"))?,
            code: enumeration(st, "code"),
        });
    }
    Ok(Ok(s))
}

fn log(v: &Value, path: &str) -> Result<Result<LogRecord, String>, Refused> {
    let ids = (|| Ok::<_, String>((id(v, "traceId", 16)?, id(v, "spanId", 8)?)))();
    let (trace_id, span_id) = match ids {
        Ok(x) => x,
        Err(reason) => return Ok(Err(reason)),
    };
    Ok(Ok(LogRecord {
        time_unix_nano: unsigned(v, "timeUnixNano", path)?,
        observed_time_unix_nano: unsigned(v, "observedTimeUnixNano", path)?,
        body: get(v, "body").map(any),
        attributes: attributes(v, path)?,
        dropped_attributes_count: small(v, "droppedAttributesCount"),
        trace_id,
        span_id,
        event_name: text(v, "eventName", path)?,
        ..LogRecord::default()
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first_span(doc: &str) -> Span {
        let d = decode(doc.as_bytes()).unwrap_or_else(|e| panic!("{e}"));
        match d.signals.into_iter().next() {
            Some(Signal::Traces(t)) => t.resource_spans[0].scope_spans[0].spans[0].clone(),
            other => panic!("{other:?}"),
        }
    }

    const HEAD: &str = r#"{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"0AF7651916CD43DD8448EB211C80319C","spanId":"b7ad6b7169203331","#;
    const TAIL: &str = r#"}]}]}]}"#;

    #[test]
    fn integers_may_be_numbers_or_strings_and_keep_their_digits() {
        let s = first_span(&format!(
            r#"{HEAD}"startTimeUnixNano":"1700000000000000001","endTimeUnixNano":1700000000000000002,"attributes":[{{"key":"a","value":{{"intValue":"9007199254740993"}}}},{{"key":"b","value":{{"intValue":9007199254740993}}}},{{"key":"c","value":{{"doubleValue":"NaN"}}}}]{TAIL}"#
        ));
        assert_eq!(
            (s.start_time_unix_nano, s.end_time_unix_nano),
            (1_700_000_000_000_000_001, 1_700_000_000_000_000_002)
        );
        assert_eq!(s.attributes[0].value, s.attributes[1].value);
        assert_eq!(
            s.attributes[0].value,
            Some(AnyValue { value: Some(Any::IntValue(9_007_199_254_740_993)) })
        );
        assert!(
            matches!(s.attributes[2].value, Some(AnyValue { value: Some(Any::DoubleValue(f)) }) if f.is_nan())
        );
        assert_eq!(s.trace_id[0], 0x0a);
    }

    #[test]
    fn unknown_members_and_nulls_are_ignored_at_every_level() {
        let s = first_span(&format!(
            r#"{HEAD}"name":null,"future":{{"x":[1]}},"events":null,"attributes":[{{"key":"a","x":1,"value":{{"y":2,"stringValue":"v","z":null}}}}]{TAIL}"#
        ));
        assert_eq!(s.attributes[0].value, Some(AnyValue { value: Some(Any::StringValue("v".into())) }));
        assert_eq!(s.name, "");
    }

    #[test]
    fn a_record_with_a_bad_id_is_left_out_and_named() {
        let doc = r#"{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"zz","spanId":"b7ad6b7169203331"},{"traceId":"0af7651916cd43dd8448eb211c80319c","spanId":"b7ad6b7169203331"}]}]}]}"#;
        let d = decode(doc.as_bytes()).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(d.rejected.len(), 1);
        assert_eq!(d.rejected[0].0, "resourceSpans[0].scopeSpans[0].spans[0]");
    }

    #[test]
    fn what_is_no_otlp_document_is_refused_with_a_reason() {
        for (doc, part) in [
            ("[1]", "object"),
            ("{\"resourceSpans\":1}", "array"),
            ("{\"a\":NaN}", "no JSON"),
            ("", "no JSON"),
            (&"[".repeat(5000), "no JSON"),
        ] {
            let e = decode(doc.as_bytes()).err();
            assert!(e.as_ref().is_some_and(|e| e.0.contains(part)), "{doc:.20}: {e:?}");
        }
        assert!(decode(b"{}").is_ok_and(|d| d.signals.is_empty() && !d.is_otlp));
    }
}
