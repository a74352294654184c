//! A case is a folder with a `case.json`:
//!
//! ```json
//! {"about": "what it shows", "inputs": ["path from the project's root"], "exit": 0, "report": {}}
//! ```
//!
//! `report` is a part of the expected report, written from what happened in the run, not from Baton's output. Objects need
//! hold only what is stated. Lists have the stated length and order; `{"$len": n}` asks for a length alone,
//! `{"$any_order": […]}` leaves the order open, and `{"$one_of": […]}` accepts several readings.

use serde_json::Value;

use super::{files, root, run, stderr, stdout};

/// What differs, each with its path.
pub(super) fn differences(path: &str, want: &Value, got: &Value, out: &mut Vec<String>) {
    match (want, got) {
        (Value::Object(w), _) if w.contains_key("$len") => {
            let n = got.as_array().map(Vec::len);
            if n.map(|n| n as u64) != w["$len"].as_u64() {
                out.push(format!("{path}: {} elements expected, got {got}", w["$len"]));
            }
        }
        (Value::Object(w), _) if w.contains_key("$one_of") => {
            let readings = w["$one_of"].as_array().expect("a list");
            if !readings.contains(got) {
                out.push(format!("{path}: one of {} expected, got {got}", w["$one_of"]));
            }
        }
        (Value::Object(w), Value::Array(g)) if w.contains_key("$any_order") => {
            let mut left: Vec<&Value> = g.iter().collect();
            for x in w["$any_order"].as_array().expect("a list") {
                let fits = |g: &&Value| {
                    let mut d = Vec::new();
                    differences("", x, g, &mut d);
                    d.is_empty()
                };
                match left.iter().position(fits) {
                    Some(i) => {
                        left.remove(i);
                    }
                    None => out.push(format!("{path}: {x} is missing")),
                }
            }
            if !left.is_empty() {
                out.push(format!("{path}: not expected: {left:?}"));
            }
        }
        (Value::Object(w), Value::Object(g)) => {
            for (k, x) in w {
                differences(&format!("{path}.{k}"), x, g.get(k).unwrap_or(&Value::Null), out);
            }
        }
        (Value::Array(w), Value::Array(g)) => {
            if w.len() != g.len() {
                out.push(format!("{path}: {} elements expected, got {}", w.len(), g.len()));
            }
            for (i, (x, y)) in w.iter().zip(g).enumerate() {
                differences(&format!("{path}[{i}]"), x, y, out);
            }
        }
        (Value::Number(w), Value::Number(g)) => {
            let (w, g) = (w.as_f64().unwrap_or(f64::NAN), g.as_f64().unwrap_or(f64::NAN));
            if (w - g).abs() > 1e-4 {
                out.push(format!("{path}: {w} expected, got {g}"));
            }
        }
        _ if want == got => {}
        _ => out.push(format!("{path}: {want} expected, got {got}")),
    }
}

fn check(folder: &str) {
    let mut failed = Vec::new();
    let mut n = 0;
    for f in files(&root().join(folder)).into_iter().filter(|f| f.ends_with("case.json")) {
        n += 1;
        let case: Value = serde_json::from_slice(&std::fs::read(&f).unwrap()).unwrap();
        let mut args = vec!["eval", "--format", "json"];
        args.extend(case["inputs"].as_array().unwrap().iter().filter_map(Value::as_str));
        let o = run(&args);
        let mut wrong = Vec::new();
        if o.status.code().map(i64::from) != case["exit"].as_i64() {
            wrong.push(format!("exit {:?}: {}", o.status.code(), stderr(&o)));
        }
        let report: Value = serde_json::from_str(&stdout(&o)).unwrap_or(Value::Null);
        differences("", &case["report"], &report, &mut wrong);
        if !wrong.is_empty() {
            failed.push(format!("{}:\n  {}", f.display(), wrong.join("\n  ")));
        }
    }
    assert!(n > 0 && failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn the_sample_traces_give_what_happened_in_them() {
    check("tests/cases/samples");
}

#[test]
fn every_fault_is_seen_and_no_control_is_blamed() {
    check("tests/cases/faults");
}

#[test]
fn a_difference_is_seen() {
    let v = |s: &str| serde_json::from_str::<Value>(s).unwrap();
    let differ = |w: &str, g: &str| {
        let mut out = Vec::new();
        differences("", &v(w), &v(g), &mut out);
        !out.is_empty()
    };
    assert!(!differ(r#"{"a": [1, {"b": null}]}"#, r#"{"a": [1.0, {"b": null, "c": 2}], "d": 3}"#));
    assert!(differ(r#"{"a": null}"#, r#"{"a": 0}"#) && differ(r#"{"a": [1]}"#, r#"{"a": [1, 2]}"#));
    assert!(differ(r#"{"a": 0}"#, r#"{}"#) && differ(r#"{"$len": 1}"#, "[]"));
    assert!(!differ(r#"{"$one_of": [null, 1]}"#, "1") && differ(r#"{"$one_of": [null, 1]}"#, "2"));
    assert!(!differ(r#"{"$any_order": [1, 2]}"#, "[2, 1]") && differ(r#"{"$any_order": [1]}"#, "[1, 1]"));
}
