//! OpenTelemetry GenAI semantic conventions: the current ones, the older event forms, and the transfer proposals.
//!
//! This is also what a framework nobody listed is read by: `gen_ai.*` attributes and general tool names.

use baton_record::names::is_placeholder_agent;
use baton_record::span::{Handoff, Role, Signal, Span};
use serde_json::{Map, Value};

use super::common::{self, Arguments};
use super::langchain::tool_result;
use super::{Dialect, flatten};
use crate::messages::{self, Message};
use crate::raw::{Any, Attrs, Raw, to_json};
use crate::reading::{Reader, is_absent};
use crate::said::{Instructions, Messages};

/// OTel GenAI semconv.
pub static DIALECT: Dialect = Dialect {
    name: "genai",
    about: "OpenTelemetry GenAI conventions, by any instrumentation: gen_ai.* attributes on spans, span events and log records.",
    shows: "Agents, model calls, tools, and with content on the messages on both sides of a transfer. Transfer attributes \
            (gen_ai.transfer.*, gen_ai.agent.handoff.*) where an instrumentation has them.",
    hides: "Mostly there is no handoff span: transfers are told by tool names and by which agent runs next. Graph state and \
            node names are not shown; with content off, neither is any payload.",
    matches: |_| true,
    read,
};

/// Reads any `gen_ai.*` span.
pub(super) fn read(reader: &Reader, raw: &Raw<'_>, span: &mut Span) {
    identity(raw, span);
    let a = raw.attrs;
    let op = a.str("gen_ai.operation.name").unwrap_or_default();
    let mcp = a.str("mcp.method.name");
    match op {
        _ if mcp.is_some_and(|m| m != "tools/call") => {}
        "chat" | "text_completion" | "generate_content" | "completion" | "inference" => {
            read_inference(reader, raw, span)
        }
        "invoke_agent" => {
            let own =
                a.first_text(&["gen_ai.agent.name", "gen_ai.agent.id"]).filter(|n| !is_placeholder_agent(n));
            span.role = if own.is_some() { Role::Agent } else { Role::Workflow };
        }
        "create_agent" => span.role = Role::Definition,
        "invoke_workflow" => {
            span.role = Role::Workflow;
            span.node = a.text("gen_ai.workflow.name").map(str::to_owned);
        }
        "execute_tool" => read_tool(reader, raw, span),
        "plan" | "execute_task" => span.role = Role::Step,
        "handoff" | "agent_handoff" | "transfer" => span.role = Role::Handoff,
        "" if a.has("gen_ai.tool.name") || mcp.is_some() => read_tool(reader, raw, span),
        "" if a.any_under("gen_ai.usage.")
            || a.has("gen_ai.response.id")
            || a.has("gen_ai.input.messages")
            || a.any_under("gen_ai.prompt.")
            || a.str("llm.request.type") == Some("chat") =>
        {
            read_inference(reader, raw, span);
        }
        "" if a.has("gen_ai.agent.name") => {
            span.role = if span.agent.is_some() { Role::Agent } else { Role::Workflow }
        }
        _ => {}
    }
    transfer(raw, span);
}

/// Names and ids that may stand on any span.
pub(super) fn identity(raw: &Raw<'_>, span: &mut Span) {
    let a = raw.attrs;
    span.agent = common::agent_name(a.text("gen_ai.agent.name"));
    span.agent_id = a.text("gen_ai.agent.id").map(str::to_owned);
    span.conversation_id = a
        .first_text(&["gen_ai.conversation.id", "session.id", "thread.id", "langgraph.thread_id"])
        .map(str::to_owned);
}

/// `gen_ai.transfer.*` (semantic-conventions-genai #447), `gen_ai.agent.handoff.*` (#98), and the names in use.
pub(super) fn transfer(raw: &Raw<'_>, span: &mut Span) {
    let a = raw.attrs;
    let to = a.first_text(&[
        "gen_ai.transfer.target.name",
        "gen_ai.agent.handoff.target.name",
        "gen_ai.handoff.to_agent",
    ]);
    let from = a.first_text(&["gen_ai.agent.handoff.source.name", "gen_ai.handoff.from_agent"]);
    let mode = a.text("gen_ai.transfer.mode");
    if to.is_none() && from.is_none() && mode.is_none() {
        return;
    }
    let h = span.handoff.get_or_insert_with(|| Handoff { signal: Signal::Explicit, ..Handoff::default() });
    h.from = h.from.take().or_else(|| from.map(str::to_owned)).or_else(|| span.agent.clone());
    if h.to.is_empty() {
        h.to.extend(to.map(str::to_owned));
    }
    h.mode = h.mode.take().or_else(|| mode.map(str::to_owned));
}

/// A model call.
pub(super) fn read_inference(reader: &Reader, raw: &Raw<'_>, span: &mut Span) {
    usage(raw, span);
    let a = raw.attrs;
    let mut input = common::message_attr(a, "gen_ai.input.messages");
    let mut output = common::message_attr(a, "gen_ai.output.messages");
    let mut system = common::instructions_attr(reader, a, "gen_ai.system_instructions");
    // OpenLLMetry's flattening, also older ones of others.
    let flat = |prefix: &str| flatten::tree(a, prefix).map(|v| Messages::List(messages::from_value(&v)));
    if input.is_none() {
        input = flat("gen_ai.prompt.").or_else(|| common::message_attr(a, "gen_ai.prompt"));
    }
    if output.is_none() {
        output = flat("gen_ai.completion.").or_else(|| common::message_attr(a, "gen_ai.completion"));
    }
    // Messages in span events: the details event, or one event per message.
    for e in &raw.span.events {
        let ea = e.attrs();
        if e.name == "gen_ai.client.inference.operation.details" {
            input = input.or_else(|| common::message_attr(&ea, "gen_ai.input.messages"));
            output = output.or_else(|| common::message_attr(&ea, "gen_ai.output.messages"));
            if system.is_empty {
                system = common::instructions_attr(reader, &ea, "gen_ai.system_instructions");
            }
        } else if let Some(m) = event_message(e.name, &ea, None) {
            let list = if e.name == "gen_ai.choice" { &mut output } else { &mut input };
            span.view.cut |= add(list, m);
        }
    }
    common::inference(reader, span, input, output, &system);
    span.view.hidden |= span.previous_response_id.is_some();
    apply_lengths(raw, span);
}

/// Adds a message to those there are; true where their text was cut off.
fn add(list: &mut Option<Messages<'_>>, m: Message) -> bool {
    let (mut all, cut) = list.take().map(Messages::parse).unwrap_or_default();
    all.push(m);
    *list = Some(Messages::List(all));
    cut
}

/// Model, ids and usage.
pub(super) fn usage(raw: &Raw<'_>, span: &mut Span) {
    let a = raw.attrs;
    span.model = a.first_text(&["gen_ai.response.model", "gen_ai.request.model"]).map(str::to_owned);
    span.response_id = a.text("gen_ai.response.id").map(str::to_owned);
    span.previous_response_id = a
        .first_text(&[
            "gen_ai.request.previous_response.id",
            "gen_ai.request.previous_response_id",
            "openai.request.previous_response_id",
        ])
        .map(str::to_owned);
    span.input_tokens =
        a.first_int(&["gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.usage.prompt_tokens"]);
    span.output_tokens = a.first_int(&[
        "gen_ai.usage.output_tokens",
        "gen_ai.usage.completion_tokens",
        "llm.usage.completion_tokens",
    ]);
    span.finish = a.strings("gen_ai.response.finish_reasons").last().map(|f| common::finish(f));
}

/// Values of one length that is a limit exporters are set to: the rest of them is gone. Two values of any other length
/// are a coincidence, three are not.
pub(super) fn apply_lengths(raw: &Raw<'_>, span: &mut Span) {
    let mut longest = 0;
    let mut values: Vec<&str> = Vec::new();
    for (_, v) in raw.attrs.iter() {
        if let Any::StringValue(s) = v {
            let n = s.chars().count();
            if n > longest {
                longest = n;
                values.clear();
            }
            if n == longest && !values.contains(s) {
                values.push(s);
            }
        }
    }
    if longest >= 64 && (values.len() >= 3 || (values.len() == 2 && is_length_limit(longest))) {
        span.view.cut = true;
    }
}

/// Lengths that attribute limits are set to.
fn is_length_limit(n: usize) -> bool {
    n.is_power_of_two()
        || (n + 1).is_power_of_two()
        || (n >= 100 && n.is_multiple_of(100))
        || n.is_multiple_of(1024)
        || n == 250
}

fn read_tool(reader: &Reader, raw: &Raw<'_>, span: &mut Span) {
    let a = raw.attrs;
    let fallback = raw
        .span
        .name
        .strip_prefix("execute_tool ")
        .or_else(|| raw.span.name.strip_prefix("tools/call "))
        .unwrap_or(raw.span.name);
    // A name that is there and is no text (bytes) is not replaced by the span's.
    let name = a.text("gen_ai.tool.name").unwrap_or(fallback);
    let args = a.get("gen_ai.tool.call.arguments").map(to_json);
    let result = result_of(a, "gen_ai.tool.call.result");
    let call_id = a.text("gen_ai.tool.call.id").map(str::to_owned);
    common::tool(
        reader,
        span,
        name,
        call_id,
        args.as_ref().map_or(Arguments::NotGiven, Arguments::Given),
        result,
    );
    if a.flag("gen_ai.tool.call.is_error") == Some(true)
        && let Some(r) = span.output.as_mut().and_then(|o| o.first_mut())
    {
        r.error = Some(true);
    }
}

/// A result attribute as a tool result.
pub(super) fn result_of(a: &Attrs<'_>, key: &str) -> Option<super::langchain::ToolResult> {
    match a.get(key)? {
        Any::StringValue(s) if is_absent(s) && !s.is_empty() => None,
        Any::StringValue(s) => Some(tool_result(s)),
        v => Some(tool_result(&to_json(v).to_string())),
    }
}

/// `gen_ai.user.message` and its sisters, and `gen_ai.choice`, as span events or log records. Missing
/// arguments of a call are not known to be empty here: content capture may be off.
fn event_message(name: &str, attrs: &Attrs<'_>, body: Option<&Any<'_>>) -> Option<Message> {
    let who = match name {
        "gen_ai.choice" => "assistant",
        _ => name.strip_prefix("gen_ai.")?.strip_suffix(".message")?,
    };
    let mut m: Map<String, Value> = match body.map(to_json) {
        Some(Value::Object(m)) => m,
        Some(Value::String(s)) => [("content".to_owned(), Value::String(s))].into_iter().collect(),
        _ => Map::new(),
    };
    // In the order of keys: of two that mean the same the first counts.
    let mut pairs: Vec<_> = attrs.iter().collect();
    pairs.sort_unstable_by_key(|(k, _)| *k);
    for (k, v) in pairs {
        let k = k.strip_prefix("gen_ai.event.").unwrap_or(k);
        if matches!(k, "content" | "gen_ai.event.content" | "message" | "tool_calls" | "id" | "name" | "role")
        {
            let v = match v {
                Any::StringValue(s) if k != "content" && k != "id" && k != "name" && k != "role" => {
                    baton_record::json::parse_loose(s).0
                }
                other => to_json(other),
            };
            m.entry(k.to_owned()).or_insert(v);
        }
    }
    m.insert("event.name".to_owned(), Value::String(name.to_owned()));
    if name != "gen_ai.choice" && !m.contains_key("role") {
        m.insert("role".to_owned(), Value::String(who.to_owned()));
    }
    if name == "gen_ai.choice" && !m.contains_key("message") {
        m.insert("role".to_owned(), Value::String("assistant".to_owned()));
    }
    messages::from_value(&Value::Object(m)).into_iter().next()
}

/// Reads a log record of these conventions; false where it says nothing.
pub(super) fn read_log(
    reader: &Reader,
    attrs: &Attrs<'_>,
    body: Option<&Any<'_>>,
    name: &str,
    span: &mut Span,
) -> bool {
    if name == "gen_ai.evaluation.result" {
        common::evaluation(attrs, span);
        return !span.evaluations.is_empty();
    }
    if name == "gen_ai.client.inference.operation.details" {
        let input = common::message_attr(attrs, "gen_ai.input.messages");
        let output = common::message_attr(attrs, "gen_ai.output.messages");
        let system = common::instructions_attr(reader, attrs, "gen_ai.system_instructions");
        if input.is_none() && output.is_none() {
            return false;
        }
        span.response_id = attrs.text("gen_ai.response.id").map(str::to_owned);
        common::inference(reader, span, input, output, &system);
        return true;
    }
    let Some(m) = event_message(name, attrs, body) else { return false };
    let (list, system) = (Some(Messages::List(vec![m])), Instructions::default());
    if name == "gen_ai.choice" {
        common::inference(reader, span, None, list, &system);
    } else {
        common::inference(reader, span, list, None, &system);
    }
    true
}
