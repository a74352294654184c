//! The published test vectors hold for this implementation. They were computed by another one, `vectors.py`.

#![allow(clippy::unwrap_used)]

use baton_record::canonical::{digest, sha256_hex, to_string, unwrap_arguments};
use baton_record::constraint::{Constraint, ConstraintKind, set_hash};
use baton_record::contract::Contract;
use baton_record::json::{parse, parse_loose};
use serde_json::{Value, json};

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
        assert_eq!(own.hash, c["sha256"], "{c}");
        assert_eq!(sha256_hex(c["canonical"].as_str().unwrap().as_bytes()), c["sha256"], "{c}");
    }
    for c in list(&v, "plain_constraints") {
        let own = Constraint::from_text(c["text"].as_str().unwrap(), ConstraintKind::Hard);
        assert_eq!(own.hash, c["sha256"], "{c}");
        assert_eq!(own.id, c["id"], "{c}");
        assert_eq!(sha256_hex(c["canonical"].as_str().unwrap().as_bytes()), c["sha256"], "{c}");
    }
}

#[test]
fn entries_of_a_list_have_the_published_ids_and_hashes() {
    for e in list(&vectors(), "constraint_entries") {
        let own = Constraint::from_value(&e["entry"], ConstraintKind::Hard).unwrap();
        assert_eq!(own.id, e["id"], "{e}");
        assert_eq!(own.hash, e["sha256"], "{e}");
        assert_eq!(own.retired, e["retired"], "{e}");
    }
}

#[test]
fn contracts_have_the_published_fields_and_constraints() {
    for v in list(&vectors(), "contracts") {
        let c = Contract::from_json(&v["contract"].to_string()).unwrap();
        assert_eq!(c.to_json(), v["canonical"]);
        assert_eq!(c.digest(), v["sha256"], "{v}");
        assert_eq!(json!(c.fields()), v["fields"], "{v}");
        let set = c.constraint_set();
        assert_eq!(json!(set.ids()), v["constraints_ids"], "{v}");
        let retired: Vec<&str> = set.retired().map(|c| c.id.as_str()).collect();
        assert_eq!(json!(retired), v["constraints_retired"], "{v}");
        assert_eq!(json!(set.hashes()), v["constraints_hashes"], "{v}");
        assert_eq!(set.hash(), v["constraints_hash"], "{v}");
    }
}

#[test]
fn sets_have_the_published_hash_in_any_order() {
    let v = vectors();
    let sets = list(&v, "constraint_sets");
    assert!(sets.iter().any(|s| s["members"] == json!([])), "the empty set has a hash too");
    for s in sets {
        let members: Vec<&str> = s["members"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        assert_eq!(set_hash(members.iter().copied()), s["sha256"]);
        assert_eq!(set_hash(members.iter().rev().copied()), s["sha256"]);
    }
}

#[test]
fn values_have_the_published_canonical_form() {
    for v in list(&vectors(), "values") {
        let value = parse(v["json"].as_str().unwrap()).unwrap();
        assert_eq!(to_string(&value), v["canonical"], "{v}");
        assert_eq!(digest(&value), v["sha256"], "{v}");
        assert_eq!(sha256_hex(v["canonical"].as_str().unwrap().as_bytes()), v["sha256"], "{v}");
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
