"""Where an application keeps the constraints of its durable state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias, TypeVar

from ._safe import guarded
from .constraint import ConstraintLike, ConstraintSet

T = TypeVar("T")

StateSource: TypeAlias = Callable[[T], "Iterable[ConstraintLike] | None"] | str | None
"""A function that gives the constraints, or the name of the key or attribute that holds them. `None`: one of `NAMES`."""

NAMES = ("constraints", "hard_constraints")
"""Where they are looked for if nothing is said."""


@guarded
def constraints_of(source: StateSource[T], given: T, state: object) -> ConstraintSet | None:
    """Gives the constraints that a state holds; `None` where it does not say.

    Args:
        source: Where they are.
        given: What a function is called with.
        state: What a name is looked for in.
    """
    if callable(source):
        found = source(given)
    else:
        found = next((f for f in (_look_up(state, n) for n in ([source] if source else NAMES)) if f is not None), None)
    return None if found is None else ConstraintSet(found)


def _look_up(state: object, name: str) -> Iterable[ConstraintLike] | None:
    value = state.get(name) if isinstance(state, Mapping) else getattr(state, name, None)
    if isinstance(value, Mapping):
        # By id.
        return [{"id": k, "text": v} if isinstance(v, str) else v for k, v in value.items()]
    return value if isinstance(value, Iterable) and not isinstance(value, (str, bytes)) else None
