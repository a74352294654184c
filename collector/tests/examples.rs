//! The examples run without a network, lose no span, and what their handoffs say is in the store.
// Each example brings the same support along.
#![allow(clippy::unwrap_used, clippy::duplicate_mod)]

use std::error::Error;
use std::fs::File;
use std::path::Path;

use arrow::array::RecordBatch;
use baton_record::contract::REQUIRED;
use baton_record::schema::SpanColumns;
use baton_record::span::{Role, Signal};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

#[allow(dead_code)]
#[path = "../examples/debugger.rs"]
mod debugger;
#[allow(dead_code)]
#[path = "../examples/refund.rs"]
mod refund;

/// Of the handoff: required fields present, ids carried, ids in state, items before and after; then ids the receiver got, and how
/// many tool calls there are.
type Seen = (u32, Vec<String>, Vec<String>, Option<i64>, Option<i64>, Vec<String>, usize);

fn seen(example: impl FnOnce(&Path) -> Result<(), Box<dyn Error>>) -> Seen {
    let folder = tempfile::tempdir().unwrap();
    example(folder.path()).unwrap();
    let files = walkdir::WalkDir::new(folder.path().join("spans")).into_iter().flatten();
    let batches: Vec<RecordBatch> = files
        .filter(|e| e.path().extension().is_some_and(|x| x == "parquet"))
        .flat_map(|e| {
            let file = File::open(e.path()).unwrap();
            ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap().map(Result::unwrap)
        })
        .collect();
    let columns: Vec<SpanColumns> = batches.iter().map(|b| SpanColumns::new(b).unwrap()).collect();
    let spans: Vec<_> = columns.iter().flat_map(|c| (0..c.len()).map(|i| c.span(i))).collect();
    let told = |signal| {
        let mut all = spans.iter().filter_map(|s| s.handoff()).filter(|h| h.signal == signal);
        let one = all.next().unwrap_or_else(|| {
            panic!("no {signal:?} in {:?}", spans.iter().map(|s| (s.name(), s.role)).collect::<Vec<_>>())
        });
        assert!(all.next().is_none());
        one
    };
    let (h, r) = (told(Signal::Explicit), told(Signal::Received));
    let names = |n: baton_record::schema::Names<'_>| n.iter().map(str::to_owned).collect::<Vec<_>>();
    let fields = h.fields().unwrap();
    let required = REQUIRED.iter().filter(|f| fields & f.bit() != 0).count() as u32;
    let tools = spans.iter().filter(|s| s.role == Role::Tool && s.handoff().is_none()).count();
    (
        required,
        names(h.constraint_ids()),
        names(h.state_constraint_ids()),
        h.items_before(),
        h.items_after(),
        names(r.constraint_ids()),
        tools,
    )
}

fn texts(of: &[&str]) -> Vec<String> {
    of.iter().map(|s| (*s).to_owned()).collect()
}

#[test]
fn the_refund_is_handed_over_weakly_and_well() {
    let rules = texts(&["refund-window-30d", "mask-iban"]);
    let weak = seen(|s| refund::run(refund::To { store: s, otlp: None }, refund::Version::Weak));
    assert_eq!(weak, (0, vec![], rules.clone(), Some(9), Some(3), vec![], 7));
    let good = seen(|s| refund::run(refund::To { store: s, otlp: None }, refund::Version::Good));
    assert_eq!(good, (6, rules.clone(), rules.clone(), Some(8), Some(2), rules, 4));
}

#[test]
fn the_failing_test_is_handed_over_weakly_and_well() {
    let rules = texts(&["keep-public-api", "no-new-dependencies"]);
    let weak = seen(|s| debugger::run(debugger::To { store: s, otlp: None }, debugger::Version::Weak));
    assert_eq!(weak, (0, vec![], rules.clone(), Some(8), Some(1), vec![], 8));
    let good = seen(|s| debugger::run(debugger::To { store: s, otlp: None }, debugger::Version::Good));
    assert_eq!(good, (6, rules.clone(), rules.clone(), Some(8), Some(1), rules, 5));
}
