"""Dashboard variables, as Grafana puts them into the SQL of its PostgreSQL data source."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

USE = re.compile(r"\$\{(?P<braced>\w+)(?::(?P<format>\w+))?\}|\[\[(?P<old>\w+)(?::\w+)?\]\]|\$(?P<plain>\w+)")


class VariableError(ValueError):
    """A variable that does not exist, or a format that is not known here."""


@dataclass(frozen=True)
class Variable:
    """A variable with what is chosen in it. `chosen` is None where `All` is."""

    name: str
    multi: bool = False
    include_all: bool = False
    all_value: str | None = None
    options: tuple[str, ...] = ()
    chosen: tuple[str, ...] | None = ()

    @classmethod
    def of(cls, model: Mapping[str, Any], chosen: tuple[str, ...] | None) -> Variable:
        """From a dashboard's JSON."""
        return cls(
            model["name"],
            bool(model.get("multi")),
            bool(model.get("includeAll")),
            model.get("allValue"),
            (),
            chosen,
        )


def literal(text: str) -> str:
    """As SQL text: quotes are doubled."""
    return "'" + text.replace("'", "''") + "'"


def _written(v: Variable, form: str | None) -> str:
    if v.chosen is None:
        if v.all_value:
            # A value of one's own for All is put in as it is, in every format.
            return v.all_value
        chosen = v.options
    else:
        chosen = v.chosen
    if form == "sqlstring":
        return ",".join(literal(c) for c in chosen)
    if form == "raw":
        return ",".join(chosen)
    if form is not None:
        raise VariableError(f"format {form} of {v.name} is not known here")
    if v.multi or v.include_all:
        return ",".join(literal(c) for c in chosen)
    # A plain variable is not quoted, its quotes are doubled.
    return ",".join(c.replace("'", "''") for c in chosen)


def names(text: str) -> set[str]:
    """Variables that a text uses, Grafana's own (with two underscores) left out."""
    used = (m["braced"] or m["old"] or m["plain"] for m in USE.finditer(text))
    return {n for n in used if n and not n.startswith("__")}


def put(sql: str, variables: Mapping[str, Variable]) -> str:
    """The SQL with all variables put in."""

    def written(m: re.Match[str]) -> str:
        name = m["braced"] or m["old"] or m["plain"]
        if name.startswith("__"):
            return m[0]
        if name not in variables:
            raise VariableError(f"no variable {name}")
        return _written(variables[name], m["format"])

    return USE.sub(written, sql)
