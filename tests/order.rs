//! Neither order, nor splitting, nor repetition, nor the content mode changes a report.

use std::io::Write;

use baton_collector::otlp::{Signal, expand, read_input};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use proptest::prelude::*;
use prost::Message;
use serde_json::Value;

use super::{run, stdout};

/// Every span and log record of the sample traces as a request of its own, encoded.
pub(super) fn pieces() -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    let inputs = expand(&[super::root().join("sample-traces").display().to_string()]);
    for input in &inputs.files {
        let mut sink = |s: Signal| -> Result<(), std::convert::Infallible> {
            match s {
                Signal::Traces(t) => {
                    for rs in t.resource_spans {
                        for ss in &rs.scope_spans {
                            for span in &ss.spans {
                                let mut one = rs.clone();
                                let mut scope = ss.clone();
                                scope.spans = vec![span.clone()];
                                one.scope_spans = vec![scope];
                                out.push(
                                    ExportTraceServiceRequest { resource_spans: vec![one] }.encode_to_vec(),
                                );
                            }
                        }
                    }
                }
                Signal::Logs(l) => {
                    for rl in l.resource_logs {
                        for sl in &rl.scope_logs {
                            for log in &sl.log_records {
                                let mut one = rl.clone();
                                let mut scope = sl.clone();
                                scope.log_records = vec![log.clone()];
                                one.scope_logs = vec![scope];
                                out.push(
                                    ExportLogsServiceRequest { resource_logs: vec![one] }.encode_to_vec(),
                                );
                            }
                        }
                    }
                }
                Signal::Metrics => {}
            }
            Ok(())
        };
        read_input(input, &mut |_| {}, &mut sink, &mut Vec::new()).unwrap_or_else(|e| match e {});
    }
    out
}

/// Requests one after the other, each with its length in four bytes in front.
pub(super) fn framed(requests: impl Iterator<Item = Vec<u8>>) -> Vec<u8> {
    let mut out = Vec::new();
    for r in requests {
        out.extend((r.len() as u32).to_be_bytes());
        out.extend(r);
    }
    out
}

pub(super) fn report(args: &[&str]) -> String {
    let o = run(&[&["eval", "--format", "json"], args].concat());
    assert!(o.status.success(), "{}", super::stderr(&o));
    stdout(&o)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, max_shrink_iters: 0, ..ProptestConfig::default() })]
    #[test]
    fn any_order_and_any_split_give_the_same_report(
        keys in proptest::collection::vec(any::<u64>(), 800),
        twice in proptest::collection::vec(proptest::bool::weighted(0.2), 800),
        files in 1usize..4,
    ) {
        let pieces = pieces();
        prop_assert!(pieces.len() <= keys.len() && pieces.len() > 300);
        let mut order: Vec<usize> = (0..pieces.len()).chain((0..pieces.len()).filter(|i| twice[*i])).collect();
        let n = order.len();
        order.sort_by_key(|i| keys[*i].rotate_left((*i % 7) as u32));
        let dir = tempfile::tempdir().unwrap();
        for (k, part) in order.chunks(n.div_ceil(files)).enumerate() {
            let bytes = framed(part.iter().map(|i| pieces[*i].clone()));
            std::fs::File::create(dir.path().join(format!("{k}.bin"))).unwrap().write_all(&bytes).unwrap();
        }
        let got = report(&[dir.path().to_str().unwrap()]);
        prop_assert_eq!(got, report(&["sample-traces"]));
    }
}

#[test]
fn two_runs_give_the_same_bytes() {
    assert_eq!(report(&["sample-traces"]), report(&["sample-traces"]));
}

/// The report without what quotes content: a leak's overlap.
fn without_quotes(text: &str) -> Value {
    let mut v: Value = serde_json::from_str(text).unwrap();
    for h in v["handoffs"].as_array_mut().unwrap() {
        for l in h["leaks"].as_array_mut().into_iter().flatten() {
            l["overlap"] = Value::Null;
        }
    }
    v
}

#[test]
fn the_content_mode_changes_no_measure() {
    let dir = tempfile::tempdir().unwrap();
    let with = |mode: &str, path: &str| {
        let config = dir.path().join(format!("{mode}.toml"));
        std::fs::write(&config, format!("content = \"{mode}\"\n")).unwrap();
        without_quotes(&report(&[path, "--config", config.to_str().unwrap()]))
    };
    for path in ["sample-traces", "tests/cases/faults"] {
        let full = with("full", path);
        assert!(full["handoffs"].as_array().unwrap().len() > 15);
        assert_eq!(with("none", path), full);
        assert_eq!(with("redacted", path), full);
    }
}
