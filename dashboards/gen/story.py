"""The tables of the dashboard of one handoff: its timeline, what was passed on, and what went wrong."""

from __future__ import annotations

from grafana_foundation_sdk.models.dashboard import DataTransformerConfig

from . import look
from .panels import Column, Placed, rows, timeline
from .sql import ONE, ONE_TASK, named

# The six fields that every contract has to hold, with what each answers.
FIELDS = {
    "intent": "what is wanted",
    "constraints": "which rules hold",
    "status": "what is done",
    "evidence": "what was found",
    "next_action": "what comes next",
    "stop_condition": "when it is done",
}

YES_NO = {
    "yes": ("yes", look.GREEN),
    "no": ("no", look.RED),
    "present": ("present", look.GREEN),
    "missing": ("missing", look.RED),
    "unknown": ("unknown", look.GREY),
}


def lanes() -> Placed:
    """Runs and calls over time. A lane ends where its row without a state stands."""
    run = f"concat('agent ', {named('agent')})"
    call = f"concat('calls of ', {named('agent')})"
    return timeline(
        "Timeline",
        "The runs of the task's agents and their tool calls. Fewer repeats are better. Nothing shown: the task is not in "
        "this time range; a link to this dashboard sets the range to it.",
        f"""SELECT "time", lane, state FROM (
  SELECT start AS "time", {run} AS lane, 1 AS place,
    CASE WHEN {ONE} THEN 'receiver runs' ELSE 'runs' END AS state
  FROM agent_runs WHERE {ONE_TASK}
  UNION ALL
  SELECT "end" AS "time", {run} AS lane, 0 AS place, NULL AS state
  FROM agent_runs WHERE {ONE_TASK}
  UNION ALL
  SELECT start AS "time", {call} AS lane, 1 AS place, COALESCE(repeat_kind, outcome) AS state
  FROM tool_calls WHERE {ONE_TASK} AND start IS NOT NULL
  UNION ALL
  SELECT "end" AS "time", {call} AS lane, 0 AS place, NULL AS state
  FROM tool_calls WHERE {ONE_TASK} AND start IS NOT NULL
) AS events
WHERE "time" IS NOT NULL
ORDER BY "time", place, lane, state""",
        {
            "runs": ("runs", look.SKY),
            "receiver runs": ("receiver runs", look.BLUE),
            "ok": ("call", look.GREEN),
            "error": ("call failed", look.RED),
            "lost": ("result lost", look.GREY),
            "redundant": ("redundant call", look.ORANGE),
            "known_failure": ("retry of a known failure", look.PURPLE),
            "self": ("own repeat", look.YELLOW),
        },
        [
            DataTransformerConfig(
                "partitionByValues",
                options={"fields": ["lane"], "keepFields": False, "naming": {"asLabels": True}},
            )
        ],
    )


def calls() -> Placed:
    """The task's tool calls in order, with the time since the transfer."""
    return rows(
        "Tool calls of the task",
        "Every tool call in order; seconds are counted from the transfer, so earlier calls stand before 0. Fewer repeats "
        "are better. '-': unknown or none. No rows: the task has no tool call that was recorded.",
        f"""WITH h AS (SELECT task_id, handoff_id, "time" FROM handoffs WHERE {ONE})
SELECT
  extract(epoch from t.start) - extract(epoch from h."time") AS "since transfer",
  {named("t.agent")} AS "agent",
  t.tool AS "tool",
  t.outcome AS "outcome",
  t.repeat_kind AS "repeat",
  CASE WHEN t.handoff_id = h.handoff_id THEN 'yes' ELSE 'no' END AS "under this handoff",
  t.duration_ns / 1000000.0 AS "duration",
  t.args AS "arguments"
FROM tool_calls t
JOIN h ON h.task_id = t.task_id
ORDER BY t.start, t.id
LIMIT 500""",
        [
            # Grafana's own unit of seconds would show some rows in ms, some in s.
            Column("since transfer", unit="suffix: s", decimals=2, width=130),
            Column("outcome", width=100),
            Column("repeat", width=120),
            Column("under this handoff", width=160),
            Column("duration", unit="ms", width=110),
            Column("arguments", long=True),
        ],
        no_value=look.NOTHING,
    )


def contract() -> Placed:
    """The six required fields."""
    values = ",\n".join(f"    ('{name}', '{what}', {place})" for place, (name, what) in enumerate(FIELDS.items()))
    return rows(
        "Contract fields",
        "The six required fields of the payload. More that are present is better. 'unknown': the payload was not captured "
        "or is cut off. No rows: this id is not in the store.",
        f"""SELECT
  f.name AS "field",
  f.what AS "answers",
  CASE WHEN h.payload_unknown IS NOT NULL THEN 'unknown'
    WHEN array_has(h.payload_fields, f.name) THEN 'present'
    ELSE 'missing' END AS "state"
FROM handoffs h
CROSS JOIN (VALUES
{values}
  ) AS f(name, what, place)
WHERE h.{ONE}
ORDER BY f.place""",
        [Column("state", words=YES_NO)],
        width=8,
    )


def constraints() -> Placed:
    """Constraints on their way: state, payload, view."""

    def said(column: str) -> str:
        return f"CASE WHEN {column} THEN 'yes' WHEN NOT {column} THEN 'no' ELSE 'unknown' END"

    return rows(
        "Constraints: state, payload, view",
        "Each constraint on its way: in force before the transfer (durable state or an earlier contract), in the payload, "
        "and in what the receiver saw first. More that arrive is better. No rows: no constraint is known of this handoff.",
        f"""SELECT
  id AS "constraint",
  CASE WHEN soft THEN 'preference' ELSE 'rule' END AS "kind",
  CASE WHEN active THEN 'yes' ELSE 'no' END AS "in force before",
  CASE WHEN stated THEN 'yes' ELSE 'no' END AS "stated here",
  {said("in_payload")} AS "in payload",
  {said("in_view")} AS "in view",
  {said("got")} AS "got",
  cause AS "went missing",
  "text" AS "text"
FROM handoff_constraints
WHERE {ONE}
ORDER BY soft, id, hash""",
        [
            Column("constraint", width=190),
            Column("kind", width=90),
            Column("in force before", width=120),
            Column("stated here", width=95),
            *(Column(c, words=YES_NO, width=85) for c in ("in payload", "in view", "got")),
            Column("went missing", no_value=look.NOTHING, width=165),
            Column("text", no_value=look.NOTHING, long=True),
        ],
        width=16,
    )


def repeats() -> Placed:
    """What the receiver did again."""
    return rows(
        "What was repeated",
        "Calls under this handoff that repeat an earlier one, whose call it was, who lost it, and the contract fields "
        "that would have prevented it. Lower is better. No rows: nothing was repeated, as far as known.",
        f"""SELECT
  t.tool AS "tool",
  t.repeat_kind AS "kind",
  COALESCE(t.cause, 'unknown') AS "lost by",
  {named("e.agent")} AS "first called by",
  e.outcome AS "first outcome",
  array_to_string(t.prevented_by, ', ') AS "prevented by",
  t.args AS "arguments"
FROM tool_calls t
LEFT JOIN tool_calls e ON e.id = t.repeats AND e.task_id = t.task_id
WHERE t.{ONE} AND t.repeat_kind IS NOT NULL
ORDER BY t.start, t.id""",
        [
            Column("kind", width=130),
            Column("lost by", width=110),
            Column("first called by", width=150),
            Column("first outcome", width=130),
            Column("arguments", long=True),
        ],
        height=8,
        no_value=look.NOTHING,
    )


def leaks() -> Placed:
    """What came through that was filtered out."""
    return rows(
        "Leaks",
        "Tool content that was filtered out of the receiver's view and survives in prose that it sees. Lower is better. "
        "No rows: none was found; whether leaks are known at all stands under 'Measures'.",
        f"""SELECT
  tool AS "tool",
  call AS "call",
  item AS "item of the view",
  array_to_string(overlap, ', ') AS "both hold"
FROM leaks
WHERE {ONE}
ORDER BY item, call""",
        [],
        width=12,
        height=8,
        no_value=look.NOTHING,
    )


def findings() -> Placed:
    """What stands out, in words."""
    return rows(
        "Findings of the task",
        "What stands out in this task, in words; those of this handoff first. Fewer are better. No rows: nothing does.",
        f"""SELECT
  severity AS "severity",
  kind AS "kind",
  text AS "finding",
  CASE WHEN {ONE} THEN 'yes' ELSE 'no' END AS "of this handoff"
FROM findings
WHERE {ONE_TASK}
ORDER BY 4 DESC, 1, 2, 3
LIMIT 200""",
        [
            Column(
                "severity",
                words=look.SEVERITY,
                width=90,
            ),
            Column("kind", width=200),
            Column("of this handoff", width=140),
        ],
        height=8,
    )


def violations() -> Placed:
    """Broken constraints with who lost each."""
    return rows(
        "Broken constraints of the task",
        "Constraints that a rule or a judge says were broken, and who lost each: no state held it, the payload dropped it, "
        "the filter dropped it, the model saw it and did not follow it, or it is unknown. Fewer are better. "
        "No rows: none was reported.",
        f"""SELECT
  constraint_id AS "constraint",
  verdict AS "lost by",
  {named("agent")} AS "agent",
  tool AS "tool",
  source AS "reported by",
  name AS "name",
  missing AS "what is missing"
FROM violations
WHERE {ONE_TASK}
ORDER BY 1, 3, "time"
LIMIT 200""",
        [],
        width=12,
        height=8,
        no_value=look.NOTHING,
    )
