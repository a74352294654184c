//! Baton's scores, sent out as evaluation events.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Start, free, run, stdout};
use crate::stderr;

const SAMPLE: &str = "sample-traces/baton";

/// Rows of an answer in JSON.
fn rows(query: &str, from: &[&str]) -> Vec<Value> {
    let o = run(&[&["sql", query, "--format", "json"][..], from].concat());
    assert!(o.status.success(), "{}", stderr(&o));
    serde_json::from_str(&stdout(&o)).unwrap()
}

#[test]
fn scores_that_are_sent_stand_on_the_spans_of_their_transfers() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let mut collector = Start::at(&store).start();
    let url = format!("otlp://{}", collector.grpc);
    let o = run(&["eval", SAMPLE, "--format", "json", "--emit", &url]);
    assert_eq!(o.status.code(), Some(0), "{}", stderr(&o));
    let report: Value = serde_json::from_str(&stdout(&o)).unwrap();
    collector.terminate();

    let text = |v: &Value, k: &str| v[k].as_str().unwrap().to_owned();
    let span_of: BTreeMap<String, String> = rows("SELECT handoff_id, span_id FROM handoffs", &[SAMPLE])
        .iter()
        .map(|r| (text(r, "handoff_id"), text(r, "span_id")))
        .collect();
    let accepted = report["handoffs"].as_array().unwrap().iter().filter(|h| h["outcome"] == "accepted");
    let mut want: Vec<(String, String, f64)> = accepted
        .filter_map(|h| {
            let score = h["completeness"].as_f64()?;
            Some((text(h, "trace_id"), span_of[h["handoff_id"].as_str().unwrap()].clone(), score))
        })
        .collect();
    let query = "SELECT trace_id, span_id, e['name'] AS name, e['score'] AS score \
                 FROM (SELECT trace_id, span_id, unnest(evaluations) AS e FROM spans) x";
    let all = rows(query, &["--store", store.to_str().unwrap()]);
    assert!(stderr(&o).contains(&format!("{} scores sent to {url}", all.len())), "{}", stderr(&o));
    let mut got: Vec<(String, String, f64)> = all
        .iter()
        .filter(|r| r["name"] == "baton.completeness")
        .map(|r| (text(r, "trace_id"), text(r, "span_id"), r["score"].as_f64().unwrap()))
        .collect();
    want.sort_by(|a, b| a.partial_cmp(b).unwrap());
    got.sort_by(|a, b| a.partial_cmp(b).unwrap());
    assert!(!want.is_empty());
    assert_eq!(got, want);
}

#[test]
fn an_address_that_is_none_is_wrong_usage_and_nobody_there_is_a_failure() {
    for url in ["http://127.0.0.1:4317", "otlp://", "otlp://host", "otlp://host:port", "otlp://h:1/x y"] {
        let o = run(&["eval", SAMPLE, "--emit", url]);
        assert_eq!((o.status.code(), stdout(&o).as_str()), (Some(2), ""), "{url}: {}", stderr(&o));
        assert!(stderr(&o).contains("otlp://HOST:PORT"), "{}", stderr(&o));
    }
    let url = format!("otlp://{}", free());
    let o = run(&["eval", SAMPLE, "--emit", &url]);
    assert_eq!(o.status.code(), Some(1));
    assert!(stderr(&o).contains(&url) && stdout(&o).contains("Handoff report"), "{}", stderr(&o));
}
