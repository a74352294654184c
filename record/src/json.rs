//! JSON as it comes in span attributes: whole, quoted again, as a Python repr, or cut off.

use serde_json::{Map, Value};

use crate::pyrepr;

/// Marks an integer that fits neither `i64` nor `u64`, so that its digits survive.
/// The mark is in a private use area and cannot come from a tool that means text.
const BIG_INTEGER: char = '\u{f8ff}';

/// An integer of any size as a JSON value; see [`big_integer_digits`].
pub fn big_integer(digits: &str) -> Value {
    Value::String(format!("{BIG_INTEGER}int:{digits}"))
}

/// The digits of a value made by [`big_integer`].
pub fn big_integer_digits(s: &str) -> Option<&str> {
    s.strip_prefix(BIG_INTEGER)?.strip_prefix("int:")
}

/// Reads strict JSON. Integers that fit no 64 bits keep their digits ([`big_integer`]).
pub fn parse(text: &str) -> Option<Value> {
    if has_long_digit_run(text) {
        return serde_json::from_str(&quote_big_integers(text)).ok();
    }
    serde_json::from_str(text).ok()
}

fn has_long_digit_run(text: &str) -> bool {
    let mut run = 0u32;
    for b in text.bytes() {
        if b.is_ascii_digit() {
            run += 1;
            if run >= 19 {
                return true;
            }
        } else {
            run = 0;
        }
    }
    false
}

/// Turns integer literals beyond 64 bits into marked strings. Text inside strings is left alone.
fn quote_big_integers(text: &str) -> String {
    let b = text.as_bytes();
    let mut out = String::with_capacity(text.len() + 16);
    let (mut i, mut from) = (0, 0);
    while i < b.len() {
        match b[i] {
            b'"' => {
                i += 1;
                while i < b.len() && b[i] != b'"' {
                    i += if b[i] == b'\\' { 2 } else { 1 };
                }
                i += 1;
            }
            b'-' | b'0'..=b'9' => {
                let start = i;
                i += 1;
                while i < b.len() && matches!(b[i], b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-') {
                    i += 1;
                }
                let lit = &text[start..i];
                let integer =
                    lit.bytes().enumerate().all(|(n, c)| c.is_ascii_digit() || (n == 0 && c == b'-'));
                if integer && lit.len() >= 19 && lit.parse::<i64>().is_err() && lit.parse::<u64>().is_err() {
                    out.push_str(&text[from..start]);
                    out.push('"');
                    out.push(BIG_INTEGER);
                    out.push_str("int:");
                    out.push_str(lit);
                    out.push('"');
                    from = i;
                }
            }
            _ => i += 1,
        }
    }
    out.push_str(&text[from..]);
    out
}

/// How a text was read by [`parse_loose`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// JSON, or JSON that is a whole JSON string.
    Json,
    /// A Python literal.
    Python,
    /// JSON that ends too early; what was there is in the value.
    Truncated,
    /// Plain text.
    Text,
}

/// Reads an attribute value that should be structured: JSON, JSON quoted as a JSON string, a Python
/// literal, or the readable start of JSON that was cut off. Anything else is text.
pub fn parse_loose(text: &str) -> (Value, Form) {
    let t = text.trim();
    let first = t.as_bytes().first();
    if !matches!(first, Some(b'{' | b'[' | b'"')) {
        if let Some(v) = scalar(t) {
            return (v, Form::Json);
        }
        if pyrepr::looks_like(t)
            && let Some(v) = pyrepr::parse(t)
        {
            return (v, Form::Python);
        }
        return (Value::String(text.to_owned()), Form::Text);
    }
    if let Some(v) = parse(t) {
        if let Value::String(inner) = &v {
            let i = inner.trim_start();
            if (i.starts_with('{') || i.starts_with('['))
                && let Some(w) = parse(inner)
            {
                return (w, Form::Json);
            }
        }
        return (v, Form::Json);
    }
    if let Some(v) = pyrepr::parse(t) {
        return (v, Form::Python);
    }
    if matches!(first, Some(b'{' | b'['))
        && let Some(v) = salvage(t)
    {
        return (v, Form::Truncated);
    }
    (Value::String(text.to_owned()), Form::Text)
}

fn scalar(t: &str) -> Option<Value> {
    match t {
        "true" | "false" | "null" => parse(t),
        _ if t.starts_with(|c: char| c.is_ascii_digit() || c == '-') && t.len() < 40 => parse(t),
        _ => None,
    }
}

/// The readable start of JSON that was cut off at any byte: open containers are closed, a string
/// that was being written is kept as far as it goes, a key without a value is dropped.
///
/// `None` where the text is no start of a JSON object or array, or where nothing of it is left.
pub fn salvage(text: &str) -> Option<Value> {
    let b = text.as_bytes();
    // Open containers: true = object. `mark` is the length up to the last complete member.
    let mut stack: Vec<bool> = Vec::new();
    let mut marks: Vec<(usize, usize)> = Vec::new(); // (end of the text kept, depth)
    let mut i = 0;
    let mut string_from = None;
    while i < b.len() {
        match b[i] {
            b'{' | b'[' => {
                stack.push(b[i] == b'{');
                if stack.len() > 100 {
                    return None;
                }
                i += 1;
                marks.push((i, stack.len()));
            }
            b'}' | b']' => {
                if stack.pop()? != (b[i] == b'}') {
                    return None;
                }
                i += 1;
                if stack.is_empty() {
                    return None; // Complete, and yet not read: not a cut.
                }
                marks.push((i, stack.len()));
            }
            b'"' => {
                let start = i;
                i += 1;
                while i < b.len() && b[i] != b'"' {
                    i += if b[i] == b'\\' { 2 } else { 1 };
                }
                if i >= b.len() {
                    string_from = Some(start);
                    break;
                }
                i += 1;
                let after = b[i..].iter().position(|c| !c.is_ascii_whitespace()).map(|n| b[i + n]);
                if after != Some(b':') {
                    marks.push((i, stack.len()));
                }
            }
            b',' | b':' | b' ' | b'\n' | b'\r' | b'\t' => i += 1,
            _ => {
                let start = i;
                while i < b.len()
                    && !matches!(
                        b[i],
                        b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t' | b':' | b'"' | b'{' | b'['
                    )
                {
                    i += 1;
                }
                // A number at the very end may have lost digits.
                if i < b.len() && i > start {
                    marks.push((i, stack.len()));
                }
            }
        }
    }
    let close = |kept: &str, depth: usize| {
        let mut s = kept.trim_end().trim_end_matches(',').to_owned();
        for object in stack_at(kept, depth).iter().rev() {
            s.push(if *object { '}' } else { ']' });
        }
        parse(&s)
    };
    if let Some(start) = string_from {
        // The open string is a value if a colon or an array precedes it.
        let before = text[..start].trim_end();
        let is_value = before.ends_with(':') || (stack.last() == Some(&false));
        if is_value {
            let mut end = text.len();
            let mut s = &text[start..end];
            // An escape that was cut in two goes.
            let tail = s.bytes().rev().take_while(|c| *c == b'\\').count();
            if tail % 2 == 1 {
                end -= 1;
                s = &text[start..end];
            }
            if let Some(u) = s.rfind("\\u")
                && s.len() - u < 6
            {
                end = start + u;
            }
            let kept = format!("{}\"", &text[..end]);
            if let Some(v) = close(&kept, stack.len()) {
                return Some(v);
            }
        }
    }
    // Of a text that was cut off, one of the last places will do.
    for _ in 0..8 {
        let (end, depth) = marks.pop()?;
        if let Some(v) = close(&text[..end], depth) {
            return Some(v);
        }
    }
    // Of a text that is wrong in its midst, nothing past that place can be read, and there may be a million places.
    let (mut readable, mut low, mut high) = (None, 0, marks.len());
    while low < high {
        let middle = usize::midpoint(low, high);
        let (end, depth) = marks[middle];
        match close(&text[..end], depth) {
            Some(v) => (readable, low) = (Some(v), middle + 1),
            None => high = middle,
        }
    }
    readable
}

fn stack_at(text: &str, depth: usize) -> Vec<bool> {
    let b = text.as_bytes();
    let mut stack = Vec::new();
    let mut i = 0;
    while i < b.len() {
        match b[i] {
            b'{' => stack.push(true),
            b'[' => stack.push(false),
            b'}' | b']' => {
                stack.pop();
            }
            b'"' => {
                i += 1;
                while i < b.len() && b[i] != b'"' {
                    i += if b[i] == b'\\' { 2 } else { 1 };
                }
            }
            _ => {}
        }
        i += 1;
    }
    stack.truncate(depth);
    stack
}

/// JSON objects inside prose: a whole string, after a heading line, or in a code fence
/// (METRICS.md section 1, where contract fields are looked for).
pub fn embedded_object(text: &str) -> Option<(Map<String, Value>, Form)> {
    let t = text.trim();
    if t.starts_with('{') {
        return as_object(t);
    }
    if let Some(at) = t.find("```") {
        let body = &t[at + 3..];
        let body = body.split_once('\n').map_or(body, |(_, rest)| rest);
        let body = body.split("```").next().unwrap_or(body).trim();
        if body.starts_with('{')
            && let Some(found) = as_object(body)
        {
            return Some(found);
        }
    }
    // A line that starts an object; what follows the object is left alone.
    let mut at = 0;
    for line in t.split_inclusive('\n') {
        if line.trim_start().starts_with('{') {
            let rest = &t[at..];
            if let Some(found) = as_object(rest.trim()) {
                return Some(found);
            }
            let mut docs = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
            if let Some(Ok(Value::Object(m))) = docs.next() {
                return Some((m, Form::Json));
            }
        }
        at += line.len();
    }
    None
}

fn as_object(t: &str) -> Option<(Map<String, Value>, Form)> {
    match parse_loose(t) {
        (Value::Object(m), f) => Some((m, f)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn integers_beyond_64_bits_keep_their_digits() {
        let v = parse(r#"{"id": 123456789012345678901234567890, "t": "123456789012345678901234567890"}"#);
        let v = v.as_ref().and_then(Value::as_object);
        assert_eq!(
            v.and_then(|m| m["id"].as_str()).and_then(big_integer_digits),
            Some("123456789012345678901234567890")
        );
        assert_eq!(v.and_then(|m| m["t"].as_str()), Some("123456789012345678901234567890"));
    }

    #[test]
    fn every_cut_of_a_document_reads_as_a_part_of_it() {
        let doc = r#"{"a": [1, {"b": "x\"\u00e9y"}, true], "c": {"d": null}, "e": "tail"}"#;
        for n in 1..doc.len() {
            if !doc.is_char_boundary(n) {
                continue;
            }
            let v = salvage(&doc[..n]);
            assert!(v.as_ref().is_some_and(Value::is_object), "cut at {n}: {v:?}");
        }
        assert_eq!(salvage(r#"{"a": [1, {"b": "xyz"#), Some(json!({"a": [1, {"b": "xyz"}]})));
        assert_eq!(salvage(r#"{"a": 12, "b"#), Some(json!({"a": 12})));
        assert_eq!(salvage(r#"{"a": 12"#), Some(json!({})));
    }

    #[test]
    fn a_long_document_that_is_wrong_in_its_midst_is_read_up_to_there_and_soon() {
        let (before, after) = (r#"{"role":"user"},"#.repeat(7000), r#"{"role":"user"},"#.repeat(20_000));
        let started = std::time::Instant::now();
        let v = salvage(&format!(r#"[{before}{{"role":@user"}},{after}]"#));
        assert!(started.elapsed() < std::time::Duration::from_secs(10), "{:?}", started.elapsed());
        // The object where it is wrong was opened.
        assert_eq!(v.as_ref().and_then(Value::as_array).map(Vec::len), Some(7001));
    }

    #[test]
    fn loose_values_are_read_in_every_form() {
        assert_eq!(parse_loose(r#"{"a":1}"#), (json!({"a": 1}), Form::Json));
        assert_eq!(parse_loose(r#""{\"a\":1}""#), (json!({"a": 1}), Form::Json));
        assert_eq!(parse_loose("{'a': 1}"), (json!({"a": 1}), Form::Python));
        assert_eq!(parse_loose(r#"{"a":1,"b":"x"#), (json!({"a": 1, "b": "x"}), Form::Truncated));
        assert_eq!(parse_loose("pay_7F3M"), (json!("pay_7F3M"), Form::Text));
        assert_eq!(parse_loose("12"), (json!(12), Form::Json));
    }

    #[test]
    fn an_object_is_found_after_a_heading_and_in_a_fence() {
        let want = json!({"intent": "x", "status": "y"});
        for t in [
            "{\"intent\": \"x\", \"status\": \"y\"}",
            "Contract:\n{\"intent\": \"x\", \"status\": \"y\"}",
            "Do this.\n```json\n{\"intent\": \"x\", \"status\": \"y\"}\n```\nThanks.",
        ] {
            let got = embedded_object(t).map(|(m, _)| Value::Object(m));
            assert_eq!(got.as_ref(), Some(&want), "{t}");
        }
        assert_eq!(embedded_object("nothing here {braces}").map(|x| x.1), None);
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_it_panic(s in "\\PC*") {
            let _ = parse_loose(&s);
            let _ = salvage(&s);
            let _ = embedded_object(&s);
        }

        #[test]
        fn no_json_like_text_makes_it_panic(s in "[\\[\\]{}\"\\\\a-z0-9:,. é\\n`u-]{0,80}") {
            let _ = parse_loose(&s);
            let _ = salvage(&s);
            let _ = embedded_object(&s);
        }
    }
}
