//! What LangChain and LangGraph put into span values, whatever the instrumentation: serialised tool
//! messages, `Command` objects, run metadata.

use baton_record::json::{self, Form};
use baton_record::pyrepr;
use baton_record::span::{Handoff, Signal, Span};
use serde_json::{Map, Value};

use crate::messages::{error_flag, plain};
use crate::raw::{Any, Raw};

/// A `Command`: where control goes, and what it changes in the state.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Command {
    /// The jump leaves this graph.
    pub leaves: bool,
    /// Node names.
    pub goto: Vec<String>,
    /// The update without messages and bookkeeping; null where there is none.
    pub update: Value,
}

/// State keys that carry history or bookkeeping and no payload.
const NO_PAYLOAD: [&str; 9] = [
    "messages",
    "active_agent",
    "files",
    "todos",
    "remaining_steps",
    "structured_response",
    "llm_input_messages",
    "is_last_step",
    "jump_to",
];

/// The commands in a node's or tool's result: one, a list, or wrapped.
pub(super) fn commands(v: &Value) -> Vec<Command> {
    let mut out = Vec::new();
    find(v, &mut out, 0);
    out
}

fn find(v: &Value, out: &mut Vec<Command>, depth: usize) {
    if depth > 3 {
        return;
    }
    match v {
        Value::Array(a) => a.iter().for_each(|x| find(x, out, depth + 1)),
        Value::Object(m) => {
            if is_command(m) {
                out.push(command(m));
            } else if m.len() <= 3 {
                for key in ["output", "outputs"] {
                    if let Some(x) = m.get(key) {
                        find(x, out, depth + 1);
                    }
                }
            }
        }
        Value::String(s) if s.starts_with("Command(") => {
            if let Some(x) = pyrepr::parse(s) {
                find(&x, out, depth + 1);
            }
        }
        _ => {}
    }
}

fn is_command(m: &Map<String, Value>) -> bool {
    m.contains_key("goto")
        && (m.contains_key("update")
            || m.contains_key("graph")
            || m.contains_key("resume")
            || m.contains_key(pyrepr::CLASS_KEY))
}

fn command(m: &Map<String, Value>) -> Command {
    let mut goto = Vec::new();
    targets(m.get("goto").unwrap_or(&Value::Null), &mut goto);
    let update = match m.get("update") {
        Some(Value::Object(u)) => {
            let rest: Map<String, Value> = u
                .iter()
                .filter(|(k, v)| !NO_PAYLOAD.contains(&k.as_str()) && !v.is_null())
                .map(|(k, v)| (k.clone(), v.clone()))
                .collect();
            if rest.is_empty() { Value::Null } else { Value::Object(rest) }
        }
        _ => Value::Null,
    };
    Command { leaves: m.get("graph").is_some_and(|g| !g.is_null()), goto, update }
}

fn targets(v: &Value, out: &mut Vec<String>) {
    match v {
        Value::String(s) if s.starts_with("Send(") => {
            if let Some(Value::Object(m)) = pyrepr::parse(s) {
                node(&m, out);
            } else if let Some(name) = s.split("node='").nth(1).and_then(|r| r.split('\'').next()) {
                out.push(name.to_owned());
            }
        }
        Value::String(s) if !s.is_empty() => out.push(s.clone()),
        Value::Array(a) => a.iter().for_each(|x| targets(x, out)),
        Value::Object(m) => node(m, out),
        _ => {}
    }
}

fn node(m: &Map<String, Value>, out: &mut Vec<String>) {
    if let Some(n) = ["node", "arg0"].iter().find_map(|k| m.get(*k).and_then(Value::as_str)) {
        out.push(n.to_owned());
    }
}

/// Adds what commands say to a span.
pub(super) fn add_commands(found: &[Command], span: &mut Span) {
    let goto: Vec<String> =
        found.iter().flat_map(|c| c.goto.iter()).filter(|g| *g != "__end__").cloned().collect();
    if goto.is_empty() {
        return;
    }
    let signal = if found.iter().any(|c| c.leaves) { Signal::Command } else { Signal::Goto };
    let h = span.handoff.get_or_insert_with(|| Handoff { signal, ..Handoff::default() });
    for g in goto {
        if !h.to.contains(&g) {
            h.to.push(g);
        }
    }
}

/// The target of a `ParentCommand` exception, which every instrumentation leaves in the text. Its update is not
/// read: exception text is never a payload.
pub(super) fn exception_target(raw: &Raw<'_>, span: &mut Span) {
    let mut texts: Vec<&str> = vec![raw.status_message()];
    let exceptions = raw.span.events.iter().filter(|e| e.name == "exception").flat_map(|e| &e.fields);
    texts.extend(exceptions.filter_map(|field| match field {
        ("exception.message", Any::StringValue(s)) => Some(*s),
        _ => None,
    }));
    for t in texts {
        let Some(at) = t.find("Command(") else { continue };
        let t = &t[at..];
        let whole = t.rfind(')').and_then(|end| pyrepr::parse(&t[..=end]));
        let mut found = whole.as_ref().map(commands).unwrap_or_default();
        if found.is_empty()
            && let Some(rest) = t.rfind("goto=").map(|i| &t[i + 5..])
        {
            // The repr may hold objects that are no literals; the target stands at its end.
            let end = rest.rfind(')').unwrap_or(rest.len());
            let mut goto = Vec::new();
            match pyrepr::parse(&rest[..end]) {
                Some(v) => targets(&v, &mut goto),
                None => {
                    goto.extend(rest.strip_prefix('\'').and_then(|r| r.split('\'').next()).map(str::to_owned))
                }
            }
            found.push(Command { leaves: true, goto, update: Value::Null });
        }
        add_commands(&found, span);
        if span.handoff.is_some() {
            return;
        }
    }
}

/// A tool's result out of its wrappers: content, call id, error flag, commands.
pub(super) struct ToolResult {
    pub content: Value,
    /// The content as it was read, where it is the text that was given.
    pub read: Option<(Value, Form)>,
    pub name: Option<String>,
    pub call_id: Option<String>,
    pub error: Option<bool>,
    pub commands: Vec<Command>,
}

/// Reads what a tool span gives as its result.
pub(super) fn tool_result(text: &str) -> ToolResult {
    let (v, form) = json::parse_loose(text);
    let mut r = ToolResult {
        content: Value::String(text.to_owned()),
        read: None,
        name: None,
        call_id: None,
        error: None,
        commands: Vec::new(),
    };
    if form == Form::Text {
        r.read = Some((v, form));
        return r;
    }
    r.commands = commands(&v);
    let inner = unwrap_message(&v);
    if let Some(m) = inner {
        let s = |k: &str| m.get(k).and_then(Value::as_str).filter(|s| !s.is_empty()).map(str::to_owned);
        r.content = plain(m.get("content").unwrap_or(&Value::Null));
        r.name = s("name");
        r.call_id = s("tool_call_id");
        r.error = error_flag(m);
        return r;
    }
    if let Value::Array(_) = &v {
        // Content blocks of one text are that text.
        let p = plain(&v);
        if p.is_string() {
            r.content = p;
            return r;
        }
    } else if let Value::Object(m) = &v {
        if m.len() == 1
            && let Some(out) = m.get("output")
        {
            r.content = plain(out);
            r.error = own_flag(m);
            return r;
        }
        r.error = own_flag(m);
    }
    r.read = Some((v, form));
    r
}

fn own_flag(m: &Map<String, Value>) -> Option<bool> {
    ["is_error", "isError"].iter().find_map(|k| m.get(*k).and_then(Value::as_bool))
}

/// The tool message inside serialised forms.
fn unwrap_message(v: &Value) -> Option<&Map<String, Value>> {
    let m = v.as_object()?;
    if is_command(m) {
        // A command answers its call by a tool message in the update.
        let list = m.get("update")?.get("messages")?.as_array()?;
        return list.iter().rev().find_map(|x| unwrap_message(x).filter(|m| m.contains_key("tool_call_id")));
    }
    if let Some(out) = m.get("output").filter(|_| m.len() <= 2) {
        return unwrap_message(out);
    }
    if m.get("type").and_then(Value::as_str) == Some("constructor") {
        return m.get("kwargs")?.as_object().filter(|k| k.contains_key("tool_call_id"));
    }
    if let Some(Value::Object(data)) = m.get("data")
        && m.get("type").and_then(Value::as_str) == Some("tool")
    {
        return Some(data);
    }
    (m.contains_key("tool_call_id") && m.contains_key("content")).then_some(m)
}

/// Run metadata of LangGraph that instrumentations copy to each span.
#[derive(Debug, Default)]
pub(super) struct Metadata {
    pub agent: Option<String>,
    pub node: Option<String>,
    pub thread: Option<String>,
    pub integration: Option<String>,
}

impl Metadata {
    /// From a JSON object.
    pub(super) fn from_json(text: &str) -> Self {
        let v = match json::parse_loose(text) {
            (Value::Object(m), _) => m,
            _ => return Self::default(),
        };
        let s = |k: &str| v.get(k).and_then(Value::as_str).filter(|s| !s.is_empty()).map(str::to_owned);
        Self {
            agent: s("lc_agent_name"),
            node: s("langgraph_node"),
            thread: s("thread_id").or_else(|| s("session_id")).or_else(|| s("conversation_id")),
            integration: s("ls_integration"),
        }
    }

    /// Names in the span: its agent, and its node where it is one and no inner one of an agent.
    pub(super) fn apply(self, own_name: &str, span: &mut Span) {
        use baton_record::names::{is_placeholder_agent, slug};
        use baton_record::span::Role;
        let own = slug(own_name);
        if let Some(a) = self.agent.filter(|a| !is_placeholder_agent(a)) {
            if span.role == Role::Step && slug(&a) == own {
                span.role = Role::Agent;
            }
            span.agent = Some(a);
        }
        if span.agent.is_none() || span.role == Role::Agent {
            span.node = self.node.filter(|n| n != "__start__" && n != "__end__");
        }
        if span.conversation_id.is_none() {
            span.conversation_id = self.thread;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn commands_are_found_in_every_wrapping() {
        let c = json!({"graph": "__parent__", "update": {"messages": [], "note": "x"}, "resume": null, "goto": "b"});
        for v in [c.clone(), json!({"output": c}), json!([c])] {
            let found = commands(&v);
            assert_eq!(
                found,
                [Command { leaves: true, goto: vec!["b".into()], update: json!({"note": "x"}) }]
            );
        }
        let send = json!({"graph": "__parent__", "update": {}, "goto": ["Send(node='b', arg={'x': [1]})", "Send(node='c', arg={})"]});
        assert_eq!(commands(&send)[0].goto, ["b", "c"]);
    }

    #[test]
    fn a_tool_message_is_unwrapped_with_its_flag() {
        for t in [
            r#"{"type":"tool","data":{"content":"done","tool_call_id":"c","status":"error"}}"#,
            r#"{"output":{"lc":1,"type":"constructor","id":["ToolMessage"],"kwargs":{"content":"done","tool_call_id":"c","status":"error"}}}"#,
            r#"{"output":{"content":"done","type":"tool","tool_call_id":"c","status":"error"}}"#,
            r#"{"graph":null,"update":{"messages":[{"content":"done","type":"tool","tool_call_id":"c","status":"error"}]},"resume":null,"goto":[]}"#,
        ] {
            let r = tool_result(t);
            assert_eq!(
                (r.content, r.call_id.as_deref(), r.error),
                (json!("done"), Some("c"), Some(true)),
                "{t}"
            );
        }
        assert_eq!(tool_result("plain").content, json!("plain"));
        assert_eq!(tool_result(r#"[{"type":"text","text":"x"}]"#).content, json!("x"));
    }
}
