"""The numbers that panels must show, and what each panel shows of them."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from .boards import Asked
from .macros import Range
from .run import Result

# Longer tables are cut off, so that their sum is not that of the report.
MOST = 200
MOST_ROWS = 100
MOST_WORST = 50
OF_MEASURE = re.compile(r"measure = '(\w+)'")
UNNAMED = "(unnamed)"

# Something shown and what it must be, with a name for it.
Compared = tuple[str, Any, Any]
Counts = Counter[tuple[str, ...]]

# Panels with SQL whose numbers are not compared, and why.
NOT_COMPARED = {
    **dict.fromkeys(
        (
            "handoffs-one / The handoff",
            "handoffs-one / Payload and context",
            "handoffs-one / Timeline",
            "handoffs-one / Tool calls of the task",
            "handoffs-one / Contract fields",
            "handoffs-one / Constraints: state, payload, view",
            "handoffs-one / Findings of the task",
            "handoffs-one / What was repeated",
            "handoffs-one / Leaks",
            "handoffs-one / Broken constraints of the task",
            "handoffs-one / All handoffs of this task",
            "handoffs-one / Newest handoffs of the filters",
        ),
        "rows as they are, nothing is added up",
    ),
    **dict.fromkeys(
        (
            "handoffs-pipeline / Data lag",
            "handoffs-pipeline / Spans stored",
            "handoffs-pipeline / Spans stored over time",
            "handoffs-pipeline / Spans by service and dialect",
        ),
        "of spans, which no report counts",
    ),
}


@dataclass(frozen=True)
class Said:
    """One measure. The numerator is scaled; without a denominator there is no value."""

    value: float | None
    numerator: float | None
    denominator: int
    unknown: int


@dataclass
class Numbers:
    """All that is compared: of a report, or counted from single rows."""

    measures: dict[str, Said] = field(default_factory=dict)
    outcomes: Counter[str] = field(default_factory=Counter)
    # Sender and receiver.
    pairs: Counts = field(default_factory=Counter)
    # Mode, outcome, detection and confidence.
    kinds: Counts = field(default_factory=Counter)
    # Constraint and where it went missing.
    lost: Counts = field(default_factory=Counter)
    # Tool, kind of the repeat and who lost the earlier call.
    repeats: Counts = field(default_factory=Counter)
    # Tool.
    leaks: Counts = field(default_factory=Counter)
    # Kind and severity.
    findings: Counts = field(default_factory=Counter)
    # What no report says: each measure of a pair, and why how many are unknown.
    of_pairs: dict[tuple[str, ...], dict[str, float | None]] = field(default_factory=dict)
    reasons: Counts = field(default_factory=Counter)
    # What only a report says: single handoffs.
    handoffs: dict[str, dict[str, Any]] = field(default_factory=dict)
    # Those of them that happened in the time range, with how much went wrong in each.
    worst: dict[str, int] = field(default_factory=dict)
    # Handoffs in the time range that the report is not about.
    strays: frozenset[str] = frozenset()
    shares: frozenset[str] = frozenset()


def shares_of(listed: list[dict[str, Any]]) -> frozenset[str]:
    """Names of the measures that are shown in percent."""
    return frozenset(m["name"] for m in listed if m["unit"] == "share")


def of_report(report: dict[str, Any], listed: list[dict[str, Any]]) -> Numbers:
    """From the JSON of `baton eval`."""
    out = Numbers(shares=shares_of(listed))
    for m in report["measures"]:
        out.measures[m["name"]] = Said(m["value"], m["numerator"], m["denominator"] or 0, m["unknown"])
    for h in report["handoffs"]:
        out.outcomes[h["outcome"]] += 1
        out.pairs[h["from_agent"] or UNNAMED, h["to_agent"] or UNNAMED] += 1
        out.kinds[h["mode"], h["outcome"], h["detection"], h["confidence"]] += 1
        for c in h["constraints"]["lost"]:
            out.lost[c["id"], c["cause"]] += 1
        for leak in h["leaks"] or []:
            out.leaks[(leak["tool"],)] += 1
        out.handoffs[h["handoff_id"]] = h | {"repeats": Counter()}
    for c in report["tool_calls"]:
        if c["handoff_id"] and c["repeat_kind"]:
            out.repeats[c["tool"], c["repeat_kind"], c["cause"] or "unknown"] += 1
            if c["handoff_id"] in out.handoffs:
                out.handoffs[c["handoff_id"]]["repeats"][c["repeat_kind"]] += 1
    for f in report["findings"]:
        out.findings[f["kind"], f["severity"]] += 1
    return out


def worst_of(handoffs: dict[str, dict[str, Any]], shown: Range) -> dict[str, int]:
    """How much went wrong in each handoff of a report that happened in a time range."""
    out = {}
    for key, h in handoffs.items():
        if h["time"] and shown.since <= datetime.fromisoformat(h["time"]) <= shown.until:
            out[key] = sum(_wrongs(h).values()) + (h["lost_tool_results"] or 0)
    return out


def _wrongs(h: dict[str, Any]) -> dict[str, int]:
    """The columns of single handoffs that are counts."""
    return {
        "lost constraints": len(h["constraints"]["lost"]),
        "redundant calls": h["repeats"]["redundant"],
        "retries": h["repeats"]["known_failure"],
        "leaks": len(h["leaks"] or []),
    }


def same(a: Any, b: Any) -> bool:
    """Equal but for the last digits of floats; unknown equals only unknown."""
    if a is None or b is None:
        return a is None and b is None
    if isinstance(a, str) or isinstance(b, str):
        return bool(a == b)
    return math.isclose(float(a), float(b), rel_tol=1e-9, abs_tol=1e-12)


def wrong(compared: Iterable[Compared]) -> list[str]:
    """A line for each that differs."""
    return [f"{what}: shows {shown}, must be {must}" for what, shown, must in compared if not same(shown, must)]


def between(a: Numbers, b: Numbers) -> Iterator[Compared]:
    """Each number of two sources that both have it."""
    for name in sorted(set(a.measures) | set(b.measures)):
        x, y = (n.measures.get(name) for n in (a, b))
        if not x or not y:
            yield name, "there" if x else None, "there" if y else None
            continue
        yield name, x.value, y.value
        yield f"{name} sum", x.numerator, y.numerator
        yield f"{name} of", x.denominator, y.denominator
        yield f"{name} unknown", x.unknown, y.unknown
    yield from _counted("handoffs", _keyed(a.outcomes), _keyed(b.outcomes))
    for what in ("pairs", "kinds", "lost", "repeats", "leaks", "findings"):
        yield from _counted(what, getattr(a, what), getattr(b, what))


def _keyed(counts: Counter[str]) -> Counts:
    return Counter({(k,): n for k, n in counts.items()})


def _counted(what: str, shown: Counts, must: Counts) -> Iterator[Compared]:
    """All that stands on either side; what is missing is 0."""
    for key in sorted(set(shown) | set(must)):
        yield f"{what} {' '.join(key)}", shown[key], must[key]
    yield f"{what} in all", shown.total(), must.total()


def shown(q: Asked, r: Result, must: Numbers) -> Iterator[Compared]:
    """What a panel shows, and what it must. Series come as one step over all time."""
    names = list(dict.fromkeys(OF_MEASURE.findall(q.sql)))
    if q.kind == "stat":
        yield from _stat(names, r, must)
    elif q.kind == "series":
        yield from _series(names, r, must)
    elif q.kind == "table":
        yield from _table(q, r, must)


def _stat(names: list[str], r: Result, must: Numbers) -> Iterator[Compared]:
    if "value" in r.columns and len(names) == 1:
        said = must.measures[names[0]]
        yield names[0], r.column("value")[0], said.value
        yield f"{names[0]} of", r.column("of")[0], said.denominator
        yield f"{names[0]} unknown", r.column("unknown")[0], said.unknown
    elif names == ["handoffs"]:
        n, accepted = must.outcomes.total(), must.outcomes["accepted"]
        yield "handoffs", r.column("handoffs")[0], n
        yield "accepted", r.column("accepted")[0], accepted
        yield "share accepted", r.column("share accepted")[0], accepted / n if n else None
    elif names == ["leaks"]:
        yield "leaks", r.column("leaks")[0], must.measures["leaks"].numerator
        # Each handoff of which leaks are known counts once.
        yield "handoffs known", r.column("handoffs known")[0], must.measures["leaks"].denominator


def _series(names: list[str], r: Result, must: Numbers) -> Iterator[Compared]:
    if names == ["handoffs"]:
        accepted, others = (sum(r.column(c)) for c in ("accepted", "not accepted"))
        yield "accepted", accepted, must.outcomes["accepted"]
        yield "not accepted", others, must.outcomes.total() - must.outcomes["accepted"]
        return
    for name in names:
        yield name, r.column(name)[-1] if r.rows else None, must.measures[name].value


def _table(q: Asked, r: Result, must: Numbers) -> Iterator[Compared]:
    if r.columns[:3] == ["from", "to", "handoffs"]:
        yield from _pairs(r, must)
    elif r.columns[:4] == ["measure", "value", "unit", "better"] and "unknown" in r.columns:
        for row in r.rows:
            cells = dict(zip(r.columns, row, strict=True))
            name = cells["measure"]
            said = must.measures[name]
            yield name, cells["value"], _percent(said.value, name, must)
            yield f"{name} of", cells["of"], said.denominator
            yield f"{name} unknown", cells["unknown"], said.unknown
    elif r.columns[:2] == ["measure", "why unknown"]:
        yield from _listed("unknown", r, must.reasons, MOST)
    elif r.columns[:2] == ["measure", "value"] and "why unknown" in r.columns:
        yield from _one(q, r, must)
    elif r.columns[:6] == ["handoff", "time", "from", "to", "outcome", "went wrong"]:
        yield from _worst(q, r, must)
    else:
        for columns, counts in (
            (["mode", "outcome", "detected by", "confidence", "handoffs"], must.kinds),
            (["constraint", "went missing", "handoffs"], must.lost),
            (["tool", "kind", "lost by", "calls"], must.repeats),
            (["tool", "leaks", "handoffs"], must.leaks),
            (["kind", "severity", "findings", "tasks"], must.findings),
        ):
            if r.columns == columns:
                yield from _listed(columns[0], r, counts, MOST_ROWS)


def _percent(value: float | None, name: str, must: Numbers) -> float | None:
    return value * 100.0 if value is not None and name in must.shares else value


def _listed(what: str, r: Result, must: Counts, most: int) -> Iterator[Compared]:
    """Rows of some texts and a count. A table that is cut off has only some of them."""
    width = len(next(iter(must), ())) or next((i for i, k in enumerate(r.kinds) if k == "number"), 1)
    found: Counts = Counter({tuple(str(x) for x in row[:width]): row[width] for row in r.rows})
    if len(r.rows) < most:
        yield from _counted(what, found, must)
    else:
        yield from ((f"{what} {' '.join(key)}", n, must[key]) for key, n in found.items())


def _pairs(r: Result, must: Numbers) -> Iterator[Compared]:
    found: Counts = Counter({(row[0], row[1]): row[2] for row in r.rows})
    if len(r.rows) < MOST:
        yield from _counted("pair", found, must.pairs)
    for row in r.rows:
        for name, value in zip(r.columns[3:], row[3:], strict=True):
            yield f"{name} of {row[0]} -> {row[1]}", value, must.of_pairs.get((row[0], row[1]), {}).get(name)


# Measures that the report gives for each handoff in the same form.
OF_HANDOFFS = (
    "completeness",
    "constraint_retention",
    "constraint_retention_payload",
    "tool_calls_after",
    "artifact_reuse",
    "time_to_first_correct_action_ms",
)


def _one(q: Asked, r: Result, must: Numbers) -> Iterator[Compared]:
    """All measures of one handoff, whose id stands in the SQL."""
    found = re.search(r"WHERE id = '([^']+)'", q.sent)
    if not found:
        yield "measures of no handoff", len(r.rows), 0
        return
    key = found[1]
    said = must.handoffs.get(key)
    yield f"handoff {key} in the report", "yes" if said or key in must.strays else "no", "yes"
    for row in r.rows if said else ():
        assert said
        cells = dict(zip(r.columns, row, strict=True))
        name = cells["measure"]
        if name in OF_HANDOFFS:
            yield name, cells["value"], _percent(said[name], name, must)
            yield f"{name}: why unknown", cells["why unknown"], said["unknown"].get(name)


def _worst(q: Asked, r: Result, must: Numbers) -> Iterator[Compared]:
    """Single handoffs, the worst first. Those that the report is not about take room, but are not compared."""
    leaking = "l.n > 0" in q.sql
    found = {}
    for row in r.rows:
        cells = dict(zip(r.columns, row, strict=True))
        key = cells["handoff"]
        found[key] = cells["went wrong"]
        if key in must.strays:
            continue
        said = must.handoffs.get(key)
        if said is None:
            yield f"handoff {key}", "a row", "none"
            continue
        for column, n in _wrongs(said).items():
            yield f"{column} of {key}", cells[column], n
        yield f"what went wrong in {key}", cells["went wrong"], must.worst.get(key)
        yield f"completeness of {key}", cells["completeness"], said["completeness"]
    least = min(found.values(), default=0) if len(found) == MOST_WORST else -1
    wanted = [key for key, n in must.worst.items() if n > least and (not leaking or must.handoffs[key]["leaks"])]
    yield "rows of the worst handoffs", len([key for key in wanted if key in found]), len(wanted)
