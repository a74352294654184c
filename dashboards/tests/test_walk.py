"""The walk itself: forms, numbers, and what it asks, against answers that are made up."""

import os
import unittest
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import generate
from walk import boards, numbers, shapes
from walk.boards import Asked, Board
from walk.macros import Range
from walk.run import Failed, Result
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


class Numbers(unittest.TestCase):
    report = numbers.Report(
        {
            "completeness": {"value": 0.5, "numerator": 3, "denominator": 6, "unknown": 2},
            "leaks": {"value": None, "numerator": None, "denominator": None, "unknown": 1},
        },
        handoffs=4,
        accepted=3,
        scales={"completeness": 1.0, "leaks": 1.0},
        shares={"completeness"},
    )

    def differs(self, kind: str, sql: str, columns: list[str], rows: list[tuple[Any, ...]]) -> list[str]:
        return list(numbers.wrong(asked(kind, None, sql), Result(columns, [], rows), self.report))

    def test_a_stat(self) -> None:
        sql = "... measure = 'completeness'"
        columns = ["value", "of", "unknown"]
        self.assertEqual(self.differs("stat", sql, columns, [(0.5, 6, 2)]), [])
        self.assertEqual(len(self.differs("stat", sql, columns, [(0.4, 5, 1)])), 3)

    def test_unknown_is_not_zero(self) -> None:
        sql = "... measure = 'leaks'"
        columns = ["value", "of", "unknown"]
        self.assertEqual(self.differs("stat", sql, columns, [(None, 0, 1)]), [])
        self.assertEqual(self.differs("stat", sql, columns, [(0.0, 0, 1)]), ["leaks: shows 0.0, the report says None"])

    def test_a_series_and_a_volume(self) -> None:
        self.assertEqual(self.differs("series", "measure = 'completeness'", ["time", "completeness"], [(0, 0.5)]), [])
        self.assertEqual(len(self.differs("series", "measure = 'completeness'", ["time", "completeness"], [])), 1)
        volume = ["time", "accepted", "not accepted"]
        self.assertEqual(self.differs("series", "measure = 'handoffs'", volume, [(0, 3, 1)]), [])

    def test_tables(self) -> None:
        pairs = ["from", "to", "handoffs"]
        self.assertEqual(self.differs("table", "measure = 'handoffs'", pairs, [("a", "b", 3), ("b", "a", 1)]), [])
        self.assertEqual(len(self.differs("table", "measure = 'handoffs'", pairs, [("a", "b", 3)])), 1)
        listed = ["measure", "value", "unit", "better", "of", "unknown"]
        self.assertEqual(self.differs("table", "", listed, [("completeness", 50.0, "%", "higher", 6, 2)]), [])
        self.assertEqual(len(self.differs("table", "", listed, [("completeness", 0.5, "%", "higher", 6, 2)])), 1)
        why = ["measure", "why unknown", "handoffs or tasks"]
        self.assertEqual(self.differs("table", "", why, [("leaks", "x", 1), ("completeness", "y", 2)]), [])

    def test_one_handoff(self) -> None:
        said = dict.fromkeys(numbers.OF_HANDOFFS) | {"completeness": 0.5, "unknown": {"artifact_reuse": "no references"}}
        report = numbers.Report({}, 1, 1, {}, {"completeness"}, {"abc": said})
        q = asked("table", None, "measure_completeness")
        columns = ["measure", "value", "unit", "better", "of", "why unknown"]
        right = [("completeness", 50.0, "%", "higher", 6, None), ("artifact_reuse", None, "%", "higher", 0, "no references")]
        wrong = [("completeness", 0.5, "%", "higher", 6, None), ("artifact_reuse", 0.0, "%", "higher", 0, None)]
        q.sent = "FROM measure_completeness WHERE id = 'abc'"
        self.assertEqual(list(numbers.wrong(q, Result(columns, [], right), report)), [])
        self.assertEqual(len(list(numbers.wrong(q, Result(columns, [], wrong), report))), 3)
        q.sent = "FROM measure_completeness WHERE id = 'xyz'"
        self.assertIn("no handoff xyz", next(iter(numbers.wrong(q, Result(columns, [], right), report))))


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
    def board(self) -> Board:
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
