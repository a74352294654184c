//! What [`Handoff`] writes is what a reader of the spans finds: a handoff goes through the span processor into a store, and its
//! row is asked.
#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use std::fs::File;

use arrow::array::RecordBatch;
use baton_collector::handoff::filter::Filter;
use baton_collector::handoff::history::{History, HistoryCounts};
use baton_collector::handoff::{Handoff, Mode, Outcome, extract, received};
use baton_collector::processor::HandoffProcessor;
use baton_record::attr;
use baton_record::config::{Config, ContentMode};
use baton_record::constraint::{Constraint, ConstraintSet};
use baton_record::contract::{Contract, field_names};
use baton_record::schema::SpanColumns;
use baton_record::span::{Role, Signal, Source, Status};
use opentelemetry::baggage::BaggageExt;
use opentelemetry::trace::{Span, SpanId, TraceContextExt, Tracer, TracerProvider};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::{Value, json};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::layer::SubscriberExt;

/// The rows that some work leaves in a store.
fn rows(work: impl FnOnce(&SdkTracer)) -> Vec<SpanColumns> {
    let folder = tempfile::tempdir().unwrap();
    let config = Config { content: ContentMode::Full, ..Config::default() };
    let processor = HandoffProcessor::builder(folder.path()).with_config(config).build().unwrap();
    let provider = SdkTracerProvider::builder().with_span_processor(processor).build();
    work(&provider.tracer("agent"));
    provider.shutdown().unwrap();
    let files = walkdir::WalkDir::new(folder.path().join("spans")).into_iter().flatten();
    let batches: Vec<RecordBatch> = files
        .filter(|e| e.path().extension().is_some_and(|x| x == "parquet"))
        .flat_map(|e| {
            let file = File::open(e.path()).unwrap();
            ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap().map(Result::unwrap)
        })
        .collect();
    batches.iter().map(|b| SpanColumns::new(b).unwrap()).collect()
}

fn state() -> ConstraintSet {
    [
        Constraint::hard("refund-window-30d", "Refund only within 30 days of capture"),
        Constraint::hard("mask-iban", "Never repeat a customer's IBAN in full."),
    ]
    .into_iter()
    .collect()
}

/// Carries one of the two constraints of the state, and ends a third.
fn contract() -> Contract {
    let mut old = Constraint::hard("free-shipping-2025", "Shipping is refunded too");
    old.retired = true;
    Contract::builder()
        .intent("Refund order 4711")
        .constraint(Constraint::hard("refund-window-30d", "Refund only within 30 days of capture"))
        .constraint(old)
        .status("Identity verified")
        .attempted_tool("lookup_order")
        .artifact_ref("s3://evidence/4711.json")
        .build()
}

fn before() -> History {
    History::from_value(&json!([
        {"role": "system", "content": "You triage."},
        {"role": "user", "content": "Refund 4711, please"},
        {"role": "assistant", "content": null, "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "lookup_order", "arguments": "{\"id\":\"4711\"}"}}]},
        {"role": "tool", "tool_call_id": "c1", "content": "{\"paid\":49.9}"},
    ]))
}

#[test]
fn a_handoff_is_read_back_with_its_three_channels() {
    let (state, contract, before) = (state(), contract(), before());
    let after = before.filtered(&[Filter::RemoveTools]).history;
    let counts = HistoryCounts::measured(&before, &after, Default::default());
    for content in [true, false] {
        let columns = rows(|tracer| {
            let handoff = Handoff::new("Triage", "Refunds Specialist")
                .id("h1")
                .task_id("refund-4711")
                .reason("asks for a refund")
                .priority("high")
                .conversation_id("conv-1")
                .state(&state)
                .contract(&contract)
                .history(&before, &after)
                .content(content)
                .start(tracer);
            assert_eq!(handoff.id(), "h1");
            handoff.accepted();
        });
        let span = columns[0].span(0);
        assert_eq!((span.role, span.status), (Role::Handoff, Status::Unset));
        assert_eq!(span.name(), "execute_tool transfer_to_refunds_specialist");
        assert_eq!((span.agent(), span.tool()), (Some("Triage"), Some("transfer_to_refunds_specialist")));
        assert_eq!((span.task_id(), span.conversation_id()), (Some("refund-4711"), Some("conv-1")));
        let h = span.handoff().unwrap();
        assert_eq!(h.signal, Signal::Explicit);
        assert_eq!((h.from(), h.mode()), (Some("Triage"), Some("pass_control")));
        assert_eq!(h.to().iter().collect::<Vec<_>>(), ["Refunds Specialist"]);
        assert_eq!(h.constraint_ids().iter().collect::<Vec<_>>(), ["refund-window-30d"]);
        assert_eq!(
            h.constraint_hashes().iter().collect::<Vec<_>>(),
            ["74316f68d2c72e069e4927d677b6304e1d3177b844f4c5c2b06f082efb2ea6c4"]
        );
        assert_eq!(h.state_constraint_ids().iter().collect::<Vec<_>>(), ["refund-window-30d", "mask-iban"]);
        let fields: Vec<&str> = field_names(h.fields().unwrap()).collect();
        // A reference to an artifact is evidence.
        let want = ["intent", "constraints", "status", "evidence", "attempted_tools", "artifact_refs"];
        assert_eq!(fields, want);
        assert_eq!((h.items_before(), h.items_after(), h.filtered()), (Some(3), Some(1), Some(2)));
        assert_eq!((h.tokens_before(), h.tokens_after()), (counts.tokens_before, counts.tokens_after));
        assert!(h.payload_tokens().unwrap() > 20);

        let payloads = span.payloads();
        let p = payloads.iter().find(|p| p.source == Source::Contract).unwrap();
        assert!(p.complete && p.structured && !p.empty);
        assert_eq!(field_names(p.fields()).collect::<Vec<_>>(), want);
        assert_eq!(p.artifacts().iter().collect::<Vec<_>>(), ["s3://evidence/4711.json"]);
        assert_eq!(p.tokens().map(i64::from), h.payload_tokens());
        let stated: Vec<(&str, bool)> = p.constraints().map(|c| (c.id, c.retired)).collect();
        assert_eq!(stated, [("refund-window-30d", false), ("free-shipping-2025", true)]);
        assert_eq!(p.text().map(str::to_owned), content.then(|| contract.to_json()));
    }
}

#[test]
fn numbers_of_the_application_go_before_measured_ones_and_nothing_is_made_up() {
    let before = before();
    let counts = HistoryCounts { items_before: Some(99), tokens_after: Some(7), ..HistoryCounts::default() };
    let h = Handoff::new("A", "B").history(&before, &before).history_counts(counts).payload_tokens(5);
    let of = |h: &Handoff<'_>, key: &str| h.attributes().into_iter().find(|a| a.key.as_str() == key);
    let int = |key| of(&h, key).map(|a| a.value.to_string());
    assert_eq!(int(attr::BATON_HANDOFF_HISTORY_ITEMS_BEFORE).as_deref(), Some("99"));
    assert_eq!(int(attr::BATON_HANDOFF_HISTORY_ITEMS_AFTER).as_deref(), Some("3"));
    assert_eq!(int(attr::BATON_HANDOFF_HISTORY_TOKENS_AFTER).as_deref(), Some("7"));
    assert_eq!(int(attr::BATON_HANDOFF_PAYLOAD_TOKENS).as_deref(), Some("5"));
    assert_eq!(int(attr::BATON_HANDOFF_TOKENIZER).as_deref(), Some("o200k_base"));
    let bare: Vec<String> =
        Handoff::new("A", "B").attributes().into_iter().map(|a| a.key.to_string()).collect();
    assert_eq!(bare.len(), 9, "only what every handoff has: {bare:?}");
}

#[test]
fn a_text_that_says_a_rule_of_the_state_carries_it_with_and_without_content() {
    let state = state();
    let text = Value::String("Refund 4711, but refund only within 30 days of capture.".into());
    for content in [true, false] {
        let columns = rows(|tracer| {
            let h = Handoff::new("Triage", "Refunds").state(&state).payload(&text).content(content);
            h.start(tracer).accepted();
        });
        let span = columns[0].span(0);
        let h = span.handoff().unwrap();
        assert_eq!(h.constraint_ids().iter().collect::<Vec<_>>(), ["refund-window-30d"]);
        assert_eq!(field_names(h.fields().unwrap()).collect::<Vec<_>>(), ["narrative"]);
        let payloads = span.payloads();
        let p = payloads.iter().find(|p| p.source == Source::Contract).unwrap();
        assert!(p.narrative && !p.structured && !p.empty && p.fields() & 0x3f == 0);
    }
}

#[test]
fn a_text_and_the_arguments_of_a_tool_are_payloads_too() {
    let text = Value::String("Please refund order 4711.".into());
    let arguments =
        json!({"agent_name": "Refunds", "goal": "refund 4711", "hard_constraints": ["Ask first"]});
    let columns = rows(|tracer| {
        let h = Handoff::new("Triage", "Refunds").content(true);
        h.clone().payload(&text).start(tracer).accepted();
        h.payload(&arguments).tool("transfer_to_agent", Some("call-1")).start(tracer).accepted();
    });
    let spans: Vec<_> = columns.iter().flat_map(|c| (0..c.len()).map(|i| c.span(i))).collect();
    let of = |tool: &str| spans.iter().find(|s| s.tool() == Some(tool)).unwrap();
    let told = of("transfer_to_refunds").payloads();
    let p = told.iter().find(|p| p.source == Source::Contract).unwrap();
    assert!(p.narrative && !p.structured && p.fields() & 0x3f == 0);
    let call = of("transfer_to_agent");
    assert_eq!(call.call_id(), Some("call-1"));
    let told = call.payloads();
    let p = told.iter().find(|p| p.source == Source::Contract).unwrap();
    assert_eq!(field_names(p.fields()).collect::<Vec<_>>(), ["intent", "constraints", "hard_constraints"]);
    // Routing is no payload.
    assert!(!p.text().unwrap().contains("agent_name"));
    assert_eq!(p.constraints().count(), 1);
}

#[test]
fn a_receiver_in_another_process_hangs_below_and_says_what_it_got() {
    let contract = contract();
    let mut headers: HashMap<String, String> = HashMap::new();
    let mut sender = SpanId::INVALID;
    let columns = rows(|tracer| {
        let handoff = Handoff::new("Triage", "Refunds")
            .task_id("größe 1, 2")
            .mode(Mode::ReturnToCaller)
            .contract(&contract)
            .start(tracer);
        sender = handoff.context().span().span_context().span_id();
        handoff.inject(&mut headers);
        let mut names: Vec<&str> = headers.keys().map(String::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["baggage", "traceparent", "tracestate"]);

        // The other process has nothing but the headers.
        let parent = extract(&headers);
        assert_eq!(parent.baggage().get(attr::BATON_HANDOFF_ID).map(|v| v.as_str()), Some(handoff.id()));
        let mut run = tracer.start_with_context("invoke_agent Refunds", &parent);
        run.set_attributes(received(&parent, &contract.constraint_set()));
        run.end();
        // A handoff of the receiver is of the same task without being told.
        Handoff::new("Refunds", "Triage").mode(Mode::HandBack).start_with_context(tracer, &parent).accepted();
        handoff.accepted();
    });
    let spans: Vec<_> = columns.iter().flat_map(|c| (0..c.len()).map(|i| c.span(i))).collect();
    assert!(spans.iter().all(|s| s.task_id() == Some("größe 1, 2")));
    let run = spans.iter().find(|s| s.name() == "invoke_agent Refunds").unwrap();
    assert_eq!(run.parent_id, Some(sender.to_string().as_str()));
    assert!(run.remote_parent());
    let got = run.handoff().unwrap();
    assert_eq!(got.signal, Signal::Received);
    assert_eq!(got.constraint_ids().iter().collect::<Vec<_>>(), ["refund-window-30d"]);
    let back = spans.iter().find(|s| s.name() == "execute_tool transfer_back_to_triage").unwrap();
    assert_eq!(back.handoff().unwrap().mode(), Some("hand_back"));
}

#[test]
fn broken_headers_begin_a_new_trace() {
    for headers in [
        HashMap::new(),
        HashMap::from([("traceparent".to_owned(), "00-zz-1".to_owned())]),
        HashMap::from([("baggage".to_owned(), ";;,=%ff".to_owned())]),
    ] {
        let cx = extract(&headers);
        assert!(!cx.span().span_context().is_valid());
        assert!(received(&cx, &ConstraintSet::new()).iter().all(|a| a.key.as_str() != attr::BATON_TASK_ID));
    }
}

#[test]
fn a_refused_and_a_failed_transfer_are_errors_with_a_class_and_a_dropped_one_is_none() {
    let columns = rows(|tracer| {
        Handoff::new("A", "B").id("1").start(tracer).refused("another transfer was taken");
        Handoff::new("A", "C").id("2").start(tracer).failed("timeout", "no answer within 5 s");
        drop(Handoff::new("A", "D").id("3").start(tracer));
    });
    let spans: Vec<_> = columns.iter().flat_map(|c| (0..c.len()).map(|i| c.span(i))).collect();
    let of = |to: &str| spans.iter().find(|s| s.handoff().unwrap().to().contains(to)).unwrap();
    assert_eq!(
        (of("B").status, of("C").status, of("D").status),
        (Status::Error, Status::Error, Status::Unset)
    );
    let class = |o: Outcome| o.attributes().into_iter().find(|a| a.key.as_str() == attr::ERROR_TYPE);
    let class = |o| class(o).map(|a| a.value.to_string());
    assert_eq!(class(Outcome::Refused("why".into())).as_deref(), Some("refused"));
    let failed = Outcome::Failed { error: "timeout".into(), message: "no answer".into() };
    assert_eq!(class(failed).as_deref(), Some("timeout"));
    assert_eq!(class(Outcome::Accepted), None);
}

/// The same handoff through a span of the `tracing` crate.
#[test]
fn a_span_of_tracing_is_a_handoff_too() {
    let (state, contract) = (state(), contract());
    let mut headers: HashMap<String, String> = HashMap::new();
    let columns = rows(|tracer| {
        let layer = tracing_opentelemetry::layer().with_tracer(tracer.clone());
        let subscriber = tracing_subscriber::registry().with(layer);
        tracing::subscriber::with_default(subscriber, || {
            let run = tracing::info_span!("invoke_agent", otel.name = "invoke_agent Triage");
            let _in_run = run.enter();
            let handoff = Handoff::new("Triage", "Refunds").task_id("t1").state(&state).contract(&contract);
            let span = tracing::info_span!("handoff", otel.name = handoff.name());
            let outcome = Outcome::Failed { error: "timeout".into(), message: "no answer".into() };
            for KeyValue { key, value, .. } in handoff.attributes().into_iter().chain(outcome.attributes()) {
                span.set_attribute(key, value);
            }
            span.set_status(outcome.status());
            handoff.inject(&span.context(), &mut headers);
            // The plain API inside a span of tracing is its child.
            span.in_scope(|| Handoff::new("Refunds", "Audit").start(tracer).accepted());
        });
    });
    let spans: Vec<_> = columns.iter().flat_map(|c| (0..c.len()).map(|i| c.span(i))).collect();
    let of = |name: &str| spans.iter().find(|s| s.name() == name).unwrap();
    let handoff = of("execute_tool transfer_to_refunds");
    assert_eq!(handoff.parent_id, Some(of("invoke_agent Triage").span_id));
    assert_eq!(of("execute_tool transfer_to_audit").parent_id, Some(handoff.span_id));
    assert_eq!(handoff.status, Status::Error);
    assert_eq!(handoff.handoff().unwrap().state_constraint_ids().iter().count(), 2);
    assert_eq!(handoff.payloads().iter().filter(|p| p.source == Source::Contract).count(), 1);
    assert!(
        headers["traceparent"].contains(handoff.span_id) && headers["baggage"].contains("baton.task.id=t1")
    );
}

#[test]
fn without_a_provider_a_handoff_costs_nothing_and_breaks_nothing() {
    let tracer = opentelemetry::trace::noop::NoopTracer::new();
    let handoff = Handoff::new("", "").start_with_context(&tracer, &Context::new());
    let mut headers: HashMap<String, String> = HashMap::new();
    handoff.inject(&mut headers);
    assert!(!headers.contains_key("traceparent") || headers["traceparent"].is_empty(), "{headers:?}");
    handoff.failed("", "");
}
