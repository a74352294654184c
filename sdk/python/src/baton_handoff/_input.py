"""The contract as a model is asked for it: types from which frameworks make the schema of a transfer tool."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class ConstraintInput:
    """A rule, as a model is asked for it."""

    id: str
    text: str


@dataclass
class ContractInput:
    """The contract, as a model is asked for it: the arguments of a transfer tool."""

    intent: str
    constraints: list[ConstraintInput]
    status: str
    evidence: list[str]
    next_action: str
    stop_condition: str
    attempted_tools: list[str] = field(default_factory=list)
    artifact_refs: list[str] = field(default_factory=list)
