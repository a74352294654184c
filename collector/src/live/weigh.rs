//! How much memory a request will take, told from its bytes before it is decoded.
//!
//! Two bytes on the wire can become hundreds in memory: an empty span, an empty value in a list. So what a request may take is
//! bounded by what it holds, and not by its length alone. The estimate is on the high side.

use super::ingest::{Form, Kind};
use crate::otlp::uvarint;

/// A decoded record with the row made of it.
const RECORD: usize = 4400;
/// A decoded attribute, event or link, and each key, value and text of it.
const FIELD: usize = 240;
/// An element of a list: it may be read as a message.
const ITEM: usize = 900;
/// Messages in messages: the decoder refuses more.
const DEPTH: usize = 100;

/// Bytes of memory that a request takes, about.
pub(super) fn weight(kind: Kind, form: Form, bytes: &[u8]) -> usize {
    match (kind, form) {
        // Metrics are decoded and dropped; their smallest parts are two bytes and become a hundred.
        (Kind::Metrics, Form::Protobuf) => bytes.len().saturating_mul(60),
        // The whole of it is read at once.
        (_, Form::Json) => {
            let text = Text::of(bytes, true);
            text.kept().saturating_add(text.read())
        }
        (_, Form::Protobuf) => {
            let mut largest = 0;
            let records = resources(kind, bytes, &mut largest);
            // One record is read after the other.
            records.saturating_add(largest)
        }
    }
}

/// Text with what decides how much becomes of it: attributes hold JSON, which is read too, and words are counted and
/// fingerprinted.
#[derive(Default)]
struct Text {
    bytes: usize,
    /// Bytes that part values of JSON.
    values: usize,
    /// Strings as values in JSON: each may be read as a message, or be its role.
    strings: usize,
    /// Numbers, or parts of identifiers.
    numbers: usize,
    /// Bytes of the longest word, rounded up to blocks.
    word: usize,
}

/// Bytes that are looked at together. Every body is weighed, so this is to be cheap: what is asked of a block needs no branch,
/// and compilers make it work on many bytes at once.
const BLOCK: usize = 64;

impl Text {
    /// Of a record; or, `escaped`, of a JSON document: what is JSON inside of its texts has a backslash before each quote.
    fn of(bytes: &[u8], escaped: bool) -> Self {
        let mut out = Self { bytes: bytes.len(), ..Self::default() };
        // Neighbours are needed on both sides; before and after the text stands a space.
        let mut window = [b' '; BLOCK + 2];
        let mut run = 0;
        for (i, block) in bytes.chunks(BLOCK).enumerate() {
            let from = i * BLOCK;
            window[0] = if from == 0 { b' ' } else { bytes[from - 1] };
            window[1..=block.len()].copy_from_slice(block);
            window[block.len() + 1..].fill(b' ');
            if let Some(next) = bytes.get(from + BLOCK) {
                window[BLOCK + 1] = *next;
            }
            let (mut values, mut strings, mut numbers, mut spaces) = (0u8, 0u8, 0u8, 0u8);
            for j in 0..BLOCK {
                let (p, b, n) = (window[j], window[j + 1], window[j + 2]);
                values += u8::from((b == b',') | (b == b':') | (b == b'{') | (b == b'['));
                // A quote that closes a value. White space may stand before what follows, as a line's end does in JSON for
                // people, and in a text of a document that is a backslash.
                let closes = (n == b',') | (n == b'}') | (n == b']') | (n <= b' ') | (n == b'\\');
                strings += u8::from((b == b'"') & closes & (!escaped | (p == b'\\')));
                numbers += u8::from(b.is_ascii_digit() & !p.is_ascii_digit());
                spaces += u8::from((b == b' ') | (b == b'\n') | (b == b'\t') | (b == b'\r'));
            }
            out.values += usize::from(values);
            out.strings += usize::from(strings);
            out.numbers += usize::from(numbers);
            // Where in a block a word begins or ends is not looked for.
            out.word = out.word.max(run + BLOCK);
            run = if spaces == 0 { run + BLOCK } else { BLOCK };
        }
        out.word = out.word.min(out.bytes);
        out
    }

    /// Memory that is held as long as the request.
    fn kept(&self) -> usize {
        weigh(&[(self.bytes, 4), (self.values, 40), (self.strings, 850), (self.numbers, 20)])
    }

    /// Memory that is held while the text is read. Tokens are counted word by word, and not of the longest texts.
    fn read(&self) -> usize {
        weigh(&[(self.bytes, 8), (self.values, 110), (self.numbers, 80), (self.word.min(4 << 20), 24)])
    }
}

fn weigh(parts: &[(usize, usize)]) -> usize {
    parts.iter().map(|(n, each)| n.saturating_mul(*each)).fold(0, usize::saturating_add)
}

/// `Resource*` (field 1 of the request) holds `Scope*` (field 2), which holds records (field 2): the same numbers for spans
/// and log records. Tells what reading the largest record takes. Only what decoding goes into is gone into: the rest is skipped
/// there, or is text.
fn resources(kind: Kind, bytes: &[u8], largest: &mut usize) -> usize {
    sum(bytes, FIELD, |_, resource| {
        sum(resource, FIELD, |n, scope| match n {
            2 => sum(scope, RECORD, |n, part| match n {
                2 => {
                    let text = Text::of(part, false);
                    *largest = text.read().max(*largest);
                    record(kind, part).saturating_add(text.kept())
                }
                // The scope, with attributes as its field 3.
                _ => attributes(part, 3).saturating_add(weigh(&[(part.len(), 4)])),
            }),
            // The resource, with attributes as its field 1 and references to entities.
            _ => sum(scope, FIELD, |_, part| key_value(part, 0)).saturating_add(weigh(&[(scope.len(), 4)])),
        })
    })
}

fn record(kind: Kind, bytes: &[u8]) -> usize {
    sum(bytes, FIELD, |n, part| match (kind, n) {
        (Kind::Traces, 9) | (Kind::Logs, 6) => key_value(part, 0),
        (Kind::Logs, 5) => any_value(part, 0),
        // Events and links.
        (Kind::Traces, 11) => attributes(part, 3),
        (Kind::Traces, 13) => attributes(part, 4),
        _ => 0,
    })
}

/// A message whose only deep part are attributes, in the given field.
fn attributes(bytes: &[u8], field: u64) -> usize {
    sum(bytes, FIELD, |n, part| if n == field { key_value(part, 0) } else { 0 })
}

fn key_value(bytes: &[u8], depth: usize) -> usize {
    sum(bytes, FIELD, |n, part| if n == 2 { any_value(part, depth) } else { 0 })
}

fn any_value(bytes: &[u8], depth: usize) -> usize {
    if depth > DEPTH {
        return 0;
    }
    sum(bytes, FIELD, |n, part| match n {
        5 => sum(part, ITEM, |_, value| any_value(value, depth + 1)),
        6 => sum(part, FIELD, |_, pair| key_value(pair, depth + 1)),
        _ => 0,
    })
}

/// So much for each field, and what is in it.
fn sum(bytes: &[u8], each: usize, mut inside: impl FnMut(u64, &[u8]) -> usize) -> usize {
    fields(bytes).map(|(n, part)| each.saturating_add(inside(n, part))).fold(0, usize::saturating_add)
}

/// The length-delimited fields of a message. Ends where the bytes are no message any more: decoding will say so. What is in a
/// group (an old form, which decoding skips) counts as if it stood outside: it must not hide what follows.
fn fields(mut bytes: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    std::iter::from_fn(move || {
        loop {
            let tag = varint(&mut bytes)?;
            match tag & 7 {
                0 => {
                    varint(&mut bytes)?;
                }
                1 => bytes = bytes.get(8..)?,
                3 | 4 => {}
                5 => bytes = bytes.get(4..)?,
                2 => {
                    let n = usize::try_from(varint(&mut bytes)?).ok()?;
                    let (value, rest) = bytes.split_at_checked(n)?;
                    bytes = rest;
                    return Some((tag >> 3, value));
                }
                _ => return None,
            }
        }
    })
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    // Most are one byte.
    if let Some((first, rest)) = bytes.split_first()
        && *first < 0x80
    {
        *bytes = rest;
        return Some(u64::from(*first));
    }
    let (n, used) = uvarint(bytes)?;
    *bytes = &bytes[used..];
    Some(n)
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
        let text = |t: String| {
            let text = AnyValue { value: Some(Value::StringValue(t)) };
            let attribute = KeyValue { key: "k".into(), value: Some(text), ..KeyValue::default() };
            let text = request(vec![Span { attributes: vec![attribute], ..Span::default() }]);
            weight(&text) / text.len()
        };
        // Text weighs little, and JSON in it what its values become.
        assert!(text("word ".repeat(2000)) < 14);
        assert!(text(format!("[{}0]", "0,".repeat(5000))) > std::mem::size_of::<serde_json::Value>());
        assert!(text(format!("[{}0]", r#""a","#.repeat(2000))) > 100);
        assert!(text("id0017 ".repeat(2000)) > 2 * text("idlong ".repeat(2000)));
        assert!(text("x".repeat(10_000)) > 2 * text("word ".repeat(2000)));
    }

    #[test]
    fn a_text_is_counted_the_same_wherever_blocks_end() {
        let count = |t: &str, escaped| {
            let t = Text::of(t.as_bytes(), escaped);
            (t.values, t.strings, t.numbers)
        };
        for front in 0..=2 * BLOCK {
            let front = " ".repeat(front);
            assert_eq!(count(&format!(r#"{front}{{"a":"b", "c":["d" ],"e":12}} 7"#), false), (7, 2, 2));
            assert_eq!(count(&format!(r#"{front}{{"a":"{{\"b\":[\"c\",\"d\"\n]}}"}}"#), true), (6, 2, 0));
            let word = "x".repeat(3 * BLOCK);
            let found = Text::of(format!("{front}{word} y").as_bytes(), false).word;
            assert!((3 * BLOCK..=5 * BLOCK).contains(&found), "{found}");
        }
    }

    #[test]
    fn a_record_is_read_after_the_other() {
        let text = AnyValue { value: Some(Value::StringValue(format!("[{}0]", "0,".repeat(5000)))) };
        let attribute = KeyValue { key: "k".into(), value: Some(text), ..KeyValue::default() };
        let span = Span { attributes: vec![attribute], ..Span::default() };
        let of = |n: usize| weight(Kind::Traces, Form::Protobuf, &request(vec![span.clone(); n]));
        assert_eq!(of(3) - of(2), of(2) - of(1));
        assert!(of(2) < 2 * of(1) - 5000 * 100);
    }

    /// Decoding skips a field that nobody knows, whatever its form, and reads on.
    #[test]
    fn nothing_hides_what_follows_it() {
        let many = request(vec![Span::default(); 1000]);
        let alone = weight(Kind::Traces, Form::Protobuf, &many);
        // Field 15 as a number, 8 bytes, text, a group, a group with a group and text in it, and 4 bytes.
        let unknown: [&[u8]; 6] = [
            &[0x78, 0x01],
            &[0x79, 0, 0, 0, 0, 0, 0, 0, 0],
            &[0x7a, 0x01, b'a'],
            &[0x7b, 0x7c],
            &[0x7b, 0x73, 0x0a, 0x02, b'a', b'b', 0x74, 0x7c],
            &[0x7d, 0, 0, 0, 0],
        ];
        for front in unknown {
            let body = [front, &many].concat();
            let read = ExportTraceServiceRequest::decode(&body[..]).unwrap_or_default();
            assert_eq!(read.resource_spans[0].scope_spans[0].spans.len(), 1000, "{front:?}");
            assert!(weight(Kind::Traces, Form::Protobuf, &body) >= alone, "{front:?}");
        }
    }

    #[test]
    fn what_is_no_message_has_a_weight_too() {
        for bytes in [&[][..], &[0xff; 40], &[0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f], &[0x0b, 0x0b]] {
            assert!(weight(Kind::Traces, Form::Protobuf, bytes) <= 4 * FIELD);
        }
    }
}
