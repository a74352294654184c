//! What every dialect uses to turn values into rows: items, payloads, fingerprints, tokens, redaction.

use std::sync::{Arc, OnceLock};

use baton_record::canonical;
use baton_record::config::{Config, ContentMode, Tokenizer};
use baton_record::contract;
use baton_record::json::{self, Form};
use baton_record::names::slug;
use baton_record::prints::{PrintKey, Prints, phrase_shingles};
use baton_record::span::{self, Args, ConstraintRow, Item, ItemKind, PayloadRow, Source, Span, Speaker};
use serde_json::Value;

use crate::memo::Memo;
use crate::said::{Instructions, Said};

mod marks;

use marks::{CREDENTIALS, is_blanked, is_retold};
pub use marks::{is_absent, is_masked};

/// Texts longer than this are not counted in tokens, in bytes.
const MAX_COUNTED: usize = 4 << 20;
/// Bytes of what is remembered of texts, where nothing else is said.
const REMEMBERED: usize = 32 << 20;

/// The settings and helpers of a reading. Clones share what they remember.
#[derive(Clone)]
pub struct Reader {
    config: Arc<Config>,
    key: PrintKey,
    pub(crate) memo: Arc<Memo<Known>>,
}

/// What was made of a text: all that rows hold of it.
#[derive(Clone)]
pub(crate) enum Known {
    /// Of any text.
    Text(Arc<Text>),
    /// Of a tool's result.
    Result(Arc<ResultText>),
    /// Of one message, as JSON.
    Said(Arc<Said>),
    /// Of an instructions attribute.
    Instructions(Arc<Instructions>),
    /// Of a label: what stands in its place where it must not be kept as it is.
    Label(Option<Arc<str>>),
}

/// What is asked about a text, so that what is made of it is told apart.
pub(crate) mod ask {
    pub(crate) const TEXT: u8 = 0;
    pub(crate) const RESULT: u8 = 1;
    pub(crate) const INSTRUCTIONS: u8 = 2;
    pub(crate) const LABEL: u8 = 5;
    /// A message in the input; in the output: the next number.
    pub(crate) const INPUT: u8 = 3;
    pub(crate) const OUTPUT: u8 = 4;
}

/// What every text gives.
pub(crate) struct Text {
    /// Made when it is asked for: most results are known by the hash of their value.
    hash: OnceLock<i64>,
    tokens: Option<i32>,
    prints: Arc<Prints>,
    masked: bool,
    blanked: bool,
    retold: bool,
    asks: bool,
    kept: Option<Arc<str>>,
}

/// What the text of a tool's result gives beside.
pub(crate) struct ResultText {
    text: Arc<Text>,
    hash: i64,
    cut: bool,
    /// It says itself that it is an error.
    failed: bool,
}

impl Reader {
    /// A reader under a configuration and a store's key. It remembers up to 32 MiB of what it made of texts.
    pub fn new(config: Arc<Config>, key: PrintKey) -> Self {
        Self::remembering(config, key, REMEMBERED)
    }

    /// The same with another number of bytes.
    pub fn remembering(config: Arc<Config>, key: PrintKey, bytes: usize) -> Self {
        Self { config, key, memo: Arc::new(Memo::new(bytes)) }
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Tokens of a text; `None` where it is too large to count in passing.
    pub fn tokens(&self, text: &str) -> Option<i32> {
        if text.len() > MAX_COUNTED {
            return None;
        }
        let bpe = match self.config.tokenizer {
            Tokenizer::O200kBase => tiktoken::get_encoding("o200k_base"),
            Tokenizer::Cl100kBase => tiktoken::get_encoding("cl100k_base"),
        };
        bpe.and_then(|b| i32::try_from(b.count(text)).ok())
    }

    /// What a text gives, remembered. `read`: the text as [`json::parse_loose`] reads it, where that was done already.
    fn text(&self, text: &str, read: Option<&(Value, Form)>) -> Arc<Text> {
        let key = self.memo.key(ask::TEXT, text);
        if let Some(Known::Text(found)) = self.memo.get(key) {
            return found;
        }
        let made = Arc::new(Text {
            hash: OnceLock::new(),
            tokens: self.tokens(text),
            prints: Arc::new(match read {
                Some((value, form)) => self.key.prints_read(text, value, *form),
                None => self.key.prints(text),
            }),
            masked: is_masked(text),
            blanked: is_blanked(text),
            retold: is_retold(text),
            asks: memchr::memchr(b'?', text.as_bytes()).is_some(),
            kept: self.keep(text).map(Arc::from),
        });
        self.memo.put(key, Known::Text(made.clone()), made.bytes());
        made
    }

    /// The text as the content mode keeps it.
    pub fn keep(&self, text: &str) -> Option<String> {
        match self.config.content {
            ContentMode::None => None,
            ContentMode::Full => Some(text.to_owned()),
            ContentMode::Redacted => Some(self.redact(text)),
        }
    }

    /// Masks what rows hold in words under every content mode and what nothing is joined by: names of spans, error classes,
    /// reasons, labels, authors, references to artifacts. Names of agents and tools, and ids, stay as they are.
    pub(crate) fn mask_labels(&self, row: &mut Span) {
        if self.config.content == ContentMode::Full {
            return;
        }
        self.mask(&mut row.name);
        row.error.iter_mut().for_each(|t| self.mask(t));
        if let Some(h) = &mut row.handoff {
            h.reason.iter_mut().chain(&mut h.artifacts).for_each(|t| self.mask(t));
        }
        row.payloads.iter_mut().flat_map(|p| &mut p.artifacts).for_each(|t| self.mask(t));
        row.evaluations.iter_mut().filter_map(|e| e.label.as_mut()).for_each(|t| self.mask(t));
        for item in row.input.iter_mut().chain(&mut row.output).flatten() {
            if matches!(item.kind, ItemKind::Text | ItemKind::Instructions) {
                item.name.iter_mut().for_each(|t| self.mask(t));
            }
        }
    }

    fn mask(&self, label: &mut String) {
        let key = self.memo.key(ask::LABEL, label);
        let masked = match self.memo.get(key) {
            Some(Known::Label(masked)) => masked,
            _ => {
                let masked = self.redact(label);
                let masked = (masked != *label).then(|| Arc::from(masked));
                self.memo.put(
                    key,
                    Known::Label(masked.clone()),
                    masked.as_ref().map_or(0, |t: &Arc<str>| t.len()),
                );
                masked
            }
        };
        if let Some(masked) = masked {
            *label = masked.to_string();
        }
    }

    fn redact(&self, text: &str) -> String {
        let mut out = std::borrow::Cow::Borrowed(text);
        for r in CREDENTIALS.iter().chain(&self.config.redact) {
            if r.is_match(&out) {
                out = std::borrow::Cow::Owned(r.replace_all(&out, span::REDACTED).into_owned());
            }
        }
        out.into_owned()
    }

    /// The key of fingerprints.
    pub fn key(&self) -> PrintKey {
        self.key
    }

    /// A text as an item.
    pub fn text_item(&self, speaker: Speaker, author: Option<String>, text: &str) -> Item {
        let kind = if speaker == Speaker::System { ItemKind::Instructions } else { ItemKind::Text };
        let t = self.text(text, None);
        Item {
            kind,
            speaker,
            name: author,
            hash: (!t.masked).then(|| t.hash(self.key, text)),
            retold: t.retold,
            asks: speaker == Speaker::Assistant && t.asks,
            ..t.item()
        }
    }

    /// A tool call as an item, with what it says as a payload. `args: None`: called without arguments.
    pub fn call_item(
        &self,
        name: &str,
        id: Option<String>,
        args: Option<&Value>,
    ) -> (Item, contract::Payload) {
        let (value, state) = match args {
            None => (Value::Object(serde_json::Map::new()), Args::Whole),
            Some(Value::String(s)) if s.trim().is_empty() => {
                (Value::Object(serde_json::Map::new()), Args::Whole)
            }
            Some(Value::String(s)) if is_masked(s) => (Value::Null, Args::Masked),
            Some(Value::String(s)) => match json::parse_loose(s) {
                (v, Form::Text) => (v, Args::Bare),
                (v, Form::Truncated) => (v, Args::Cut),
                (v @ Value::Object(_), _) => (v, Args::Whole),
                (v, _) => (v, Args::Bare),
            },
            Some(v @ Value::Object(_)) => (v.clone(), Args::Whole),
            Some(v) => (v.clone(), Args::Bare),
        };
        let value = if state == Args::Masked { value } else { canonical::unwrap_arguments(value) };
        self.call_of(name, id, &value, state)
    }

    /// A call whose arguments were not captured.
    pub fn call_without_args(&self, name: &str, id: Option<String>) -> Item {
        Item {
            kind: ItemKind::Call,
            speaker: Speaker::Assistant,
            name: Some(name.to_owned()),
            call_id: id,
            ..Item::default()
        }
    }

    fn call_of(
        &self,
        name: &str,
        id: Option<String>,
        value: &Value,
        state: Args,
    ) -> (Item, contract::Payload) {
        let known = matches!(state, Args::Whole | Args::Bare);
        let text = if state == Args::Masked { String::new() } else { canonical::to_string(value) };
        let t = self.text(&text, None);
        let sole = value
            .as_object()
            .and_then(canonical::sole_value)
            .map(|v| self.key.value(v))
            .or_else(|| (state == Args::Bare).then(|| self.key.value(value)));
        let mut payload = contract::read(value, &self.config.aliases);
        payload.complete &= known;
        let item = Item {
            kind: ItemKind::Call,
            speaker: Speaker::Assistant,
            name: Some(name.to_owned()),
            call_id: id,
            hash: known.then(|| self.key.call(name, &text)),
            tokens: t.tokens,
            cut: state == Args::Cut,
            args: state,
            args_digest: known.then(|| canonical::sha256_hex(text.as_bytes())),
            sole,
            prints: t.prints.clone(),
            text: t.kept.clone(),
            ..Item::default()
        };
        (item, payload)
    }

    /// A tool result as an item. `read`: its text as [`json::parse_loose`] reads it, where that was done already.
    pub fn result_item(
        &self,
        name: Option<String>,
        id: Option<String>,
        content: &Value,
        read: Option<&(Value, Form)>,
        error: Option<bool>,
    ) -> Item {
        let r = match content {
            Value::String(s) => self.result_text(s, read),
            Value::Null => self.result_text("", None),
            other => self.result_text(&canonical::to_string(other), None),
        };
        Item {
            kind: ItemKind::Result,
            speaker: Speaker::Tool,
            name,
            call_id: id,
            hash: (!r.text.masked).then_some(r.hash),
            cut: r.cut,
            error: error.or(r.failed.then_some(true)),
            ..r.text.item()
        }
    }

    fn result_text(&self, text: &str, read: Option<&(Value, Form)>) -> Arc<ResultText> {
        let key = self.memo.key(ask::RESULT, text);
        if let Some(Known::Result(found)) = self.memo.get(key) {
            return found;
        }
        let own;
        let read = match read {
            Some(read) => read,
            None => {
                own = json::parse_loose(text);
                &own
            }
        };
        let (parsed, form) = read;
        let object = parsed.as_object();
        let t = self.text(text, Some(read));
        let made = Arc::new(ResultText {
            // JSON on the tool span and a Python repr of it in the message are one result.
            hash: if matches!(form, Form::Json | Form::Python) && !parsed.is_string() {
                self.key.value(parsed)
            } else {
                t.hash(self.key, text)
            },
            cut: *form == Form::Truncated,
            failed: object.and_then(crate::messages::error_flag) == Some(true)
                && object.is_some_and(|m| m.contains_key("is_error") || m.contains_key("isError")),
            text: t,
        });
        self.memo.put(key, Known::Result(made.clone()), size_of::<ResultText>());
        made
    }

    /// A contract that an answer's text holds: the payload of a transfer whose tool takes only the target.
    pub(crate) fn contract_in(&self, text: &str, pos: i32) -> Option<PayloadRow> {
        if !text.contains('{') {
            return None;
        }
        let mut p = contract::read(&Value::String(text.to_owned()), &self.config.aliases);
        p.targets.clear();
        if p.structured { self.payload(p, Source::Output, pos, None) } else { None }
    }

    /// A payload as a row; `None` where it says nothing at all and could not be a transfer's.
    pub fn payload(
        &self,
        p: contract::Payload,
        source: Source,
        pos: i32,
        call_id: Option<String>,
    ) -> Option<PayloadRow> {
        let text = if p.body.is_null() { String::new() } else { canonical::to_string(&p.body) };
        let t = self.text(&text, None);
        let empty = p.is_empty();
        let mut texts = Vec::new();
        text_hashes(&p.body, self.key, &mut texts, 0);
        if !empty {
            // A structured payload may travel as a message of its JSON.
            texts.push(t.hash(self.key, &text));
        }
        let policies = self.config.policies_in(&text).map(str::to_owned).collect();
        let constraints = p
            .constraints
            .into_iter()
            .map(|mut c| {
                let shingles = c.text.as_deref().map(|t| phrase_shingles(self.key, t)).unwrap_or_default();
                c.text = c.text.as_deref().and_then(|t| self.keep(t));
                ConstraintRow { constraint: c, shingles }
            })
            .collect();
        Some(PayloadRow {
            source,
            pos,
            call_id,
            complete: p.complete,
            empty,
            structured: p.structured,
            narrative: p.narrative,
            fields: p.fields,
            aliases: p.aliases,
            targets: p.targets,
            constraints,
            artifacts: p.artifacts,
            goal: p.intent.as_deref().map(|i| self.key.phrase(i)),
            policies,
            steps: self.steps(&p.completed_steps),
            tokens: if empty { Some(0) } else { t.tokens },
            texts,
            prints: t.prints.clone(),
            text: t.kept.clone(),
        })
    }

    /// The names that steps may mean: every run of one to four words, joined as a tool's name would be.
    fn steps(&self, steps: &[String]) -> Vec<u64> {
        let mut out = Vec::new();
        for s in steps {
            let s = slug(s);
            let words: Vec<&str> = s.split('_').collect();
            for n in 1..=4 {
                out.extend(words.windows(n).map(|w| self.key.ident(&w.join("_"))));
            }
        }
        out.sort_unstable();
        out.dedup();
        out
    }
}

impl Text {
    /// The hash of this text, which is given again.
    fn hash(&self, key: PrintKey, text: &str) -> i64 {
        *self.hash.get_or_init(|| key.text(text))
    }

    /// An item of this text; its kind, speaker and hash are the caller's.
    fn item(&self) -> Item {
        let hidden = self.masked || self.blanked;
        Item {
            tokens: self.tokens.filter(|_| !self.masked),
            blanked: self.blanked,
            prints: if hidden { Arc::default() } else { self.prints.clone() },
            text: self.kept.clone().filter(|_| !self.masked),
            ..Item::default()
        }
    }

    fn bytes(&self) -> usize {
        size_of::<Self>() + prints_bytes(&self.prints) + self.kept.as_ref().map_or(0, |t| t.len())
    }
}

pub(crate) fn prints_bytes(p: &Prints) -> usize {
    size_of::<Prints>() + p.shingles.len() * 4 + p.idents.len() * 8
}

fn text_hashes(v: &Value, key: PrintKey, out: &mut Vec<i64>, depth: usize) {
    match v {
        Value::String(s) if !s.trim().is_empty() => out.push(key.text(s)),
        Value::Array(a) if depth < 3 => a.iter().for_each(|x| text_hashes(x, key, out, depth + 1)),
        Value::Object(m) if depth < 3 => m.values().for_each(|x| text_hashes(x, key, out, depth + 1)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn reader(content: ContentMode) -> Reader {
        Reader::new(Arc::new(Config { content, ..Config::default() }), PrintKey::default())
    }

    #[test]
    fn arguments_are_equal_in_every_form_they_come_in() {
        let r = reader(ContentMode::Full);
        let forms = [
            json!({"b": 1.0, "a": "x"}),
            json!("{\"a\": \"x\", \"b\": 1}"),
            json!("{'a': 'x', 'b': 1}"),
            json!({"inputs": {"a": "x", "b": 1}, "tags": []}),
            json!("\"{\\\"a\\\":\\\"x\\\",\\\"b\\\":1}\""),
        ];
        let digests: Vec<_> = forms.iter().map(|f| r.call_item("t", None, Some(f)).0.args_digest).collect();
        assert!(digests.iter().all(|d| d.is_some() && *d == digests[0]), "{digests:?}");
    }

    #[test]
    fn cut_and_masked_arguments_equal_nothing() {
        let r = reader(ContentMode::Full);
        for (a, state) in [(json!("{\"a\": \"x"), Args::Cut), (json!("[REDACTED]"), Args::Masked)] {
            let (item, payload) = r.call_item("t", None, Some(&a));
            assert_eq!((item.args, item.hash, item.args_digest), (state, None, None));
            assert!(!payload.complete);
        }
        let (bare, _) = r.call_item("t", None, Some(&json!("src/a.py")));
        let (whole, _) = r.call_item("t", None, Some(&json!({"path": "src/a.py"})));
        assert_eq!((bare.args, bare.sole), (Args::Bare, whole.sole));
    }

    #[test]
    fn text_is_kept_as_the_content_mode_says_and_facts_stay_the_same() {
        let text = "Use key sk-abcdefghijklmnop1234 for ORD-48213?";
        let items: Vec<Item> = [ContentMode::None, ContentMode::Redacted, ContentMode::Full]
            .map(|c| reader(c).text_item(Speaker::Assistant, None, text))
            .into();
        assert_eq!(items[0].text, None);
        assert_eq!(items[1].text.as_deref(), Some("Use key [redacted] for ORD-48213?"));
        assert_eq!(items[2].text.as_deref(), Some(text));
        for i in &items {
            assert_eq!(
                (i.hash, i.tokens, &i.prints, i.asks),
                (items[2].hash, items[2].tokens, &items[2].prints, true)
            );
        }
    }

    #[test]
    fn labels_are_masked_unless_all_is_kept_and_names_that_join_stay() {
        let secret = "lookup sk-abcdefghijklmnop1234";
        let author = Item { name: Some(secret.to_owned()), ..Item::default() };
        let call = Item { kind: ItemKind::Call, ..author.clone() };
        let row = Span {
            name: secret.to_owned(),
            error: Some(secret.to_owned()),
            tool: Some(secret.to_owned()),
            handoff: Some(span::Handoff {
                reason: Some(secret.to_owned()),
                artifacts: vec!["s3://b/o".to_owned(), secret.to_owned()],
                ..span::Handoff::default()
            }),
            payloads: vec![PayloadRow { artifacts: vec![secret.to_owned()], ..PayloadRow::default() }],
            evaluations: vec![span::Evaluation {
                label: Some(secret.to_owned()),
                ..span::Evaluation::default()
            }],
            input: Some(vec![author, call]),
            ..Span::default()
        };
        let masked = Some("lookup [redacted]".to_owned());
        for mode in [ContentMode::None, ContentMode::Redacted] {
            let (r, mut got) = (reader(mode), row.clone());
            // The second time it is remembered.
            for _ in 0..2 {
                got = row.clone();
                r.mask_labels(&mut got);
            }
            let h = got.handoff.unwrap_or_default();
            assert_eq!(
                (Some(got.name), got.error, h.reason),
                (masked.clone(), masked.clone(), masked.clone())
            );
            assert_eq!(h.artifacts, ["s3://b/o", "lookup [redacted]"]);
            assert_eq!(got.payloads[0].artifacts, ["lookup [redacted]"]);
            assert_eq!(got.evaluations[0].label, masked);
            assert_eq!(got.tool.as_deref(), Some(secret));
            let names: Vec<_> = got.input.iter().flatten().map(|i| i.name.clone()).collect();
            assert_eq!(names, [masked.clone(), Some(secret.to_owned())]);
        }
        let mut full = row.clone();
        reader(ContentMode::Full).mask_labels(&mut full);
        assert_eq!(full, row);
    }

    #[test]
    fn what_came_before_changes_nothing() {
        // Equal after folding white space, of one length, and yet of different tokens and clauses.
        let texts = ["a b\nc", "a\nb c", "a b c", "{\"a\": 1}", "{'a': 1.0}", "[1]", "", "***", "[cleared]"];
        let items = |r: &Reader, t: &str| {
            let text = r.text_item(Speaker::User, None, t);
            (text, r.result_item(None, None, &json!(t), None, None), r.call_item("t", None, Some(&json!(t))))
        };
        let alone: Vec<_> = texts.iter().map(|t| items(&reader(ContentMode::Full), t)).collect();
        let r = reader(ContentMode::Full);
        for order in [0, 4, 8] {
            for k in 0..texts.len() {
                let k = (k * 5 + order) % texts.len();
                assert_eq!(items(&r, texts[k]), alone[k], "{}", texts[k]);
            }
        }
    }

    #[test]
    fn a_result_is_the_same_as_json_and_as_python() {
        let r = reader(ContentMode::None);
        let a = r.result_item(None, None, &json!({"ok": true, "n": 1.0}), None, None);
        let b = r.result_item(None, None, &json!("{'ok': True, 'n': 1}"), None, None);
        assert_eq!(a.hash, b.hash);
        assert!(r.result_item(None, None, &json!("[cleared]"), None, None).blanked);
        assert!(!r.result_item(None, None, &json!("[1, 2]"), None, None).blanked);
    }
}
