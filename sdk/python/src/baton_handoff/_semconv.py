"""Short names of the OpenTelemetry GenAI attributes that our spans use."""

from ._attributes import (
    ERROR_TYPE,
    GEN_AI_AGENT_NAME,
    GEN_AI_CONVERSATION_ID,
    GEN_AI_OPERATION_NAME,
    GEN_AI_REQUEST_PREVIOUS_RESPONSE_ID,
    GEN_AI_TOOL_CALL_ID,
    GEN_AI_TOOL_NAME,
    GEN_AI_TRANSFER_MODE,
    GEN_AI_TRANSFER_TARGET_NAME,
)

OPERATION = GEN_AI_OPERATION_NAME
AGENT = GEN_AI_AGENT_NAME
CONVERSATION = GEN_AI_CONVERSATION_ID
TOOL = GEN_AI_TOOL_NAME
TOOL_CALL_ID = GEN_AI_TOOL_CALL_ID
TRANSFER_MODE = GEN_AI_TRANSFER_MODE
TRANSFER_TARGET = GEN_AI_TRANSFER_TARGET_NAME
PREVIOUS_RESPONSE_ID = GEN_AI_REQUEST_PREVIOUS_RESPONSE_ID

# Of spans of agents, model calls and tools, which are not in our model.
TOOL_ARGUMENTS = "gen_ai.tool.call.arguments"
TOOL_RESULT = "gen_ai.tool.call.result"
WORKFLOW = "gen_ai.workflow.name"
MODEL = "gen_ai.request.model"
RESPONSE_ID = "gen_ai.response.id"
RESPONSE_MODEL = "gen_ai.response.model"
FINISH_REASONS = "gen_ai.response.finish_reasons"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"

__all__ = [
    "AGENT",
    "CONVERSATION",
    "ERROR_TYPE",
    "FINISH_REASONS",
    "INPUT_TOKENS",
    "MODEL",
    "OPERATION",
    "OUTPUT_TOKENS",
    "PREVIOUS_RESPONSE_ID",
    "RESPONSE_ID",
    "RESPONSE_MODEL",
    "TOOL",
    "TOOL_ARGUMENTS",
    "TOOL_CALL_ID",
    "TOOL_RESULT",
    "TRANSFER_MODE",
    "TRANSFER_TARGET",
    "WORKFLOW",
]
