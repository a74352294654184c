"""The generated files, read back: dashboards with their panels, variables and annotations, and the alert rules."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

Json = dict[str, Any]


@dataclass
class Board:
    """A dashboard."""

    path: str
    model: Json

    @property
    def uid(self) -> str:
        """Its uid."""
        return str(self.model.get("uid"))

    def panels(self) -> Iterator[Json]:
        """All but rows, also the folded ones."""
        for p in self.model.get("panels", []):
            if p.get("type") == "row":
                yield from p.get("panels", [])
            else:
                yield p

    def variables(self) -> list[Json]:
        """In the order of the page."""
        return list(self.model.get("templating", {}).get("list", []))

    def annotations(self) -> list[Json]:
        """Those with a query."""
        return [a for a in self.model.get("annotations", {}).get("list", []) if "target" in a]


@dataclass
class Asked:
    """One SQL of a dashboard or rule, with where it stands."""

    board: Board | None
    place: str
    kind: str
    sql: str
    panel: Json | None = None
    # Alerts: seconds before now.
    since: int = 0
    until: int = 0
    # The SQL with variables put in, once it was sent.
    sent: str = ""


def load(folder: Path) -> tuple[list[Board], list[Json]]:
    """All dashboards, and all alert rules."""
    boards = [Board(f.name, json.loads(f.read_text(encoding="utf-8"))) for f in sorted((folder / "dashboards").glob("*.json"))]
    rules: list[Json] = []
    for f in sorted((folder / "provisioning" / "alerting").glob("*.yaml")):
        for group in yaml.safe_load(f.read_text(encoding="utf-8"))["groups"]:
            rules += group["rules"]
    return boards, rules


def queries(board: Board) -> list[Asked]:
    """Every SQL of a dashboard."""
    out = []
    for v in board.variables():
        if v["type"] == "query":
            out.append(Asked(board, f"{board.uid} / variable {v['name']}", "variable", v["query"]))
    for a in board.annotations():
        out.append(Asked(board, f"{board.uid} / annotation {a['name']}", "annotation", a["target"]["rawSql"]))
    for p in board.panels():
        for t in p.get("targets", []):
            if "rawSql" in t:
                kind = "series" if t["format"] == "time_series" else p["type"]
                out.append(Asked(board, f"{board.uid} / {p['title']}", kind, t["rawSql"], p))
    return out


def alert_queries(rules: list[Json]) -> list[Asked]:
    """Every SQL of the alert rules."""
    out = []
    for r in rules:
        for q in r["data"]:
            if "rawSql" in q["model"]:
                span = q["relativeTimeRange"]
                place = f"alert {r['title']} / {q['refId']}"
                out.append(Asked(None, place, "alert", q["model"]["rawSql"], None, span["from"], span["to"]))
    return out
