"""Every lint passes the dashboards as they are, and catches a wrong one."""

import copy
import unittest
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from walk import boards, lints
from walk.boards import Board

HERE = Path(__file__).resolve().parent.parent
BOARDS, RULES = boards.load(HERE / "grafana")
RUNBOOK = (HERE / "runbook.md").read_text(encoding="utf-8")
UIDS = {b.uid for b in BOARDS}
OF = {b.uid: {v["name"] for v in b.variables()} for b in BOARDS}


def copied(uid: str = "handoffs-overview") -> Board:
    return copy.deepcopy(next(b for b in BOARDS if b.uid == uid))


def first(board: Board) -> dict[str, Any]:
    return next(p for p in board.panels() if p["type"] == "stat")


class Lints(unittest.TestCase):
    def catches(self, found: Iterable[str], words: str) -> None:
        lines = list(found)
        self.assertTrue(any(words in line for line in lines), f"{words!r} is not in {lines}")

    def spoiled(self, lint: Callable[[Board], Iterable[str]], spoil: Callable[[Board], Any], words: str) -> None:
        board = copied()
        self.assertEqual(list(lint(board)), [])
        spoil(board)
        self.catches(lint(board), words)

    def test_all_is_well(self) -> None:
        collector = HERE.parent / "collector" / "src" / "live" / "metrics.rs"
        self.assertEqual(lints.everything(BOARDS, RULES, RUNBOOK, collector), [])

    def test_two_of_one_uid(self) -> None:
        self.catches(lints.unique_uids([BOARDS[0], BOARDS[0]], []), "2 dashboards")
        self.catches(lints.unique_uids([], [RULES[0], RULES[0]]), "2 rules")

    def test_an_unreadable_uid(self) -> None:
        board = copied()
        board.model["uid"] = "aB3xQ_"
        self.catches(lints.unique_uids([board], []), "no readable uid")

    def test_two_panels_of_one_number(self) -> None:
        def spoil(b: Board) -> None:
            first(b)["id"] = b.model["panels"][0]["id"]

        self.spoiled(lints.unique_ids, spoil, "2 panels have the number")

    def test_what_a_panel_must_say(self) -> None:
        cases = [
            ("description", "", "no description"),
            ("description", "The number of things that happened, from a to b. No rows: none.", "which way is good"),
            ("description", "The number of things that happened, from a to b. More is better.", "an empty panel"),
            ("title", "", "no title"),
        ]
        for key, value, words in cases:
            with self.subTest(words):
                self.spoiled(lints.described, partial(set_first, key=key, value=value), words)

    def test_no_unit(self) -> None:
        self.spoiled(lints.described, lambda b: first(b)["fieldConfig"]["defaults"].pop("unit"), "no unit")

    def test_zero_for_unknown(self) -> None:
        self.spoiled(lints.described, lambda b: first(b)["fieldConfig"]["defaults"].update(noValue="0"), "a missing value")

    def test_panels_over_each_other(self) -> None:
        def spoil(b: Board) -> None:
            stats = [p for p in b.panels() if p["type"] == "stat"]
            stats[1]["gridPos"] = dict(stats[0]["gridPos"])

        self.spoiled(lints.placed, spoil, "lies over")

    def test_a_panel_outside_the_grid(self) -> None:
        self.spoiled(lints.placed, lambda b: first(b)["gridPos"].update(x=20), "outside the grid")

    def test_a_variable_that_is_not_there(self) -> None:
        def spoil(b: Board) -> None:
            first(b)["targets"][0]["rawSql"] += " AND tool IN (${tool})"

        self.spoiled(lints.known_variables, spoil, "no variable tool")

    def test_a_fixed_data_source(self) -> None:
        self.spoiled(lints.known_variables, lambda b: first(b)["datasource"].update(uid="P123"), "fixed data source")

    def test_a_variable_before_the_one_it_uses(self) -> None:
        self.spoiled(lints.known_variables, reverse, "stands after it")

    def test_an_unquoted_name(self) -> None:
        def spoil(b: Board) -> None:
            first(b)["targets"][0]["rawSql"] = "SELECT 1 WHERE from_agent = '${from_agent}'"

        self.spoiled(lints.quoted, spoil, "is not quoted")

    def test_an_unquoted_all(self) -> None:
        def spoil(b: Board) -> None:
            next(v for v in b.variables() if v.get("includeAll"))["allValue"] = ".*"

        self.spoiled(lints.quoted, spoil, "All needs a quoted value")

    def test_a_bracket_in_a_macro(self) -> None:
        def spoil(b: Board) -> None:
            first(b)["targets"][0]["rawSql"] += " AND $__timeFilter(lower(x))"

        self.spoiled(lints.macros_expand, spoil, "the first bracket")

    def test_an_unknown_macro(self) -> None:
        def spoil(b: Board) -> None:
            first(b)["targets"][0]["rawSql"] += " AND $__timeFiltre(x)"

        self.spoiled(lints.macros_expand, spoil, "no macro __timeFiltre")

    def test_links(self) -> None:
        cases = [
            ("handoffs-pair", "handoffs-pears", "leads to no dashboard"),
            ("${__url_time_range}", "x=1", "does not carry the time range"),
            ("${datasource:queryparam}", "x=1", "does not carry the data source"),
            ("var-from_agent", "var-sender", "has no variable sender"),
            (":percentencode", "", "is not encoded"),
        ]

        def lint(b: Board) -> Iterable[str]:
            return lints.links(b, UIDS, OF)

        for old, new, words in cases:
            with self.subTest(words):
                self.spoiled(lint, partial(change_links, old=old, new=new), words)

    def test_no_menu(self) -> None:
        self.spoiled(lambda b: lints.links(b, UIDS, OF), lambda b: b.model.update(links=[]), "no link to the others")

    def test_settings(self) -> None:
        cases: list[tuple[dict[str, Any], str]] = [
            ({"graphTooltip": 0}, "no shared crosshair"),
            ({"editable": True}, "can be edited"),
            ({"tags": []}, "lacks the tag"),
            ({"title": "Overview"}, "the title"),
            ({"time": {}}, "no time range"),
            ({"schemaVersion": 16}, "schema version 16"),
        ]
        for change, words in cases:
            with self.subTest(words):
                self.spoiled(lints.settings, partial(update, change=change), words)
        self.spoiled(lints.settings, lambda b: b.variables()[1].pop("label"), "no label")

    def test_alerts(self) -> None:
        def spoil(change: Callable[[dict[str, Any]], Any]) -> list[str]:
            rule = copy.deepcopy(RULES[0])
            change(rule)
            return list(lints.alert(rule, RUNBOOK, BOARDS))

        self.assertEqual(spoil(lambda r: r), [])
        cases: list[tuple[Callable[[dict[str, Any]], Any], str]] = [
            (lambda r: r["labels"].update(severity="red"), "severity"),
            (lambda r: r["annotations"].update(summary="It is bad"), "no value"),
            (lambda r: r["annotations"].update(summary="{{ .Values.Q.Value }}"), "asks for Q"),
            (lambda r: r["annotations"].update(summary="{{ $values.A }} .Values.A"), "dollar sign"),
            (lambda r: r["annotations"].pop("description"), "no description"),
            (lambda r: r["annotations"].update(runbook="runbook.md#nothing"), "no heading"),
            (lambda r: r.update(condition="Z"), "no query Z"),
            (lambda r: r.update(noDataState=""), "no state for no data"),
            (lambda r: r.update(panelId=9999), "its panel does not exist"),
            (lambda r: r["data"][-1]["model"].update(expression="W"), "asks for W"),
        ]
        for change, words in cases:
            with self.subTest(words):
                self.catches(spoil(change), words)

    def test_a_metric_that_the_collector_does_not_have(self) -> None:
        board = copied("handoffs-pipeline")
        panel = next(p for p in board.panels() if "expr" in p["targets"][0])
        panel["targets"][0]["expr"] = "sum(rate(baton_requests[5m]))"
        self.catches(lints.metrics([board], [], {"baton_requests_total"}), "no metric baton_requests")

    def test_metric_names_of_the_source(self) -> None:
        source = """
            requests: Family<Request, Counter>,
            answer: Histogram,
            used: Gauge<i64, AtomicI64>,
            r.register("requests", "Requests", m.requests.clone());
            r.register_with_unit("answer", "Time", Unit::Seconds, m.answer.clone());
            r.register_with_unit(
                "memory",
                "Memory",
                Unit::Bytes,
                m.used.clone(),
            );
        """
        times = {f"baton_answer_seconds_{end}" for end in ("bucket", "sum", "count")}
        self.assertEqual(lints.metric_names(source), {"baton_requests_total", "baton_memory_bytes", *times})


def set_first(board: Board, key: str, value: str) -> None:
    first(board)[key] = value


def update(board: Board, change: dict[str, Any]) -> None:
    board.model.update(change)


def reverse(board: Board) -> None:
    board.model["templating"]["list"].reverse()


def change_links(board: Board, old: str, new: str) -> None:
    for p in board.panels():
        for o in p["fieldConfig"].get("overrides", []):
            for pr in o["properties"]:
                if pr["id"] == "links":
                    for link in pr["value"]:
                        link["url"] = link["url"].replace(old, new)


if __name__ == "__main__":
    unittest.main()
