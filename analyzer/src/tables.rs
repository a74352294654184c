//! The assembled tables: what happened, one row per task, run, model call, tool call, transfer.
//!
//! Every measure is SQL over these. Times are UTC with nanoseconds; durations are whole nanoseconds, so that sums are
//! exact in any order and any engine. A column that ends in `_unknown` holds the reason why the measure it belongs to
//! cannot be known, and is NULL where it is known.

use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, BooleanBuilder, Float64Builder, Int64Builder, ListBuilder, RecordBatch, StringViewBuilder,
    StructArray, TimestampNanosecondBuilder,
};
use datafusion::arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit};
use datafusion::arrow::error::ArrowError;

/// A column type: how it is stored and what a row gives for it.
pub trait Cell {
    /// What one row holds.
    type Row<'a>;
    /// Arrow type.
    fn data_type() -> DataType;
    /// Whether NULL may stand there.
    const NULLABLE: bool;
    /// An empty column.
    fn new() -> Self;
    /// Adds one value.
    fn push(&mut self, v: Self::Row<'_>);
    /// The column so far, which is then empty.
    fn finish(&mut self) -> ArrayRef;
}

macro_rules! cell {
    ($name:ident, $builder:ty, $row:ty, $nullable:expr, $type:expr, |$b:ident, $v:ident| $push:expr) => {
        /// Column type.
        pub struct $name($builder);
        impl Cell for $name {
            type Row<'a> = $row;
            const NULLABLE: bool = $nullable;
            fn data_type() -> DataType {
                $type
            }
            fn new() -> Self {
                Self(<$builder>::new())
            }
            fn push(&mut self, $v: Self::Row<'_>) {
                let $b = &mut self.0;
                $push
            }
            fn finish(&mut self) -> ArrayRef {
                Arc::new(self.0.finish())
            }
        }
    };
}

cell!(Text, StringViewBuilder, &'a str, false, DataType::Utf8View, |b, v| b.append_value(v));
cell!(TextOpt, StringViewBuilder, Option<&'a str>, true, DataType::Utf8View, |b, v| b.append_option(v));
cell!(Int, Int64Builder, i64, false, DataType::Int64, |b, v| b.append_value(v));
cell!(IntOpt, Int64Builder, Option<i64>, true, DataType::Int64, |b, v| b.append_option(v));
cell!(FloatOpt, Float64Builder, Option<f64>, true, DataType::Float64, |b, v| b.append_option(v));
cell!(Flag, BooleanBuilder, bool, false, DataType::Boolean, |b, v| b.append_value(v));
cell!(FlagOpt, BooleanBuilder, Option<bool>, true, DataType::Boolean, |b, v| b.append_option(v));

/// Column type: a point in time.
pub struct Time(TimestampNanosecondBuilder);

impl Cell for Time {
    type Row<'a> = Option<i64>;
    const NULLABLE: bool = true;
    fn data_type() -> DataType {
        DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()))
    }
    fn new() -> Self {
        Self(TimestampNanosecondBuilder::new().with_timezone("UTC"))
    }
    fn push(&mut self, v: Self::Row<'_>) {
        self.0.append_option(v);
    }
    fn finish(&mut self) -> ArrayRef {
        Arc::new(self.0.finish().with_timezone("UTC"))
    }
}

/// Column type: a list of texts.
pub struct Texts(ListBuilder<StringViewBuilder>);

impl Cell for Texts {
    type Row<'a> = &'a [&'a str];
    const NULLABLE: bool = false;
    fn data_type() -> DataType {
        DataType::List(Arc::new(Field::new("item", DataType::Utf8View, true)))
    }
    fn new() -> Self {
        Self(ListBuilder::new(StringViewBuilder::new()))
    }
    fn push(&mut self, v: Self::Row<'_>) {
        v.iter().for_each(|s| self.0.values().append_value(s));
        self.0.append(true);
    }
    fn finish(&mut self) -> ArrayRef {
        Arc::new(self.0.finish())
    }
}

/// A column's name and what it means.
pub struct ColumnDoc {
    /// Name.
    pub name: &'static str,
    /// Type in plain words.
    pub ty: String,
    /// Meaning.
    pub doc: &'static str,
}

macro_rules! table {
    ($(#[doc = $about:literal])* $table:ident $builder:ident $row:ident { $($field:ident : $cell:ident = $doc:literal),* $(,)? }) => {
        $(#[doc = $about])*
        pub struct $builder { len: usize, $($field: $cell),* }

        $(#[doc = $about])*
        pub struct $row<'a> { $(#[doc = $doc] pub $field: <$cell as Cell>::Row<'a>),* }

        impl $builder {
            /// The table's name.
            pub const NAME: &'static str = stringify!($table);

            pub(crate) fn new() -> Self {
                Self { len: 0, $($field: $cell::new()),* }
            }

            /// Adds a row.
            pub fn push(&mut self, row: $row<'_>) {
                self.len += 1;
                $(self.$field.push(row.$field);)*
            }

            /// Arrow fields.
            pub fn fields() -> Fields {
                Fields::from(vec![$(Field::new(stringify!($field), $cell::data_type(), $cell::NULLABLE)),*])
            }

            pub(crate) fn finish(&mut self) -> StructArray {
                self.len = 0;
                StructArray::new(Self::fields(), vec![$(self.$field.finish()),*], None)
            }

            /// What the columns mean.
            pub fn docs() -> Vec<ColumnDoc> {
                vec![$(ColumnDoc { name: stringify!($field), ty: plain_type(&$cell::data_type(), $cell::NULLABLE), doc: $doc }),*]
            }
        }
    };
}

fn plain_type(t: &DataType, nullable: bool) -> String {
    let name = match t {
        DataType::Utf8View => "text",
        DataType::Int64 => "bigint",
        DataType::Float64 => "double",
        DataType::Boolean => "boolean",
        DataType::Timestamp(..) => "timestamp (ns, UTC)",
        _ => "list of text",
    };
    if nullable { name.to_owned() } else { format!("{name}, not null") }
}

table! {
    /// One row per task (METRICS.md sections 1 and 3).
    tasks Tasks TaskRow {
        task_id: Text = "`baton.task.id`, else the conversation id, else the trace id",
        trace_ids: Texts = "traces of the task, by start",
        service: TextOpt = "service of the first span",
        agents: Texts = "agents that ran, by first start",
        start: Time = "first start of a span",
        end: Time = "last end of a span",
        completed: FlagOpt = "the task reached a final answer; NULL: the data does not show its last answer",
        partial: Flag = "the data holds only part of the task: it stays out of the rates",
        partial_reason: TextOpt = "why it is partial",
        bounces: IntOpt = "episodes in which control went back with the same goal; NULL: the agents are unknown",
        redone_steps: IntOpt = "steps declared complete and carried out again after the transfer; NULL: not to be known",
        rework_free: FlagOpt = "completed, no bounce, no redundant call, no redone step; NULL: one of these is unknown",
        input_tokens: IntOpt = "input tokens of all model calls, each once; NULL: no call says",
        output_tokens: IntOpt = "output tokens likewise",
        inferences: Int = "model calls, each once",
        duplicate_inferences: Int = "recordings of model calls that were recorded already",
        handoffs: Int = "transfers, of every outcome",
        tool_calls: Int = "tool calls",
        wasted_calls: IntOpt = "tool calls spent on redundant calls, retries and bounces; NULL: repeats are not to be known",
        wasted_tokens: IntOpt = "tokens of the model calls that asked for them, and of bounces",
        wasted_ns: IntOpt = "time of redundant calls, retries and bounces",
        last_activity: Time = "last start or end of a span of its task: evaluation windows are of this",
    }
}

table! {
    /// One row per activation of an agent.
    agent_runs AgentRuns AgentRunRow {
        run_id: Text = "id of the run",
        task_id: Text = "task",
        trace_id: Text = "trace of its first span",
        agent: TextOpt = "name; NULL: no span names it",
        parent_run_id: TextOpt = "the run it is nested in",
        handoff_id: TextOpt = "the transfer that started it; NULL: it was not transferred to",
        start: Time = "start",
        end: Time = "end",
        inferences: Int = "model calls of its own",
        tool_calls: Int = "tool calls of its own",
        last_activity: Time = "last start or end of a span of its task: evaluation windows are of this",
    }
}

table! {
    /// One row per model call.
    inferences Inferences InferenceRow {
        inference_id: Text = "id",
        task_id: Text = "task",
        run_id: TextOpt = "run",
        agent: TextOpt = "agent",
        trace_id: Text = "trace",
        span_id: Text = "span",
        model: TextOpt = "model",
        response_id: TextOpt = "the provider's id of the answer",
        start: Time = "start",
        end: Time = "end",
        input_tokens: IntOpt = "input tokens, cached ones included",
        output_tokens: IntOpt = "output tokens",
        finish: TextOpt = "why it stopped",
        recordings: Int = "how often the call was recorded",
        last_activity: Time = "last start or end of a span of its task: evaluation windows are of this",
    }
}

table! {
    /// One row per tool call; transfers and agents used as tools are none.
    tool_calls ToolCalls ToolCallRow {
        id: Text = "id",
        task_id: Text = "task",
        trace_id: Text = "trace",
        service: TextOpt = "service",
        agent: TextOpt = "agent that ran it",
        run_id: TextOpt = "run",
        tool: Text = "tool",
        call_id: TextOpt = "the model's id of the call",
        outcome: Text = "`ok`, `error` or `lost`",
        args_digest: TextOpt = "SHA-256 of the canonical arguments; NULL: not captured, cut off or masked",
        args: TextOpt = "canonical arguments; NULL: not captured, or content is not kept",
        start: Time = "start; NULL: only messages show the call",
        end: Time = "end",
        duration_ns: IntOpt = "end less start; NULL: unknown or negative",
        handoff_id: TextOpt = "the transfer under which it counts; NULL: under none",
        rated: Flag = "counts in rates: that transfer was accepted and the task is whole",
        repeats: TextOpt = "id of the earlier call it repeats",
        repeat_kind: TextOpt = "`redundant`, `known_failure` or `self`",
        prevented_by: Texts = "contract fields that would have prevented the repeat",
        cause: TextOpt = "who lost it: `state`, `payload`, `filter`, `model` or `unknown`; NULL: no repeat",
        last_activity: Time = "last start or end of a span of its task: evaluation windows are of this",
    }
}

table! {
    /// One row per transfer (METRICS.md sections 1 and 2).
    handoffs Handoffs HandoffRow {
        handoff_id: Text = "id",
        task_id: Text = "task",
        trace_id: Text = "trace of the transfer",
        span_id: Text = "span that shows it, or the receiver's first",
        seq: Int = "position among the task's transfers, by time",
        time: Time = "when",
        service: TextOpt = "service",
        from_agent: TextOpt = "sender; NULL: unnamed",
        to_agent: TextOpt = "receiver; NULL: unnamed or ambiguous",
        mode: Text = "`pass_control`, `return_to_caller` or `hand_back`",
        outcome: Text = "`accepted`, `refused`, `failed`, `pending` or `unknown`",
        detection: Text = "`explicit`, `tool` or `agent_change`",
        confidence: Text = "`certain`, `likely` or `ambiguous`",
        candidates: Texts = "possible receivers of an ambiguous transfer",
        reason: TextOpt = "reason, where stated",
        call_id: TextOpt = "the model's id of the transfer call",
        sender_run_id: TextOpt = "run of the sender",
        receiver_run_id: TextOpt = "run of the receiver",
        rated: Flag = "counts in rates: accepted, and the task is whole",
        payload_tokens: IntOpt = "tokens of the payload",
        payload_fields: Texts = "contract fields present in the payload",
        payload_aliases: Texts = "keys that filled a field under another name",
        payload_narrative: Flag = "the payload holds free text",
        required_present: IntOpt = "how many of the six required fields are present",
        payload_unknown: TextOpt = "why the payload is unknown",
        payload_text: TextOpt = "text of the payload; NULL: none, or content is not kept",
        sender_inference_id: TextOpt = "the sender's model call that asked for it",
        receiver_inference_id: TextOpt = "the receiver's first model call, whose input is its view",
        constraints_hash: TextOpt = "hash of the active constraint set: as sent, else computed; NULL: none active",
        retention_unknown: TextOpt = "why constraint_retention is unknown",
        retention_payload_unknown: TextOpt = "why constraint_retention_payload is unknown",
        items_before: IntOpt = "items of the sender's context",
        items_after: IntOpt = "items of the receiver's view",
        filtered_items: IntOpt = "items of before that are not in after",
        filtered_results: IntOpt = "tool results among them",
        added_items: IntOpt = "items of after that are not in before",
        duplicate_items: IntOpt = "items of after that equal an earlier one of after",
        retold_items: IntOpt = "items of after that re-tell a transcript",
        tokens_before: IntOpt = "tokens of the sender's context",
        tokens_after: IntOpt = "tokens of the receiver's view",
        before_unknown: TextOpt = "why the sender's context is unknown",
        after_unknown: TextOpt = "why the receiver's view is unknown",
        calls_unknown: TextOpt = "why the receiver's tool calls are unknown",
        repeats_unknown: TextOpt = "why redundancy, retries and self repeats are unknown",
        lost_tool_results: IntOpt = "calls whose result went lost around this transfer",
        lost_unknown: TextOpt = "why lost results are unknown",
        leaks_unknown: TextOpt = "why leaks are unknown",
        artifact_refs: Texts = "references in the payload",
        artifacts_reused: Texts = "those the receiver used",
        artifacts_unknown: TextOpt = "why artifact reuse is unknown",
        first_action_ns: IntOpt = "from the transfer to the receiver's first correct action",
        first_action_unknown: TextOpt = "why that is unknown",
        retriage: FlagOpt = "the receiver began by repeating a lookup or by asking for what the task holds",
        retriage_unknown: TextOpt = "why that is unknown",
        last_activity: Time = "last start or end of a span of its task: evaluation windows are of this",
    }
}

table! {
    /// One row per constraint that is active at a transfer or stated in it.
    handoff_constraints HandoffConstraints HandoffConstraintRow {
        handoff_id: Text = "transfer",
        task_id: Text = "task",
        hop: Int = "number of accepted transfers before it in the task",
        id: Text = "constraint",
        hash: Text = "its hash",
        text: TextOpt = "its text; NULL: not stated, or content is not kept",
        soft: Flag = "a preference; not counted",
        active: Flag = "in force before the transfer",
        stated: Flag = "stated in this payload",
        in_payload: FlagOpt = "the payload holds it; NULL: unknown",
        in_view: FlagOpt = "the receiver's view holds it; NULL: unknown",
        counted: Flag = "counts in constraint_retention",
        got: FlagOpt = "the receiver got it: by its view, else by the payload; NULL: unknown",
        cause: TextOpt = "where it was lost: `not_in_state`, `dropped_from_payload` or `dropped_by_filter`",
        last_activity: Time = "last start or end of a span of its task: evaluation windows are of this",
    }
}

table! {
    /// One row per leak: one source call and one surviving item.
    leaks Leaks LeakRow {
        handoff_id: Text = "transfer",
        task_id: Text = "task",
        call: Text = "id of the tool call whose content leaks",
        tool: Text = "its tool",
        item: Int = "position of the surviving item in the receiver's view",
        overlap: Texts = "what both hold; empty where content is not kept",
        last_activity: Time = "last start or end of a span of its task: evaluation windows are of this",
    }
}

table! {
    /// One row per run and constraint that a rule or a judgement speaks of (METRICS.md section 4).
    run_constraints RunConstraints RunConstraintRow {
        run_id: Text = "run",
        task_id: Text = "task",
        agent: TextOpt = "its agent",
        handoff_id: TextOpt = "the transfer that started it; NULL: it was not transferred to",
        constraint_id: Text = "constraint",
        text: TextOpt = "its text; NULL: not stated, or content is not kept",
        seen_at: Time = "when the run first saw it; NULL: nothing shows that it did",
        verdict: Text = "who lost it for what the run did before that: `state`, `payload`, `filter` or `unknown`; `model`: it saw it from its start",
        missing: TextOpt = "what is missing where the verdict is `unknown`",
        last_activity: Time = "last start or end of a span of its task: evaluation windows are of this",
    }
}

table! {
    /// One row per judgement (`gen_ai.evaluation.result`) on a span of the task.
    evaluations Evaluations EvaluationRow {
        task_id: Text = "task",
        trace_id: Text = "trace of the span that is judged",
        span_id: Text = "that span",
        handoff_id: TextOpt = "the transfer that is judged, or that started the run; NULL: neither",
        run_id: TextOpt = "the run that is judged; NULL: the span stands in none",
        agent: TextOpt = "its agent",
        call: TextOpt = "id of the tool call that is judged",
        tool: TextOpt = "its tool",
        name: Text = "`gen_ai.evaluation.name`",
        score: FloatOpt = "`gen_ai.evaluation.score.value`",
        label: TextOpt = "`gen_ai.evaluation.score.label`",
        failed: FlagOpt = "it says that something went wrong; NULL: neither label nor score tells",
        constraint_id: TextOpt = "the constraint that its name or label speaks of",
        time: Time = "start of the call or model call that is judged; NULL: a whole run or transfer is",
        last_activity: Time = "last start or end of a span of its task: evaluation windows are of this",
    }
}

table! {
    /// What stands out, for people.
    findings Findings FindingRow {
        kind: Text = "kind",
        severity: Text = "`error`, `warning` or `info`",
        task_id: Text = "task",
        handoff_id: TextOpt = "transfer",
        text: Text = "one sentence",
        last_activity: Time = "last start or end of a span of its task: evaluation windows are of this",
    }
}

table! {
    /// One row per measure, five minutes, hour of last activity, service, pair of agents and reason why it is not known: sums over
    /// rated transfers or tasks. Rates of many are the sum of numerators by the sum of denominators.
    measure_sums MeasureSums MeasureSumRow {
        measure: Text = "name of the measure; `handoffs`: transfers of every outcome, the numerator counts accepted ones",
        time: Time = "start of the five minutes in which the transfer happened; for measures of tasks, of the last activity",
        last_activity: Time = "start of the hour in which the last span of the task started or ended: evaluation windows are of this",
        service: TextOpt = "service",
        from_agent: TextOpt = "sender; NULL: unnamed, or a measure of tasks",
        to_agent: TextOpt = "receiver likewise",
        unknown: TextOpt = "why it is not known; NULL: it is",
        subjects: Int = "transfers or tasks",
        numerator: IntOpt = "sum of numerators; NULL: not known",
        denominator: IntOpt = "sum of denominators; NULL: not known",
    }
}

table! {
    /// One row per transfer in which something went wrong, by what its measures say; broken rules come on top of it.
    handoff_scores HandoffScores HandoffScoreRow {
        handoff_id: Text = "transfer",
        score: Int = "how bad it is: 5 for each constraint or leak, 4 where it failed, 3 for each lost result, 2 for each repeat or retry, 1 where the receiver began again",
        last_activity: Time = "last start or end of a span of its task: evaluation windows are of this",
    }
}

/// All tables under construction.
pub struct Tables {
    /// Tasks.
    pub tasks: Tasks,
    /// Runs.
    pub agent_runs: AgentRuns,
    /// Model calls.
    pub inferences: Inferences,
    /// Tool calls.
    pub tool_calls: ToolCalls,
    /// Transfers.
    pub handoffs: Handoffs,
    /// Constraints at transfers.
    pub handoff_constraints: HandoffConstraints,
    /// Leaks.
    pub leaks: Leaks,
    /// What runs knew of constraints.
    pub run_constraints: RunConstraints,
    /// Judgements.
    pub evaluations: Evaluations,
    /// Findings.
    pub findings: Findings,
}

/// Text columns whose values differ from row to row.
pub const DISTINCT: [&str; 15] = [
    "args",
    "args_digest",
    "call",
    "call_id",
    "handoff_id",
    "inference_id",
    "payload_text",
    "receiver_inference_id",
    "receiver_run_id",
    "repeats",
    "response_id",
    "run_id",
    "sender_inference_id",
    "sender_run_id",
    "span_id",
];

/// Those of them that are hashes.
pub const HASHES: [&str; 9] = [
    "args_digest",
    "call",
    "handoff_id",
    "inference_id",
    "receiver_inference_id",
    "repeats",
    "run_id",
    "sender_inference_id",
    "span_id",
];

/// Names and fields of all that is kept: the assembled tables and what is summed from them.
pub fn kept() -> impl Iterator<Item = (&'static str, Fields)> {
    let made_of_them =
        [(MeasureSums::NAME, MeasureSums::fields()), (HandoffScores::NAME, HandoffScores::fields())];
    all().into_iter().chain(made_of_them)
}

/// Names and fields of all assembled tables, in the order of [`Tables::finish`].
pub fn all() -> [(&'static str, Fields); 10] {
    [
        (Tasks::NAME, Tasks::fields()),
        (AgentRuns::NAME, AgentRuns::fields()),
        (Inferences::NAME, Inferences::fields()),
        (ToolCalls::NAME, ToolCalls::fields()),
        (Handoffs::NAME, Handoffs::fields()),
        (HandoffConstraints::NAME, HandoffConstraints::fields()),
        (Leaks::NAME, Leaks::fields()),
        (RunConstraints::NAME, RunConstraints::fields()),
        (Evaluations::NAME, Evaluations::fields()),
        (Findings::NAME, Findings::fields()),
    ]
}

impl Default for Tables {
    fn default() -> Self {
        Self {
            tasks: Tasks::new(),
            agent_runs: AgentRuns::new(),
            inferences: Inferences::new(),
            tool_calls: ToolCalls::new(),
            handoffs: Handoffs::new(),
            handoff_constraints: HandoffConstraints::new(),
            leaks: Leaks::new(),
            run_constraints: RunConstraints::new(),
            evaluations: Evaluations::new(),
            findings: Findings::new(),
        }
    }
}

impl Tables {
    /// Rows held, all tables together.
    pub fn len(&self) -> usize {
        self.tasks.len
            + self.agent_runs.len
            + self.inferences.len
            + self.tool_calls.len
            + self.handoffs.len
            + self.handoff_constraints.len
            + self.leaks.len
            + self.run_constraints.len
            + self.evaluations.len
            + self.findings.len
    }

    /// True where there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The rows so far, one batch per table in the order of [`all`]; the tables are then empty.
    ///
    /// # Errors
    /// Arrow's own, should a column not fit (a defect).
    pub fn finish(&mut self) -> Result<Vec<RecordBatch>, ArrowError> {
        let parts = [
            self.tasks.finish(),
            self.agent_runs.finish(),
            self.inferences.finish(),
            self.tool_calls.finish(),
            self.handoffs.finish(),
            self.handoff_constraints.finish(),
            self.leaks.finish(),
            self.run_constraints.finish(),
            self.evaluations.finish(),
            self.findings.finish(),
        ];
        Ok(parts.into_iter().map(RecordBatch::from).collect())
    }
}

/// Schema of a table of [`all`].
pub fn schema_of(fields: &Fields) -> SchemaRef {
    Arc::new(Schema::new(fields.clone()))
}

/// The tables as Markdown, for the README.
pub fn markdown() -> String {
    let mut out = String::new();
    let docs: [(&str, Vec<ColumnDoc>); 12] = [
        (Tasks::NAME, Tasks::docs()),
        (AgentRuns::NAME, AgentRuns::docs()),
        (Inferences::NAME, Inferences::docs()),
        (ToolCalls::NAME, ToolCalls::docs()),
        (Handoffs::NAME, Handoffs::docs()),
        (HandoffConstraints::NAME, HandoffConstraints::docs()),
        (Leaks::NAME, Leaks::docs()),
        (RunConstraints::NAME, RunConstraints::docs()),
        (Evaluations::NAME, Evaluations::docs()),
        (Findings::NAME, Findings::docs()),
        (MeasureSums::NAME, MeasureSums::docs()),
        (HandoffScores::NAME, HandoffScores::docs()),
    ];
    for (name, columns) in docs {
        out.push_str(&format!("### `{name}`\n\n| column | type | meaning |\n|---|---|---|\n"));
        for c in columns {
            out.push_str(&format!("| `{}` | {} | {} |\n", c.name, c.ty, c.doc));
        }
        out.push('\n');
    }
    out
}
