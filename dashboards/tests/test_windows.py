"""Numbers of windows: report, single rows and panels, over a small store in SQLite. One that is wrong must be found."""

import contextlib
import copy
import io
import re
import sqlite3
import unittest
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import check
from walk import boards, windows
from walk.boards import Board
from walk.macros import Range
from walk.run import Result, kind_of
from walk.single import Window
from walk.tour import Tour

HERE = Path(__file__).resolve().parent.parent
LISTED = [
    {"name": "completeness", "subject": "handoff", "unit": "share", "scale": 1.0},
    {"name": "partial", "subject": "task", "unit": "share", "scale": 1.0},
]

# Task, start and end. T2 is under way at 11:00.
TASKS = [("T1", "10:10", "10:21"), ("T2", "10:57", "11:02"), ("T3", "11:30", "11:31"), ("T4", "11:58", "11:59")]
# Handoff, task, time, required fields of six (None: unknown).
HANDOFFS = [
    ("a", "T1", "10:20", 6),
    ("b", "T2", "10:58", 3),
    ("c", "T2", "11:01", None),
    ("d", "T3", "11:30", 5),
    ("e", "T4", "11:59", 1),
]


def at(clock: str) -> datetime:
    return datetime.fromisoformat(f"2026-11-01T{clock}:00+00:00")


def text(clock: str) -> str:
    return f"2026-11-01T{clock}:00Z"


def step(clock: str) -> str:
    """The five minutes that a time lies in."""
    return text(f"{clock[:3]}{int(clock[3:]) // 5 * 5:02d}")


class Store:
    """An endpoint over tables of the same names and columns."""

    def __init__(self) -> None:
        self.db = sqlite3.connect(":memory:")
        self.db.executescript("""
            CREATE TABLE tasks (task_id, start, last_activity);
            CREATE TABLE handoffs (handoff_id, task_id, "time", last_activity, service, from_agent, to_agent, mode, outcome,
              detection, confidence, required_present);
            CREATE TABLE handoff_constraints (handoff_id, id, cause, counted, got);
            CREATE TABLE tool_calls (handoff_id, tool, repeat_kind, cause);
            CREATE TABLE leaks (handoff_id, tool);
            CREATE TABLE findings (task_id, kind, severity, last_activity);
            CREATE TABLE measure_sums (measure, "time", service, from_agent, to_agent, unknown,
              subjects, numerator, denominator);
            CREATE VIEW measure_completeness AS SELECT handoff_id AS id, TRUE AS rated, required_present AS numerator,
              6 AS denominator, CASE WHEN required_present IS NULL THEN 'not captured' END AS unknown FROM handoffs;
            CREATE VIEW measure_partial AS SELECT task_id AS id, TRUE AS rated, 0 AS numerator, 1 AS denominator,
              NULL AS unknown FROM tasks;
        """)
        ends = {}
        for task, start, end in TASKS:
            ends[task] = end
            self.add("tasks", task, text(start), text(end))
            self.add("measure_sums", "partial", step(end), None, None, None, None, 1, 0, 1)
        for handoff, task, time, present in HANDOFFS:
            pair = (None, "A", None)
            kind = ("pass_control", "accepted", "tool", "certain")
            self.add("handoffs", handoff, task, text(time), text(ends[task]), *pair, *kind, present)
            known = (None, 1, present, 6) if present is not None else ("not captured", 1, None, None)
            self.add("measure_sums", "completeness", step(time), *pair, *known)
            self.add("measure_sums", "handoffs", step(time), *pair, None, 1, 1, 1)
        self.add("handoff_constraints", "b", "no-refund", "dropped_by_filter", True, False)
        self.add("tool_calls", "b", "get_order", "redundant", None)
        self.add("leaks", "d", "get_order")
        self.add("findings", "T2", "leak", "error", text("11:02"))

    def add(self, table: str, *row: Any) -> None:
        self.db.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)

    def run(self, sql: str, extended: bool) -> Result:
        found = self.db.execute(sql)
        rows = found.fetchall()
        columns = [d[0] for d in found.description]
        kinds = [next((kind_of(row[i]) for row in rows if row[i] is not None), "number") for i in range(len(columns))]
        return Result(columns, kinds, rows)


def report(since: str | None, until: str | None) -> dict[str, Any]:
    """What Baton reports of a window, by its tasks' last activity."""
    tasks = {t for t, _, end in TASKS if (not since or since <= end) and (not until or end < until)}
    handoffs = [h for h in HANDOFFS if h[1] in tasks]
    known = [p for *_, p in handoffs if p is not None]
    found, base, n = sum(known), 6 * len(known), len(tasks)
    ids = {h[0] for h in handoffs}
    return {
        "window": {"since": text(since or "10:10"), "until": text(until or "11:59")},
        "measures": [
            {
                "name": "completeness",
                "value": found / base if base else None,
                "numerator": found if base else None,
                "denominator": base or None,
                "unknown": len(handoffs) - len(known),
            },
            {
                "name": "partial",
                "value": 0.0 if n else None,
                "numerator": 0 if n else None,
                "denominator": n or None,
                "unknown": 0,
            },
        ],
        "handoffs": [
            {
                "handoff_id": handoff,
                "time": text(time),
                "from_agent": "A",
                "to_agent": None,
                "mode": "pass_control",
                "outcome": "accepted",
                "detection": "tool",
                "confidence": "certain",
                "constraints": {"lost": [{"id": "no-refund", "cause": "dropped_by_filter"}] if handoff == "b" else []},
                "leaks": [{"tool": "get_order"}] if handoff == "d" else [],
                "lost_tool_results": 0,
            }
            for handoff, _, time, _ in handoffs
        ],
        "tool_calls": [{"handoff_id": "b", "tool": "get_order", "repeat_kind": "redundant", "cause": None}]
        if "b" in ids
        else [],
        "findings": [{"kind": "leak", "severity": "error"}] if "T2" in tasks else [],
    }


# Panels of the real dashboards, whose SQL SQLite reads too: handoffs, a measure of them, one of tasks, and a table of rows.
PANELS = {
    "handoffs-overview": {"Handoffs", "Completeness", "Who hands to whom"},
    "handoffs-pair": {"Modes, outcomes and confidence"},
    "handoffs-pipeline": {"Partial tasks", "Findings by kind"},
}


BOARDS = boards.load(HERE / "grafana")[0]


def some() -> list[Board]:
    out = []
    for b in copy.deepcopy(BOARDS):
        panels = [p for p in b.panels() if p["title"] in PANELS.get(b.uid, ())]
        out.append(Board(b.path, {**b.model, "panels": panels}))
    return out


class Numbers(unittest.TestCase):
    def setUp(self) -> None:
        self.store = Store()

    def failures(self, since: str | None, until: str | None, said: dict[str, Any] | None = None) -> list[str]:
        """Of a walk over a window, with the line that it prints in front."""
        asked = Window(at(since) if since else None, at(until) if until else None)
        tour = Tour(self.store, asked.shown() or Range(at("00:00"), at("23:00")), brief=True)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            check.compare_report(tour, asked, said or report(since, until), LISTED)
        self.printed = printed.getvalue()
        for b in some():
            tour.board(b)
        self.compared = tour.tally.numbers
        return tour.tally.failures

    def test_all_data_and_windows_are_right(self) -> None:
        for since, until, handoffs, apart in (
            (None, None, 5, 0),
            # Nobody is under way at an end.
            ("10:00", "12:00", 5, 0),
            ("11:10", "12:00", 2, 0),
            ("11:30", "11:35", 1, 0),
            # T2 is: b happened before the window, and its task ends in it; the other way round in the second.
            ("11:00", "12:00", 4, 1),
            ("10:00", "11:00", 1, 1),
            # No whole five minutes: the sums of 11:30 hold d and the end of its task at 11:31, and begin too early.
            ("11:31", "12:00", 2, 1),
            # Nothing happened.
            ("10:30", "10:40", 0, 0),
        ):
            with self.subTest(since=since, until=until):
                self.assertEqual(self.failures(since, until), [])
                self.assertGreater(self.compared, 20)
                self.assertIn(f"report: {handoffs} handoffs;", self.printed)
                self.assertIn(f"of one of them alone: {apart},", self.printed)

    def test_a_wrong_number_of_a_panel_is_found(self) -> None:
        for since, until in ((None, None), ("10:00", "12:00"), ("11:00", "12:00")):
            with self.subTest(since=since):
                self.store = Store()
                self.store.db.execute("UPDATE measure_sums SET numerator = 4 WHERE numerator = 5")
                found = self.failures(since, until)
                self.assertTrue(any("Completeness [all, simple]: completeness: shows" in line for line in found), found)
                self.assertEqual(len([line for line in found if "Partial tasks" in line]), 0, found)

    def test_a_handoff_too_few_is_found(self) -> None:
        self.store.db.execute("DELETE FROM measure_sums WHERE measure = 'handoffs' AND \"time\" = ?", (step("11:30"),))
        found = self.failures("11:00", "12:00")
        self.assertTrue(any("Handoffs [all, simple]: handoffs: shows 2, must be 3" in line for line in found), found)
        self.assertTrue(any("Who hands to whom" in line for line in found), found)

    def test_a_wrong_number_of_a_report_is_found(self) -> None:
        for since, until in (("10:00", "12:00"), ("11:00", "12:00")):
            right = report(since, until)
            for part, spoilt in (
                ("measures", [{**right["measures"][0], "numerator": 99}, right["measures"][1]]),
                ("measures", [right["measures"][0], {**right["measures"][1], "unknown": 1}]),
                ("measures", right["measures"][:1]),
                ("handoffs", right["handoffs"][1:]),
                ("findings", []),
                ("tool_calls", []),
            ):
                said = {**right, part: spoilt}
                found = self.failures(since, until, said)
                self.assertTrue(any(line.startswith("report: ") for line in found), found)

    def test_numbers_of_another_time_are_found(self) -> None:
        # Panels that forget the time range.
        every = some()
        for b in every:
            for p in b.panels():
                for t in p["targets"]:
                    t["rawSql"] = re.sub(r'\$__timeFilter\("time"\)', "TRUE", t["rawSql"])
        asked = Window(at("11:10"), at("12:00"))
        shown = asked.shown()
        assert shown
        tour = Tour(self.store, shown, brief=True)
        with contextlib.redirect_stdout(io.StringIO()):
            check.compare_report(tour, asked, report("11:10", "12:00"), LISTED)
        for b in every:
            tour.board(b)
        places = {line.split(" [")[0] for line in tour.tally.failures}
        self.assertLessEqual({"handoffs-overview / Completeness", "handoffs-pipeline / Partial tasks"}, places)

    def test_handoffs_in_both_though_no_task_crosses(self) -> None:
        # A handoff whose time is not that of its task: then the panels would be wrong, and no crossing task explains it.
        self.store.db.execute("UPDATE handoffs SET \"time\" = ? WHERE handoff_id = 'd'", (text("10:40"),))
        self.assertTrue(any("though no task is under way at an end" in line for line in self.failures("11:10", "12:00")))

    def test_a_report_of_another_window(self) -> None:
        found = self.failures("11:10", "12:00", report("11:00", "12:00"))
        self.assertIn("report: is of another window: since 2026-11-01T11:00:00Z", found)


class Windows(unittest.TestCase):
    def day(self, *tasks: tuple[str, str, str]) -> dict[str, Any]:
        """A report of tasks, with start, handoff and end each."""
        return {
            "tasks": [{"task_id": str(i), "start": start, "end": end} for i, (start, _, end) in enumerate(tasks)],
            "handoffs": [{"task_id": str(i), "time": time} for i, (_, time, _) in enumerate(tasks)],
        }

    def test_quiet_and_cut_ones(self) -> None:
        steady = [(f"2026-11-{d:02d}T{h:02d}:10:00Z",) * 3 for d in range(1, 25) for h in range(24)]
        # A week could begin on the 8th or 9th, but tasks go over midnight.
        over = [
            (f"2026-11-{d:02d}T{a}Z", f"2026-11-{d:02d}T{a}Z", f"2026-11-{d:02d}T{b}Z")
            for d, a, b in (
                (9, "05:59:00", "06:01:00"),
                (12, "07:59:00", "08:01:00"),
                (13, "10:14:00", "10:16:00"),
                (14, "10:14:00", "10:16:00"),
            )
        ]
        over += [(f"2026-11-{d:02d}T23:59:00Z",) * 2 + (f"2026-11-{d + 1:02d}T00:00:30Z",) for d in (7, 8)]
        days, hours, cut, fives = windows.chosen(self.day(*steady, *over))
        self.assertEqual(days[:2], ("2026-11-10T00:00:00Z", "2026-11-17T00:00:00Z"))
        self.assertEqual(hours[0][13:], ":00:00Z")
        self.assertEqual(cut[:2], ("2026-11-09T06:00:00Z", "2026-11-12T08:00:00Z"))
        self.assertEqual(fives[:2], ("2026-11-13T10:15:00Z", "2026-11-14T10:15:00Z"))

    def test_data_without_them(self) -> None:
        for tasks in ([], [("2026-11-01T00:00:00Z",) * 3]):
            with self.assertRaises(windows.NoneFoundError):
                windows.chosen(self.day(*tasks))


class Instants(unittest.TestCase):
    def test_without_a_zone_is_utc(self) -> None:
        self.assertEqual(check.instant("2026-11-01"), datetime(2026, 11, 1, tzinfo=UTC))
        self.assertEqual(check.instant("2026-11-01T02:00:00+01:00"), datetime(2026, 11, 1, 1, tzinfo=UTC))


if __name__ == "__main__":
    unittest.main()
