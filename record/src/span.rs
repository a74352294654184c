//! The row that every span and every log record with content becomes.
//!
//! A dialect fills it from one span alone. Text is kept only where the content mode allows; everything that
//! measures need is in names, digests, counts and fingerprints.

use std::sync::Arc;

use crate::constraint::Constraint;
use crate::prints::Prints;

/// What stands in kept text in place of a credential or of what a configured pattern matched.
pub const REDACTED: &str = "[redacted]";

/// Where a row comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Record {
    /// A span.
    #[default]
    Span,
    /// A log record that belongs to the span of the same ids.
    Log,
}

/// What a span is, in the words of this project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Role {
    /// An activation of an agent.
    Agent,
    /// A container: a workflow, a graph, a crew, a trace root.
    Workflow,
    /// One call of a model.
    Inference,
    /// One call of a tool, transfer tools included.
    Tool,
    /// A span that stands for a transfer and is no tool call.
    Handoff,
    /// A step of a framework: node, turn, middleware, chain.
    Step,
    /// The definition of an agent (not a run).
    Definition,
    /// Anything else; kept for the tree.
    #[default]
    Other,
}

impl Role {
    /// The stored name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Workflow => "workflow",
            Self::Inference => "inference",
            Self::Tool => "tool",
            Self::Handoff => "handoff",
            Self::Step => "step",
            Self::Definition => "definition",
            Self::Other => "other",
        }
    }

    /// The role of a stored name; what is not known is [`Role::Other`].
    pub fn from_name(s: &str) -> Self {
        match s {
            "agent" => Self::Agent,
            "workflow" => Self::Workflow,
            "inference" => Self::Inference,
            "tool" => Self::Tool,
            "handoff" => Self::Handoff,
            "step" => Self::Step,
            "definition" => Self::Definition,
            _ => Self::Other,
        }
    }
}

/// The span's status as OTLP defines it. What is out of range is unset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Status {
    /// Not set.
    #[default]
    Unset,
    /// Declared good.
    Ok,
    /// Error.
    Error,
}

/// Exceptions that are control flow and no failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Control {
    /// None.
    #[default]
    None,
    /// LangGraph's `ParentCommand`: a transfer under way.
    Transfer,
    /// LangGraph's `GraphInterrupt`: a pause for a person.
    Pause,
}

/// What the captured messages lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct View {
    /// The convention drops tool items or instructions.
    pub lossy: bool,
    /// Something was cut off, by a length or by an attribute limit.
    pub cut: bool,
    /// Something was masked by the sender.
    pub masked: bool,
    /// A server-managed conversation hides earlier items.
    pub hidden: bool,
}

/// The kind of an item (METRICS.md section 1, item). Instructions are no item, but stand in views.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ItemKind {
    /// One text.
    #[default]
    Text,
    /// One tool call.
    Call,
    /// One tool result.
    Result,
    /// System instructions.
    Instructions,
}

impl ItemKind {
    /// The stored name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Call => "tool_call",
            Self::Result => "tool_result",
            Self::Instructions => "instructions",
        }
    }

    /// The kind of a stored name.
    pub fn from_name(s: &str) -> Self {
        match s {
            "tool_call" => Self::Call,
            "tool_result" => Self::Result,
            "instructions" => Self::Instructions,
            _ => Self::Text,
        }
    }
}

/// Who says an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Speaker {
    /// A person, or what the framework passes off as one.
    #[default]
    User,
    /// A model.
    Assistant,
    /// System or developer.
    System,
    /// A tool.
    Tool,
}

impl Speaker {
    /// The stored name.
    pub fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::System => "system",
            Self::Tool => "tool",
        }
    }

    /// The speaker of a role name in any convention.
    pub fn from_name(s: &str) -> Self {
        match s {
            // As they are stored, and as most conventions have them.
            "user" => return Self::User,
            "assistant" => return Self::Assistant,
            "system" => return Self::System,
            "tool" => return Self::Tool,
            _ => {}
        }
        match s.to_ascii_lowercase().as_str() {
            "assistant" | "ai" | "model" | "aimessage" | "aimessagechunk" => Self::Assistant,
            "system" | "developer" | "systemmessage" => Self::System,
            "tool" | "function" | "toolmessage" | "functionmessage" => Self::Tool,
            _ => Self::User,
        }
    }
}

/// How completely the arguments of a call are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Args {
    /// Not captured.
    #[default]
    Absent,
    /// The whole object.
    Whole,
    /// The value of the only argument, without its name.
    Bare,
    /// Cut off.
    Cut,
    /// Masked.
    Masked,
}

impl Args {
    /// The stored name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Whole => "whole",
            Self::Bare => "bare",
            Self::Cut => "cut",
            Self::Masked => "masked",
        }
    }

    /// The state of a stored name.
    pub fn from_name(s: &str) -> Self {
        match s {
            "whole" => Self::Whole,
            "bare" => Self::Bare,
            "cut" => Self::Cut,
            "masked" => Self::Masked,
            _ => Self::Absent,
        }
    }
}

/// One entry of a message list, or the call and the result of a tool span.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Item {
    /// What it is.
    pub kind: ItemKind,
    /// Who says it.
    pub speaker: Speaker,
    /// The tool of a call or result, or the author of a text where one is named.
    pub name: Option<String>,
    /// Joins a call with its result.
    pub call_id: Option<String>,
    /// Two items are equal when this is (white space folded; calls: tool and canonical arguments).
    /// `None` where the content was masked.
    pub hash: Option<i64>,
    /// Tokens under the configured tokenizer.
    pub tokens: Option<i32>,
    /// The content was blanked in place (`[cleared]`).
    pub blanked: bool,
    /// The item re-tells a transcript.
    pub retold: bool,
    /// The text asks something.
    pub asks: bool,
    /// The item is cut off.
    pub cut: bool,
    /// A result's own flag: error or not. `None`: no flag.
    pub error: Option<bool>,
    /// State of a call's arguments.
    pub args: Args,
    /// SHA-256 of a call's canonical arguments (hex), where whole or bare.
    pub args_digest: Option<String>,
    /// Hash of the value of a call's only argument, for joining with a bare one.
    pub sole: Option<i64>,
    /// Fingerprints; shared, since histories repeat items.
    pub prints: Arc<Prints>,
    /// The content, where the content mode keeps it.
    pub text: Option<Arc<str>>,
}

/// What a tool call, a state update or a contract attribute says as a payload.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PayloadRow {
    /// Where it stands.
    pub source: Source,
    /// Position in the list that `source` names.
    pub pos: i32,
    /// The call it belongs to.
    pub call_id: Option<String>,
    /// False where it was cut off or masked.
    pub complete: bool,
    /// True where nothing was put in.
    pub empty: bool,
    /// An object with contract fields was found.
    pub structured: bool,
    /// Free text was found.
    pub narrative: bool,
    /// Fields present (`contract::Field::bit`).
    pub fields: u32,
    /// Aliases used, `key>field`.
    pub aliases: Vec<String>,
    /// Targets that routing arguments name.
    pub targets: Vec<String>,
    /// Constraints stated.
    pub constraints: Vec<ConstraintRow>,
    /// References to artifacts.
    pub artifacts: Vec<String>,
    /// Hash of the stated intent.
    pub goal: Option<i64>,
    /// Ids of catalogue constraints whose patterns it matches.
    pub policies: Vec<String>,
    /// Hashes of the names in completed steps ([`crate::prints::PrintKey::ident`]).
    pub steps: Vec<u64>,
    /// Tokens of the payload without routing.
    pub tokens: Option<i32>,
    /// Hashes of the text arguments, for finding them again as a message.
    pub texts: Vec<i64>,
    /// Fingerprints of the payload.
    pub prints: Arc<Prints>,
    /// The payload, where the content mode keeps it.
    pub text: Option<Arc<str>>,
}

/// A constraint as it is stored: with the hashes that find its text in a view.
#[derive(Debug, Clone, PartialEq)]
pub struct ConstraintRow {
    /// The constraint; its text only where content is kept.
    pub constraint: Constraint,
    /// Shingles of its text.
    pub shingles: Vec<u32>,
}

/// Where a payload was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Source {
    /// A call in the output messages, or the tool span's own call.
    #[default]
    Output,
    /// A call in the input messages.
    Input,
    /// A `Command.update` or another state update.
    Update,
    /// `baton.contract`, or other attributes made for it.
    Contract,
}

impl Source {
    /// The stored name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Output => "output",
            Self::Input => "input",
            Self::Update => "update",
            Self::Contract => "contract",
        }
    }

    /// The source of a stored name.
    pub fn from_name(s: &str) -> Self {
        match s {
            "input" => Self::Input,
            "update" => Self::Update,
            "contract" => Self::Contract,
            _ => Self::Output,
        }
    }
}

/// What a span says about a transfer, beyond the arguments of its call.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Handoff {
    /// How it says so.
    pub signal: Signal,
    /// Sender.
    pub from: Option<String>,
    /// Receivers; more than one for a fan-out.
    pub to: Vec<String>,
    /// `pass_control`, `return_to_caller`, `hand_back`.
    pub mode: Option<String>,
    /// Why.
    pub reason: Option<String>,
    /// Names that were asked for in the same turn (SDKs that report several handoffs at once).
    pub requested: Vec<String>,
    /// Tokens of the payload, as the sender counted them.
    pub payload_tokens: Option<i64>,
    /// Items the sender's context held.
    pub items_before: Option<i64>,
    /// Items the receiver got.
    pub items_after: Option<i64>,
    /// Tokens the sender's context held.
    pub tokens_before: Option<i64>,
    /// Tokens the receiver got.
    pub tokens_after: Option<i64>,
    /// Items the filter removed.
    pub filtered: Option<i64>,
    /// Hash of the active constraint set.
    pub constraints_hash: Option<String>,
    /// Ids of the active constraints.
    pub constraint_ids: Vec<String>,
    /// Hashes of the active constraints.
    pub constraint_hashes: Vec<String>,
    /// Contract fields present (`contract::Field::bit`).
    pub fields: Option<u32>,
    /// References to artifacts.
    pub artifacts: Vec<String>,
    /// Ids of the constraints in durable state.
    pub state_constraint_ids: Vec<String>,
}

/// How strongly a span speaks of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Signal {
    /// Attributes or a span made for it.
    #[default]
    Explicit,
    /// A `Command` with `goto` into another graph, or handoff metadata.
    Command,
    /// A `goto` inside a graph: a transfer only where the target is an agent.
    Goto,
    /// The receiver's side: what it got.
    Received,
}

impl Signal {
    /// The stored name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Explicit => "explicit",
            Self::Command => "command",
            Self::Goto => "goto",
            Self::Received => "received",
        }
    }

    /// The signal of a stored name.
    pub fn from_name(s: &str) -> Self {
        match s {
            "command" => Self::Command,
            "goto" => Self::Goto,
            "received" => Self::Received,
            _ => Self::Explicit,
        }
    }
}

/// A judgement about a span (`gen_ai.evaluation.result`).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Evaluation {
    /// `gen_ai.evaluation.name`.
    pub name: String,
    /// `gen_ai.evaluation.score.value`.
    pub score: Option<f64>,
    /// `gen_ai.evaluation.score.label`.
    pub label: Option<String>,
}

/// One row of `spans/`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Span {
    /// 32 hex digits, lower case.
    pub trace_id: String,
    /// 16 hex digits, lower case.
    pub span_id: String,
    /// 16 hex digits, or none for a root.
    pub parent_id: Option<String>,
    /// The parent is in another process, by the span's flags.
    pub remote_parent: bool,
    /// Span or log record.
    pub record: Record,
    /// Nanoseconds since 1970, UTC. `None`: not given or out of range.
    pub start: Option<i64>,
    /// Likewise.
    pub end: Option<i64>,
    /// `service.name`.
    pub service: Option<String>,
    /// Instrumentation scope.
    pub scope: String,
    /// The dialect that read it.
    pub dialect: String,
    /// The span's name.
    pub name: String,
    /// OTLP span kind: 0 to 5.
    pub otel_kind: i32,
    /// Status.
    pub status: Status,
    /// `error.type` or the exception's class.
    pub error: Option<String>,
    /// Control flow that looks like an error.
    pub control: Control,
    /// Attributes the sender dropped.
    pub dropped: i32,
    /// What it is.
    pub role: Role,
    /// The agent that runs it, by its own word.
    pub agent: Option<String>,
    /// An id of the agent's.
    pub agent_id: Option<String>,
    /// The graph node it is, or runs in.
    pub node: Option<String>,
    /// The agent that ran before, by the word of this span.
    pub parent_agent: Option<String>,
    /// Conversation, session or thread.
    pub conversation_id: Option<String>,
    /// `baton.task.id`.
    pub task_id: Option<String>,
    /// The model.
    pub model: Option<String>,
    /// The provider's id of the answer.
    pub response_id: Option<String>,
    /// The answer this call builds on.
    pub previous_response_id: Option<String>,
    /// Input tokens, cached ones included.
    pub input_tokens: Option<i64>,
    /// Output tokens.
    pub output_tokens: Option<i64>,
    /// Why the model stopped: `stop`, `tool_calls`, `length`, …
    pub finish: Option<String>,
    /// The tool of a tool span.
    pub tool: Option<String>,
    /// The call of a tool span.
    pub call_id: Option<String>,
    /// What the captured messages lack.
    pub view: View,
    /// Messages in, or the call of a tool span. `None`: not captured.
    pub input: Option<Vec<Item>>,
    /// Messages out, or the result of a tool span. `None`: not captured.
    pub output: Option<Vec<Item>>,
    /// Payloads found.
    pub payloads: Vec<PayloadRow>,
    /// What it says about a transfer.
    pub handoff: Option<Handoff>,
    /// Ids of catalogue constraints whose patterns the input matches.
    pub view_policies: Vec<String>,
    /// Judgements about it.
    pub evaluations: Vec<Evaluation>,
}
