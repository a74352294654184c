"""Handoffs / Overview: is it well, where is it not, and what is not known."""

from __future__ import annotations

from grafana_foundation_sdk.models.dashboard import DataTransformerConfig

from . import decisions, links, look, signals
from .board import Board, Section, annotation, filters
from .common import named_measures, stat_of, trend_of, trends_of
from .measures import Measures
from .panels import Column, Placed, rows, series, sql_query, stat
from .sql import during, named

# The columns of the table of pairs.
OF_PAIRS = [
    "completeness",
    "constraint_retention",
    "redundant_tool_calls",
    "filtered_items",
    "leaks",
    "time_to_first_correct_action_ms",
]


def board(measures: Measures) -> Board:
    """The dashboard."""
    m = measures
    return Board(
        uid=links.OVERVIEW,
        title="Overview",
        about="How well agents hand work to each other: volume, what arrives, what is done twice, and what is unknown.",
        variables=list(filters()),
        annotations=[annotation("New pairs of agents", look.PURPLE, NEW_PAIRS)],
        sections=[
            Section(
                "Now",
                [
                    volume(),
                    stat_of(m["completeness"]),
                    stat_of(m["constraint_retention"]),
                    stat_of(m["redundant_tool_calls"], "Redundant-call rate"),
                    stat_of(m["task_rework_free_rate"], "Rework-free tasks"),
                    stat_of(m["filtered_items"], "Context reduction"),
                    stat_of(m["time_to_first_correct_action_ms"]),
                    stat_of(m["leaks"]),
                ],
            ),
            Section(
                "Trends",
                [
                    series(
                        "Handoffs over time",
                        "Handoffs of every outcome: accepted ones, and those refused, failed, pending or of an unknown "
                        "receiver. Neither way is good by itself; more that are not accepted is worse. "
                        "A gap: no handoff in this step.",
                        [sql_query(signals.volume_trend(), "time_series")],
                        "short",
                        [Column("accepted", color=look.BLUE), Column("not accepted", color=look.ORANGE)],
                        bars=True,
                        least=0,
                    ),
                    trend_of(m["completeness"]),
                    trend_of(m["constraint_retention"], look.GREEN),
                    trend_of(m["redundant_tool_calls"], look.ORANGE, "Redundant-call rate"),
                    trend_of(m["task_rework_free_rate"], look.GREEN, "Rework-free tasks"),
                    trends_of(
                        "Context before and after",
                        "Tokens of the sender's context at a transfer and of what the receiver saw first.",
                        [m["context_tokens_before"], m["context_tokens_after"]],
                    ),
                    trend_of(m["filtered_items"], look.SKY, "Context reduction"),
                    trend_of(m["time_to_first_correct_action_ms"], look.PURPLE),
                    trend_of(m["leaks"], look.RED),
                ],
            ),
            Section("Pairs of agents", [matrix(), pairs(m)]),
            Section("What is unknown, and why", [unknown(m)]),
        ],
    )


# The first handoff ever of a pair: new agents often explain a step in a curve. When a store is young all pairs are new,
# and marks for each would hide the curves.
NEW_PAIRS = f"""WITH first_seen AS (
  SELECT MIN("time") AS "time", concat({named("from_agent")}, ' -> ', {named("to_agent")}) AS text
  FROM measure_sums
  WHERE measure = 'handoffs'
  GROUP BY 2
)
SELECT "time", text
FROM first_seen
WHERE {during()}
  AND "time" > (SELECT MIN("time") FROM first_seen) + INTERVAL '{decisions.YOUNG}' DAY
ORDER BY 1"""


def volume() -> Placed:
    """How many handoffs."""
    return stat(
        "Handoffs",
        "Handoffs of every outcome in the time range, how many were accepted (the receiver ran), and their share. "
        "Neither way is good for the number; for the share higher is better. Share 'unknown': no handoff.",
        signals.volume_stat(),
        look.COUNT,
        [Column("share accepted", unit="percentunit")],
    )


def matrix() -> Placed:
    """Who hands to whom."""
    return rows(
        "Who hands to whom",
        "Handoffs of every outcome: a row per sender, a column per receiver. No way is better. "
        "'-': this sender handed nothing to this receiver.",
        signals.matrix(),
        [],
        height=10,
        no_value="-",
        # Names of agents are the titles of its columns.
        least=150,
        filterable=False,
        transformations=[
            DataTransformerConfig(
                "groupingToMatrix",
                options={
                    "columnField": "to",
                    "rowField": "from",
                    "valueField": "handoffs",
                    "emptyValue": "null",
                },
            )
        ],
    )


def pairs(measures: Measures) -> Placed:
    """A row per pair, with a link to it."""
    chosen = [measures[name] for name in OF_PAIRS]
    ways = " ".join(f"{m.title}: {m.unit}, {signals.way(m)}." for m in chosen)
    return rows(
        "Pairs of agents",
        "A row per sender and receiver, the most frequent first, at most 200; click a name for its dashboard. "
        f"{ways} 'unknown': nothing of this pair could be known. That is not 0.",
        signals.pairs(chosen),
        [
            Column("from", link=links.to_pair()),
            Column("to", link=links.to_pair()),
            # The title of the last is longer than its share of the width.
            *(Column(m.name, unit=m.grafana_unit, title=m.title, width=230 if len(m.title) > 25 else None) for m in chosen),
        ],
        height=12,
    )


def unknown(measures: Measures) -> Placed:
    """What could not be known."""
    return rows(
        "What is unknown, and why",
        "For each measure the reasons why it is not known, with the number of rated handoffs or tasks. They stay out of "
        "the rates. Lower is better: capture what the reason names. No rows: everything in this time range is known.",
        signals.unknown_of(measures),
        [named_measures(measures.all)],
        height=10,
    )
