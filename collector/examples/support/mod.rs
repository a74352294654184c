//! A small agent runtime with a scripted model: what a framework would do, with ordinary OpenTelemetry GenAI spans. The handoffs
//! are in the examples themselves.

use std::collections::VecDeque;
use std::error::Error;
use std::path::Path;

use baton_collector::handoff::history::History;
use baton_collector::messages::{Message, Part, to_genai};
use baton_collector::processor::HandoffProcessor;
use baton_record::names::transfer_name;
use baton_record::span::Speaker;
use opentelemetry::trace::{Span, SpanKind, Status, TraceContextExt, Tracer, TracerProvider};
use opentelemetry::{Context, KeyValue};
use opentelemetry_otlp::WithExportConfig;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use serde_json::{Value, json};

/// Which of the two versions runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    /// A sentence is handed over.
    Weak,
    /// A contract is.
    Good,
}

/// How an example ends.
pub(crate) type Outcome = Result<(), Box<dyn Error>>;
/// An example.
type Example = fn(To<'_>, Version) -> Outcome;

/// Where the spans of an example go.
#[derive(Debug, Clone, Copy)]
pub(crate) struct To<'a> {
    /// A store's folder, by our own processor.
    pub(crate) store: &'a Path,
    /// A collector beside it, by the standard exporter: OTLP over gRPC.
    pub(crate) otlp: Option<&'a str>,
}

/// Reads `weak|good [STORE]` from the command line and runs an example with them. Spans go to the store folder (default
/// `baton-data`), and also to an OTLP endpoint where `OTEL_EXPORTER_OTLP_ENDPOINT` names one.
pub(crate) fn main(run: Example) -> Outcome {
    let mut args = std::env::args().skip(1);
    let version = match args.next().as_deref() {
        Some("weak") => Version::Weak,
        Some("good") => Version::Good,
        _ => return Err("usage: weak|good [STORE]".into()),
    };
    let store = args.next().unwrap_or_else(|| "baton-data".to_owned());
    let otlp = std::env::var("OTEL_EXPORTER_OTLP_ENDPOINT").ok();
    run(To { store: Path::new(&store), otlp: otlp.as_deref() }, version)
}

/// The set-up of OpenTelemetry.
pub(crate) struct Tracing {
    provider: SdkTracerProvider,
    processor: HandoffProcessor,
    /// The OTLP exporter works on it.
    _runtime: Option<tokio::runtime::Runtime>,
}

impl Tracing {
    /// The whole set-up: our processor, and the standard exporter beside it where one is asked for.
    pub(crate) fn start(to: To<'_>, service: &'static str) -> Result<Self, Box<dyn Error>> {
        let processor = HandoffProcessor::builder(to.store).build()?;
        let mut provider = SdkTracerProvider::builder()
            .with_resource(Resource::builder().with_service_name(service).build())
            .with_span_processor(processor.clone());
        let mut runtime = None;
        if let Some(endpoint) = to.otlp {
            let own = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
            let inside = own.enter();
            let exporter =
                opentelemetry_otlp::SpanExporter::builder().with_tonic().with_endpoint(endpoint).build()?;
            provider = provider.with_batch_exporter(exporter);
            drop(inside);
            runtime = Some(own);
        }
        Ok(Self { provider: provider.build(), processor, _runtime: runtime })
    }

    pub(crate) fn tracer(&self) -> SdkTracer {
        self.provider.tracer("example.runtime")
    }

    /// Writes what is left, and fails where a span was lost.
    pub(crate) fn finish(self) -> Outcome {
        self.provider.shutdown()?;
        match self.processor.dropped() + self.processor.rejected() {
            0 => Ok(()),
            n => Err(format!("{n} spans were lost").into()),
        }
    }
}

/// One answer of the model.
#[derive(Debug, Clone, Default)]
pub(crate) struct Turn {
    pub(crate) text: Option<String>,
    /// Tool, call id, arguments.
    pub(crate) calls: Vec<(String, String, Value)>,
}

/// A text without calls: the final answer.
pub(crate) fn says(text: &str) -> Turn {
    Turn { text: Some(text.to_owned()), calls: Vec::new() }
}

/// Calls without a text.
pub(crate) fn calls(list: &[(&str, &str, Value)]) -> Turn {
    let calls = list.iter().map(|(t, id, a)| ((*t).to_owned(), (*id).to_owned(), a.clone())).collect();
    Turn { text: None, calls }
}

/// What a tool does: its result, or its error.
pub(crate) type Tools = fn(&str, &Value) -> Result<Value, String>;

/// One activation of an agent, from the moment it gets control.
pub(crate) struct Agent {
    tracer: SdkTracer,
    context: Context,
    name: &'static str,
    instructions: &'static str,
    /// What its next model call reads.
    pub(crate) history: History,
}

fn text(key: &'static str, value: impl Into<opentelemetry::StringValue>) -> KeyValue {
    KeyValue::new(key, value.into())
}

impl Agent {
    /// Starts its span. `received`: what the tracing layer says that it got, on the agent's first span.
    pub(crate) fn start(
        tracer: &SdkTracer,
        parent: &Context,
        name: &'static str,
        instructions: &'static str,
        history: History,
        received: Vec<KeyValue>,
    ) -> Self {
        let mut span = tracer.start_with_context(format!("invoke_agent {name}"), parent);
        span.set_attributes([text("gen_ai.operation.name", "invoke_agent"), text("gen_ai.agent.name", name)]);
        span.set_attributes(received);
        Self { tracer: tracer.clone(), context: parent.with_span(span), name, instructions, history }
    }

    /// The context of its span.
    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    /// Lets the model answer and runs the tools it calls, until it says something final or hands over; that turn is given
    /// back.
    pub(crate) fn run(&mut self, script: &mut VecDeque<Turn>, tools: Tools) -> Result<Turn, Box<dyn Error>> {
        loop {
            let turn = script.pop_front().ok_or("the script is at its end")?;
            self.model_call(&turn);
            let hands_over = turn.calls.iter().any(|(tool, ..)| transfer_name(tool).is_some());
            if turn.calls.is_empty() || hands_over {
                return Ok(turn);
            }
            for (tool, id, args) in turn.calls {
                self.tool_call(&tool, &id, &args, tools);
            }
        }
    }

    /// The answer of a transfer that returns, as the tool's result.
    #[allow(dead_code)] // Not every example has one.
    pub(crate) fn answered(&mut self, id: &str, answer: &str) {
        self.said(Speaker::Tool, vec![result(id, json!(answer), false)]);
    }

    fn said(&mut self, speaker: Speaker, parts: Vec<Part>) {
        self.history.messages.push(Message { speaker, author: None, parts });
    }

    fn model_call(&mut self, turn: &Turn) {
        let input = self.history.to_genai().to_string();
        let mut parts: Vec<Part> = turn.text.iter().cloned().map(Part::Text).collect();
        parts.extend(turn.calls.iter().map(|(name, id, args)| Part::Call {
            name: name.clone(),
            id: Some(id.clone()),
            args: Some(args.clone()),
        }));
        let before = self.history.messages.len();
        self.said(Speaker::Assistant, parts);
        let finish = if turn.calls.is_empty() { "stop" } else { "tool_calls" };
        let output = to_genai(&self.history.messages[before..]).to_string();
        let instructions = json!([{"type": "text", "content": self.instructions}]).to_string();
        let mut span = self
            .tracer
            .span_builder("chat scripted")
            .with_kind(SpanKind::Client)
            .start_with_context(&self.tracer, &self.context);
        span.set_attributes([
            text("gen_ai.operation.name", "chat"),
            text("gen_ai.request.model", "scripted"),
            text("gen_ai.agent.name", self.name),
            text("gen_ai.system_instructions", instructions),
            text("gen_ai.input.messages", input),
            text("gen_ai.output.messages", output),
            KeyValue::new(
                "gen_ai.response.finish_reasons",
                opentelemetry::Value::Array(vec![opentelemetry::StringValue::from(finish)].into()),
            ),
        ]);
        span.end();
    }

    fn tool_call(&mut self, tool: &str, id: &str, args: &Value, tools: Tools) {
        let mut span = self.tracer.start_with_context(format!("execute_tool {tool}"), &self.context);
        let outcome = tools(tool, args);
        let (content, failed) = match outcome {
            Ok(v) => (v, false),
            Err(why) => (json!({ "error": why }), true),
        };
        span.set_attributes([
            text("gen_ai.operation.name", "execute_tool"),
            text("gen_ai.tool.name", tool.to_owned()),
            text("gen_ai.tool.call.id", id.to_owned()),
            text("gen_ai.agent.name", self.name),
            text("gen_ai.tool.call.arguments", args.to_string()),
            text("gen_ai.tool.call.result", content.to_string()),
        ]);
        if failed {
            span.set_status(Status::error("the tool failed"));
        }
        span.end();
        self.said(Speaker::Tool, vec![result(id, json!(content.to_string()), failed)]);
    }
}

fn result(id: &str, content: Value, failed: bool) -> Part {
    Part::Result { name: None, id: Some(id.to_owned()), content, error: failed.then_some(true) }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.context.span().end();
    }
}
