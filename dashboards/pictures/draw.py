"""Draws every dashboard over an endpoint with data, in both themes, and says what is wrong with the pictures.

    python -m pictures.draw DSN MEASURES OUT_DIR

MEASURES is the list of measures or the binary: no picture may show the name of a measure in SQL where a title belongs.
OUT_DIR gets a PNG per dashboard and theme, and the JSON that the page draws. The dashboard of one handoff is opened as
the link in the first row of "Worst handoffs" opens it, with the time range of that task.
Prints a line for each fault, and `N passed, N failed` at the end; 1 where something failed. Lines that begin with
`look:` are no faults: texts that do not fit their place, for a person to judge.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gen import measures
from walk import boards
from walk.boards import Board, Json
from walk.macros import Range
from walk.run import Failed, Wire
from walk.tour import span

from . import browser
from .ask import Asker

HERE = Path(__file__).resolve().parent
DIST = HERE / "dist"
THEMES = ("dark", "light")
# As in the page: pixels of a unit of height with its gap, and of what stands above the grid.
UNIT = 38
HEAD = 64 + 4 * 8


def arguments() -> argparse.Namespace:
    """What was asked for."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("dsn", help="the endpoint, as postgresql://USER:PASSWORD@HOST:PORT/baton")
    p.add_argument("measures", type=Path, help="list of measures, or the binary")
    p.add_argument("out", type=Path, help="where the pictures go")
    p.add_argument("--from", dest="since", type=_time, help="start of the time range [all data]")
    p.add_argument("--to", dest="until", type=_time, help="its end [all data]")
    p.add_argument("--pick", action="append", default=[], metavar="NAME=VALUE", help="choose this in a variable [All]")
    p.add_argument("--only", default="", help="draw only dashboards whose uid holds this")
    p.add_argument("--width", type=int, default=1600, help="pixels [%(default)s]")
    p.add_argument("--scale", type=float, default=1, help="pixels of the picture for each of the page [%(default)s]")
    p.add_argument("--folder", type=Path, default=HERE.parent / "grafana", help="generated files [%(default)s]")
    return p.parse_args()


def _time(text: str) -> datetime:
    at = datetime.fromisoformat(text)
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def built() -> None:
    """Bundles the page where that was not done since its last change."""
    sources = [*(HERE / "src").iterdir(), HERE / "build.mjs", HERE / "page.html", HERE / "package-lock.json"]
    page = DIST / "page.js"
    if page.exists() and page.stat().st_mtime >= max(s.stat().st_mtime for s in sources):
        return
    if not (HERE / "node_modules").is_dir():
        raise SystemExit(f"run `npm ci` in {HERE} first")
    subprocess.run([shutil.which("node") or "node", "build.mjs"], cwd=HERE, check=True, timeout=300)


def asked(args: argparse.Namespace, all_boards: list[Board]) -> tuple[list[tuple[Board, Json]], list[str]]:
    """The answers for every dashboard, and what could not be asked."""
    wire = Wire(args.dsn)
    whole = span(wire)
    window = Range(args.since or whole.since, args.until or whole.until)
    picked: dict[str, tuple[str, ...] | None] = {n: (v,) for n, v in (p.split("=", 1) for p in args.pick)}
    # A name of one word is also a word that people read.
    raw = [m.name for m in measures.load(args.measures).all if "_" in m.name]
    by_uid = {b.uid: b for b in all_boards}
    problems: list[str] = []
    out = []
    for b in all_boards:
        asker = Asker(wire, window, args.width, dict(picked))
        if b.uid == "handoffs-one":
            _follow(asker, by_uid["handoffs-pair"])
        out.append((b, asker.board(b, raw)))
        problems += asker.problems
    return out, problems


def _follow(asker: Asker, pair: Board) -> None:
    """Picks the worst handoff, or the time of the one that is picked."""
    wanted = asker.picked.get("handoff")
    row = asker.worst(pair, "Worst handoffs", wanted[0] if wanted else None)
    if row:
        asker.picked["handoff"] = (str(row["handoff"]),)
        if row["task_from"] is not None and row["task_to"] is not None:
            since, until = (datetime.fromtimestamp(int(row[k]) / 1000, UTC) for k in ("task_from", "task_to"))
            asker.range = Range(since, until)


def draw(window: Any, address: str, name: str, board: Json, args: argparse.Namespace, theme: str) -> tuple[int, list[str]]:
    """One picture: how many panels are well, and what is wrong."""
    rows = max(p["panel"]["gridPos"]["y"] + p["panel"]["gridPos"]["h"] for p in board["panels"])
    browser.size(window, args.width, rows * UNIT + HEAD, args.scale)
    window.get(f"{address}/page.html?theme={theme}&board=boards/{name}.json")
    from selenium.common.exceptions import TimeoutException
    from selenium.webdriver.support.ui import WebDriverWait

    place = f"{name} [{theme}]"
    try:
        found = WebDriverWait(window, 60, 0.1).until(lambda w: w.execute_script("return window.drawn"))
    except TimeoutException:
        return 0, [f"{place}: never done", *(f"{place}: {p}" for p in browser.problems(window))]
    browser.shoot(window, args.out / f"{name}-{theme}.png")
    bad = {title for title, _ in found["wrong"]}
    if theme == THEMES[0]:
        for title, text in found["cut"]:
            print(f"look: {name} / {title}: does not fit: {text}")
    failures = [f"{place} / {title}: {what}" for title, what in found["wrong"]]
    failures += [f"{place}: {p}" for p in browser.problems(window)]
    return found["panels"] - len(bad), failures


def main() -> int:
    """0: nothing is wrong."""
    args = arguments()
    built()
    args.out.mkdir(parents=True, exist_ok=True)
    all_boards, _ = boards.load(args.folder)
    try:
        answers, failures = asked(args, all_boards)
    except Failed as e:
        print(f"the endpoint does not answer: {e}")
        return 1
    kept = DIST / "boards"
    kept.mkdir(exist_ok=True)
    passed = 0
    with browser.serving(DIST) as address, browser.chromium() as window:
        for b, board in answers:
            if args.only not in b.uid:
                continue
            text = json.dumps(board)
            (kept / f"{b.uid}.json").write_text(text, encoding="utf-8")
            (args.out / f"{b.uid}.json").write_text(text, encoding="utf-8")
            for theme in THEMES:
                n, wrong = draw(window, address, b.uid, board, args, theme)
                passed += n
                failures += wrong
    for line in failures:
        print(line)
    print(f"{passed} passed, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
