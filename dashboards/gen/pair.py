"""Handoffs / Agent pair: what goes wrong between these agents, and in which handoffs."""

from __future__ import annotations

from . import links, look
from .board import Board, Section, filters
from .common import measures_table, stat_of, trend_of, trends_of, worst
from .measures import Measures
from .panels import Column, Placed, rows
from .sql import HANDOFFS


def board(measures: Measures) -> Board:
    """The dashboard."""
    m = measures
    return Board(
        uid=links.PAIR,
        title="Agent pair",
        about="Every measure of the handoffs between chosen agents, what they lose and repeat, and the worst of them.",
        variables=list(filters()),
        sections=[
            Section(
                "These agents now",
                [
                    stat_of(m["completeness"], width=4),
                    stat_of(m["constraint_retention"], width=4),
                    stat_of(m["redundant_tool_calls"], width=4),
                    stat_of(m["known_failure_retries"], width=4),
                    stat_of(m["retriage"], width=4),
                    stat_of(m["time_to_first_correct_action_ms"], width=4),
                ],
            ),
            Section("All measures", [measures_table("All measures of these handoffs", m.of("handoff"), 14)]),
            Section(
                "Trends",
                [
                    trend_of(m["completeness"]),
                    trends_of(
                        "Retention over time",
                        "What the receiver got of the hard constraints, against what the payload itself carried.",
                        [m["constraint_retention"], m["constraint_retention_payload"]],
                    ),
                    trends_of(
                        "Work done twice over time",
                        "Shares of the receiver's tool calls.",
                        [m["redundant_tool_calls"], m["known_failure_retries"], m["self_repeats"]],
                    ),
                    trend_of(m["retriage"], look.PURPLE),
                    trend_of(m["time_to_first_correct_action_ms"], look.SKY),
                    trend_of(m["payload_tokens"], look.GREY),
                ],
            ),
            Section("How they hand over", [kinds(), lost(), repeated()]),
            Section("Single handoffs", [worst("Worst handoffs")]),
            Section(
                "Tasks of the service",
                [measures_table("All measures of tasks", m.of("task"), 11)],
                folded=True,
            ),
        ],
    )


def kinds() -> Placed:
    """Modes, outcomes and how sure it is."""
    return rows(
        "Modes, outcomes and confidence",
        "Handoffs by mode, outcome, the way they were detected and how sure that is. More that are accepted and certain "
        "is better. No rows: no handoff in this time range.",
        'SELECT\n  mode AS "mode", outcome AS "outcome", detection AS "detected by", confidence AS "confidence",\n'
        f'  COUNT(*) AS "handoffs"\nFROM handoffs\n{HANDOFFS}\nGROUP BY 1, 2, 3, 4\nORDER BY 5 DESC, 1, 2, 3, 4\nLIMIT 100',
        [Column("mode", width=125), Column("outcome", width=85), Column("handoffs", width=80)],
        width=8,
    )


def lost() -> Placed:
    """Which rules get lost here."""
    chosen = HANDOFFS.replace("\n", "\n  ")
    return rows(
        "Constraints lost",
        "Hard constraints that the receiver did not get, and where they went missing: never in durable state, dropped "
        "from the payload, or dropped by the history filter. Lower is better. No rows: none was lost, as far as known.",
        f"""WITH h AS (
  SELECT handoff_id FROM handoffs
  {chosen}
)
SELECT
  c.id AS "constraint",
  COALESCE(c.cause, 'unknown') AS "went missing",
  COUNT(*) AS "handoffs"
FROM handoff_constraints c
JOIN h ON h.handoff_id = c.handoff_id
WHERE c.last_activity >= $__timeFrom() AND c.counted AND NOT c.got
GROUP BY 1, 2
ORDER BY 3 DESC, 1, 2
LIMIT 100""",
        [Column("handoffs", width=80)],
        width=8,
        no_value=look.UNKNOWN,
    )


def repeated() -> Placed:
    """Which tools are called again, and who lost the first call."""
    chosen = HANDOFFS.replace("\n", "\n  ")
    return rows(
        "Tools called again",
        "Repeated tool calls of the receivers: redundant ones, retries of known failures, and repeats of their own; "
        "with who lost the earlier call. Lower is better. No rows: nothing was repeated, as far as known.",
        f"""WITH h AS (
  SELECT handoff_id FROM handoffs
  {chosen}
)
SELECT
  t.tool AS "tool",
  t.repeat_kind AS "kind",
  COALESCE(t.cause, 'unknown') AS "lost by",
  COUNT(*) AS "calls"
FROM tool_calls t
JOIN h ON h.handoff_id = t.handoff_id
WHERE t.last_activity >= $__timeFrom() AND t.repeat_kind IS NOT NULL
GROUP BY 1, 2, 3
ORDER BY 4 DESC, 1, 2, 3
LIMIT 100""",
        [Column("tool", width=180), Column("calls", width=70)],
        width=8,
        no_value=look.UNKNOWN,
    )
