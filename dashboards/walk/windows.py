"""Windows for which the numbers are worth a look, from a report of all data: `python -m walk.windows report.json`.

Prints a line for each: since, until and what is special about it. They are chosen by what the data hold, so that another
generator cannot make them harmless without a word: 1 where some cannot be found.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

FIVE, HOUR, DAY = 300, 3600, 86400


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _text(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class NoneFoundError(ValueError):
    """The data hold no such window."""


def chosen(report: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Since, until and what is special, for each window."""
    spans = {t["task_id"]: (_seconds(t["start"]), _seconds(t["end"])) for t in report["tasks"]}
    times = [(_seconds(h["time"]), spans[h["task_id"]][1]) for h in report["handoffs"] if h["time"]]
    if not times:
        raise NoneFoundError("no handoff has a time")
    first, last = min(t for t, _ in times), max(t for t, _ in times)

    def quiet(length: int, step: int) -> tuple[float, float]:
        """The first one in the middle of the data that holds handoffs, and at whose ends no task is under way."""
        at = (first + (last - first) / 3) // step * step
        while at + length <= last:
            ends = (at, at + length)
            if any(at <= t < at + length for t, _ in times) and not _under_way(spans.values(), ends):
                return ends
            at += step
        raise NoneFoundError(f"no window of {length} seconds without a task under way at an end")

    def cut(step: int, other: int) -> tuple[float, float]:
        """One at both of whose ends a task has handed off and goes on. Neither end is a multiple of the other step."""
        ends = sorted({e // step * step for t, e in times if t // step < e // step and e // step * step % other})
        if len(ends) < 2:
            raise NoneFoundError(f"no window of whole {step} seconds with a handoff before both ends and its task's end after")
        return ends[len(ends) // 3], ends[2 * len(ends) // 3]

    return [
        (_text(since), _text(until), about)
        for (since, until), about in (
            (quiet(7 * DAY, DAY), "seven whole days"),
            (quiet(12 * HOUR, HOUR), "twelve whole hours"),
            (cut(HOUR, DAY), "whole hours with tasks under way at both ends"),
            (cut(FIVE, HOUR), "whole five minutes with tasks under way at both ends"),
        )
    ]


def _under_way(spans: Iterable[tuple[float, float]], ends: tuple[float, float]) -> bool:
    return any(start < end <= stop for start, stop in spans for end in ends)


def main() -> int:
    """Prints them."""
    try:
        for line in chosen(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))):
            print(*line)
    except NoneFoundError as e:
        print(e, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
