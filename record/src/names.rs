//! Names as they stand in traces: agents, tools, routing arguments.
//!
//! Names are data. They are compared by slug and shown as they came.

use std::borrow::Cow;

/// The comparable form of a name: lower case, and every run of other characters than letters
/// and digits is one `_` (METRICS.md section 1, confidence: case, spaces, `_` and `-` do not matter).
///
/// Letters of every script count, so look-alike names of two scripts stay two names.
pub fn slug(name: &str) -> String {
    slug_of(name).into_owned()
}

/// [`slug`] without a copy where the name is one already, as the names of most tools are.
pub fn slug_of(name: &str) -> Cow<'_, str> {
    let mut before = b'_';
    let plain = name.bytes().all(|c| {
        let fits = matches!(c, b'a'..=b'z' | b'0'..=b'9') || (c == b'_' && before != b'_');
        before = c;
        fits
    });
    if plain && before != b'_' {
        return Cow::Borrowed(name);
    }
    let mut out = String::with_capacity(name.len());
    for c in name.chars() {
        if c.is_ascii_alphanumeric() {
            out.push(c.to_ascii_lowercase());
        } else if c.is_alphanumeric() {
            out.extend(c.to_lowercase());
        } else if !out.is_empty() && !out.ends_with('_') {
            out.push('_');
        }
    }
    while out.ends_with('_') {
        out.pop();
    }
    if out.is_empty() {
        // A name of signs only (or an empty one) is still a name of its own.
        return Cow::Borrowed(name.trim());
    }
    Cow::Owned(out)
}

/// Gives a function the slug of a name; nothing is allocated for a short one of plain letters.
fn with_slug<T>(name: &str, f: impl FnOnce(&str) -> T) -> T {
    let mut out = [0u8; 48];
    if name.len() > out.len() || !name.is_ascii() {
        return f(&slug_of(name));
    }
    let mut n = 0;
    for c in name.bytes() {
        if c.is_ascii_alphanumeric() {
            out[n] = c.to_ascii_lowercase();
            n += 1;
        } else if n > 0 && out[n - 1] != b'_' {
            out[n] = b'_';
            n += 1;
        }
    }
    if n > 0 && out[n - 1] == b'_' {
        n -= 1;
    }
    match std::str::from_utf8(&out[..n]) {
        Ok(slug) if n > 0 => f(slug),
        _ => f(&slug_of(name)),
    }
}

/// True where two names have one slug.
pub fn same_name(a: &str, b: &str) -> bool {
    a == b || with_slug(a, |a| is_slug_of(a, b))
}

/// Whether a text is the slug of a name.
pub fn is_slug_of(slug: &str, name: &str) -> bool {
    with_slug(name, |s| s == slug)
}

/// True for names that instrumentations put where they know none
/// ("OpenAI Agent", "LangGraph", "Agent Workflow").
pub fn is_placeholder_agent(name: &str) -> bool {
    with_slug(name, |s| {
        matches!(
            s,
            "" | "openai_agent"
                | "langgraph"
                | "agent_workflow"
                | "unknown"
                | "unknown_agent"
                | "default"
                | "none"
                | "null"
        )
    })
}

/// True for a receiver that is a person and not an agent.
pub fn is_human(name: &str) -> bool {
    with_slug(name, |s| {
        matches!(
            s,
            "user"
                | "human"
                | "customer"
                | "end_user"
                | "human_agent"
                | "human_operator"
                | "human_in_the_loop"
                | "person"
                | "operator"
        )
    })
}

/// What the name of a tool says about a transfer (METRICS.md section 1, detection).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransferName {
    /// `transfer_to_X`, `handoff_to_X`: control goes to X, whose slug is given.
    To(String),
    /// `transfer_back_to_X`: control goes back to X.
    Back(String),
    /// `transfer_to_agent`, `handoff_to_agent`: the target is an argument.
    ToArgument,
    /// `delegate…`, "Delegate work to coworker": the sender waits; the target is an argument.
    Delegate(Option<String>),
    /// `task`, `Agent`: a delegation where arguments or a nested run show it.
    Task,
}

impl TransferName {
    /// The target in the tool's own name, as a slug.
    pub fn target(&self) -> Option<&str> {
        match self {
            Self::To(t) | Self::Back(t) | Self::Delegate(Some(t)) => Some(t),
            _ => None,
        }
    }

    /// True where the name alone makes the call a transfer. The others are common words:
    /// they need a routing argument or a run of another agent as evidence.
    pub fn is_sure(&self) -> bool {
        matches!(self, Self::To(_) | Self::Back(_) | Self::ToArgument)
    }

    /// True where the sender waits for the receiver's answer.
    pub fn returns(&self) -> bool {
        matches!(self, Self::Delegate(_) | Self::Task)
    }
}

/// Reads a tool's name. `None`: the name does not look like a transfer.
pub fn transfer_name(tool: &str) -> Option<TransferName> {
    let s = slug_of(bare_tool_name(tool));
    let rest = |prefixes: &[&str]| {
        prefixes.iter().find_map(|p| s.strip_prefix(p).filter(|r| !r.is_empty()).map(str::to_owned))
    };
    if let Some(t) = rest(&["transfer_back_to_", "handoff_back_to_", "hand_back_to_", "hand_off_back_to_"]) {
        return Some(TransferName::Back(t));
    }
    if let Some(t) = rest(&["transfer_to_", "handoff_to_", "hand_off_to_", "handover_to_", "hand_over_to_"]) {
        return Some(if t == "agent" { TransferName::ToArgument } else { TransferName::To(t) });
    }
    match s.as_ref() {
        "transfer_to" | "transfer_agent" | "agent_transfer" | "handoff" | "handoff_to" | "agent_handoff" => {
            return Some(TransferName::ToArgument);
        }
        "task" | "agent" | "sub_agent" | "subagent" | "ask_question_to_coworker" => {
            return Some(TransferName::Task);
        }
        "delegate_work_to_coworker" | "delegate_work_to_co_worker" => {
            return Some(TransferName::Delegate(None));
        }
        _ => {}
    }
    if let Some(t) = rest(&["delegate_to_", "assign_to_"]) {
        return Some(TransferName::Delegate(
            (!matches!(t.as_str(), "agent" | "agents" | "worker" | "workers" | "subagent")).then_some(t),
        ));
    }
    if s == "delegate" || s.starts_with("delegate_") || s.starts_with("delegation") {
        return Some(TransferName::Delegate(None));
    }
    None
}

/// Arguments that say where a transfer goes and nothing else. They are no payload
/// (METRICS.md section 1, payload).
pub fn is_routing_argument(key: &str) -> bool {
    with_slug(key, |s| {
        matches!(
            s,
            "agent"
                | "agent_name"
                | "agentname"
                | "agent_id"
                | "agent_type"
                | "target"
                | "target_agent"
                | "target_name"
                | "to"
                | "to_agent"
                | "recipient"
                | "receiver"
                | "coworker"
                | "co_worker"
                | "member"
                | "member_id"
                | "member_name"
                | "subagent"
                | "subagent_type"
                | "subagent_name"
                | "sub_agent"
                | "worker"
                | "worker_name"
                | "assignee"
                | "destination"
                | "next_agent"
                | "active_agent"
                | "handoff_to"
        )
    })
}

/// Technical switches of delegation tools: neither routing nor payload.
pub fn is_switch_argument(key: &str) -> bool {
    with_slug(key, |s| {
        matches!(
            s,
            "run_in_background"
                | "background"
                | "resume"
                | "model"
                | "isolation"
                | "mode"
                | "max_turns"
                | "name"
        )
    })
}

/// The tool's name without the server that offers it: `mcp__support__lookup` and
/// `support/lookup` are `lookup`.
pub fn bare_tool_name(tool: &str) -> &str {
    let t = tool.trim();
    if let Some(rest) = t.strip_prefix("mcp__") {
        return rest.split_once("__").map_or(rest, |(_, name)| name);
    }
    let Some(at) = t.bytes().rposition(|b| matches!(b, b'/' | b'.')) else { return t };
    let (server, name) = (&t[..at], &t[at + 1..]);
    if name.is_empty() || server.is_empty() || server.contains(char::is_whitespace) { t } else { name }
}

/// Pseudo tools by which a framework lets the model give its final answer. They do no work.
pub fn is_final_answer_tool(tool: &str) -> bool {
    with_slug(tool, |s| {
        matches!(
            s,
            "final_result"
                | "final_answer"
                | "final_output"
                | "finish"
                | "structured_output"
                | "structuredoutput"
                | "submit_final_answer"
                | "attempt_completion"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_differ_in_case_and_separators_are_one_slug() {
        assert_eq!(slug("Refunds Specialist"), "refunds_specialist");
        assert_eq!(slug("refunds-specialist"), "refunds_specialist");
        assert_eq!(slug(" refunds__specialist "), "refunds_specialist");
    }

    #[test]
    fn names_are_compared_as_by_their_slugs() {
        let names =
            ["", "_", "--", "a", "A b", "a-b", " a__b ", "_a_b", "a_b_", "É b", "é-b", "x.Y", "Triage"];
        for a in names {
            assert!(is_slug_of(&slug(a), a), "{a}");
            for b in names {
                assert_eq!(same_name(a, b), slug(a) == slug(b), "{a} {b}");
            }
        }
    }

    #[test]
    fn names_in_look_alike_scripts_stay_apart() {
        // The second one starts with a Cyrillic letter.
        assert_ne!(slug("agent"), slug("\u{430}gent"));
    }

    #[test]
    fn transfer_tools_are_read_with_their_target() {
        assert_eq!(
            transfer_name("transfer_to_refunds_specialist"),
            Some(TransferName::To("refunds_specialist".into()))
        );
        assert_eq!(
            transfer_name("transfer_back_to_supervisor"),
            Some(TransferName::Back("supervisor".into()))
        );
        assert_eq!(transfer_name("handoff_to_agent"), Some(TransferName::ToArgument));
        assert_eq!(transfer_name("Delegate work to coworker"), Some(TransferName::Delegate(None)));
        assert_eq!(transfer_name("delegate_to_workers"), Some(TransferName::Delegate(None)));
        assert_eq!(transfer_name("task"), Some(TransferName::Task));
        assert_eq!(transfer_name("lookup_order"), None);
        assert_eq!(transfer_name("tasks_list"), None);
    }

    #[test]
    fn a_server_prefix_is_no_part_of_the_tool() {
        assert_eq!(bare_tool_name("mcp__support__lookup_order"), "lookup_order");
        assert_eq!(bare_tool_name("support/lookup_order"), "lookup_order");
        assert_eq!(bare_tool_name("lookup_order"), "lookup_order");
    }
}
