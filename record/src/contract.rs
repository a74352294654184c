//! The contract: as an application writes it ([`Contract`]), and as it is found in a payload ([`read`]): which fields it holds, which
//! constraints it states (METRICS.md section 1, payload and contract, and the alias table below it).

use serde_json::{Map, Value};

use crate::constraint::{Constraint, ConstraintKind};
use crate::json::{self, Form};
use crate::names::{is_routing_argument, is_switch_argument, slug};

mod typed;

pub use typed::{Contract, ContractBuilder, Fault, MAX_FIELD_CHARS, MAX_REFERENCE_CHARS, Problem};

/// A field of a contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Field {
    /// What the receiver shall achieve.
    Intent,
    /// Rules that must hold.
    Constraints,
    /// What is done already.
    Status,
    /// Facts and results the work stands on.
    Evidence,
    /// What to do next.
    NextAction,
    /// When to stop.
    StopCondition,
    /// Extended: the task's id.
    TaskId,
    /// Extended: the goal in the user's words.
    UserGoal,
    /// Extended: rules under their long name.
    HardConstraints,
    /// Extended: wishes.
    SoftPreferences,
    /// Extended: how far the task is.
    CompletionStatus,
    /// Extended: steps that are done.
    CompletedSteps,
    /// Extended: tools that were tried.
    AttemptedTools,
    /// Extended: what is known not to work.
    KnownFailures,
    /// Extended: results of tools.
    ImportantToolResults,
    /// Extended: what is open.
    UnresolvedQuestions,
    /// Extended: references to artifacts.
    ArtifactRefs,
    /// Extended: free text.
    Narrative,
}

/// The six fields that `completeness` asks for, in order.
pub const REQUIRED: [Field; 6] = [
    Field::Intent,
    Field::Constraints,
    Field::Status,
    Field::Evidence,
    Field::NextAction,
    Field::StopCondition,
];

/// Every field, required ones first.
pub const ALL: [Field; 18] = [
    Field::Intent,
    Field::Constraints,
    Field::Status,
    Field::Evidence,
    Field::NextAction,
    Field::StopCondition,
    Field::TaskId,
    Field::UserGoal,
    Field::HardConstraints,
    Field::SoftPreferences,
    Field::CompletionStatus,
    Field::CompletedSteps,
    Field::AttemptedTools,
    Field::KnownFailures,
    Field::ImportantToolResults,
    Field::UnresolvedQuestions,
    Field::ArtifactRefs,
    Field::Narrative,
];

impl Field {
    /// The name in reports and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Intent => "intent",
            Self::Constraints => "constraints",
            Self::Status => "status",
            Self::Evidence => "evidence",
            Self::NextAction => "next_action",
            Self::StopCondition => "stop_condition",
            Self::TaskId => "task_id",
            Self::UserGoal => "user_goal",
            Self::HardConstraints => "hard_constraints",
            Self::SoftPreferences => "soft_preferences",
            Self::CompletionStatus => "completion_status",
            Self::CompletedSteps => "completed_steps",
            Self::AttemptedTools => "attempted_tools",
            Self::KnownFailures => "known_failures",
            Self::ImportantToolResults => "important_tool_results",
            Self::UnresolvedQuestions => "unresolved_questions",
            Self::ArtifactRefs => "artifact_refs",
            Self::Narrative => "narrative",
        }
    }

    /// The field of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        ALL.into_iter().find(|f| f.name() == name)
    }

    /// This field as one bit of [`Payload::fields`].
    pub fn bit(self) -> u32 {
        1 << (self as u8)
    }
}

/// Names of the fields in a bit set, in the order of [`ALL`].
pub fn field_names(bits: u32) -> impl Iterator<Item = &'static str> {
    ALL.into_iter().filter(move |f| bits & f.bit() != 0).map(Field::name)
}

/// The built-in aliases of the six fields (METRICS.md section 1).
const ALIASES: [(&str, Field); 24] = [
    ("user_goal", Field::Intent),
    ("inferred_intent", Field::Intent),
    ("goal", Field::Intent),
    ("objective", Field::Intent),
    ("task", Field::Intent),
    ("task_description", Field::Intent),
    ("hard_constraints", Field::Constraints),
    ("rules", Field::Constraints),
    ("policy", Field::Constraints),
    ("completion_status", Field::Status),
    ("completed_steps", Field::Status),
    ("progress", Field::Status),
    ("important_tool_results", Field::Evidence),
    ("artifact_refs", Field::Evidence),
    ("findings", Field::Evidence),
    ("key_facts", Field::Evidence),
    ("next_step", Field::NextAction),
    ("requested_action", Field::NextAction),
    ("instructions", Field::NextAction),
    ("done_when", Field::StopCondition),
    ("exit_criteria", Field::StopCondition),
    ("success_criteria", Field::StopCondition),
    ("acceptance_criteria", Field::StopCondition),
    ("expected_output", Field::StopCondition),
];

/// Which keys fill which field: the built-in aliases and the user's own (`baton.toml`, `[aliases]`).
#[derive(Debug, Clone, Default)]
pub struct Aliases {
    own: Vec<(String, Field)>,
}

impl Aliases {
    /// Adds an alias; a key may fill one of the six fields.
    pub fn add(&mut self, key: &str, field: Field) {
        self.own.push((slug(key), field));
    }

    /// The required field that a key fills, and whether by its own name.
    fn required(&self, key: &str) -> Option<(Field, bool)> {
        if let Some(f) = REQUIRED.into_iter().find(|f| f.name() == key) {
            return Some((f, true));
        }
        let built_in = ALIASES.iter().find(|(k, _)| *k == key).map(|(_, f)| *f);
        self.own.iter().find(|(k, _)| k == key).map(|(_, f)| *f).or(built_in).map(|f| (f, false))
    }
}

/// General text parameters: alone they make no structure.
fn is_general_text(key: &str) -> bool {
    matches!(
        key,
        "task"
            | "task_description"
            | "description"
            | "instructions"
            | "input"
            | "request"
            | "message"
            | "query"
            | "context"
            | "prompt"
            | "note"
            | "reason"
            | "summary"
            | "text"
            | "content"
            | "brief"
            | "question"
    )
}

/// What a payload says.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Payload {
    /// False where the payload was cut off or masked: what is missing is not known to be missing.
    pub complete: bool,
    /// True where an object with contract fields was found.
    pub structured: bool,
    /// Fields present ([`Field::bit`]); of an unstructured payload 0.
    pub fields: u32,
    /// `key>field` for every alias that filled a field.
    pub aliases: Vec<String>,
    /// True where it holds free text.
    pub narrative: bool,
    /// Constraints stated, hard and soft.
    pub constraints: Vec<Constraint>,
    /// References to artifacts.
    pub artifacts: Vec<String>,
    /// The intent as stated, for comparing goals.
    pub intent: Option<String>,
    /// Steps declared complete.
    pub completed_steps: Vec<String>,
    /// Targets that routing arguments name.
    pub targets: Vec<String>,
    /// The payload without routing, as JSON; what tokens and fingerprints are taken of.
    pub body: Value,
}

impl Payload {
    /// How many of the six required fields are present.
    pub fn required_present(&self) -> u32 {
        REQUIRED.iter().filter(|f| self.fields & f.bit() != 0).count() as u32
    }

    /// True where nothing was put in.
    pub fn is_empty(&self) -> bool {
        match &self.body {
            Value::Null => true,
            Value::Object(m) => m.values().all(|v| !is_present(v)),
            v => !is_present(v),
        }
    }

    /// Adds what another part of the same transfer says.
    pub fn merge(&mut self, other: Payload) {
        self.complete &= other.complete;
        self.structured |= other.structured;
        self.fields |= other.fields;
        self.narrative |= other.narrative;
        for a in other.aliases {
            if !self.aliases.contains(&a) {
                self.aliases.push(a);
            }
        }
        for c in other.constraints {
            if !self.constraints.iter().any(|x| x.hash == c.hash) {
                self.constraints.push(c);
            }
        }
        for a in other.artifacts {
            if !self.artifacts.contains(&a) {
                self.artifacts.push(a);
            }
        }
        self.intent = self.intent.take().or(other.intent);
        self.completed_steps.extend(other.completed_steps);
        self.targets.extend(other.targets);
    }
}

/// Reads the arguments of a call, or a contract object, as a payload.
///
/// Routing arguments are set aside as targets. Contract fields are looked for at the top level, in an object
/// under any argument, and in JSON inside text.
pub fn read(args: &Value, aliases: &Aliases) -> Payload {
    let mut p = Payload { complete: true, ..Payload::default() };
    match args {
        Value::Object(m) => {
            let mut body = Map::new();
            for (k, v) in m {
                if is_routing_argument(k) && is_name_like(v) {
                    collect_targets(v, &mut p.targets);
                } else if !(is_switch_argument(k) && !v.is_object() && !v.is_array()) {
                    body.insert(k.clone(), v.clone());
                }
            }
            read_object(&body, aliases, &mut p, 0);
            p.body = Value::Object(body);
        }
        Value::Null => p.body = Value::Null,
        other => {
            read_text_or_list(other, aliases, &mut p, 0);
            p.body = other.clone();
        }
    }
    p
}

fn is_name_like(v: &Value) -> bool {
    match v {
        Value::String(s) => s.chars().count() <= 80 && !s.contains('\n'),
        Value::Array(a) => a.iter().all(|x| x.as_str().is_some_and(|s| s.len() <= 80)),
        _ => false,
    }
}

fn collect_targets(v: &Value, out: &mut Vec<String>) {
    match v {
        Value::String(s) if !s.trim().is_empty() => out.push(s.trim().to_owned()),
        Value::Array(a) => a.iter().for_each(|x| collect_targets(x, out)),
        _ => {}
    }
}

fn is_structured(m: &Map<String, Value>, aliases: &Aliases) -> bool {
    let known = |k: &str| aliases.required(k).is_some() || Field::from_name(k).is_some();
    let keys: Vec<String> = m.keys().map(|k| slug(k)).collect();
    // One key that bears a required field's own name is a contract of one field; an alias alone is one
    // where its value is a list or an object, and text otherwise.
    if let [only] = keys.as_slice() {
        let value_is_text = m.values().all(Value::is_string);
        return REQUIRED.iter().any(|f| f.name() == only)
            || (known(only) && !is_general_text(only) && !value_is_text);
    }
    keys.len() >= 2 && keys.iter().any(|k| known(k) && !is_general_text(k))
}

fn read_object(m: &Map<String, Value>, aliases: &Aliases, p: &mut Payload, depth: usize) {
    if depth > 4 {
        return;
    }
    if is_structured(m, aliases) {
        p.structured = true;
        for (k, v) in m {
            read_field(&slug(k), v, aliases, p);
        }
    }
    for (k, v) in m {
        match v {
            // A contract nested under any argument. Lists of constraints and the like were read above.
            Value::Object(inner) => read_object(inner, aliases, p, depth + 1),
            Value::String(s) => {
                let field = aliases.required(&slug(k)).is_some() || Field::from_name(&slug(k)).is_some();
                if !(p.structured && field) {
                    read_text(s, aliases, p, depth);
                }
            }
            Value::Array(_) if !p.structured => read_text_or_list(v, aliases, p, depth + 1),
            _ => {}
        }
    }
}

fn read_text_or_list(v: &Value, aliases: &Aliases, p: &mut Payload, depth: usize) {
    if depth > 4 {
        return;
    }
    match v {
        Value::String(s) => read_text(s, aliases, p, depth),
        Value::Array(a) => {
            for x in a {
                match x {
                    Value::Object(m) => {
                        for (k, y) in m {
                            if is_routing_argument(k) && is_name_like(y) {
                                collect_targets(y, &mut p.targets);
                            }
                        }
                        if m.values().any(|y| y.is_string()) {
                            p.narrative = true;
                        }
                    }
                    other => read_text_or_list(other, aliases, p, depth + 1),
                }
            }
        }
        Value::Object(m) => read_object(m, aliases, p, depth),
        _ => {}
    }
}

fn read_text(s: &str, aliases: &Aliases, p: &mut Payload, depth: usize) {
    if s.trim().is_empty() {
        return;
    }
    if let Some((m, form)) = json::embedded_object(s) {
        if form == Form::Truncated {
            p.complete = false;
        }
        read_object(&m, aliases, p, depth + 1);
        return;
    }
    p.narrative = true;
}

fn read_field(key: &str, v: &Value, aliases: &Aliases, p: &mut Payload) {
    if let Some((field, by_name)) = aliases.required(key) {
        let declared_none = field == Field::Constraints && v.as_array().is_some_and(Vec::is_empty);
        if is_present(v) || declared_none {
            p.fields |= field.bit();
            if !by_name {
                let a = format!("{key}>{}", field.name());
                if !p.aliases.contains(&a) {
                    p.aliases.push(a);
                }
            }
        }
        match field {
            Field::Constraints => collect_constraints(v, ConstraintKind::Hard, &mut p.constraints),
            Field::Intent if by_name || p.intent.is_none() => {
                if let Some(s) = v.as_str().filter(|s| is_present(&Value::String((*s).to_owned()))) {
                    p.intent = Some(s.to_owned());
                }
            }
            _ => {}
        }
    }
    if let Some(field) = Field::from_name(key).filter(|f| !REQUIRED.contains(f)) {
        if is_present(v) {
            p.fields |= field.bit();
        }
        match field {
            Field::SoftPreferences => collect_constraints(v, ConstraintKind::Soft, &mut p.constraints),
            Field::CompletedSteps => collect_steps(v, &mut p.completed_steps),
            Field::ArtifactRefs => collect_refs(v, &mut p.artifacts, 0),
            Field::Narrative => p.narrative = true,
            _ => {}
        }
    }
    if matches!(key, "artifacts" | "artifact" | "attachments" | "references") {
        collect_refs(v, &mut p.artifacts, 0);
    }
    if matches!(key, "retired_constraints" | "retired") {
        for c in v.as_array().into_iter().flatten() {
            if let Some(mut c) = Constraint::from_value(c, ConstraintKind::Hard) {
                if let (Some(text), true) = (&c.text, c.id == c.hash[..16]) {
                    // A bare id retires the constraint of that id.
                    c.id.clone_from(text);
                }
                c.retired = true;
                p.constraints.push(c);
            }
        }
    }
}

/// Non-empty after trimming, and no placeholder (METRICS.md section 2, completeness).
fn is_present(v: &Value) -> bool {
    match v {
        Value::Null => false,
        Value::Bool(_) | Value::Number(_) => true,
        Value::String(s) => {
            let t = s
                .trim()
                .trim_matches(|c: char| matches!(c, '.' | '"' | '\'' | '<' | '>' | '[' | ']'))
                .trim()
                .to_lowercase();
            !matches!(
                t.as_str(),
                "" | "n/a"
                    | "na"
                    | "none"
                    | "null"
                    | "nil"
                    | "todo"
                    | "tbd"
                    | "-"
                    | "--"
                    | "\u{2026}"
                    | "unknown"
                    | "placeholder"
            )
        }
        Value::Array(a) => a.iter().any(is_present),
        Value::Object(m) => m.values().any(is_present),
    }
}

fn collect_constraints(v: &Value, kind: ConstraintKind, out: &mut Vec<Constraint>) {
    let mut add = |c: Option<Constraint>| {
        if let Some(c) = c
            && !out.iter().any(|x| x.hash == c.hash)
        {
            out.push(c);
        }
    };
    match v {
        Value::Array(a) => a.iter().for_each(|x| add(Constraint::from_value(x, kind))),
        Value::String(s) if is_present(v) => match json::parse_loose(s) {
            (parsed @ (Value::Array(_) | Value::Object(_)), f) if f != Form::Text => {
                collect_constraints(&parsed, kind, out)
            }
            _ => s
                .lines()
                .map(|l| l.trim().trim_start_matches(['-', '*', '\u{2022}']).trim())
                .filter(|l| !l.is_empty())
                .for_each(|l| add(Some(Constraint::from_text(l, kind)))),
        },
        Value::Object(m) => {
            if m.contains_key("text") || m.contains_key("id") {
                add(Constraint::from_value(v, kind));
            } else {
                for (id, x) in m {
                    match x {
                        Value::String(text) if !text.trim().is_empty() => {
                            add(Some(Constraint::new(id, text.trim(), kind)))
                        }
                        Value::Object(_) => add(Constraint::from_value(x, kind)),
                        _ => {}
                    }
                }
            }
        }
        _ => {}
    }
}

fn collect_steps(v: &Value, out: &mut Vec<String>) {
    match v {
        Value::String(s) => out.extend(s.lines().map(str::trim).filter(|l| !l.is_empty()).map(str::to_owned)),
        Value::Array(a) => a.iter().for_each(|x| collect_steps(x, out)),
        Value::Object(m) => {
            if let Some(s) = ["step", "tool", "name", "action", "description"]
                .iter()
                .find_map(|k| m.get(*k).and_then(Value::as_str))
            {
                out.push(s.to_owned());
            }
        }
        _ => {}
    }
}

fn collect_refs(v: &Value, out: &mut Vec<String>, depth: usize) {
    match v {
        Value::String(s) => {
            let s = s.trim();
            if !s.is_empty()
                && s.chars().count() <= MAX_REFERENCE_CHARS
                && is_present(v)
                && !out.iter().any(|x| x == s)
            {
                out.push(s.to_owned());
            }
        }
        Value::Array(a) if depth < 4 => a.iter().for_each(|x| collect_refs(x, out, depth + 1)),
        Value::Object(m) if depth < 4 => {
            let named = [
                "uri",
                "url",
                "path",
                "ref",
                "file_path",
                "href",
                "id",
                "artifact_id",
                "document_id",
                "record_id",
            ]
            .iter()
            .find_map(|k| m.get(*k).filter(|v| v.is_string()));
            match named {
                Some(r) => collect_refs(r, out, depth + 1),
                None => m.values().for_each(|x| collect_refs(x, out, depth + 1)),
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn required(args: Value) -> Vec<&'static str> {
        let p = read(&args, &Aliases::default());
        REQUIRED.into_iter().filter(|f| p.fields & f.bit() != 0).map(Field::name).collect()
    }

    #[test]
    fn aliases_fill_fields_of_a_structured_payload_only() {
        let all = json!({"task": "t", "hard_constraints": ["a"], "completion_status": "half", "important_tool_results": ["r"], "instructions": "go", "expected_output": "o"});
        assert_eq!(required(all).len(), 6);
        assert_eq!(required(json!({"task": "Do it."})), Vec::<&str>::new());
        assert_eq!(required(json!({"description": "Do it.", "subagent_type": "x"})), Vec::<&str>::new());
        assert_eq!(required(json!({"input": "Do it.", "context": "c"})), Vec::<&str>::new());
        assert_eq!(required(json!({"reason": "r", "intent": "i"})), ["intent"]);
        assert_eq!(required(json!({"intent": "i"})), ["intent"]);
    }

    #[test]
    fn fields_are_found_in_nested_objects_and_in_text() {
        let c = json!({"intent": "i", "constraints": [], "status": "s"});
        assert_eq!(required(json!({"contract": c})).len(), 3);
        assert_eq!(required(json!({"description": c.to_string(), "subagent_type": "x"})).len(), 3);
        assert_eq!(required(json!({"prompt": format!("Contract:\n{c}")})).len(), 3);
        assert_eq!(required(json!({"prompt": format!("Please.\n```json\n{c}\n```")})).len(), 3);
    }

    #[test]
    fn placeholders_are_absent_and_an_empty_list_of_constraints_is_a_declaration() {
        let got = required(
            json!({"intent": " n/a ", "constraints": [], "status": "TODO", "evidence": [], "next_action": "...", "stop_condition": "done"}),
        );
        assert_eq!(got, ["constraints", "stop_condition"]);
    }

    #[test]
    fn routing_is_no_payload() {
        let p = read(&json!({"agent_name": "Billing", "run_in_background": false}), &Aliases::default());
        assert_eq!(p.targets, ["Billing"]);
        assert!(p.is_empty());
        let fan = read(
            &json!({"tasks": [{"agent": "a", "brief": "x"}, {"agent": "b", "brief": "y"}]}),
            &Aliases::default(),
        );
        assert_eq!(fan.targets, ["a", "b"]);
        assert!(!fan.structured);
    }

    #[test]
    fn constraints_are_read_as_objects_strings_and_maps() {
        let p = read(
            &json!({"intent": "i", "hard_constraints": [{"id": "a", "text": "A", "kind": "policy"}, "B rule"], "soft_preferences": ["C"]}),
            &Aliases::default(),
        );
        let got: Vec<(&str, ConstraintKind)> =
            p.constraints.iter().map(|c| (c.text.as_deref().unwrap_or_default(), c.kind)).collect();
        assert_eq!(
            got,
            [("A", ConstraintKind::Hard), ("B rule", ConstraintKind::Hard), ("C", ConstraintKind::Soft)]
        );
        assert_eq!(p.constraints[0].id, "a");
    }

    #[test]
    fn users_can_add_aliases() {
        let mut a = Aliases::default();
        a.add("Auftrag", Field::Intent);
        let p = read(&json!({"auftrag": "x", "status": "y"}), &a);
        assert_eq!(p.required_present(), 2);
        assert_eq!(p.aliases, ["auftrag>intent"]);
    }

    proptest::proptest! {
        #[test]
        fn no_json_makes_it_panic(s in "[\\[\\]{}\"a-z_:, 0-9]{0,80}") {
            let (v, _) = json::parse_loose(&s);
            let _ = read(&v, &Aliases::default());
        }
    }
}
