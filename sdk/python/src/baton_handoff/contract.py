"""The contract: the structured part of what one agent gives to the next."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Literal, TypeAlias

from ._canonical import canonical, digest
from .constraint import Constraint, ConstraintLike, ConstraintSet, Kind, model_fields

REQUIRED = ("intent", "constraints", "status", "evidence", "next_action", "stop_condition")
"""The six fields that `completeness` asks for."""

EXTENDED = (
    "task_id",
    "user_goal",
    "hard_constraints",
    "soft_preferences",
    "completion_status",
    "completed_steps",
    "attempted_tools",
    "known_failures",
    "important_tool_results",
    "unresolved_questions",
    "artifact_refs",
    "narrative",
)
"""The other fields that are known by name."""

ALIASES: Mapping[str, str] = {
    "user_goal": "intent",
    "inferred_intent": "intent",
    "goal": "intent",
    "objective": "intent",
    "task": "intent",
    "task_description": "intent",
    "hard_constraints": "constraints",
    "rules": "constraints",
    "policy": "constraints",
    "completion_status": "status",
    "completed_steps": "status",
    "progress": "status",
    "important_tool_results": "evidence",
    "artifact_refs": "evidence",
    "findings": "evidence",
    "key_facts": "evidence",
    "next_step": "next_action",
    "requested_action": "next_action",
    "instructions": "next_action",
    "done_when": "stop_condition",
    "exit_criteria": "stop_condition",
    "success_criteria": "stop_condition",
    "acceptance_criteria": "stop_condition",
    "expected_output": "stop_condition",
}
"""Other keys that fill one of the six fields."""

# Text parameters that any tool may have: alone they make no contract.
_GENERAL_TEXT = frozenset(
    "task task_description description instructions input request message query context prompt note reason summary"
    " text content brief question".split()
)
_PLACEHOLDERS = frozenset(["", "n/a", "na", "none", "null", "nil", "todo", "tbd", "-", "--", "…", "unknown", "placeholder"])
_DEPTH = 4

MAX_FIELD_CHARS = 8192
"""Characters of one field at most. A contract is a summary; what is larger belongs into an artifact."""

MAX_REFERENCE_CHARS = 2048
"""Characters of one reference to an artifact at most. Longer ones are not read as references."""

Fault: TypeAlias = Literal["missing", "placeholder", "too_long", "invalid"]
"""What is wrong with a field."""


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a contract.

    Attributes:
        field: Name of the field, with the position where it is a list: `evidence[2]`.
        fault: `missing`, `placeholder`, `too_long` or `invalid`.
        message: The same for people.
    """

    field: str
    fault: Fault
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


@dataclass
class Contract:
    """What the receiver must know to go on without asking or doing things again.

    Every field may be left out. `None` is not said; an empty list of constraints says that there is none.

    Attributes:
        intent: What the receiver shall achieve.
        constraints: The rules that must hold.
        status: What is done already.
        evidence: The facts and results that the work stands on.
        next_action: What to do next.
        stop_condition: When to stop.
        task_id: Id of the task.
        user_goal: The goal in the user's words.
        hard_constraints: Rules under their long name.
        soft_preferences: Wishes.
        completion_status: How far the task is.
        completed_steps: Steps that are done.
        attempted_tools: Tools that were tried.
        known_failures: What is known not to work.
        important_tool_results: Results of tools.
        unresolved_questions: What is open.
        artifact_refs: References to artifacts: paths, URIs, ids of documents, records or results.
        narrative: Free text.
        other: What else the application hands over, by name.
    """

    intent: object = None
    constraints: Sequence[ConstraintLike] | None = None
    status: object = None
    evidence: object = None
    next_action: object = None
    stop_condition: object = None
    task_id: object = None
    user_goal: object = None
    hard_constraints: Sequence[ConstraintLike] | None = None
    soft_preferences: Sequence[ConstraintLike] | None = None
    completion_status: object = None
    completed_steps: object = None
    attempted_tools: object = None
    known_failures: object = None
    important_tool_results: object = None
    unresolved_questions: object = None
    artifact_refs: object = None
    narrative: object = None
    other: Mapping[str, object] = field(default_factory=dict)

    @classmethod
    def from_payload(cls, payload: object) -> Contract | None:
        """Reads the contract in a payload, such as the arguments of a transfer tool.

        A contract stands at the top, in an object under any key, or as JSON in a text. It is an object with at least
        two keys of which one is a field's name or an alias of one and no general text parameter, or one that has a
        required field alone.

        Args:
            payload: A mapping, a model object, or a text.

        Returns:
            The contract, or `None` where the payload holds none.
        """
        found = _find(payload, 0)
        if found is None:
            return None
        known = {f.name for f in fields(cls)} - {"other"}
        values: dict[str, object] = {}
        other: dict[str, object] = {}
        for key, value in found.items():
            name = slug(key)
            if name in known and name not in values:
                values[name] = value
            else:
                other[key] = value
        return cls(**values, other=other)  # type: ignore[arg-type]

    def to_dict(self) -> dict[str, object]:
        """Gives the contract as a JSON object, without what is not said."""
        out: dict[str, object] = {}
        for name in (*REQUIRED, *EXTENDED):
            value = getattr(self, name)
            if value is not None:
                out[name] = _plain(_without_kind(value) if name == "soft_preferences" else value)
        return out | {k: _plain(v) for k, v in self.other.items()}

    def to_json(self) -> str:
        """Gives the contract as canonical JSON (RFC 8785).

        Raises:
            ValueError: A value is no JSON value: NaN, a lone surrogate, too deep.
            TypeError: A value has a type that JSON does not know.
        """
        return canonical(self.to_dict())

    def digest(self) -> str:
        """SHA-256 over `to_json`, as hex. Raises as that does."""
        return digest(self.to_dict())

    @property
    def fields(self) -> list[str]:
        """Names of the fields that are present, required ones first, counting what aliases fill."""
        return present_fields(self.to_dict())

    @property
    def constraint_set(self) -> ConstraintSet:
        """The constraints that the contract states, hard and soft. What cannot be read as one is left out, and of two with the same
        id the later counts."""
        found: list[Constraint] = []
        for key, value in self.to_dict().items():
            name = slug(key)
            if name == "soft_preferences":
                found += read_constraints(value, "soft")
            elif name == "constraints" or ALIASES.get(name) == "constraints":
                found += read_constraints(value, "hard")
        return ConstraintSet(found)

    @property
    def artifacts(self) -> list[str]:
        """References to artifacts."""
        out: list[str] = []
        for key, value in self.to_dict().items():
            if slug(key) in ("artifact_refs", "artifacts", "artifact", "attachments", "references"):
                _references(value, out, 0)
        return out

    @property
    def tools(self) -> list[str]:
        """Names of the tools that were tried."""
        value = self.to_dict().get("attempted_tools")
        members = value if isinstance(value, list) else [value]
        names = (m.get("tool") or m.get("name") if isinstance(m, Mapping) else m for m in members)
        return [n for n in names if isinstance(n, str) and n.strip()]

    def validate(self, max_chars: int = MAX_FIELD_CHARS) -> list[Problem]:
        """Says what is wrong with the contract.

        Args:
            max_chars: The most characters that a field may have, one that is no text as JSON.

        Returns:
            Every problem, with the field's name: a required field that is missing, a placeholder, a value that is too long, or
            one that cannot be read. An empty list: the contract is complete. An extended field may fill a required one.
        """
        said = self.to_dict()
        present = present_fields(said)
        out: list[Problem] = []
        for name in (*REQUIRED, *EXTENDED, *(k for k in said if k not in REQUIRED and k not in EXTENDED)):
            value = said.get(name)
            empty = value is None or (isinstance(value, (str, list)) and not (value.strip() if isinstance(value, str) else value))
            if not empty and not is_present(value):
                out.append(Problem(name, "placeholder", f"{value!r} is a placeholder"))
            elif name in REQUIRED and name not in present:
                out.append(Problem(name, "missing", "missing"))
            try:
                chars = 0 if value is None else len(value if isinstance(value, str) else canonical(value))
            except (TypeError, ValueError) as error:
                out.append(Problem(name, "invalid", str(error)))
                continue
            if chars > max_chars:
                out.append(Problem(name, "too_long", f"{chars} characters, at most {max_chars}"))
            for i, member in enumerate(value if isinstance(value, list) else []):
                place = f"{name}[{i}]"
                if name in ("constraints", "hard_constraints", "soft_preferences"):
                    try:
                        Constraint.from_value(member)
                    except (TypeError, ValueError) as error:
                        out.append(Problem(place, "invalid", str(error)))
                elif name == "artifact_refs" and isinstance(member, str) and len(member) > MAX_REFERENCE_CHARS:
                    out.append(Problem(place, "too_long", f"{len(member)} characters, at most {MAX_REFERENCE_CHARS}"))
        return out


def slug(name: str) -> str:
    """The comparable form of a name: lower case, and every run of other signs than letters and digits is one `_`."""
    out = re.sub(r"[\W_]+", "_", name.lower()).strip("_")
    return out or name.strip()


def is_present(value: object) -> bool:
    """True for a value that is neither empty nor a placeholder."""
    if value is None:
        return False
    if isinstance(value, str):
        return value.strip().strip(".\"'<>[]").strip().lower() not in _PLACEHOLDERS
    if isinstance(value, Mapping):
        return any(is_present(v) for v in value.values())
    if isinstance(value, Sequence):
        return any(is_present(v) for v in value)
    return True


def present_fields(payload: Mapping[str, object]) -> list[str]:
    """Names of the contract's fields that an object holds, required ones first, counting what aliases fill."""
    found: set[str] = set()
    for key, value in payload.items():
        name = slug(key)
        required = name if name in REQUIRED else ALIASES.get(name)
        # An explicitly empty list of constraints declares that there is none.
        declared_none = required == "constraints" and isinstance(value, (list, tuple)) and not value
        if required and (is_present(value) or declared_none):
            found.add(required)
        if name in EXTENDED and is_present(value):
            found.add(name)
    return [f for f in (*REQUIRED, *EXTENDED) if f in found]


def read_constraints(value: object, kind: Kind) -> list[Constraint]:
    """Reads constraints as models write them: a list, an object by id, lines of text, JSON in a text."""
    if isinstance(value, str):
        if not is_present(value):
            return []
        try:
            parsed = json.loads(value)
        except ValueError:
            parsed = None
        if isinstance(parsed, (list, dict)):
            return read_constraints(parsed, kind)
        lines = (line.strip().lstrip("-*• ").strip() for line in value.splitlines())
        return [Constraint.from_text(line, kind) for line in lines if line]
    if isinstance(value, Mapping):
        if "text" in value or "id" in value:
            return read_constraints([value], kind)
        members = [{"id": k, "text": v} if isinstance(v, str) else v for k, v in value.items()]
        return read_constraints(members, kind)
    out: list[Constraint] = []
    for member in value if isinstance(value, Iterable) else []:
        try:
            constraint = Constraint.from_value(member, kind)
        except (TypeError, ValueError):
            continue
        out.append(constraint if constraint.kind == kind else replace(constraint, kind=kind))
    return out


def _known(key: str) -> bool:
    return key in REQUIRED or key in EXTENDED or key in ALIASES


def _is_contract(payload: Mapping[str, object]) -> bool:
    keys = [slug(k) for k in payload]
    if len(keys) == 1:
        only_text = all(isinstance(v, str) for v in payload.values())
        return keys[0] in REQUIRED or (_known(keys[0]) and keys[0] not in _GENERAL_TEXT and not only_text)
    return any(_known(k) and k not in _GENERAL_TEXT for k in keys)


def _find(payload: object, depth: int) -> Mapping[str, object] | None:
    """The object with a contract's fields, at the top, under a key, or as JSON in a text."""
    if depth > _DEPTH or payload is None:
        return None
    if isinstance(payload, str):
        return _find(_json_in(payload), depth + 1)
    if isinstance(payload, Contract):
        return payload.to_dict()
    if isinstance(payload, (list, tuple)):
        return next((f for f in (_find(x, depth + 1) for x in payload) if f is not None), None)
    try:
        payload = model_fields(payload)
    except TypeError:
        return None
    named = {k: v for k, v in payload.items() if isinstance(k, str)}
    if _is_contract(named):
        return named
    return next((f for f in (_find(v, depth + 1) for v in named.values()) if f is not None), None)


def _json_in(text: str) -> object:
    """The JSON object that a text is, or that follows a heading line or stands in a code fence."""
    start, end = text.find("{"), text.rfind("}")
    if start < 0 or end < start or len(text) > 1 << 20:
        return None
    before = text[:start].rstrip()
    if before and not (before.endswith((":", "```json", "```", "\n")) or "\n" in text[len(before) : start]):
        return None
    try:
        found = json.loads(text[start : end + 1])
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _references(value: object, out: list[str], depth: int) -> None:
    if isinstance(value, str):
        if is_present(value) and len(value) <= MAX_REFERENCE_CHARS and value.strip() not in out:
            out.append(value.strip())
    elif isinstance(value, Mapping):
        keys = ("uri", "url", "path", "ref", "file_path", "href", "id", "artifact_id", "document_id", "record_id")
        named = next((value[k] for k in keys if isinstance(value.get(k), str)), None)
        for v in [named] if named is not None else value.values():
            if depth < _DEPTH:
                _references(v, out, depth + 1)
    elif isinstance(value, Iterable) and depth < _DEPTH:
        for v in value:
            _references(v, out, depth + 1)


def _without_kind(value: object) -> object:
    """Where a preference stands says that it is one."""
    if not isinstance(value, (list, tuple, ConstraintSet)):
        return value
    return [replace(v, kind="hard") if isinstance(v, Constraint) else v for v in value]


def _plain(value: object, depth: int = 0) -> object:
    """A value as JSON knows it."""
    if isinstance(value, Constraint):
        return value.to_value()
    if value is None or isinstance(value, (bool, int, float, str)) or depth > _DEPTH * 8:
        return value
    if isinstance(value, Mapping):
        return {str(k): _plain(v, depth + 1) for k, v in value.items()}
    if isinstance(value, (list, tuple, set, frozenset, ConstraintSet)):
        return [_plain(v, depth + 1) for v in value]
    try:
        return _plain(model_fields(value), depth + 1)
    except TypeError:
        return value
