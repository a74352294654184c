"""Runs SQL over the wire, in both protocols."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Protocol

NUMBERS = (int, float, Decimal)

# Types of Postgres by number: what Grafana takes as a number, a time or text.
KINDS = {
    **dict.fromkeys((20, 21, 23, 26, 700, 701, 1700), "number"),
    **dict.fromkeys((1082, 1114, 1184), "time"),
    **dict.fromkeys((18, 19, 25, 1042, 1043), "text"),
    16: "flag",
}


@dataclass
class Result:
    """Columns with their kinds, and rows."""

    columns: list[str]
    kinds: list[str]
    rows: list[tuple[Any, ...]]

    def column(self, name: str) -> list[Any]:
        """All values of a column."""
        i = self.columns.index(name)
        return [r[i] for r in self.rows]


class Runner(Protocol):
    """Something that answers SQL."""

    def run(self, sql: str, extended: bool) -> Result:
        """In the extended protocol (prepared), or in the simple one."""
        ...


class Failed(Exception):
    """A query that the endpoint refused."""


class Wire:
    """psycopg 3. A client-side cursor speaks the simple protocol, a prepared statement the extended one."""

    def __init__(self, dsn: str, timeout: float = 60) -> None:
        import psycopg

        self._psycopg = psycopg
        self._dsn = dsn
        self._timeout = timeout
        self._connection: Any = None

    def _connected(self) -> Any:
        if self._connection is None or self._connection.closed:
            self._connection = self._psycopg.connect(self._dsn, autocommit=True, connect_timeout=10)
        return self._connection

    def run(self, sql: str, extended: bool) -> Result:
        """Both ask without parameters, as Grafana does."""
        try:
            c = self._connected()
            cursor = c.cursor() if extended else self._psycopg.ClientCursor(c)
            with cursor:
                cursor.execute(sql, prepare=extended or None)
                rows = cursor.fetchall()
                about = cursor.description or []
                kinds = [KINDS.get(d.type_code, "other") for d in about]
                return Result([d.name for d in about], kinds, rows)
        except self._psycopg.Error as e:
            if self._connection is not None and self._connection.broken:
                self._connection = None
            raise Failed(str(e).strip().splitlines()[0] if str(e).strip() else type(e).__name__) from e


def kind_of(value: Any) -> str:
    """The kind of one value."""
    if isinstance(value, bool):
        return "flag"
    if isinstance(value, NUMBERS):
        return "number"
    if isinstance(value, (datetime, date)):
        return "time"
    return "text"


class Recorder:
    """Keeps each statement once, for other drivers to send."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self.statements: dict[str, None] = {}

    def run(self, sql: str, extended: bool) -> Result:
        """As the runner does."""
        self.statements[sql] = None
        return self._runner.run(sql, extended)
