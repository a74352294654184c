"""Grafana's macros, as its PostgreSQL data source expands them without the TimescaleDB setting.

Two steps, as in Grafana: the interval is put in first, then the macros are expanded. An argument ends at the first
closing bracket, so an argument with brackets of its own is expanded wrongly there, and here too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

MACRO = re.compile(r"\$([_a-zA-Z0-9]+)\(([^)]*)\)")
SPAN = re.compile(r"(\d+)(ms|[smhdwMy])")
SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800, "M": 2592000, "y": 31536000}


class MacroError(ValueError):
    """A macro that Grafana would refuse."""


@dataclass(frozen=True)
class Range:
    """A time range."""

    since: datetime
    until: datetime

    def seconds(self) -> float:
        """Its length."""
        return (self.until - self.since).total_seconds()


def rfc3339(t: datetime) -> str:
    """As Go's RFC3339Nano writes it: UTC, no trailing zeros."""
    t = t.astimezone(UTC)
    text = t.strftime("%Y-%m-%dT%H:%M:%S")
    if t.microsecond:
        text += f".{t.microsecond:06d}".rstrip("0")
    return text + "Z"


def seconds_of(text: str) -> float:
    """An interval in seconds: 5m, 1h30m, or a plain number of seconds."""
    text = text.strip().strip("'\"")
    if re.fullmatch(r"\d+", text):
        return float(text)
    parts = SPAN.findall(text)
    if not parts or "".join(n + u for n, u in parts) != text:
        raise MacroError(f"no interval: {text!r}")
    return sum(int(n) * SECONDS[u] for n, u in parts)


def number(value: float) -> str:
    """As Go prints a float with %v, for the lengths that occur."""
    return str(int(value)) if value == int(value) else repr(value)


def interval_text(milliseconds: int) -> str:
    """Milliseconds as Grafana writes an interval."""
    for unit, size in (("d", 86400000), ("h", 3600000), ("m", 60000), ("s", 1000)):
        if milliseconds % size == 0:
            return f"{milliseconds // size}{unit}"
    return f"{milliseconds}ms"


def step(range_: Range, least: str | None = None, points: int = 1000) -> int:
    """Milliseconds that Grafana takes as `$__interval`: the range by the points, rounded, no less than the least."""
    wanted = range_.seconds() * 1000 / points
    nice = [
        10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 15000, 20000, 30000, 60000, 120000, 300000, 600000,
        900000, 1200000, 1800000, 3600000, 7200000, 10800000, 21600000, 43200000, 86400000, 604800000, 2592000000,
    ]  # fmt: skip
    chosen = next((n for n in nice if n >= wanted), 31536000000)
    return max(chosen, int(seconds_of(least) * 1000) if least else 0)


def _group(name: str, args: list[str], seconds: str) -> str:
    if len(args) < 2:
        raise MacroError(f"macro {name} needs a time column and an interval")
    width = number(seconds_of(args[1]))
    if seconds == "epoch":
        return f"floor(({args[0]})/{width})*{width}"
    return f"floor(extract(epoch from {args[0]})/{width})*{width}"


def _evaluate(name: str, args: list[str], r: Range) -> str:
    since, until = rfc3339(r.since), rfc3339(r.until)
    whole = (int(r.since.timestamp()), int(r.until.timestamp()))
    nano = (int(r.since.timestamp() * 1e6) * 1000, int(r.until.timestamp() * 1e6) * 1000)
    column = args[0] if args else ""
    needs = {"__time", "__timeEpoch", "__timeFilter", "__unixEpochFilter", "__unixEpochNanoFilter"}
    if name in needs and not column:
        raise MacroError(f"missing time column for macro {name}")
    simple = {
        "__time": f'{column} AS "time"',
        "__timeEpoch": f'extract(epoch from {column}) as "time"',
        "__timeFilter": f"{column} BETWEEN '{since}' AND '{until}'",
        "__timeFrom": f"'{since}'",
        "__timeTo": f"'{until}'",
        "__unixEpochFilter": f"{column} >= {whole[0]} AND {column} <= {whole[1]}",
        "__unixEpochNanoFilter": f"{column} >= {nano[0]} AND {column} <= {nano[1]}",
        "__unixEpochFrom": str(whole[0]),
        "__unixEpochTo": str(whole[1]),
        "__unixEpochNanoFrom": str(nano[0]),
        "__unixEpochNanoTo": str(nano[1]),
    }
    if name in simple:
        return simple[name]
    if name == "__timeGroup":
        return _group(name, args, "time")
    if name == "__timeGroupAlias":
        return _group(name, args, "time") + ' AS "time"'
    if name == "__unixEpochGroup":
        return _group(name, args, "epoch")
    if name == "__unixEpochGroupAlias":
        return _group(name, args, "epoch") + ' AS "time"'
    raise MacroError(f"unknown macro {name}")


def expand(sql: str, r: Range, interval_ms: int = 60000) -> str:
    """The SQL that reaches the endpoint."""
    # The longer name first: the shorter one begins it.
    for name, value in (("__interval_ms", str(interval_ms)), ("__interval", interval_text(interval_ms))):
        sql = sql.replace(f"${{{name}}}", value).replace(f"${name}", value)

    def replaced(m: re.Match[str]) -> str:
        name, args = m.group(1), [a.strip(" ") for a in m.group(2).split(",")]
        # Old dashboards wrote `$__timeGroup(…),` and meant the alias: Grafana still reads it so.
        if name == "__timeGroup" and sql[m.end() : m.end() + 1] == ",":
            name = "__timeGroupAlias"
        return _evaluate(name, args, r)

    return MACRO.sub(replaced, sql)
