//! Message lists in every shape that frameworks and instrumentations send them, as one form.
//!
//! Known: OTel GenAI parts, OpenAI chat and Responses items, LangChain messages (serialised constructors, typed data, flat),
//! Anthropic and Bedrock blocks, Gemini parts, event lists, Python reprs of SDK objects. What is not
//! known and has text is a text.

use baton_record::json::{self, Form};
use baton_record::pyrepr::{self, CLASS_KEY};
use baton_record::span::Speaker;
use serde_json::{Map, Value};

mod write;

pub use write::{to_chat, to_genai};

/// One message.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// Who says it.
    pub speaker: Speaker,
    /// The author, where one is named.
    pub author: Option<String>,
    /// Its parts.
    pub parts: Vec<Part>,
}

/// One part, which becomes one item.
#[derive(Debug, Clone, PartialEq)]
pub enum Part {
    /// Text.
    Text(String),
    /// A tool call.
    Call {
        /// The tool.
        name: String,
        /// The call.
        id: Option<String>,
        /// The arguments as they came: an object, or text.
        args: Option<Value>,
    },
    /// A tool result.
    Result {
        /// The tool, where named.
        name: Option<String>,
        /// The call.
        id: Option<String>,
        /// The result as it came.
        content: Value,
        /// Its own error flag.
        error: Option<bool>,
    },
}

/// Reads a message list given as JSON text, a Python repr, or the start of one.
/// The second value is true where it was cut off.
pub fn from_text(text: &str) -> (Vec<Message>, bool) {
    let (v, form) = json::parse_loose(text);
    (from_value(&v), form == Form::Truncated)
}

/// Reads a message list, a single message, or an object that holds one.
pub fn from_value(v: &Value) -> Vec<Message> {
    let mut out = Vec::new();
    collect(v, &mut out, 0);
    out
}

/// The messages that a member of a list is or holds.
pub fn from_member(v: &Value) -> Vec<Message> {
    let mut out = Vec::new();
    collect(v, &mut out, 1);
    out
}

fn collect(v: &Value, out: &mut Vec<Message>, depth: usize) {
    if depth > 6 {
        return;
    }
    match v {
        Value::Array(a) => {
            for x in a {
                match x {
                    // LangChain batches: only the first prompt of a batch is this call's.
                    Value::Array(_) => return collect(x, out, depth + 1),
                    Value::String(s) if !s.trim().is_empty() => push(out, from_string(s)),
                    _ => collect(x, out, depth + 1),
                }
            }
        }
        Value::Object(m) => {
            if let Some(msg) = message(m) {
                push(out, msg);
                return;
            }
            for key in ["messages", "message", "generations", "choices", "output", "outputs", "update"] {
                if let Some(x) = m.get(key).filter(|x| x.is_array() || x.is_object()) {
                    collect(x, out, depth + 1);
                    return;
                }
            }
        }
        Value::String(s) if !s.trim().is_empty() => push(out, from_string(s)),
        _ => {}
    }
}

fn push(out: &mut Vec<Message>, mut m: Message) {
    drop_repeated_calls(&mut m);
    if !m.parts.is_empty() {
        out.push(m);
    }
}

/// A bare text stands for a user message; a repr of an SDK object for the object.
fn from_string(s: &str) -> Message {
    if s.ends_with(')')
        && let Some(Value::Object(m)) = pyrepr::looks_like(s).then(|| pyrepr::parse(s)).flatten()
        && m.contains_key(CLASS_KEY)
        && let Some(msg) = message(&m)
    {
        return msg;
    }
    Message { speaker: Speaker::User, author: None, parts: vec![Part::Text(s.to_owned())] }
}

fn text_of<'a>(m: &'a Map<String, Value>, keys: &[&str]) -> Option<&'a str> {
    keys.iter().find_map(|k| m.get(*k).and_then(Value::as_str)).filter(|s| !s.is_empty())
}

/// Reads one message object. `None`: the object is no message.
fn message(m: &Map<String, Value>) -> Option<Message> {
    // LangChain, serialised: {"lc":1,"type":"constructor","id":[…,"AIMessage"],"kwargs":{…}}
    if m.get("type").and_then(Value::as_str) == Some("constructor")
        && let Some(Value::Object(kwargs)) = m.get("kwargs")
    {
        let class = m
            .get("id")
            .and_then(Value::as_array)
            .and_then(|a| a.last())
            .and_then(Value::as_str)
            .unwrap_or_default();
        return typed(kwargs, class);
    }
    // LangChain, typed: {"type":"human","data":{…}}
    if let (Some(Value::String(kind)), Some(Value::Object(data))) = (m.get("type"), m.get("data"))
        && !m.contains_key("role")
    {
        return typed(data, kind);
    }
    // A generation: {"text":…, "message":{…}}
    if let Some(inner @ Value::Object(_)) = m.get("message")
        && !m.contains_key("role")
        && !m.contains_key("content")
    {
        let Value::Object(inner) = inner else { return None };
        return message(inner).map(|mut x| {
            x.speaker = if x.speaker == Speaker::User { Speaker::Assistant } else { x.speaker };
            x
        });
    }
    let kind = text_of(m, &["type"]).unwrap_or_default();
    let class = text_of(m, &[CLASS_KEY]).unwrap_or_default();
    // OpenAI Responses items and their reprs.
    match kind {
        "function_call" | "custom_tool_call" | "tool_call" => {
            return Some(single(Speaker::Assistant, call(m)?));
        }
        "function_call_output" | "custom_tool_call_output" | "tool_call_output" | "tool_call_response" => {
            return Some(single(Speaker::Tool, result(m)));
        }
        "reasoning" | "item_reference" | "compaction" => {
            return Some(Message { speaker: Speaker::Assistant, author: None, parts: Vec::new() });
        }
        k if k.ends_with("_call") && (m.contains_key("id") || m.contains_key("call_id")) => {
            // Hosted tools: web_search_call, mcp_call, …: call and result in one item.
            let name = text_of(m, &["name"]).unwrap_or(k.trim_end_matches("_call")).to_owned();
            let id = text_of(m, &["call_id", "id"]).map(str::to_owned);
            let args = m.get("arguments").or_else(|| m.get("action")).cloned();
            let mut parts = vec![Part::Call { name: name.clone(), id: id.clone(), args }];
            if let Some(out) = m.get("output").or_else(|| m.get("results")).filter(|o| !o.is_null()) {
                parts.push(Part::Result {
                    name: Some(name),
                    id,
                    content: out.clone(),
                    error: m.get("error").map(|e| !e.is_null()),
                });
            }
            return Some(Message { speaker: Speaker::Assistant, author: None, parts });
        }
        k if k.ends_with("_call_output") => return Some(single(Speaker::Tool, result(m))),
        _ => {}
    }
    if class.ends_with("ToolCall") && m.contains_key("name") {
        return Some(single(Speaker::Assistant, call(m)?));
    }
    let event = text_of(m, &["event.name"]).unwrap_or_default();
    if event == "gen_ai.choice"
        && let Some(Value::Object(inner)) = m.get("message")
    {
        return message(inner)
            .or_else(|| body(inner, Speaker::Assistant))
            .map(|x| Message { speaker: Speaker::Assistant, ..x });
    }
    if let Some(role) = text_of(m, &["role"]) {
        return body(m, Speaker::from_name(role));
    }
    if let Some(who) = event.strip_prefix("gen_ai.").and_then(|e| e.strip_suffix(".message")) {
        return body(m, Speaker::from_name(who));
    }
    if matches!(
        kind,
        "human"
            | "ai"
            | "system"
            | "tool"
            | "function"
            | "chat"
            | "remove"
            | "HumanMessage"
            | "AIMessage"
            | "SystemMessage"
            | "ToolMessage"
            | "AIMessageChunk"
    ) && m.contains_key("content")
    {
        return typed(m, kind);
    }
    if class.ends_with("Message") && m.contains_key("content") {
        return typed(m, class);
    }
    if let Some(parts) = m.get("parts").filter(|p| p.is_array()) {
        return Some(Message {
            speaker: Speaker::User,
            author: author(m),
            parts: parts_of(parts, Speaker::User),
        });
    }
    None
}

fn single(speaker: Speaker, part: Part) -> Message {
    Message { speaker, author: None, parts: vec![part] }
}

fn author(m: &Map<String, Value>) -> Option<String> {
    text_of(m, &["name"]).map(str::to_owned)
}

/// A LangChain message by its type or class name.
fn typed(m: &Map<String, Value>, kind: &str) -> Option<Message> {
    let k = kind.to_ascii_lowercase();
    if k.starts_with("remove") {
        return Some(Message { speaker: Speaker::System, author: None, parts: Vec::new() });
    }
    let speaker = if k.starts_with("human") || k == "user" || k.starts_with("chat") {
        text_of(m, &["role"]).map_or(Speaker::User, Speaker::from_name)
    } else {
        match k.as_str() {
            _ if k.starts_with("ai") || k == "assistant" => Speaker::Assistant,
            _ if k.starts_with("system") || k == "developer" => Speaker::System,
            _ if k.starts_with("tool") || k.starts_with("function") => Speaker::Tool,
            _ if m.contains_key("content") => Speaker::User,
            _ => return None,
        }
    };
    body(m, speaker)
}

/// The body of a message whose speaker is known.
fn body(m: &Map<String, Value>, speaker: Speaker) -> Option<Message> {
    let mut parts = Vec::new();
    let content =
        m.get("content").or_else(|| m.get("parts")).or_else(|| m.get("contents")).unwrap_or(&Value::Null);
    let call_id = text_of(m, &["tool_call_id", "call_id", "id"]).map(str::to_owned);
    let holds_results = matches!(content, Value::Array(a) if a.iter().any(is_result_part));
    if speaker == Speaker::Tool && !holds_results {
        parts.push(Part::Result {
            name: author(m),
            id: call_id,
            content: plain(content),
            error: error_flag(m),
        });
    } else {
        parts.extend(parts_of(content, speaker));
    }
    for key in ["tool_calls", "function_calls", "toolCalls"] {
        if let Some(Value::Array(calls)) = m.get(key) {
            parts.extend(calls.iter().filter_map(|c| c.as_object().and_then(call)));
        }
    }
    if let Some(Value::Object(f)) = m.get("function_call") {
        parts.extend(call(f));
    }
    if let Some(Value::Object(extra)) = m.get("additional_kwargs")
        && !parts.iter().any(|p| matches!(p, Part::Call { .. }))
        && let Some(Value::Array(calls)) = extra.get("tool_calls")
    {
        parts.extend(calls.iter().filter_map(|c| c.as_object().and_then(call)));
    }
    Some(Message { speaker, author: author(m).filter(|_| speaker != Speaker::Tool), parts })
}

fn is_result_part(v: &Value) -> bool {
    v.as_object().is_some_and(|m| {
        matches!(text_of(m, &["type"]), Some("tool_result" | "tool_call_response" | "tool_call_result"))
            || m.contains_key("toolResult")
            || m.contains_key("function_response")
            || m.contains_key("functionResponse")
    })
}

fn parts_of(content: &Value, speaker: Speaker) -> Vec<Part> {
    match content {
        Value::String(s) => text_part(s, speaker).into_iter().collect(),
        Value::Array(a) => a.iter().flat_map(|p| part(p, speaker)).collect(),
        Value::Object(_) => part(content, speaker),
        _ => Vec::new(),
    }
}

fn part(p: &Value, speaker: Speaker) -> Vec<Part> {
    let m = match p {
        Value::String(s) => return text_part(s, speaker).into_iter().collect(),
        Value::Object(m) => m,
        _ => return Vec::new(),
    };
    let kind = text_of(m, &["type", "kind", "part_kind"]).unwrap_or_default();
    match kind {
        "tool_call" | "tool_use" | "function_call" | "tool-call" | "server_tool_use" | "mcp_tool_use" => {
            return call(m).into_iter().collect();
        }
        "tool_call_response"
        | "tool_result"
        | "function_call_output"
        | "tool_call_result"
        | "tool-return"
        | "web_search_tool_result"
        | "mcp_tool_result" => return vec![result(m)],
        "reasoning" | "thinking" | "redacted_thinking" | "reasoning_content" => return Vec::new(),
        _ => {}
    }
    for key in ["toolUse", "functionCall", "function_call"] {
        if let Some(Value::Object(x)) = m.get(key) {
            return call(x).into_iter().collect();
        }
    }
    for key in ["toolResult", "functionResponse", "function_response"] {
        if let Some(Value::Object(x)) = m.get(key) {
            return vec![result(x)];
        }
    }
    if m.contains_key("reasoningContent") {
        return Vec::new();
    }
    for key in ["text", "content", "value", "refusal"] {
        match m.get(key) {
            Some(Value::String(s)) => return text_part(s, speaker).into_iter().collect(),
            Some(inner @ (Value::Object(_) | Value::Array(_))) => return parts_of(inner, speaker),
            _ => {}
        }
    }
    // A blob, a file, an image: an item of its own, known by its form.
    if kind.is_empty() { Vec::new() } else { vec![Part::Text(baton_record::canonical::to_string(p))] }
}

fn text_part(s: &str, speaker: Speaker) -> Option<Part> {
    if s.trim().is_empty() {
        return None;
    }
    // Some instrumentations repeat a call as text, as the raw item or as a repr.
    if speaker != Speaker::User {
        let t = s.trim();
        if (t.starts_with('{') && t.contains("function_call"))
            || (t.ends_with(')') && t.contains("ToolCall("))
        {
            let v = if t.starts_with('{') { json::parse(t) } else { pyrepr::parse(t) };
            if let Some(Value::Object(m)) = v
                && let Some(msg) = message(&m)
                && let Some(p @ (Part::Call { .. } | Part::Result { .. })) = msg.parts.into_iter().next()
            {
                return Some(p);
            }
        }
    }
    Some(Part::Text(s.to_owned()))
}

fn call(m: &Map<String, Value>) -> Option<Part> {
    let f = m.get("function").and_then(Value::as_object).unwrap_or(m);
    let name =
        text_of(f, &["name", "tool_name", "toolName"]).or_else(|| text_of(m, &["name", "tool_name"]))?;
    let args = ["arguments", "args", "input", "parameters"]
        .iter()
        .find_map(|k| f.get(*k).or_else(|| m.get(*k)))
        .filter(|v| !v.is_null())
        .cloned();
    let id = text_of(m, &["call_id", "id", "tool_call_id", "toolUseId", "tool_use_id"]).map(str::to_owned);
    Some(Part::Call { name: name.to_owned(), id, args })
}

fn result(m: &Map<String, Value>) -> Part {
    let content =
        ["output", "response", "result", "content"].iter().find_map(|k| m.get(*k)).unwrap_or(&Value::Null);
    Part::Result {
        name: text_of(m, &["name", "tool_name"]).map(str::to_owned),
        id: text_of(m, &["call_id", "tool_call_id", "tool_use_id", "toolUseId", "id"]).map(str::to_owned),
        content: plain(content),
        error: error_flag(m),
    }
}

/// A result's own flag: `status` or `is_error`.
pub fn error_flag(m: &Map<String, Value>) -> Option<bool> {
    for key in ["is_error", "isError"] {
        if let Some(b) = m.get(key).and_then(Value::as_bool) {
            return Some(b);
        }
    }
    match text_of(m, &["status"])?.to_ascii_lowercase().as_str() {
        "error" | "failed" | "failure" => Some(true),
        "success" | "ok" | "completed" => Some(false),
        _ => None,
    }
}

/// Content blocks that hold only text, as that text.
pub fn plain(content: &Value) -> Value {
    if let Value::Array(a) = content {
        let texts: Option<Vec<&str>> = a
            .iter()
            .map(|b| match b {
                Value::String(s) => Some(s.as_str()),
                Value::Object(m)
                    if m.get("type").is_none_or(|t| {
                        matches!(t.as_str(), Some("text" | "output_text" | "input_text"))
                    }) =>
                {
                    m.get("text").and_then(Value::as_str)
                }
                _ => None,
            })
            .collect();
        if let Some(t) = texts.filter(|t| !t.is_empty()) {
            return Value::String(t.join("\n"));
        }
    }
    content.clone()
}

/// One call given twice in one message (as a part and as text, or in two lists) is one call.
fn drop_repeated_calls(m: &mut Message) {
    let mut seen: Vec<(String, Option<Value>, Option<String>)> = Vec::new();
    m.parts.retain(|p| {
        let Part::Call { name, id, args } = p else { return true };
        let args = args.as_ref().map(|a| match a {
            Value::String(s) => json::parse_loose(s).0,
            other => other.clone(),
        });
        let same_form = |a: &str, b: &str| a.split('_').next() == b.split('_').next();
        let twice = seen.iter().any(|(n, a, i)| {
            n == name
                && match (i, id) {
                    (Some(x), Some(y)) if x == y => true,
                    // The same call under its item id and its call id.
                    (Some(x), Some(y)) => *a == args && !same_form(x, y),
                    _ => *a == args,
                }
        });
        seen.push((name.clone(), args, id.clone()));
        !twice
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn shape(v: &Value) -> Vec<String> {
        from_value(v)
            .iter()
            .flat_map(|m| {
                m.parts.iter().map(|p| match p {
                    Part::Text(t) => format!("{}:{t}", m.speaker.name()),
                    Part::Call { name, id, args } => format!(
                        "call {name} {} {}",
                        id.as_deref().unwrap_or("-"),
                        args.as_ref().map_or("-".into(), |a| match a {
                            Value::String(s) => s.clone(),
                            o => o.to_string(),
                        })
                    ),
                    Part::Result { id, content, error, .. } => format!(
                        "result {} {} {error:?}",
                        id.as_deref().unwrap_or("-"),
                        content.as_str().unwrap_or("?")
                    ),
                })
            })
            .collect()
    }

    #[test]
    fn one_conversation_reads_the_same_in_every_shape() {
        let want =
            ["user:hi", "assistant:let me see", r#"call look c1 {"a":1}"#, "result c1 found Some(false)"];
        let shapes = [
            json!([{"role": "user", "parts": [{"type": "text", "content": "hi"}]}, {"role": "assistant", "parts": [{"type": "reasoning", "content": "?"}, {"type": "text", "content": "let me see"}, {"type": "tool_call", "id": "c1", "name": "look", "arguments": {"a": 1}}]}, {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "found", "is_error": false}]}]),
            json!([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "let me see", "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{\"a\":1}"}}]}, {"role": "tool", "tool_call_id": "c1", "content": "found", "status": "success"}]),
            json!([{"role": "user", "content": "hi"}, {"type": "reasoning", "id": "r"}, {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "let me see"}]}, {"type": "function_call", "name": "look", "call_id": "c1", "id": "fc_1", "arguments": "{\"a\":1}"}, {"type": "function_call_output", "call_id": "c1", "output": "found", "status": "completed"}]),
            json!({"messages": [[{"lc": 1, "type": "constructor", "id": ["x", "HumanMessage"], "kwargs": {"content": "hi", "type": "human"}}, {"lc": 1, "type": "constructor", "id": ["x", "AIMessage"], "kwargs": {"content": "let me see", "tool_calls": [{"name": "look", "args": {"a": 1}, "id": "c1", "type": "tool_call"}]}}, {"lc": 1, "type": "constructor", "id": ["x", "ToolMessage"], "kwargs": {"content": "found", "tool_call_id": "c1", "status": "success"}}]]}),
            json!([{"type": "human", "data": {"content": "hi"}}, {"type": "ai", "data": {"content": "let me see", "tool_calls": [{"name": "look", "args": {"a": 1}, "id": "c1"}]}}, {"type": "tool", "data": {"content": "found", "tool_call_id": "c1", "status": "success"}}]),
            json!([{"role": "user", "content": [{"type": "text", "text": "hi"}]}, {"role": "assistant", "content": [{"type": "text", "text": "let me see"}, {"type": "tool_use", "id": "c1", "name": "look", "input": {"a": 1}}]}, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "found"}], "is_error": false}]}]),
            json!([{"role": "user", "content": [{"text": "hi"}]}, {"role": "assistant", "content": [{"text": "let me see"}, {"toolUse": {"toolUseId": "c1", "name": "look", "input": {"a": 1}}}]}, {"role": "user", "content": [{"toolResult": {"toolUseId": "c1", "content": [{"text": "found"}], "status": "success"}}]}]),
            json!([{"event.name": "gen_ai.user.message", "content": "hi", "role": "user"}, {"event.name": "gen_ai.assistant.message", "role": "assistant", "content": "let me see", "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": {"a": 1}}}]}, {"event.name": "gen_ai.tool.message", "id": "c1", "role": "tool", "content": "found", "is_error": false}]),
        ];
        for s in &shapes {
            let got: Vec<String> = shape(s);
            assert_eq!(got, want, "{s}");
        }
    }

    #[test]
    fn a_call_repeated_as_text_or_under_a_second_id_is_one_call() {
        let v = json!([{"role": "assistant", "parts": [{"type": "text", "content": "{\"arguments\":\"{\\\"a\\\":1}\",\"call_id\":\"call_9\",\"name\":\"look\",\"type\":\"function_call\",\"id\":\"fc_9\"}"}, {"type": "tool_call", "id": "call_9", "name": "look", "arguments": {"a": 1}}]}]);
        assert_eq!(shape(&v).len(), 1);
        let two = json!([{"role": "assistant", "tool_calls": [{"id": "call_1", "function": {"name": "look", "arguments": "{}"}}, {"id": "call_2", "function": {"name": "look", "arguments": "{}"}}]}]);
        assert_eq!(shape(&two).len(), 2);
    }

    #[test]
    fn a_repr_of_an_sdk_object_is_the_call_it_shows() {
        let v = json!([{"role": "assistant", "parts": [{"type": "text", "content": "ResponseFunctionToolCall(arguments='{\"a\": 1}', call_id='c1', name='look', type='function_call')"}]}]);
        assert_eq!(shape(&v), [r#"call look c1 {"a": 1}"#]);
    }

    #[test]
    fn removed_messages_and_empty_texts_are_nothing() {
        let v = json!([{"type": "remove", "data": {"content": "", "id": "__remove_all__"}}, {"role": "assistant", "content": ""}, {"role": "user", "content": null}]);
        assert_eq!(from_value(&v), []);
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_it_panic(s in "[\\[\\]{}\"a-z_:,() 0-9=']{0,120}") {
            let _ = from_text(&s);
        }
    }
}
