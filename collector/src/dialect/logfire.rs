//! Logfire's instrumentation of the OpenAI Agents SDK. Its other instrumentations follow the GenAI conventions.

use baton_record::json;
use baton_record::span::{Handoff, Role, Signal, Span};
use serde_json::Value;

use super::common::{self, Arguments};
use super::langchain::tool_result;
use super::{Dialect, genai};
use crate::messages::{self, Message};
use crate::raw::{Raw, to_json};
use crate::reading::Reader;
use crate::said::Messages;

/// Logfire.
pub static DIALECT: Dialect = Dialect {
    name: "logfire",
    about: "Logfire's instrumentation of the OpenAI Agents SDK (scope logfire.openai_agents).",
    shows: "Handoff spans with both names, model calls with the raw input items and the whole response, tools with arguments and results.",
    hides: "Tool spans lack the call id. Under the default scrubbing, values that match words such as auth or session are \
            replaced whole, so that leak detection is blind on them.",
    matches: |raw| {
        raw.scope.starts_with("logfire")
            && (raw.attrs.has("logfire.msg_template") || raw.attrs.has("sdk_span_type"))
            && !(raw.attrs.has("gen_ai.operation.name")
                && !raw.attrs.has("raw_input")
                && !raw.attrs.has("response")
                && !raw.attrs.has("events"))
    },
    read,
};

fn read(reader: &Reader, raw: &Raw<'_>, span: &mut Span) {
    let a = raw.attrs;
    let template = a.str("logfire.msg_template").unwrap_or(raw.span.name);
    span.conversation_id =
        a.first_text(&["group_id", "gen_ai.conversation.id", "session.id"]).map(str::to_owned);
    let name = a.text("name");
    if template.starts_with("OpenAI Agents trace") {
        span.role = Role::Workflow;
    } else if a.str("type") == Some("custom") || a.has("sdk_span_type") {
        span.role = Role::Step;
        span.agent = common::agent_name(a.text("agent_name"));
    } else if template.starts_with("Agent run") {
        span.agent = common::agent_name(name.or_else(|| a.text("agent_name")));
        span.role = if span.agent.is_some() { Role::Agent } else { Role::Workflow };
    } else if a.has("from_agent") || a.has("to_agent") {
        handoff(raw, span);
    } else if template.starts_with("Function") {
        let args = a.get("input").map(to_json);
        let result = a.get("output").map(|v| match to_json(v) {
            Value::String(s) => tool_result(&s),
            other => tool_result(&other.to_string()),
        });
        common::tool(
            reader,
            span,
            name.unwrap_or("function"),
            None,
            args.as_ref().map_or(Arguments::NotGiven, Arguments::Given),
            result,
        );
    } else if a.has("raw_input")
        || a.has("response")
        || a.has("events")
        || a.has("request_data")
        || a.has("gen_ai.request.model")
    {
        inference(reader, raw, span);
    } else {
        span.role = Role::Step;
    }
    span.view.masked |= a.text("logfire.scrubbed").is_some_and(|s| s.len() > 4);
}

fn handoff(raw: &Raw<'_>, span: &mut Span) {
    let a = raw.attrs;
    span.role = Role::Handoff;
    let mut requested = Vec::new();
    if let Some(Value::Object(e)) = a.text("error").and_then(json::parse)
        && let Some(list) = e.get("data").and_then(|d| d.get("requested_agents")).and_then(Value::as_array)
    {
        requested = list.iter().filter_map(Value::as_str).map(str::to_owned).collect();
    }
    span.handoff = Some(Handoff {
        signal: Signal::Explicit,
        from: a.text("from_agent").map(str::to_owned),
        to: a.text("to_agent").map(str::to_owned).into_iter().collect(),
        requested,
        ..Handoff::default()
    });
}

fn inference(reader: &Reader, raw: &Raw<'_>, span: &mut Span) {
    let a = raw.attrs;
    genai::usage(raw, span);
    let parse = |key: &str| a.text(key).map(|s| json::parse_loose(s).0);
    let response = parse("response").or_else(|| parse("response_data"));
    let events = parse("events");
    span.response_id = span.response_id.take().or_else(|| a.text("response_id").map(str::to_owned));
    if let Some(r) = &response {
        span.previous_response_id = r.get("previous_response_id").and_then(Value::as_str).map(str::to_owned);
    }
    let mut system =
        response.as_ref().and_then(|r| r.get("instructions")).map(common::instructions).unwrap_or_default();
    let mut input: Option<Vec<Message>> =
        parse("raw_input").or_else(|| parse("input")).map(|v| messages::from_value(&v));
    if input.is_none() {
        input =
            parse("request_data").and_then(|r| r.get("messages").cloned()).map(|m| messages::from_value(&m));
    }
    let mut output: Option<Vec<Message>> = response
        .as_ref()
        .and_then(|r| r.get("output").or_else(|| r.get("message")))
        .map(messages::from_value)
        .or_else(|| parse("output").map(|v| messages::from_value(&v)))
        .map(|ms| {
            ms.into_iter()
                .map(|mut m| {
                    if m.speaker == baton_record::span::Speaker::User {
                        m.speaker = baton_record::span::Speaker::Assistant;
                    }
                    m
                })
                .collect()
        });
    if let Some(Value::Array(list)) = &events {
        // Input and output in one list: what follows the last message that is no assistant's is the output.
        let split = list.iter().rposition(|e| !is_assistant(e)).map_or(0, |i| i + 1);
        if system.is_empty() {
            system = list
                .iter()
                .filter(|e| e.get("role").and_then(Value::as_str) == Some("system"))
                .filter_map(|e| e.get("content"))
                .flat_map(common::instructions)
                .collect();
        }
        if input.is_none() {
            let without_system = |e: &&Value| e.get("role").and_then(Value::as_str) != Some("system");
            let before: Vec<Value> = list[..split].iter().filter(without_system).cloned().collect();
            input = Some(messages::from_value(&Value::Array(before)));
        }
        if output.is_none() {
            output = Some(messages::from_value(&Value::Array(list[split..].to_vec())));
        }
    }
    let system = reader.instructions(&system);
    common::inference(reader, span, input.map(Messages::List), output.map(Messages::List), &system);
    span.view.hidden |= span.previous_response_id.is_some();
}

fn is_assistant(e: &Value) -> bool {
    e.get("role").and_then(Value::as_str) == Some("assistant")
        || matches!(
            e.get("event.name").and_then(Value::as_str),
            Some("gen_ai.choice" | "gen_ai.assistant.message")
        )
}
