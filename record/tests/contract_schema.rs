//! `contract.schema.json` says of a contract what the type says.

#![allow(clippy::unwrap_used)]

use baton_record::constraint::{Constraint, ConstraintKind};
use baton_record::contract::{ALL, Contract, Field, MAX_FIELD_CHARS, MAX_REFERENCE_CHARS};
use proptest::prelude::*;
use serde_json::{Value, json};

fn schema() -> Value {
    serde_json::from_str(include_str!("../contract.schema.json")).unwrap()
}

fn validator() -> jsonschema::Validator {
    jsonschema::validator_for(&schema()).unwrap()
}

#[test]
fn the_schema_has_the_fields_of_the_type_and_their_limits() {
    let s = schema();
    let names: Vec<&str> = s["properties"].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(names, ALL.map(Field::name));
    assert_eq!(s["$defs"]["text"]["maxLength"], MAX_FIELD_CHARS);
    assert_eq!(s["properties"]["artifact_refs"]["items"]["maxLength"], MAX_REFERENCE_CHARS);
}

/// The value of each field by its shape in the schema, and one that fits nowhere.
#[test]
fn schema_and_type_refuse_the_same_values() {
    let v = validator();
    let shapes = [
        json!("text"),
        json!(["a", "b"]),
        json!([{"id": "a", "text": "A"}]),
        json!([{"id": "a", "retired": true, "scope": "s", "kind": "hard"}]),
        json!([{"text": "only"}]),
        json!([]),
        json!([{"id": " ", "text": ""}]),
        json!([""]),
        json!([7]),
        json!([{"kind": "hard"}]),
        json!([{"id": "a", "kind": "strict"}]),
        json!(7),
        json!(true),
        json!({"a": 1}),
    ];
    let mut refused = 0;
    for field in ALL {
        for shape in &shapes {
            let doc = json!({ field.name(): shape });
            let read = serde_json::from_value::<Contract>(doc.clone());
            assert_eq!(v.is_valid(&doc), read.is_ok(), "{doc}: {read:?}");
            refused += usize::from(read.is_err());
        }
    }
    assert!(refused > 50, "{refused}");
    assert!(v.is_valid(&json!({"our_key": [1, 2]})));
    assert!(!v.is_valid(&json!(["no object"])));
}

fn constraint(kind: ConstraintKind) -> impl Strategy<Value = Constraint> {
    let text = "[a-zA-Z éß.,]{0,20}[a-z]";
    (proptest::option::of("[a-z-]{1,8}"), text, any::<bool>(), proptest::option::of("[a-z]{1,5}")).prop_map(
        move |(id, text, retired, scope)| {
            let c = match id {
                Some(id) => Constraint::new(&id, &text, kind),
                None => Constraint::from_text(&text, kind),
            };
            Constraint { retired, scope, ..c }
        },
    )
}

fn contract() -> impl Strategy<Value = Contract> {
    let texts = || proptest::collection::vec("\\PC{0,20}", 0..4);
    let sets = |kind| proptest::collection::vec(constraint(kind), 0..5);
    (
        (texts(), proptest::option::of(sets(ConstraintKind::Hard)), sets(ConstraintKind::Soft)),
        (proptest::option::of(sets(ConstraintKind::Hard)), texts(), "\\PC{0,40}", "\\PC{0,40}"),
    )
        .prop_map(|((a, hard, soft), (long, b, intent, narrative))| Contract {
            intent,
            narrative,
            constraints: hard.map(Into::into),
            hard_constraints: long.map(Into::into),
            soft_preferences: soft.into(),
            evidence: a.iter().map(|s| json!({"fact": s})).collect(),
            completed_steps: a,
            artifact_refs: b,
            ..Contract::default()
        })
}

proptest! {
    #[test]
    fn whatever_the_type_writes_fits_the_schema_and_is_read_again(c in contract()) {
        let value = c.to_value();
        let v = validator();
        let errors: Vec<String> = v.iter_errors(&value).map(|e| e.to_string()).collect();
        prop_assert!(errors.is_empty(), "{errors:?}");
        let back = Contract::from_json(&c.to_json()).unwrap();
        prop_assert_eq!(back.constraint_set().hash(), c.constraint_set().hash());
        prop_assert_eq!(back, c);
    }
}
