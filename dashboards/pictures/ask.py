"""Asks what a dashboard shows, as one JSON for the page."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from walk import macros, tour, variables
from walk.boards import Board, Json
from walk.macros import Range
from walk.run import Failed, Runner

from . import frames

# Grafana's grid at the width of the pictures: points of a series are as many as its panel is wide.
COLUMNS = 24
# A macro that asks for NULL in steps without rows.
FILLS = re.compile(r"\$__timeGroup(?:Alias)?\([^)]*,\s*NULL\s*\)")
NOT_ASKED = "Not asked: these numbers come from Prometheus, not from Baton's SQL"


@dataclass
class Asker:
    """Asks an endpoint in a time range, with what is picked in variables."""

    runner: Runner
    range: Range
    width: int
    picked: dict[str, tuple[str, ...] | None] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def _rows(self, place: str, sql: str, chosen: dict[str, variables.Variable], step: int) -> Any:
        try:
            return self.runner.run(macros.expand(variables.put(sql, chosen), self.range, step), True)
        except (Failed, macros.MacroError, variables.VariableError) as e:
            self.problems.append(f"{place}: {e}")
            return None

    def _chosen(self, board: Board) -> dict[str, variables.Variable]:
        offered = tour.Tour(self.runner, self.range).choices(board)
        return tour.values(board, offered, self.picked)

    def _panel(self, board: Board, panel: Json, chosen: dict[str, variables.Variable]) -> Json:
        points = panel.get("maxDataPoints") or max(1, self.width * int(panel["gridPos"]["w"]) // COLUMNS)
        step = macros.step(self.range, panel.get("interval"), points)
        out: list[Json] = []
        targets = panel.get("targets", [])
        for target in targets:
            if "rawSql" not in target:
                continue
            answer = self._rows(f"{board.uid} / {panel['title']}", target["rawSql"], chosen, step)
            if answer is not None:
                make = frames.series if target["format"] == "time_series" else frames.table
                made = make(answer, target["refId"])
                if FILLS.search(target["rawSql"]) and answer.rows:
                    since, until = (t.timestamp() * 1000 for t in (self.range.since, self.range.until))
                    made = frames.filled(made, since, until, step)
                out += made
        drawn: Json = {"panel": panel, "frames": out}
        if any("rawSql" not in t for t in targets):
            drawn["skipped"] = NOT_ASKED
        return drawn

    def _marks(self, board: Board, chosen: dict[str, variables.Variable]) -> list[Json]:
        out = []
        for a in board.annotations():
            r = self._rows(f"{board.uid} / annotation {a['name']}", a["target"]["rawSql"], chosen, 60000)
            for row in r.rows if r is not None else []:
                named = dict(zip(r.columns, row, strict=True))
                time = frames.milliseconds(named["time"])
                out.append({"name": a["name"], "color": a["iconColor"], "time": time, "text": named["text"]})
        return out

    def board(self, board: Board, raw_names: list[str]) -> Json:
        """A dashboard with all answers. Folded rows are shown open."""
        chosen = self._chosen(board)
        panels = []
        for p in _open(board.model["panels"]):
            panels.append({"panel": p, "frames": []} if p["type"] == "row" else self._panel(board, p, chosen))
        labels = {v["name"]: v.get("label") or v["name"] for v in board.variables()}
        return {
            "title": board.model["title"],
            "from": self.range.since.timestamp() * 1000,
            "to": self.range.until.timestamp() * 1000,
            "variables": [
                {"label": labels[n], "text": "All" if v.chosen is None else ", ".join(v.chosen)} for n, v in chosen.items()
            ],
            "marks": self._marks(board, chosen),
            "panels": panels,
            "rawNames": raw_names,
        }

    def worst(self, board: Board, title: str, wanted: str | None) -> Json | None:
        """What the link in a row of a table of handoffs carries: of the wanted one, else of the first."""
        panel = next(p for p in board.panels() if p.get("title") == title)
        r = self._rows(f"{board.uid} / {title}", panel["targets"][0]["rawSql"], self._chosen(board), 60000)
        listed = [dict(zip(r.columns, row, strict=True)) for row in r.rows] if r is not None else []
        return next((row for row in listed if wanted in (None, row["handoff"])), None)


def _open(panels: list[Json]) -> list[Json]:
    """The panels of folded rows in their places, and all below them moved down."""
    out = []
    moved = 0
    for p in panels:
        at = p["gridPos"]
        out.append({**p, "gridPos": {**at, "y": at["y"] + moved}})
        inside = p.get("panels") or []
        for q in inside:
            place = q["gridPos"]
            out.append({**q, "gridPos": {**place, "y": place["y"] + moved}})
        if inside:
            moved += max(q["gridPos"]["y"] + q["gridPos"]["h"] for q in inside) - (at["y"] + at["h"])
    return out
