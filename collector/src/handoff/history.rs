//! Histories: what an agent's context holds, counted as the collector counts it.

use std::sync::{Arc, LazyLock};

use baton_record::config::{Config, Tokenizer};
use baton_record::prints::PrintKey;
use baton_record::span::{Item, ItemKind, Source};
use foldhash::HashMap;
use serde_json::Value;

use crate::messages::{self, Message};
use crate::reading::Reader;
use crate::said::Messages;

/// Messages, whatever the framework: what filters work on and counts are taken of.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct History {
    /// In order.
    pub messages: Vec<Message>,
}

impl History {
    /// Reads messages in any form that [`messages`] knows: chat messages, Responses items, content blocks, parts.
    ///
    /// Reasoning is left out: it is no item, and belongs to the model that did it.
    pub fn from_value(v: &Value) -> Self {
        Self { messages: messages::from_value(v) }
    }

    /// As chat messages, for a model call.
    pub fn to_chat(&self) -> Value {
        messages::to_chat(&self.messages)
    }

    /// In the form of the OpenTelemetry GenAI conventions, for `gen_ai.input.messages`.
    pub fn to_genai(&self) -> Value {
        messages::to_genai(&self.messages)
    }

    /// Items: texts, tool calls and tool results. System instructions are none.
    pub fn item_count(&self) -> usize {
        let system = baton_record::span::Speaker::System;
        self.messages.iter().filter(|m| m.speaker != system).map(|m| m.parts.len()).sum()
    }
}

impl From<Vec<Message>> for History {
    fn from(messages: Vec<Message>) -> Self {
        Self { messages }
    }
}

/// Counts of a history before and after a transfer. `None`: not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HistoryCounts {
    /// Items that the sender's context held.
    pub items_before: Option<i64>,
    /// Items that the receiver gets.
    pub items_after: Option<i64>,
    /// Items of before that are not in after.
    pub filtered: Option<i64>,
    /// Tokens that the sender's context held.
    pub tokens_before: Option<i64>,
    /// Tokens that the receiver gets.
    pub tokens_after: Option<i64>,
}

impl HistoryCounts {
    /// Counts two histories: `before` is what the sender's last model call read and answered, `after` what the receiver's first one
    /// will read. An item that was changed or blanked is not the same item.
    pub fn measured(before: &History, after: &History, tokenizer: Tokenizer) -> Self {
        let (b, a) = (items(before, tokenizer), items(after, tokenizer));
        Self {
            items_before: count(&b),
            items_after: count(&a),
            filtered: filtered(&b, &a),
            tokens_before: tokens(&b),
            tokens_after: tokens(&a),
        }
    }
}

fn count(items: &[Item]) -> Option<i64> {
    i64::try_from(items.len()).ok()
}

fn tokens(items: &[Item]) -> Option<i64> {
    items.iter().map(|i| i.tokens.map(i64::from)).sum()
}

/// Items of before that have no equal in after. `None` where one cannot be compared.
fn filtered(before: &[Item], after: &[Item]) -> Option<i64> {
    let mut left: HashMap<(u8, i64), i64> = HashMap::default();
    let mut gone = 0;
    for i in after {
        let hash = i.hash?;
        if !i.blanked {
            *left.entry((kind(i), hash)).or_default() += 1;
        }
    }
    for i in before {
        let hash = i.hash?;
        match left.get_mut(&(kind(i), hash)).filter(|n| **n > 0 && !i.blanked) {
            Some(n) => *n -= 1,
            None => gone += 1,
        }
    }
    Some(gone)
}

/// Who says a text does not matter: frameworks re-attribute turns.
fn kind(i: &Item) -> u8 {
    match i.kind {
        ItemKind::Call => 1,
        ItemKind::Result => 2,
        _ => 0,
    }
}

/// Tokens of a text; `None` where it is too large to be counted in passing.
pub(super) fn tokens_of(text: &str, tokenizer: Tokenizer) -> Option<i64> {
    reader(tokenizer).tokens(text).map(i64::from)
}

/// The items of a history without instructions, read as the collector reads them.
fn items(h: &History, tokenizer: Tokenizer) -> Vec<Item> {
    let mut items = all_items(h, tokenizer);
    items.retain(|i| i.kind != ItemKind::Instructions);
    items
}

/// The same with instructions.
pub(super) fn all_items(h: &History, tokenizer: Tokenizer) -> Vec<Item> {
    reader(tokenizer).said(Messages::List(h.messages.clone()), Source::Input).items
}

/// What was made of a text is remembered, since the next transfer mostly measures the same history and a little more.
fn reader(tokenizer: Tokenizer) -> &'static Reader {
    static O200K: LazyLock<Reader> = LazyLock::new(|| fresh(Tokenizer::O200kBase));
    static CL100K: LazyLock<Reader> = LazyLock::new(|| fresh(Tokenizer::Cl100kBase));
    match tokenizer {
        Tokenizer::O200kBase => &O200K,
        Tokenizer::Cl100kBase => &CL100K,
    }
}

fn fresh(tokenizer: Tokenizer) -> Reader {
    // Full text is kept in memory only, where overlaps are named to the caller.
    let content = baton_record::config::ContentMode::Full;
    Reader::new(Arc::new(Config { tokenizer, content, ..Config::default() }), PrintKey::default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn history() -> History {
        History::from_value(&json!([
            {"role": "system", "content": "You triage."},
            {"role": "user", "content": "Refund 4711, please"},
            {"role": "assistant", "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "lookup_order", "arguments": "{\"id\":\"4711\"}"}}]},
            {"role": "tool", "tool_call_id": "c1", "content": "paid"},
        ]))
    }

    #[test]
    fn instructions_are_no_items_and_what_is_gone_is_counted() {
        let before = history();
        let mut after = history();
        after.messages.remove(2);
        after.messages.push(Message {
            speaker: baton_record::span::Speaker::Assistant,
            author: None,
            parts: vec![messages::Part::Text("Handed over".into())],
        });
        let c = HistoryCounts::measured(&before, &after, Tokenizer::O200kBase);
        assert_eq!((c.items_before, c.items_after, c.filtered), (Some(3), Some(3), Some(1)));
        let one = |t: &str| tokens_of(t, Tokenizer::O200kBase).unwrap();
        let text = one("Refund 4711, please");
        assert_eq!(c.tokens_before, Some(text + one(r#"{"id":"4711"}"#) + one("paid")));
        assert_eq!(c.tokens_after, Some(text + one("paid") + one("Handed over")));
        assert_eq!(before.item_count(), 3);
    }

    #[test]
    fn an_item_that_was_blanked_or_changed_counts_as_filtered() {
        let mut after = history();
        for m in &mut after.messages {
            for p in &mut m.parts {
                if let messages::Part::Result { content, .. } = p {
                    *content = json!("[cleared]");
                }
            }
        }
        let c = HistoryCounts::measured(&history(), &after, Tokenizer::O200kBase);
        assert_eq!((c.items_before, c.items_after, c.filtered), (Some(3), Some(3), Some(1)));
    }

    #[test]
    fn copies_are_matched_one_by_one() {
        let twice = History { messages: [history().messages, history().messages].concat() };
        let c = HistoryCounts::measured(&twice, &history(), Tokenizer::O200kBase);
        assert_eq!((c.items_before, c.items_after, c.filtered), (Some(6), Some(3), Some(3)));
    }
}
