"""Handoffs / One handoff: what was passed on, what arrived, and what the receiver did with it."""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import QueryVariable
from grafana_foundation_sdk.models.dashboard import VariableRefresh, VariableSort

from . import links, look, signals, story
from .board import Board, Section, annotation, choice, filters
from .common import HANDOFF_COLUMNS, named_measures, span
from .measures import Measures
from .panels import SQL, Column, Placed, rows, when
from .sql import HANDOFFS, ONE, ONE_TASK, chosen, named


def board(measures: Measures) -> Board:
    """The dashboard."""
    return Board(
        uid=links.ONE,
        title="One handoff",
        about="The story of one handoff: its contract, its constraints, and what the receiver repeated or leaked.",
        variables=[*filters(), task(), handoff()],
        annotations=[
            annotation(
                "This handoff",
                look.PURPLE,
                f"SELECT \"time\", concat({named('from_agent')}, ' -> ', {named('to_agent')}) AS text\n"
                f"FROM handoffs\nWHERE {ONE}",
            )
        ],
        since="now-24h",
        sections=[
            Section("The handoff", [transfer(), payload()]),
            Section("Timeline of its task", [story.lanes(), story.calls()]),
            Section("What was passed on", [story.contract(), story.constraints()]),
            Section("What went wrong", [story.findings(), story.repeats(), story.leaks(), story.violations()]),
            Section("Measures", [of_one(measures)]),
            Section("Other handoffs", [siblings(), recent()]),
        ],
    )


# The handoffs of the filters and the chosen tasks.
OF_TASKS = f"{HANDOFFS}\n  AND {chosen('task_id', 'task')}"


def task() -> QueryVariable:
    """Which tasks to choose a handoff from."""
    sql = f'SELECT task_id AS "name"\nFROM handoffs\n{HANDOFFS}\nGROUP BY 1\nORDER BY MAX("time") DESC, 1\nLIMIT 200'
    about = "The newest 200 tasks of the filters; they leave their handoffs to choose from"
    return choice("task", "Task", about, sql, VariableRefresh.ON_DASHBOARD_LOAD)


def handoff() -> QueryVariable:
    """Which one. It is looked up once: a new time range must not switch to another handoff."""
    sql = (
        'SELECT handoff_id AS "__value", concat(substr(CAST("time" AS VARCHAR), 1, 19), \'  \', '
        f"{named('from_agent')}, ' -> ', {named('to_agent')}, '  ', substr(handoff_id, 1, 8)) AS \"__text\"\n"
        f'FROM handoffs\n{OF_TASKS}\nORDER BY "time" DESC, handoff_id\nLIMIT 200'
    )
    return (
        QueryVariable("handoff")
        .label("Handoff")
        .description("The newest 200 of the filters; a link or a pasted id may name any other")
        .datasource(SQL)
        .query(sql)
        .definition(sql)
        .refresh(VariableRefresh.ON_DASHBOARD_LOAD)
        .sort(VariableSort.DISABLED)
        .multi(False)
        .include_all(False)
        .allow_custom_value(True)
    )


def transfer() -> Placed:
    """Who, whom, how."""
    return rows(
        "The handoff",
        "Who handed to whom, why and how, and how sure it is. No way is better. No row: this id is not in the store.",
        f"""SELECT
  "time" AS "time",
  {named("from_agent")} AS "from",
  {named("to_agent")} AS "to",
  mode AS "mode",
  outcome AS "outcome",
  detection AS "detected by",
  confidence AS "confidence",
  reason AS "reason",
  array_to_string(candidates, ', ') AS "candidates",
  service AS "service",
  task_id AS "task",
  trace_id AS "trace"
FROM handoffs
WHERE {ONE}""",
        [
            when(),
            Column("mode", width=130),
            Column("from", link=links.to_pair()),
            Column("to", link=links.to_pair()),
        ],
        height=4,
        no_value=look.NOTHING,
    )


def payload() -> Placed:
    """What was sent and what arrived, in numbers and in words."""
    return rows(
        "Payload and context",
        "What the sender put into the transfer, and the context before and after it. Fewer tokens after are better as "
        "long as no constraint is lost. 'unknown': not captured; the last column says why. The text shows only where "
        "content is kept.",
        f"""SELECT
  payload_tokens AS "payload tokens",
  items_before AS "items before",
  items_after AS "items after",
  filtered_items AS "filtered items",
  duplicate_items AS "duplicates",
  tokens_before AS "tokens before",
  tokens_after AS "tokens after",
  lost_tool_results AS "lost results",
  array_to_string(payload_aliases, ', ') AS "aliases used",
  array_to_string(artifact_refs, ', ') AS "references",
  array_to_string(artifacts_reused, ', ') AS "references used",
  payload_text AS "payload",
  COALESCE(payload_unknown, before_unknown, after_unknown) AS "why unknown"
FROM handoffs
WHERE {ONE}""",
        [
            *(
                Column(c, width=115 if c == "payload tokens" else 108)
                for c in (
                    "payload tokens",
                    "items before",
                    "items after",
                    "filtered items",
                    "duplicates",
                    "tokens before",
                    "tokens after",
                    "lost results",
                )
            ),
            *(Column(c, no_value=look.NOTHING, width=120) for c in ("aliases used", "references", "references used")),
            Column("payload", no_value=look.NOTHING, long=True),
            Column("why unknown", no_value=look.NOTHING, width=130),
        ],
        height=5,
    )


def of_one(measures: Measures) -> Placed:
    """Every measure of it."""
    of = measures.of("handoff")
    return rows(
        "All measures of this handoff",
        "Every measure of this one handoff: its value, what it is of, which way is better, and why it is unknown where "
        "it is. 'unknown' is not 0. No rows: this id is not in the store.",
        signals.of_one(of),
        [
            named_measures(of),
            Column("value", unit="short", width=120),
            Column("unit", width=120),
            Column("better", width=120),
            Column("of", width=120),
            Column("why unknown", no_value=look.NOTHING),
        ],
        height=14,
    )


def _listed(condition: str, order: str) -> str:
    return f"""SELECT
  h.handoff_id AS "handoff",
  h."time" AS "time",
  {named("h.from_agent")} AS "from",
  {named("h.to_agent")} AS "to",
  h.mode AS "mode",
  h.outcome AS "outcome",
  {span("t")}
FROM (
  SELECT handoff_id, task_id, "time", from_agent, to_agent, mode, outcome FROM handoffs
  {condition}
  ORDER BY "time" {order}, handoff_id
  LIMIT 100
) AS h
LEFT JOIN tasks t ON t.task_id = h.task_id
ORDER BY h."time" {order}, h.handoff_id"""


def siblings() -> Placed:
    """The other handoffs of the task."""
    return rows(
        "All handoffs of this task",
        "The handoffs of the same task in order; click an id to open it. No way is better. No rows: this id is not in the "
        "store.",
        _listed(f"WHERE {ONE_TASK}", "ASC"),
        [*HANDOFF_COLUMNS, Column("mode", width=130), Column("outcome", width=85)],
        width=12,
    )


def recent() -> Placed:
    """The newest ones, to choose from."""
    return rows(
        "Newest handoffs of the filters",
        "The newest handoffs of the time range and the filters above; click an id to open it. No way is better. "
        "No rows: no handoff in this time range.",
        _listed(OF_TASKS.replace("\n", "\n  "), "DESC"),
        [*HANDOFF_COLUMNS, Column("mode", width=130), Column("outcome", width=85)],
        width=12,
    )
