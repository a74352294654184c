//! LangSmith's OpenTelemetry export: every run of LangChain and LangGraph, middleware included.

use baton_record::names::slug;
use baton_record::span::{Control, Role, Span, Status};
use serde_json::Value;

use super::common::{self, Arguments};
use super::langchain::{Metadata, tool_result};
use super::openinference::response_id;
use super::{Dialect, genai};
use crate::messages::{self, Message};
use crate::raw::Raw;
use crate::reading::{Reader, is_absent};
use crate::said::{Instructions, Messages};

/// LangSmith.
pub static DIALECT: Dialect = Dialect {
    name: "langsmith",
    about: "LangSmith's OpenTelemetry export (scope langsmith) of LangChain, LangGraph and Deep Agents runs.",
    shows: "Agents by metadata, nodes with their state and commands, tools with call ids, arguments and results, model calls with messages.",
    hides: "No handoff span, no response id, no finish reason; the status of runs that outlive one export stays OK although they \
            failed (the exception event tells). With content off, token usage is gone too.",
    matches: |raw| raw.attrs.has("langsmith.span.kind") || raw.scope == "langsmith",
    read,
};

fn read(reader: &Reader, raw: &Raw<'_>, span: &mut Span) {
    let a = raw.attrs;
    let prompt = a.text("gen_ai.prompt").filter(|s| !is_absent(s) && s.trim() != "{}");
    let completion = a.text("gen_ai.completion").filter(|s| !is_absent(s) && s.trim() != "{}");
    let name = a.text("langsmith.trace.name").unwrap_or(raw.span.name);
    // OK is final in this export; a real exception on the span overrules it.
    if span.status != Status::Error
        && span.control == Control::None
        && let Some((_, e)) = raw.events("exception").next()
    {
        span.status = Status::Error;
        span.error = Some(e.text("exception.type").unwrap_or("Exception").to_owned());
    }
    match a.str("langsmith.span.kind").unwrap_or_default() {
        "llm" => {
            genai::usage(raw, span);
            let input = prompt.map(Messages::Text);
            let parsed = completion.map(baton_record::json::parse_loose);
            span.response_id =
                span.response_id.take().or_else(|| parsed.as_ref().and_then(|(v, _)| response_id(v)));
            let output = parsed
                .as_ref()
                .map(|(v, _)| messages::from_value(v).into_iter().map(as_assistant).collect::<Vec<_>>());
            span.view.cut |= parsed.as_ref().is_some_and(|(_, f)| *f == baton_record::json::Form::Truncated);
            common::inference(reader, span, input, output.map(Messages::List), &Instructions::default());
        }
        "tool" => {
            let tool_name = a.text("gen_ai.tool.name").unwrap_or(name);
            let args = prompt.map(|s| Value::String(s.to_owned()));
            // `{}` is both "content off" and "no arguments"; a result tells which.
            let no_args = Value::Object(serde_json::Map::new());
            let given = match (&args, completion) {
                (Some(v), _) => Arguments::Given(v),
                (None, Some(_)) if a.has("gen_ai.prompt") => Arguments::Given(&no_args),
                _ => Arguments::NotGiven,
            };
            common::tool(
                reader,
                span,
                tool_name,
                a.text("gen_ai.tool.call.id").map(str::to_owned),
                given,
                completion.map(tool_result),
            );
        }
        "chain" | "prompt" | "parser" => {
            span.role = if raw.span.parent_span_id.is_empty() { Role::Workflow } else { Role::Step }
        }
        _ => {}
    }
    let p = |k: &str| a.text(k).map(str::to_owned);
    let meta = Metadata {
        agent: p("langsmith.metadata.lc_agent_name"),
        node: p("langsmith.metadata.langgraph_node"),
        thread: p("langsmith.metadata.thread_id")
            .or_else(|| p("langsmith.metadata.session_id"))
            .or_else(|| p("langsmith.metadata.conversation_id")),
        integration: None,
    };
    if span.role == Role::Workflow && meta.agent.as_deref().is_some_and(|n| slug(n) == slug(name)) {
        span.role = Role::Step;
    }
    meta.apply(name, span);
    if matches!(span.role, Role::Step | Role::Agent) {
        if let Some(out) = completion {
            common::node_output(reader, span, out);
        }
        if span.node.as_ref().is_some_and(|n| slug(n) != slug(name)) {
            span.node = None;
        }
    }
}

fn as_assistant(mut m: Message) -> Message {
    if m.speaker == baton_record::span::Speaker::User {
        m.speaker = baton_record::span::Speaker::Assistant;
    }
    m
}
