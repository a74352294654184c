//! Telling of a handoff: one span that says what the transfer carried.
//!
//! A handoff has three channels that stay apart: **state** (durable facts of the application), **payload** (what is said for this
//! transfer, best a [`Contract`]) and **history** (the transcript that the receiver gets). [`Handoff`] takes each by itself, and
//! starts a span that every OpenTelemetry back end can read; `record/ATTRIBUTES.md` lists what stands on it.
//!
//! ```
//! use baton_collector::handoff::filter::Filter;
//! use baton_collector::handoff::history::History;
//! use baton_collector::handoff::{Handoff, received};
//! use baton_record::constraint::{Constraint, ConstraintSet};
//! use baton_record::contract::Contract;
//! use opentelemetry::trace::{Span, Tracer, TracerProvider};
//! use serde_json::json;
//!
//! # let provider = opentelemetry_sdk::trace::SdkTracerProvider::builder().build();
//! let tracer = provider.tracer("support");
//!
//! // State: what holds whoever is at work.
//! let state: ConstraintSet =
//!     [Constraint::hard("refund-window-30d", "Refund only within 30 days of capture")].into_iter().collect();
//! // Payload: what this transfer says.
//! let contract = Contract::builder()
//!     .intent("Refund order 4711")
//!     .constraints(state.iter().cloned())
//!     .status("Identity verified")
//!     .evidence("Captured 12 days ago")
//!     .next_action("Issue the refund")
//!     .stop_condition("Refunded or declined")
//!     .build();
//! // History: what the sender saw, and what the receiver will see.
//! let before = History::from_value(&json!([{"role": "user", "content": "Refund 4711, please"}]));
//! let after = before.filtered(&[Filter::RemoveTools]);
//!
//! let handoff = Handoff::new("Triage", "Refunds Specialist")
//!     .reason("The customer asks for a refund")
//!     .state(&state)
//!     .contract(&contract)
//!     .history(&before, &after.history)
//!     .start(&tracer);
//!
//! // The receiver, here in the same process, says what it got on its first span.
//! let mut run = tracer.start_with_context("invoke_agent Refunds Specialist", handoff.context());
//! run.set_attributes(received(handoff.context(), &contract.constraint_set()));
//! run.end();
//! handoff.accepted();
//! ```
//!
//! Another process gets the trace context and the ids as W3C headers from [`ActiveHandoff::inject`], and takes them
//! up with [`extract`]. With spans of the `tracing` crate see [`Handoff::attributes`].
//!
//! Nothing here fails or panics because of what it is told: what cannot be measured is left out.

pub mod filter;
mod held;
pub mod history;
pub mod leaks;

use std::borrow::Cow;

use baton_record::attr;
use baton_record::canonical;
use baton_record::config::Tokenizer;
use baton_record::constraint::{Constraint, ConstraintSet};
use baton_record::contract::{self, Aliases, Contract, Field};
use baton_record::names::slug;
use opentelemetry::baggage::{BaggageExt, BaggageMetadata, KeyValueMetadata};
use opentelemetry::propagation::{Extractor, Injector, TextMapPropagator};
use opentelemetry::trace::{SpanKind, Status, TraceContextExt, Tracer};
use opentelemetry::{Array, Context, KeyValue, StringValue, Value as Attribute};
use opentelemetry_sdk::propagation::{BaggagePropagator, TraceContextPropagator};
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator};
use serde_json::{Value, json};

pub use self::held::held_in;
use self::history::{History, HistoryCounts, tokens_of};

/// Whether the sender waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// The receiver goes on, the sender is done.
    #[default]
    PassControl,
    /// A delegation: the sender waits.
    ReturnToCaller,
    /// Control goes back to who delegated or transferred before.
    HandBack,
}

impl Mode {
    /// The value of `baton.handoff.mode`.
    pub fn name(self) -> &'static str {
        match self {
            Self::PassControl => attr::BATON_HANDOFF_MODE_PASS_CONTROL,
            Self::ReturnToCaller => attr::BATON_HANDOFF_MODE_RETURN_TO_CALLER,
            Self::HandBack => attr::BATON_HANDOFF_MODE_HAND_BACK,
        }
    }

    /// The value of `gen_ai.transfer.mode`, which knows no hand back.
    fn transfer(self) -> &'static str {
        match self {
            Self::ReturnToCaller => attr::BATON_HANDOFF_MODE_RETURN_TO_CALLER,
            Self::PassControl | Self::HandBack => attr::BATON_HANDOFF_MODE_PASS_CONTROL,
        }
    }

    /// The name of a transfer tool where none is given.
    fn tool(self, to: &str) -> String {
        let verb = match self {
            Self::PassControl => "transfer_to",
            Self::ReturnToCaller => "delegate_to",
            Self::HandBack => "transfer_back_to",
        };
        format!("{verb}_{}", slug(to))
    }
}

/// What became of a handoff, where its sender knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The receiver ran.
    Accepted,
    /// Asked for and not taken, and why.
    Refused(String),
    /// The transfer itself errored.
    Failed {
        /// Class of the error, for `error.type`.
        error: String,
        /// What happened.
        message: String,
    },
}

impl Outcome {
    /// What stands on the span.
    pub fn attributes(&self) -> Vec<KeyValue> {
        let (name, error) = match self {
            Self::Accepted => (attr::BATON_HANDOFF_OUTCOME_ACCEPTED, None),
            Self::Refused(_) => {
                (attr::BATON_HANDOFF_OUTCOME_REFUSED, Some(attr::BATON_HANDOFF_OUTCOME_REFUSED.to_owned()))
            }
            Self::Failed { error, .. } => (attr::BATON_HANDOFF_OUTCOME_FAILED, Some(error.clone())),
        };
        let mut out = vec![KeyValue::new(attr::BATON_HANDOFF_OUTCOME, name)];
        out.extend(error.map(|e| KeyValue::new(attr::ERROR_TYPE, e)));
        out
    }

    /// The status of the span.
    pub fn status(&self) -> Status {
        match self {
            Self::Accepted => Status::Unset,
            Self::Refused(why) => Status::error(why.clone()),
            Self::Failed { message, .. } => Status::error(message.clone()),
        }
    }
}

/// A handoff that is about to happen. Only sender and receiver are needed; whatever else is known is told. One value is one
/// transfer: a copy has the same id.
#[derive(Debug, Clone)]
pub struct Handoff<'a> {
    from: Cow<'a, str>,
    to: Cow<'a, str>,
    id: String,
    mode: Mode,
    task_id: Option<String>,
    conversation_id: Option<String>,
    previous_response_id: Option<String>,
    reason: Option<String>,
    priority: Option<String>,
    tool: Option<String>,
    call_id: Option<String>,
    state: Option<&'a ConstraintSet>,
    payload: Option<Payload<'a>>,
    payload_tokens: Option<i64>,
    histories: Option<(&'a History, &'a History)>,
    counts: HistoryCounts,
    tokenizer: Tokenizer,
    content: bool,
}

#[derive(Debug, Clone, Copy)]
enum Payload<'a> {
    Contract(&'a Contract),
    Other(&'a Value),
}

impl<'a> Handoff<'a> {
    /// A handoff between two agents, by their names. Control is passed unless [`Handoff::mode`] says otherwise.
    pub fn new(from: impl Into<Cow<'a, str>>, to: impl Into<Cow<'a, str>>) -> Self {
        Self {
            from: from.into(),
            to: to.into(),
            id: RandomIdGenerator::default().new_trace_id().to_string(),
            mode: Mode::default(),
            task_id: None,
            conversation_id: None,
            previous_response_id: None,
            reason: None,
            priority: None,
            tool: None,
            call_id: None,
            state: None,
            payload: None,
            payload_tokens: None,
            histories: None,
            counts: HistoryCounts::default(),
            tokenizer: Tokenizer::default(),
            content: false,
        }
    }

    /// Whether the sender waits, passes control, or gives it back.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// The id of the transfer; made up by default, 32 hex digits.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = id.into();
        self
    }

    /// The task. By default that of the context's baggage, so it is told once and travels on.
    pub fn task_id(mut self, id: impl Into<String>) -> Self {
        self.task_id = Some(id.into());
        self
    }

    /// The conversation, where the application has one.
    pub fn conversation_id(mut self, id: impl Into<String>) -> Self {
        self.conversation_id = Some(id.into());
        self
    }

    /// The answer that the receiver's call builds on: the server keeps the history, so what a filter removes is not observable.
    pub fn previous_response_id(mut self, id: impl Into<String>) -> Self {
        self.previous_response_id = Some(id.into());
        self
    }

    /// Why the work is handed over.
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }

    /// How urgent it is, in the application's own words.
    pub fn priority(mut self, priority: impl Into<String>) -> Self {
        self.priority = Some(priority.into());
        self
    }

    /// The tool that transfers and, where a model called it, the id of the call. By default `transfer_to_<receiver>`.
    pub fn tool(mut self, name: impl Into<String>, call_id: Option<&str>) -> Self {
        self.tool = Some(name.into());
        self.call_id = call_id.map(str::to_owned);
        self
    }

    /// **State**: the constraints that the application's durable state holds.
    pub fn state(mut self, constraints: &'a ConstraintSet) -> Self {
        self.state = Some(constraints);
        self
    }

    /// **Payload**: a contract.
    pub fn contract(mut self, contract: &'a Contract) -> Self {
        self.payload = Some(Payload::Contract(contract));
        self
    }

    /// **Payload**: anything else, as the arguments of a transfer tool or as a text. Contract fields are found in it where it has
    /// some.
    pub fn payload(mut self, payload: &'a Value) -> Self {
        self.payload = Some(Payload::Other(payload));
        self
    }

    /// Tokens of the payload, where the application counted them itself.
    pub fn payload_tokens(mut self, tokens: i64) -> Self {
        self.payload_tokens = Some(tokens);
        self
    }

    /// **History**, measured: what the sender's last model call read and answered, and what the receiver's first one will read.
    pub fn history(mut self, before: &'a History, after: &'a History) -> Self {
        self.histories = Some((before, after));
        self
    }

    /// **History**, by numbers of the application's own. They go before measured ones.
    pub fn history_counts(mut self, counts: HistoryCounts) -> Self {
        self.counts = counts;
        self
    }

    /// Who counts tokens; `o200k_base` by default. The first count in a process loads the vocabulary, which takes some tens of
    /// milliseconds.
    pub fn tokenizer(mut self, tokenizer: Tokenizer) -> Self {
        self.tokenizer = tokenizer;
        self
    }

    /// Whether the payload itself is written. By default it is not, and everything is measured from ids, hashes and counts.
    pub fn content(mut self, write: bool) -> Self {
        self.content = write;
        self
    }

    /// The name of the span.
    pub fn name(&self) -> String {
        format!("execute_tool {}", self.tool_name())
    }

    fn tool_name(&self) -> String {
        self.tool.clone().unwrap_or_else(|| self.mode.tool(&self.to))
    }

    /// Everything that stands on the span. [`Handoff::start`] does this by itself; here is how a span of the `tracing` crate is made
    /// one of a handoff, with the layer of `tracing-opentelemetry`:
    ///
    /// ```
    /// # use baton_collector::handoff::Handoff;
    /// # use opentelemetry::KeyValue;
    /// use tracing_opentelemetry::OpenTelemetrySpanExt;
    ///
    /// # let mut headers = std::collections::HashMap::<String, String>::new();
    /// let handoff = Handoff::new("Triage", "Refunds Specialist");
    /// let span = tracing::info_span!("handoff", otel.name = handoff.name());
    /// for KeyValue { key, value, .. } in handoff.attributes() {
    ///     span.set_attribute(key, value);
    /// }
    /// handoff.inject(&span.context(), &mut headers);
    /// ```
    pub fn attributes(&self) -> Vec<KeyValue> {
        let mut a = self.names();
        self.measure(&mut a);
        a.0
    }

    /// What a sampler may want to know: who, to whom, how.
    fn names(&self) -> Attributes {
        let mut a = Attributes(Vec::with_capacity(32));
        a.text(attr::GEN_AI_OPERATION_NAME, "execute_tool");
        a.text(attr::GEN_AI_TOOL_NAME, self.tool_name());
        a.text(attr::GEN_AI_AGENT_NAME, self.from.clone().into_owned());
        a.text(attr::GEN_AI_TRANSFER_MODE, self.mode.transfer());
        a.text(attr::GEN_AI_TRANSFER_TARGET_NAME, self.to.clone().into_owned());
        a.text(attr::BATON_HANDOFF_ID, self.id.clone());
        a.text(attr::BATON_HANDOFF_FROM_AGENT, self.from.clone().into_owned());
        a.text(attr::BATON_HANDOFF_TO_AGENT, self.to.clone().into_owned());
        a.text(attr::BATON_HANDOFF_MODE, self.mode.name());
        a.text_if(attr::GEN_AI_TOOL_CALL_ID, &self.call_id);
        a.text_if(attr::GEN_AI_CONVERSATION_ID, &self.conversation_id);
        a.text_if(attr::GEN_AI_REQUEST_PREVIOUS_RESPONSE_ID, &self.previous_response_id);
        a.text_if(attr::BATON_TASK_ID, &self.task());
        a.text_if(attr::BATON_HANDOFF_REASON, &self.reason);
        a.text_if(attr::BATON_HANDOFF_PRIORITY, &self.priority);
        a
    }

    /// What has to be counted and hashed.
    fn measure(&self, a: &mut Attributes) {
        if let Some(state) = self.state {
            a.texts(attr::BATON_HANDOFF_STATE_CONSTRAINTS_IDS, state.ids());
        }
        let mut counted = false;
        if let Some(payload) = self.payload {
            counted |= self.payload_attributes(payload, a);
        }
        if self.payload.is_none() {
            a.int_if(attr::BATON_HANDOFF_PAYLOAD_TOKENS, self.payload_tokens);
        }
        let measured = self.histories.map(|(b, f)| HistoryCounts::measured(b, f, self.tokenizer));
        counted |= measured.is_some();
        let of = |own: Option<i64>, m: fn(HistoryCounts) -> Option<i64>| own.or_else(|| measured.and_then(m));
        let c = self.counts;
        a.int_if(attr::BATON_HANDOFF_HISTORY_ITEMS_BEFORE, of(c.items_before, |m| m.items_before));
        a.int_if(attr::BATON_HANDOFF_HISTORY_ITEMS_AFTER, of(c.items_after, |m| m.items_after));
        a.int_if(attr::BATON_HANDOFF_HISTORY_FILTERED_COUNT, of(c.filtered, |m| m.filtered));
        a.int_if(attr::BATON_HANDOFF_HISTORY_TOKENS_BEFORE, of(c.tokens_before, |m| m.tokens_before));
        a.int_if(attr::BATON_HANDOFF_HISTORY_TOKENS_AFTER, of(c.tokens_after, |m| m.tokens_after));
        if counted {
            a.text(attr::BATON_HANDOFF_TOKENIZER, self.tokenizer.name());
        }
    }

    /// What the payload says; true where its tokens were counted here.
    fn payload_attributes(&self, payload: Payload<'_>, a: &mut Attributes) -> bool {
        let value = match payload {
            Payload::Contract(c) => c.to_value(),
            // An attribute that is always an object is read by one rule.
            Payload::Other(Value::String(text)) => json!({ "narrative": text }),
            Payload::Other(v) => v.clone(),
        };
        let read = contract::read(&value, &Aliases::default());
        // Routing arguments are no payload, so they are not in what was read.
        let text = canonical::to_string(&read.body);
        let (mut set, attempted) = match payload {
            Payload::Contract(c) => (c.constraint_set(), c.attempted_tool_names()),
            Payload::Other(_) => (read.constraints.iter().cloned().collect::<ConstraintSet>(), Vec::new()),
        };
        // A text carries a rule too, where it says it.
        for c in self.state.map(|state| held::held_in_text(state, &text)).unwrap_or_default() {
            if !set.iter().any(|m| m.id == c.id || m.hash == c.hash) {
                set.add(c);
            }
        }
        a.text(attr::BATON_HANDOFF_CONSTRAINTS_HASH, set.hash());
        a.texts(attr::BATON_HANDOFF_CONSTRAINTS_IDS, set.ids());
        a.texts(attr::BATON_HANDOFF_CONSTRAINTS_HASHES, set.hashes());
        let retired: Vec<&str> = set.retired().map(|c| c.id.as_str()).collect();
        if !retired.is_empty() {
            a.texts(attr::BATON_HANDOFF_CONSTRAINTS_RETIRED, retired);
        }
        // What is there and has no fields is free text.
        let fields = match read.fields {
            0 if !read.is_empty() => Field::Narrative.bit(),
            fields => fields,
        };
        a.texts(attr::BATON_HANDOFF_CONTRACT_FIELDS, contract::field_names(fields));
        if !read.artifacts.is_empty() {
            a.texts(attr::BATON_HANDOFF_ARTIFACTS, read.artifacts.iter().map(String::as_str));
        }
        if !attempted.is_empty() {
            a.texts(attr::BATON_HANDOFF_ATTEMPTED_TOOLS, attempted);
        }
        let counted = if self.payload_tokens.is_none() { tokens_of(&text, self.tokenizer) } else { None };
        a.int_if(attr::BATON_HANDOFF_PAYLOAD_TOKENS, self.payload_tokens.or(counted));
        if self.content {
            a.text(attr::BATON_HANDOFF_CONTRACT, text);
        }
        counted.is_some()
    }

    /// The task told here, or that of the current context's baggage.
    fn task(&self) -> Option<String> {
        self.task_id.clone().or_else(|| task_of(&Context::current()))
    }

    /// Starts the span, as a child of the current context's span.
    pub fn start<T>(&self, tracer: &T) -> ActiveHandoff
    where
        T: Tracer,
        T::Span: Send + Sync + 'static,
    {
        self.start_with_context(tracer, &Context::current())
    }

    /// The same as a child of the span of a given context, whose baggage goes on.
    pub fn start_with_context<T>(&self, tracer: &T, parent: &Context) -> ActiveHandoff
    where
        T: Tracer,
        T::Span: Send + Sync + 'static,
    {
        let task = self.task_id.clone().or_else(|| task_of(parent));
        let this = Self { task_id: task, ..self.clone() };
        let span =
            tracer.span_builder(this.name()).with_kind(SpanKind::Internal).with_attributes(this.attributes());
        let span = tracer.build_with_context(span, parent);
        ActiveHandoff { context: this.context(&parent.with_span(span)), id: this.id }
    }

    /// A context with the ids of this handoff in its baggage, for what happens under it.
    pub fn context(&self, of: &Context) -> Context {
        let task = self.task_id.clone().or_else(|| task_of(of));
        let ids = [(attr::BATON_TASK_ID, task), (attr::BATON_HANDOFF_ID, Some(self.id.clone()))];
        // Baggage has a limit, and what comes first is in it.
        let own = ids
            .into_iter()
            .filter_map(|(k, v)| Some(KeyValueMetadata::new(k, v?, BaggageMetadata::default())));
        let others = of
            .baggage()
            .iter()
            .filter(|(k, _)| !matches!(k.as_str(), attr::BATON_TASK_ID | attr::BATON_HANDOFF_ID))
            .map(|(k, (v, m))| KeyValueMetadata::new(k.clone(), v.clone(), m.clone()));
        of.with_baggage(own.chain(others).collect::<Vec<_>>())
    }

    /// Writes the context of a span of this handoff for another process: `traceparent`, `tracestate` and `baggage`.
    pub fn inject(&self, context: &Context, carrier: &mut dyn Injector) {
        inject(&self.context(context), carrier);
    }
}

fn task_of(context: &Context) -> Option<String> {
    context.baggage().get(attr::BATON_TASK_ID).map(|v| v.as_str().to_owned()).filter(|t| !t.is_empty())
}

/// Attributes being gathered.
struct Attributes(Vec<KeyValue>);

impl Attributes {
    fn text(&mut self, key: &'static str, value: impl Into<StringValue>) {
        self.0.push(KeyValue::new(key, value.into()));
    }

    fn text_if(&mut self, key: &'static str, value: &Option<String>) {
        if let Some(v) = value {
            self.text(key, v.clone());
        }
    }

    fn int_if(&mut self, key: &'static str, value: Option<i64>) {
        if let Some(v) = value {
            self.0.push(KeyValue::new(key, v));
        }
    }

    fn texts<'t>(&mut self, key: &'static str, values: impl IntoIterator<Item = &'t str>) {
        self.0.push(KeyValue::new(key, texts(values)));
    }
}

fn texts<'t>(values: impl IntoIterator<Item = &'t str>) -> Attribute {
    Attribute::Array(Array::String(values.into_iter().map(|v| StringValue::from(v.to_owned())).collect()))
}

/// A handoff whose span runs. The span ends with [`ActiveHandoff::accepted`], [`ActiveHandoff::refused`] or
/// [`ActiveHandoff::failed`]; where it is only dropped it ends without an outcome, which is then told by what follows.
#[derive(Debug)]
pub struct ActiveHandoff {
    context: Context,
    id: String,
}

impl ActiveHandoff {
    /// The id of the transfer.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The context of the span, with the ids in its baggage. What the receiver does in this process belongs under it.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Writes the context for another process: `traceparent`, `tracestate` and `baggage`.
    pub fn inject(&self, carrier: &mut dyn Injector) {
        inject(&self.context, carrier);
    }

    /// The receiver ran.
    pub fn accepted(self) {
        self.end(&Outcome::Accepted);
    }

    /// It was asked for and not taken.
    pub fn refused(self, why: impl Into<String>) {
        self.end(&Outcome::Refused(why.into()));
    }

    /// The transfer itself errored: `error` is a class such as `timeout` or the name of a type.
    pub fn failed(self, error: impl Into<String>, message: impl Into<String>) {
        self.end(&Outcome::Failed { error: error.into(), message: message.into() });
    }

    fn end(self, outcome: &Outcome) {
        let span = self.context.span();
        span.set_attributes(outcome.attributes());
        span.set_status(outcome.status());
        // The span itself ends when this is dropped.
    }
}

impl Drop for ActiveHandoff {
    fn drop(&mut self) {
        self.context.span().end();
    }
}

/// Writes a context as W3C headers: `traceparent`, `tracestate` and `baggage`.
pub fn inject(context: &Context, carrier: &mut dyn Injector) {
    TraceContextPropagator::new().inject_context(context, carrier);
    BaggagePropagator::new().inject_context(context, carrier);
}

/// The context that another process has written. Without headers, or with ones that cannot be read, it is empty, and a new trace
/// begins.
pub fn extract(carrier: &dyn Extractor) -> Context {
    let context = TraceContextPropagator::new().extract_with_context(&Context::new(), carrier);
    BaggagePropagator::new().extract_with_context(&context, carrier)
}

/// What the receiver's first span says of what it got: the constraints that its own view holds ([`held_in`] finds them), and the
/// task of the context's baggage.
///
/// They are attributes, so that any span takes them: one of the OpenTelemetry API, of `tracing`, or of another instrumentation.
pub fn received(context: &Context, constraints: &ConstraintSet) -> Vec<KeyValue> {
    let mut a = Attributes(Vec::with_capacity(3));
    a.text_if(attr::BATON_TASK_ID, &task_of(context));
    a.texts(attr::BATON_RECEIVED_CONSTRAINTS_IDS, constraints.active().map(|c: &Constraint| c.id.as_str()));
    a.text(attr::BATON_RECEIVED_CONSTRAINTS_HASH, constraints.hash());
    a.0
}
