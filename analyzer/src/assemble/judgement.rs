//! What a judgement says (`gen_ai.evaluation.result`): whether what it judges failed, and which constraint it speaks of.
//!
//! The conventions leave names and labels to the judge, so both are read by their words.

use baton_record::names::{slug, slug_of};
use foldhash::HashMap;

/// Labels that say it went well.
const GOOD: [&str; 16] = [
    "pass",
    "passed",
    "ok",
    "good",
    "success",
    "successful",
    "succeeded",
    "compliant",
    "safe",
    "allow",
    "allowed",
    "correct",
    "completed",
    "achieved",
    "followed",
    "satisfied",
];
/// Labels that say it did not.
const BAD: [&str; 22] = [
    "fail",
    "failed",
    "failure",
    "bad",
    "error",
    "violation",
    "violated",
    "non_compliant",
    "noncompliant",
    "not_compliant",
    "breach",
    "breached",
    "unsafe",
    "block",
    "blocked",
    "deny",
    "denied",
    "reject",
    "rejected",
    "incorrect",
    "triggered",
    "not_followed",
];
/// Words of a name that asks whether something bad happened: `yes` and a high score are then bad.
const ASKS_FOR_BAD: [&str; 9] = [
    "violation",
    "violations",
    "violated",
    "breach",
    "breached",
    "broken",
    "tripwire",
    "triggered",
    "noncompliance",
];

/// True where the judged thing failed; `None` where neither label nor score says. `named`: the judgement names a constraint.
pub(super) fn failed(name: &str, score: Option<f64>, label: Option<&str>, named: bool) -> Option<bool> {
    let asks_for_bad = slug(name).split('_').any(|w| ASKS_FOR_BAD.contains(&w));
    if let Some(l) = label {
        match slug_of(l).as_ref() {
            l if GOOD.contains(&l) => return Some(false),
            l if BAD.contains(&l) => return Some(true),
            "yes" | "true" | "1" => return Some(asks_for_bad),
            "no" | "false" | "0" => return Some(!asks_for_bad),
            _ => {}
        }
    }
    match score {
        Some(s) if asks_for_bad => Some(s >= 0.5),
        Some(s) => Some(s < 0.5),
        // "violation: refund-window-30d" needs no more words.
        None => (asks_for_bad && named && label.is_some()).then_some(true),
    }
}

/// Words of a name or label that are looked at, and words of an id inside them.
const WORDS: usize = 64;
const ID_WORDS: usize = 12;

/// The constraints that judgements may name, by the slug of their id.
pub(super) struct Constraints(HashMap<String, usize>);

impl Constraints {
    pub(super) fn new<'i>(ids: impl Iterator<Item = &'i str>) -> Self {
        let mut all = HashMap::default();
        for (place, id) in ids.enumerate() {
            all.entry(slug(id)).or_insert(place);
        }
        Self(all)
    }

    /// The place of the one that a judgement names in its name or its label: the id is all of it, or stands in it as whole
    /// words. Of several the one with the longest id.
    pub(super) fn named(&self, name: &str, label: Option<&str>) -> Option<usize> {
        let texts = || std::iter::once(name).chain(label);
        if let Some(k) = texts().find_map(|t| self.0.get(slug_of(t).as_ref())) {
            return Some(*k);
        }
        let mut best: Option<(usize, usize)> = None;
        for text in texts().map(slug) {
            let words: Vec<&str> = text.split('_').take(WORDS).collect();
            for from in 0..words.len() {
                for to in from + 1..=words.len().min(from + ID_WORDS) {
                    let part = words[from..to].join("_");
                    if part.len() > 3
                        && best.is_none_or(|(n, _)| part.len() > n)
                        && let Some(k) = self.0.get(&part)
                    {
                        best = Some((part.len(), *k));
                    }
                }
            }
        }
        best.map(|(_, k)| k)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_go_before_scores_and_names_turn_their_sense() {
        let said = |name: &str, score: Option<f64>, label: Option<&str>| failed(name, score, label, false);
        assert_eq!(said("refund-window-30d", None, Some("Fail")), Some(true));
        assert_eq!(said("refund-window-30d", Some(0.0), Some("pass")), Some(false));
        assert_eq!(said("refund-window-30d", None, Some("non-compliant")), Some(true));
        assert_eq!(said("refund-window-30d", None, Some("true")), Some(false));
        assert_eq!(said("refund-window-30d violation", None, Some("true")), Some(true));
        assert_eq!(said("policy.tripwire", Some(1.0), None), Some(true));
        assert_eq!(
            (said("helpful", Some(0.4), None), said("helpful", Some(0.5), None)),
            (Some(true), Some(false))
        );
        assert_eq!((said("helpful", None, None), said("helpful", None, Some("blue"))), (None, None));
        assert_eq!(failed("policy_violation", None, Some("refund-window-30d"), true), Some(true));
    }

    #[test]
    fn a_constraint_is_named_by_whole_words() {
        let ids = Constraints::new(["refund-window", "refund-window-30d", "pii"].into_iter());
        let of = |name: &str, label: Option<&str>| ids.named(name, label);
        assert_eq!(of("Refund_Window_30d", None), Some(1));
        assert_eq!(of("guardrail/refund-window-30d", None), Some(1));
        assert_eq!(of("refund window", None), Some(0));
        assert_eq!(of("policy_violation", Some("refund-window")), Some(0));
        assert_eq!((of("pii", None), of("pii_check", None)), (Some(2), None));
        assert_eq!((of("refund-window-30days", None), of("hallucination", None)), (Some(0), None));
    }
}
