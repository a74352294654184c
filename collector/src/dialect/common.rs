//! What several dialects do the same way.

use baton_record::names::is_placeholder_agent;
use baton_record::span::{Control, Evaluation, Item, Role, Source, Span, Speaker};
use serde_json::Value;

use super::langchain::{self, ToolResult};
use crate::messages::{self, Message, Part};
use crate::raw::{Attrs, Raw};
use crate::reading::{Reader, is_absent};

/// The name unless it is a placeholder.
pub(super) fn agent_name(name: Option<&str>) -> Option<String> {
    name.filter(|n| !is_placeholder_agent(n)).map(str::to_owned)
}

/// Fills a model call. `None` messages were not captured.
pub(super) fn inference(
    reader: &Reader,
    span: &mut Span,
    input: Option<Vec<Message>>,
    output: Option<Vec<Message>>,
    system: Vec<String>,
) {
    span.role = Role::Inference;
    let mut payloads = std::mem::take(&mut span.payloads);
    let instructions: Vec<Item> = system
        .iter()
        .filter(|s| !s.trim().is_empty())
        .map(|s| reader.text_item(Speaker::System, None, s))
        .collect();
    if let Some(messages) = input {
        span.view_policies = reader.policies_in(&messages);
        let policy_texts: Vec<Message> = system
            .iter()
            .map(|s| Message { speaker: Speaker::System, author: None, parts: vec![Part::Text(s.clone())] })
            .collect();
        for p in reader.policies_in(&policy_texts) {
            if !span.view_policies.contains(&p) {
                span.view_policies.push(p);
            }
        }
        let mut items = instructions;
        items.extend(reader.items(messages, Source::Input, &mut payloads, &mut span.view));
        // Positions of input payloads count from the first message.
        span.input = Some(items);
    } else if !instructions.is_empty() {
        // Instructions without messages: the view is not captured, but whose call it is can be told.
        span.view.lossy = true;
        span.input = Some(instructions);
    }
    if let Some(messages) = output {
        span.output = Some(reader.items(messages, Source::Output, &mut payloads, &mut span.view));
    }
    span.payloads = payloads;
}

/// What a tool span gives for its arguments.
pub(super) enum Arguments<'a> {
    /// An attribute's text or value.
    Given(&'a Value),
    /// The attribute is not there: not captured, or no arguments.
    NotGiven,
}

/// Fills a tool call.
pub(super) fn tool(
    reader: &Reader,
    span: &mut Span,
    name: &str,
    call_id: Option<String>,
    args: Arguments<'_>,
    result: Option<ToolResult>,
) {
    span.role = Role::Tool;
    span.tool = Some(name.to_owned());
    span.call_id = call_id.or_else(|| result.as_ref().and_then(|r| r.call_id.clone()));
    let given = match args {
        Arguments::Given(Value::String(s)) if is_absent(s) && !s.trim().is_empty() => None,
        Arguments::Given(v) => Some(v),
        Arguments::NotGiven => None,
    };
    let item = match given {
        Some(v) => {
            let (item, payload) = reader.call_item(name, span.call_id.clone(), Some(v));
            span.payloads.extend(reader.payload(payload, Source::Output, 0, span.call_id.clone()));
            span.view.cut |= item.cut;
            span.view.masked |= item.args == baton_record::span::Args::Masked;
            item
        }
        None => reader.call_without_args(name, span.call_id.clone()),
    };
    span.input = Some(vec![item]);
    if let Some(r) = result {
        langchain::add_commands(&r.commands, span);
        for c in r.commands {
            if !c.goto.is_empty() && !c.update.is_null() {
                let p = baton_record::contract::read(&c.update, &reader.config().aliases);
                span.payloads.extend(reader.payload(p, Source::Update, 0, span.call_id.clone()));
            }
        }
        let absent = matches!(&r.content, Value::String(s) if is_absent(s));
        if !absent {
            let item = reader.result_item(Some(name.to_owned()), span.call_id.clone(), &r.content, r.error);
            span.output = Some(vec![item]);
        }
    }
    if span.control == Control::Transfer {
        // Its target is added by the caller, which has the raw span.
    }
}

/// Adds what a `Command` in a node's output says.
pub(super) fn node_output(reader: &Reader, span: &mut Span, output: &str) {
    if !output.contains("goto") {
        return;
    }
    let (v, _) = baton_record::json::parse_loose(output);
    let found = langchain::commands(&v);
    langchain::add_commands(&found, span);
    for c in found {
        if !c.goto.is_empty() && !c.update.is_null() {
            let p = baton_record::contract::read(&c.update, &reader.config().aliases);
            span.payloads.extend(reader.payload(p, Source::Update, 0, None));
        }
    }
}

/// Span events that every dialect shares: evaluation results.
pub(super) fn events(raw: &Raw<'_>, span: &mut Span) {
    for (_, a) in raw.events("gen_ai.evaluation.result") {
        evaluation(&a, span);
    }
    if span.control == Control::Transfer {
        langchain::exception_target(raw, span);
    }
}

/// One `gen_ai.evaluation.result`.
pub(super) fn evaluation(a: &Attrs<'_>, span: &mut Span) {
    if let Some(name) = a.text("gen_ai.evaluation.name") {
        span.evaluations.push(Evaluation {
            name: name.to_owned(),
            score: a.number("gen_ai.evaluation.score.value"),
            label: a.text("gen_ai.evaluation.score.label").map(str::to_owned),
        });
    }
}

/// Messages given as text or as a structured value; sets `cut` where they end too early.
pub(super) fn message_attr(attrs: &Attrs<'_>, key: &str, span: &mut Span) -> Option<Vec<Message>> {
    use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
    match attrs.get(key)? {
        Any::StringValue(s) if is_absent(s) => None,
        Any::StringValue(s) => {
            let (m, cut) = messages::from_text(s);
            span.view.cut |= cut;
            Some(m)
        }
        v @ (Any::ArrayValue(_) | Any::KvlistValue(_)) => Some(messages::from_value(&crate::raw::to_json(v))),
        _ => None,
    }
}

/// The texts of an instructions attribute: plain, a list of parts, or a message.
pub(super) fn instructions(v: &Value) -> Vec<String> {
    let v = match v {
        Value::String(s) => match baton_record::json::parse_loose(s) {
            (x @ (Value::Array(_) | Value::Object(_)), _) => x,
            _ => return vec![s.clone()],
        },
        other => other.clone(),
    };
    let mut out = Vec::new();
    collect_texts(&v, &mut out, 0);
    out
}

fn collect_texts(v: &Value, out: &mut Vec<String>, depth: usize) {
    match v {
        Value::String(s) if !s.trim().is_empty() => out.push(s.clone()),
        Value::Array(a) if depth < 4 => a.iter().for_each(|x| collect_texts(x, out, depth + 1)),
        Value::Object(m) if depth < 4 => {
            if let Some(x) = ["content", "text", "parts"].iter().find_map(|k| m.get(*k)) {
                collect_texts(x, out, depth + 1);
            }
        }
        _ => {}
    }
}

/// Why a model stopped, in one word form.
pub(super) fn finish(reason: &str) -> String {
    match reason {
        "tool_call" | "tool_calls" | "tool_use" | "function_call" => "tool_calls",
        "stop" | "end_turn" | "stop_sequence" | "completed" => "stop",
        "length" | "max_tokens" => "length",
        other => other,
    }
    .to_owned()
}
