//! Which constraints a text holds (METRICS.md section 2, constraint_retention): by their id, or by their text whatever its case,
//! punctuation and white space.

use baton_record::config::Tokenizer;
use baton_record::constraint::{Constraint, ConstraintSet};
use baton_record::prints::{PrintKey, Prints, phrase_shingles};

use super::history::{History, all_items};

/// The active constraints that a history holds, instructions included: what its reader is told, whoever says it. For
/// [`received`](super::received).
pub fn held_in(constraints: &ConstraintSet, history: &History) -> ConstraintSet {
    let items = all_items(history, Tokenizer::default());
    let told: Vec<&Prints> = items.iter().filter(|i| !i.blanked).map(|i| &*i.prints).collect();
    held(constraints, &told)
}

/// The active constraints that a text holds.
pub(super) fn held_in_text(constraints: &ConstraintSet, text: &str) -> ConstraintSet {
    held(constraints, &[&PrintKey::default().prints(text)])
}

fn held(constraints: &ConstraintSet, told: &[&Prints]) -> ConstraintSet {
    let find = |c: &&Constraint| {
        let sought = Sought::new(c);
        told.iter().any(|p| sought.is_in(p))
    };
    constraints.active().filter(find).cloned().collect()
}

/// What the fingerprints of a text hold where the text holds a constraint.
struct Sought {
    phrase: Vec<u32>,
    id: Prints,
    /// Short words stand in every text.
    long: bool,
}

impl Sought {
    fn new(c: &Constraint) -> Self {
        let key = PrintKey::default();
        let phrase = c.text.as_deref().map(|t| phrase_shingles(key, t)).unwrap_or_default();
        Self { phrase, id: key.prints(&c.id), long: c.id.len() > 3 }
    }

    fn is_in(&self, p: &Prints) -> bool {
        if Prints::holds(&p.shingles, &self.phrase) {
            return true;
        }
        // An id that is no identifier (a plain word) is found as a clause of its own.
        if self.id.idents.is_empty() {
            return self.long && Prints::holds(&p.shingles, &self.id.shingles);
        }
        self.id.idents.iter().all(|h| p.idents.iter().any(|x| x | 1 == h | 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rules() -> ConstraintSet {
        let mut old = Constraint::hard("free-shipping-2025", "Shipping is refunded too");
        old.retired = true;
        [
            Constraint::hard("refund-window-30d", "Refund only within 30 days of capture"),
            Constraint::hard("mask-iban", "Never repeat a customer's IBAN in full"),
            old,
        ]
        .into_iter()
        .collect()
    }

    #[test]
    fn a_constraint_is_held_by_its_id_or_its_words() {
        let ids = |text: &str| held_in_text(&rules(), text).ids().join(" ");
        assert_eq!(ids("Mind refund-window-30d, please."), "refund-window-30d");
        assert_eq!(ids("We refund only   within 30 days of CAPTURE; never more."), "refund-window-30d");
        assert_eq!(ids("Refund within 30 days."), "");
        assert_eq!(ids("free-shipping-2025"), "", "it is retired");
        assert_eq!(ids(r#"{"hard_constraints":[{"id":"mask-iban"}]}"#), "mask-iban");
    }

    #[test]
    fn a_history_holds_what_its_instructions_and_messages_say() {
        let h = History::from_value(&json!([
            {"role": "system", "content": "You refund. Never repeat a customer's IBAN in full."},
            {"role": "user", "content": "Money back!"},
        ]));
        assert_eq!(held_in(&rules(), &h).ids(), ["mask-iban"]);
    }
}
