"""The walk: each query with each choice of variables, in both protocols."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from . import alerting, boards, macros, numbers, shapes, variables
from .boards import Asked, Board, Json
from .macros import Range
from .numbers import Compared
from .run import Failed, Result, Runner

# A name as an attacker would choose it. It must be found nowhere, and do nothing. It holds no macro: Grafana expands
# those inside quoted values too, and the query then fails, which nothing here can prevent.
HOSTILE = "x') OR 1=1; DROP TABLE handoffs; -- \" $$ \\ ${service}"

# A step in milliseconds that holds all of any time range, a hundred years.
ALL_IN_ONE = 100 * 31536000000


@dataclass
class Tally:
    """What passed and what failed."""

    passed: int = 0
    failures: list[str] = field(default_factory=list)
    # How many numbers were compared, each once for each protocol.
    numbers: int = 0

    def add(self, place: str, problems: Iterable[str]) -> bool:
        """True where there was no problem."""
        found = [f"{place}: {p}" for p in problems]
        self.failures += found
        self.passed += not found
        return not found


@dataclass
class Tour:
    """What is walked, and how."""

    runner: Runner
    range: Range
    # The numbers that panels must show.
    must: numbers.Numbers | None = None
    expect_data: bool = False
    # Places that are walked hold this text.
    only: str = ""
    # Only panels whose numbers are compared, with All chosen, in one protocol.
    brief: bool = False
    tally: Tally = field(default_factory=Tally)

    def asked(self, sql: str, r: Range, interval: int, extended: bool) -> Result:
        """The answer to a query whose variables are put in."""
        return self.runner.run(macros.expand(sql, r, interval), extended)

    def board(self, board: Board) -> None:
        """A whole dashboard."""
        wanted = [q for q in boards.queries(board) if self.only in q.place and self.looks(q)]
        offered = self.choices(board) if wanted else {}
        for q in wanted:
            for label, chosen in variants(board, offered, q.sql):
                if label == "all" or not self.brief:
                    self.query(q, label, chosen)

    def looks(self, q: Asked) -> bool:
        """True where this walk looks at a query."""
        return not self.brief or bool(q.panel and q.place not in numbers.NOT_COMPARED)

    def choices(self, board: Board) -> dict[str, list[str]]:
        """What each variable offers, with All in those before it."""
        out: dict[str, list[str]] = {}
        for v in board.variables():
            if v["type"] != "query":
                continue
            chosen = values(board, out, {})
            try:
                r = self.asked(variables.put(v["query"], chosen), self.range, 60000, False)
            except (Failed, macros.MacroError, variables.VariableError):
                # The query itself is walked too and fails there.
                out[v["name"]] = []
                continue
            column = "__value" if "__value" in r.columns else r.columns[0]
            out[v["name"]] = [str(x) for x in r.column(column)]
        return out

    def query(self, q: Asked, label: str, chosen: dict[str, variables.Variable]) -> None:
        """One query with one choice."""
        least = q.panel.get("interval") if q.panel else None
        step = ALL_IN_ONE if self.brief and q.kind == "series" else macros.step(self.range, least)
        for extended in (False,) if self.brief else (False, True):
            place = f"{q.place} [{label}, {'extended' if extended else 'simple'}]"
            try:
                q.sent = variables.put(q.sql, chosen)
                r = self.asked(q.sent, self.range, step, extended)
            except (Failed, macros.MacroError, variables.VariableError) as e:
                self.tally.add(place, [str(e)])
                continue
            problems = list(shapes.wrong(q, r))
            if label == "all":
                if self.expect_data and shapes.empty(q, r):
                    problems.append("no data")
                if self.must and q.panel and not problems:
                    problems += self.numbers(q, chosen, r, extended)
            elif label == "hostile" and q.kind not in {"stat"} and r.rows and names_agents(q.sql):
                problems.append(f"{len(r.rows)} rows for a name that does not exist")
            self.tally.add(place, problems)

    def numbers(self, q: Asked, chosen: dict[str, variables.Variable], r: Result, extended: bool) -> list[str]:
        """What differs from what must be shown. A series is asked again in one step, which is then the rate of all."""
        assert self.must is not None
        if q.place in numbers.NOT_COMPARED:
            return []
        if q.kind == "series" and not self.brief:
            try:
                r = self.asked(variables.put(q.sql, chosen), self.range, ALL_IN_ONE, extended)
            except Failed as e:
                return [str(e)]
        return self.compare(numbers.shown(q, r, self.must), "nothing says what its numbers must be")

    def compare(self, pairs: Iterable[Compared], nothing: str) -> list[str]:
        """What differs; that there is nothing to compare, where there is nothing."""
        compared = list(pairs)
        self.tally.numbers += len(compared)
        return numbers.wrong(compared) if compared else [nothing]

    def alerts(self, rules: list[Json]) -> None:
        """The SQL of all rules, as of the end of the time range."""
        for q in boards.alert_queries(rules):
            if self.only not in q.place:
                continue
            until = self.range.until
            r = Range(until - timedelta(seconds=q.since), until - timedelta(seconds=q.until))
            for extended in (False, True):
                place = f"{q.place} [{'extended' if extended else 'simple'}]"
                try:
                    got = self.asked(q.sql, r, 60000, extended)
                except (Failed, macros.MacroError) as e:
                    self.tally.add(place, [str(e)])
                    continue
                self.tally.add(place, shapes.wrong(q, got))

    def firing(self, rules: list[Json], wanted: set[str]) -> None:
        """Which rules of SQL fire at the end of the time range. Rules of metrics need a Prometheus and are left out."""
        for rule in rules:
            asked = boards.alert_queries([rule])
            if not asked:
                continue
            numbers_now = {}
            for q in asked:
                until = self.range.until
                r = Range(until - timedelta(seconds=q.since), until - timedelta(seconds=q.until))
                try:
                    rows = self.asked(q.sql, r, 60000, False).rows
                except (Failed, macros.MacroError) as e:
                    self.tally.add(q.place, [str(e)])
                    return
                numbers_now[q.place.rpartition(" / ")[2]] = None if not rows or rows[0][0] is None else float(rows[0][0])
            fires = alerting.fires(rule, numbers_now)
            should = rule["uid"] in wanted
            problems = [] if fires == should else [f"{'fires' if fires else 'is silent'} with {numbers_now}"]
            self.tally.add(f"alert {rule['title']}", problems)


def names_agents(sql: str) -> bool:
    """True where every row of the answer depends on the names that are chosen."""
    return ("IN (${service})" in sql or "sqlstring" in sql) and "LEFT JOIN s ON" not in sql


def values(
    board: Board, offered: dict[str, list[str]], picked: dict[str, tuple[str, ...] | None]
) -> dict[str, variables.Variable]:
    """All variables of a dashboard: what is picked, else All, else the first choice."""
    out = {}
    for v in board.variables():
        if v["type"] == "datasource":
            continue
        name = v["name"]
        chosen: tuple[str, ...] | None
        if name in picked:
            chosen = picked[name]
        elif v.get("includeAll"):
            chosen = None
        else:
            chosen = tuple(offered.get(name, [])[:1]) or ("",)
        out[name] = variables.Variable.of(v, chosen)
    return out


def variants(board: Board, offered: dict[str, list[str]], sql: str) -> Iterator[tuple[str, dict[str, variables.Variable]]]:
    """All; one value of each; two values of each; a hostile one."""
    used = variables.names(sql) & {v["name"] for v in board.variables()}
    yield "all", values(board, offered, {})
    if not used:
        return
    many = {v["name"] for v in board.variables() if v.get("multi")}
    one = {n: tuple(offered.get(n, [])[:1]) or ("nobody",) for n in used}
    yield "one", values(board, offered, dict(one))
    if used & many:
        two = {n: tuple([*offered.get(n, []), "nobody"][:2]) if n in many else one[n] for n in used}
        yield "two", values(board, offered, dict(two))
    yield "hostile", values(board, offered, {n: (HOSTILE,) for n in used})


def span(runner: Runner) -> Range:
    """A range that holds all data, with an hour on both sides."""
    r = runner.run('SELECT MIN("time") AS a, MAX("time") AS b FROM measure_sums', False)
    since, until = r.rows[0]
    if since is None:
        now = datetime.now(UTC)
        return Range(now - timedelta(days=7), now)
    return Range(since - timedelta(hours=1), until + timedelta(hours=1))
