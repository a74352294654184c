"""Whether panels show the numbers of the report for the same data."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from .boards import Asked
from .run import Result

# Longer tables are cut off, so that their sum is not that of the report.
MOST = 200
OF_MEASURE = re.compile(r"measure = '(\w+)'")


@dataclass
class Report:
    """What `baton eval --format json` says."""

    measures: dict[str, dict[str, Any]]
    handoffs: int
    accepted: int
    scales: dict[str, float]
    shares: set[str]
    by_id: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, report: dict[str, Any], listed: list[dict[str, Any]]) -> Report:
        """From the report's JSON and the list of measures."""
        outcomes = [h["outcome"] for h in report["handoffs"]]
        return cls(
            {m["name"]: m for m in report["measures"]},
            len(outcomes),
            outcomes.count("accepted"),
            {m["name"]: m["scale"] for m in listed},
            {m["name"] for m in listed if m["unit"] == "share"},
            {h["handoff_id"]: h for h in report["handoffs"] if "handoff_id" in h},
        )


def same(a: Any, b: Any) -> bool:
    """Equal but for the last digits of floats; unknown equals only unknown."""
    if a is None or b is None:
        return a is None and b is None
    return math.isclose(float(a), float(b), rel_tol=1e-9, abs_tol=1e-12)


def wrong(q: Asked, r: Result, report: Report) -> Iterable[str]:
    """Numbers that differ from the report's. Series come as one step over all time."""
    names = list(dict.fromkeys(OF_MEASURE.findall(q.sql)))
    if q.kind == "stat" and "value" in r.columns and len(names) == 1:
        yield from _stat(names[0], r, report)
    elif q.kind == "stat" and names == ["handoffs"]:
        yield from _differs("handoffs", r.column("handoffs")[0], report.handoffs)
        yield from _differs("accepted", r.column("accepted")[0], report.accepted)
    elif q.kind == "stat" and names == ["leaks"]:
        found = report.measures["leaks"]["numerator"]
        yield from _differs("leaks", r.column("leaks")[0], found)
    elif q.kind == "series" and names and names != ["handoffs"]:
        for name in names:
            shown = r.column(name)[-1] if r.rows else None
            yield from _differs(name, shown, report.measures[name]["value"])
    elif q.kind == "series" and names == ["handoffs"]:
        shown = sum(r.column("accepted")) + sum(r.column("not accepted"))
        yield from _differs("handoffs", shown, report.handoffs)
    elif q.kind == "table" and r.columns[:3] == ["from", "to", "handoffs"] and len(r.rows) < MOST:
        yield from _differs("handoffs of all pairs", sum(r.column("handoffs")), report.handoffs)
    elif q.kind == "table" and r.columns[:4] == ["measure", "value", "unit", "better"] and "unknown" in r.columns:
        for row in r.rows:
            cells = dict(zip(r.columns, row, strict=True))
            name, said = cells["measure"], report.measures[cells["measure"]]
            factor = 100.0 if name in report.shares else 1.0
            value = None if said["value"] is None else said["value"] * factor
            yield from _differs(name, cells["value"], value)
            yield from _differs(f"{name} of", cells["of"], said["denominator"] or 0)
            yield from _differs(f"{name} unknown", cells["unknown"], said["unknown"])
    elif q.kind == "table" and r.columns[:2] == ["measure", "why unknown"] and len(r.rows) < MOST:
        said_all = sum(m["unknown"] for m in report.measures.values())
        yield from _differs("unknown of all measures", sum(r.column("handoffs or tasks")), said_all)
    elif q.kind == "table" and r.columns[:2] == ["measure", "value"] and "why unknown" in r.columns:
        yield from _one(q, r, report)


# Measures that the report gives for each handoff in the same form.
OF_HANDOFFS = (
    "completeness",
    "constraint_retention",
    "constraint_retention_payload",
    "tool_calls_after",
    "artifact_reuse",
    "time_to_first_correct_action_ms",
)


def _one(q: Asked, r: Result, report: Report) -> Iterable[str]:
    """All measures of one handoff, whose id stands in the SQL."""
    found = re.search(r"WHERE id = '([^']+)'", q.sent)
    said = report.by_id.get(found[1]) if found else None
    if not said:
        yield f"the report has no handoff {found[1] if found else '(none)'}"
        return
    for row in r.rows:
        cells = dict(zip(r.columns, row, strict=True))
        name = cells["measure"]
        if name in OF_HANDOFFS:
            factor = 100.0 if name in report.shares else 1.0
            value = None if said[name] is None else said[name] * factor
            yield from _differs(name, cells["value"], value)
            if cells["why unknown"] != said["unknown"].get(name):
                yield f"{name}: unknown for {cells['why unknown']}, the report says {said['unknown'].get(name)}"


def _stat(name: str, r: Result, report: Report) -> Iterable[str]:
    said = report.measures[name]
    yield from _differs(name, r.column("value")[0], said["value"])
    yield from _differs(f"{name} of", r.column("of")[0], said["denominator"] or 0)
    yield from _differs(f"{name} unknown", r.column("unknown")[0], said["unknown"])


def _differs(what: str, shown: Any, said: Any) -> Iterable[str]:
    if not same(shown, said):
        yield f"{what}: shows {shown}, the report says {said}"


def compared(q: Asked) -> bool:
    """True where the report has this number."""
    return "measure_" in q.sql
