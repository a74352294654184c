//! Python literals as text.
//!
//! Several instrumentations send `repr(x)` where JSON was meant: dicts as tool results,
//! calls such as `Send(node='b', arg={...})` or `ResponseFunctionToolCall(arguments='{...}')`.
//! This reads them into JSON values. A call becomes an object whose keyword arguments are its
//! members and whose class name stands under [`CLASS_KEY`].

use serde_json::{Map, Number, Value};

/// Where a call's class name stands in the object that [`parse`] makes of it.
pub const CLASS_KEY: &str = "__class__";

const MAX_DEPTH: usize = 96;

/// Reads one whole Python literal. `None` where the text is none, has anything after it,
/// or nests deeper than 96 levels.
pub fn parse(text: &str) -> Option<Value> {
    let mut p = Parser { s: text.as_bytes(), text, i: 0 };
    p.space();
    let v = p.value(0)?;
    p.space();
    (p.i == p.s.len()).then_some(v)
}

/// Cheap test before [`parse`]: the text starts like a dict, list, tuple or call.
pub fn looks_like(text: &str) -> bool {
    let t = text.trim_start();
    match t.as_bytes().first() {
        Some(b'{' | b'[' | b'(') => true,
        Some(c) if c.is_ascii_alphabetic() || *c == b'_' => {
            let end =
                t.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '.')).unwrap_or(t.len());
            t[end..].starts_with('(') && t.trim_end().ends_with(')')
        }
        _ => false,
    }
}

struct Parser<'a> {
    s: &'a [u8],
    text: &'a str,
    i: usize,
}

impl Parser<'_> {
    fn peek(&self) -> Option<u8> {
        self.s.get(self.i).copied()
    }

    fn space(&mut self) {
        while self.peek().is_some_and(|c| c.is_ascii_whitespace()) {
            self.i += 1;
        }
    }

    fn eat(&mut self, c: u8) -> bool {
        let hit = self.peek() == Some(c);
        if hit {
            self.i += 1;
        }
        hit
    }

    fn value(&mut self, depth: usize) -> Option<Value> {
        if depth > MAX_DEPTH {
            return None;
        }
        match self.peek()? {
            b'{' => self.braces(depth),
            b'[' => self.sequence(b']', depth).map(Value::Array),
            b'(' => {
                let items = self.sequence(b')', depth)?;
                Some(Value::Array(items))
            }
            b'\'' | b'"' => self.strings(),
            b'-' | b'+' | b'0'..=b'9' | b'.' => self.number(),
            c if c.is_ascii_alphabetic() || c == b'_' => self.word(depth),
            b'<' => self.object_repr(),
            _ => None,
        }
    }

    /// A dict or a set.
    fn braces(&mut self, depth: usize) -> Option<Value> {
        self.i += 1;
        self.space();
        if self.eat(b'}') {
            return Some(Value::Object(Map::new()));
        }
        let first = self.value(depth + 1)?;
        self.space();
        if !self.eat(b':') {
            let mut set = vec![first];
            loop {
                self.space();
                if self.eat(b'}') {
                    return Some(Value::Array(set));
                }
                if !self.eat(b',') {
                    return None;
                }
                self.space();
                if self.eat(b'}') {
                    return Some(Value::Array(set));
                }
                set.push(self.value(depth + 1)?);
            }
        }
        let mut map = Map::new();
        self.space();
        let v = self.value(depth + 1)?;
        map.insert(key_text(first), v);
        loop {
            self.space();
            if self.eat(b'}') {
                return Some(Value::Object(map));
            }
            if !self.eat(b',') {
                return None;
            }
            self.space();
            if self.eat(b'}') {
                return Some(Value::Object(map));
            }
            let k = self.value(depth + 1)?;
            self.space();
            if !self.eat(b':') {
                return None;
            }
            self.space();
            let v = self.value(depth + 1)?;
            map.insert(key_text(k), v);
        }
    }

    fn sequence(&mut self, close: u8, depth: usize) -> Option<Vec<Value>> {
        self.i += 1;
        let mut items = Vec::new();
        loop {
            self.space();
            if self.eat(close) {
                return Some(items);
            }
            items.push(self.value(depth + 1)?);
            self.space();
            if self.eat(close) {
                return Some(items);
            }
            if !self.eat(b',') {
                return None;
            }
        }
    }

    /// One string, or several that Python would join.
    fn strings(&mut self) -> Option<Value> {
        let mut out = self.string(false)?;
        loop {
            let mark = self.i;
            self.space();
            if matches!(self.peek(), Some(b'\'' | b'"')) {
                out.push_str(&self.string(false)?);
            } else {
                self.i = mark;
                return Some(Value::String(out));
            }
        }
    }

    fn string(&mut self, raw: bool) -> Option<String> {
        let quote = self.peek()?;
        self.i += 1;
        let mut out = String::new();
        let mut start = self.i;
        loop {
            let c = self.peek()?;
            if c == quote {
                out.push_str(&self.text[start..self.i]);
                self.i += 1;
                return Some(out);
            }
            if c != b'\\' || raw {
                self.i += 1;
                continue;
            }
            out.push_str(&self.text[start..self.i]);
            self.i += 1;
            let e = self.peek()?;
            self.i += 1;
            match e {
                b'n' => out.push('\n'),
                b't' => out.push('\t'),
                b'r' => out.push('\r'),
                b'\\' => out.push('\\'),
                b'\'' => out.push('\''),
                b'"' => out.push('"'),
                b'a' => out.push('\u{7}'),
                b'b' => out.push('\u{8}'),
                b'f' => out.push('\u{c}'),
                b'v' => out.push('\u{b}'),
                b'0' => out.push('\0'),
                b'\n' => {}
                b'x' => out.push(self.hex(2)?),
                b'u' => out.push(self.hex(4)?),
                b'U' => out.push(self.hex(8)?),
                _ => {
                    // Python keeps an unknown escape as it stands. The byte may start a longer character.
                    out.push('\\');
                    self.i -= 1;
                    let c = self.text[self.i..].chars().next()?;
                    out.push(c);
                    self.i += c.len_utf8();
                }
            }
            start = self.i;
        }
    }

    fn hex(&mut self, digits: usize) -> Option<char> {
        let h = self.text.get(self.i..self.i + digits)?;
        let n = u32::from_str_radix(h, 16).ok()?;
        self.i += digits;
        Some(char::from_u32(n).unwrap_or('\u{fffd}'))
    }

    fn number(&mut self) -> Option<Value> {
        let start = self.i;
        if matches!(self.peek(), Some(b'-' | b'+')) {
            self.i += 1;
        }
        while self.peek().is_some_and(|c| {
            c.is_ascii_alphanumeric()
                || matches!(c, b'.' | b'_')
                || (matches!(c, b'+' | b'-') && matches!(self.s[self.i - 1], b'e' | b'E'))
        }) {
            self.i += 1;
        }
        let t = self.text[start..self.i].replace('_', "");
        let t = t.strip_prefix('+').unwrap_or(&t);
        if let Ok(n) = t.parse::<i64>() {
            return Some(Value::Number(n.into()));
        }
        if let Ok(n) = t.parse::<u64>() {
            return Some(Value::Number(n.into()));
        }
        if t.bytes().all(|c| c.is_ascii_digit() || c == b'-') {
            return Some(crate::json::big_integer(t));
        }
        match t {
            "-inf" | "-nan" => Some(Value::Null),
            _ => Number::from_f64(t.parse().ok()?).map(Value::Number),
        }
    }

    /// A constant, a prefixed string, or a call.
    fn word(&mut self, depth: usize) -> Option<Value> {
        let start = self.i;
        while self.peek().is_some_and(|c| c.is_ascii_alphanumeric() || c == b'_' || c == b'.') {
            self.i += 1;
        }
        let w = &self.text[start..self.i];
        match w {
            "True" | "true" => return Some(Value::Bool(true)),
            "False" | "false" => return Some(Value::Bool(false)),
            "None" | "null" | "nan" | "NaN" | "inf" | "Ellipsis" => return Some(Value::Null),
            "b" | "u" | "r" | "f" | "br" | "rb" | "B" | "U" | "R"
                if matches!(self.peek(), Some(b'\'' | b'"')) =>
            {
                return self.string(w.eq_ignore_ascii_case("r") || w.len() == 2).map(Value::String);
            }
            _ => {}
        }
        if self.peek() == Some(b'(') {
            return self.call(w, depth);
        }
        Some(Value::String(w.to_owned()))
    }

    fn call(&mut self, class: &str, depth: usize) -> Option<Value> {
        self.i += 1;
        let mut map = Map::new();
        map.insert(CLASS_KEY.to_owned(), Value::String(class.to_owned()));
        let mut positional = 0usize;
        loop {
            self.space();
            if self.eat(b')') {
                return Some(Value::Object(map));
            }
            let mark = self.i;
            while self.peek().is_some_and(|c| c.is_ascii_alphanumeric() || c == b'_') {
                self.i += 1;
            }
            let key = &self.text[mark..self.i];
            let key = if !key.is_empty() && self.peek() == Some(b'=') {
                self.i += 1;
                key.to_owned()
            } else {
                self.i = mark;
                positional += 1;
                format!("arg{}", positional - 1)
            };
            self.space();
            let v = self.value(depth + 1)?;
            map.insert(key, v);
            self.space();
            if self.eat(b')') {
                return Some(Value::Object(map));
            }
            if !self.eat(b',') {
                return None;
            }
        }
    }

    /// `<Color.RED: 1>`, `<object at 0x…>`: kept as text.
    fn object_repr(&mut self) -> Option<Value> {
        let start = self.i;
        let mut level = 0usize;
        loop {
            match self.peek()? {
                b'<' => level += 1,
                b'>' => {
                    level -= 1;
                    if level == 0 {
                        self.i += 1;
                        return Some(Value::String(self.text[start..self.i].to_owned()));
                    }
                }
                _ => {}
            }
            self.i += 1;
        }
    }
}

fn key_text(k: Value) -> String {
    match k {
        Value::String(s) => s,
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Null => "None".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_dict_repr_is_the_json_it_stands_for() {
        let v = parse(
            r#"{'order_id': 'ORD-1', "ok": True, 'none': None, 'n': 129.0, 'l': [1, 2], 't': (3,), 'q': "it's"}"#,
        );
        assert_eq!(
            v,
            Some(
                json!({"order_id": "ORD-1", "ok": true, "none": null, "n": 129.0, "l": [1, 2], "t": [3], "q": "it's"})
            )
        );
    }

    #[test]
    fn a_call_keeps_its_class_and_arguments() {
        let v = parse(
            r#"ResponseFunctionToolCall(arguments='{"reason": "x"}', call_id='call_1', name='transfer_to_b', status=None)"#,
        );
        assert_eq!(
            v,
            Some(
                json!({"__class__": "ResponseFunctionToolCall", "arguments": "{\"reason\": \"x\"}", "call_id": "call_1", "name": "transfer_to_b", "status": null})
            )
        );
    }

    #[test]
    fn escapes_and_joined_strings_are_read_as_python_does() {
        assert_eq!(parse(r"'a\n\u00e9\x41' 'b'"), Some(json!("a\n\u{e9}Ab")));
        assert_eq!(parse(r"{'p': '\d+'}"), Some(json!({"p": "\\d+"})));
    }

    #[test]
    fn text_that_is_no_literal_is_refused() {
        assert_eq!(parse("{'a': 1"), None);
        assert_eq!(parse("'abc"), None);
        assert_eq!(parse("hello world"), None);
        assert_eq!(parse(&"[".repeat(5000)), None);
        assert_eq!(parse("{'a': 1} rest"), None);
        assert_eq!(parse(""), None);
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_it_panic(s in "\\PC*") {
            let _ = parse(&s);
            let _ = looks_like(&s);
        }

        #[test]
        fn no_python_like_text_makes_it_panic(s in "[\\[\\]{}()'\"\\\\a-zA-Z0-9:,=.<> éxuU-]{0,60}") {
            let _ = parse(&s);
        }
    }
}
