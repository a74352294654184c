"""What single handoffs and tasks of a time range add up to: a second way to the numbers.

Panels and reports both read `measure_sums`, so that a wrong sum would be the same in both. Here nothing is read from it.

Two times decide what counts:

- A panel is about handoffs by the time of the transfer, and about tasks by their last activity. Where it reads `measure_sums`,
  it sees both in steps of five minutes: those that begin in its range, both ends included.
- A report is about tasks by their last activity, from the start of its window up to, not including, the end, and about all
  handoffs of these tasks.

So over a range from A until just before B, both whole five minutes, a panel of tasks must show what the report of that window
says. A panel of handoffs must too, unless a task was under way at A or at B: it may have handed off on one side and ended on
the other. Where one has, the panel is held against the handoffs of its own range, one by one, and the report against those of
its tasks. Panels of single rows do not round to five minutes, all else of this holds of them too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from .macros import Range, rfc3339
from .numbers import UNNAMED, Compared, Numbers, Said, between, shares_of, worst_of
from .run import Runner

STEP = 300
HAPPENED = '"time"'
# Grafana's ranges end with a millisecond that is in them, windows of reports before their end.
JUST_BEFORE = timedelta(milliseconds=1)


@dataclass(frozen=True)
class Window:
    """What a report is about; without ends: all there is."""

    since: datetime | None = None
    until: datetime | None = None

    def shown(self) -> Range | None:
        """The range in which panels show it."""
        return Range(self.since, self.until - JUST_BEFORE) if self.since and self.until else None

    def whole(self) -> bool:
        """True where it begins and ends with five minutes."""
        return all(t is None or t.timestamp() % STEP == 0 for t in (self.since, self.until))


@dataclass
class Counted:
    """Numbers from single rows, in both senses."""

    panels: Numbers
    report: Numbers
    # How many are in the range or in the report and not in both: by the steps of sums, and by their own time.
    handoffs_apart: tuple[int, int]
    tasks_apart: tuple[int, int]
    # Tasks that were under way at an end of the window.
    crossing: int


def _instant(t: datetime) -> str:
    return f"'{rfc3339(t)}'"


def _whole(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _flags(column: str, shown: Range, asked: Window) -> str:
    """Columns that say in which sense a row counts. Rounding is done here, not in SQL as the sums are."""
    first = -(-shown.since.timestamp() // STEP) * STEP
    after = shown.until.timestamp() // STEP * STEP + STEP
    ends = [f"last_activity >= {_instant(asked.since)}"] if asked.since else []
    ends += [f"last_activity < {_instant(asked.until)}"] if asked.until else []
    told = {
        "in_steps": f"{column} >= {_instant(_whole(first))} AND {column} < {_instant(_whole(after))}",
        "in_rows": f"{column} >= {_instant(shown.since)} AND {column} <= {_instant(shown.until)}",
        "in_report": " AND ".join(ends) or "TRUE",
    }
    return ",\n    ".join(f"COALESCE({sql}, FALSE) AS {name}" for name, sql in told.items())


class Singles:
    """Asks for all of it."""

    def __init__(self, runner: Runner, listed: list[dict[str, Any]], shown: Range, asked: Window) -> None:
        self._runner = runner
        self._listed = listed
        self._shown = shown
        self._asked = asked
        self._handoffs = (
            "h AS (\n  SELECT handoff_id, from_agent, to_agent, mode, outcome, detection, confidence,\n    "
            f"{_flags(HAPPENED, shown, asked)}\n  FROM handoffs\n)"
        )
        self._tasks = f"t AS (\n  SELECT task_id,\n    {_flags('last_activity', shown, asked)}\n  FROM tasks\n)"

    def _ask(self, sql: str) -> list[tuple[Any, ...]]:
        return self._runner.run(sql, False).rows

    def counted(self) -> Counted:
        """The numbers in both senses."""
        panels, report = (Numbers(shares=shares_of(self._listed)) for _ in range(2))
        for m in self._listed:
            self._measure(m, panels, report)
        self._transfers(panels, report)
        self._lists(panels, report)
        panels.strays = frozenset(
            row[0] for row in self._ask(f"WITH {self._handoffs}\nSELECT handoff_id FROM h WHERE in_rows AND NOT in_report")
        )
        return Counted(
            panels,
            report,
            self._apart(self._handoffs, "h"),
            self._apart(self._tasks, "t"),
            self._crossing(),
        )

    def _measure(self, m: dict[str, Any], panels: Numbers, report: Numbers) -> None:
        """One measure from its view, a row per handoff or task."""
        name, of_handoffs = m["name"], m["subject"] == "handoff"
        subjects, key = (self._handoffs, "h.handoff_id") if of_handoffs else (self._tasks, "t.task_id")
        pair = "h.from_agent, h.to_agent" if of_handoffs else "NULL AS from_agent, NULL AS to_agent"
        table = key[0]
        rows = self._ask(
            f"WITH {subjects}\nSELECT {table}.in_steps, {table}.in_report, {pair}, m.unknown,\n"
            "  COUNT(*), SUM(m.numerator), SUM(m.denominator)\n"
            f"FROM measure_{name} m\nJOIN {table} ON {key} = m.id\nWHERE m.rated\nGROUP BY 1, 2, 3, 4, 5"
        )
        for place, numbers in ((0, panels), (1, report)):
            mine = [row for row in rows if row[place]]
            numbers.measures[name] = _said([row[4:] for row in mine], m["scale"])
            for row in mine:
                if row[4] is not None:
                    numbers.reasons[name, row[4]] += int(row[5])
            pairs = {(row[2] or UNNAMED, row[3] or UNNAMED) for row in mine if of_handoffs}
            for p in pairs:
                of_it = [row[4:] for row in mine if (row[2] or UNNAMED, row[3] or UNNAMED) == p]
                numbers.of_pairs.setdefault(p, {})[name] = _said(of_it, m["scale"]).value

    def _transfers(self, panels: Numbers, report: Numbers) -> None:
        rows = self._ask(
            f"WITH {self._handoffs}\nSELECT in_steps, in_rows, in_report, from_agent, to_agent,\n"
            "  mode, outcome, detection, confidence, COUNT(*)\nFROM h\nGROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9"
        )
        for in_steps, in_rows, in_report, sender, receiver, *kind, n in rows:
            for numbers, by_steps, by_rows in ((panels, in_steps, in_rows), (report, in_report, in_report)):
                if by_steps:
                    numbers.outcomes[kind[1]] += n
                    numbers.pairs[sender or UNNAMED, receiver or UNNAMED] += n
                if by_rows:
                    numbers.kinds[tuple(kind)] += n

    def _lists(self, panels: Numbers, report: Numbers) -> None:
        """What panels count in other tables, by the time of the handoff or task that it belongs to."""
        for what, columns, table, condition in (
            ("lost", "x.id, COALESCE(x.cause, 'unknown')", "handoff_constraints", "x.counted AND NOT x.got"),
            ("repeats", "x.tool, x.repeat_kind, COALESCE(x.cause, 'unknown')", "tool_calls", "x.repeat_kind IS NOT NULL"),
            ("leaks", "x.tool", "leaks", "TRUE"),
            ("findings", "x.kind, x.severity", "findings", "TRUE"),
        ):
            of = "t" if what == "findings" else "h"
            key = "task_id" if of == "t" else "handoff_id"
            rows = self._ask(
                f"WITH {self._tasks if of == 't' else self._handoffs}\n"
                f"SELECT {of}.in_rows, {of}.in_report, COUNT(*), {columns}\nFROM {table} x\n"
                f"JOIN {of} ON {of}.{key} = x.{key}\nWHERE {condition}\n"
                f"GROUP BY {of}.in_rows, {of}.in_report, {columns}"
            )
            for in_rows, in_report, n, *texts in rows:
                for numbers, counts in ((panels, in_rows), (report, in_report)):
                    if counts:
                        getattr(numbers, what)[tuple(texts)] += n

    def _apart(self, subjects: str, table: str) -> tuple[int, int]:
        (row,) = self._ask(
            f"WITH {subjects}\nSELECT COUNT(*) FILTER (WHERE in_steps <> in_report),\n"
            f"  COUNT(*) FILTER (WHERE in_rows <> in_report)\nFROM {table}"
        )
        return row[0], row[1]

    def _crossing(self) -> int:
        ends = [_instant(t) for t in (self._asked.since, self._asked.until) if t]
        if not ends:
            return 0
        crosses = " OR ".join(f"(start < {end} AND last_activity >= {end})" for end in ends)
        return int(self._ask(f"SELECT COUNT(*) FROM tasks WHERE {crosses}")[0][0])


def _said(rows: list[tuple[Any, ...]], scale: float) -> Said:
    """From rows of reason, number of subjects, numerator and denominator."""
    known = [row for row in rows if row[0] is None]
    base = sum(int(row[3] or 0) for row in known)
    found = sum(int(row[2] or 0) for row in known) * scale if base else None
    value = None if found is None else found / base
    return Said(value, found, base, sum(int(row[1]) for row in rows if row[0] is not None))


def expected(report: Numbers, counted: Counted, shown: Range, listed: list[dict[str, Any]]) -> Numbers:
    """What panels must show: what the report says where both are about the same handoffs and tasks, else what was counted."""
    own = counted.panels
    handoffs, handoff_rows = (n == 0 for n in counted.handoffs_apart)
    tasks, task_rows = (n == 0 for n in counted.tasks_apart)
    equal = {m["name"] for m in listed if (handoffs if m["subject"] == "handoff" else tasks)}
    by_steps, by_rows = report if handoffs else own, report if handoff_rows else own
    return replace(
        own,
        measures=own.measures | {name: said for name, said in report.measures.items() if name in equal},
        outcomes=by_steps.outcomes,
        pairs=by_steps.pairs,
        kinds=by_rows.kinds,
        lost=by_rows.lost,
        repeats=by_rows.repeats,
        leaks=by_rows.leaks,
        findings=(report if task_rows else own).findings,
        handoffs=report.handoffs,
        worst=worst_of(report.handoffs, shown),
    )


def checked(report: Numbers, counted: Counted, asked: Window) -> Iterator[Compared]:
    """The report against the single rows of its tasks, and whether panels and report are about the same where they must be."""
    yield from between(report, counted.report)
    if asked.whole():
        yield "tasks of panels or report alone", counted.tasks_apart[0], 0
        if not counted.crossing:
            yield "handoffs of panels or report alone, though no task is under way at an end", counted.handoffs_apart[0], 0
