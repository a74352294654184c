//! History filters as ready parts. Each says what it took away.

use std::borrow::Cow;
use std::fmt;

use baton_record::canonical;
use baton_record::config::Tokenizer;
use baton_record::json;
use baton_record::span::{REDACTED, Speaker};
use foldhash::HashSet;
use regex::Regex;
use serde_json::Value;

use super::history::{History, tokens_of};
use crate::messages::{Message, Part};

/// What stands for a result that has no fields to keep. Counted as filtered, and the call keeps its answer.
const CLEARED: &str = "[cleared]";

/// One step of making the receiver's history out of the sender's.
///
/// None of them looks into prose: what a tool told may still stand in the texts around it. Ask
/// [`leaks`](super::leaks::leaks) of the result.
#[derive(Debug, Clone)]
pub enum Filter {
    /// Tool calls and tool results go, of every kind that is known: functions, hosted tools, MCP.
    RemoveTools,
    /// The last so many turns stay. A turn begins with a message of the user; system messages stay.
    LastTurns(usize),
    /// The newest messages stay whose tokens are within the budget together; system messages stay and count. A message that is
    /// too large to be counted is over every budget.
    TokenBudget {
        /// Tokens at most.
        tokens: i64,
        /// Who counts them.
        tokenizer: Tokenizer,
    },
    /// What matches a pattern is replaced, in texts, arguments and results.
    Redact(Vec<Regex>),
    /// Of arguments and results that are JSON, the listed fields stay, at every depth. A result that has no fields is blanked.
    OnlyFields(Vec<String>),
}

/// Something that a filter took away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removed {
    /// The filter, by [`Filter::name`].
    pub filter: &'static str,
    /// `text`, `tool_call` or `tool_result`.
    pub kind: &'static str,
    /// The tool of a call; of a result where it is named.
    pub tool: Option<String>,
    /// The call it belongs to.
    pub call_id: Option<String>,
    /// How much of it.
    pub what: What,
}

/// How much of an item was taken away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// All of it.
    Whole,
    /// The content; the item is still there and says that it was cleared.
    Content,
    /// These fields, each once.
    Fields(Vec<String>),
    /// So many matches of patterns.
    Matches(usize),
}

impl fmt::Display for Removed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.filter, self.kind)?;
        if let Some(tool) = &self.tool {
            write!(f, " of {tool}")?;
        }
        match &self.what {
            What::Whole => Ok(()),
            What::Content => write!(f, ", its content"),
            What::Fields(names) => write!(f, ", fields {}", names.join(", ")),
            What::Matches(n) => write!(f, ", {n} matches"),
        }
    }
}

/// A filtered history.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Filtered {
    /// What the receiver gets.
    pub history: History,
    /// What was taken away, in the order of filters and items.
    pub removed: Vec<Removed>,
}

impl History {
    /// Applies filters one after the other. The history itself stays as it is.
    pub fn filtered(&self, filters: &[Filter]) -> Filtered {
        let mut out = Filtered { history: self.clone(), removed: Vec::new() };
        for f in filters {
            f.apply(&mut out);
        }
        out
    }
}

impl Filter {
    /// The name in reports.
    pub fn name(&self) -> &'static str {
        match self {
            Self::RemoveTools => "remove_tools",
            Self::LastTurns(_) => "last_turns",
            Self::TokenBudget { .. } => "token_budget",
            Self::Redact(_) => "redact",
            Self::OnlyFields(_) => "only_fields",
        }
    }

    fn apply(&self, out: &mut Filtered) {
        let name = self.name();
        match self {
            Self::RemoveTools => out.keep_parts(name, |_, p| matches!(p, Part::Text(_))),
            Self::LastTurns(n) => {
                let starts: Vec<usize> = out
                    .history
                    .messages
                    .iter()
                    .enumerate()
                    // Some providers send results of tools as the user's messages; those begin no turn.
                    .filter(|(_, m)| {
                        m.speaker == Speaker::User && m.parts.iter().any(|p| matches!(p, Part::Text(_)))
                    })
                    .map(|(i, _)| i)
                    .collect();
                // With fewer turns than that, all stay.
                let from = match n {
                    0 => out.history.messages.len(),
                    n => starts.len().checked_sub(*n).map_or(0, |i| starts[i]),
                };
                out.keep_newest(name, from);
            }
            Self::TokenBudget { tokens, tokenizer } => {
                let from = within(&out.history.messages, *tokens, *tokenizer);
                out.keep_newest(name, from);
            }
            Self::Redact(patterns) => out.change_parts(name, |p| redact(p, patterns)),
            Self::OnlyFields(fields) => out.change_parts(name, |p| only_fields(p, fields)),
        }
    }
}

/// The index of the first message of the newest ones that fit.
fn within(messages: &[Message], budget: i64, tokenizer: Tokenizer) -> usize {
    let size =
        |m: &Message| -> Option<i64> { m.parts.iter().map(|p| tokens_of(&text_of(p), tokenizer)).sum() };
    let system = |m: &&Message| m.speaker == Speaker::System;
    let Some(mut used) = messages.iter().filter(system).map(size).sum::<Option<i64>>() else {
        return messages.len();
    };
    for (i, m) in messages.iter().enumerate().rev().filter(|(_, m)| !system(m)) {
        match size(m).and_then(|n| used.checked_add(n)).filter(|n| *n <= budget) {
            Some(n) => used = n,
            None => return i + 1,
        }
    }
    0
}

/// The text that is counted: what an item's tokens are taken of.
fn text_of(p: &Part) -> Cow<'_, str> {
    match p {
        Part::Text(t) | Part::Call { args: Some(Value::String(t)), .. } => Cow::Borrowed(t),
        Part::Result { content: Value::String(t), .. } => Cow::Borrowed(t),
        Part::Call { args: Some(v), .. } | Part::Result { content: v, .. } => {
            Cow::Owned(canonical::to_string(v))
        }
        Part::Call { args: None, .. } => Cow::Borrowed("{}"),
    }
}

impl Filtered {
    /// Keeps the parts that are wanted; a message without parts goes with them.
    fn keep_parts(&mut self, filter: &'static str, wanted: impl Fn(&Message, &Part) -> bool) {
        let removed = &mut self.removed;
        for m in &mut self.history.messages {
            let parts = std::mem::take(&mut m.parts);
            let (kept, gone): (Vec<Part>, Vec<Part>) = parts.into_iter().partition(|p| wanted(m, p));
            m.parts = kept;
            removed.extend(gone.iter().map(|p| Removed::of(filter, p, What::Whole)));
        }
        self.history.messages.retain(|m| !m.parts.is_empty());
    }

    /// Keeps system messages and what stands from an index on. A result whose call is gone goes too: providers refuse it.
    fn keep_newest(&mut self, filter: &'static str, from: usize) {
        let messages = &self.history.messages;
        let stays = |i: usize, m: &Message| i >= from || m.speaker == Speaker::System;
        let calls = |kept: bool| -> HashSet<&str> {
            messages
                .iter()
                .enumerate()
                .filter(|(i, m)| stays(*i, m) == kept)
                .flat_map(|(_, m)| &m.parts)
                .filter_map(|p| match p {
                    Part::Call { id: Some(id), .. } => Some(id.as_str()),
                    _ => None,
                })
                .collect()
        };
        let (kept, gone) = (calls(true), calls(false));
        let orphans: HashSet<String> = gone.difference(&kept).map(|id| (*id).to_owned()).collect();
        let orphan = |p: &Part| matches!(p, Part::Result { id: Some(id), .. } if orphans.contains(id));
        let mut out = Vec::new();
        for (i, mut m) in std::mem::take(&mut self.history.messages).into_iter().enumerate() {
            let keep = stays(i, &m);
            let (stay, go): (Vec<Part>, Vec<Part>) =
                std::mem::take(&mut m.parts).into_iter().partition(|p| keep && !orphan(p));
            self.removed.extend(go.iter().map(|p| Removed::of(filter, p, What::Whole)));
            if !stay.is_empty() {
                out.push(Message { parts: stay, ..m });
            }
        }
        self.history.messages = out;
    }

    /// Changes parts in place; the change is told where there was one.
    fn change_parts(&mut self, filter: &'static str, change: impl Fn(&mut Part) -> Option<What>) {
        for p in self.history.messages.iter_mut().flat_map(|m| &mut m.parts) {
            if let Some(what) = change(p) {
                self.removed.push(Removed::of(filter, p, what));
            }
        }
    }
}

impl Removed {
    fn of(filter: &'static str, p: &Part, what: What) -> Self {
        let (kind, tool, call_id) = match p {
            Part::Text(_) => ("text", None, None),
            Part::Call { name, id, .. } => ("tool_call", Some(name.clone()), id.clone()),
            Part::Result { name, id, .. } => ("tool_result", name.clone(), id.clone()),
        };
        Self { filter, kind, tool, call_id, what }
    }
}

fn redact(p: &mut Part, patterns: &[Regex]) -> Option<What> {
    let n = match p {
        Part::Text(t) => redact_text(t, patterns),
        Part::Call { args: Some(v), .. } | Part::Result { content: v, .. } => redact_value(v, patterns),
        Part::Call { args: None, .. } => 0,
    };
    (n > 0).then_some(What::Matches(n))
}

fn redact_text(text: &mut String, patterns: &[Regex]) -> usize {
    let mut n = 0;
    for r in patterns {
        let found = r.find_iter(text).count();
        if found > 0 {
            *text = r.replace_all(text, REDACTED).into_owned();
            n += found;
        }
    }
    n
}

/// Every text in a value, keys left alone. A number that matches as text becomes one: it is what the pattern means.
fn redact_value(v: &mut Value, patterns: &[Regex]) -> usize {
    match v {
        Value::String(s) => redact_text(s, patterns),
        Value::Number(x) => {
            let mut s = x.to_string();
            let n = redact_text(&mut s, patterns);
            if n > 0 {
                *v = Value::String(s);
            }
            n
        }
        Value::Array(a) => a.iter_mut().map(|x| redact_value(x, patterns)).sum(),
        Value::Object(m) => m.values_mut().map(|x| redact_value(x, patterns)).sum(),
        Value::Null | Value::Bool(_) => 0,
    }
}

fn only_fields(p: &mut Part, fields: &[String]) -> Option<What> {
    let (value, is_result) = match p {
        Part::Text(_) | Part::Call { args: None, .. } => return None,
        Part::Call { args: Some(v), .. } => (v, false),
        Part::Result { content, .. } => (content, true),
    };
    // JSON comes as text in most frameworks, and goes as text again.
    let mut parsed = match &*value {
        Value::String(s) => json::parse(s.trim()).unwrap_or(Value::Null),
        other => other.clone(),
    };
    if !holds_object(&parsed) {
        // Nothing of it has a name that could be listed.
        let blank =
            if is_result { Value::String(CLEARED.to_owned()) } else { Value::Object(Default::default()) };
        let had = !matches!(&*value, Value::Null) && *value != blank;
        if had {
            *value = blank;
        }
        return had.then_some(What::Content);
    }
    let mut gone = Vec::new();
    strip(&mut parsed, fields, &mut gone);
    if gone.is_empty() {
        return None;
    }
    *value = if value.is_string() { Value::String(canonical::to_string(&parsed)) } else { parsed };
    Some(What::Fields(gone))
}

fn holds_object(v: &Value) -> bool {
    match v {
        Value::Object(_) => true,
        Value::Array(a) => !a.is_empty() && a.iter().all(holds_object),
        _ => false,
    }
}

fn strip(v: &mut Value, fields: &[String], gone: &mut Vec<String>) {
    match v {
        Value::Object(m) => {
            m.retain(|k, _| {
                let keep = fields.iter().any(|f| f == k);
                if !keep && !gone.contains(k) {
                    gone.push(k.clone());
                }
                keep
            });
            m.values_mut().for_each(|x| strip(x, fields, gone));
        }
        Value::Array(a) => a.iter_mut().for_each(|x| strip(x, fields, gone)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn history() -> History {
        History::from_value(&json!([
            {"role": "system", "content": "You triage."},
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": "How can I help?"},
            {"role": "user", "content": "Refund 4711, please"},
            {"role": "assistant", "content": "I look.", "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "lookup_order", "arguments": "{\"id\":\"4711\",\"trace\":true}"}}]},
            {"role": "tool", "tool_call_id": "c1", "content": "{\"order\":{\"id\":\"4711\",\"iban\":\"DE44500105175407324931\"},\"paid\":true}"},
            {"type": "mcp_call", "id": "m1", "name": "risk", "arguments": "{}", "output": "low risk for DE44500105175407324931"},
            {"role": "assistant", "content": "Found it."},
        ]))
    }

    fn texts(h: &History) -> Vec<String> {
        h.messages.iter().flat_map(|m| &m.parts).map(|p| text_of(p).into_owned()).collect()
    }

    #[test]
    fn tool_items_of_every_kind_go_and_are_told() {
        let f = history().filtered(&[Filter::RemoveTools]);
        assert_eq!(
            texts(&f.history),
            ["You triage.", "Hello", "How can I help?", "Refund 4711, please", "I look.", "Found it."]
        );
        let told: Vec<String> = f.removed.iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            [
                "remove_tools: tool_call of lookup_order",
                "remove_tools: tool_result",
                "remove_tools: tool_call of risk",
                "remove_tools: tool_result of risk"
            ]
        );
    }

    #[test]
    fn the_last_turns_stay_with_the_instructions() {
        let f = history().filtered(&[Filter::LastTurns(1)]);
        assert_eq!(texts(&f.history)[..2], ["You triage.", "Refund 4711, please"]);
        assert_eq!(f.removed.len(), 2);
        assert!(history().filtered(&[Filter::LastTurns(9)]).removed.is_empty());
        let none = history().filtered(&[Filter::LastTurns(0)]);
        assert_eq!(texts(&none.history), ["You triage."]);
        assert_eq!(none.removed.len(), history().item_count());
    }

    #[test]
    fn results_that_come_as_messages_of_the_user_begin_no_turn() {
        let h = History::from_value(&json!([
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": "Hi"},
            {"role": "user", "content": "Refund 4711, please"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "lookup_order", "input": {"id": "4711"}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "paid"}]},
        ]));
        let f = h.filtered(&[Filter::LastTurns(1)]);
        assert_eq!(texts(&f.history), ["Refund 4711, please", r#"{"id":"4711"}"#, "paid"]);
    }

    #[test]
    fn a_budget_keeps_the_newest_and_leaves_no_result_without_its_call() {
        let t = Tokenizer::O200kBase;
        let h = history();
        let size = |m: &Message| m.parts.iter().map(|p| tokens_of(&text_of(p), t).unwrap()).sum::<i64>();
        // Instructions, and all from the result of the first call on: the call itself does not fit.
        let tokens = size(&h.messages[0]) + h.messages[5..].iter().map(size).sum::<i64>();
        let f = h.filtered(&[Filter::TokenBudget { tokens, tokenizer: t }]);
        let left = texts(&f.history);
        assert_eq!((left[0].as_str(), left[left.len() - 1].as_str()), ("You triage.", "Found it."));
        assert!(!left.iter().any(|x| x.contains("\"paid\"")), "{left:?}");
        assert!(f.removed.iter().any(|r| r.kind == "tool_result" && r.call_id.as_deref() == Some("c1")));
        assert!(h.filtered(&[Filter::TokenBudget { tokens: i64::MAX, tokenizer: t }]).removed.is_empty());
        assert_eq!(
            texts(&h.filtered(&[Filter::TokenBudget { tokens: 0, tokenizer: t }]).history),
            ["You triage."]
        );
    }

    #[test]
    fn patterns_are_masked_wherever_they_stand() {
        let iban = Regex::new(r"DE\d{20}").unwrap();
        let f = history().filtered(&[Filter::Redact(vec![iban.clone()])]);
        assert!(!texts(&f.history).iter().any(|t| iban.is_match(t)));
        assert_eq!(
            f.removed.iter().map(|r| &r.what).collect::<Vec<_>>(),
            [&What::Matches(1), &What::Matches(1)]
        );
        assert_eq!(f.history.item_count(), history().item_count());
    }

    #[test]
    fn only_listed_fields_stay_at_every_depth() {
        let fields = ["order", "id"].map(str::to_owned).to_vec();
        let f = history().filtered(&[Filter::OnlyFields(fields)]);
        let left = texts(&f.history);
        assert!(left.contains(&r#"{"order":{"id":"4711"}}"#.to_owned()), "{left:?}");
        assert!(left.contains(&r#"{"id":"4711"}"#.to_owned()), "{left:?}");
        assert!(left.contains(&CLEARED.to_owned()) && !left.iter().any(|t| t.contains("DE44")), "{left:?}");
        let fields = |names: &[&str]| What::Fields(names.iter().map(|n| (*n).to_owned()).collect());
        assert_eq!(
            f.removed.iter().map(|r| r.what.clone()).collect::<Vec<_>>(),
            [fields(&["trace"]), fields(&["paid", "iban"]), What::Content]
        );
    }

    #[test]
    fn filters_work_one_after_the_other() {
        let f = history().filtered(&[Filter::LastTurns(1), Filter::RemoveTools]);
        assert_eq!(texts(&f.history), ["You triage.", "Refund 4711, please", "I look.", "Found it."]);
        assert_eq!(f.removed.iter().filter(|r| r.filter == "last_turns").count(), 2);
    }

    proptest::proptest! {
        /// Whatever is left out is told: kept and removed items are those that were there.
        #[test]
        fn nothing_goes_untold(n in 0usize..4, tokens in 0i64..80) {
            let h = history();
            let all: usize = h.messages.iter().map(|m| m.parts.len()).sum();
            let t = Tokenizer::O200kBase;
            let filters = [Filter::LastTurns(n), Filter::TokenBudget { tokens, tokenizer: t }, Filter::RemoveTools];
            for k in 0..=filters.len() {
                let f = h.filtered(&filters[..k]);
                let kept: usize = f.history.messages.iter().map(|m| m.parts.len()).sum();
                proptest::prop_assert_eq!(kept + f.removed.len(), all);
            }
        }
    }
}
