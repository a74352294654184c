"""Handoffs / Leaks and context: what is filtered, what stays, and what comes through all the same."""

from __future__ import annotations

from . import decisions, links, look, signals
from .board import Board, Section, filters
from .common import stat_of, trend_of, trends_of, worst
from .measures import Measures
from .panels import Column, Placed, rows, stat, steps
from .sql import HANDOFFS


def board(measures: Measures) -> Board:
    """The dashboard."""
    m = measures
    return Board(
        uid=links.LEAKS,
        title="Leaks and context",
        about="How much context moves at a handoff, how much is filtered, and filtered tool content that leaks through.",
        variables=list(filters()),
        sections=[
            Section(
                "Now",
                [
                    count(m),
                    stat_of(m["leaks"]),
                    stat_of(m["filtered_items"], "Context reduction"),
                    stat_of(m["duplicate_items"]),
                    stat_of(m["context_tokens_before"]),
                    stat_of(m["context_tokens_after"]),
                    stat_of(m["payload_tokens"]),
                    stat_of(m["lost_tool_results"]),
                ],
            ),
            Section(
                "Trends",
                [
                    trend_of(m["leaks"], look.RED),
                    trends_of(
                        "Context tokens over time",
                        "Tokens of the sender's context at a transfer and of what the receiver saw first.",
                        [m["context_tokens_before"], m["context_tokens_after"]],
                    ),
                    trends_of(
                        "Context items over time",
                        "Items of the sender's context at a transfer and of what the receiver saw first.",
                        [m["context_items_before"], m["context_items_after"]],
                    ),
                    trends_of(
                        "Filtered, added and duplicate items over time",
                        "Shares of the items before the transfer (filtered) or after it (added, duplicate).",
                        [m["filtered_items"], m["added_items"], m["duplicate_items"]],
                    ),
                    trend_of(m["lost_tool_results"], look.ORANGE),
                    trend_of(m["artifact_reuse"], look.GREEN),
                ],
            ),
            Section("Where it leaks", [tools(), pairs(m)]),
            Section("Handoffs with leaks", [worst("Handoffs with leaks", "l.n > 0")]),
        ],
    )


def count(measures: Measures) -> Placed:
    """Leaks as a number: the alert fires above the same limit."""
    return stat(
        "Leaks in this time range",
        measures["leaks"].description
        + " The number of leaks, and of the handoffs in which leaks are known. Lower is better: one is already red, and "
        "the alert 'Leaks' fires. 'unknown': in no handoff of this time range could leaks be known. That is not 0.",
        signals.leaks_count(measures["leaks"]),
        look.COUNT,
        [Column("handoffs known", color=look.BLUE)],
        thresholds=steps(look.GREEN, (decisions.LEAKS + 1, look.RED)),
    )


def tools() -> Placed:
    """Which tools' content leaks."""
    chosen = HANDOFFS.replace("\n", "\n  ")
    return rows(
        "Leaks by tool",
        "Leaks by the tool whose content survives, with the handoffs in which it does. Lower is better. "
        "No rows: none was found.",
        f"""WITH h AS (
  SELECT handoff_id FROM handoffs
  {chosen}
)
SELECT
  l.tool AS "tool",
  COUNT(*) AS "leaks",
  COUNT(DISTINCT l.handoff_id) AS "handoffs"
FROM leaks l
JOIN h ON h.handoff_id = l.handoff_id
WHERE l.last_activity >= $__timeFrom()
GROUP BY 1
ORDER BY 2 DESC, 1
LIMIT 100""",
        [],
        width=8,
    )


def pairs(measures: Measures) -> Placed:
    """Context and leaks by pair."""
    names = ["leaks", "filtered_items", "duplicate_items", "context_tokens_before", "context_tokens_after"]
    chosen = [measures[n] for n in names]
    ways = " ".join(f"{m.title}: {m.unit}, {signals.way(m)}." for m in chosen)
    return rows(
        "Context by pair of agents",
        "A row per sender and receiver, the most frequent first, at most 200; click a name for its dashboard. "
        f"{ways} 'unknown': nothing of this pair could be known. That is not 0.",
        signals.pairs(chosen),
        [
            Column("from", link=links.to_pair()),
            Column("to", link=links.to_pair()),
            # Shorter than elsewhere: the title of the table says that they are of the context.
            *(Column(m.name, unit=m.grafana_unit, title=m.title.removeprefix("Context ").capitalize()) for m in chosen),
        ],
        width=16,
    )
