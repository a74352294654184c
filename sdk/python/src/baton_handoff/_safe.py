"""Faults of this package never reach the agent: they are logged, each kind once."""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

logger = logging.getLogger("baton_handoff")

_told: set[str] = set()
_lock = threading.Lock()


def tell(where: str, error: BaseException) -> None:
    """Logs a fault once for each place and type."""
    key = f"{where}: {type(error).__name__}"
    with _lock:
        if key in _told:
            return
        _told.add(key)
    logger.warning("%s failed; the agent goes on, told once: %s", where, error, exc_info=error)


@contextmanager
def guard(where: str) -> Iterator[None]:
    """Runs a block whose faults are logged and go no further."""
    try:
        yield
    except Exception as error:
        tell(where, error)


def guarded(function: Callable[P, T | None]) -> Callable[P, T | None]:
    """Makes a function give `None` where it fails."""

    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> T | None:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            tell(function.__qualname__, error)
            return None

    return wrapper
