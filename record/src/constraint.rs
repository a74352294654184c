//! Constraints and their hashes (METRICS.md section 1, constraint).
//!
//! `vectors.json` beside this crate's manifest holds test vectors for other languages.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::canonical;

/// Whether a constraint must hold or is a wish.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "lowercase")]
pub enum ConstraintKind {
    /// Must hold.
    #[default]
    Hard,
    /// A preference. Not counted by `constraint_retention`.
    Soft,
}

/// A rule that a task is under.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Constraint {
    /// Stable id; of a plain string: the first 16 hex digits of its hash.
    pub id: String,
    /// The rule as text. `None` where content is not kept.
    pub text: Option<String>,
    /// SHA-256 as hex: over the canonical JSON of `{"id","text"}`, of a plain string over `{"text"}`.
    pub hash: String,
    /// Hard or soft.
    pub kind: ConstraintKind,
    /// True from the moment the rule no longer holds.
    pub retired: bool,
}

impl Constraint {
    /// A constraint with an id of its own.
    pub fn new(id: &str, text: &str, kind: ConstraintKind) -> Self {
        Self {
            id: id.to_owned(),
            text: Some(text.to_owned()),
            hash: canonical::digest(&json!({"id": id, "text": text})),
            kind,
            retired: false,
        }
    }

    /// A constraint that is only a sentence.
    pub fn from_text(text: &str, kind: ConstraintKind) -> Self {
        let hash = canonical::digest(&json!({"text": text}));
        Self { id: hash[..16].to_owned(), text: Some(text.to_owned()), hash, kind, retired: false }
    }

    /// Reads what stands in a list of constraints: a string, or an object with `id` and `text`
    /// (also `name`, `description`, `rule`). Its own `kind` is not asked: where it stands decides.
    pub fn from_value(v: &Value, kind: ConstraintKind) -> Option<Self> {
        match v {
            Value::String(s) if !s.trim().is_empty() => Some(Self::from_text(s.trim(), kind)),
            Value::Object(m) => {
                let text_of = |keys: &[&str]| {
                    keys.iter()
                        .find_map(|k| m.get(*k).and_then(Value::as_str))
                        .map(str::trim)
                        .filter(|s| !s.is_empty())
                };
                let id = text_of(&["id", "name", "constraint_id"]);
                let text = text_of(&["text", "description", "rule", "constraint", "statement"]);
                let mut c = match (id, text) {
                    (Some(id), Some(text)) => Self::new(id, text, kind),
                    (None, Some(text)) => Self::from_text(text, kind),
                    (Some(id), None) => Self { text: None, ..Self::new(id, "", kind) },
                    (None, None) => return None,
                };
                c.retired = m.get("retired").and_then(Value::as_bool).unwrap_or(false);
                Some(c)
            }
            _ => None,
        }
    }
}

/// SHA-256 over the sorted member hashes, as hex. Order never matters; a member that stands twice counts once.
pub fn set_hash<'a>(members: impl IntoIterator<Item = &'a str>) -> String {
    let mut hashes: Vec<&str> = members.into_iter().collect();
    hashes.sort_unstable();
    hashes.dedup();
    canonical::sha256_hex(hashes.concat().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_hash_does_not_depend_on_order() {
        let a = Constraint::new("a", "A rule", ConstraintKind::Hard);
        let b = Constraint::from_text("Another rule", ConstraintKind::Hard);
        assert_eq!(set_hash([a.hash.as_str(), &b.hash]), set_hash([b.hash.as_str(), &a.hash, &a.hash]));
        assert_eq!(b.id, b.hash[..16]);
    }

    #[test]
    fn the_place_decides_whether_a_rule_is_hard() {
        let v = json!({"id": "x", "text": "t", "kind": "policy"});
        assert_eq!(
            Constraint::from_value(&v, ConstraintKind::Hard).map(|c| c.kind),
            Some(ConstraintKind::Hard)
        );
        assert_eq!(Constraint::from_value(&json!(""), ConstraintKind::Hard), None);
    }
}
