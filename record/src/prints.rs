//! Fingerprints of text: what leak detection, constraint retention and goal comparison work on, so
//! that no word needs to be kept.
//!
//! A text becomes two sets of keyed hashes (SipHash-2-4 under the store's key):
//!
//! * **shingles** (`u32`): every run of three words, and every clause of one or two words;
//! * **identifiers** (`u64`): tokens that look like ids, paths, codes, amounts, addresses. The lowest bit
//!   tells strong ones (with digits or technical signs), which alone count for leaks, from weak
//!   ones such as `read-only`, which serve to find a constraint's id.
//!
//! Sets keep neither order nor frequency. Upper and lower case, punctuation, quoting and JSON syntax
//! make no difference.

use std::hash::Hasher;

use serde_json::Value;
use siphasher::sip::SipHasher24;

use crate::json;

/// Words of one text that are looked at; what stands beyond is not fingerprinted.
pub const MAX_WORDS: usize = 100_000;

/// The secret under which texts are hashed. Two stores with different keys cannot be compared.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PrintKey(pub [u8; 16]);

impl std::fmt::Debug for PrintKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PrintKey(..)")
    }
}

impl Default for PrintKey {
    /// The key of evaluations that store nothing.
    fn default() -> Self {
        Self(*b"baton/ephemeral/")
    }
}

impl PrintKey {
    /// The key of 32 hex digits, as it stands in a store.
    pub fn from_hex(text: &str) -> Option<Self> {
        let t = text.trim();
        if t.len() != 32 || !t.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        let mut key = [0u8; 16];
        for (i, b) in key.iter_mut().enumerate() {
            *b = u8::from_str_radix(&t[2 * i..2 * i + 2], 16).ok()?;
        }
        Some(Self(key))
    }

    fn hash(&self, domain: u8, parts: &[&str]) -> u64 {
        let mut h = SipHasher24::new_with_key(&self.0);
        h.write_u8(domain);
        for p in parts {
            h.write(p.as_bytes());
            h.write_u8(0xff);
        }
        h.finish()
    }

    /// The hash by which two items are the same (text after folding white space).
    pub fn text(&self, text: &str) -> i64 {
        let mut h = SipHasher24::new_with_key(&self.0);
        h.write_u8(1);
        for w in text.split_whitespace() {
            h.write(w.as_bytes());
            h.write_u8(b' ');
        }
        h.finish().cast_signed()
    }

    /// The hash of a structured value in canonical form.
    pub fn value(&self, v: &Value) -> i64 {
        self.hash(2, &[&crate::canonical::to_string(v)]).cast_signed()
    }

    /// The hash of a tool call: the tool and its canonical arguments.
    pub fn call(&self, tool: &str, args: &str) -> i64 {
        self.hash(3, &[tool, args]).cast_signed()
    }

    /// The hash of a goal or a step: words only, in order.
    pub fn phrase(&self, text: &str) -> i64 {
        let mut words = Vec::new();
        tokens(text, &mut |t| {
            if let Token::Word(w) = t {
                words.push(w);
            }
        });
        let refs: Vec<&str> = words.iter().map(String::as_str).collect();
        self.hash(4, &refs).cast_signed()
    }

    /// The hash of one identifier, as [`Prints::idents`] holds it, without its strength bit.
    pub fn ident(&self, id: &str) -> u64 {
        self.hash(5, &[&id.trim().to_lowercase()]) | 1
    }

    /// Fingerprints of a text. JSON and Python literals are read first, so that escapes do not matter.
    pub fn prints(&self, text: &str) -> Prints {
        let mut b = PrintBuilder::new(*self);
        b.add_text(text, 0);
        b.finish()
    }

    /// Fingerprints of a structured value: its keys and leaves.
    pub fn value_prints(&self, v: &Value) -> Prints {
        let mut b = PrintBuilder::new(*self);
        b.add_value(v, 0);
        b.finish()
    }
}

/// The two sets; both sorted and free of repeats.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prints {
    /// Hashes of three-word runs and of short clauses.
    pub shingles: Vec<u32>,
    /// Hashes of identifiers; bit 0 set: strong.
    pub idents: Vec<u64>,
}

impl Prints {
    /// True where there is nothing to compare.
    pub fn is_empty(&self) -> bool {
        self.shingles.is_empty() && self.idents.is_empty()
    }

    /// True where the set of a text holds the given phrase: all its shingles, or its identifier.
    pub fn holds(view_shingles: &[u32], phrase: &[u32]) -> bool {
        !phrase.is_empty() && phrase.iter().all(|s| view_shingles.binary_search(s).is_ok())
    }
}

/// Whether an identifier hash is a strong one.
pub fn is_strong(ident: u64) -> bool {
    ident & 1 == 1
}

struct PrintBuilder {
    key: PrintKey,
    shingles: Vec<u32>,
    idents: Vec<u64>,
    last: [String; 2],
    clause: Vec<String>,
    words: usize,
}

impl PrintBuilder {
    fn new(key: PrintKey) -> Self {
        Self {
            key,
            shingles: Vec::new(),
            idents: Vec::new(),
            last: [String::new(), String::new()],
            clause: Vec::new(),
            words: 0,
        }
    }

    fn add_value(&mut self, v: &Value, depth: usize) {
        match v {
            Value::Null => {}
            Value::Bool(b) => self.add_plain(if *b { "true" } else { "false" }),
            Value::Number(n) => self.add_plain(&n.to_string()),
            Value::String(s) => self.add_text(s, depth + 1),
            Value::Array(a) => a.iter().for_each(|x| self.add_value(x, depth)),
            Value::Object(m) => {
                for (k, x) in m {
                    self.add_plain(k);
                    self.add_value(x, depth);
                }
            }
        }
        self.break_clause();
    }

    fn add_text(&mut self, text: &str, depth: usize) {
        let t = text.trim_start();
        if depth < 5 && (t.starts_with('{') || t.starts_with('[')) {
            let (v, form) = json::parse_loose(text);
            if form != json::Form::Text {
                self.add_value(&v, depth + 1);
                return;
            }
        }
        self.add_plain(text);
    }

    fn add_plain(&mut self, text: &str) {
        tokens(text, &mut |t| match t {
            Token::Word(w) => self.word(w),
            Token::Ident(id, strong) => {
                let h = self.key.hash(5, &[&id]);
                self.idents.push(if strong { h | 1 } else { h & !1 });
            }
            Token::Break => self.break_clause(),
        });
        self.break_clause();
    }

    fn word(&mut self, w: String) {
        if self.words >= MAX_WORDS {
            return;
        }
        self.words += 1;
        if self.words >= 3 {
            let h = self.key.hash(6, &[&self.last[0], &self.last[1], &w]);
            self.shingles.push(h as u32);
        }
        self.last.swap(0, 1);
        self.last[1].clone_from(&w);
        if self.clause.len() < 3 {
            self.clause.push(w);
        }
    }

    fn break_clause(&mut self) {
        if (1..=2).contains(&self.clause.len()) {
            let refs: Vec<&str> = self.clause.iter().map(String::as_str).collect();
            let h = self.key.hash(7, &refs);
            self.shingles.push(h as u32);
        }
        self.clause.clear();
    }

    fn finish(mut self) -> Prints {
        self.break_clause();
        self.shingles.sort_unstable();
        self.shingles.dedup();
        self.idents.sort_unstable();
        self.idents.dedup();
        Prints { shingles: self.shingles, idents: self.idents }
    }
}

/// What [`PrintKey::prints`] of a longer text must hold where it holds this phrase.
pub fn phrase_shingles(key: PrintKey, phrase: &str) -> Vec<u32> {
    let mut words = Vec::new();
    tokens(phrase, &mut |t| {
        if let Token::Word(w) = t {
            words.push(w);
        }
    });
    let mut out: Vec<u32> = if words.len() >= 3 {
        words.windows(3).map(|w| key.hash(6, &[&w[0], &w[1], &w[2]]) as u32).collect()
    } else if words.is_empty() {
        Vec::new()
    } else {
        let refs: Vec<&str> = words.iter().map(String::as_str).collect();
        vec![key.hash(7, &refs) as u32]
    };
    out.sort_unstable();
    out.dedup();
    out
}

/// The strong identifiers of a text, in lower case, for showing.
pub fn identifiers(text: &str) -> Vec<String> {
    let mut out = Vec::new();
    tokens(text, &mut |t| {
        if let Token::Ident(id, true) = t
            && !out.contains(&id)
        {
            out.push(id);
        }
    });
    out
}

enum Token {
    Word(String),
    Ident(String, bool),
    Break,
}

/// Cuts a text into words, identifiers and clause breaks.
fn tokens(text: &str, f: &mut dyn FnMut(Token)) {
    let hard = |c: char| {
        matches!(
            c,
            '"' | '\''
                | '`'
                | '{'
                | '}'
                | '['
                | ']'
                | '('
                | ')'
                | '<'
                | '>'
                | ','
                | ';'
                | '!'
                | '?'
                | '='
                | '|'
                | '*'
                | '\n'
                | '\\'
                | '\u{2018}'
                | '\u{2019}'
                | '\u{201c}'
                | '\u{201d}'
                | '\u{2022}'
                | '\u{2013}'
                | '\u{2014}'
        )
    };
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|c: char| c.is_whitespace() || hard(c)).unwrap_or(rest.len());
        token(&rest[..end], f);
        rest = &rest[end..];
        let Some(c) = rest.chars().next() else { break };
        rest = &rest[c.len_utf8()..];
        if hard(c) {
            f(Token::Break);
        }
        // An escape inside JSON text that was not read as JSON.
        if c == '\\' && rest.starts_with(['n', 't', 'r']) {
            rest = &rest[1..];
        }
    }
}

fn token(raw: &str, f: &mut dyn FnMut(Token)) {
    let edge = |c: char| !c.is_alphanumeric();
    let t = raw.trim_matches(edge);
    if t.is_empty() {
        if raw.contains([':', '.', '-']) {
            f(Token::Break);
        }
        return;
    }
    if let Some(strong) = ident_strength(t) {
        f(Token::Ident(t.to_lowercase(), strong));
    }
    if t.contains(':') {
        for part in t.split(':').map(|p| p.trim_matches(edge)).filter(|p| !p.is_empty()) {
            if let Some(strong) = ident_strength(part) {
                f(Token::Ident(part.to_lowercase(), strong));
            }
            f(Token::Word(part.to_lowercase()));
        }
    } else {
        f(Token::Word(t.to_lowercase()));
    }
    if raw.ends_with([':', '.']) {
        f(Token::Break);
    }
}

/// `None`: an ordinary word. `Some(true)`: strong (it hardly stands in two texts by chance).
fn ident_strength(t: &str) -> Option<bool> {
    let n = t.chars().count();
    if !(4..=200).contains(&n) {
        return None;
    }
    let digits = t.chars().filter(char::is_ascii_digit).count();
    let letters = t.chars().filter(|c| c.is_alphabetic()).count();
    let technical = t.chars().any(|c| matches!(c, '_' | '/' | '@' | ':' | '#' | '+'))
        || (n >= 6 && t.contains('.') && !t.contains(".."));
    let hyphens = t.matches('-').count();
    if digits >= 5 || (digits > 0 && letters > 0) || (technical && n >= 5 && letters > 2) || hyphens >= 2 {
        return Some(true);
    }
    if hyphens == 1 || (digits > 0 && letters == 0 && n >= 4) {
        return Some(false);
    }
    // camelCase
    let mut lower = false;
    for c in t.chars() {
        if lower && c.is_uppercase() && n >= 6 {
            return Some(true);
        }
        lower = c.is_lowercase();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> PrintKey {
        PrintKey::default()
    }

    fn holds(view: &str, phrase: &str) -> bool {
        Prints::holds(&key().prints(view).shingles, &phrase_shingles(key(), phrase))
    }

    #[test]
    fn a_sentence_is_found_whatever_surrounds_it() {
        let c = "Refund only within 30 days of capture";
        assert!(holds("Rules. refund ONLY within 30 days of capture, then stop.", c));
        assert!(holds(
            r#"{"hard_constraints": [{"id": "x", "text": "Refund only within 30 days of capture"}]}"#,
            c
        ));
        assert!(holds("Contract:\n{\"text\": \"Refund only within 30 days\\nof capture\"}", c));
        assert!(holds("{'text': 'Refund only within 30 days of capture'}", c));
        assert!(!holds("Refund only within 60 days of capture", c));
    }

    #[test]
    fn a_short_constraint_is_found_as_a_clause() {
        assert!(holds(r#"{"hard_constraints": ["read-only", "no customer data"]}"#, "read-only"));
        assert!(holds("Rules: read-only; be brief.", "Read-only"));
        assert!(holds("- be brief\n- ask first", "ask first"));
        assert!(!holds("Please ask first and then act", "ask first"));
    }

    #[test]
    fn identifiers_are_strong_or_weak() {
        for s in [
            "ORD-48213",
            "repo:status",
            "session.write",
            "pay_7F3M",
            "r.okafor@x.org",
            "/tmp/a.log",
            "2026-02-27",
            "getUser2",
            "original-payment-method",
        ] {
            assert_eq!(ident_strength(s), Some(true), "{s}");
        }
        for s in ["read-only", "e-mail"] {
            assert_eq!(ident_strength(s), Some(false), "{s}");
        }
        for s in ["refund", "the", "30", "Blocked"] {
            assert_eq!(ident_strength(s), None, "{s}");
        }
    }

    #[test]
    fn another_key_gives_other_hashes() {
        assert_ne!(key().prints("one two three"), PrintKey([7; 16]).prints("one two three"));
        assert_eq!(key().text("a  b\n c"), key().text("a b c"));
    }

    proptest::proptest! {
        #[test]
        fn a_phrase_of_words_is_found_in_every_text_that_holds_it(a in "[a-z ]{0,20}", p in "[a-z]{1,6}( [a-z]{1,6}){2,6}", b in "[a-z ]{0,20}") {
            let view = format!("{a} {p} {b}");
            proptest::prop_assert!(holds(&view, &p));
        }

        #[test]
        fn no_text_makes_it_panic(s in "\\PC*") {
            let _ = key().prints(&s);
        }
    }
}
