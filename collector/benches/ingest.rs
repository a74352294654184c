//! What the live collector's work costs without network and disk: from a request's body to an entry of the journal, and from
//! a closed segment to Parquet.
//!
//! ```text
//! cargo bench -p baton-collector --features server --bench ingest
//! ```
//!
//! *lean*: about 0.7 kB a span, names and numbers alone. *content*: about 8 kB a span, of which most was sent before:
//! instructions are the same in all calls, a history is sent again with every call of its task, a tool's result is new.
//!
//! Times are those of the processor and not of the clock, so others on the machine disturb less. Every round begins with a new
//! reader, which remembers nothing, and reads every body once.

use std::error::Error;
use std::hint::black_box;
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use baton_collector::live::ingest::{Bodies, Budget, Form, Job, Kind, Packing};
use baton_collector::live::metrics::Metrics;
use baton_collector::live::segment::{Entry, Segment};
use baton_collector::live::{keep, segment};
use baton_collector::reading::Reader;
use baton_record::config::Config;
use baton_record::prints::PrintKey;
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// Spans of a request, as an OpenTelemetry batch processor sends them.
const BATCH: usize = 512;
/// 2026-01-01T00:00:00Z.
const START: u64 = 1_767_225_600_000_000_000;

fn main() -> Outcome {
    let mut criterion = Criterion::default()
        .sample_size(10)
        .measurement_time(Duration::from_secs(4))
        .warm_up_time(Duration::from_millis(500))
        .configure_from_args();
    for (name, content, tasks) in [("lean", false, 800), ("content", true, 60)] {
        let spans: Vec<Span> = (0..tasks).flat_map(|n| task(n, content)).collect();
        let plain: Vec<Vec<u8>> = spans.chunks(BATCH).map(|s| request(s.to_vec()).encode_to_vec()).collect();
        let bytes = plain.iter().map(Vec::len).sum::<usize>() as u64;
        tell_sizes(name, spans.len() as u64, bytes, gzip(&plain[0])?.len() as f64 / plain[0].len() as f64);
        for (unit, per) in
            [("spans", Throughput::Elements(spans.len() as u64)), ("bytes", Throughput::Bytes(bytes))]
        {
            let mut group = criterion.benchmark_group(format!("{name}/{unit}"));
            group.throughput(per);
            read(&mut group, "plain", Packing::Plain, &plain);
            read(&mut group, "gzip", Packing::Gzip, &plain);
            parquet(&mut group, &plain);
            group.finish();
        }
    }
    criterion.final_summary();
    Ok(())
}

#[expect(clippy::print_stderr, reason = "figures that the throughput is to be read with")]
fn tell_sizes(name: &str, spans: u64, bytes: u64, packed: f64) {
    eprintln!("{name}: {spans} spans of {} bytes, with gzip {:.1} % of it", bytes / spans, packed * 100.0);
}

/// Times rounds of work that was made ready by `setup`, which is run only where the measurement is asked for.
fn measure<T>(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: String,
    setup: impl Fn() -> Outcome<T>,
    mut round: impl FnMut(&T) -> Outcome,
) {
    let mut ready = None;
    group.bench_function(name, |b| {
        let ready = ready.get_or_insert_with(|| setup().and_then(|t| round(&t).map(|()| t)));
        let ready = match ready {
            Ok(t) => t,
            Err(e) => panic!("{e}"),
        };
        b.iter_custom(|rounds| {
            let clock = Clock::start();
            for _ in 0..rounds {
                // The first round went well, and all are the same.
                black_box(round(ready).is_ok());
            }
            clock.elapsed()
        });
    });
}

/// From bodies to entries of the journal.
fn read(group: &mut BenchmarkGroup<'_, WallTime>, name: &str, packing: Packing, plain: &[Vec<u8>]) {
    let setup = || match packing {
        Packing::Gzip => plain.iter().map(|b| gzip(b)).collect(),
        _ => Ok(plain.to_vec()),
    };
    measure(group, format!("read {name}"), setup, |bodies| {
        black_box(entries(packing, bodies)?);
        Ok(())
    });
}

fn entries(packing: Packing, bodies: &[Vec<u8>]) -> Outcome<Vec<Entry>> {
    let reader = Reader::new(Arc::new(Config::default()), PrintKey::default());
    let reading = Bodies::new(reader, 64 << 20, Arc::new(Metrics::new()), Arc::default());
    let budget = Budget::new(1 << 30);
    let mut out = Vec::with_capacity(bodies.len());
    for body in bodies {
        let (kind, form, body, share) = (Kind::Traces, Form::Protobuf, body.clone().into(), budget.share());
        let (entry, _) = reading.read(&mut Job { kind, form, packing, body, share })?;
        out.push(entry.ok_or("no rows")?);
    }
    Ok(out)
}

/// From a closed segment to a Parquet file.
fn parquet(group: &mut BenchmarkGroup<'_, WallTime>, plain: &[Vec<u8>]) {
    let setup = || {
        let dir = tempfile::tempdir()?;
        let entries = entries(Packing::Plain, plain)?;
        Segment::create(&dir.path().join("1.arrows"))?.append(&entries, false)?;
        Ok(dir)
    };
    let mut n = 0;
    measure(group, "parquet".to_owned(), setup, |dir| {
        n += 1;
        let batches = segment::read(&dir.path().join("1.arrows"))?.batches;
        let store = dir.path().join("store");
        keep::local(&store, &format!("bench-{n}"), &batches).map_err(|e| format!("{e:?}"))?;
        Ok(())
    });
}

/// Time of the processor that this thread used, where the system tells it; the clock's otherwise.
struct Clock(Option<Duration>, Instant);

impl Clock {
    fn start() -> Self {
        Self(Self::used(), Instant::now())
    }

    fn elapsed(&self) -> Duration {
        match (self.0, Self::used()) {
            (Some(before), Some(now)) => now.saturating_sub(before),
            _ => self.1.elapsed(),
        }
    }

    fn used() -> Option<Duration> {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
        text.split(' ').next()?.parse().ok().map(Duration::from_nanos)
    }
}

fn gzip(data: &[u8]) -> Outcome<Vec<u8>> {
    let mut e = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(6));
    e.write_all(data)?;
    Ok(e.finish()?)
}

fn request(spans: Vec<Span>) -> ExportTraceServiceRequest {
    let scope = InstrumentationScope { name: "generated".to_owned(), ..InstrumentationScope::default() };
    let resource = Resource { attributes: vec![text("service.name", "returns-desk")], ..Resource::default() };
    let scope_spans = vec![ScopeSpans { scope: Some(scope), spans, ..ScopeSpans::default() }];
    let resource = ResourceSpans { resource: Some(resource), scope_spans, ..ResourceSpans::default() };
    ExportTraceServiceRequest { resource_spans: vec![resource] }
}

fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

fn text(key: &str, value: impl Into<String>) -> KeyValue {
    attribute(key, Value::StringValue(value.into()))
}

/// A sequence of numbers that look random (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn id(&mut self) -> Vec<u8> {
        self.next().to_be_bytes().to_vec()
    }
}

/// Text of about so many bytes, made of common words; another seed, other text.
fn prose(seed: u64, bytes: usize) -> String {
    const WORDS: &str = "order customer refund payment was the captured on delivery and return window of policy requires \
        manager approval for amounts above limit ticket shipment tracking shows parcel arrived damaged photo attached agent \
        verified identity with last four digits account created status";
    let words: Vec<&str> = WORDS.split(' ').collect();
    let mut numbers = Numbers(seed);
    let mut out = String::with_capacity(bytes + 16);
    while out.len() < bytes {
        out.push_str(words[(numbers.next() % words.len() as u64) as usize]);
        out.push(if numbers.next().is_multiple_of(12) { '.' } else { ' ' });
        if numbers.next().is_multiple_of(20) {
            out.push_str(&format!("R-{} ", 10_000 + numbers.next() % 90_000));
        }
    }
    out
}

/// The spans of a task: two agents, ten model calls with the client's span below, eight tool calls with the database's.
fn task(n: u64, content: bool) -> Vec<Span> {
    let mut made = Made { numbers: Numbers(n), trace: Vec::new(), now: START, spans: Vec::new(), content, n };
    made.now += n * 1_000_000_000;
    made.trace = [made.numbers.id(), made.numbers.id()].concat();
    let (root, agents) = (made.numbers.id(), [made.numbers.id(), made.numbers.id()]);
    let part = |role: &str, kind: &str, rest: &str| {
        format!(r#"{{"role":"{role}","parts":[{{"type":"{kind}",{rest}}}]}}"#)
    };
    let said = |words: &str| part("user", "text", &format!(r#""content":"{words}""#));
    let mut history = vec![said(&format!("My order ORD-{n:07} arrived damaged and I want my money back."))];
    let old: Vec<String> =
        [8000, 6000, 5000].iter().enumerate().map(|(k, b)| said(&prose(n ^ (k as u64) << 40, *b))).collect();
    for turn in 0..10 {
        let agent = usize::from(turn > 5);
        let (call, subject) =
            (format!("call_{:012x}", made.numbers.next() >> 16), made.numbers.next() % 10_000_000);
        let asked = part(
            "assistant",
            "tool_call",
            &format!(r#""id":"{call}","name":"lookup_order","arguments":{{"order_id":"ORDER-{subject}"}}"#),
        );
        let own = said(&prose(made.numbers.next(), 1500));
        let input =
            history.iter().chain(&old).chain([&own]).map(String::as_str).collect::<Vec<_>>().join(",");
        made.chat(&agents[agent], agent, &format!("[{input}]"), &format!("[{asked}]"));
        if turn < 8 {
            made.tool(&agents[agent], &call, subject);
            history.push(asked);
            let answer = format!(
                r#""id":"{call}","response":"{{\"reference\":\"RX-{subject}\",\"state\":\"on file\"}}""#
            );
            history.push(part("tool", "tool_call_response", &answer));
        }
    }
    for (k, agent) in agents.iter().enumerate() {
        made.span(
            agent.clone(),
            Some(&root),
            "invoke_agent Triage",
            1,
            vec![
                text("gen_ai.operation.name", "invoke_agent"),
                text("gen_ai.agent.name", ["Triage", "Refunds"][k]),
                text("gen_ai.conversation.id", format!("conv-{n}")),
            ],
        );
    }
    made.span(
        root,
        None,
        "POST /chat",
        2,
        vec![
            text("http.request.method", "POST"),
            text("url.path", "/chat"),
            attribute("http.response.status_code", Value::IntValue(200)),
        ],
    );
    made.spans
}

struct Made {
    numbers: Numbers,
    trace: Vec<u8>,
    now: u64,
    spans: Vec<Span>,
    content: bool,
    n: u64,
}

impl Made {
    fn span(&mut self, id: Vec<u8>, parent: Option<&[u8]>, name: &str, kind: i32, attributes: Vec<KeyValue>) {
        let start = self.now;
        self.now += 1_000_000 + self.numbers.next() % 1_000_000_000;
        let mut span = Span {
            trace_id: self.trace.clone(),
            span_id: id,
            parent_span_id: parent.map(<[u8]>::to_vec).unwrap_or_default(),
            name: name.to_owned(),
            kind,
            start_time_unix_nano: start,
            end_time_unix_nano: self.now,
            attributes,
            ..Span::default()
        };
        if !self.content {
            span.attributes.extend(
                [
                    ("server.address", "model-gateway.internal.example"),
                    (
                        "url.full",
                        "https://model-gateway.internal.example/v1/chat/completions?deployment=primary",
                    ),
                    ("http.request.method", "POST"),
                    ("user_agent.original", "agent-runtime/2.14.3 python/3.13.1 linux x86_64"),
                    ("thread.name", "AnyIO worker thread"),
                    ("code.function.name", "returns_desk.agents.runtime.execute_step"),
                    ("deployment.environment.name", "production"),
                    ("feature_flag.context.id", "tenant-4711-eu-central"),
                ]
                .map(|(k, v)| text(k, v)),
            );
        }
        self.spans.push(span);
    }

    fn chat(&mut self, agent: &[u8], which: usize, input: &str, output: &str) {
        let (id, client) = (self.numbers.id(), self.numbers.id());
        self.span(
            client,
            Some(&id),
            "POST",
            3,
            vec![
                text("http.request.method", "POST"),
                text("server.address", "llm.example.com"),
                attribute("http.response.status_code", Value::IntValue(200)),
            ],
        );
        let stop = AnyValue { value: Some(Value::StringValue("tool_calls".to_owned())) };
        let mut attributes = vec![
            text("gen_ai.operation.name", "chat"),
            text("gen_ai.request.model", "gpt-4.1-mini"),
            text("gen_ai.response.model", "gpt-4.1-mini"),
            text("gen_ai.response.id", format!("resp_{:016x}", self.numbers.next())),
            text("gen_ai.agent.name", ["Triage", "Refunds"][which]),
            text("gen_ai.conversation.id", format!("conv-{}", self.n)),
            attribute("gen_ai.usage.input_tokens", Value::IntValue(input.len() as i64 / 4)),
            attribute("gen_ai.usage.output_tokens", Value::IntValue(output.len() as i64 / 4)),
            attribute("gen_ai.response.finish_reasons", Value::ArrayValue(ArrayValue { values: vec![stop] })),
        ];
        if self.content {
            let instructions = format!(r#"[{{"type":"text","content":"{}"}}]"#, prose(1 << 50, 6000));
            attributes.extend([
                text("gen_ai.system_instructions", instructions),
                text("gen_ai.input.messages", input),
                text("gen_ai.output.messages", output),
            ]);
        }
        self.span(id, Some(agent), "chat gpt-4.1-mini", 3, attributes);
    }

    fn tool(&mut self, agent: &[u8], call: &str, subject: u64) {
        let (id, client) = (self.numbers.id(), self.numbers.id());
        self.span(
            client,
            Some(&id),
            "SELECT",
            3,
            vec![
                text("db.system.name", "postgresql"),
                text("db.query.text", "SELECT * FROM records WHERE id = $1"),
            ],
        );
        let mut attributes = vec![
            text("gen_ai.operation.name", "execute_tool"),
            text("gen_ai.tool.name", "lookup_order"),
            text("gen_ai.tool.call.id", call),
        ];
        if self.content {
            let document = prose(self.numbers.next(), 6000);
            attributes.extend([
                text("gen_ai.tool.call.arguments", format!(r#"{{"order_id":"ORDER-{subject}"}}"#)),
                text("gen_ai.tool.call.result", format!(r#"{{"found":{subject},"document":"{document}"}}"#)),
            ]);
        }
        self.span(id, Some(agent), "execute_tool lookup_order", 1, attributes);
    }
}
