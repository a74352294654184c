//! What another history filter would have passed is what frameworks do pass under that filter.

use std::fs;

use serde_json::{Value, json};

use super::{run, stderr, stdout};

fn whatif(filter: &str, args: &[&str]) -> Value {
    let o = run(&[&["whatif", "--filter", filter, "--format", "json"], args].concat());
    assert!(o.status.success(), "{filter} {args:?}: {}", stderr(&o));
    serde_json::from_str(&stdout(&o)).unwrap()
}

fn handoffs(v: &Value) -> &Vec<Value> {
    v["handoffs"].as_array().unwrap()
}

/// Fields of all transfers on one side.
fn side(v: &Value, name: &str, fields: &[&str]) -> Vec<Vec<Value>> {
    handoffs(v).iter().map(|h| fields.iter().map(|f| h[name][*f].clone()).collect()).collect()
}

const ALL: [&str; 5] = ["items_after", "tokens_after", "constraint_retention", "leaks", "filtered_results"];

/// Two recorded runs differ in one thing: one was filtered, the other was not.
#[test]
fn the_filter_of_a_run_applied_to_its_unfiltered_twin_gives_what_the_run_shows() {
    let (filtered, twin) = (
        whatif("remove_tools", &["tests/cases/faults/leak-fault/input.otlp.pb"]),
        whatif("remove_tools", &["tests/cases/faults/leak-control-unfiltered/input.otlp.pb"]),
    );
    let shown = side(&filtered, "recorded", &ALL);
    assert_eq!(side(&twin, "what_if", &ALL), shown);
    // The twin itself shows something else: all was passed, and so nothing leaked.
    assert_eq!(shown[0][3], json!(1));
    assert_eq!(side(&twin, "recorded", &ALL)[0][3], json!(0));
    assert_ne!(side(&twin, "recorded", &ALL), shown);
}

/// The sender's context is recorded unfiltered, so a filtered run is its own twin.
#[test]
fn the_filter_that_a_framework_applied_gives_what_the_framework_passed() {
    for sample in ["openai-agents/leak.openinference", "langgraph/leak.langsmith"] {
        let path = format!("sample-traces/{sample}.otlp.pb");
        let v = whatif("remove_tools", &[&path]);
        let shown = side(&v, "recorded", &ALL);
        assert_eq!(side(&v, "what_if", &ALL), shown, "{sample}");
        // Two texts are left of it, and the summary among them leaks.
        assert_eq!((&shown[0][0], &shown[0][3]), (&json!(2), &json!(1)), "{sample}");
    }
}

/// Where the framework passed everything on, a filter that takes nothing away passes exactly that: with the answer to the
/// transfer call, or, in a forked sub-agent, without the turn that made it and with the task.
#[test]
fn a_filter_that_takes_nothing_away_passes_what_an_unfiltered_run_passed() {
    for (sample, items) in
        [("openai-agents/error.openinference", vec![8]), ("deepagents/coding-weak.otel-genai", vec![10])]
    {
        let name = fs::read_dir("sample-traces")
            .into_iter()
            .flatten()
            .flatten()
            .flat_map(|d| fs::read_dir(d.path()).into_iter().flatten().flatten())
            .map(|f| f.path().display().to_string())
            .find(|p| p.contains(sample))
            .unwrap();
        let v = whatif("last_n=100000", &[&name]);
        assert_eq!(side(&v, "what_if", &ALL), side(&v, "recorded", &ALL), "{sample}: {v:#}");
        let seen: Vec<Value> = side(&v, "what_if", &["items_after"]).concat();
        assert_eq!(seen, items, "{sample}");
    }
}

const CLAIM: &str = "sample-traces/baton";

/// Worked out by hand from the messages in the file. First transfer: the user's words, a call, its result, the transfer call
/// with both constraints, a note to the receiver with one of them. Second: the user's words, that note, a call, its result, the
/// transfer call with that constraint alone, another note with it. The answers to the transfer calls are not recorded.
#[test]
fn each_step_passes_what_it_says() {
    let kept = |n: i64| json!({"kept": n, "of": 2});
    let fields = ["items_after", "constraint_retention", "filtered_results", "leaks"];
    let both = |a: [Value; 4], b: [Value; 4]| vec![a.to_vec(), b.to_vec()];
    let row = |items: i64, n: i64, results: i64| [json!(items), kept(n), json!(results), json!(0)];
    for (filter, want) in [
        ("last_n=1000", both(row(5, 2, 0), row(6, 1, 0))),
        ("remove_tools", both(row(2, 1, 1), row(3, 1, 1))),
        ("last_n=2", both(row(2, 2, 1), row(2, 1, 1))),
        // A result without its call goes too.
        ("last_n=3", both(row(2, 2, 1), row(2, 1, 1))),
        ("last_n=4", both(row(4, 2, 0), row(4, 1, 0))),
        ("last_n=0", both(row(0, 0, 1), row(0, 0, 1))),
        // The notes are texts of the user and begin turns.
        ("last_turns=1", both(row(1, 1, 1), row(1, 1, 1))),
        ("last_turns=2", both(row(5, 2, 0), row(5, 1, 0))),
        ("last_turns=2,remove_tools", both(row(2, 1, 1), row(2, 1, 1))),
        ("remove_tools,last_n=1", both(row(1, 1, 1), row(1, 1, 1))),
        ("budget=0", both(row(0, 0, 1), row(0, 0, 1))),
        ("budget=100000", both(row(5, 2, 0), row(6, 1, 0))),
        // A contract without its fields holds no constraint; the notes do. A result of which a field is gone is another one.
        ("only_fields=policy|claim", both(row(5, 1, 1), row(6, 1, 1))),
        // Of the results only the first holds the word; the contracts that do keep their constraints.
        ("redact=water", both(row(5, 2, 1), row(6, 1, 0))),
        ("redact=payout-needs-report|No payout", both(row(5, 1, 0), row(6, 0, 0))),
        // A pattern may hold commas, and works on what the step before it left.
        ("only_fields=policy|claim,redact=POL-\\d{3,4}", both(row(5, 1, 1), row(6, 1, 1))),
    ] {
        let v = whatif(filter, &[CLAIM]);
        assert_eq!(side(&v, "what_if", &fields), want, "{filter}");
        assert_eq!(side(&v, "recorded", &fields), both(row(2, 1, 1), row(1, 1, 1)), "{filter}");
    }
}

/// What a filter passes is counted as what was seen is counted.
#[test]
fn tokens_are_those_of_the_items_that_are_left() {
    let report: Value = serde_json::from_str(&stdout(&run(&["eval", CLAIM, "--format", "json"]))).unwrap();
    let tokens =
        |filter: &str| whatif(filter, &[CLAIM])["handoffs"][0]["what_if"]["tokens_after"].as_i64().unwrap();
    // No answer to the transfer is recorded, so what is passed is the sender's context and the note.
    let context = report["handoffs"][0]["context"]["tokens_before"].as_i64().unwrap();
    let (all, note) = (tokens("last_n=1000"), tokens("last_n=1"));
    assert_eq!(all, context + note);
    let items = |budget: i64| {
        whatif(&format!("budget={budget}"), &[CLAIM])["handoffs"][0]["what_if"]["items_after"]
            .as_i64()
            .unwrap()
    };
    assert_eq!((items(note), items(note - 1), items(all), items(all - 1)), (1, 0, 5, 4));
}

#[test]
fn without_content_fingerprints_tell_and_text_is_not_guessed() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("none.toml");
    fs::write(&config, "content = \"none\"\n").unwrap();
    let config = ["--config", config.to_str().unwrap(), CLAIM];
    for filter in ["remove_tools", "last_n=2", "last_turns=1", "budget=150"] {
        let (kept, none) = (whatif(filter, &[CLAIM]), whatif(filter, &config));
        assert_eq!(side(&none, "what_if", &ALL), side(&kept, "what_if", &ALL), "{filter}");
    }
    for filter in ["redact=water", "only_fields=policy"] {
        let v = whatif(filter, &config);
        for h in handoffs(&v) {
            for measure in ALL {
                assert_eq!(h["what_if"][measure], Value::Null, "{filter} {measure}");
                assert_eq!(
                    h["unknown"][format!("what_if.{measure}")],
                    "content not kept",
                    "{filter} {measure}"
                );
            }
        }
        assert_eq!(v["totals"][0]["transfers"], 0);
        assert_eq!(v["totals"][0]["unknown"]["content not kept"], 2);
    }
}

/// A rule of the catalogue that only its pattern shows.
#[test]
fn a_catalogue_rule_is_found_by_its_pattern_in_what_is_passed() {
    let dir = tempfile::tempdir().unwrap();
    let config = |content: &str| {
        let path = dir.path().join(format!("{content}.toml"));
        let rule = "[[constraints]]\nid = \"urgent-water\"\ntext = \"Floods go first\"\npatterns = [\"(?i)kitchen was flooded\"]\n";
        fs::write(&path, format!("content = \"{content}\"\n{rule}")).unwrap();
        path.display().to_string()
    };
    let retention = |filter: &str, content: &str| {
        let v = whatif(filter, &[CLAIM, "--config", &config(content)]);
        let h = handoffs(&v)[0].clone();
        (h["what_if"]["constraint_retention"].clone(), h["unknown"]["what_if.constraint_retention"].clone())
    };
    // Beside the two of the contract; the user's words hold it, and the note holds one of the two.
    assert_eq!(retention("remove_tools", "redacted"), (json!({"kept": 2, "of": 3}), Value::Null));
    assert_eq!(retention("last_n=1", "redacted"), (json!({"kept": 1, "of": 3}), Value::Null));
    // Without text a pattern finds nothing, and that is not the same as not being there.
    assert_eq!(retention("remove_tools", "none"), (Value::Null, json!("content not kept")));
}

#[test]
fn wrong_filters_are_named() {
    for (filter, why) in [
        ("", "no step"),
        ("last_n", "last_n: needs a number"),
        ("last_n=-1", "last_n=-1: -1: invalid digit"),
        ("budget=9999999999", "number too large"),
        ("remove_tools=1", "takes no value"),
        ("remove_tools,,last_n=1", "no such step"),
        ("redact=(", "unclosed group"),
        ("only_fields=", "needs a value"),
        ("forget", "forget: no such step"),
    ] {
        let o = run(&["whatif", "--filter", filter, CLAIM]);
        assert_eq!(o.status.code(), Some(2), "{filter}");
        assert!(stderr(&o).contains(why), "{filter}: {}", stderr(&o));
    }
}
