//! The examples of the tracing layer, each in a weak and a good version: the report shows the difference.

use std::error::Error;
use std::path::Path;

use baton_collector::handoff::Handoff;
use baton_collector::processor::HandoffProcessor;
use opentelemetry::trace::{Span, TraceContextExt, Tracer, TracerProvider};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::trace::SdkTracerProvider;
use serde_json::{Value, json};

use super::cases::differences;
use super::{run, stderr, stdout};

#[allow(dead_code)]
#[path = "../collector/examples/debugger.rs"]
pub(super) mod debugger;
#[allow(dead_code)]
#[path = "../collector/examples/refund.rs"]
pub(super) mod refund;

/// Runs one version into a store, and holds the report of the store against what happened in it.
fn check(example: impl FnOnce(&Path) -> Result<(), Box<dyn Error>>, want: &Value) {
    let folder = tempfile::tempdir().unwrap();
    example(folder.path()).unwrap();
    let o = run(&["eval", "--format", "json", "--store", folder.path().to_str().unwrap()]);
    assert_eq!(o.status.code(), Some(0), "{}", stderr(&o));
    let report: Value = serde_json::from_str(&stdout(&o)).unwrap();
    let mut wrong = Vec::new();
    differences("", want, &report, &mut wrong);
    assert!(wrong.is_empty(), "{}\n{}", wrong.join("\n"), report["handoffs"]);
}

#[test]
fn a_refund_without_a_contract_loses_rules_repeats_calls_and_leaks() {
    check(
        |store| refund::run(refund::To { store, otlp: None }, refund::Version::Weak),
        &json!({
            "tasks": [{"task_id": "refund-weak", "completed": true, "rework_free": false}],
            "handoffs": [{
                "from_agent": "Triage", "to_agent": "Refunds Specialist", "mode": "pass_control",
                "outcome": "accepted", "detection": "explicit", "confidence": "certain",
                "completeness": 0.0, "constraint_retention": 0.0, "constraint_retention_payload": 0.0,
                "constraints": {"lost": [
                    {"id": "mask-iban", "cause": "dropped_from_payload"},
                    {"id": "refund-window-30d", "cause": "dropped_from_payload"},
                ]},
                "context": {"items_before": 9, "items_after": 3, "filtered_items": 7},
                "tool_calls_after": 4, "redundant_tool_calls": 3, "known_failure_retries": 0,
                "leaks": [{"tool": "payment_log", "overlap": ["pay_7f3m9q"]}],
            }],
        }),
    );
}

#[test]
fn a_refund_with_a_contract_keeps_its_rules_and_repeats_nothing() {
    check(
        |store| refund::run(refund::To { store, otlp: None }, refund::Version::Good),
        &json!({
            "tasks": [{"task_id": "refund-good", "completed": true, "rework_free": true}],
            "handoffs": [{
                "from_agent": "Triage", "to_agent": "Refunds Specialist", "mode": "pass_control",
                "outcome": "accepted", "detection": "explicit", "confidence": "certain",
                "completeness": 1.0, "constraint_retention": 1.0, "constraint_retention_payload": 1.0,
                "constraints": {"lost": []},
                "context": {"items_before": 8, "items_after": 2, "filtered_items": 7},
                "tool_calls_after": 1, "redundant_tool_calls": 0, "leaks": [],
            }],
        }),
    );
}

#[test]
fn a_debugger_without_a_bounded_objective_runs_what_was_run_and_tries_what_failed() {
    check(
        |store| debugger::run(debugger::To { store, otlp: None }, debugger::Version::Weak),
        &json!({
            "tasks": [{"task_id": "repair-weak", "completed": true, "rework_free": false}],
            "handoffs": [{
                "from_agent": "Planner", "to_agent": "Debugger", "mode": "return_to_caller", "outcome": "accepted",
                "completeness": 0.0, "constraint_retention": 0.0,
                "context": {"items_before": 8, "items_after": 1, "filtered_items": 8},
                "tool_calls_after": 5, "redundant_tool_calls": 2, "known_failure_retries": 1,
            }],
        }),
    );
}

#[test]
fn a_debugger_with_a_bounded_objective_begins_with_the_repair() {
    check(
        |store| debugger::run(debugger::To { store, otlp: None }, debugger::Version::Good),
        &json!({
            "tasks": [{"task_id": "repair-good", "completed": true, "rework_free": true}],
            "handoffs": [{
                "from_agent": "Planner", "to_agent": "Debugger", "mode": "return_to_caller", "outcome": "accepted",
                "completeness": 1.0, "constraint_retention": 1.0, "artifact_reuse": 1.0,
                "context": {"items_before": 8, "items_after": 1, "filtered_items": 8},
                "tool_calls_after": 2, "redundant_tool_calls": 0, "known_failure_retries": 0,
            }],
        }),
    );
}

#[test]
fn what_the_sender_says_became_of_a_transfer_is_its_outcome() {
    let folder = tempfile::tempdir().unwrap();
    let processor = HandoffProcessor::builder(folder.path()).build().unwrap();
    let provider = SdkTracerProvider::builder().with_span_processor(processor).build();
    let tracer = provider.tracer("test");
    for to in ["Closed Desk", "Slow Desk"] {
        let mut triage = tracer.start_with_context("invoke_agent Triage", &Context::new());
        triage.set_attribute(KeyValue::new("gen_ai.operation.name", "invoke_agent"));
        triage.set_attribute(KeyValue::new("gen_ai.agent.name", "Triage"));
        let triage = Context::new().with_span(triage);
        let handoff = Handoff::new("Triage", to).start_with_context(&tracer, &triage);
        if to == "Closed Desk" {
            handoff.refused("it opens at nine");
        } else {
            handoff.failed("timeout", "no answer in 30 s");
        }
        triage.span().end();
    }
    provider.shutdown().unwrap();
    let o = run(&["eval", "--format", "json", "--store", folder.path().to_str().unwrap()]);
    let report: Value = serde_json::from_str(&stdout(&o)).unwrap();
    let mut outcomes: Vec<(&str, &str)> = report["handoffs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|h| (h["to_agent"].as_str().unwrap(), h["outcome"].as_str().unwrap()))
        .collect();
    outcomes.sort_unstable();
    assert_eq!(outcomes, [("Closed Desk", "refused"), ("Slow Desk", "failed")]);
    let told = |part: &str| report["findings"].to_string().contains(part);
    assert!(told("Triage asked for Closed Desk, which was refused."), "{}", report["findings"]);
    assert!(told("The transfer from Triage to Slow Desk failed."), "{}", report["findings"]);
}
