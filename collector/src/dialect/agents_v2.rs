//! The first official instrumentation of the OpenAI Agents SDK (opentelemetry-instrumentation-openai-agents-v2).

use baton_record::span::{Role, Span};

use super::{Dialect, genai};
use crate::raw::Raw;
use crate::reading::Reader;

/// openai-agents-v2.
pub static DIALECT: Dialect = Dialect {
    name: "openai-agents-v2",
    about: "The old official instrumentation of the OpenAI Agents SDK: operations agent_handoff and unknown, a placeholder for agent names.",
    shows: "Handoff spans with both names; agents; tools with arguments and results; tokens and text of model calls.",
    hides: "Calls that share a turn with text, tool items in the input, and the instructions of the Responses API are not \
            recorded: neither the payload nor the receiver's view is known.",
    matches: |raw| {
        let a = raw.attrs;
        raw.scope == "opentelemetry.instrumentation.openai_agents"
            && (a.str("gen_ai.agent.description") == Some("OpenAI Agents instrumentation")
                || matches!(a.str("gen_ai.operation.name"), Some("agent_handoff" | "unknown"))
                || (a.has("gen_ai.system") && a.has("server.address") && !a.any_under("traceloop.")))
    },
    read,
};

fn read(reader: &Reader, raw: &Raw<'_>, span: &mut Span) {
    genai::read(reader, raw, span);
    let a = raw.attrs;
    span.agent_id = None; // "agent" on every span
    match a.str("gen_ai.operation.name").unwrap_or_default() {
        "unknown" => span.role = Role::Step,
        // The agent's span repeats the messages of its calls.
        "invoke_agent" => {
            span.input = None;
            span.output = None;
        }
        "chat" => span.view.lossy |= !a.has("gen_ai.system_instructions"),
        _ => {}
    }
    if span.role == Role::Handoff
        && let Some(h) = span.handoff.as_mut()
        && let Some(list) = raw
            .status_message()
            .split_once("'requested_agents':")
            .and_then(|(_, r)| r.rsplit_once('}'))
            .map(|(r, _)| r)
        && let Some(serde_json::Value::Array(names)) = baton_record::pyrepr::parse(list.trim())
    {
        h.requested = names.iter().filter_map(|n| n.as_str()).map(str::to_owned).collect();
    }
}
