//! Constraints and their hashes (METRICS.md section 1, constraint).
//!
//! `vectors.json` beside this crate's manifest holds test vectors for other languages.

use serde::de::Error as _;
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
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
///
/// As JSON: a text where it is only a sentence, else `{"id", "text", "kind"?, "scope"?, "retired"?}`. The hash is
/// not written, it is computed from what is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Constraint {
    /// Stable id; of a plain string: the first 16 hex digits of its hash.
    pub id: String,
    /// The rule as text. `None` where content is not kept.
    pub text: Option<String>,
    /// SHA-256 as hex: over the canonical JSON of `{"id","text"}`, of a plain string over `{"text"}`.
    pub hash: String,
    /// Hard or soft.
    pub kind: ConstraintKind,
    /// What it is about, in the application's own words. No part of the hash.
    pub scope: Option<String>,
    /// True from the moment the rule no longer holds.
    pub retired: bool,
}

impl Constraint {
    /// A constraint with an id of its own. White space at both ends of id and text does not count; an empty id is none,
    /// so the constraint is a sentence only.
    pub fn new(id: &str, text: &str, kind: ConstraintKind) -> Self {
        let (id, text) = (id.trim(), text.trim());
        if id.is_empty() {
            return Self::from_text(text, kind);
        }
        Self {
            id: id.to_owned(),
            text: Some(text.to_owned()),
            hash: canonical::digest(&json!({"id": id, "text": text})),
            kind,
            scope: None,
            retired: false,
        }
    }

    /// A constraint that is only a sentence. White space at both ends does not count.
    pub fn from_text(text: &str, kind: ConstraintKind) -> Self {
        let text = text.trim();
        let hash = canonical::digest(&json!({"text": text}));
        let id = hash[..16].to_owned();
        Self { id, text: Some(text.to_owned()), hash, kind, scope: None, retired: false }
    }

    /// A rule that must hold.
    pub fn hard(id: &str, text: &str) -> Self {
        Self::new(id, text, ConstraintKind::Hard)
    }

    /// A preference.
    pub fn soft(id: &str, text: &str) -> Self {
        Self::new(id, text, ConstraintKind::Soft)
    }

    /// The same with a scope.
    pub fn with_scope(self, scope: &str) -> Self {
        Self { scope: Some(scope.to_owned()), ..self }
    }

    /// True where it must hold now: hard, and not retired.
    pub fn is_active(&self) -> bool {
        self.kind == ConstraintKind::Hard && !self.retired
    }

    /// True where it has no id of its own.
    pub fn is_plain(&self) -> bool {
        self.hash.get(..16) == Some(self.id.as_str())
    }

    /// Reads what stands in a list of constraints: a string, or an object with `id` and `text`
    /// (also `name`, `description`, `rule`). Its own `kind` is not asked: where it stands decides.
    pub fn from_value(v: &Value, kind: ConstraintKind) -> Option<Self> {
        match v {
            Value::String(s) if !s.trim().is_empty() => Some(Self::from_text(s, kind)),
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
                c.scope = m.get("scope").and_then(Value::as_str).map(str::to_owned);
                c.retired = m.get("retired").and_then(Value::as_bool).unwrap_or(false);
                Some(c)
            }
            _ => None,
        }
    }
}

impl Serialize for Constraint {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let plain = self.is_plain();
        let simple = self.kind == ConstraintKind::Hard && self.scope.is_none() && !self.retired;
        if let (true, true, Some(text)) = (plain, simple, &self.text) {
            return s.serialize_str(text);
        }
        let mut m = s.serialize_map(None)?;
        // Without a text nothing is left of a plain one but its id, which then is one of its own.
        if !plain || self.text.is_none() {
            m.serialize_entry("id", &self.id)?;
        }
        if let Some(text) = &self.text {
            m.serialize_entry("text", text)?;
        }
        if self.kind == ConstraintKind::Soft {
            m.serialize_entry("kind", &self.kind)?;
        }
        if let Some(scope) = &self.scope {
            m.serialize_entry("scope", scope)?;
        }
        if self.retired {
            m.serialize_entry("retired", &true)?;
        }
        m.end()
    }
}

impl<'de> Deserialize<'de> for Constraint {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let v = Value::deserialize(d)?;
        let kind = match v.get("kind").map(ConstraintKind::deserialize) {
            None => ConstraintKind::Hard,
            Some(Ok(kind)) => kind,
            Some(Err(e)) => return Err(D::Error::custom(format!("kind: {e}"))),
        };
        Self::from_value(&v, kind).ok_or_else(|| {
            D::Error::custom(format!("a constraint is a text or an object with id or text, not {v}"))
        })
    }
}

/// Constraints by id, in the order in which they were stated.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "Vec<Constraint>", into = "Vec<Constraint>")]
pub struct ConstraintSet {
    members: Vec<Constraint>,
}

impl ConstraintSet {
    /// The empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a constraint. One of the same id takes the place of the earlier: a rule can be reworded, or retired.
    pub fn add(&mut self, c: Constraint) {
        match self.members.iter_mut().find(|m| m.id == c.id) {
            Some(m) => *m = c,
            None => self.members.push(c),
        }
    }

    /// Ends a constraint, and says whether there is one of that id. It stays in the set, so that the receiver is told.
    pub fn retire(&mut self, id: &str) -> bool {
        let found = self.members.iter_mut().find(|m| m.id == id);
        found.map(|m| m.retired = true).is_some()
    }

    /// All members, soft and retired ones too.
    pub fn iter(&self) -> impl Iterator<Item = &Constraint> {
        self.members.iter()
    }

    /// The constraint of an id.
    pub fn get(&self, id: &str) -> Option<&Constraint> {
        self.members.iter().find(|m| m.id == id)
    }

    /// Those that must hold now: hard, and not retired. Ids, hashes and the hash of the set are of these.
    pub fn active(&self) -> impl Iterator<Item = &Constraint> {
        self.members.iter().filter(|m| m.is_active())
    }

    /// Those that no longer hold.
    pub fn retired(&self) -> impl Iterator<Item = &Constraint> {
        self.members.iter().filter(|m| m.retired)
    }

    /// Ids of the active ones.
    pub fn ids(&self) -> Vec<&str> {
        self.active().map(|c| c.id.as_str()).collect()
    }

    /// Hashes of the active ones, in the order of [`ConstraintSet::ids`].
    pub fn hashes(&self) -> Vec<&str> {
        self.active().map(|c| c.hash.as_str()).collect()
    }

    /// [`set_hash`] of the active ones.
    pub fn hash(&self) -> String {
        set_hash(self.active().map(|c| c.hash.as_str()))
    }

    /// True where it has no member at all.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }
}

impl From<Vec<Constraint>> for ConstraintSet {
    fn from(members: Vec<Constraint>) -> Self {
        members.into_iter().collect()
    }
}

impl From<ConstraintSet> for Vec<Constraint> {
    fn from(set: ConstraintSet) -> Self {
        set.members
    }
}

impl FromIterator<Constraint> for ConstraintSet {
    fn from_iter<T: IntoIterator<Item = Constraint>>(members: T) -> Self {
        let mut set = Self::default();
        set.extend(members);
        set
    }
}

impl Extend<Constraint> for ConstraintSet {
    fn extend<T: IntoIterator<Item = Constraint>>(&mut self, members: T) {
        members.into_iter().for_each(|c| self.add(c));
    }
}

impl IntoIterator for ConstraintSet {
    type Item = Constraint;
    type IntoIter = std::vec::IntoIter<Constraint>;

    fn into_iter(self) -> Self::IntoIter {
        self.members.into_iter()
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

    #[test]
    fn a_constraint_keeps_its_hash_through_json() {
        let all = [
            Constraint::hard("a", "A rule"),
            Constraint::soft("b", "A wish").with_scope("tone"),
            Constraint::from_text("A sentence", ConstraintKind::Hard),
            Constraint::from_text("A wish in a sentence", ConstraintKind::Soft),
            Constraint { retired: true, ..Constraint::from_text("An old one", ConstraintKind::Hard) },
            Constraint { retired: true, ..Constraint::hard("c", "Another old one") },
        ];
        for c in all {
            let back: Constraint = serde_json::from_value(serde_json::to_value(&c).unwrap()).unwrap();
            assert_eq!(back, c);
        }
        assert_eq!(
            serde_json::to_value(Constraint::hard("a", " A rule\n")).unwrap(),
            json!({"id": "a", "text": "A rule"})
        );
    }

    #[test]
    fn what_is_no_constraint_is_refused_with_what_it_is() {
        let e = |v: Value| serde_json::from_value::<Constraint>(v).unwrap_err().to_string();
        assert!(e(json!(7)).contains("not 7"));
        assert!(e(json!({"kind": "hard"})).contains("with id or text"));
        assert!(e(json!({"id": "a", "kind": "strict"})).starts_with("kind: unknown variant `strict`"));
    }

    #[test]
    fn a_set_holds_one_constraint_of_an_id_and_what_is_retired_is_not_in_its_hash() {
        let mut set: ConstraintSet = [
            Constraint::hard("a", "A rule"),
            Constraint::hard("b", "Another"),
            Constraint::soft("c", "A wish"),
            Constraint::hard("a", "The rule, reworded"),
        ]
        .into_iter()
        .collect();
        assert_eq!(set.ids(), ["a", "b"]);
        assert_eq!(set.get("a").and_then(|c| c.text.as_deref()), Some("The rule, reworded"));
        assert!(set.retire("b") && !set.retire("z"));
        assert_eq!(set.ids(), ["a"]);
        assert_eq!(set.retired().map(|c| c.id.as_str()).collect::<Vec<_>>(), ["b"]);
        assert_eq!(set.hash(), set_hash([Constraint::hard("a", "The rule, reworded").hash.as_str()]));
        assert_eq!(ConstraintSet::new().hash(), canonical::sha256_hex(b""));
    }
}
