"""Constraints: the rules that a task is under, and the hashes by which they are told apart."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, is_dataclass, replace
from functools import cached_property
from typing import Literal, TypeAlias, get_args

from ._canonical import digest

Kind: TypeAlias = Literal["hard", "soft"]
"""`hard`: must hold. `soft`: a preference, which no measure of retention counts."""

_WHITE_SPACE = "\t\n\v\f\r \x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u2028\u2029\u202f\u205f\u3000"

_SENTENCE_ID = re.compile("[0-9a-f]{16}")

ConstraintLike: TypeAlias = "Constraint | str | Mapping[str, object]"
"""A constraint, a sentence, or a mapping with `id` and `text`."""


@dataclass(frozen=True)
class Constraint:
    """A rule that a task is under. White space at both ends of id and text does not count.

    Attributes:
        id: Stable id. Of a rule that is only a sentence: the first 16 hex digits of its hash.
        text: The rule in words. `None`: only the id is known.
        kind: `hard` or `soft`.
        scope: What it applies to, in the application's own words. `None`: everything.
        retired: True from the moment the rule no longer holds.

    Raises:
        TypeError: `id` or `text` is no string.
        ValueError: `id` is empty, `id` or `text` is no Unicode text, or `kind` is neither `hard` nor `soft`.
    """

    id: str
    text: str | None = None
    kind: Kind = "hard"
    scope: str | None = None
    retired: bool = False

    def __post_init__(self) -> None:
        for name, value in (("id", self.id), ("text", self.text)):
            if value is None and name == "text":
                continue
            if not isinstance(value, str):
                raise TypeError(f"constraint.{name}: a {type(value).__name__} is no string")
            if name == "id" and not trim(value):
                raise ValueError("constraint.id: is empty")
            try:
                value.encode()
            except UnicodeEncodeError:
                raise ValueError(f"constraint.{name}: a lone surrogate is no Unicode text") from None
            object.__setattr__(self, name, trim(value))
        if self.kind not in get_args(Kind):
            raise ValueError(f"constraint.kind: {self.kind!r} is neither 'hard' nor 'soft'")

    @classmethod
    def from_text(cls, text: str, kind: Kind = "hard", *, retired: bool = False) -> Constraint:
        """Makes a constraint that is only a sentence. Its id is the start of its hash."""
        draft = cls("-", text, kind, retired=retired)
        if draft.text is None:
            raise TypeError("constraint.text: a NoneType is no string")
        if not draft.text:
            raise ValueError("constraint.text: is empty")
        return replace(draft, id=digest({"text": draft.text})[:16])

    @classmethod
    def from_value(cls, value: object, kind: Kind = "hard") -> Constraint:
        """Reads what stands in a list of constraints.

        A string is a sentence. A mapping has `id` (or `name`, `constraint_id`) and `text` (or `description`, `rule`,
        `constraint`, `statement`). Where it stands decides whether it is hard, so its own `kind` is not asked.

        Raises:
            TypeError: It is neither.
            ValueError: It is empty, or a mapping without id and text.
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
        scope = value.get("scope")
        scope = scope if isinstance(scope, str) else None
        if id is not None:
            return cls(id, text, kind, scope, retired)
        if text is None:
            raise ValueError("constraint: has neither id nor text")
        return replace(cls.from_text(text, kind, retired=retired), scope=scope)

    @property
    def is_sentence(self) -> bool:
        """True where the id is only the start of the hash."""
        return _SENTENCE_ID.fullmatch(self.id) is not None and self.hash[:16] == self.id

    @property
    def is_active(self) -> bool:
        """True where it must hold now: hard, and not retired."""
        return self.kind == "hard" and not self.retired

    @cached_property
    def hash(self) -> str:
        """SHA-256 over the canonical JSON of `{"id","text"}`, of a sentence over `{"text"}`: 64 hex digits."""
        if _SENTENCE_ID.fullmatch(self.id):
            sentence = digest({"text": self.text or ""})
            if sentence[:16] == self.id:
                return sentence
        return digest({"id": self.id, "text": self.text or ""})

    def to_value(self) -> str | dict[str, object]:
        """The form in which it stands in a contract: one that is read back as the same constraint."""
        if self.text is not None and self.is_sentence and self.is_active and self.scope is None:
            return self.text
        out: dict[str, object] = {} if self.is_sentence else {"id": self.id}
        if self.text is not None:
            out["text"] = self.text
        if self.kind == "soft":
            out["kind"] = "soft"
        if self.scope is not None:
            out["scope"] = self.scope
        if self.retired:
            out["retired"] = True
        return out


class ConstraintSet:
    """Constraints by id, in the order in which they were stated. One of the same id takes the place of the earlier.

    Ids, hashes and the hash of the set are of the active ones: hard, and not retired. Their order does not matter to the hash.

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
            members[constraint.id] = constraint
        self._members = members

    def __iter__(self) -> Iterator[Constraint]:
        return iter(self._members.values())

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, constraint: object) -> bool:
        return isinstance(constraint, Constraint) and self._members.get(constraint.id) == constraint

    def __eq__(self, other: object) -> bool:
        return self._members == other._members if isinstance(other, ConstraintSet) else NotImplemented

    def __hash__(self) -> int:
        return hash(frozenset(self._members.values()))

    def __or__(self, other: ConstraintSet) -> ConstraintSet:
        return ConstraintSet([*self, *other])

    def __repr__(self) -> str:
        return f"ConstraintSet({list(self)!r})"

    @property
    def ids(self) -> list[str]:
        """Ids of the active ones."""
        return [c.id for c in self if c.is_active]

    @property
    def hashes(self) -> list[str]:
        """Hashes of the active ones, in the order of `ids`."""
        return [c.hash for c in self if c.is_active]

    @property
    def hash(self) -> str:
        """SHA-256 over the sorted hashes of the active ones, one after the other, as hex. The empty set has one too."""
        return set_hash(self.hashes)

    @property
    def active(self) -> ConstraintSet:
        """The hard ones that are not retired."""
        return ConstraintSet([c for c in self if c.is_active])

    @property
    def retired(self) -> ConstraintSet:
        """The ones that no longer hold."""
        return ConstraintSet([c for c in self if c.retired])

    def retire(self, *ids: str) -> ConstraintSet:
        """Gives the set with the constraints of these ids retired."""
        return ConstraintSet([replace(c, retired=c.retired or c.id in ids) for c in self])


def trim(text: str) -> str:
    """Takes Unicode white space off both ends. Other than `str.strip` it leaves the separators U+001C to U+001F."""
    return text.strip(_WHITE_SPACE)


def set_hash(hashes: Iterable[str]) -> str:
    """Gives the hash of a set from the hashes of its members: order and repetition do not matter."""
    return hashlib.sha256("".join(sorted(set(hashes))).encode()).hexdigest()


def _first(value: Mapping[str, object], keys: Iterable[str]) -> str | None:
    texts = (value.get(k) for k in keys)
    return next((trim(t) for t in texts if isinstance(t, str) and trim(t)), None)


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
