//! Names of Baton's own attributes. `gen_ai.` is not ours; everything of ours is under `baton.`.

/// What all of them start with.
pub const PREFIX: &str = "baton.";
/// The task a span belongs to. Text.
pub const TASK_ID: &str = "baton.task.id";
/// Id of one transfer. Text.
pub const HANDOFF_ID: &str = "baton.handoff.id";
/// Sender. Text.
pub const FROM_AGENT: &str = "baton.handoff.from_agent";
/// Receiver, or receivers. Text or texts.
pub const TO_AGENT: &str = "baton.handoff.to_agent";
/// `pass_control`, `return_to_caller` or `hand_back`. Text.
pub const MODE: &str = "baton.handoff.mode";
/// Why. Text.
pub const REASON: &str = "baton.handoff.reason";
/// How urgent. Text.
pub const PRIORITY: &str = "baton.handoff.priority";
/// Tokens of the payload. Integer.
pub const PAYLOAD_TOKENS: &str = "baton.handoff.payload.tokens";
/// Items of the sender's context. Integer.
pub const ITEMS_BEFORE: &str = "baton.handoff.history.items_before";
/// Items the receiver got. Integer.
pub const ITEMS_AFTER: &str = "baton.handoff.history.items_after";
/// Items the filter removed. Integer.
pub const FILTERED_COUNT: &str = "baton.handoff.history.filtered_count";
/// Tokens of the sender's context. Integer.
pub const TOKENS_BEFORE: &str = "baton.handoff.history.tokens_before";
/// Tokens the receiver got. Integer.
pub const TOKENS_AFTER: &str = "baton.handoff.history.tokens_after";
/// Hash of the active constraint set. 64 hex digits.
pub const CONSTRAINTS_HASH: &str = "baton.handoff.constraints.hash";
/// Ids of the active constraints. Texts.
pub const CONSTRAINTS_IDS: &str = "baton.handoff.constraints.ids";
/// Hashes of the active constraints, in the order of their ids. Texts.
pub const CONSTRAINTS_HASHES: &str = "baton.handoff.constraints.hashes";
/// Names of the contract fields present. Texts.
pub const CONTRACT_FIELDS: &str = "baton.handoff.contract.fields";
/// The contract as JSON; content, opt-in. Text.
pub const CONTRACT: &str = "baton.handoff.contract";
/// References to artifacts. Texts.
pub const ARTIFACTS: &str = "baton.handoff.artifacts";
/// Names of tools that were tried. Texts.
pub const ATTEMPTED_TOOLS: &str = "baton.handoff.attempted_tools";
/// Ids of the constraints in durable state. Texts.
pub const STATE_CONSTRAINTS_IDS: &str = "baton.handoff.state.constraints.ids";
/// On the receiver's first span: ids of the constraints it got. Texts.
pub const RECEIVED_IDS: &str = "baton.received.constraints.ids";
/// On the receiver's first span: their set hash. 64 hex digits.
pub const RECEIVED_HASH: &str = "baton.received.constraints.hash";
