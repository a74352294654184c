//! A sample is drawn, filled in by a person and given back.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};

use super::{baton, files, run, stderr, stdout};

const NO_CONTENT: &str = "sample-traces/openai-agents/refund-contract-no-content.otel-genai.otlp.pb";

fn sample(args: &[&str]) -> Vec<Value> {
    let o = run(&[&["sample", "--format", "jsonl"], args].concat());
    assert!(o.status.success(), "{}", stderr(&o));
    stdout(&o).lines().map(|l| serde_json::from_str(l).unwrap()).collect()
}

/// A store with some files in it.
fn imported(dir: &Path, files: &str) -> String {
    let store = dir.join("store").display().to_string();
    let o = run(&["import", files, "--store", &store]);
    assert!(o.status.success(), "{}", stderr(&o));
    store
}

fn ids(s: &[Value]) -> Vec<String> {
    s.iter().map(|v| v["handoff_id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn the_same_seed_draws_the_same_and_more_data_changes_little() {
    let dir = tempfile::tempdir().unwrap();
    let store = imported(dir.path(), "sample-traces");
    let all = ids(&sample(&["--store", &store, "--n", "1000"]));
    // 22 transfers, of which one is refused.
    assert_eq!(all.len(), 21);
    let five = ids(&sample(&["--store", &store, "--n", "5"]));
    assert_eq!(five, all[..5]);
    assert_ne!(five, ids(&sample(&["--store", &store, "--n", "5", "--seed", "2"])));
    // Of a part of the data: those drawn from all that are in the part, in the same order.
    let part = ids(&sample(&["sample-traces/openai-agents", "--n", "1000"]));
    let of_part: Vec<&String> = all.iter().filter(|id| part.contains(id)).collect();
    assert_eq!(of_part, part.iter().collect::<Vec<_>>());
    assert!(part.len() > 5 && part.len() < all.len());
    assert!(sample(&["sample-traces/baton", "--n", "0"]).is_empty());
}

#[test]
fn strata_come_in_turns_and_the_worst_come_first() {
    let dir = tempfile::tempdir().unwrap();
    let store = imported(dir.path(), "sample-traces");
    let pair = |v: &Value| format!("{} {}", v["from_agent"], v["to_agent"]);
    let by_pair = sample(&["--store", &store, "--n", "1000", "--stratify", "pair"]);
    let pairs: BTreeSet<String> = by_pair.iter().map(pair).collect();
    let first: BTreeSet<String> = by_pair[..pairs.len()].iter().map(pair).collect();
    assert!(first == pairs && pairs.len() < by_pair.len(), "one of each pair comes first");
    let one_less = sample(&["--store", &store, "--stratify", "pair", "--n", &(pairs.len() - 1).to_string()]);
    assert_eq!(ids(&one_less), ids(&by_pair)[..pairs.len() - 1]);
    // As the report ranks them.
    let worst = sample(&["--store", &store, "--n", "2", "--worst"]);
    let report = stdout(&run(&["eval", "--store", &store]));
    let listed = report.split("Worst handoffs").nth(1).unwrap();
    let ranked: Vec<&str> = listed.lines().filter_map(|l| l.split_whitespace().next()).collect();
    for id in ids(&worst) {
        assert!(ranked.contains(&id.as_str()), "{id}");
    }
    assert_eq!(worst[0]["handoff_id"], ranked.iter().find(|w| w.len() == 16).copied().unwrap());
}

/// The hand-written run: the first transfer loses `mask-iban` to a filter, the second to its payload, whose receiver does
/// `get_policy` again as its first action. The second contract has no evidence.
#[test]
fn a_line_holds_what_a_reviewer_needs() {
    let mut s = sample(&["sample-traces/baton"]);
    s.sort_by_key(|v| v["from_agent"] == "claims");
    let [a, b] = s.as_slice() else { panic!("two transfers") };
    assert_eq!(
        (&a["from_agent"], &a["to_agent"], &a["reason"]),
        (&json!("intake"), &json!("claims"), &json!("damage must be assessed"))
    );
    assert!(a["payload"]["text"].as_str().unwrap().contains("Settle water damage claim"));
    let saw: Vec<&str> =
        a["receiver_saw"]["items"].as_array().unwrap().iter().map(|i| i["who"].as_str().unwrap()).collect();
    assert_eq!(saw, ["user", "user"]);
    let lost: Vec<(&str, Option<&str>)> = a["filtered_out"]["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|i| (i["who"].as_str().unwrap(), i["name"].as_str()))
        .collect();
    assert_eq!(lost, [("call", Some("get_policy")), ("result", None), ("call", Some("transfer_to_claims"))]);
    let lost = a["constraints"].as_array().unwrap().iter().find(|c| c["id"] == "mask-iban").unwrap();
    assert_eq!(
        (&lost["in_payload"], &lost["in_view"], &lost["cause"]),
        (&json!(true), &json!(false), &json!("dropped_by_filter"))
    );
    let verdicts = |constraint_lost, redundant_work, leak, retriage, complete| {
        json!({"constraint_lost": constraint_lost, "redundant_work": redundant_work, "leak": leak, "retriage": retriage,
               "complete": complete})
    };
    assert_eq!(a["verdicts"], verdicts(true, false, false, false, true));
    assert_eq!(b["verdicts"], verdicts(true, true, false, true, false));
    assert!(
        b["repeats"][0]
            .as_str()
            .unwrap()
            .starts_with("get_policy {\"claim\":\"CLM-5521\"}: redundant of intake"),
        "{b}"
    );
    for v in [a, b] {
        assert!(v["labels"].as_object().unwrap().values().all(Value::is_null), "{v}");
        assert_eq!(v["labels"].as_object().unwrap().len(), 5);
    }
    // Where the content is off, what is not known says why.
    let s = sample(&[NO_CONTENT]);
    assert!(
        s.iter()
            .all(|v| v["verdicts"]["complete"].is_null() && v["unknown"]["leak"] == "content not captured"),
        "{s:?}"
    );
}

/// A store of the hand-written run and its two transfers, the first first.
fn store(dir: &Path) -> (String, [String; 2]) {
    let store = imported(dir, "sample-traces/baton");
    let mut s = sample(&["--store", &store]);
    s.sort_by_key(|v| v["from_agent"] == "claims");
    let [a, b] = ids(&s).try_into().unwrap();
    (store, [a, b])
}

/// The cells of a row of the agreement.
fn row(page: &str, thing: &str) -> Vec<String> {
    let line = page.lines().find(|l| l.split_whitespace().next() == Some(thing)).expect("a row");
    line.split_whitespace().skip(1).map(str::to_owned).collect()
}

#[test]
fn labels_are_kept_and_compared_with_the_verdicts() {
    let dir = tempfile::tempdir().unwrap();
    let (store, [a, b]) = store(dir.path());
    let none = stdout(&run(&["label", "--store", &store]));
    assert!(none.contains("0 labelled transfers, 0 reviewers"), "{none}");
    let file = dir.path().join("review.jsonl");
    let line = |id: &str, labels: Value| json!({"handoff_id": id, "labels": labels}).to_string();
    let text = [
        line(&a, json!({"constraint_lost": true, "redundant_work": false, "complete": true})),
        line(&b, json!({"constraint_lost": false, "redundant_work": true, "complete": true, "leak": null})),
    ];
    fs::write(&file, text.join("\n")).unwrap();
    let file = file.to_str().unwrap();
    let o = run(&["label", file, "--reviewer", "ann", "--store", &store]);
    let page = stdout(&o);
    assert!(o.status.success() && page.contains("2 labelled transfers, 1 reviewers"), "{page}");
    // Verdicts: constraint lost in both, redundant work in b, complete is a. Columns: both yes, only Baton, only label,
    // both no, unknown; precision, recall, kappa.
    assert_eq!(row(&page, "constraint_lost"), ["1", "1", "0", "0", "0", "0.50", "1.00", "0.00"]);
    assert_eq!(row(&page, "redundant_work"), ["1", "0", "0", "1", "0", "1.00", "1.00", "1.00"]);
    assert_eq!(row(&page, "complete"), ["1", "0", "1", "0", "0", "1.00", "0.50", "0.00"]);
    assert_eq!(row(&page, "leak"), ["0", "0", "0", "0", "0", "undefined", "undefined", "undefined"]);
    assert_eq!(stdout(&run(&["label", "--store", &store])), page, "what is kept says the same");

    // Another reviewer counts beside, a later word of the first in place of the earlier one.
    let later = [
        line(&b, json!({"constraint_lost": true})),
        json!({"handoff_id": b, "labels": {"constraint_lost": true}, "reviewer": "bob", "note": "see the payload"}).to_string(),
    ];
    let mut child = baton(&["label", "-", "--reviewer", "ann", "--store", &store])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(later.join("\n").as_bytes()).unwrap();
    let page = stdout(&child.wait_with_output().unwrap());
    assert!(page.contains("3 labelled transfers, 2 reviewers"), "{page}");
    assert_eq!(row(&page, "constraint_lost"), ["3", "0", "0", "0", "0", "1.00", "1.00", "undefined"]);
    assert_eq!(row(&page, "complete"), ["1", "0", "0", "0", "0", "1.00", "1.00", "undefined"]);

    let story = stdout(&run(&["explain", &b, "--store", &store]));
    assert!(
        story.contains("labelled by ann: constraint_lost yes") && story.contains("labelled by bob"),
        "{story}"
    );
    assert!(story.contains("see the payload"), "{story}");
    let sql = "SELECT reviewer, constraint_lost, complete FROM labels ORDER BY handoff_id = 'x', reviewer, complete";
    assert_eq!(stdout(&run(&["sql", sql, "--store", &store, "--format", "csv"])).lines().count(), 4);
    // A store is still in order with labels in it.
    assert!(run(&["check", "--store", &store]).status.success());
}

#[test]
fn a_label_of_an_unknown_verdict_is_counted_apart() {
    let dir = tempfile::tempdir().unwrap();
    let store = imported(dir.path(), NO_CONTENT);
    let mut s = sample(&["--store", &store]);
    let text: Vec<String> = s
        .iter_mut()
        .map(|v| {
            v["labels"]["complete"] = json!(true);
            v.to_string()
        })
        .collect();
    let file = dir.path().join("f");
    fs::write(&file, text.join("\n")).unwrap();
    let page = stdout(&run(&["label", file.to_str().unwrap(), "--store", &store]));
    let n = s.len().to_string();
    assert_eq!(row(&page, "complete"), ["0", "0", "0", "0", &n, "undefined", "undefined", "undefined"]);
}

#[test]
fn a_wrong_line_keeps_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (store, [a, _]) = store(dir.path());
    let file = dir.path().join("bad.jsonl");
    let good = json!({"handoff_id": a, "labels": {"leak": true}}).to_string();
    fs::write(&file, format!("{good}\n{}\n", json!({"handoff_id": a, "labels": {"leak": "maybe"}}))).unwrap();
    let o = run(&["label", file.to_str().unwrap(), "--store", &store]);
    assert_eq!(o.status.code(), Some(1));
    assert!(
        stderr(&o).contains("bad.jsonl:2: labels.leak: true, false or null is expected"),
        "{}",
        stderr(&o)
    );
    assert!(!Path::new(&store).join("labels").exists());
    fs::write(&file, json!({"handoff_id": "nobody", "labels": {"leak": true}}).to_string()).unwrap();
    let o = run(&["label", file.to_str().unwrap(), "--store", &store]);
    assert!(
        stderr(&o).contains("bad.jsonl:1: handoff_id: no transfer of the store has the id nobody"),
        "{}",
        stderr(&o)
    );
    // A file that says nothing is no fault, and leaves nothing.
    fs::write(&file, json!({"handoff_id": a, "labels": {"leak": null}}).to_string()).unwrap();
    assert!(run(&["label", file.to_str().unwrap(), "--store", &store]).status.success());
    assert!(!Path::new(&store).join("labels").exists());
    fs::write(&file, good).unwrap();
    assert!(run(&["label", file.to_str().unwrap(), "--store", &store]).status.success());
    assert_eq!(files(&Path::new(&store).join("labels")).len(), 1);
}
