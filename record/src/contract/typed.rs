//! The contract as an application writes it.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use super::{ALL, Aliases, Field, REQUIRED, is_present, read};
use crate::canonical;
use crate::constraint::{Constraint, ConstraintKind, ConstraintSet};

/// Characters of one field, as compact JSON, at most. A contract is a summary; what is larger belongs into an artifact.
pub const MAX_FIELD_CHARS: usize = 8192;
/// Characters of one reference to an artifact, at most. Longer ones are not read as references.
pub const MAX_REFERENCE_CHARS: usize = 2048;

/// What one agent tells another when it hands work over (METRICS.md section 1, contract): six required fields and an
/// extended list.
///
/// A field that is empty is not written. [`Contract::constraints`] alone knows the difference between nothing said (`None`) and no
/// constraint (an empty set). As JSON: `contract.schema.json` beside this crate's manifest.
///
/// ```
/// use baton_record::constraint::Constraint;
/// use baton_record::contract::Contract;
///
/// let contract = Contract::builder()
///     .intent("Refund order 4711")
///     .constraint(Constraint::hard("refund-window-30d", "Refund only within 30 days of capture"))
///     .status("Identity verified")
///     .evidence("Order 4711 was captured 12 days ago")
///     .next_action("Issue the refund")
///     .build();
/// let problems = contract.validate();
/// assert_eq!(problems[0].to_string(), "stop_condition: missing");
/// ```
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Contract {
    /// What the receiver shall achieve.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub intent: String,
    /// Rules that must hold. `None`: nothing is said of them; the empty set: there are none.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "some_hard")]
    pub constraints: Option<ConstraintSet>,
    /// What is done already, and how far the task is.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub status: String,
    /// Facts and results the work stands on: texts or objects.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<Value>,
    /// What to do next.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub next_action: String,
    /// When to stop.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub stop_condition: String,
    /// The task's id.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub task_id: String,
    /// The goal in the user's words.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub user_goal: String,
    /// Rules under their long name. They count with [`Contract::constraints`].
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "some_hard")]
    pub hard_constraints: Option<ConstraintSet>,
    /// Wishes.
    #[serde(
        skip_serializing_if = "ConstraintSet::is_empty",
        deserialize_with = "soft",
        serialize_with = "without_kind"
    )]
    pub soft_preferences: ConstraintSet,
    /// How far the task is.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub completion_status: String,
    /// Steps that are done.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub completed_steps: Vec<String>,
    /// Tools that were tried: names, or objects with `tool` and what came of it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub attempted_tools: Vec<Value>,
    /// What is known not to work: texts or objects.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub known_failures: Vec<Value>,
    /// Results of tools: texts or objects.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub important_tool_results: Vec<Value>,
    /// What is open.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unresolved_questions: Vec<String>,
    /// References to artifacts: paths, URIs, ids. Never the thing itself.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub artifact_refs: Vec<String>,
    /// Free text.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub narrative: String,
    /// Keys of the application's own.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

fn of_kind<'de, D: Deserializer<'de>>(d: D, kind: ConstraintKind) -> Result<ConstraintSet, D::Error> {
    // Where a constraint stands decides whether it is hard.
    let members = Vec::<Constraint>::deserialize(d)?;
    Ok(members.into_iter().map(|c| Constraint { kind, ..c }).collect())
}

fn some_hard<'de, D: Deserializer<'de>>(d: D) -> Result<Option<ConstraintSet>, D::Error> {
    of_kind(d, ConstraintKind::Hard).map(Some)
}

fn soft<'de, D: Deserializer<'de>>(d: D) -> Result<ConstraintSet, D::Error> {
    of_kind(d, ConstraintKind::Soft)
}

/// The kind of what stands under `soft_preferences` need not be said.
fn without_kind<S: Serializer>(set: &ConstraintSet, s: S) -> Result<S::Ok, S::Error> {
    s.collect_seq(set.iter().map(|c| Constraint { kind: ConstraintKind::Hard, ..c.clone() }))
}

/// Something wrong with one field of a contract. Shown as `field: what`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The field.
    pub field: Field,
    /// What is wrong.
    pub fault: Fault,
}

/// What can be wrong with a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// A required field is empty, or not there.
    Missing,
    /// The text is a placeholder such as "n/a" or "todo".
    Placeholder(String),
    /// Longer than allowed, in characters.
    TooLong {
        /// How long it is.
        chars: usize,
        /// How long it may be.
        limit: usize,
    },
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let field = self.field.name();
        match &self.fault {
            Fault::Missing => write!(f, "{field}: missing"),
            Fault::Placeholder(text) => write!(f, "{field}: {text:?} is a placeholder"),
            Fault::TooLong { chars, limit } => write!(f, "{field}: {chars} characters, at most {limit}"),
        }
    }
}

impl Contract {
    /// A contract to be filled field by field.
    pub fn builder() -> ContractBuilder {
        ContractBuilder::default()
    }

    /// Reads JSON text.
    ///
    /// # Errors
    /// Where it is no JSON object, or a field has another type; the error names line and column.
    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// The contract as a JSON value.
    pub fn to_value(&self) -> Value {
        // Nothing in a contract can fail to become JSON: all keys are texts.
        serde_json::to_value(self).unwrap_or_default()
    }

    /// The contract as canonical JSON: what is handed over, counted in tokens and hashed.
    pub fn to_json(&self) -> String {
        canonical::to_string(&self.to_value())
    }

    /// SHA-256 of [`Contract::to_json`], as hex.
    pub fn digest(&self) -> String {
        canonical::sha256_hex(self.to_json().as_bytes())
    }

    /// Every rule the contract states, under either name, retired ones too. One that is stated twice counts as stated last.
    pub fn constraint_set(&self) -> ConstraintSet {
        self.constraints.iter().chain(&self.hard_constraints).flat_map(ConstraintSet::iter).cloned().collect()
    }

    /// Names of the fields that are present, as a reader of the contract finds them: an extended field such as `user_goal` fills the
    /// required one that it is an alias of.
    pub fn fields(&self) -> Vec<&'static str> {
        super::field_names(read(&self.to_value(), &Aliases::default()).fields).collect()
    }

    /// Names of the tools in `attempted_tools`, each once.
    pub fn attempted_tool_names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for v in &self.attempted_tools {
            let name = v.as_str().or_else(|| ["tool", "name"].iter().find_map(|k| v.get(*k)?.as_str()));
            if let Some(n) = name.map(str::trim).filter(|n| !n.is_empty() && !names.contains(n)) {
                names.push(n);
            }
        }
        names
    }

    /// What is wrong with it, in the order of [`ALL`]; empty where nothing is. A required field may be filled by an extended one.
    pub fn validate(&self) -> Vec<Problem> {
        let value = self.to_value();
        let present = read(&value, &Aliases::default()).fields;
        let mut problems = Vec::new();
        for field in ALL {
            let mut add = |fault| problems.push(Problem { field, fault });
            let v = value.get(field.name()).unwrap_or(&Value::Null);
            match v {
                Value::String(s) if !s.trim().is_empty() && !is_present(v) => {
                    add(Fault::Placeholder(s.clone()));
                }
                Value::Array(list) if !list.is_empty() && !is_present(v) => {
                    add(Fault::Placeholder(canonical::to_string(v)));
                }
                _ if REQUIRED.contains(&field) && present & field.bit() == 0 => add(Fault::Missing),
                _ => {}
            }
            let chars = match v {
                Value::Null => 0,
                Value::String(s) => s.chars().count(),
                other => canonical::to_string(other).chars().count(),
            };
            if chars > MAX_FIELD_CHARS {
                add(Fault::TooLong { chars, limit: MAX_FIELD_CHARS });
            }
            if field == Field::ArtifactRefs {
                for r in &self.artifact_refs {
                    let chars = r.chars().count();
                    if chars > MAX_REFERENCE_CHARS {
                        add(Fault::TooLong { chars, limit: MAX_REFERENCE_CHARS });
                    }
                }
            }
        }
        problems
    }
}

/// Fills a [`Contract`]. Methods of lists add; the others replace.
#[derive(Debug, Clone, Default)]
pub struct ContractBuilder(Contract);

/// One method for each field that is a text.
macro_rules! texts {
    ($($field:ident: $doc:literal),* $(,)?) => {
        $(
            #[doc = $doc]
            pub fn $field(mut self, text: impl Into<String>) -> Self {
                self.0.$field = text.into();
                self
            }
        )*
    };
}

/// One method for each field that is a list; its name says what one entry is.
macro_rules! lists {
    ($($name:ident, $field:ident: $type:ty, $doc:literal),* $(,)?) => {
        $(
            #[doc = $doc]
            pub fn $name(mut self, entry: impl Into<$type>) -> Self {
                self.0.$field.push(entry.into());
                self
            }
        )*
    };
}

impl ContractBuilder {
    texts! {
        intent: "What the receiver shall achieve.",
        status: "What is done already, and how far the task is.",
        next_action: "What to do next.",
        stop_condition: "When to stop.",
        task_id: "The task's id.",
        user_goal: "The goal in the user's words.",
        completion_status: "How far the task is.",
        narrative: "Free text.",
    }

    lists! {
        evidence, evidence: Value, "A fact or result the work stands on: a text or an object.",
        completed_step, completed_steps: String, "A step that is done.",
        attempted_tool, attempted_tools: Value, "A tool that was tried: its name, or an object with `tool`.",
        known_failure, known_failures: Value, "Something known not to work: a text or an object.",
        important_tool_result, important_tool_results: Value, "A result of a tool: a text or an object.",
        unresolved_question, unresolved_questions: String, "Something that is open.",
        artifact_ref, artifact_refs: String, "A reference to an artifact: a path, a URI, an id.",
    }

    /// A constraint: a hard one goes to `constraints`, a soft one to `soft_preferences`.
    pub fn constraint(mut self, c: Constraint) -> Self {
        match c.kind {
            ConstraintKind::Hard => self.0.constraints.get_or_insert_default().add(c),
            ConstraintKind::Soft => self.0.soft_preferences.add(c),
        }
        self
    }

    /// Several constraints. With none it is said that there are none.
    pub fn constraints(mut self, all: impl IntoIterator<Item = Constraint>) -> Self {
        self.0.constraints.get_or_insert_default();
        all.into_iter().fold(self, Self::constraint)
    }

    /// A key of the application's own.
    pub fn other(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.0.other.insert(key.to_owned(), value.into());
        self
    }

    /// The contract. Ask [`Contract::validate`] what it lacks.
    pub fn build(self) -> Contract {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn whole() -> Contract {
        Contract::builder()
            .intent("Refund order 4711")
            .constraint(Constraint::hard("refund-window-30d", "Refund only within 30 days of capture"))
            .constraint(Constraint::soft("tone", "Be brief"))
            .status("Identity verified")
            .evidence(json!({"order": "4711", "captured": "12 days ago"}))
            .next_action("Issue the refund")
            .stop_condition("The refund is issued or declined")
            .completed_step("verify_identity")
            .attempted_tool(json!({"tool": "lookup_order", "outcome": "ok"}))
            .attempted_tool("payment_log")
            .artifact_ref("s3://evidence/4711.json")
            .other("team", "refunds")
            .build()
    }

    #[test]
    fn a_contract_is_the_same_after_json() {
        let c = whole();
        assert_eq!(Contract::from_json(&c.to_json()).unwrap(), c);
        assert!(c.validate().is_empty());
        assert_eq!(c.attempted_tool_names(), ["lookup_order", "payment_log"]);
    }

    #[test]
    fn a_reader_of_the_payload_finds_what_the_contract_says() {
        let c = whole();
        let p = read(&c.to_value(), &Aliases::default());
        assert_eq!(p.required_present(), 6);
        let stated: Vec<(&str, &str)> =
            p.constraints.iter().map(|c| (c.id.as_str(), c.hash.as_str())).collect();
        let set = c.constraint_set();
        assert_eq!(stated[0], (set.ids()[0], set.hashes()[0]));
        assert_eq!((stated.len(), p.constraints[1].kind), (2, ConstraintKind::Soft));
        assert_eq!(p.artifacts, c.artifact_refs);
        assert_eq!(p.completed_steps, c.completed_steps);
    }

    #[test]
    fn every_fault_is_told_with_its_field() {
        let c = Contract {
            intent: " ".into(),
            status: "TODO".into(),
            evidence: vec![json!("n/a"), json!("")],
            next_action: "x".repeat(MAX_FIELD_CHARS + 1),
            artifact_refs: vec!["y".repeat(MAX_REFERENCE_CHARS + 1)],
            ..Contract::default()
        };
        let told: Vec<String> = c.validate().iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            [
                "intent: missing",
                "constraints: missing",
                "status: \"TODO\" is a placeholder",
                "evidence: \"[\\\"n/a\\\",\\\"\\\"]\" is a placeholder",
                "next_action: 8193 characters, at most 8192",
                "stop_condition: missing",
                "artifact_refs: 2049 characters, at most 2048",
            ]
        );
    }

    #[test]
    fn no_constraints_is_not_the_same_as_none_stated() {
        let none = Contract::builder().intent("i").constraints([]).build();
        assert_eq!(none.fields(), ["intent", "constraints"]);
        assert_eq!(Contract::builder().intent("i").build().fields(), ["intent"]);
        assert_eq!(none.constraint_set().hash(), canonical::sha256_hex(b""));
    }

    #[test]
    fn an_extended_field_fills_the_required_one_it_is_an_alias_of() {
        let c = Contract::from_json(
            r#"{"user_goal": "money back", "hard_constraints": ["Ask first"], "completed_steps": ["verify"], "important_tool_results": ["ok"]}"#,
        )
        .unwrap();
        let missing: Vec<Field> = c.validate().iter().map(|p| p.field).collect();
        assert_eq!(missing, [Field::NextAction, Field::StopCondition]);
        assert_eq!(c.constraint_set().ids().len(), 1);
    }

    #[test]
    fn the_place_decides_whether_a_rule_is_hard() {
        let c = Contract::from_json(
            r#"{"constraints": [{"id": "a", "text": "A", "kind": "soft"}], "soft_preferences": ["B"]}"#,
        )
        .unwrap();
        assert_eq!(c.constraint_set().ids(), ["a"]);
        assert!(c.soft_preferences.iter().all(|x| x.kind == ConstraintKind::Soft));
        let wrong = Contract::from_json("{\"intent\": \"i\",\n \"constraints\": [7]}").unwrap_err();
        assert!(wrong.to_string().contains("not 7") && wrong.line() == 2, "{wrong}");
    }
}
