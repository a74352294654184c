"""Pieces of SQL that panels share.

The engine behind the endpoint is DataFusion. Whole numbers divide as whole numbers there, so each rate is multiplied
by a float first. Names of agents and services are data: they reach a query only through Grafana's own quoting.

Two traps of Grafana's macros: an argument may hold no bracket, and a `$__timeGroup(…)` with a comma right behind it
gets an alias. So filters take plain columns, and grouping always uses `$__timeGroupAlias`.
"""

from __future__ import annotations

# How a missing name is shown, in variables and in tables.
UNNAMED = "(unnamed)"
# What `All` stands for in a query. Grafana puts it in as it is, hence the quotes.
ALL = "'(all)'"

AGENTS = ("from_agent", "to_agent")


def named(column: str) -> str:
    """A name that may be missing."""
    return f"COALESCE({column}, '{UNNAMED}')"


def chosen(column: str, variable: str | None = None) -> str:
    """True where the column is among the values chosen in the variable of its name."""
    name = variable or column.split(".")[-1]
    return f"({ALL} IN (${{{name}}}) OR {named(column)} IN (${{{name}}}))"


def filters(*, agents: bool = True, prefix: str = "") -> list[str]:
    """The conditions of service and, for handoffs, of the agents."""
    columns = ["service", *(AGENTS if agents else ())]
    return [chosen(prefix + c) for c in columns]


def during(column: str = '"time"') -> str:
    """True inside the dashboard's time range."""
    return f"$__timeFilter({column})"


def where(*conditions: str) -> str:
    """A WHERE clause, a line for each condition."""
    return "WHERE " + "\n  AND ".join(conditions)


def ratio(scale: float = 1.0, condition: str | None = None) -> str:
    """Sum of numerators by sum of denominators of what is known; NULL without a denominator."""
    known = "unknown IS NULL" + (f" AND {condition}" if condition else "")
    return f"{scale!r} * SUM(numerator) FILTER (WHERE {known}) / NULLIF(SUM(denominator) FILTER (WHERE {known}), 0)"


# Handoffs that the dashboard's filters choose, for panels that look at single rows.
HANDOFFS = where(during(), *filters())

# The one handoff of the dashboard of that name.
ONE = "handoff_id = ${handoff:sqlstring}"
# Its task.
ONE_TASK = f"task_id IN (SELECT task_id FROM handoffs WHERE {ONE})"
