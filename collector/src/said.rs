//! Messages and instructions as items. What a message gives depends on nothing but itself, so it is remembered as a whole, and
//! the history that a call repeats is not even parsed.

use std::sync::Arc;

use baton_record::json;
use baton_record::names::transfer_name;
use baton_record::span::{Args, Item, ItemKind, PayloadRow, Source, Speaker, View};
use serde_json::Value;

use crate::messages::{self, Message, Part};
use crate::reading::{Known, Reader, ask, prints_bytes};

/// Messages, parsed or not yet.
pub enum Messages<'a> {
    /// Parsed.
    List(Vec<Message>),
    /// An attribute's text.
    Text(&'a str),
}

/// What a list of messages gives.
#[derive(Debug, Default)]
pub struct Said {
    /// Items.
    pub items: Vec<Item>,
    /// Payloads of their calls; positions count from the first of these items.
    pub payloads: Vec<PayloadRow>,
    /// Ids of catalogue constraints whose patterns it matches.
    pub policies: Vec<String>,
    /// What it lacks: cut off, masked.
    pub view: View,
}

/// What an instructions attribute gives.
#[derive(Debug, Default)]
pub struct Instructions {
    /// True where it holds no text.
    pub is_empty: bool,
    /// Items.
    pub items: Vec<Item>,
    /// Ids of catalogue constraints whose patterns it matches.
    pub policies: Vec<String>,
}

impl<'a> Messages<'a> {
    /// The messages; true where their text was cut off.
    pub fn parse(self) -> (Vec<Message>, bool) {
        match self {
            Self::List(list) => (list, false),
            Self::Text(text) => messages::from_text(text),
        }
    }
}

impl Said {
    fn append(&mut self, other: &Self) {
        let before = self.items.len() as i32;
        self.items.extend_from_slice(&other.items);
        self.payloads.extend(other.payloads.iter().cloned().map(|p| PayloadRow { pos: p.pos + before, ..p }));
        add_new(&mut self.policies, &other.policies);
        self.view.cut |= other.view.cut;
        self.view.masked |= other.view.masked;
    }

    fn bytes(&self) -> usize {
        let text = |t: &Option<Arc<str>>| t.as_ref().map_or(0, |t| t.len());
        let items =
            self.items.iter().map(|i| size_of::<Item>() + 100 + prints_bytes(&i.prints) + text(&i.text));
        let payloads = self
            .payloads
            .iter()
            .map(|p| size_of::<PayloadRow>() + 500 + prints_bytes(&p.prints) + text(&p.text));
        size_of::<Self>() + items.sum::<usize>() + payloads.sum::<usize>() + self.policies.len() * 64
    }
}

/// Adds ids that are not there yet.
pub(crate) fn add_new(ids: &mut Vec<String>, more: &[String]) {
    for id in more {
        if !ids.contains(id) {
            ids.push(id.clone());
        }
    }
}

impl Reader {
    /// What messages give in the input or the output of a call.
    pub fn said(&self, messages: Messages<'_>, source: Source) -> Said {
        if let Messages::Text(text) = messages
            && let Some(said) = self.said_before(text, source)
        {
            return said;
        }
        let (list, cut) = messages.parse();
        let mut out = self.items(list, source);
        out.view.cut |= cut;
        out
    }

    /// The same of a JSON list of objects, message by message. `None`: it is something else.
    fn said_before(&self, text: &str, source: Source) -> Option<Said> {
        let what = if source == Source::Output { ask::OUTPUT } else { ask::INPUT };
        let mut out = Said::default();
        for object in objects(text)? {
            let key = self.memo.key(what, object);
            let said = match self.memo.get(key) {
                Some(Known::Said(said)) => said,
                _ => {
                    let value = json::parse(object).filter(Value::is_object)?;
                    let said = Arc::new(self.items(messages::from_member(&value), source));
                    self.memo.put(key, Known::Said(said.clone()), said.bytes());
                    said
                }
            };
            out.append(&said);
        }
        Some(out)
    }

    /// Messages as items, with the payloads of their calls. Payloads of calls in the input are kept only
    /// where the tool's name looks like a transfer: they matter where outputs are not captured.
    fn items(&self, messages: Vec<Message>, source: Source) -> Said {
        let mut out = Said { policies: self.policies_in(&messages), ..Said::default() };
        let Said { items, payloads, view, .. } = &mut out;
        for m in messages {
            for p in m.parts {
                let pos = items.len() as i32;
                let item = match p {
                    Part::Text(t) => {
                        if source == Source::Output {
                            payloads.extend(self.contract_in(&t, pos));
                        }
                        self.text_item(m.speaker, m.author.clone(), &t)
                    }
                    Part::Result { name, id, content, error } => {
                        self.result_item(name, id, &content, None, error)
                    }
                    Part::Call { name, id, args } => {
                        let (item, payload) = self.call_item(&name, id.clone(), args.as_ref());
                        if source == Source::Output || transfer_name(&name).is_some() {
                            payloads.extend(self.payload(payload, source, pos, id));
                        }
                        item
                    }
                };
                view.masked |= item.hash.is_none() && item.args != Args::Cut && item.args != Args::Absent
                    || (item.hash.is_none() && item.kind != ItemKind::Call);
                view.cut |= item.cut;
                items.push(item);
            }
        }
        out
    }

    /// What instructions give.
    pub fn instructions(&self, texts: &[String]) -> Instructions {
        let texts_of = |s: &String| Message {
            speaker: Speaker::System,
            author: None,
            parts: vec![Part::Text(s.clone())],
        };
        let shown = texts.iter().filter(|s| !s.trim().is_empty());
        Instructions {
            is_empty: texts.is_empty(),
            items: shown.map(|s| self.text_item(Speaker::System, None, s)).collect(),
            policies: self.policies_in(&texts.iter().map(texts_of).collect::<Vec<_>>()),
        }
    }

    /// What instructions give whose texts stand in an attribute's text; `texts` finds them.
    pub(crate) fn instructions_in(
        &self,
        text: &str,
        texts: impl FnOnce() -> Vec<String>,
    ) -> Arc<Instructions> {
        let key = self.memo.key(ask::INSTRUCTIONS, text);
        if let Some(Known::Instructions(found)) = self.memo.get(key) {
            return found;
        }
        let made = Arc::new(self.instructions(&texts()));
        let bytes =
            |i: &Item| size_of::<Item>() + prints_bytes(&i.prints) + i.text.as_ref().map_or(0, |t| t.len());
        self.memo.put(key, Known::Instructions(made.clone()), made.items.iter().map(bytes).sum());
        made
    }

    /// Ids of catalogue constraints whose patterns one of the messages matches.
    fn policies_in(&self, messages: &[Message]) -> Vec<String> {
        let config = self.config();
        if config.policies.iter().all(|p| p.patterns.is_empty()) {
            return Vec::new();
        }
        let mut out: Vec<String> = Vec::new();
        for m in messages {
            for p in &m.parts {
                let text = match p {
                    Part::Text(t) => t.clone(),
                    Part::Call { args: Some(a), .. } => a.to_string(),
                    Part::Call { .. } => continue,
                    Part::Result { content: Value::String(s), .. } => s.clone(),
                    Part::Result { content, .. } => content.to_string(),
                };
                for id in config.policies_in(&text) {
                    if !out.iter().any(|x| x == id) {
                        out.push(id.to_owned());
                    }
                }
            }
        }
        out
    }
}

/// Nesting of a message that is read by itself; a parser's limit would count the list around it too.
const NESTING: u32 = 64;

/// The members of a JSON list of objects, as they stand. `None`: it is no such list. What is inside the objects is not checked.
fn objects(text: &str) -> Option<Vec<&str>> {
    let text = text.trim();
    let b = text.as_bytes();
    let skip = |mut at: usize| {
        while matches!(b.get(at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            at += 1;
        }
        at
    };
    if b.first() != Some(&b'[') {
        return None;
    }
    let mut out = Vec::new();
    let mut at = skip(1);
    loop {
        let from = at;
        if b.get(at) != Some(&b'{') {
            return None;
        }
        let mut depth = 0u32;
        loop {
            match b.get(at)? {
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth -= 1,
                b'"' => at = string_end(b, at + 1)?,
                _ => {}
            }
            at += 1;
            match depth {
                0 => break,
                NESTING.. => return None,
                _ => {}
            }
        }
        out.push(&text[from..at]);
        at = skip(at);
        match b.get(at)? {
            b',' => at = skip(at + 1),
            b']' if at + 1 == b.len() => return Some(out),
            _ => return None,
        }
    }
}

/// Where a string's closing quote is.
fn string_end(b: &[u8], mut at: usize) -> Option<usize> {
    loop {
        at += memchr::memchr2(b'"', b'\\', b.get(at..)?)?;
        if b[at] == b'"' {
            return Some(at);
        }
        at += 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_record::config::Config;
    use baton_record::prints::PrintKey;

    fn reader() -> Reader {
        Reader::new(Arc::new(Config::default()), PrintKey::default())
    }

    fn whole(r: &Reader, text: &str, source: Source) -> Said {
        let (list, cut) = messages::from_text(text);
        let mut out = r.items(list, source);
        out.view.cut |= cut;
        out
    }

    #[test]
    fn the_members_of_a_list_are_found_as_they_stand() {
        assert_eq!(
            objects(r#" [{"a":"}\"]"} , {"b":[{}]}]"#),
            Some(vec![r#"{"a":"}\"]"}"#, r#"{"b":[{}]}"#])
        );
        for other in ["", "[]", "{}", "[1]", "[{}", "[{}] x", "[{},]", "[{}{}]", r#"[{"a":"]"#, r#"["a",{}]"#]
        {
            assert_eq!(objects(other), None, "{other}");
        }
        assert_eq!(objects(&format!("[{{\"a\":{}{}}}]", "[".repeat(64), "]".repeat(64))), None);
    }

    #[test]
    fn message_by_message_gives_what_the_list_gives() {
        let list = r#"[{"role":"user","content":"hi [Scrubbed due to x]"},
            {"role":"assistant","content":"{\"intent\":\"x\",\"status\":\"y\"}","tool_calls":[
                {"id":"1","function":{"name":"transfer_to_a","arguments":"{\"intent\":\"go\"}"}},
                {"id":"2","function":{"name":"look","arguments":"{\"n\":123456789012345678901234567890}"}}]},
            {"messages":[{"role":"user","content":"in it"}]},
            {"role":"tool","tool_call_id":"1","content":"{\"is_error\":true}"}]"#;
        let r = reader();
        for source in [Source::Input, Source::Output] {
            for _ in 0..2 {
                let (a, b) = (r.said(Messages::Text(list), source), whole(&reader(), list, source));
                assert_eq!(format!("{a:?}"), format!("{b:?}"));
                assert!(a.items.len() == 6 && !a.payloads.is_empty() && a.view.masked);
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_gives_what_it_gives_by_itself(
            texts in proptest::collection::vec("\\[?(\\{(\"(role|content|type|name)\":\"[a-z{}\\[\\]?: ]{0,8}\",?){0,3}\\},?){0,3}\\]?", 1..6)
        ) {
            let r = reader();
            for t in &texts {
                for source in [Source::Input, Source::Output] {
                    let (a, b) = (r.said(Messages::Text(t), source), whole(&reader(), t, source));
                    proptest::prop_assert_eq!(format!("{a:?}"), format!("{b:?}"), "{}", t);
                }
            }
        }
    }
}
