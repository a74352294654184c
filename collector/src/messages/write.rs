//! Messages back to JSON, for the next model call and for tracing.

use baton_record::canonical;
use baton_record::span::Speaker;
use serde_json::{Map, Value, json};

use super::{Message, Part};

fn text_of(v: &Value) -> String {
    match v {
        Value::String(s) => s.clone(),
        other => canonical::to_string(other),
    }
}

/// As the OpenTelemetry GenAI conventions have them: `[{"role", "parts": [{"type": "text" | "tool_call" | "tool_call_response"}]}]`.
pub fn to_genai(messages: &[Message]) -> Value {
    messages
        .iter()
        .map(|m| {
            let parts: Vec<Value> = m.parts.iter().map(genai_part).collect();
            let mut out = json!({"role": m.speaker.name(), "parts": parts});
            if let Some(author) = &m.author {
                out["name"] = json!(author);
            }
            out
        })
        .collect()
}

fn genai_part(p: &Part) -> Value {
    let mut m = Map::new();
    let mut put = |k: &str, v: Option<Value>| {
        if let Some(v) = v {
            m.insert(k.to_owned(), v);
        }
    };
    match p {
        Part::Text(t) => {
            put("type", Some(json!("text")));
            put("content", Some(json!(t)));
        }
        Part::Call { name, id, args } => {
            put("type", Some(json!("tool_call")));
            put("id", id.clone().map(Value::String));
            put("name", Some(json!(name)));
            put("arguments", args.clone());
        }
        Part::Result { name, id, content, error } => {
            put("type", Some(json!("tool_call_response")));
            put("id", id.clone().map(Value::String));
            put("name", name.clone().map(Value::String));
            put("response", Some(content.clone()));
            put("is_error", error.map(Value::Bool));
        }
    }
    Value::Object(m)
}

/// As a chat completion takes them: `{"role", "content", "tool_calls"?}`, and one `{"role": "tool", "tool_call_id"}` for each result.
pub fn to_chat(messages: &[Message]) -> Value {
    let mut out = Vec::new();
    for m in messages {
        let mut texts: Vec<&str> = Vec::new();
        let mut calls = Vec::new();
        let mut results = Vec::new();
        for p in &m.parts {
            match p {
                Part::Text(t) => texts.push(t),
                Part::Call { name, id, args } => {
                    let args = args.as_ref().map_or_else(|| "{}".to_owned(), text_of);
                    calls.push(
                        json!({"id": id, "type": "function", "function": {"name": name, "arguments": args}}),
                    );
                }
                Part::Result { id, content, .. } => {
                    results.push(json!({"role": "tool", "tool_call_id": id, "content": text_of(content)}));
                }
            }
        }
        // An answer to an earlier call stands before what else is said; one to a call of the same message after it.
        if m.speaker != Speaker::Assistant {
            out.append(&mut results);
        }
        if !texts.is_empty() || !calls.is_empty() {
            let role = if m.speaker == Speaker::Tool { Speaker::User } else { m.speaker };
            let mut one = json!({"role": role.name(), "content": texts.join("\n")});
            if let Some(author) = &m.author {
                one["name"] = json!(author);
            }
            if !calls.is_empty() {
                one["tool_calls"] = Value::Array(calls);
            }
            out.push(one);
        }
        out.append(&mut results);
    }
    Value::Array(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::from_value;

    fn history() -> Vec<Message> {
        from_value(&json!([
            {"role": "system", "content": "You triage."},
            {"role": "user", "content": "Refund 4711, please"},
            {"role": "assistant", "content": "I look.", "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "lookup_order", "arguments": "{\"id\":\"4711\"}"}}]},
            {"role": "tool", "tool_call_id": "c1", "content": "{\"paid\":49.9}"},
        ]))
    }

    #[test]
    fn messages_are_the_same_after_either_form() {
        let h = history();
        assert_eq!(from_value(&to_genai(&h)), h);
        assert_eq!(from_value(&to_chat(&h)), h);
    }

    #[test]
    fn a_result_in_a_message_of_the_user_follows_its_call_in_a_chat() {
        let h = from_value(&json!([
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "lookup", "input": {"id": "4711"}}]},
            {"role": "user", "content": [{"type": "text", "text": "Go on."}, {"type": "tool_result", "tool_use_id": "c1", "content": "paid"}]},
        ]));
        let chat = to_chat(&h);
        let roles: Vec<&str> = chat.as_array().unwrap().iter().filter_map(|m| m["role"].as_str()).collect();
        assert_eq!(roles, ["assistant", "tool", "user"]);
    }
}
