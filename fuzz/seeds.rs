//! Writes the inputs that fuzzing starts from: `cargo run --example seeds CORPUS SAMPLES...`
//!
//! Requests of one record each, since small inputs are changed to more effect than large ones; JSON documents as they are, and
//! a segment with a few changes.

use std::fs;
use std::path::Path;

use baton_collector::otlp::{Signal, expand, read_input};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value::Value};
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message;

/// Larger records are left out.
const LARGEST: usize = 16 << 10;

const JSON: [&str; 4] = [
    r#"{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"s"}}]},"scopeSpans":[{"scope":{"name":"x"},"spans":[{"traceId":"5b8efff798038103d269b633813fc60c","spanId":"eee19b7ec3c1b174","name":"transfer","startTimeUnixNano":"1790000000000000000","endTimeUnixNano":1790000000000000001,"attributes":[{"key":"baton.handoff.from_agent","value":{"stringValue":"a"}},{"key":"gen_ai.tool.call.arguments","value":{"kvlistValue":{"values":[{"key":"k","value":{"arrayValue":{"values":[{"intValue":"1"},{"doubleValue":0.5},{"boolValue":true},{"bytesValue":"aGk="}]}}}]}}}],"events":[{"name":"gen_ai.user.message","timeUnixNano":"1","attributes":[{"key":"content","value":{"stringValue":"hi"}}]}],"links":[{"traceId":"5b8efff798038103d269b633813fc60c","spanId":"eee19b7ec3c1b175"}],"status":{"code":2,"message":"m"}}]}]}]}"#,
    r#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"timeUnixNano":"1","traceId":"5b8efff798038103d269b633813fc60c","spanId":"eee19b7ec3c1b174","eventName":"gen_ai.client.inference.operation.details","body":{"kvlistValue":{"values":[{"key":"content","value":{"stringValue":"hi"}}]}},"attributes":[{"key":"gen_ai.input.messages","value":{"stringValue":"[{\"role\":\"user\",\"parts\":[{\"type\":\"text\",\"content\":\"hi\"}]}]"}}]}]}]}]}"#,
    r#"{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"name":"m","sum":{"dataPoints":[{"asInt":"1"}]}}]}]}]}"#,
    "{}",
];

/// Of these small texts many make a large one that becomes much in memory.
const DENSE: [&str; 7] = [
    "0,",
    "[],",
    r#"{"role":"user","content":"a"},"#,
    r#"{"role":"assistant","parts":[{"type":"tool_call","name":"f","arguments":{}}]},"#,
    r#""a0 b1 c2","#,
    r#""","#,
    "x",
];

/// A request of spans that hold JSON of many small parts.
fn dense(unit: &str, spans: usize) -> Vec<u8> {
    let text = |t: &str| Some(AnyValue { value: Some(Value::StringValue(t.to_owned())) });
    let messages = format!("[{}0]", unit.repeat((60 << 10) / spans / unit.len()));
    let pairs = [("gen_ai.operation.name", "chat"), ("gen_ai.input.messages", &messages)];
    let attributes: Vec<KeyValue> = pairs
        .iter()
        .map(|(k, v)| KeyValue { key: (*k).to_owned(), value: text(v), ..KeyValue::default() })
        .collect();
    let span = |n: usize| Span {
        trace_id: vec![1; 16],
        span_id: (n as u64 + 1).to_be_bytes().to_vec(),
        attributes: attributes.clone(),
        ..Span::default()
    };
    let scope = ScopeSpans { spans: (0..spans).map(span).collect(), ..ScopeSpans::default() };
    let resource = ResourceSpans { scope_spans: vec![scope], ..ResourceSpans::default() };
    ExportTraceServiceRequest { resource_spans: vec![resource] }.encode_to_vec()
}

fn main() {
    let mut args = std::env::args().skip(1);
    let corpus = args.next().expect("a folder");
    let inputs = expand(&args.collect::<Vec<_>>());
    let to = |target: &str| {
        let dir = Path::new(&corpus).join(target);
        fs::create_dir_all(&dir).expect("a folder");
        dir
    };
    let (protobuf, json, journal) = (to("protobuf"), to("json"), to("journal"));
    let mut n = 0;
    for input in &inputs.files {
        let mut sink = |signal: Signal| -> Result<(), String> {
            for record in records(signal).into_iter().filter(|r| r.len() <= LARGEST) {
                fs::write(protobuf.join(format!("sample-{n}")), record).map_err(|e| e.to_string())?;
                n += 1;
            }
            Ok(())
        };
        read_input(input, &mut |_| (), &mut sink, &mut Vec::new()).expect("a sample");
        let text = fs::read_to_string(&input.path).ok().filter(|t| t.starts_with('{'));
        for line in text.iter().flat_map(|t| t.lines()).filter(|l| l.len() < 4 * LARGEST) {
            fs::write(json.join(format!("sample-{n}")), line).expect("room");
            n += 1;
        }
    }
    for (i, unit) in DENSE.iter().enumerate() {
        for spans in [1, 20] {
            fs::write(protobuf.join(format!("dense-{i}-{spans}")), dense(unit, spans)).expect("room");
        }
    }
    for (i, text) in JSON.iter().enumerate() {
        fs::write(json.join(format!("small-{i}")), text).expect("room");
    }
    let (whole, ends) = baton_fuzz::segment();
    fs::write(journal.join("whole"), &whole).expect("room");
    fs::write(journal.join("one-batch"), &whole[..ends[0]]).expect("room");
    fs::write(journal.join("header"), &whole[..400]).expect("room");
    println!("{n} records");
}

fn records(signal: Signal) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    match signal {
        Signal::Traces(t) => {
            for mut r in t.resource_spans {
                for mut s in std::mem::take(&mut r.scope_spans) {
                    for span in std::mem::take(&mut s.spans) {
                        let (mut r, mut s) = (r.clone(), s.clone());
                        s.spans.push(span);
                        r.scope_spans.push(s);
                        out.push(ExportTraceServiceRequest { resource_spans: vec![r] }.encode_to_vec());
                    }
                }
            }
        }
        Signal::Logs(l) => {
            for mut r in l.resource_logs {
                for mut s in std::mem::take(&mut r.scope_logs) {
                    for log in std::mem::take(&mut s.log_records) {
                        let (mut r, mut s) = (r.clone(), s.clone());
                        s.log_records.push(log);
                        r.scope_logs.push(s);
                        out.push(ExportLogsServiceRequest { resource_logs: vec![r] }.encode_to_vec());
                    }
                }
            }
        }
        Signal::Metrics => {}
    }
    out
}
