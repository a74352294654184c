"""Panels that more than one dashboard shows."""

from __future__ import annotations

from . import links, look, signals
from .measures import Measure
from .panels import Column, Placed, rows, series, sql_query, stat, when
from .sql import HANDOFFS, named

WORSE = "How much went wrong: lost constraints, repeated calls, retries, leaks and lost results, added up."


def stat_of(measure: Measure, title: str | None = None, width: int = 6, height: int = 5) -> Placed:
    """A measure as a number, with what it is of and how many are unknown."""
    return stat(
        title or measure.title,
        measure.about,
        signals.stat(measure),
        measure.grafana_unit,
        [
            Column("value", title=_label(measure, title)),
            Column("of", unit=look.COUNT, title=f"of {measure.of}"),
            Column("unknown", unit=look.COUNT, title=f"unknown {measure.subject}s"),
        ],
        width=width,
        height=height,
    )


def _label(measure: Measure, title: str | None) -> str:
    """What the number is. That of a measure that is no share is a mean, which its title does not say."""
    if measure.unit == "share":
        return title or measure.title
    return "mean " + measure.unit.removeprefix("ms ")


def trend_of(measure: Measure, color: str = look.BLUE, title: str | None = None, width: int = 8) -> Placed:
    """A measure over time."""
    share = measure.unit == "share"
    return series(
        f"{title or measure.title} over time",
        measure.about,
        [sql_query(signals.trend(measure), "time_series")],
        measure.grafana_unit,
        [Column(measure.name, color=color, title=title or measure.title)],
        width=width,
        least=0,
        most=1 if share else None,
    )


def trends_of(title: str, about: str, measures: list[Measure], width: int = 8) -> Placed:
    """Measures of one unit over time, in one picture."""
    share = measures[0].unit == "share"
    return series(
        title,
        about + " " + " ".join(f"{m.title}: {m.description} ({signals.way(m)})" for m in measures) + GAP,
        [sql_query(signals.trends(measures), "time_series")],
        measures[0].grafana_unit,
        [Column(m.name, color=look.SERIES[i], title=m.title) for i, m in enumerate(measures)],
        width=width,
        least=0,
        most=1 if share else None,
    )


GAP = " A gap or 'unknown': nothing in this step could be known. That is not 0."


def measures_table(title: str, measures: list[Measure], height: int = 9, width: int = 24) -> Placed:
    """Every measure as a row."""
    subject = measures[0].subject
    about = (
        f"Every measure of {subject}s: its value, the sum it is of, and how many {subject}s are unknown. "
        "The column 'better' says which way is good. 'unknown' as a value: no denominator in this time range, "
        "which is not 0."
    )
    if subject == "task":
        about += " It follows the service filter alone: a task has no single pair of agents."
    return rows(
        title,
        about,
        signals.table(measures),
        [named_measures(measures), Column("value", unit="short")],
        height=height,
        width=width,
    )


def named_measures(measures: list[Measure]) -> Column:
    """The names of measures as people read them."""
    return Column("measure", names={m.name: m.title for m in measures}, width=250)


HANDOFF_COLUMNS = [
    Column("handoff", link=links.to_one(), width=155),
    when(),
    Column("task_from", hidden=True),
    Column("task_to", hidden=True),
]


def worst(title: str, condition: str | None = None, height: int = 10) -> Placed:
    """Single handoffs, with a link to each."""
    about = (
        "Single handoffs of the filters above; click an id for its story, with the time range of its task. "
        f"{WORSE} Lower is better. Empty cells are unknown or nothing; no rows: no such handoff in this time range."
    )
    return rows(
        title,
        about,
        handoffs_sql(condition),
        [
            *HANDOFF_COLUMNS,
            Column("completeness", unit="percentunit", no_value=look.UNKNOWN),
        ],
        height=height,
        no_value=look.NOTHING,
    )


def handoffs_sql(condition: str | None = None) -> str:
    """A row per handoff. What happened to it stands in other tables, which are read from the start of the range on."""
    recent = "last_activity >= $__timeFrom()"
    chosen = HANDOFFS.replace("\n", "\n  ")
    only = f"WHERE {condition}\n  " if condition else ""
    return f"""WITH h AS (
  SELECT handoff_id, task_id, "time", from_agent, to_agent, outcome, required_present, payload_unknown,
    lost_tool_results
  FROM handoffs
  {chosen}
), c AS (
  SELECT handoff_id, COUNT(*) AS n FROM handoff_constraints
  WHERE {recent} AND counted AND NOT got GROUP BY handoff_id
), r AS (
  SELECT handoff_id, COUNT(*) FILTER (WHERE repeat_kind = 'redundant') AS n,
    COUNT(*) FILTER (WHERE repeat_kind = 'known_failure') AS retried
  FROM tool_calls WHERE {recent} AND repeat_kind IS NOT NULL AND handoff_id IS NOT NULL GROUP BY handoff_id
), l AS (
  SELECT handoff_id, COUNT(*) AS n FROM leaks WHERE {recent} GROUP BY handoff_id
), w AS (
  SELECT h.*, COALESCE(c.n, 0) AS lost, COALESCE(r.n, 0) AS repeated, COALESCE(r.retried, 0) AS retried,
    COALESCE(l.n, 0) AS leaked,
    COALESCE(c.n, 0) + COALESCE(r.n, 0) + COALESCE(r.retried, 0) + COALESCE(l.n, 0)
      + COALESCE(h.lost_tool_results, 0) AS wrong
  FROM h
  LEFT JOIN c ON c.handoff_id = h.handoff_id
  LEFT JOIN r ON r.handoff_id = h.handoff_id
  LEFT JOIN l ON l.handoff_id = h.handoff_id
  {only}ORDER BY wrong DESC, h.handoff_id
  LIMIT 50
)
SELECT
  w.handoff_id AS "handoff",
  w."time" AS "time",
  {named("w.from_agent")} AS "from",
  {named("w.to_agent")} AS "to",
  w.outcome AS "outcome",
  w.wrong AS "went wrong",
  w.lost AS "lost constraints",
  w.repeated AS "redundant calls",
  w.retried AS "retries",
  w.leaked AS "leaks",
  CASE WHEN w.payload_unknown IS NULL THEN w.required_present / 6.0 END AS "completeness",
  {span("t")}
FROM w
LEFT JOIN tasks t ON t.task_id = w.task_id
ORDER BY w.wrong DESC, w.handoff_id"""


def span(task: str) -> str:
    """The task's time as text in milliseconds, a second wider on both sides, for links."""
    return (
        f'CAST(CAST(floor(extract(epoch from {task}.start)) AS BIGINT) * 1000 - 1000 AS VARCHAR) AS "task_from",\n'
        f'  CAST(CAST(ceil(extract(epoch from {task}."end")) AS BIGINT) * 1000 + 1000 AS VARCHAR) AS "task_to"'
    )
