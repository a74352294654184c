"""What must hold of the files themselves, without any data. Each lint gives lines of what is wrong."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from . import macros, variables
from .boards import Board, Json, queries

SEVERITIES = {"page", "work-queue", "information"}
# Panels whose values are text or time; the unit of others must be said.
TEXT_UNITS = {"string"}
COUNTER = re.compile(r'r\.register(?:_with_unit)?\(\s*"(\w+)",\s*"[^"]*",\s*(?:Unit::(\w+),\s*)?m\.(\w+)\.clone', re.S)
METRIC = re.compile(r"\bbaton_\w+")


def unique_uids(boards: list[Board], rules: list[Json]) -> Iterable[str]:
    """Two dashboards or rules of one uid replace each other."""
    for what, uids in (
        ("dashboards", [b.uid for b in boards]),
        ("rules", [str(r.get("uid")) for r in rules]),
    ):
        for uid, n in Counter(uids).items():
            if n > 1:
                yield f"{n} {what} have the uid {uid}"
            if not re.fullmatch(r"[a-z][a-z0-9-]{2,39}", uid):
                yield f"{what}: {uid!r} is no readable uid"


def unique_ids(board: Board) -> Iterable[str]:
    """Panel numbers are what links and alerts name."""
    rows = [p for p in board.model.get("panels", []) if p.get("type") == "row"]
    for number, n in Counter(p.get("id") for p in [*board.panels(), *rows]).items():
        if n > 1 or not isinstance(number, int):
            yield f"{board.uid}: {n} panels have the number {number}"


def described(board: Board) -> Iterable[str]:
    """Every panel says what it counts, which way is good and what empty means, and has a unit."""
    for p in board.panels():
        place = f"{board.uid} / {p.get('title', '?')}"
        about = p.get("description", "")
        if not p.get("title"):
            yield f"{place}: no title"
        if len(about) < 40:
            yield f"{place}: no description"
        if not re.search(r"better|worse|bad", about):
            yield f"{place}: the description does not say which way is good"
        if not re.search(r"[Ee]mpty|'unknown'|No rows?|[Gg]ap|'-'|\b0:|Nothing shown", about):
            yield f"{place}: the description does not say what an empty panel means"
        defaults = p.get("fieldConfig", {}).get("defaults", {})
        if not defaults.get("unit"):
            yield f"{place}: no unit"
        if defaults.get("noValue") in (None, "", "0"):
            yield f"{place}: no text for a missing value"


def placed(board: Board) -> Iterable[str]:
    """No two panels lie over each other, and none leaves the grid."""
    folded = {p["id"]: p.get("panels", []) for p in board.model["panels"] if p.get("collapsed")}
    for group in [board.model["panels"], *folded.values()]:
        seen: dict[tuple[int, int], str] = {}
        for p in group:
            g = p["gridPos"]
            name = p.get("title", "?")
            if g["x"] < 0 or g["x"] + g["w"] > 24 or g["h"] < 1 or g["w"] < 1:
                yield f"{board.uid} / {name}: outside the grid"
            for x in range(g["x"], g["x"] + g["w"]):
                for y in range(g["y"], g["y"] + g["h"]):
                    other = seen.setdefault((x, y), name)
                    if other is not name:
                        yield f"{board.uid}: {name} lies over {other}"
                        break
                else:
                    continue
                break


def known_variables(board: Board) -> Iterable[str]:
    """Every variable that is used exists, and comes after those it uses."""
    have = {v["name"] for v in board.variables()}
    for q in queries(board):
        for name in sorted(variables.names(_without_macros(q.sql)) - have):
            yield f"{q.place}: no variable {name}"
    for p in board.panels():
        for source in _sources(p):
            for name in sorted(variables.names(source) - have):
                yield f"{board.uid} / {p.get('title', '?')}: no data source variable {name}"
            if not source.startswith("${"):
                yield f"{board.uid} / {p.get('title', '?')}: a fixed data source {source}"
    before: set[str] = set()
    for v in board.variables():
        if v["type"] == "query":
            for name in sorted((variables.names(_without_macros(v["query"])) & have) - before):
                yield f"{board.uid} / variable {v['name']}: {name} stands after it"
        before.add(v["name"])


def _without_macros(sql: str) -> str:
    return re.sub(r"\$__\w+", "", sql)


def _sources(panel: Json) -> list[str]:
    out = [panel.get("datasource", {}).get("uid", "")]
    out += [t.get("datasource", {}).get("uid", "") for t in panel.get("targets", [])]
    return out


def quoted(board: Board) -> Iterable[str]:
    """Values reach SQL only where Grafana quotes them: several values inside IN, one value as an SQL string."""
    many = {v["name"] for v in board.variables() if v.get("multi") or v.get("includeAll")}
    for v in board.variables():
        if v.get("includeAll") and not re.fullmatch(r"'[^']*'", v.get("allValue") or ""):
            yield f"{board.uid} / variable {v['name']}: All needs a quoted value, Grafana puts it in as it is"
    for q in queries(board):
        for m in variables.USE.finditer(_without_macros(q.sql)):
            name = m["braced"] or m["old"] or m["plain"]
            inside = q.sql.count(f"IN (${{{name}}})") if name in many else 0
            if m["format"] == "sqlstring" or inside:
                continue
            yield f"{q.place}: {m[0]} is not quoted"


def macros_expand(board: Board) -> Iterable[str]:
    """Macros are known, and their arguments hold no brackets."""
    for q in queries(board):
        for m in re.finditer(r"\$__\w+\(([^)]*)\)", q.sql):
            if "(" in m[1]:
                yield f"{q.place}: {m[0]}: Grafana ends the argument at the first bracket"
        left = re.sub(r"\$__interval(_ms)?\b", "", q.sql)
        for m in macros.MACRO.finditer(left):
            if m[1].startswith("__") and m[1] not in KNOWN_MACROS:
                yield f"{q.place}: no macro {m[1]}"


KNOWN_MACROS = {
    "__time", "__timeEpoch", "__timeFilter", "__timeFrom", "__timeTo", "__timeGroup", "__timeGroupAlias",
    "__unixEpochFilter", "__unixEpochFrom", "__unixEpochTo", "__unixEpochNanoFilter", "__unixEpochNanoFrom",
    "__unixEpochNanoTo", "__unixEpochGroup", "__unixEpochGroupAlias",
}  # fmt: skip


def links(board: Board, uids: set[str], of: dict[str, set[str]]) -> Iterable[str]:
    """Links lead to dashboards that exist, set variables that exist there, and carry time and data source."""
    for p in board.panels():
        config = p.get("fieldConfig", {})
        found = list(config.get("defaults", {}).get("links", []))
        for o in config.get("overrides", []):
            found += [ln for pr in o["properties"] if pr["id"] == "links" for ln in pr["value"]]
        for link in found:
            place = f"{board.uid} / {p.get('title', '?')}: link {link.get('title', '?')}"
            m = re.match(r"/d/([\w-]+)\?(.*)", link["url"])
            if not m or m[1] not in uids:
                yield f"{place}: leads to no dashboard of these"
                continue
            if "${__url_time_range}" not in m[2] and not ("from=" in m[2] and "to=" in m[2]):
                yield f"{place}: does not carry the time range"
            if "${datasource:queryparam}" not in m[2]:
                yield f"{place}: does not carry the data source"
            for name in re.findall(r"var-(\w+)=|\$\{(\w+):queryparam\}", m[2]):
                if (name[0] or name[1]) not in of[m[1]]:
                    yield f"{place}: {m[1]} has no variable {name[0] or name[1]}"
            for name in re.findall(r"\$\{(\w+):queryparam\}", m[2]):
                if name not in of[board.uid]:
                    yield f"{place}: {board.uid} has no variable {name}"
            for field in re.findall(r"\$\{__data\.fields\.(\w+)([^}]*)\}", m[2]):
                if ":percentencode" not in field[1]:
                    yield f"{place}: {field[0]} is not encoded"
    menu = board.model.get("links", [])
    if not any(ln.get("keepTime") and ln.get("includeVars") for ln in menu):
        yield f"{board.uid}: no link to the others that keeps time and variables"


def settings(board: Board) -> Iterable[str]:
    """What all dashboards share."""
    m = board.model
    if m.get("graphTooltip") != 1:
        yield f"{board.uid}: no shared crosshair"
    if m.get("editable") is not False:
        yield f"{board.uid}: can be edited, though it is generated"
    if "handoffs" not in m.get("tags", []):
        yield f"{board.uid}: lacks the tag handoffs"
    if not str(m.get("title", "")).startswith("Handoffs / "):
        yield f"{board.uid}: the title does not begin with 'Handoffs / '"
    if not m.get("time", {}).get("from"):
        yield f"{board.uid}: no time range"
    if m.get("schemaVersion") != 42:
        yield f"{board.uid}: schema version {m.get('schemaVersion')}"
    for v in board.variables():
        if not v.get("label") or not v.get("description"):
            yield f"{board.uid} / variable {v['name']}: no label or description"


def alert(rule: Json, runbook: str, boards: list[Board]) -> Iterable[str]:
    """Severity, summary with values, a description, and a heading in the runbook that exists."""
    place = f"alert {rule.get('title', '?')}"
    if rule.get("labels", {}).get("severity") not in SEVERITIES:
        yield f"{place}: severity is none of {', '.join(sorted(SEVERITIES))}"
    notes = rule.get("annotations", {})
    if ".Values." not in notes.get("summary", ""):
        yield f"{place}: the summary holds no value"
    if not notes.get("description"):
        yield f"{place}: no description"
    for name, text in {**notes, **rule.get("labels", {})}.items():
        if "$" in text:
            yield f"{place}: {name} holds a dollar sign, which provisioning replaces"
    heading = notes.get("runbook", "").partition("#")[2]
    if heading not in headings(runbook):
        yield f"{place}: the runbook has no heading {heading!r}"
    refs = [q["refId"] for q in rule["data"]]
    for q in rule["data"]:
        used = re.findall(r"\$(\w+)", q["model"].get("expression", ""))
        for ref in [*used, *([q["model"]["expression"]] if q["model"].get("type") == "threshold" else [])]:
            if ref not in refs:
                yield f"{place}: {q['refId']} asks for {ref}, which is not there"
    for ref in re.findall(r"\.Values\.(\w+)", notes.get("summary", "")):
        if ref not in refs:
            yield f"{place}: the summary asks for {ref}, which is not there"
    if rule.get("condition") not in refs:
        yield f"{place}: no query {rule.get('condition')}"
    if rule.get("noDataState") not in {"OK", "Alerting", "NoData", "KeepLast"}:
        yield f"{place}: no state for no data"
    if "panelId" in rule:
        at = [b for b in boards if b.uid == rule["dashboardUid"]]
        if not at or rule["panelId"] not in {p["id"] for p in at[0].panels()}:
            yield f"{place}: its panel does not exist"


def headings(markdown: str) -> set[str]:
    """Headings as links know them."""
    found = re.findall(r"^#+ (.+)$", markdown, re.M)
    return {re.sub(r"[^\w\- ]", "", h.lower()).strip().replace(" ", "-") for h in found}


def metric_names(source: str) -> set[str]:
    """Names that the collector's /metrics has, from the place where it registers them."""
    kinds = dict(re.findall(r"^\s+(\w+): (?:Family<\w+, )?(Counter|Histogram|Gauge)", source, re.M))
    out = set()
    for name, unit, var in COUNTER.findall(source):
        full = f"baton_{name}" + (f"_{unit.lower()}" if unit else "")
        kind = kinds.get(var)
        if kind == "Counter":
            out.add(full + "_total")
        elif kind == "Histogram":
            out |= {full + end for end in ("_bucket", "_sum", "_count")}
        else:
            out.add(full)
    return out


def metrics(boards: list[Board], rules: list[Json], known: set[str]) -> Iterable[str]:
    """PromQL asks only for what the collector tells."""
    asked = [
        (f"{b.uid} / {p['title']}", t["expr"]) for b in boards for p in b.panels() for t in p.get("targets", []) if "expr" in t
    ]
    asked += [(f"alert {r['title']}", q["model"]["expr"]) for r in rules for q in r["data"] if "expr" in q["model"]]
    for place, expr in asked:
        for name in sorted(set(METRIC.findall(expr)) - known):
            yield f"{place}: the collector has no metric {name}"


def everything(boards: list[Board], rules: list[Json], runbook: str, collector: Path | None) -> list[str]:
    """All lints."""
    uids = {b.uid for b in boards}
    of = {b.uid: {v["name"] for v in b.variables()} for b in boards}
    out = list(unique_uids(boards, rules))
    for b in boards:
        for lint in (unique_ids, described, placed, known_variables, quoted, macros_expand, settings):
            out += lint(b)
        out += links(b, uids, of)
    for r in rules:
        out += alert(r, runbook, boards)
    if collector and collector.exists():
        out += metrics(boards, rules, metric_names(collector.read_text(encoding="utf-8")))
    return out
