//! The published test vectors hold for this implementation. They were computed by another one.

#![allow(clippy::unwrap_used)]

use baton_record::canonical::{digest, to_string, unwrap_arguments};
use baton_record::constraint::{Constraint, ConstraintKind, set_hash};
use baton_record::json::parse_loose;
use serde_json::Value;

fn vectors() -> Value {
    serde_json::from_str(include_str!("../vectors.json")).unwrap()
}

fn list<'a>(v: &'a Value, key: &str) -> &'a [Value] {
    let l = v[key].as_array().unwrap();
    assert!(!l.is_empty());
    l
}

#[test]
fn constraints_have_the_published_hashes() {
    let v = vectors();
    for c in list(&v, "constraints") {
        let own =
            Constraint::new(c["id"].as_str().unwrap(), c["text"].as_str().unwrap(), ConstraintKind::Hard);
        assert_eq!(own.hash, c["sha256"]);
    }
    for c in list(&v, "plain_constraints") {
        let own = Constraint::from_text(c["text"].as_str().unwrap(), ConstraintKind::Hard);
        assert_eq!(
            (own.hash.as_str(), own.id.as_str()),
            (c["sha256"].as_str().unwrap(), c["id"].as_str().unwrap())
        );
    }
}

#[test]
fn sets_have_the_published_hash_in_any_order() {
    for s in list(&vectors(), "constraint_sets") {
        let members: Vec<&str> = list(s, "members").iter().filter_map(Value::as_str).collect();
        assert_eq!(set_hash(members.iter().copied()), s["sha256"]);
        assert_eq!(set_hash(members.iter().rev().copied()), s["sha256"]);
    }
}

#[test]
fn arguments_in_every_form_have_the_published_canonical_form() {
    for a in list(&vectors(), "arguments") {
        for form in list(a, "forms") {
            let value = unwrap_arguments(parse_loose(form.as_str().unwrap()).0);
            assert_eq!(to_string(&value), a["canonical"], "{form}");
            assert_eq!(digest(&value), a["sha256"], "{form}");
        }
    }
}
