//! OpenLLMetry (Traceloop): `traceloop.*` beside `gen_ai.*`, for the OpenAI Agents SDK, LangGraph, clients.

use baton_record::names::{is_placeholder_agent, slug};
use baton_record::span::{Handoff, Role, Signal, Span};
use serde_json::Value;

use super::common::{self, Arguments};
use super::langchain::{Metadata, tool_result};
use super::{Dialect, genai};
use crate::raw::{Raw, to_json};
use crate::reading::{Reader, is_absent};

/// OpenLLMetry.
pub static DIALECT: Dialect = Dialect {
    name: "openllmetry",
    about: "OpenLLMetry (Traceloop) instrumentations of the OpenAI Agents SDK, LangChain, LangGraph and model clients.",
    shows: "Handoff spans with the sender, goto spans of LangGraph commands, agents, tools with arguments and results, model \
            calls with messages (older versions: gen_ai.prompt.N.*).",
    hides: "The Agents SDK handoff span mostly lacks the receiver; chat completions of that SDK have no output and no \
            usage; tool call ids differ between input and output. With content off nothing but names is left.",
    matches: |raw| {
        raw.attrs.any_under("traceloop.")
            || raw.attrs.any_under("langgraph.command.")
            || raw.attrs.any_under("gen_ai.workflow.")
            || raw.attrs.any_under("gen_ai.task.")
            || raw.attrs.any_under("gen_ai.prompt.0.")
            || raw.attrs.any_under("gen_ai.completion.0.")
    },
    read,
};

fn read(reader: &Reader, raw: &Raw<'_>, span: &mut Span) {
    let a = raw.attrs;
    genai::identity(raw, span);
    if let Some(id) = a.first_text(&[
        "traceloop.association.properties.thread_id",
        "traceloop.association.properties.session_id",
        "traceloop.association.properties.conversation_id",
    ]) {
        span.conversation_id.get_or_insert_with(|| id.to_owned());
    }
    let op = a.str("gen_ai.operation.name").unwrap_or_default();
    let entity = a.text("traceloop.entity.name");
    let kind = a.str("traceloop.span.kind").unwrap_or_default();
    match (kind, op) {
        (_, "goto") => goto(raw, span),
        ("handoff", _) | (_, "handoff" | "agent_handoff") => span.role = Role::Handoff,
        ("tool", _) | (_, "execute_tool") => tool(reader, raw, entity, span),
        ("workflow", _) => {
            // The graph's own name stands as an agent here; it is a container.
            span.role = Role::Workflow;
            span.agent = None;
        }
        ("agent", _) | (_, "invoke_agent") => {
            span.agent = span.agent.take().or_else(|| common::agent_name(entity));
            let named = a.text("gen_ai.agent.name").or(entity).is_some_and(|n| !is_placeholder_agent(n));
            // A graph of agents is reported by the same operation as one agent; an agent's graph has a node `model`.
            let nodes = a.strings("gen_ai.workflow.nodes");
            let graph = !nodes.is_empty() && !nodes.iter().any(|n| matches!(n.as_str(), "model" | "agent"));
            span.role = if named && !graph { Role::Agent } else { Role::Workflow };
            if graph {
                span.agent = None;
            }
        }
        ("task", _) | (_, "execute_task") => {
            span.role = Role::Step;
            span.agent = None;
        }
        (_, "create_agent") => span.role = Role::Definition,
        _ => {
            genai::read(reader, raw, span);
            if span.role == Role::Agent && kind.is_empty() && op.is_empty() {
                span.role = Role::Other;
            }
        }
    }
    genai::transfer(raw, span);
    let p = |k: &str| a.text(k).map(str::to_owned);
    let meta = Metadata {
        agent: p("traceloop.association.properties.lc_agent_name"),
        node: p("traceloop.association.properties.langgraph_node"),
        thread: None,
        integration: p("traceloop.association.properties.ls_integration"),
    };
    let own = a.first_text(&["gen_ai.task.name", "traceloop.entity.name"]).unwrap_or(raw.span.name);
    if meta.agent.is_some() || meta.node.is_some() {
        meta.apply(own, span);
    }
    if span.role == Role::Step {
        if let Some(out) = a.first_text(&["traceloop.entity.output", "gen_ai.task.output"]) {
            common::node_output(reader, span, out);
        }
        // A middle-ware or inner node bears another name than the node it runs in.
        if span.node.as_ref().is_some_and(|n| slug(n) != slug(own)) {
            span.node = None;
        }
    }
}

fn goto(raw: &Raw<'_>, span: &mut Span) {
    span.role = Role::Handoff;
    let a = raw.attrs;
    let mut to = a.strings("langgraph.command.goto_nodes");
    to.extend(a.text("langgraph.command.goto_node").map(str::to_owned));
    to.retain(|t| t != "__end__");
    if !to.is_empty() {
        span.handoff = Some(Handoff {
            signal: Signal::Goto,
            from: a.text("langgraph.command.source_node").map(str::to_owned),
            to,
            ..Handoff::default()
        });
    }
}

fn tool(reader: &Reader, raw: &Raw<'_>, entity: Option<&str>, span: &mut Span) {
    let a = raw.attrs;
    let name =
        a.text("gen_ai.tool.name").or(entity).unwrap_or_else(|| raw.span.name.trim_end_matches(".tool"));
    let args = a.get("gen_ai.tool.call.arguments").or_else(|| a.get("traceloop.entity.input")).map(to_json);
    let result = a
        .first_text(&["gen_ai.tool.call.result", "traceloop.entity.output"])
        .filter(|s| !is_absent(s))
        .map(tool_result);
    // LangChain's wrapper names the call among the run's keyword arguments.
    let wrapper = args.as_ref().and_then(|v| match v {
        Value::String(s) => baton_record::json::parse(s),
        other => Some(other.clone()),
    });
    let call_id = a.text("gen_ai.tool.call.id").map(str::to_owned).or_else(|| {
        wrapper
            .as_ref()
            .and_then(|w| w.get("kwargs"))
            .and_then(|k| k.get("tool_call_id"))
            .and_then(Value::as_str)
            .map(str::to_owned)
    });
    common::tool(
        reader,
        span,
        name,
        call_id,
        args.as_ref().map_or(Arguments::NotGiven, Arguments::Given),
        result,
    );
}
