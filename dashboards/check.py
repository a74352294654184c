#!/usr/bin/env python3
"""Walks every panel, variable, annotation and alert of the generated dashboards.

    python check.py --lint                                   # the files alone, without an endpoint
    python check.py DSN measures.json                        # every query, in both protocols
    python check.py DSN measures.json --report report.json   # and the numbers, against `baton eval --format json`

The report has to be of the same store, without `--since` and `--until`: the walk looks at all data there is.
Prints a line for each failure, and `N passed, N failed` at the end; 1 where something failed.
"""

from __future__ import annotations

import argparse
import json
import sys
from datetime import datetime
from pathlib import Path

from gen import measures
from walk import boards, lints
from walk.macros import Range
from walk.numbers import Report
from walk.run import Failed, Recorder, Wire
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
    p.add_argument("--report", type=Path, help="`baton eval --format json` of the same store")
    p.add_argument("--expect-data", action="store_true", help="a panel without data is a failure")
    p.add_argument("--since", type=datetime.fromisoformat, help="start of the time range [all data]")
    p.add_argument("--until", type=datetime.fromisoformat, help="its end [all data]")
    p.add_argument(
        "--firing", help="uids of the SQL rules that fire at --until, with commas; exactly these must [not looked at]"
    )
    p.add_argument("--only", default="", help="walk only places whose name holds this, as 'handoffs-one' or 'alert'")
    p.add_argument("--statements", type=Path, help="write each statement that is sent to this file, a JSON string a line")
    p.add_argument("--folder", type=Path, default=HERE / "grafana", help="generated files [%(default)s]")
    args = p.parse_args()
    if not args.lint and not (args.dsn and args.measures):
        p.error("a DSN and the list of measures are needed, or --lint")
    return args


def main() -> int:
    """0: all passed."""
    args = arguments()
    all_boards, rules = boards.load(args.folder)
    runbook = (HERE / "runbook.md").read_text(encoding="utf-8")
    failures = lints.everything(all_boards, rules, runbook, METRICS)
    passed = 0
    if not args.lint:
        listed = [vars(m) for m in measures.load(args.measures).all]
        report = Report.of(json.loads(args.report.read_text(encoding="utf-8")), listed) if args.report else None
        wire = Recorder(Wire(args.dsn))
        try:
            all_data = span(wire)
        except Failed as e:
            print(f"the endpoint does not answer: {e}")
            return 1
        window = Range(args.since or all_data.since, args.until or all_data.until)
        tour = Tour(wire, window, report, args.expect_data, args.only)
        for b in all_boards:
            tour.board(b)
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
    print(f"{passed} passed, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
