"""Records the handoffs between agents as OpenTelemetry spans.

A handoff span says what no instrumentation tells: the contract, the constraints in force, and what the history held
before and after the filter. It is an ordinary span of the GenAI conventions that any back end can read.

`baton_handoff.openai_agents`, `baton_handoff.langgraph` and `baton_handoff.deepagents` record it for these frameworks.
"""

from ._handoff import Handoff, History, Mode, Payload, handoff, mark_received, received, task, workflow
from .constraint import Constraint, ConstraintLike, ConstraintSet
from .contract import Contract, Problem
from .history import Tokenizer

__all__ = [
    "Constraint",
    "ConstraintLike",
    "ConstraintSet",
    "Contract",
    "Handoff",
    "History",
    "Mode",
    "Payload",
    "Problem",
    "Tokenizer",
    "handoff",
    "mark_received",
    "received",
    "task",
    "workflow",
]
