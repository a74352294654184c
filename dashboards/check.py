#!/usr/bin/env python3
"""Walks every panel, variable, annotation and alert of the generated dashboards.

    python check.py --lint                                   # the files alone, without an endpoint
    python check.py DSN measures.json                        # every query, in both protocols
    python check.py DSN measures.json --report report.json   # and the numbers, against `baton eval --format json`
    python check.py DSN measures.json --report report.json --since A --until B   # of `baton eval --since A --until B`

The report has to be of the same store and window: without `--since` and `--until` the walk looks at all data there is.
With a report, panels show the window from its start until a millisecond before its end, which is not in a report either.
Prints a line for each failure, and `N passed, N failed` at the end; 1 where something failed.
"""

from __future__ import annotations

import argparse
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gen import measures
from walk import boards, lints, numbers, single
from walk.macros import Range
from walk.run import Failed, Recorder, Wire
from walk.single import Window
from walk.tour import Tour, span

HERE = Path(__file__).resolve().parent
# Where the collector names its metrics.
METRICS = HERE.parent / "collector" / "src" / "live" / "metrics.rs"


def arguments() -> argparse.Namespace:
    """What was asked for."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("dsn", nargs="?", help="the endpoint, as postgresql://USER:PASSWORD@HOST:PORT/baton")
    p.add_argument("measures", nargs="?", type=Path, help="list of measures, or the binary")
    p.add_argument("--lint", action="store_true", help="only the files, no endpoint")
    p.add_argument("--report", type=Path, help="`baton eval --format json` of the same store and window")
    p.add_argument("--numbers", action="store_true", help="only the numbers: no other choices of variables, no alerts")
    p.add_argument("--expect-data", action="store_true", help="a panel without data is a failure")
    p.add_argument("--since", type=instant, help="start of the time range [all data]")
    p.add_argument("--until", type=instant, help="its end [all data]")
    p.add_argument(
        "--firing", help="uids of the SQL rules that fire at --until, with commas; exactly these must [not looked at]"
    )
    p.add_argument("--only", default="", help="walk only places whose name holds this, as 'handoffs-one' or 'alert'")
    p.add_argument("--statements", type=Path, help="write each statement that is sent to this file, a JSON string a line")
    p.add_argument("--folder", type=Path, default=HERE / "grafana", help="generated files [%(default)s]")
    args = p.parse_args()
    if not args.lint and not (args.dsn and args.measures):
        p.error("a DSN and the list of measures are needed, or --lint")
    if args.report and bool(args.since) != bool(args.until):
        p.error("a report of a window needs both --since and --until, one of all data neither")
    return args


def instant(text: str) -> datetime:
    """A time; without a zone it is UTC, as everywhere in Baton."""
    t = datetime.fromisoformat(text)
    return t if t.tzinfo else t.replace(tzinfo=UTC)


def compare_report(tour: Tour, asked: Window, report: dict[str, Any], listed: list[dict[str, Any]]) -> None:
    """Holds the report against single rows, and tells the walk what its panels must show."""
    said = {"since": asked.since, "until": asked.until}
    other = [f"{k} {report['window'][k]}" for k, t in said.items() if t and instant(report["window"][k]) != t]
    if not tour.tally.add("report", [f"is of another window: {' '.join(other)}"] if other else []):
        return
    try:
        counted = single.Singles(tour.runner, listed, tour.range, asked).counted()
    except Failed as e:
        tour.tally.add("single rows", [str(e)])
        return
    own = numbers.of_report(report, listed)
    tour.tally.add("report", tour.compare(single.checked(own, counted, asked), "nothing was counted"))
    tour.must = single.expected(own, counted, tour.range, listed)
    n = counted.handoffs_apart[0]
    print(
        f"report: {own.outcomes.total()} handoffs; panels: {tour.must.outcomes.total()}; of one of them alone: {n}, "
        f"with {counted.crossing} tasks under way at an end; "
        f"panels of handoffs are held against {'single rows' if n else 'the report'}"
    )


def main() -> int:
    """0: all passed."""
    args = arguments()
    all_boards, rules = boards.load(args.folder)
    runbook = (HERE / "runbook.md").read_text(encoding="utf-8")
    failures = lints.everything(all_boards, rules, runbook, METRICS)
    passed = 0
    if not args.lint:
        listed = [vars(m) for m in measures.load(args.measures).all]
        wire = Recorder(Wire(args.dsn))
        try:
            all_data = span(wire)
        except Failed as e:
            print(f"the endpoint does not answer: {e}")
            return 1
        window = Range(args.since or all_data.since, args.until or all_data.until)
        asked = Window(args.since, args.until)
        if args.report:
            window = asked.shown() or window
        tour = Tour(wire, window, None, args.expect_data, args.only, args.numbers)
        if args.report:
            compare_report(tour, asked, json.loads(args.report.read_text(encoding="utf-8")), listed)
            # Other drivers are to send what dashboards ask.
            wire.statements.clear()
        for b in all_boards:
            tour.board(b)
        if not args.numbers:
            tour.alerts(rules)
        if args.firing is not None:
            tour.firing(rules, {uid for uid in args.firing.split(",") if uid})
        passed += tour.tally.passed
        failures += tour.tally.failures
        if args.statements:
            lines = [json.dumps(sql) + "\n" for sql in wire.statements]
            args.statements.write_text("".join(lines), encoding="utf-8")
    elif not failures:
        passed += len(all_boards) + len(rules)
    for line in failures:
        print(line)
    compared = f", {tour.tally.numbers} numbers compared" if not args.lint and args.report else ""
    print(f"{passed} passed, {len(failures)} failed{compared}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
