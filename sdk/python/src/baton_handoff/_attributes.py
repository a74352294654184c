"""Names of attributes, written from `record/model/`. Change them there."""

from typing import Final

# The task that the span belongs to. Type: string. Joins the traces of one task: pause
# and resume, a remote agent, a second turn of the user. It travels as baggage under the
# same name.
BATON_TASK_ID: Final = "baton.task.id"

# Identifies one transfer. Type: string.
BATON_HANDOFF_ID: Final = "baton.handoff.id"

# Name of the agent that hands over. Type: string.
BATON_HANDOFF_FROM_AGENT: Final = "baton.handoff.from_agent"

# Name of the agent that takes over. Type: string.
BATON_HANDOFF_TO_AGENT: Final = "baton.handoff.to_agent"

# Whether the sender waits, passes control, or gives it back. Type: string.
BATON_HANDOFF_MODE: Final = "baton.handoff.mode"
BATON_HANDOFF_MODE_PASS_CONTROL: Final = "pass_control"
BATON_HANDOFF_MODE_RETURN_TO_CALLER: Final = "return_to_caller"
BATON_HANDOFF_MODE_HAND_BACK: Final = "hand_back"

# Why the work is handed over. Type: string.
BATON_HANDOFF_REASON: Final = "baton.handoff.reason"

# How urgent the work is, in the application's own words. Type: string.
BATON_HANDOFF_PRIORITY: Final = "baton.handoff.priority"

# What became of the transfer, where the sender knows it. Type: string. Absent where it
# is not known. The span of a refused or failed transfer has status ERROR.
BATON_HANDOFF_OUTCOME: Final = "baton.handoff.outcome"
BATON_HANDOFF_OUTCOME_ACCEPTED: Final = "accepted"
BATON_HANDOFF_OUTCOME_REFUSED: Final = "refused"
BATON_HANDOFF_OUTCOME_FAILED: Final = "failed"

# The tokenizer that the token counts of the span are taken with. Type: string.
BATON_HANDOFF_TOKENIZER: Final = "baton.handoff.tokenizer"

# Tokens of the payload. Type: int. Of its JSON text, without routing arguments. Never
# the usage that a model reports.
BATON_HANDOFF_PAYLOAD_TOKENS: Final = "baton.handoff.payload.tokens"

# Items that the sender's context held at the transfer. Type: int. An item is one text,
# one tool call or one tool result. System instructions and reasoning are none.
BATON_HANDOFF_HISTORY_ITEMS_BEFORE: Final = "baton.handoff.history.items_before"

# Items of history that the receiver gets. Type: int.
BATON_HANDOFF_HISTORY_ITEMS_AFTER: Final = "baton.handoff.history.items_after"

# Items that were before and are not after. Type: int. An item that was changed or
# blanked in place counts as filtered.
BATON_HANDOFF_HISTORY_FILTERED_COUNT: Final = "baton.handoff.history.filtered_count"

# Tokens that the sender's context held at the transfer. Type: int.
BATON_HANDOFF_HISTORY_TOKENS_BEFORE: Final = "baton.handoff.history.tokens_before"

# Tokens of history that the receiver gets. Type: int.
BATON_HANDOFF_HISTORY_TOKENS_AFTER: Final = "baton.handoff.history.tokens_after"

# Hash of the set of active constraints that the payload carries. Type: string. SHA-256
# over the sorted hashes of the members, as 64 lower-case hex digits. Active are hard
# constraints that are not retired. Written also for the empty set, which is a
# statement: no constraint.
BATON_HANDOFF_CONSTRAINTS_HASH: Final = "baton.handoff.constraints.hash"

# Ids of the active constraints that the payload carries. Type: string[].
BATON_HANDOFF_CONSTRAINTS_IDS: Final = "baton.handoff.constraints.ids"

# Hashes of the active constraints that the payload carries, in the order of their ids.
# Type: string[].
BATON_HANDOFF_CONSTRAINTS_HASHES: Final = "baton.handoff.constraints.hashes"

# Ids of the constraints that the payload says no longer hold. Type: string[].
BATON_HANDOFF_CONSTRAINTS_RETIRED: Final = "baton.handoff.constraints.retired"

# Names of the contract's fields that are present. Type: string[]. Present is a value
# that is neither empty nor a placeholder; of constraints also an empty list. An
# extended field fills the required one that it is an alias of.
BATON_HANDOFF_CONTRACT_FIELDS: Final = "baton.handoff.contract.fields"

# The payload as JSON, a contract or whatever else was handed over. Type: string.
# Content, so it is written only where the application allows it. A payload that is only
# a text stands under `narrative`.
BATON_HANDOFF_CONTRACT: Final = "baton.handoff.contract"

# References to artifacts that the payload hands over. Type: string[]. Paths, URIs, ids
# of documents, records or results. Never the thing itself.
BATON_HANDOFF_ARTIFACTS: Final = "baton.handoff.artifacts"

# Names of the tools that were tried before the transfer, as the payload tells them.
# Type: string[].
BATON_HANDOFF_ATTEMPTED_TOOLS: Final = "baton.handoff.attempted_tools"

# Ids of the active constraints that the application's durable state holds. Type:
# string[].
BATON_HANDOFF_STATE_CONSTRAINTS_IDS: Final = "baton.handoff.state.constraints.ids"

# Ids of the constraints that the receiver got. Type: string[].
BATON_RECEIVED_CONSTRAINTS_IDS: Final = "baton.received.constraints.ids"

# Hash of the set of constraints that the receiver got. Type: string. Equal to
# `baton.handoff.constraints.hash` of the transfer where nothing was lost on the way.
BATON_RECEIVED_CONSTRAINTS_HASH: Final = "baton.received.constraints.hash"

# The operation. Of a handoff span always `execute_tool`. Type: string.
GEN_AI_OPERATION_NAME: Final = "gen_ai.operation.name"

# The tool that transfers. Type: string.
GEN_AI_TOOL_NAME: Final = "gen_ai.tool.name"

# The model's call of that tool, where a model asked for the transfer. Type: string.
GEN_AI_TOOL_CALL_ID: Final = "gen_ai.tool.call.id"

# The agent that executes the operation. Of a handoff span the sender. Type: string.
GEN_AI_AGENT_NAME: Final = "gen_ai.agent.name"

# Whether control is passed or returns, `pass_control` or `return_to_caller`. Type:
# string. The convention knows no `hand_back`, which is written as `pass_control`.
GEN_AI_TRANSFER_MODE: Final = "gen_ai.transfer.mode"

# Name of the receiver. Type: string.
GEN_AI_TRANSFER_TARGET_NAME: Final = "gen_ai.transfer.target.name"

# The conversation that the task belongs to. Type: string.
GEN_AI_CONVERSATION_ID: Final = "gen_ai.conversation.id"

# The server keeps the history, so what a filter removes is not observable. Type:
# string.
GEN_AI_REQUEST_PREVIOUS_RESPONSE_ID: Final = "gen_ai.request.previous_response.id"

# Class of the error of a transfer that was refused or failed. Type: string.
ERROR_TYPE: Final = "error.type"
