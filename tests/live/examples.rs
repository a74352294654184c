//! Rust agents send with the standard exporter.

use std::path::Path;

use serde_json::Value;

use super::super::examples::{debugger, refund};
use super::super::{run, stdout};
use super::Start;

/// The report of a store.
fn report(store: &Path) -> Value {
    let o = run(&["eval", "--format", "json", "--store", store.to_str().unwrap()]);
    let report: Value = serde_json::from_str(&stdout(&o)).unwrap();
    assert_eq!(report["handoffs"].as_array().map(Vec::len), Some(4));
    report
}

#[test]
fn what_agents_send_gives_the_report_of_what_they_write_themselves() {
    let dir = tempfile::tempdir().unwrap();
    let (sent, own) = (dir.path().join("sent"), dir.path().join("own"));
    let mut c = Start::at(&sent).start();
    let otlp = format!("http://{}", c.grpc);
    for version in [refund::Version::Weak, refund::Version::Good] {
        refund::run(refund::To { store: &own, otlp: Some(&otlp) }, version).unwrap();
    }
    for version in [debugger::Version::Weak, debugger::Version::Good] {
        debugger::run(debugger::To { store: &own, otlp: Some(&otlp) }, version).unwrap();
    }
    assert_eq!(c.terminate().0, Some(0));
    assert_eq!(report(&sent), report(&own));
}
