"""The analyzer's list of measures, as `baton measures --format json` prints it."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Grafana's unit for the measure's own word. Everything that is counted stays a plain number.
UNITS = {"share": "percentunit", "ms": "ms"}

DIRECTION = {
    "up": "Higher is better.",
    "down": "Lower is better.",
    "neutral": "Neither way is good or bad by itself.",
}


@dataclass(frozen=True)
class Measure:
    """One measure; the fields are those of the list."""

    name: str
    subject: str
    good: str
    unit: str
    scale: float
    description: str
    sql: str

    @property
    def title(self) -> str:
        """The name as people read it."""
        words = self.name.removesuffix("_ms").replace("_", " ")
        return words[0].upper() + words[1:]

    @property
    def grafana_unit(self) -> str:
        """Grafana's name of the unit."""
        return UNITS.get(self.unit.split(" ")[0], "short")

    @property
    def of(self) -> str:
        """What the denominator counts, in words."""
        if self.unit != "share":
            return f"{self.subject}s"
        if self.subject == "handoff":
            return SHARE_OF.get(self.name, "handoffs")
        return SHARE_OF.get(self.name, "tasks")

    @property
    def about(self) -> str:
        """The description of a panel: what is counted, which way is good, what empty means."""
        where = (
            "It follows all filters."
            if self.subject == "handoff"
            else "It follows the service filter alone: a task has no single pair of agents."
        )
        return (
            f"{self.description} Counted as the sum over rated {self.subject}s by the sum of {self.of}, "
            f"never as a mean of rates. {DIRECTION[self.good]} {where} "
            "Empty or 'unknown': nothing in this time range could be known. That is not 0."
        )


# What the denominator of a share counts. A share that is not listed is one of its subjects.
SHARE_OF = {
    "completeness": "required fields",
    "constraint_retention": "constraints",
    "constraint_retention_payload": "constraints",
    "constraint_survival": "constraints",
    "filtered_items": "items before",
    "added_items": "items after",
    "duplicate_items": "items after",
    "redundant_tool_calls": "tool calls",
    "known_failure_retries": "tool calls",
    "self_repeats": "tool calls",
    "artifact_reuse": "references",
    "task_rework_free_rate": "completed tasks",
    "wasted_tool_calls": "tool calls",
    "wasted_tokens": "tokens",
    "duplicate_inferences": "recordings",
}


class Measures:
    """All measures, in the order of reports."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.all = [Measure(**{k: r[k] for k in Measure.__dataclass_fields__}) for r in rows]
        self._by_name = {m.name: m for m in self.all}
        unknown = set(SHARE_OF) - set(self._by_name)
        if unknown:
            raise ValueError(f"no such measure: {', '.join(sorted(unknown))}")

    def __getitem__(self, name: str) -> Measure:
        return self._by_name[name]

    def of(self, subject: str) -> list[Measure]:
        """Those of one subject."""
        return [m for m in self.all if m.subject == subject]


def load(source: Path) -> Measures:
    """From a JSON file, or from the binary itself, which is asked."""
    if source.suffix == ".json" or not os.access(source, os.X_OK):
        text = source.read_text(encoding="utf-8")
    else:
        asked = [str(source), "measures", "--format", "json"]
        text = subprocess.run(asked, check=True, capture_output=True, text=True).stdout
    return Measures(json.loads(text)["measures"])
