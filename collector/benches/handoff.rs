//! What a handoff costs the agent.
//!
//! ```text
//! cargo bench -p baton-collector --bench handoff
//! ```
//!
//! `span`: from a contract with so many constraints in memory to an ended span of the SDK, whose processor does nothing: constraints
//! are made (and hashed) anew, the payload is counted in tokens. The throughput is constraints per second.
//!
//! `filter`: each filter, and the leak check, over a history of 1 MiB of text. The throughput is bytes of that text per second. The
//! copy that a filter makes is in it. `measure` counts both sides of a transfer; a text that was seen before is remembered, so
//! it is measured with what it has seen, and `measure_new` with what it has not.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use baton_collector::handoff::Handoff;
use baton_collector::handoff::filter::Filter;
use baton_collector::handoff::history::{History, HistoryCounts};
use baton_collector::handoff::leaks::leaks;
use baton_collector::messages::{Message, Part};
use baton_record::config::Tokenizer;
use baton_record::constraint::{Constraint, ConstraintSet};
use baton_record::contract::Contract;
use baton_record::span::Speaker;
use criterion::{BatchSize, Criterion, Throughput};
use opentelemetry::Context;
use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SdkTracerProvider, Span, SpanData, SpanProcessor};
use regex::Regex;
use serde_json::json;

/// Takes spans and does nothing: the SDK records only where there is a processor.
#[derive(Debug)]
struct Nothing;

impl SpanProcessor for Nothing {
    fn on_start(&self, _: &mut Span, _: &Context) {}
    fn on_end(&self, span: SpanData) {
        black_box(span);
    }
    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }
    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

fn contract(constraints: usize) -> Contract {
    let rules = (0..constraints).map(|n| {
        Constraint::hard(
            &format!("rule-{n}"),
            &format!("Refund order class {n} only within {n} days of capture"),
        )
    });
    Contract::builder()
        .intent("Refund order 4711")
        .constraints(rules)
        .status("Identity verified, order and payment found")
        .evidence("Order 4711 was captured 12 days ago")
        .next_action("Issue the refund")
        .stop_condition("The refund is issued or declined")
        .build()
}

/// Turns of a question, a call, its result and an answer, with at least `bytes` bytes of text. No two are the same.
fn history(bytes: usize) -> (History, u64) {
    static FRESH: AtomicU64 = AtomicU64::new(0);
    let (mut messages, mut size) = (Vec::new(), 0);
    let said = |speaker, part| Message { speaker, author: None, parts: vec![part] };
    while size < bytes {
        let n = FRESH.fetch_add(1, Ordering::Relaxed);
        let ask =
            format!("Please look at order ORD-{n:06} and tell me when it was captured and what was paid.");
        let result = json!({"order": format!("ORD-{n:06}"), "captured": "2026-11-18", "iban": format!("DE{n:020}"),
            "lines": (0..8).map(|k| json!({"sku": format!("SKU-{n}-{k}"), "name": "A warm coat with a hood", "price": 49.9})).collect::<Vec<_>>()});
        let result = result.to_string();
        let answer = format!(
            "Order ORD-{n:06} was captured twelve days ago, so that the refund is within the window."
        );
        size += ask.len() + result.len() + answer.len();
        let id = Some(format!("call_{n}"));
        messages.push(said(Speaker::User, Part::Text(ask)));
        let args = Some(json!({"order": format!("ORD-{n:06}")}));
        messages
            .push(said(Speaker::Assistant, Part::Call { name: "lookup_order".into(), id: id.clone(), args }));
        let content = result.into();
        messages.push(said(Speaker::Tool, Part::Result { name: None, id, content, error: None }));
        messages.push(said(Speaker::Assistant, Part::Text(answer)));
    }
    (History { messages }, size as u64)
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    spans(&mut criterion);
    filters(&mut criterion);
    criterion.final_summary();
}

fn spans(criterion: &mut Criterion) {
    let provider = SdkTracerProvider::builder().with_span_processor(Nothing).build();
    let tracer = provider.tracer("bench");
    let mut group = criterion.benchmark_group("span");
    for n in [10, 100] {
        group.throughput(Throughput::Elements(n as u64));
        group.bench_function(format!("{n}_constraints"), |b| {
            b.iter(|| {
                let contract = contract(n);
                let state: ConstraintSet = contract.constraint_set();
                Handoff::new("Triage", "Refunds Specialist")
                    .reason("The customer asks for a refund")
                    .state(&state)
                    .contract(&contract)
                    .start(&tracer)
                    .accepted();
            });
        });
    }
    group.finish();
}

fn filters(criterion: &mut Criterion) {
    let (before, size) = history(1 << 20);
    let tokenizer = Tokenizer::default();
    let iban = Regex::new(r"DE\d{20}").unwrap_or_else(|e| panic!("{e}"));
    let steps = [
        Filter::RemoveTools,
        Filter::LastTurns(10),
        Filter::TokenBudget { tokens: 100_000, tokenizer },
        Filter::Redact(vec![iban]),
        Filter::OnlyFields(["order", "captured"].map(str::to_owned).to_vec()),
    ];
    let mut group = criterion.benchmark_group("filter");
    group.sample_size(10).throughput(Throughput::Bytes(size));
    for step in steps {
        let filters = [step];
        group.bench_function(filters[0].name(), |b| b.iter(|| before.filtered(black_box(&filters))));
    }
    let after = before.filtered(&[Filter::RemoveTools]).history;
    group.bench_function("leaks", |b| b.iter(|| leaks(black_box(&before), &after, "{}")));
    group.bench_function("measure", |b| {
        b.iter(|| HistoryCounts::measured(black_box(&before), &after, tokenizer))
    });
    group.bench_function("measure_new", |b| {
        b.iter_batched(
            || history(1 << 20).0,
            |fresh| HistoryCounts::measured(&fresh, &History::default(), tokenizer),
            BatchSize::PerIteration,
        );
    });
    group.finish();
}
