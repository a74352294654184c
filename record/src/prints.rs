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

mod tokens;

use tokens::{Token, tokens};

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

    fn sip(&self) -> SipHasher24 {
        SipHasher24::new_with_key(&self.0)
    }

    fn hash(&self, domain: u8, parts: &[&str]) -> u64 {
        let mut h = self.sip();
        h.write_u8(domain);
        for p in parts {
            h.write(p.as_bytes());
            h.write_u8(END);
        }
        h.finish()
    }

    /// The hash by which two items are the same (text after folding white space).
    pub fn text(&self, text: &str) -> i64 {
        // The hash is that of one run of bytes; given piece by piece it takes three times as long.
        let mut folded = Vec::with_capacity(text.len() + 2);
        folded.push(1);
        if !text.is_ascii() && text.chars().any(|c| !c.is_ascii() && c.is_whitespace()) {
            for w in text.split_whitespace() {
                folded.extend_from_slice(w.as_bytes());
                folded.push(b' ');
            }
            return self.sip().hash(&folded).cast_signed();
        }
        // Two passes without a branch per byte, since white space mostly stands alone.
        let space = |b: u8| if matches!(b, b'\t'..=b'\r') { b' ' } else { b };
        folded.extend(text.trim().bytes().map(space));
        if folded.len() > 1 {
            folded.push(b' ');
        }
        let twice =
            folded.iter().zip(&folded[1..]).fold(false, |t, (a, b)| t | ((*a == b' ') & (*b == b' ')));
        if twice {
            folded.dedup_by(|b, a| *a == b' ' && *b == b' ');
        }
        self.sip().hash(&folded).cast_signed()
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
        let words = words(text);
        let refs: Vec<&str> = words.iter().map(String::as_str).collect();
        self.hash(4, &refs).cast_signed()
    }

    /// The hash of one identifier, as [`Prints::idents`] holds it, without its strength bit.
    pub fn ident(&self, id: &str) -> u64 {
        self.hash(5, &[&id.trim().to_lowercase()]) | 1
    }

    /// Fingerprints of a text. JSON and Python literals are read first, so that escapes do not matter.
    pub fn prints(&self, text: &str) -> Prints {
        let mut b = PrintBuilder::new(*self, text.len());
        b.add_text(text, 0);
        b.finish()
    }

    /// [`PrintKey::prints`] of a text that [`json::parse_loose`] has read already.
    pub fn prints_read(&self, text: &str, value: &Value, form: json::Form) -> Prints {
        let mut b = PrintBuilder::new(*self, text.len());
        if is_structured(text) && form != json::Form::Text {
            b.add_value(value, 1);
        } else {
            b.add_plain(text);
        }
        b.finish()
    }

    /// Fingerprints of a structured value: its keys and leaves.
    pub fn value_prints(&self, v: &Value) -> Prints {
        let mut b = PrintBuilder::new(*self, 0);
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

/// A text that may be JSON or a Python literal as a whole.
fn is_structured(text: &str) -> bool {
    text.trim_start().starts_with(['{', '['])
}

/// What ends each word where words are hashed; it stands in no text.
const END: u8 = 0xff;
/// Bytes of words that are held before those no longer needed are let go.
const RUN: usize = 1 << 14;

struct PrintBuilder {
    key: PrintKey,
    sip: SipHasher24,
    shingles: Vec<u32>,
    idents: Vec<u64>,
    /// The last words, each with [`END`] behind it, and one [`END`] in front of all: a run of words is hashed where it stands.
    run: Vec<u8>,
    /// Where the last two words begin in `run`.
    last: [usize; 2],
    /// Where the words of the clause begin in `run`, and how many there are, up to three.
    clause: (usize, usize),
    words: usize,
}

impl PrintBuilder {
    /// For a text of about so many bytes.
    fn new(key: PrintKey, bytes: usize) -> Self {
        let mut run = Vec::with_capacity((bytes + bytes / 4).min(RUN) + 64);
        run.push(END);
        Self {
            key,
            sip: key.sip(),
            // A word has about six bytes.
            shingles: Vec::with_capacity((bytes / 6).min(MAX_WORDS) + 4),
            idents: Vec::new(),
            run,
            last: [1, 1],
            clause: (1, 0),
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
        if depth < 5 && is_structured(text) {
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
                let h = self.key.hash(5, &[id]);
                self.idents.push(if strong { h | 1 } else { h & !1 });
            }
            Token::Break => self.break_clause(),
        });
        self.break_clause();
    }

    fn word(&mut self, w: &str) {
        if self.words >= MAX_WORDS {
            return;
        }
        self.words += 1;
        if self.run.len() > RUN {
            // A clause of three words or more is not hashed, one of less is among the last two.
            let gone = self.last[0] - 1;
            self.run.drain(..gone);
            self.last = self.last.map(|at| at - gone);
            self.clause.0 = self.clause.0.saturating_sub(gone).max(1);
        }
        let at = self.run.len();
        self.run.extend_from_slice(w.as_bytes());
        self.run.push(END);
        if self.words >= 3 {
            let h = self.hash_run(6, self.last[0]);
            self.shingles.push(h);
        }
        self.last = [self.last[1], at];
        if self.clause.1 == 0 {
            self.clause.0 = at;
        }
        self.clause.1 = (self.clause.1 + 1).min(3);
    }

    /// The hash of the words from a place to the end, as [`PrintKey::hash`] gives it.
    fn hash_run(&mut self, domain: u8, from: usize) -> u32 {
        self.run[from - 1] = domain;
        let h = self.sip.hash(&self.run[from - 1..]);
        self.run[from - 1] = END;
        h as u32
    }

    fn break_clause(&mut self) {
        if (1..=2).contains(&self.clause.1) {
            let h = self.hash_run(7, self.clause.0);
            self.shingles.push(h);
        }
        self.clause.1 = 0;
    }

    fn finish(mut self) -> Prints {
        self.break_clause();
        self.shingles.sort_unstable();
        self.shingles.dedup();
        self.idents.sort_unstable();
        self.idents.dedup();
        self.shingles.shrink_to_fit();
        self.idents.shrink_to_fit();
        Prints { shingles: self.shingles, idents: self.idents }
    }
}

/// What [`PrintKey::prints`] of a longer text must hold where it holds this phrase.
pub fn phrase_shingles(key: PrintKey, phrase: &str) -> Vec<u32> {
    let words = words(phrase);
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
            && !out.iter().any(|x| x == id)
        {
            out.push(id.to_owned());
        }
    });
    out
}

/// The words of a text.
fn words(text: &str) -> Vec<String> {
    let mut out = Vec::new();
    tokens(text, &mut |t| {
        if let Token::Word(w) = t {
            out.push(w.to_owned());
        }
    });
    out
}

#[cfg(test)]
mod tests {
    use super::tokens::ident_strength;
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
