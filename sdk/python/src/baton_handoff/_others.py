"""Which spans are written, and whether another instrumentation writes them already."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

Spans: TypeAlias = Literal["auto", "all", "handoffs"]
"""Which spans are written: `handoffs` alone, `all` (also agents, model calls and tools, without content), or `auto`: all where no
other OpenTelemetry instrumentation of the framework is there."""

_INSTRUMENTATIONS = ("openinference", "opentelemetry", "logfire", "traceloop", "langfuse", "ddtrace", "sentry_sdk")


def is_instrumentation(observer: object) -> bool:
    """Whether an observer of a framework belongs to a package that writes OpenTelemetry spans."""
    return type(observer).__module__.partition(".")[0] in _INSTRUMENTATIONS


def check_spans(spans: str) -> None:
    """Refuses a value that is none.

    Raises:
        ValueError: It is none of `auto`, `all`, `handoffs`.
    """
    if spans not in get_args(Spans):
        raise ValueError(f"spans: {spans!r} is none of {', '.join(get_args(Spans))}")
