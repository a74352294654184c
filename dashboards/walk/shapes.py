"""Whether a result has the form that its panel needs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise

from .boards import Asked, Json
from .run import Result

# Panels and the like that may be empty though there is data, and why.
MAY_BE_EMPTY = {
    "handoffs-pair / Constraints lost": "nothing may be lost",
    "handoffs-pair / Tools called again": "nothing may be repeated",
    "handoffs-one / Tool calls of the task": "a task may call no tool",
    "handoffs-one / Constraints: state, payload, view": "a handoff may have no constraint",
    "handoffs-one / What was repeated": "nothing may be repeated",
    "handoffs-one / Leaks": "nothing may leak",
    "handoffs-one / Findings of the task": "nothing may stand out",
    "handoffs-one / Broken constraints of the task": "nobody may judge",
    "handoffs-leaks / Leaks by tool": "nothing may leak",
    "handoffs-leaks / Handoffs with leaks": "nothing may leak",
    "handoffs-pipeline / Findings by kind": "nothing may stand out",
    "handoffs-overview / What is unknown, and why": "all may be known",
}


def overridden(panel: Json) -> set[str]:
    """Columns that overrides name."""
    overrides = panel.get("fieldConfig", {}).get("overrides", [])
    return {o["matcher"]["options"] for o in overrides if o["matcher"]["id"] == "byName"}


def linked(panel: Json) -> set[str]:
    """Columns that links read."""
    out: set[str] = set()
    for o in panel.get("fieldConfig", {}).get("overrides", []):
        for p in o["properties"]:
            if p["id"] == "links":
                for link in p["value"]:
                    out |= set(re.findall(r"__data\.fields\.(\w+)", link["url"]))
    return out


def transformed(panel: Json) -> set[str]:
    """Columns that transformations name."""
    out: set[str] = set()
    for t in panel.get("transformations", []):
        o = t.get("options") or {}
        out |= set(o.get("fields", []))
        out |= {o[k] for k in ("columnField", "rowField", "valueField") if k in o}
    return out


def wrong(q: Asked, r: Result) -> Iterable[str]:
    """What is wrong with the form; nothing where it is right."""
    if len(set(r.columns)) < len(r.columns):
        yield f"two columns have one name: {', '.join(r.columns)}"
    check = {
        "series": _series,
        "stat": _stat,
        "variable": _variable,
        "annotation": _annotation,
        "alert": _alert,
    }
    yield from check.get(q.kind, _table)(q, r)
    if q.panel:
        for name in sorted((overridden(q.panel) | linked(q.panel) | transformed(q.panel)) - set(r.columns)):
            yield f"no column {name}, which the panel names"


def _series(_: Asked, r: Result) -> Iterable[str]:
    if not r.columns or r.columns[0] != "time":
        yield "the first column is not time"
        return
    if r.kinds[0] not in {"number", "time"}:
        yield f"time is {r.kinds[0]}"
    times = [row[0] for row in r.rows]
    if any(t is None for t in times):
        yield "a row has no time"
    elif any(b < a for a, b in pairwise(times)):
        yield "times do not ascend"
    if len(r.columns) < 2:
        yield "no value column"
    for name, kind in zip(r.columns[1:], r.kinds[1:], strict=True):
        if kind != "number":
            yield f"{name} is {kind}, not a number"


def _stat(_: Asked, r: Result) -> Iterable[str]:
    if len(r.rows) != 1:
        yield f"{len(r.rows)} rows, not one"
    for name, kind in zip(r.columns, r.kinds, strict=True):
        if kind != "number":
            yield f"{name} is {kind}, not a number"


def _alert(q: Asked, r: Result) -> Iterable[str]:
    yield from _stat(q, r)
    if len(r.columns) != 1:
        yield f"{len(r.columns)} columns: Grafana takes one number"


def _variable(_: Asked, r: Result) -> Iterable[str]:
    named = {"__text", "__value"}
    if len(r.columns) != 1 and set(r.columns) != named:
        yield f"columns {', '.join(r.columns)}: one is needed, or __text and __value"
    for name, kind in zip(r.columns, r.kinds, strict=True):
        if kind != "text":
            yield f"{name} is {kind}, not text"
    if any(v is None for row in r.rows for v in row):
        yield "a choice is NULL"


def _annotation(_: Asked, r: Result) -> Iterable[str]:
    kinds = dict(zip(r.columns, r.kinds, strict=True))
    if kinds.get("time") not in {"time", "number"}:
        yield "no time"
    if kinds.get("text") != "text":
        yield "no text"


def _table(q: Asked, r: Result) -> Iterable[str]:
    if q.kind == "state-timeline":
        kinds = dict(zip(r.columns, r.kinds, strict=True))
        if kinds.get("time") != "time" or kinds.get("state") != "text" or kinds.get("lane") != "text":
            yield "a timeline needs time, lane and state"
        times = r.column("time") if "time" in r.columns else []
        if any(b < a for a, b in pairwise(times)):
            yield "times do not ascend"
    for name, kind in zip(r.columns, r.kinds, strict=True):
        if kind == "other":
            yield f"{name} has a type that Grafana shows as text of its own"


def empty(q: Asked, r: Result) -> bool:
    """No rows where there should be some."""
    return not r.rows and q.place not in MAY_BE_EMPTY
