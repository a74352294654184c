"""The page finds what is wrong: a panel for each fault, and some without. Needs the browser, and `npm ci` to have run."""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import unittest
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from . import browser, draw

STAT = {
    "reduceOptions": {"values": False, "calcs": ["lastNotNull"], "fields": ""},
    "textMode": "value_and_name",
    "colorMode": "none",
    "graphMode": "none",
    "justifyMode": "auto",
    "orientation": "horizontal",
    "wideLayout": True,
}
TABLE = {"showHeader": True, "cellHeight": "sm"}
CHART = {"legend": {"showLegend": True, "displayMode": "list", "placement": "bottom", "calcs": []}}
WORD = {"type": "value", "options": {"5": {"text": "unknown"}}}


def field(name: str, kind: str, *values: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "values": list(values)}


def panel(kind: str, title: str, options: Any, *fields: Any, **more: Any) -> dict[str, Any]:
    defaults = {"noValue": "unknown", "unit": "short", **more.pop("defaults", {})}
    return {
        "panel": {
            "type": kind,
            "title": title,
            "options": options,
            "fieldConfig": {"defaults": defaults, "overrides": []},
            **more,
        },
        "frames": [{"refId": "A", "fields": list(fields)}],
    }


TIMES = field("time", "time", 1000, 2000, 3000)
LINE = field("n", "number", 1, 2, 3)
HIDDEN = {"color": {"mode": "fixed", "fixedColor": "transparent"}}
PANELS = [
    (panel("stat", "A number", STAT, field("n", "number", 1234)), None),
    (panel("stat", "No number", STAT, field("n", "number", None)), None),
    (panel("stat", "Not a number", STAT, field("n", "number", "nan")), "no number"),
    (panel("stat", "Called unknown", STAT, field("n", "number", 5), defaults={"mappings": [WORD]}), "only 0 are missing"),
    (panel("table", "Rows", TABLE, field("who", "string", "a", None)), None),
    (panel("table", "No rows", TABLE, field("who", "string")), None),
    (panel("table", "Rows called unknown", TABLE, field("n", "number", 5), defaults={"mappings": [WORD]}), "only 0 are empty"),
    (panel("table", "Raw", TABLE, field("measure", "string", "raw_name")), "the name in SQL"),
    (panel("table", "Object", TABLE, field("x", "string", {})), "[object"),
    (panel("table", "Changed", TABLE, LINE, transformations=[{"id": "mystery", "options": {}}]), "mystery is not known"),
    (panel("timeseries", "Line", CHART, TIMES, LINE), None),
    (panel("timeseries", "Hidden line", CHART, TIMES, LINE, defaults=HIDDEN), "nothing is drawn"),
    (panel("timeseries", "No numbers", CHART, TIMES, field("who", "string", "a", "b", "c")), "has data, but shows"),
    (panel("gauge", "A gauge", {}, LINE), "cannot be drawn"),
]


READY = shutil.which("chromedriver") and find_spec("selenium") and (draw.HERE / "node_modules").is_dir()


@unittest.skipUnless(READY, "no browser or no packages")
class Page(unittest.TestCase):
    def test_each_fault_is_found_and_no_other(self) -> None:
        draw.built()
        for i, (p, _) in enumerate(PANELS):
            p["panel"] |= {"id": i, "gridPos": {"x": i % 3 * 8, "y": i // 3 * 6, "w": 8, "h": 6}}
        board = {
            "title": "Faults",
            "from": 0,
            "to": 4000,
            "variables": [],
            "marks": [],
            "panels": [p for p, _ in PANELS],
            "rawNames": ["raw_name"],
        }
        file = draw.DIST / "boards" / "faults.json"
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(board), encoding="utf-8")
        with (
            tempfile.TemporaryDirectory() as out,
            browser.serving(draw.DIST) as address,
            browser.chromium() as window,
        ):
            args = argparse.Namespace(width=1200, scale=1, out=Path(out))
            for theme in draw.THEMES:
                _, found = draw.draw(window, address, "faults", board, args, theme)
                for p, fault in PANELS:
                    place = f"faults [{theme}] / {p['panel']['title']}: "
                    got = [f.removeprefix(place) for f in found if f.startswith(place)]
                    with self.subTest(place):
                        self.assertEqual(bool(got), bool(fault), got)
                        self.assertIn(fault or "", "".join(got))
                self.assertEqual([f for f in found if "console" in f and "kind gauge" not in f], [])
            window.execute_async_script("fetch('http://elsewhere.example/').catch(() => 0).then(arguments[0])")
            found = browser.problems(window)
            self.assertTrue(any("asks another host: http://elsewhere.example/" in f for f in found), found)
            window.execute_async_script("setTimeout(() => { throw new Error('on purpose') }); setTimeout(arguments[0], 200)")
            self.assertTrue(any("on purpose" in f for f in browser.problems(window)))


if __name__ == "__main__":
    unittest.main()
