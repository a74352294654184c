//! Messages that come as numbered attributes: `llm.input_messages.0.message.role`, `gen_ai.prompt.0.content`.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::raw::{Any, Attrs, to_json};

#[derive(Default)]
struct Node {
    leaf: Option<Value>,
    children: BTreeMap<String, Node>,
}

/// The tree below a prefix. `None`: no attribute starts with it.
pub(super) fn tree(attrs: &Attrs<'_>, prefix: &str) -> Option<Value> {
    let mut root = Node::default();
    let mut any = false;
    for (rest, v) in attrs.under(prefix) {
        any = true;
        insert(&mut root, rest, v);
    }
    any.then(|| build(root))
}

fn insert(root: &mut Node, path: &str, v: &Any<'_>) {
    let mut n = root;
    // Deeper than any convention goes, the rest of the path is one name.
    for p in path.splitn(10, '.') {
        n = n.children.entry(p.to_owned()).or_default();
    }
    n.leaf = Some(to_json(v));
}

fn build(n: Node) -> Value {
    if n.children.is_empty() {
        return n.leaf.unwrap_or(Value::Null);
    }
    if n.children.keys().all(|k| k.len() <= 9 && k.bytes().all(|b| b.is_ascii_digit())) {
        let mut list: Vec<(u64, Node)> =
            n.children.into_iter().map(|(k, v)| (k.parse().unwrap_or(0), v)).collect();
        list.sort_by_key(|(k, _)| *k);
        return Value::Array(list.into_iter().map(|(_, v)| build(v)).collect());
    }
    Value::Object(n.children.into_iter().map(|(k, v)| (k, build(v))).collect())
}

/// OpenInference messages as OpenAI chat messages.
pub(super) fn openinference(v: Value) -> Value {
    let Value::Array(a) = v else { return Value::Array(Vec::new()) };
    Value::Array(
        a.into_iter()
            .filter_map(|m| {
                let Value::Object(mut m) = m else { return None };
                let Some(Value::Object(mut msg)) = m.remove("message") else { return None };
                let contents = msg.remove("contents");
                let mut texts = Vec::new();
                let mut calls: Vec<Value> = Vec::new();
                if let Some(Value::Array(parts)) = contents {
                    for p in parts {
                        let Value::Object(mut p) = p else { continue };
                        if let Some(Value::Object(c)) = p.remove("message_content") {
                            texts.push(Value::Object(c));
                        }
                        if let Some(c @ Value::Object(_)) = p.remove("tool_call") {
                            calls.push(c);
                        }
                    }
                }
                if let Some(Value::Array(list)) = msg.remove("tool_calls") {
                    // Some instrumentations give a call here and again among the contents.
                    calls = list
                        .into_iter()
                        .filter_map(
                            |c| if let Value::Object(mut c) = c { c.remove("tool_call") } else { None },
                        )
                        .collect();
                }
                let mut out = Map::new();
                out.insert("role".into(), msg.remove("role").unwrap_or_else(|| Value::String("user".into())));
                if !texts.is_empty() {
                    out.insert("content".into(), Value::Array(texts));
                } else if let Some(c) = msg.remove("content") {
                    out.insert("content".into(), c);
                }
                for key in ["name", "tool_call_id"] {
                    if let Some(x) = msg.remove(key) {
                        out.insert(key.into(), x);
                    }
                }
                if let Some(name) = msg.remove("function_call_name") {
                    let mut f = Map::new();
                    f.insert("name".into(), name);
                    if let Some(args) = msg.remove("function_call_arguments_json") {
                        f.insert("arguments".into(), args);
                    }
                    calls.push(Value::Object(f));
                }
                out.insert("tool_calls".into(), Value::Array(calls));
                Some(Value::Object(out))
            })
            .collect(),
    )
}
