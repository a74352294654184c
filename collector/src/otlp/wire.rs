//! A traces request read where it stands: text and ids stay in the body, and only what rows are made of is read.
//!
//! Most of the time prost takes is for copies of keys and values that are looked at once. This reader makes none. It knows the
//! form that exporters send; for what is unusual (a field twice, a group, a wrong wire type, text that is no UTF-8) it gives up,
//! and prost decides whether the request is good and what it says.

use crate::raw::{Any, Attrs, Event, Field, Resource, Scope, Span, Traces};

/// Values in values that are read here; prost reads more.
const DEPTH: usize = 32;

/// Reads a traces request. `None`: prost has to.
pub fn traces(body: &[u8]) -> Option<Traces<'_>> {
    let mut out = Traces::default();
    let mut m = Bytes(body);
    while let Some(field) = m.field()? {
        match field {
            (1, Wire::Bytes(b)) => out.resources.push(resource_spans(b)?),
            (1, _) => return None,
            _ => {}
        }
    }
    Some(out)
}

fn resource_spans(body: &[u8]) -> Option<Resource<'_>> {
    let mut out = Resource::default();
    let mut known = false;
    let mut m = Bytes(body);
    while let Some(field) = m.field()? {
        match field {
            (1, Wire::Bytes(b)) if !known => {
                known = true;
                out.attrs = Attrs::new(resource(b)?);
            }
            (2, Wire::Bytes(b)) => out.scopes.push(scope_spans(b)?),
            (3, Wire::Bytes(b)) => {
                text(b)?;
            }
            (1..=3, _) => return None,
            _ => {}
        }
    }
    Some(out)
}

fn resource(body: &[u8]) -> Option<Vec<Field<'_>>> {
    let mut out = Vec::new();
    let mut m = Bytes(body);
    while let Some(field) = m.field()? {
        match field {
            (1, Wire::Bytes(b)) => attribute(b, &mut out)?,
            (2, Wire::Varint(_)) => {}
            // References to entities are few, and nothing is made of them.
            (1..=3, _) => return None,
            _ => {}
        }
    }
    Some(out)
}

fn scope_spans(body: &[u8]) -> Option<Scope<'_>> {
    let mut out = Scope::default();
    let mut known = false;
    let mut m = Bytes(body);
    while let Some(field) = m.field()? {
        match field {
            (1, Wire::Bytes(b)) if !known => {
                known = true;
                out.name = scope(b)?;
            }
            (2, Wire::Bytes(b)) => out.spans.push(span(b)?),
            (3, Wire::Bytes(b)) => {
                text(b)?;
            }
            (1..=3, _) => return None,
            _ => {}
        }
    }
    Some(out)
}

fn scope(body: &[u8]) -> Option<&str> {
    let mut name = "";
    let mut m = Bytes(body);
    while let Some(field) = m.field()? {
        match field {
            (1, Wire::Bytes(b)) => name = text(b)?,
            (2, Wire::Bytes(b)) => {
                text(b)?;
            }
            (3, Wire::Bytes(b)) => {
                key_value(b, 0)?;
            }
            (4, Wire::Varint(_)) => {}
            (1..=4, _) => return None,
            _ => {}
        }
    }
    Some(name)
}

fn span(body: &[u8]) -> Option<Span<'_>> {
    let mut out = Span::default();
    let mut attributes = Vec::with_capacity(ATTRIBUTES);
    let mut status_known = false;
    let mut m = Bytes(body);
    while let Some(field) = m.field()? {
        match field {
            (1, Wire::Bytes(b)) => out.trace_id = b,
            (2, Wire::Bytes(b)) => out.span_id = b,
            (3, Wire::Bytes(b)) => {
                text(b)?;
            }
            (4, Wire::Bytes(b)) => out.parent_span_id = b,
            (5, Wire::Bytes(b)) => out.name = text(b)?,
            (6, Wire::Varint(n)) => out.kind = n as i32,
            (7, Wire::Eight(n)) => out.start_time_unix_nano = n,
            (8, Wire::Eight(n)) => out.end_time_unix_nano = n,
            (9, Wire::Bytes(b)) => attribute(b, &mut attributes)?,
            (10, Wire::Varint(n)) => out.dropped_attributes_count = n as u32,
            (11, Wire::Bytes(b)) => out.events.push(event(b)?),
            (13, Wire::Bytes(b)) => link(b)?,
            (12 | 14, Wire::Varint(_)) => {}
            (15, Wire::Bytes(b)) if !status_known => {
                status_known = true;
                (out.status_message, out.status_code) = status(b)?;
            }
            (16, Wire::Four(n)) => out.flags = n,
            (1..=16, _) => return None,
            _ => {}
        }
    }
    out.attrs = Attrs::new(attributes);
    Some(out)
}

/// Attributes that most spans have room for.
const ATTRIBUTES: usize = 24;

fn event(body: &[u8]) -> Option<Event<'_>> {
    let mut out = Event::default();
    let mut m = Bytes(body);
    while let Some(field) = m.field()? {
        match field {
            (1, Wire::Eight(_)) | (4, Wire::Varint(_)) => {}
            (2, Wire::Bytes(b)) => out.name = text(b)?,
            (3, Wire::Bytes(b)) => attribute(b, &mut out.fields)?,
            (1..=4, _) => return None,
            _ => {}
        }
    }
    Some(out)
}

/// Nothing is made of links, but one that is damaged spoils the request.
fn link(body: &[u8]) -> Option<()> {
    let mut m = Bytes(body);
    while let Some(field) = m.field()? {
        match field {
            (1 | 2, Wire::Bytes(_)) | (5, Wire::Varint(_)) | (6, Wire::Four(_)) => {}
            (3, Wire::Bytes(b)) => {
                text(b)?;
            }
            (4, Wire::Bytes(b)) => {
                key_value(b, 0)?;
            }
            (1..=6, _) => return None,
            _ => {}
        }
    }
    Some(())
}

fn status(body: &[u8]) -> Option<(&str, i32)> {
    let (mut message, mut code) = ("", 0);
    let mut m = Bytes(body);
    while let Some(field) = m.field()? {
        match field {
            (2, Wire::Bytes(b)) => message = text(b)?,
            (3, Wire::Varint(n)) => code = n as i32,
            (2 | 3, _) => return None,
            _ => {}
        }
    }
    Some((message, code))
}

/// Reads an attribute; one without a value is none.
fn attribute<'a>(body: &'a [u8], out: &mut Vec<Field<'a>>) -> Option<()> {
    if let (key, Some(value)) = key_value(body, 0)? {
        out.push((key, value));
    }
    Some(())
}

fn key_value(body: &[u8], depth: usize) -> Option<(&str, Option<Any<'_>>)> {
    let (mut key, mut value, mut known) = ("", None, false);
    let mut m = Bytes(body);
    while let Some(field) = m.field()? {
        match field {
            (1, Wire::Bytes(b)) => key = text(b)?,
            (2, Wire::Bytes(b)) if !known => {
                known = true;
                value = any_value(b, depth)?;
            }
            (3, Wire::Varint(_)) => {}
            (1..=3, _) => return None,
            _ => {}
        }
    }
    Some((key, value))
}

/// A value; the inner `None`: it is not set.
#[expect(clippy::option_option, reason = "the outer one says that this reader gives up")]
fn any_value(body: &[u8], depth: usize) -> Option<Option<Any<'_>>> {
    if depth > DEPTH {
        return None;
    }
    let mut out = None;
    let mut m = Bytes(body);
    while let Some(field) = m.field()? {
        let value = match field {
            (1, Wire::Bytes(b)) => Any::StringValue(text(b)?),
            (2, Wire::Varint(n)) => Any::BoolValue(n != 0),
            (3, Wire::Varint(n)) => Any::IntValue(n.cast_signed()),
            (4, Wire::Eight(n)) => Any::DoubleValue(f64::from_bits(n)),
            (5, Wire::Bytes(b)) => Any::ArrayValue(array(b, depth + 1)?),
            (6, Wire::Bytes(b)) => Any::KvlistValue(map(b, depth + 1)?),
            (7, Wire::Bytes(_)) | (8, Wire::Varint(_)) => Any::Other,
            (1..=8, _) => return None,
            _ => continue,
        };
        if out.replace(value).is_some() {
            return None;
        }
    }
    Some(out)
}

fn array(body: &[u8], depth: usize) -> Option<Vec<Any<'_>>> {
    let mut out = Vec::new();
    let mut m = Bytes(body);
    while let Some(field) = m.field()? {
        match field {
            (1, Wire::Bytes(b)) => out.push(any_value(b, depth)?.unwrap_or(Any::Other)),
            (1, _) => return None,
            _ => {}
        }
    }
    Some(out)
}

fn map(body: &[u8], depth: usize) -> Option<Vec<Field<'_>>> {
    let mut out = Vec::new();
    let mut m = Bytes(body);
    while let Some(field) = m.field()? {
        match field {
            // An entry without a value reads as null.
            (1, Wire::Bytes(b)) => out.push(key_value(b, depth).map(|(k, v)| (k, v.unwrap_or(Any::Other)))?),
            (1, _) => return None,
            _ => {}
        }
    }
    Some(out)
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

/// A field's value by its wire type.
enum Wire<'a> {
    Varint(u64),
    Eight(u64),
    Bytes(&'a [u8]),
    Four(u32),
}

/// A message's bytes that are not read yet.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    /// The next field, or the end (the inner `None`).
    #[expect(clippy::option_option, reason = "the outer one says that this reader gives up")]
    #[inline]
    fn field(&mut self) -> Option<Option<(u32, Wire<'a>)>> {
        if self.0.is_empty() {
            return Some(None);
        }
        let key = u32::try_from(self.varint()?).ok()?;
        if key < 8 {
            return None;
        }
        let value = match key & 7 {
            0 => Wire::Varint(self.varint()?),
            1 => Wire::Eight(u64::from_le_bytes(self.take()?)),
            2 => {
                let n = usize::try_from(self.varint()?).ok()?;
                let (value, rest) = self.0.split_at_checked(n)?;
                self.0 = rest;
                Wire::Bytes(value)
            }
            5 => Wire::Four(u32::from_le_bytes(self.take()?)),
            _ => return None,
        };
        Some(Some((key >> 3, value)))
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (value, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*value)
    }

    #[inline]
    fn varint(&mut self) -> Option<u64> {
        let (&first, rest) = self.0.split_first()?;
        if first < 0x80 {
            self.0 = rest;
            return Some(u64::from(first));
        }
        let mut out = 0u64;
        for (i, b) in self.0.iter().enumerate().take(10) {
            out |= u64::from(b & 0x7f) << (7 * i);
            if b & 0x80 == 0 {
                // The tenth byte holds one bit.
                if i == 9 && *b > 1 {
                    return None;
                }
                self.0 = &self.0[i + 1..];
                return Some(out);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::traces;
    use crate::raw::Traces;
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
    use opentelemetry_proto::tonic::common::v1::{
        AnyValue, ArrayValue, InstrumentationScope, KeyValue, KeyValueList, any_value::Value,
    };
    use opentelemetry_proto::tonic::resource::v1::Resource;
    use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status, span};
    use proptest::prelude::*;
    use prost::Message;

    fn attribute(value: BoxedStrategy<AnyValue>) -> BoxedStrategy<KeyValue> {
        let key = prop_oneof!["[a-c.]{0,3}", "gen_ai\\.[a-z.]{1,12}", "é{1,5}"];
        (key, proptest::option::of(value))
            .prop_map(|(key, value)| KeyValue { key, value, ..KeyValue::default() })
            .boxed()
    }

    fn value() -> BoxedStrategy<AnyValue> {
        let leaf = prop_oneof![
            "[a-zé ]{0,12}".prop_map(Value::StringValue),
            any::<bool>().prop_map(Value::BoolValue),
            any::<i64>().prop_map(Value::IntValue),
            (-1e9..1e9).prop_map(Value::DoubleValue),
            proptest::collection::vec(any::<u8>(), 0..4).prop_map(Value::BytesValue),
            any::<i32>().prop_map(Value::StringValueStrindex),
        ];
        let wrapped = |v| proptest::option::of(v).prop_map(|value| AnyValue { value }).boxed();
        wrapped(leaf.boxed())
            .prop_recursive(3, 12, 3, move |inner| {
                let entry = attribute(inner.clone().boxed());
                let list = proptest::collection::vec(inner, 0..3)
                    .prop_map(|values| Value::ArrayValue(ArrayValue { values }));
                let map = proptest::collection::vec(entry, 0..3)
                    .prop_map(|values| Value::KvlistValue(KeyValueList { values }));
                wrapped(prop_oneof![list, map].boxed())
            })
            .boxed()
    }

    fn request() -> impl Strategy<Value = ExportTraceServiceRequest> {
        let attributes = || proptest::collection::vec(attribute(value()), 0..6);
        let id = || proptest::collection::vec(any::<u8>(), 0..17);
        let event = ("[a-z.]{0,9}", attributes()).prop_map(|(name, attributes)| span::Event {
            name,
            attributes,
            time_unix_nano: 7,
            dropped_attributes_count: 1,
        });
        let link = (id(), attributes()).prop_map(|(span_id, attributes)| span::Link {
            span_id,
            attributes,
            flags: 9,
            trace_state: "a=b".to_owned(),
            ..span::Link::default()
        });
        let status = proptest::option::of(("[a-z]{0,4}", -1..4i32))
            .prop_map(|s| s.map(|(message, code)| Status { message, code }));
        let parts = (
            proptest::collection::vec(event, 0..3),
            proptest::collection::vec(link, 0..2),
            status,
            attributes(),
        );
        let span = ((id(), id(), id()), "[a-zé ]{0,9}", any::<(u32, i32, u64, u64, u32)>(), parts).prop_map(
            |((trace_id, span_id, parent_span_id), name, n, (events, links, status, attributes))| Span {
                trace_id,
                span_id,
                parent_span_id,
                name,
                flags: n.0,
                kind: n.1,
                start_time_unix_nano: n.2,
                end_time_unix_nano: n.3,
                dropped_attributes_count: n.4,
                dropped_events_count: n.4,
                trace_state: "x".to_owned(),
                events,
                links,
                status,
                attributes,
                ..Span::default()
            },
        );
        let spans = proptest::collection::vec(span, 0..3);
        let scope = proptest::option::of("[a-z.]{0,6}").prop_map(|s| {
            s.map(|name| InstrumentationScope {
                name,
                version: "1".to_owned(),
                ..InstrumentationScope::default()
            })
        });
        (spans, scope, proptest::option::of(attributes())).prop_map(|(spans, scope, attributes)| {
            let scope_spans = vec![ScopeSpans { scope, spans, schema_url: "u".to_owned() }];
            let resource = attributes.map(|attributes| Resource { attributes, ..Resource::default() });
            let resource = ResourceSpans { resource, scope_spans, schema_url: "u".to_owned() };
            ExportTraceServiceRequest { resource_spans: vec![resource] }
        })
    }

    proptest! {
        #[test]
        fn what_is_read_here_is_what_prost_reads(request in request()) {
            let body = request.encode_to_vec();
            prop_assert_eq!(traces(&body), Some(Traces::from(&request)));
        }

        /// What prost refuses is not read here either.
        #[test]
        fn damaged_requests_are_left_to_prost(
            request in request(),
            hurt in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..4),
            cut in any::<proptest::sample::Index>(),
        ) {
            let mut body = request.encode_to_vec();
            for (at, byte) in hurt {
                if !body.is_empty() {
                    let at = at.index(body.len());
                    body[at] = byte;
                }
            }
            for body in [&body[..], &body[..cut.index(body.len() + 1)]] {
                if let Some(read) = traces(body) {
                    let decoded = ExportTraceServiceRequest::decode(body);
                    prop_assert!(decoded.is_ok());
                    // Numbers that are none are not equal to themselves.
                    let decoded = decoded.unwrap_or_default();
                    prop_assert_eq!(format!("{read:?}"), format!("{:?}", Traces::from(&decoded)));
                }
            }
        }
    }

    #[test]
    fn deep_values_are_left_to_prost() {
        let mut v = AnyValue::default();
        for _ in 0..60 {
            v = AnyValue { value: Some(Value::ArrayValue(ArrayValue { values: vec![v] })) };
        }
        let attributes = vec![KeyValue { key: "a".to_owned(), value: Some(v), ..KeyValue::default() }];
        let spans = vec![Span { attributes, ..Span::default() }];
        let scope_spans = vec![ScopeSpans { spans, ..ScopeSpans::default() }];
        let resource_spans = vec![ResourceSpans { scope_spans, ..ResourceSpans::default() }];
        assert_eq!(traces(&ExportTraceServiceRequest { resource_spans }.encode_to_vec()), None);
    }
}
