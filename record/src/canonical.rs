//! The canonical form of values and its digests (METRICS.md section 2, canonical arguments).
//!
//! RFC 8785 (JCS): key order, escapes and `1` against `1.0` do not matter. One deviation: integers
//! beyond 2^53 keep their digits, since two ids that differ in the last digit are two ids.

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::json;

const EXACT: u64 = 1 << 53;

/// RFC 8785 text of a value.
pub fn to_string(v: &Value) -> String {
    let mut out = String::new();
    write(v, &mut out);
    out
}

fn write(v: &Value, out: &mut String) {
    if !has_big_integer(v) {
        match serde_json_canonicalizer::to_string(v) {
            Ok(s) => out.push_str(&s),
            // A `Value` holds no NaN and no non-string key, the only things JCS refuses.
            Err(_) => out.push_str("null"),
        }
        return;
    }
    match v {
        Value::Array(items) => {
            out.push('[');
            for (i, x) in items.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write(x, out);
            }
            out.push(']');
        }
        Value::Object(m) => {
            let mut keys: Vec<(Vec<u16>, &String)> =
                m.keys().map(|k| (k.encode_utf16().collect(), k)).collect();
            keys.sort();
            out.push('{');
            for (i, (_, k)) in keys.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write(&Value::String((*k).clone()), out);
                out.push(':');
                write(&m[k.as_str()], out);
            }
            out.push('}');
        }
        Value::String(s) => out.push_str(json::big_integer_digits(s).unwrap_or("null")),
        other => out.push_str(&other.to_string()),
    }
}

fn has_big_integer(v: &Value) -> bool {
    match v {
        Value::Number(n) => {
            n.as_u64().is_some_and(|n| n > EXACT) || n.as_i64().is_some_and(|n| n.unsigned_abs() > EXACT)
        }
        Value::String(s) => json::big_integer_digits(s).is_some(),
        Value::Array(a) => a.iter().any(has_big_integer),
        Value::Object(m) => m.values().any(has_big_integer),
        _ => false,
    }
}

/// SHA-256 as 64 lower-case hex digits.
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// SHA-256 over the canonical text of a value, as hex.
pub fn digest(v: &Value) -> String {
    sha256_hex(to_string(v).as_bytes())
}

/// Lower-case hex.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut s = String::with_capacity(bytes.len() * 2);
    for b in bytes {
        s.push(DIGITS[usize::from(b >> 4)] as char);
        s.push(DIGITS[usize::from(b & 15)] as char);
    }
    s
}

/// Tool arguments as the canonical form wants them: out of the wrappers that instrumentations put
/// around them (`{"inputs": …}`, `{"kwargs": …}`, `{"input_str": …}`). Strings inside stay strings.
pub fn unwrap_arguments(v: Value) -> Value {
    let Value::Object(m) = v else { return v };
    let wrapper = |k: &str| {
        matches!(k, "inputs" | "kwargs" | "input_str" | "tags" | "metadata" | "args" | "config" | "name")
    };
    // Only an object made of nothing but wrapper keys is a wrapper: a tool may have an argument of that name.
    if !m.is_empty() && m.keys().all(|k| wrapper(k)) {
        if let Some(inner @ Value::Object(_)) = m.get("inputs") {
            return inner.clone();
        }
        if let Some(Value::String(s)) = m.get("input_str")
            && let (inner @ Value::Object(_), _) = json::parse_loose(s)
        {
            return inner;
        }
        if m.contains_key("inputs") || m.contains_key("input_str") {
            if let Some(x) = m.get("inputs") {
                return x.clone();
            }
        } else if m.len() <= 2
            && let Some(inner @ Value::Object(k)) = m.get("kwargs")
            && m.get("args").is_none_or(is_empty)
            && !k.is_empty()
        {
            return inner.clone();
        }
    }
    Value::Object(m)
}

fn is_empty(v: &Value) -> bool {
    match v {
        Value::Null => true,
        Value::Array(a) => a.is_empty(),
        Value::Object(m) => m.is_empty(),
        Value::String(s) => s.is_empty(),
        _ => false,
    }
}

/// The value of an object's only member.
pub fn sole_value(m: &Map<String, Value>) -> Option<&Value> {
    (m.len() == 1).then(|| m.values().next()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn key_order_number_form_and_escapes_do_not_matter() {
        let a = json::parse(r#"{"b": 1.0, "a": "\u00e9", "c": [1e2]}"#);
        let b = json::parse(r#"{"a":"é","c":[100],"b":1}"#);
        assert_eq!(a.as_ref().map(digest), b.as_ref().map(digest));
        assert_eq!(a.as_ref().map(to_string).as_deref(), Some(r#"{"a":"é","b":1,"c":[100]}"#));
    }

    #[test]
    fn keys_are_sorted_by_utf_16_units() {
        // U+FB33 sorts after U+1F600 in UTF-16 and before it by code point.
        assert_eq!(to_string(&json!({"\u{fb33}": 1, "\u{1f600}": 2})), "{\"\u{1f600}\":2,\"\u{fb33}\":1}");
        let with_big = json!({"\u{fb33}": 9007199254740993u64, "\u{1f600}": 2});
        assert_eq!(to_string(&with_big), "{\"\u{1f600}\":2,\"\u{fb33}\":9007199254740993}");
    }

    #[test]
    fn integers_beyond_2_to_53_keep_their_digits() {
        assert_eq!(to_string(&json!({"n": 9007199254740993i64})), r#"{"n":9007199254740993}"#);
        let v = json::parse(r#"{"n": [123456789012345678901234567890, 1.5]}"#);
        assert_eq!(
            v.as_ref().map(to_string).as_deref(),
            Some(r#"{"n":[123456789012345678901234567890,1.5]}"#)
        );
    }

    #[test]
    fn wrappers_are_taken_off_and_arguments_of_the_same_name_are_not() {
        let wrapped = json!({"input_str": "{'q': 'x'}", "tags": [], "metadata": {}, "inputs": {"q": "x"}, "kwargs": {"tool_call_id": "c"}});
        assert_eq!(unwrap_arguments(wrapped), json!({"q": "x"}));
        assert_eq!(unwrap_arguments(json!({"input_str": "{'q': 'x'}", "tags": []})), json!({"q": "x"}));
        assert_eq!(unwrap_arguments(json!({"kwargs": {"q": "x"}})), json!({"q": "x"}));
        assert_eq!(
            unwrap_arguments(json!({"inputs": {"q": 1}, "other": 2})),
            json!({"inputs": {"q": 1}, "other": 2})
        );
        assert_eq!(unwrap_arguments(json!({"name": "x"})), json!({"name": "x"}));
    }
}
