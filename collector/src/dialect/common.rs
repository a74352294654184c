//! What several dialects do the same way.

use std::sync::Arc;

use baton_record::names::is_placeholder_agent;
use baton_record::span::{Control, Evaluation, Role, Source, Span};
use serde_json::Value;

use super::langchain::{self, ToolResult};
use crate::messages;
use crate::raw::{Any, Attrs, Raw, to_json};
use crate::reading::{Reader, is_absent};
use crate::said::{Instructions, Messages, add_new};

/// The name unless it is a placeholder.
pub(super) fn agent_name(name: Option<&str>) -> Option<String> {
    name.filter(|n| !is_placeholder_agent(n)).map(str::to_owned)
}

/// Fills a model call. `None` messages were not captured.
pub(super) fn inference(
    reader: &Reader,
    span: &mut Span,
    input: Option<Messages<'_>>,
    output: Option<Messages<'_>>,
    system: &Instructions,
) {
    span.role = Role::Inference;
    if let Some(messages) = input {
        let said = reader.said(messages, Source::Input);
        span.view_policies = said.policies;
        add_new(&mut span.view_policies, &system.policies);
        span.view.cut |= said.view.cut;
        span.view.masked |= said.view.masked;
        // Positions of input payloads count from the first message.
        span.payloads.extend(said.payloads);
        span.input = Some([&system.items[..], &said.items].concat());
    } else if !system.items.is_empty() {
        // Instructions without messages: the view is not captured, but whose call it is can be told.
        span.view.lossy = true;
        span.input = Some(system.items.clone());
    }
    if let Some(messages) = output {
        let said = reader.said(messages, Source::Output);
        span.view.cut |= said.view.cut;
        span.view.masked |= said.view.masked;
        span.payloads.extend(said.payloads);
        span.output = Some(said.items);
    }
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
            let (name, id) = (Some(name.to_owned()), span.call_id.clone());
            let item = reader.result_item(name, id, &r.content, r.read.as_ref(), r.error);
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

/// Messages given as text or as a structured value.
pub(super) fn message_attr<'a>(attrs: &Attrs<'a>, key: &str) -> Option<Messages<'a>> {
    match attrs.get(key)? {
        Any::StringValue(s) if is_absent(s) => None,
        Any::StringValue(s) => Some(Messages::Text(s)),
        v @ (Any::ArrayValue(_) | Any::KvlistValue(_)) => {
            Some(Messages::List(messages::from_value(&to_json(v))))
        }
        _ => None,
    }
}

/// What an instructions attribute gives; nothing where it is not there.
pub(super) fn instructions_attr(reader: &Reader, attrs: &Attrs<'_>, key: &str) -> Arc<Instructions> {
    match attrs.get(key) {
        None => Arc::default(),
        Some(Any::StringValue(s)) => {
            reader.instructions_in(s, || instructions(&Value::String((*s).to_owned())))
        }
        Some(v) => Arc::new(reader.instructions(&instructions(&to_json(v)))),
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
