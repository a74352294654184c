#!/usr/bin/env python3
"""How fast a dashboard's panels are answered, with many who look at it at once.

    python bench.py DSN [--board handoffs-overview] [--viewers 10] [--seconds 60] [--every 10] [--days 30]

Each viewer has a connection, asks for every panel of the dashboard one after the other with all values chosen, and
does so again when `--every` seconds have passed since it began the last time, as with Grafana's refresh. Prints for each
panel the number of answers, the median and the 95th percentile in milliseconds, and the same over all answers. Viewers
are threads of this process: what they wait for is the endpoint.
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time
from datetime import timedelta
from pathlib import Path

from walk import boards, macros, variables
from walk.macros import Range
from walk.run import Wire
from walk.tour import Tour, span, values

HERE = Path(__file__).resolve().parent


def panels(dsn: str, uid: str, days: int) -> list[tuple[str, str]]:
    """Place and SQL of each panel, over the last days that hold data."""
    wire = Wire(dsn)
    newest = span(wire).until
    window = Range(newest - timedelta(days=days), newest)
    board = next(b for b in boards.load(HERE / "grafana")[0] if b.uid == uid)
    tour = Tour(wire, window)
    chosen = values(board, tour.choices(board), {})
    out = []
    for q in boards.queries(board):
        if q.panel is None:
            continue
        step = macros.step(window, q.panel.get("interval"))
        out.append((q.place, macros.expand(variables.put(q.sql, chosen), window, step)))
    return out


def look(dsn: str, asked: list[tuple[str, str]], until: float, every: float, taken: dict[str, list[float]]) -> None:
    """One viewer, until the time is over."""
    wire = Wire(dsn)
    while (began := time.monotonic()) < until:
        for place, sql in asked:
            start = time.monotonic()
            wire.run(sql, False)
            taken[place].append((time.monotonic() - start) * 1000)
        time.sleep(max(0.0, min(began + every, until) - time.monotonic()))


def line(name: str, ms: list[float]) -> str:
    """One line of the answer."""
    ordered = sorted(ms)
    p95 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))]
    return f"{len(ms):>7} {statistics.median(ms):>9.1f} {p95:>9.1f}  {name}"


def main() -> None:
    """Asks, and prints."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("dsn")
    p.add_argument("--board", default="handoffs-overview")
    p.add_argument("--viewers", type=int, default=10)
    p.add_argument("--seconds", type=float, default=60)
    p.add_argument("--every", type=float, default=10)
    p.add_argument("--days", type=int, default=30)
    args = p.parse_args()
    asked = panels(args.dsn, args.board, args.days)
    taken: dict[str, list[float]] = {place: [] for place, _ in asked}
    until = time.monotonic() + args.seconds
    viewers = [threading.Thread(target=look, args=(args.dsn, asked, until, args.every, taken)) for _ in range(args.viewers)]
    for i, v in enumerate(viewers):
        # They did not all open it in the same moment.
        v.start()
        time.sleep(args.every / args.viewers if i + 1 < len(viewers) else 0)
    for v in viewers:
        v.join()
    print(f"{'answers':>7} {'p50 ms':>9} {'p95 ms':>9}  panel")
    for place, ms in taken.items():
        print(line(place, ms))
    print(line("all panels", [x for ms in taken.values() for x in ms]))


if __name__ == "__main__":
    main()
