"""Delegations of Deep Agents: the `task` tool, which runs a sub-agent and waits for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from opentelemetry.trace import TracerProvider

from ._others import Spans
from ._state import StateSource
from .history import Tokenizer
from .langgraph import HandoffCallback, with_callback

__all__ = ["traced"]

G = TypeVar("G")


def traced(
    agent: G,
    *,
    state: StateSource[Mapping[str, object]] = None,
    spans: Spans = "auto",
    capture_content: bool | None = None,
    tokenizer: Tokenizer | None = None,
    tracer_provider: TracerProvider | None = None,
) -> G:
    """Gives the same deep agent, whose runs record their delegations.

    The payload is the `description`: a contract where it holds one as JSON, else free text.

    Args:
        agent: What `create_deep_agent` gave.
        state: Where the constraints of the durable state are: a function of the agent's state, or a key of it. `None`:
            `constraints` or `hard_constraints`.
        spans: Which spans are written.
        capture_content: Whether contracts and the arguments and results of tools may stand on spans. `None`: what
            `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT` says, else no.
        tokenizer: Counts tokens. `None`: `o200k_base` where the extra `tokens` is installed.
        tracer_provider: Where spans go. `None`: the global one.

    Raises:
        TypeError: `agent` is no agent, or `state` neither a function nor a text.
        ValueError: `spans` is none of its values.
    """
    callback = HandoffCallback(
        state=state,
        delegations={"task": "subagent_type"},
        spans=spans,
        capture_content=capture_content,
        tokenizer=tokenizer,
        tracer_provider=tracer_provider,
    )
    return with_callback(agent, callback)
