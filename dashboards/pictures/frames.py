"""From an answer to the data frames that Grafana's PostgreSQL data source makes of it."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from typing import Any

from walk.boards import Json
from walk.run import Result

# How the page names the kinds of values.
TYPES = {"number": "number", "time": "time", "flag": "boolean"}
# Numbers below this are seconds of an epoch, others are milliseconds already.
SECONDS_END = 1e11


def milliseconds(value: Any) -> float | None:
    """A time, or an epoch in a column of time."""
    if value is None:
        return None
    if isinstance(value, datetime):
        at = value if value.tzinfo else value.replace(tzinfo=UTC)
        return at.timestamp() * 1000
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC).timestamp() * 1000
    number = float(value)
    return number * 1000 if abs(number) < SECONDS_END else number


def _value(kind: str, value: Any) -> Any:
    if value is None:
        return None
    if kind == "time":
        return milliseconds(value)
    if kind == "number":
        number = float(value)
        # JSON has no such numbers. The page makes them of these texts, and complains.
        return number if math.isfinite(number) else str(number)
    return value if kind == "flag" else str(value)


def _fields(r: Result) -> list[Json]:
    out = []
    for name, kind in zip(r.columns, r.kinds, strict=True):
        # Grafana takes the column `time` as a time, also where it holds an epoch.
        kind = "time" if name == "time" and kind == "number" else kind
        values = [_value(kind, v) for v in r.column(name)]
        out.append({"name": name, "type": TYPES.get(kind, "string"), "values": values})
    return out


def filled(made: list[Json], since: float, until: float, step: float) -> list[Json]:
    """Steps without a row as NULL, as a third argument of Grafana's macro has it. Times are milliseconds."""
    out = []
    for frame in made:
        time, *others = frame["fields"]
        place = {t: i for i, t in enumerate(time["values"])}
        moments = sorted({*place, *(i * step for i in range(math.floor(since / step), math.floor(until / step) + 1))})
        fields = [{**time, "values": moments}]
        for f in others:
            fields.append({**f, "values": [f["values"][place[t]] if t in place else None for t in moments]})
        out.append({**frame, "fields": fields})
    return out


def table(r: Result, ref: str) -> list[Json]:
    """Columns as they come."""
    return [{"refId": ref, "fields": _fields(r)}] if r.columns else []


def series(r: Result, ref: str) -> list[Json]:
    """One time column, and a field for each number and each combination of texts."""
    fields = _fields(r)
    times = next((f for f in fields if f["type"] == "time"), None)
    texts = [f for f in fields if f["type"] == "string"]
    numbers = [f for f in fields if f["type"] == "number"]
    if times is None or not numbers:
        return table(r, ref)
    if not texts:
        return [{"refId": ref, "fields": [times, *numbers]}]
    moments = sorted({t for t in times["values"] if t is not None})
    place = {t: i for i, t in enumerate(moments)}
    wide: dict[tuple[str, ...], Json] = {}
    for row, t in enumerate(times["values"]):
        if t is None:
            continue
        labels = {f["name"]: f["values"][row] for f in texts}
        for n in numbers:
            key = (n["name"], *(str(v) for v in labels.values()))
            if key not in wide:
                field: Json = {"name": n["name"], "type": "number", "labels": labels, "values": [None] * len(moments)}
                # A column `metric` names the series, as it did before there were labels.
                if len(numbers) == 1 and set(labels) == {"metric"}:
                    field = {**field, "name": labels["metric"], "labels": {}}
                wide[key] = field
            wide[key]["values"][place[t]] = n["values"][row]
    time = {"name": times["name"], "type": "time", "values": moments}
    return [{"refId": ref, "fields": [time, *(wide[k] for k in sorted(wide))]}]
