"""Constraints: the rules that a task is under, and the hashes by which they are told apart."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, is_dataclass, replace
from functools import cached_property
from typing import Literal, TypeAlias, get_args

from ._canonical import digest

Kind: TypeAlias = Literal["hard", "soft"]
"""`hard`: must hold. `soft`: a preference, which no measure of retention counts."""

ConstraintLike: TypeAlias = "Constraint | str | Mapping[str, object]"
"""A constraint, a sentence, or a mapping with `id` and `text`."""


@dataclass(frozen=True)
class Constraint:
    """A rule that a task is under.

    Attributes:
        id: Stable id. Of a rule that is only a sentence: the first 16 hex digits of its hash.
        text: The rule in words.
        kind: `hard` or `soft`.
        scope: What it applies to, in the application's own words. `None`: everything.
        retired: True from the moment the rule no longer holds.

    Raises:
        TypeError: `id` or `text` is no string.
        ValueError: `id` or `text` is empty or no Unicode text, or `kind` is neither `hard` nor `soft`.
    """

    id: str
    text: str
    kind: Kind = "hard"
    scope: str | None = None
    retired: bool = False

    def __post_init__(self) -> None:
        for name, value in (("id", self.id), ("text", self.text)):
            if not isinstance(value, str):
                raise TypeError(f"constraint.{name}: a {type(value).__name__} is no string")
            if not value.strip():
                raise ValueError(f"constraint.{name}: is empty")
            try:
                value.encode()
            except UnicodeEncodeError:
                raise ValueError(f"constraint.{name}: a lone surrogate is no Unicode text") from None
        if self.kind not in get_args(Kind):
            raise ValueError(f"constraint.kind: {self.kind!r} is neither 'hard' nor 'soft'")

    @classmethod
    def from_text(cls, text: str, kind: Kind = "hard", *, retired: bool = False) -> Constraint:
        """Makes a constraint that is only a sentence. Its id is the start of its hash."""
        draft = cls("-", text.strip() if isinstance(text, str) else text, kind, retired=retired)
        return replace(draft, id=digest({"text": draft.text})[:16])

    @classmethod
    def from_value(cls, value: object, kind: Kind = "hard") -> Constraint:
        """Reads what stands in a list of constraints.

        A string is a sentence. A mapping has `id` (or `name`, `constraint_id`) and `text` (or `description`, `rule`,
        `constraint`, `statement`). Where it stands decides whether it is hard, so its own `kind` is not asked.

        Raises:
            TypeError: It is neither.
            ValueError: It is empty, or a mapping without a text.
        """
        if isinstance(value, Constraint):
            return value
        if isinstance(value, str):
            return cls.from_text(value, kind)
        if not isinstance(value, Mapping):
            value = model_fields(value)
        id = _first(value, ("id", "name", "constraint_id"))
        text = _first(value, ("text", "description", "rule", "constraint", "statement"))
        retired = value.get("retired") is True
        if text is None:
            raise ValueError("constraint.text: is missing")
        if id is None:
            return cls.from_text(text, kind, retired=retired)
        scope = value.get("scope")
        return cls(id, text, kind, scope if isinstance(scope, str) else None, retired)

    @property
    def is_sentence(self) -> bool:
        """True where the id is only the start of the hash."""
        return self.hash[:16] == self.id

    @cached_property
    def hash(self) -> str:
        """SHA-256 over the canonical JSON of `{"id","text"}`, of a sentence over `{"text"}`: 64 hex digits."""
        sentence = digest({"text": self.text})
        return sentence if sentence[:16] == self.id else digest({"id": self.id, "text": self.text})

    def to_value(self) -> str | dict[str, object]:
        """The form in which it stands in a contract: one that is read back as the same constraint."""
        if self.is_sentence and self.kind == "hard" and self.scope is None and not self.retired:
            return self.text
        out: dict[str, object] = {} if self.is_sentence else {"id": self.id}
        out |= {"text": self.text, "kind": self.kind}
        if self.scope is not None:
            out["scope"] = self.scope
        if self.retired:
            out["retired"] = True
        return out


class ConstraintSet:
    """Constraints without order. One that stands twice counts once.

    Args:
        constraints: Constraints, sentences, or mappings with `id` and `text`.

    Raises:
        TypeError: A member cannot be read as a constraint; the message names its position.
        ValueError: Likewise.
    """

    __slots__ = ("_members",)

    def __init__(self, constraints: Iterable[ConstraintLike] = ()) -> None:
        if isinstance(constraints, str):
            raise TypeError("constraints: a single string is no list of constraints")
        members: dict[str, Constraint] = {}
        for i, value in enumerate(constraints):
            try:
                constraint = Constraint.from_value(value)
            except (TypeError, ValueError) as error:
                raise type(error)(f"constraints[{i}]: {error}") from None
            members.setdefault(constraint.hash, constraint)
        self._members = members

    def __iter__(self) -> Iterator[Constraint]:
        return iter(self._members.values())

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, constraint: object) -> bool:
        return isinstance(constraint, Constraint) and constraint.hash in self._members

    def __eq__(self, other: object) -> bool:
        return self._members.keys() == other._members.keys() if isinstance(other, ConstraintSet) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.hash)

    def __or__(self, other: ConstraintSet) -> ConstraintSet:
        return ConstraintSet([*self, *other])

    def __repr__(self) -> str:
        return f"ConstraintSet({list(self)!r})"

    @property
    def ids(self) -> list[str]:
        """Ids of the members, in the order in which they were given."""
        return [c.id for c in self]

    @property
    def hashes(self) -> list[str]:
        """Hashes of the members, in the order of `ids`."""
        return list(self._members)

    @property
    def hash(self) -> str:
        """SHA-256 over the sorted hashes of the members, one after the other, as hex. The empty set has one too."""
        return set_hash(self._members)

    @property
    def active(self) -> ConstraintSet:
        """The hard ones that are not retired."""
        return ConstraintSet([c for c in self if c.kind == "hard" and not c.retired])

    @property
    def retired(self) -> ConstraintSet:
        """The ones that no longer hold."""
        return ConstraintSet([c for c in self if c.retired])

    def retire(self, *ids: str) -> ConstraintSet:
        """Gives the set with the constraints of these ids retired."""
        return ConstraintSet([replace(c, retired=c.retired or c.id in ids) for c in self])


def set_hash(hashes: Iterable[str]) -> str:
    """Gives the hash of a set from the hashes of its members: order and repetition do not matter."""
    return hashlib.sha256("".join(sorted(set(hashes))).encode()).hexdigest()


def _first(value: Mapping[str, object], keys: Iterable[str]) -> str | None:
    texts = (value.get(k) for k in keys)
    return next((t.strip() for t in texts if isinstance(t, str) and t.strip()), None)


def model_fields(value: object) -> Mapping[str, object]:
    """The fields of a model, a dataclass or another plain object, so that an application's own types can be given.

    Raises:
        TypeError: It has no fields.
    """
    if isinstance(value, Mapping):
        return value
    dump = getattr(value, "model_dump", None)
    fields = dump() if callable(dump) and not isinstance(value, type) else None
    if fields is None and is_dataclass(value) and not isinstance(value, type):
        fields = asdict(value)
    if fields is None:
        fields = getattr(value, "__dict__", None)
    if not isinstance(fields, Mapping) or isinstance(value, type) or callable(value):
        raise TypeError(f"a {type(value).__name__} has no fields")
    return fields
