//! OpenInference (Arize): `openinference.span.kind`, flattened messages, `input.value` and `output.value`.

use baton_record::json;
use baton_record::names::slug;
use baton_record::span::{Handoff, Role, Signal, Span};
use serde_json::Value;

use super::common::{self, Arguments};
use super::langchain::{Metadata, tool_result};
use super::{Dialect, flatten, genai};
use crate::messages::{self, Message};
use crate::raw::Raw;
use crate::reading::{Reader, is_absent};
use crate::said::{Instructions, Messages};

/// OpenInference.
pub static DIALECT: Dialect = Dialect {
    name: "openinference",
    about: "OpenInference (Arize Phoenix) instrumentations of the OpenAI Agents SDK, LangChain, LangGraph, the Claude Agent SDK, clients.",
    shows: "Handoff spans with both names, the sender on the receiver's span, messages, tools with arguments and results, graph \
            nodes with their state and commands.",
    hides: "No payload on the handoff span. Tool spans lack the call id in most SDKs, and the name of a single text argument. The \
            kind AGENT only means that the span's name holds \"agent\". The 128-attribute limit drops the oldest messages.",
    matches: |raw| raw.attrs.has("openinference.span.kind"),
    read,
};

fn read(reader: &Reader, raw: &Raw<'_>, span: &mut Span) {
    let a = raw.attrs;
    span.conversation_id = a.text("session.id").map(str::to_owned);
    let own_agent = common::agent_name(a.text("agent.name"));
    span.parent_agent = a.text("graph.node.parent_id").map(str::to_owned);
    let kind = a.str("openinference.span.kind").unwrap_or_default();
    let output = a.text("output.value").filter(|s| !is_absent(s));
    match kind {
        "LLM" => inference(reader, raw, span),
        "TOOL" => match raw.span.name.strip_prefix("handoff to ") {
            Some(target) if !a.has("tool.name") => {
                span.role = Role::Handoff;
                let to = output.unwrap_or(target);
                span.handoff = Some(Handoff {
                    signal: Signal::Explicit,
                    from: a.text("input.value").filter(|s| !is_absent(s)).map(str::to_owned),
                    to: (!to.is_empty()).then(|| to.to_owned()).into_iter().collect(),
                    ..Handoff::default()
                });
            }
            _ => tool(reader, raw, span),
        },
        "AGENT" if own_agent.is_some() => {
            span.role = Role::Agent;
            span.agent = own_agent;
        }
        "AGENT" | "CHAIN" if raw.span.parent_span_id.is_empty() => span.role = Role::Workflow,
        "AGENT" | "CHAIN" => {
            span.role = Role::Step;
            span.agent = own_agent;
        }
        _ => {}
    }
    if let Some(m) = a.text("metadata") {
        let meta = Metadata::from_json(m);
        let root_agent = span.role == Role::Workflow
            && meta.agent.as_deref().is_some_and(|n| slug(n) == slug(raw.span.name));
        let graph = meta.integration.as_deref().is_some_and(|i| i.starts_with("lang") || i == "deepagents");
        if root_agent {
            span.role = Role::Step; // becomes an agent by its own name
        }
        meta.apply(raw.span.name, span);
        if graph
            && span.role == Role::Step
            && span.node.as_ref().is_some_and(|n| slug(n) != slug(raw.span.name))
        {
            span.node = None;
        }
    }
    if matches!(span.role, Role::Step | Role::Agent)
        && let Some(out) = output
    {
        common::node_output(reader, span, out);
    }
    genai::transfer(raw, span);
}

fn inference(reader: &Reader, raw: &Raw<'_>, span: &mut Span) {
    let a = raw.attrs;
    let output_value = a.text("output.value").filter(|s| !is_absent(s));
    let output_json =
        output_value.filter(|s| s.trim_start().starts_with('{')).map(|s| json::parse_loose(s).0);
    span.model = a.first_text(&["llm.model_name", "gen_ai.response.model"]).map(str::to_owned);
    span.response_id = a
        .first_text(&["gen_ai.response.id", "llm.response.id"])
        .map(str::to_owned)
        .or_else(|| output_json.as_ref().and_then(response_id));
    span.previous_response_id = previous_response(output_json.as_ref(), a.text("llm.invocation_parameters"));
    span.input_tokens = a.first_int(&["llm.token_count.prompt", "gen_ai.usage.input_tokens"]);
    span.output_tokens = a.first_int(&["llm.token_count.completion", "gen_ai.usage.output_tokens"]);
    span.finish = a.text("llm.finish_reason").map(common::finish);
    let flat =
        |prefix: &str| flatten::tree(a, prefix).map(|v| messages::from_value(&flatten::openinference(v)));
    let mut input = flat("llm.input_messages.");
    if input.is_none() {
        input = whole_list(a.text("input.value"), span);
    }
    let mut output = flat("llm.output_messages.");
    if output.is_none() {
        output = output_json
            .as_ref()
            .map(|v| messages::from_value(v).into_iter().map(as_output).collect::<Vec<_>>())
            .filter(|m| !m.is_empty());
    }
    let (input, output) = (input.map(Messages::List), output.map(Messages::List));
    common::inference(reader, span, input, output, &Instructions::default());
    span.view.hidden = span.previous_response_id.is_some();
    span.view.cut |= raw.span.dropped_attributes_count > 0;
    genai::apply_lengths(raw, span);
}

/// `input.value` of a model call as messages, where the flattened ones lack.
fn whole_list(value: Option<&str>, span: &mut Span) -> Option<Vec<Message>> {
    let value = value.filter(|s| !is_absent(s))?;
    let (m, cut) = messages::from_text(value);
    span.view.cut |= cut;
    (!m.is_empty()).then_some(m)
}

fn as_output(mut m: Message) -> Message {
    if m.speaker == baton_record::span::Speaker::User {
        m.speaker = baton_record::span::Speaker::Assistant;
    }
    m
}

/// The provider's id inside a serialised answer.
pub(super) fn response_id(v: &Value) -> Option<String> {
    let text = |v: &Value, path: &[&str]| {
        path.iter()
            .try_fold(v, |v, k| if let Ok(i) = k.parse::<usize>() { v.get(i) } else { v.get(*k) })
            .and_then(Value::as_str)
            .filter(|s| !s.is_empty())
            .map(str::to_owned)
    };
    text(v, &["generations", "0", "0", "message", "kwargs", "response_metadata", "id"])
        .or_else(|| text(v, &["generations", "0", "0", "message", "response_metadata", "id"]))
        .or_else(|| text(v, &["response_metadata", "id"]))
        .or_else(|| {
            text(v, &["id"]).filter(|_| {
                v.get("object").is_some()
                    || v.get("output").is_some()
                    || v.get("choices").is_some()
                    || v.get("usage").is_some()
                    || v.get("content").is_some()
            })
        })
}

fn previous_response(output: Option<&Value>, parameters: Option<&str>) -> Option<String> {
    let of = |v: &Value| {
        v.get("previous_response_id").and_then(Value::as_str).filter(|s| !s.is_empty()).map(str::to_owned)
    };
    output.and_then(of).or_else(|| {
        parameters.filter(|p| p.contains("previous_response_id")).and_then(json::parse).as_ref().and_then(of)
    })
}

fn tool(reader: &Reader, raw: &Raw<'_>, span: &mut Span) {
    let a = raw.attrs;
    let name = a.text("tool.name").unwrap_or(raw.span.name);
    let args = a
        .first_text(&["input.value", "tool.parameters"])
        .filter(|s| a.has("input.value") || s.trim_start().starts_with('{'));
    // `tool.parameters` is the arguments in some SDKs and the schema in others.
    let args = args
        .filter(|s| a.has("input.value") || !s.contains("\"properties\""))
        .map(|s| Value::String(s.to_owned()));
    let result = a.text("output.value").map(tool_result);
    let call_id = a.first_text(&["tool_call.id", "tool.id", "gen_ai.tool.call.id"]).map(str::to_owned);
    common::tool(
        reader,
        span,
        name,
        call_id,
        args.as_ref().map_or(Arguments::NotGiven, Arguments::Given),
        result,
    );
    if let (Some(out), true) = (
        span.output.as_ref(),
        span.input.as_ref().is_some_and(|i| i[0].args == baton_record::span::Args::Absent),
    ) && !out.is_empty()
        && !a.has("input.value")
    {
        // Content is captured (there is a result), so arguments that are not there were not given.
        let (item, payload) = reader.call_item(name, span.call_id.clone(), None);
        span.payloads.extend(reader.payload(
            payload,
            baton_record::span::Source::Output,
            0,
            span.call_id.clone(),
        ));
        span.input = Some(vec![item]);
    }
}
