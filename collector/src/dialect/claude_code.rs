//! The Claude Agent SDK's own export (the command line's telemetry).

use baton_record::span::{Handoff, Role, Signal, Span};
use serde_json::Value;

use super::common::{self, Arguments};
use super::langchain::tool_result;
use super::{Dialect, genai};
use crate::raw::{Any, Attrs, Raw};
use crate::reading::Reader;
use crate::said::Instructions;

/// Claude Code and the Claude Agent SDK.
pub static DIALECT: Dialect = Dialect {
    name: "claude-code",
    about: "The Claude Agent SDK's own export (scope com.anthropic.claude_code.*), spans and log records.",
    shows: "Model calls with usage, tools with results, delegations by the tool Agent with the sub-agent's type; arguments in log records.",
    hides: "Message history, instructions and filtering. Spans hold no tool arguments; without the log records (or with tool \
            details off) payloads and repeats are unknown.",
    matches: |raw| raw.scope.starts_with("com.anthropic.claude_code"),
    read,
};

fn read(reader: &Reader, raw: &Raw<'_>, span: &mut Span) {
    let a = raw.attrs;
    // In a sub-agent's spans the conversation id is the sub-agent's; the session stays.
    span.conversation_id = a.first_text(&["session.id", "gen_ai.conversation.id"]).map(str::to_owned);
    span.agent_id = a.text("agent_id").map(str::to_owned);
    match a.str("span.type").unwrap_or_default() {
        "interaction" => span.role = Role::Workflow,
        "llm_request" => {
            genai::usage(raw, span);
            span.finish = a.text("stop_reason").map(common::finish);
            common::inference(reader, span, None, None, &Instructions::default());
        }
        "tool" => {
            let name = a.first_text(&["tool_name", "gen_ai.tool.name"]).unwrap_or(raw.span.name);
            let result = raw.events("tool.output").find_map(|(_, e)| e.text("output").map(tool_result));
            common::tool(reader, span, name, call_id(a), Arguments::NotGiven, result);
            if let Some(t) = a.text("subagent_type") {
                span.handoff =
                    Some(Handoff { signal: Signal::Command, to: vec![t.to_owned()], ..Handoff::default() });
            }
        }
        "tool.execution" => {
            // The same call once more, with its outcome.
            span.role = Role::Tool;
            span.call_id = call_id(a);
            if a.flag("success") == Some(false) && span.error.is_none() {
                span.status = baton_record::span::Status::Error;
                span.error = Some(a.first_text(&["error.type", "error_class"]).unwrap_or("error").to_owned());
            }
        }
        _ => span.role = Role::Step,
    }
}

fn call_id(a: &Attrs<'_>) -> Option<String> {
    a.first_text(&["gen_ai.tool.call.id", "tool_use_id"]).map(str::to_owned)
}

/// `claude_code.tool_result` records carry the arguments; the event's name is the body.
pub(super) fn read_log(reader: &Reader, a: &Attrs<'_>, body: Option<&Any<'_>>, span: &mut Span) -> bool {
    let name = match body {
        Some(Any::StringValue(s)) => s.strip_prefix("claude_code.").unwrap_or(s),
        _ => a.str("event.name").unwrap_or_default(),
    };
    if name != "tool_result" {
        return false;
    }
    let Some(id) = a.first_text(&["tool_use_id", "gen_ai.tool.call.id"]) else { return false };
    let Some(input) = a.text("tool_input") else { return false };
    let tool = match (a.text("tool_name"), a.text("tool_parameters").and_then(baton_record::json::parse)) {
        (Some("mcp_tool"), Some(p)) => ["mcp_tool_name", "tool_name"]
            .iter()
            .find_map(|k| p.get(*k).and_then(Value::as_str))
            .unwrap_or("mcp_tool")
            .to_owned(),
        (Some(t), _) => t.to_owned(),
        _ => return false,
    };
    common::tool(
        reader,
        span,
        &tool,
        Some(id.to_owned()),
        Arguments::Given(&Value::String(input.to_owned())),
        None,
    );
    if a.flag("success") == Some(false) {
        span.status = baton_record::span::Status::Error;
        span.error = Some(a.text("error_type").unwrap_or("error").to_owned());
    }
    true
}
