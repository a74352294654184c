"""The walk itself: forms, numbers, and what it asks, against answers that are made up."""

import os
import unittest
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import generate
from walk import boards, numbers, shapes
from walk.boards import Asked, Board
from walk.macros import Range
from walk.run import Failed, Result, kind_of
from walk.tour import Tour

HERE = Path(__file__).resolve().parent.parent
RANGE = Range(datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 11, 8, tzinfo=UTC))
T = datetime(2026, 11, 2, tzinfo=UTC)


def asked(kind: str, panel: dict[str, Any] | None = None, sql: str = "SELECT 1") -> Asked:
    return Asked(None, "board / panel", kind, sql, panel)


def problems(kind: str, columns: list[str], kinds: list[str], rows: list[tuple[Any, ...]], panel: Any = None) -> list[str]:
    return list(shapes.wrong(asked(kind, panel), Result(columns, kinds, rows)))


class Shapes(unittest.TestCase):
    def test_a_series(self) -> None:
        good = [(0.0, 1.0), (300.0, None)]
        self.assertEqual(problems("series", ["time", "v"], ["number", "number"], good), [])
        self.assertIn("not time", problems("series", ["t", "v"], ["number", "number"], good)[0])
        self.assertIn("not ascend", problems("series", ["time", "v"], ["number", "number"], good[::-1])[0])
        self.assertIn("not a number", problems("series", ["time", "v"], ["number", "text"], good)[0])
        self.assertIn("no time", problems("series", ["time", "v"], ["number", "number"], [(None, 1)])[0])
        self.assertIn("no value", problems("series", ["time"], ["number"], [(0.0,)])[0])

    def test_a_stat(self) -> None:
        self.assertEqual(problems("stat", ["v"], ["number"], [(1,)]), [])
        self.assertIn("2 rows", problems("stat", ["v"], ["number"], [(1,), (2,)])[0])
        self.assertIn("not a number", problems("stat", ["v"], ["text"], [("1",)])[0])

    def test_an_alert_is_one_number(self) -> None:
        self.assertIn("one number", problems("alert", ["a", "b"], ["number", "number"], [(1, 2)])[0])

    def test_a_variable(self) -> None:
        self.assertEqual(problems("variable", ["name"], ["text"], [("a",)]), [])
        self.assertIn("not text", problems("variable", ["name"], ["number"], [(1,)])[0])
        self.assertIn("NULL", problems("variable", ["name"], ["text"], [(None,)])[0])
        self.assertIn("one is needed", problems("variable", ["a", "b"], ["text", "text"], [])[0])

    def test_an_annotation(self) -> None:
        self.assertEqual(problems("annotation", ["time", "text"], ["time", "text"], [(T, "a")]), [])
        self.assertEqual(len(problems("annotation", ["at", "what"], ["time", "text"], [])), 2)

    def test_columns_that_the_panel_names(self) -> None:
        link = {"url": "/d/x?a=${__data.fields.id:percentencode}"}
        override = {
            "matcher": {"id": "byName", "options": "rate"},
            "properties": [{"id": "links", "value": [link]}],
        }
        panel = {"fieldConfig": {"overrides": [override]}}
        self.assertEqual(problems("table", ["rate", "id"], ["number", "text"], [], panel), [])
        found = problems("table", ["name"], ["text"], [], panel)
        self.assertEqual([f.split(",")[0] for f in found], ["no column id", "no column rate"])
        matrix = {"transformations": [{"id": "groupingToMatrix", "options": {"rowField": "from"}}]}
        self.assertIn("no column from", problems("table", ["name"], ["text"], [], matrix)[0])

    def test_an_empty_panel(self) -> None:
        self.assertTrue(shapes.empty(asked("table"), Result(["a"], ["text"], [])))
        may = Asked(None, "handoffs-one / Leaks", "table", "", None)
        self.assertFalse(shapes.empty(may, Result(["a"], ["text"], [])))

    def test_panels_that_may_be_empty_exist(self) -> None:
        places = {q.place for b in boards.load(HERE / "grafana")[0] for q in boards.queries(b)}
        self.assertLessEqual(set(shapes.MAY_BE_EMPTY), places)


def single(key: str, at: str = "2026-11-02T00:00:00Z", lost: int = 0, **more: Any) -> dict[str, Any]:
    """A handoff as a report has it."""
    return {
        **dict.fromkeys(numbers.OF_HANDOFFS),
        "handoff_id": key,
        "time": at,
        "constraints": {"lost": [{"id": "c", "cause": "x"}] * lost},
        "leaks": [],
        "lost_tool_results": 0,
        "repeats": Counter(),
        "unknown": {},
        **more,
    }


class Numbers(unittest.TestCase):
    def setUp(self) -> None:
        self.must = numbers.Numbers(
            measures={
                "completeness": numbers.Said(0.5, 3, 6, 2),
                "leaks": numbers.Said(None, None, 0, 1),
            },
            outcomes=Counter({"accepted": 3, "refused": 1}),
            pairs=Counter({("a", "b"): 3, ("b", "(unnamed)"): 1}),
            kinds=Counter({("pass_control", "accepted", "tool", "certain"): 4}),
            lost=Counter({("no-refund", "unknown"): 2}),
            of_pairs={("a", "b"): {"completeness": 0.5}, ("b", "(unnamed)"): {"completeness": None}},
            reasons=Counter({("leaks", "x"): 1, ("completeness", "y"): 2}),
            shares=frozenset({"completeness"}),
        )

    def differs(self, kind: str, sql: str, columns: list[str], rows: list[tuple[Any, ...]], sent: str = "") -> list[str]:
        q = asked(kind, None, sql)
        q.sent = sent
        kinds = [kind_of(x) for x in rows[0]] if rows else ["text"] * len(columns)
        compared = list(numbers.shown(q, Result(columns, kinds, rows), self.must))
        self.assertTrue(compared, "nothing is compared")
        return numbers.wrong(compared)

    def test_a_stat(self) -> None:
        sql = "... measure = 'completeness'"
        columns = ["value", "of", "unknown"]
        self.assertEqual(self.differs("stat", sql, columns, [(0.5, 6, 2)]), [])
        self.assertEqual(len(self.differs("stat", sql, columns, [(0.4, 5, 1)])), 3)

    def test_unknown_is_not_zero(self) -> None:
        sql = "... measure = 'leaks'"
        columns = ["value", "of", "unknown"]
        self.assertEqual(self.differs("stat", sql, columns, [(None, 0, 1)]), [])
        self.assertEqual(self.differs("stat", sql, columns, [(0.0, 0, 1)]), ["leaks: shows 0.0, must be None"])
        count = ["leaks", "handoffs known"]
        self.assertEqual(self.differs("stat", sql, count, [(None, 0)]), [])
        self.assertEqual(len(self.differs("stat", sql, count, [(0, 1)])), 2)

    def test_a_series_and_a_volume(self) -> None:
        self.assertEqual(self.differs("series", "measure = 'completeness'", ["time", "completeness"], [(0, 0.5)]), [])
        self.assertEqual(len(self.differs("series", "measure = 'completeness'", ["time", "completeness"], [])), 1)
        volume = ["time", "accepted", "not accepted"]
        self.assertEqual(self.differs("series", "measure = 'handoffs'", volume, [(0, 3, 1)]), [])
        self.assertEqual(len(self.differs("series", "measure = 'handoffs'", volume, [(0, 4, 0)])), 2)
        counts = ["handoffs", "accepted", "share accepted"]
        self.assertEqual(self.differs("stat", "measure = 'handoffs'", counts, [(4, 3, 0.75)]), [])
        self.assertEqual(len(self.differs("stat", "measure = 'handoffs'", counts, [(5, 4, 0.8)])), 3)

    def test_pairs(self) -> None:
        columns = ["from", "to", "handoffs", "completeness"]
        right = [("a", "b", 3, 0.5), ("b", "(unnamed)", 1, None)]
        self.assertEqual(self.differs("table", "", columns, right), [])
        self.assertEqual(len(self.differs("table", "", columns, right[:1])), 2)
        self.assertEqual(len(self.differs("table", "", columns, [("a", "b", 3, 0.4), ("b", "(unnamed)", 1, 0.0)])), 2)
        self.assertEqual(self.differs("table", "", columns[:3], [row[:3] for row in right]), [])

    def test_tables(self) -> None:
        listed = ["measure", "value", "unit", "better", "of", "unknown"]
        self.assertEqual(self.differs("table", "", listed, [("completeness", 50.0, "%", "higher", 6, 2)]), [])
        self.assertEqual(len(self.differs("table", "", listed, [("completeness", 0.5, "%", "higher", 6, 2)])), 1)
        why = ["measure", "why unknown", "handoffs or tasks"]
        self.assertEqual(self.differs("table", "", why, [("leaks", "x", 1), ("completeness", "y", 2)]), [])
        self.assertEqual(len(self.differs("table", "", why, [("leaks", "x", 1), ("completeness", "z", 2)])), 2)
        lost = ["constraint", "went missing", "handoffs"]
        self.assertEqual(self.differs("table", "", lost, [("no-refund", "unknown", 2)]), [])
        self.assertEqual(len(self.differs("table", "", lost, [("no-refund", "unknown", 1)])), 2)
        self.assertEqual(len(self.differs("table", "", lost, [])), 2)
        kinds = ["mode", "outcome", "detected by", "confidence", "handoffs"]
        self.assertEqual(self.differs("table", "", kinds, [("pass_control", "accepted", "tool", "certain", 4)]), [])
        self.assertEqual(self.differs("table", "", ["tool", "leaks", "handoffs"], []), [])
        self.assertEqual(len(self.differs("table", "", ["tool", "leaks", "handoffs"], [("get", 1, 1)])), 2)

    def test_a_table_that_is_cut_off(self) -> None:
        self.must.leaks = Counter({(f"tool {i}",): 2 for i in range(150)})
        rows: list[tuple[Any, ...]] = [(f"tool {i}", 2, 1) for i in range(100)]
        self.assertEqual(self.differs("table", "", ["tool", "leaks", "handoffs"], rows), [])
        self.assertEqual(len(self.differs("table", "", ["tool", "leaks", "handoffs"], [("tool 0", 3, 1), *rows[1:]])), 1)

    def test_one_handoff(self) -> None:
        self.must.handoffs = {"abc": single("abc", completeness=0.5, unknown={"artifact_reuse": "no references"})}
        self.must.strays = frozenset({"later"})
        columns = ["measure", "value", "unit", "better", "of", "why unknown"]
        right = [("completeness", 50.0, "%", "higher", 6, None), ("artifact_reuse", None, "%", "higher", 0, "no references")]
        spoilt = [("completeness", 0.5, "%", "higher", 6, None), ("artifact_reuse", 0.0, "%", "higher", 0, None)]
        self.assertEqual(self.differs("table", "", columns, right, "WHERE id = 'abc'"), [])
        self.assertEqual(len(self.differs("table", "", columns, spoilt, "WHERE id = 'abc'")), 3)
        self.assertIn("xyz in the report", self.differs("table", "", columns, right, "WHERE id = 'xyz'")[0])
        self.assertEqual(self.differs("table", "", columns, right, "WHERE id = 'later'"), [])
        self.assertEqual(self.differs("table", "", columns, [], "WHERE id = ''"), [])

    def test_the_worst_handoffs(self) -> None:
        leak = {"tool": "get"}
        handoffs = [
            single("a", lost=2, lost_tool_results=1, completeness=0.5),
            single("b", leaks=[leak], repeats=Counter(redundant=1)),
            single("before", "2026-10-31T23:59:59Z", lost=9),
        ]
        self.must.handoffs = {h["handoff_id"]: h for h in handoffs}
        self.must.worst = numbers.worst_of(self.must.handoffs, RANGE)
        self.assertEqual(self.must.worst, {"a": 3, "b": 2})
        columns = [
            "handoff",
            "time",
            "from",
            "to",
            "outcome",
            "went wrong",
            "lost constraints",
            "redundant calls",
            "retries",
            "leaks",
            "completeness",
        ]
        a = ("a", T, "x", "y", "accepted", 3, 2, 0, 0, 0, 0.5)
        b = ("b", T, "x", "y", "accepted", 2, 0, 1, 0, 1, None)
        self.assertEqual(self.differs("table", "", columns, [a, b]), [])
        self.assertEqual(self.differs("table", "WHERE l.n > 0", columns, [b]), [])
        self.assertEqual(self.differs("table", "", columns, [a]), ["rows of the worst handoffs: shows 1, must be 2"])
        self.assertEqual(len(self.differs("table", "", columns, [(*a[:5], 4, 3, *a[7:]), b])), 2)
        # One that did not happen in the time range, one that no report knows, and one of a task that goes on after it.
        self.assertEqual(len(self.differs("table", "", columns, [("before", T, "", "", "", 9, 9, 0, 0, 0, None), a, b])), 1)
        unknown = [("new", T, "", "", "", 9, 9, 0, 0, 0, None), a, b]
        self.assertEqual(len(self.differs("table", "", columns, unknown)), 1)
        self.must.strays = frozenset({"new"})
        self.assertEqual(self.differs("table", "", columns, unknown), [])

    def test_each_panel_with_numbers_is_compared(self) -> None:
        places = {q.place for b in boards.load(HERE / "grafana")[0] for q in boards.queries(b) if q.panel}
        self.assertLessEqual(set(numbers.NOT_COMPARED), places)
        tour = Tour(Recorder(), RANGE, must=self.must)
        tour.board(Walk.board())
        self.assertIn("b / p [all, simple]: nothing says what its numbers must be", tour.tally.failures)


class Recorder:
    """Answers every query with no rows, and keeps it."""

    def __init__(self, refuse: str | None = None) -> None:
        self.asked: list[tuple[str, bool]] = []
        self.refuse = refuse

    def run(self, sql: str, extended: bool) -> Result:
        self.asked.append((sql, extended))
        if self.refuse and self.refuse in sql:
            raise Failed("refused")
        return Result(["name"], ["text"], [("O'Brien",), ("b",)])


class Walk(unittest.TestCase):
    @staticmethod
    def board() -> Board:
        names = {"name": "v", "type": "query", "query": "SELECT name", "multi": True, "includeAll": True, "allValue": "'(all)'"}
        panel = {"id": 1, "type": "table", "title": "p", "targets": [{"rawSql": "SELECT x IN (${v})", "format": "table"}]}
        return Board("b.json", {"uid": "b", "panels": [panel], "templating": {"list": [names]}})

    def test_every_choice_in_both_protocols(self) -> None:
        runner = Recorder()
        Tour(runner, RANGE).board(self.board())
        panels = [(s, e) for s, e in runner.asked if s.startswith("SELECT x")]
        texts = [s for s, _ in panels]
        self.assertEqual([e for _, e in panels], [False, True] * 4)
        self.assertEqual(texts[0], "SELECT x IN ('(all)')")
        self.assertEqual(texts[2], "SELECT x IN ('O''Brien')")
        self.assertEqual(texts[4], "SELECT x IN ('O''Brien','b')")
        self.assertIn("x'') OR 1=1", texts[6])

    def test_a_refused_query_is_a_failure(self) -> None:
        tour = Tour(Recorder(refuse="SELECT x"), RANGE)
        tour.board(self.board())
        self.assertEqual(len(tour.tally.failures), 8)
        self.assertIn("b / p [all, simple]: refused", tour.tally.failures)

    def test_alerts_look_at_their_own_time(self) -> None:
        model = {"rawSql": "SELECT $__timeFrom()"}
        data = [{"refId": "A", "model": model, "relativeTimeRange": {"from": 3600, "to": 0}}]
        runner = Recorder()
        Tour(runner, RANGE).alerts([{"title": "a", "data": data}])
        since = (RANGE.until - timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.assertEqual(runner.asked[0][0], f"SELECT '{since}'")


@unittest.skipUnless(os.environ.get("BATON_MEASURES"), "BATON_MEASURES names no list of measures")
class Generated(unittest.TestCase):
    def test_the_same_each_time_and_as_committed(self) -> None:
        source = Path(os.environ["BATON_MEASURES"])
        made = generate.files(source)
        self.assertEqual(made, generate.files(source))
        for name, text in made.items():
            self.assertEqual((HERE / "grafana" / name).read_text(encoding="utf-8"), text, name)


if __name__ == "__main__":
    unittest.main()
