//! Names of attributes, written from `record/model/`. Change them there.

/// What the names of Baton's own attributes start with.
pub const PREFIX: &str = "baton.";
/// The task that the span belongs to. Type: string. Joins the traces of one task: pause and resume, a remote agent, a
/// second turn of the user. It travels as baggage under the same name.
pub const BATON_TASK_ID: &str = "baton.task.id";
/// Identifies one transfer. Type: string.
pub const BATON_HANDOFF_ID: &str = "baton.handoff.id";
/// Name of the agent that hands over. Type: string.
pub const BATON_HANDOFF_FROM_AGENT: &str = "baton.handoff.from_agent";
/// Name of the agent that takes over. Type: string.
pub const BATON_HANDOFF_TO_AGENT: &str = "baton.handoff.to_agent";
/// Whether the sender waits, passes control, or gives it back. Type: string.
pub const BATON_HANDOFF_MODE: &str = "baton.handoff.mode";
/// A value of [`BATON_HANDOFF_MODE`]: The receiver goes on, the sender is done.
pub const BATON_HANDOFF_MODE_PASS_CONTROL: &str = "pass_control";
/// A value of [`BATON_HANDOFF_MODE`]: A delegation. The sender waits for the receiver.
pub const BATON_HANDOFF_MODE_RETURN_TO_CALLER: &str = "return_to_caller";
/// A value of [`BATON_HANDOFF_MODE`]: The receiver is who delegated or transferred to the sender before.
pub const BATON_HANDOFF_MODE_HAND_BACK: &str = "hand_back";
/// Why the work is handed over. Type: string.
pub const BATON_HANDOFF_REASON: &str = "baton.handoff.reason";
/// How urgent the work is, in the application's own words. Type: string.
pub const BATON_HANDOFF_PRIORITY: &str = "baton.handoff.priority";
/// What became of the transfer, where the sender knows it. Type: string. Absent where it is not known. The span of a
/// refused or failed transfer has status ERROR.
pub const BATON_HANDOFF_OUTCOME: &str = "baton.handoff.outcome";
/// A value of [`BATON_HANDOFF_OUTCOME`]: The receiver ran.
pub const BATON_HANDOFF_OUTCOME_ACCEPTED: &str = "accepted";
/// A value of [`BATON_HANDOFF_OUTCOME`]: The transfer was asked for and not taken.
pub const BATON_HANDOFF_OUTCOME_REFUSED: &str = "refused";
/// A value of [`BATON_HANDOFF_OUTCOME`]: The transfer itself errored, the receiver never ran.
pub const BATON_HANDOFF_OUTCOME_FAILED: &str = "failed";
/// The tokenizer that the token counts of the span are taken with. Type: string.
pub const BATON_HANDOFF_TOKENIZER: &str = "baton.handoff.tokenizer";
/// Tokens of the payload. Type: int. Of its JSON text, without routing arguments. Never the usage that a model reports.
pub const BATON_HANDOFF_PAYLOAD_TOKENS: &str = "baton.handoff.payload.tokens";
/// Items that the sender's context held at the transfer. Type: int. An item is one text, one tool call or one tool
/// result. System instructions and reasoning are none.
pub const BATON_HANDOFF_HISTORY_ITEMS_BEFORE: &str = "baton.handoff.history.items_before";
/// Items of history that the receiver gets. Type: int.
pub const BATON_HANDOFF_HISTORY_ITEMS_AFTER: &str = "baton.handoff.history.items_after";
/// Items that were before and are not after. Type: int. An item that was changed or blanked in place counts as
/// filtered.
pub const BATON_HANDOFF_HISTORY_FILTERED_COUNT: &str = "baton.handoff.history.filtered_count";
/// Tokens that the sender's context held at the transfer. Type: int.
pub const BATON_HANDOFF_HISTORY_TOKENS_BEFORE: &str = "baton.handoff.history.tokens_before";
/// Tokens of history that the receiver gets. Type: int.
pub const BATON_HANDOFF_HISTORY_TOKENS_AFTER: &str = "baton.handoff.history.tokens_after";
/// Hash of the set of active constraints that the payload carries. Type: string. SHA-256 over the sorted hashes of the
/// members, as 64 lower-case hex digits. Active are hard constraints that are not retired. Written also for the empty
/// set, which is a statement: no constraint.
pub const BATON_HANDOFF_CONSTRAINTS_HASH: &str = "baton.handoff.constraints.hash";
/// Ids of the active constraints that the payload carries. Type: string[].
pub const BATON_HANDOFF_CONSTRAINTS_IDS: &str = "baton.handoff.constraints.ids";
/// Hashes of the active constraints that the payload carries, in the order of their ids. Type: string[].
pub const BATON_HANDOFF_CONSTRAINTS_HASHES: &str = "baton.handoff.constraints.hashes";
/// Ids of the constraints that the payload says no longer hold. Type: string[].
pub const BATON_HANDOFF_CONSTRAINTS_RETIRED: &str = "baton.handoff.constraints.retired";
/// Names of the contract's fields that are present. Type: string[]. Present is a value that is neither empty nor a
/// placeholder; of constraints also an empty list. An extended field fills the required one that it is an alias of.
pub const BATON_HANDOFF_CONTRACT_FIELDS: &str = "baton.handoff.contract.fields";
/// The payload as JSON, a contract or whatever else was handed over. Type: string. Content, so it is written only where
/// the application allows it. A payload that is only a text stands under `narrative`.
pub const BATON_HANDOFF_CONTRACT: &str = "baton.handoff.contract";
/// References to artifacts that the payload hands over. Type: string[]. Paths, URIs, ids of documents, records or
/// results. Never the thing itself.
pub const BATON_HANDOFF_ARTIFACTS: &str = "baton.handoff.artifacts";
/// Names of the tools that were tried before the transfer, as the payload tells them. Type: string[].
pub const BATON_HANDOFF_ATTEMPTED_TOOLS: &str = "baton.handoff.attempted_tools";
/// Ids of the active constraints that the application's durable state holds. Type: string[].
pub const BATON_HANDOFF_STATE_CONSTRAINTS_IDS: &str = "baton.handoff.state.constraints.ids";
/// Ids of the constraints that the receiver got. Type: string[].
pub const BATON_RECEIVED_CONSTRAINTS_IDS: &str = "baton.received.constraints.ids";
/// Hash of the set of constraints that the receiver got. Type: string. Equal to `baton.handoff.constraints.hash` of the
/// transfer where nothing was lost on the way.
pub const BATON_RECEIVED_CONSTRAINTS_HASH: &str = "baton.received.constraints.hash";
/// The operation. Of a handoff span always `execute_tool`. Type: string.
pub const GEN_AI_OPERATION_NAME: &str = "gen_ai.operation.name";
/// The tool that transfers. Type: string.
pub const GEN_AI_TOOL_NAME: &str = "gen_ai.tool.name";
/// The model's call of that tool, where a model asked for the transfer. Type: string.
pub const GEN_AI_TOOL_CALL_ID: &str = "gen_ai.tool.call.id";
/// The agent that executes the operation. Of a handoff span the sender. Type: string.
pub const GEN_AI_AGENT_NAME: &str = "gen_ai.agent.name";
/// Whether control is passed or returns, `pass_control` or `return_to_caller`. Type: string. The convention knows no
/// `hand_back`, which is written as `pass_control`.
pub const GEN_AI_TRANSFER_MODE: &str = "gen_ai.transfer.mode";
/// Name of the receiver. Type: string.
pub const GEN_AI_TRANSFER_TARGET_NAME: &str = "gen_ai.transfer.target.name";
/// The conversation that the task belongs to. Type: string.
pub const GEN_AI_CONVERSATION_ID: &str = "gen_ai.conversation.id";
/// The server keeps the history, so what a filter removes is not observable. Type: string.
pub const GEN_AI_REQUEST_PREVIOUS_RESPONSE_ID: &str = "gen_ai.request.previous_response.id";
/// Class of the error of a transfer that was refused or failed. Type: string.
pub const ERROR_TYPE: &str = "error.type";
