"""From a measure to its SQL, once for each way of showing it."""

from __future__ import annotations

from .measures import Measure, Measures
from .sql import during, filters, named, ratio, where

SUMS = "measure_sums"

# Grafana puts NULL where a step has no row, so that no line is drawn over a time of which nothing is known.
STEP = '$__timeGroupAlias("time", $__interval, NULL)'

WAY = {"up": "higher is better", "down": "lower is better", "neutral": "no way is better"}


def way(measure: Measure) -> str:
    """Which way is good, in words."""
    return WAY[measure.good]


def conditions(measure: Measure) -> list[str]:
    """What the dashboard's filters say of a measure. Sums of tasks have no agents, so agents are not asked for."""
    return [f"measure = '{measure.name}'", during(), *filters(agents=measure.subject == "handoff")]


def stat(measure: Measure) -> str:
    """One row: the value, what it is of, and how many subjects are unknown."""
    return "\n".join(
        [
            "SELECT",
            f'  {ratio(measure.scale)} AS "value",',
            '  COALESCE(SUM(denominator) FILTER (WHERE unknown IS NULL), 0) AS "of",',
            '  COALESCE(SUM(subjects) FILTER (WHERE unknown IS NOT NULL), 0) AS "unknown"',
            f"FROM {SUMS}",
            where(*conditions(measure)),
        ]
    )


def column(measure: Measure) -> str:
    """The value as one of several columns."""
    of_it = f"measure = '{measure.name}'"
    return f'  {ratio(measure.scale, of_it)} AS "{measure.name}"'


def trend(measure: Measure) -> str:
    """The value over time. A step without a denominator is a gap, no 0."""
    return "\n".join(
        [
            "SELECT",
            f"  {STEP},",
            f'  {ratio(measure.scale)} AS "{measure.name}"',
            f"FROM {SUMS}",
            where(*conditions(measure)),
            "GROUP BY 1",
            "ORDER BY 1",
        ]
    )


def trends(measures: list[Measure]) -> str:
    """Several measures of one unit over time, a column each."""
    columns = [column(m) for m in measures]
    names = ", ".join(f"'{m.name}'" for m in measures)
    agents = all(m.subject == "handoff" for m in measures)
    return "\n".join(
        [
            "SELECT",
            f"  {STEP},",
            ",\n".join(columns),
            f"FROM {SUMS}",
            where(f"measure IN ({names})", during(), *filters(agents=agents)),
            "GROUP BY 1",
            "ORDER BY 1",
        ]
    )


def leaks_count(measure: Measure) -> str:
    """The sum itself, where it is known at all."""
    return "\n".join(
        [
            "SELECT",
            '  SUM(numerator) FILTER (WHERE unknown IS NULL) AS "leaks",',
            '  COALESCE(SUM(subjects) FILTER (WHERE unknown IS NULL), 0) AS "handoffs known"',
            f"FROM {SUMS}",
            where(*conditions(measure)),
        ]
    )


def volume_stat() -> str:
    """Handoffs of every outcome, how many of them were accepted, and their share."""
    return "\n".join(
        [
            "SELECT",
            '  COALESCE(SUM(subjects), 0) AS "handoffs",',
            '  COALESCE(SUM(numerator), 0) AS "accepted",',
            '  1.0 * SUM(numerator) / NULLIF(SUM(denominator), 0) AS "share accepted"',
            f"FROM {SUMS}",
            where("measure = 'handoffs'", during(), *filters()),
        ]
    )


def volume_trend() -> str:
    """Accepted and other handoffs over time."""
    return "\n".join(
        [
            "SELECT",
            f"  {STEP},",
            '  SUM(numerator) AS "accepted",',
            '  SUM(subjects) - SUM(numerator) AS "not accepted"',
            f"FROM {SUMS}",
            where("measure = 'handoffs'", during(), *filters()),
            "GROUP BY 1",
            "ORDER BY 1",
        ]
    )


def pairs(measures: list[Measure]) -> str:
    """One row per pair of agents, a column per measure."""
    columns = [column(m) for m in measures]
    names = ", ".join(f"'{n}'" for n in ["handoffs", *(m.name for m in measures)])
    return "\n".join(
        [
            # Few rows are turned into columns, not each row of the table.
            "WITH s AS (",
            "  SELECT measure, from_agent, to_agent, CAST(NULL AS VARCHAR) AS unknown,",
            "    SUM(subjects) AS subjects, SUM(numerator) AS numerator, SUM(denominator) AS denominator",
            f"  FROM {SUMS}",
            "  " + where(f"measure IN ({names})", "unknown IS NULL", during(), *filters()).replace("\n", "\n  "),
            "  GROUP BY 1, 2, 3",
            ")",
            "SELECT",
            f'  {named("from_agent")} AS "from",',
            f'  {named("to_agent")} AS "to",',
            "  COALESCE(SUM(subjects) FILTER (WHERE measure = 'handoffs'), 0) AS \"handoffs\",",
            ",\n".join(columns),
            "FROM s",
            "GROUP BY 1, 2",
            "ORDER BY 3 DESC, 1, 2",
            "LIMIT 200",
        ]
    )


def matrix() -> str:
    """Sender, receiver and number of handoffs; Grafana turns it into a matrix."""
    return "\n".join(
        [
            "SELECT",
            f'  {named("from_agent")} AS "from",',
            f'  {named("to_agent")} AS "to",',
            '  SUM(subjects) AS "handoffs"',
            f"FROM {SUMS}",
            where("measure = 'handoffs'", during(), *filters()),
            "GROUP BY 1, 2",
            "ORDER BY 1, 2",
        ]
    )


def _listed(measures: list[Measure]) -> str:
    """The measures as rows of SQL: name, place, factor, unit and which way is good."""
    rows = []
    for place, m in enumerate(measures):
        share = m.unit == "share"
        unit = "%" if share else m.unit
        good = {"up": "higher", "down": "lower", "neutral": "-"}[m.good]
        rows.append(f"    ('{m.name}', {place}, {m.scale * (100 if share else 1)!r}, '{unit}', '{good}')")
    return "(VALUES\n" + ",\n".join(rows) + "\n  )"


def table(measures: list[Measure]) -> str:
    """Every measure as a row with its sums. A measure without any row is unknown too, so it stays in the list."""
    agents = all(m.subject == "handoff" for m in measures)
    names = ", ".join(f"'{m.name}'" for m in measures)
    known = "FILTER (WHERE unknown IS NULL)"
    return "\n".join(
        [
            "WITH s AS (",
            f"  SELECT measure, SUM(numerator) {known} AS found, SUM(denominator) {known} AS base,",
            "    SUM(subjects) FILTER (WHERE unknown IS NOT NULL) AS lacking",
            f"  FROM {SUMS}",
            "  " + where(f"measure IN ({names})", during(), *filters(agents=agents)).replace("\n", "\n  "),
            "  GROUP BY measure",
            ")",
            "SELECT",
            '  m.name AS "measure",',
            '  m.factor * s.found / NULLIF(s.base, 0) AS "value",',
            '  m.unit AS "unit",',
            '  m.good AS "better",',
            '  COALESCE(s.base, 0) AS "of",',
            '  COALESCE(s.lacking, 0) AS "unknown"',
            f"FROM {_listed(measures)} AS m(name, place, factor, unit, good)",
            "LEFT JOIN s ON s.measure = m.name",
            "ORDER BY m.place",
        ]
    )


def unknown() -> str:
    """What is not known, why, and of how many subjects."""
    return "\n".join(
        [
            "SELECT",
            '  measure AS "measure",',
            '  unknown AS "why unknown",',
            '  SUM(subjects) AS "handoffs or tasks"',
            f"FROM {SUMS}",
            where(
                "unknown IS NOT NULL",
                during(),
                *filters(agents=False),
                # Sums of tasks have no agents and stay in.
                *(f"({c} OR measure IN (${{task_measures}}))" for c in filters()[1:]),
            ),
            "GROUP BY 1, 2",
            "ORDER BY 3 DESC, 1, 2",
            "LIMIT 200",
        ]
    )


def unknown_of(all_measures: Measures) -> str:
    """As `unknown`, with the names of the task measures written out."""
    names = ", ".join(f"'{m.name}'" for m in all_measures.of("task"))
    return unknown().replace("${task_measures}", names)


def of_one(measures: list[Measure]) -> str:
    """All measures of the one handoff, a row each, from their views."""
    rows = []
    for place, m in enumerate(measures):
        share = m.unit == "share"
        factor = m.scale * (100 if share else 1)
        unit = "%" if share else m.unit.removesuffix(" per handoff")
        good = {"up": "higher", "down": "lower", "neutral": "-"}[m.good]
        rows.append(
            f"SELECT {place} AS place, '{m.name}' AS \"measure\", "
            f'{factor!r} * numerator / NULLIF(denominator, 0) AS "value", '
            f"'{unit}' AS \"unit\", '{good}' AS \"better\", "
            f'denominator AS "of", '
            f"COALESCE(unknown, CASE WHEN denominator = 0 THEN 'nothing to count' END) AS \"why unknown\" "
            f"FROM measure_{m.name} WHERE id = ${{handoff:sqlstring}}"
        )
    body = "\nUNION ALL\n".join(rows)
    return f'SELECT "measure", "value", "unit", "better", "of", "why unknown" FROM (\n{body}\n) AS m\nORDER BY place'
