"""Alert rules, in the form of Grafana's file provisioning.

Each rule asks for plain numbers, joins them in an expression, and fires above 0 of it or above a decided limit. A question
that has no answer (nothing known, too few handoffs) leaves the rule quiet: `noDataState: OK`. Where no answer is itself
the fault, the rule fires: `Alerting`.

Summaries are Go templates without a dollar sign, since Grafana replaces `$NAME` in provisioned text by the environment.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import yaml

from . import decisions, links, pipeline, signals
from .board import Board
from .measures import Measure, Measures
from .sql import ratio, where

SQL_UID = "baton"
METRICS_UID = "baton-metrics"
RUNBOOK = "dashboards/runbook.md"
FOLDER = "Handoffs"


@dataclass
class Question:
    """A number: SQL or PromQL, over the seconds from `since` ago until `until` ago."""

    ref: str
    text: str
    since: int
    until: int = 0
    prometheus: bool = False

    def yaml(self) -> dict[str, Any]:
        """As provisioned."""
        uid = METRICS_UID if self.prometheus else SQL_UID
        kind = "prometheus" if self.prometheus else "grafana-postgresql-datasource"
        model: dict[str, Any] = {
            "refId": self.ref,
            "datasource": {"type": kind, "uid": uid},
            "editorMode": "code",
            "intervalMs": 60000,
            "maxDataPoints": 43200,
        }
        if self.prometheus:
            model |= {"expr": self.text, "instant": True, "range": False}
        else:
            model |= {"format": "table", "rawQuery": True, "rawSql": self.text}
        return {
            "refId": self.ref,
            "relativeTimeRange": {"from": self.since, "to": self.until},
            "datasourceUid": uid,
            "model": model,
        }


@dataclass
class Alert:
    """One rule."""

    uid: str
    title: str
    severity: str
    summary: str
    description: str
    questions: list[Question]
    limit: float
    # Joins the numbers; without it the first one is compared.
    expression: str | None = None
    wait: str = "10m"
    no_data: str = "OK"
    panel: tuple[str, str] | None = None
    labels: dict[str, str] = field(default_factory=dict)

    @property
    def heading(self) -> str:
        """Its heading in the runbook, as a link knows it."""
        return self.title.lower().replace(" ", "-")

    def yaml(self, panel_ids: dict[tuple[str, str], int]) -> dict[str, Any]:
        """As provisioned."""
        source = {"type": "__expr__", "uid": "__expr__"}
        data = [q.yaml() for q in self.questions]
        compared = self.questions[0].ref
        if self.expression:
            compared = "X"
            data.append(_expression({"refId": "X", "type": "math", "expression": self.expression, "datasource": source}))
        data.append(
            _expression(
                {
                    "refId": "Y",
                    "type": "threshold",
                    "expression": compared,
                    "conditions": [{"evaluator": {"type": "gt", "params": [self.limit]}}],
                    "datasource": source,
                }
            )
        )
        rule: dict[str, Any] = {
            "uid": self.uid,
            "title": self.title,
            "condition": "Y",
            "data": data,
            "for": self.wait,
            "noDataState": self.no_data,
            "execErrState": "Error",
            "annotations": {
                "summary": self.summary,
                "description": self.description,
                "runbook": f"{RUNBOOK}#{self.heading}",
            },
            "labels": {"severity": self.severity, "product": "baton", **self.labels},
            "isPaused": False,
        }
        if self.panel:
            rule["dashboardUid"] = self.panel[0]
            rule["panelId"] = panel_ids[self.panel]
        return rule


def _expression(model: dict[str, Any]) -> dict[str, Any]:
    return {
        "refId": model["refId"],
        "relativeTimeRange": {"from": 0, "to": 0},
        "datasourceUid": "__expr__",
        "model": model,
    }


def _sums(measure: Measure, column: str) -> str:
    time = '$__timeFilter("time")'
    return f'SELECT {column} AS "value"\nFROM {signals.SUMS}\n{where(f"measure = {quoted(measure)}", time)}'


def quoted(measure: Measure) -> str:
    """The measure's name as SQL text."""
    return f"'{measure.name}'"


def _compared(measure: Measure) -> list[Question]:
    """The value now (A) and before (B), with the known handoffs or tasks now (N) and before (P)."""
    now, before = decisions.NOW, decisions.BEFORE
    value = _sums(measure, ratio(measure.scale))
    known = _sums(measure, "COALESCE(SUM(subjects) FILTER (WHERE unknown IS NULL), 0)")
    return [
        Question("A", value, now),
        Question("B", value, now + before, now),
        Question("N", known, now),
        Question("P", known, now + before, now),
    ]


def _worse(by: str, limit: float) -> str:
    """1 where it is worse by more than the limit and by more than chance, and enough is known of both times; else 0.

    The error is that of two shares, counted over handoffs (or tasks) and not over what is in them: that is the larger one.
    """
    pooled = "(($A * $N + $B * $P) / ($N + $P))"
    return (
        f"$N >= {decisions.LEAST} && $P >= {decisions.LEAST} && ({by}) > {limit} && "
        f"({by}) * ({by}) > {decisions.ERRORS**2} * {pooled} * (1 - {pooled}) * (1 / $N + 1 / $P)"
    )


def _now_then(subject: str) -> str:
    """Both values, with how many subjects are known."""
    return (
        "{{ humanizePercentage .Values.A.Value }} in the last day, "
        "{{ humanizePercentage .Values.B.Value }} in the seven days before "
        "({{ humanize .Values.N.Value }} known " + subject + "s now)."
    )


# Adds nothing, and is absent where the collector is not scraped: then the rule has no data, and fires.
SCRAPED = " + 0 * sum(baton_request_memory_limit_bytes)"


def alerts(measures: Measures) -> list[Alert]:
    """All rules."""
    m = measures
    day = f"The last day against the seven days before it, each with at least {decisions.LEAST}"
    chance = f"points and of more than chance ({decisions.ERRORS} standard errors)."
    return [
        Alert(
            "baton-retention-drop",
            "Retention drop",
            "work-queue",
            "Constraint retention fell: " + _now_then("handoff"),
            "Receivers get fewer of the hard constraints in force than before. "
            f"{day} known handoffs; fires at a drop of more than {decisions.RETENTION_DROP:.0%} {chance}",
            _compared(m["constraint_retention"]),
            0,
            _worse("$B - $A", decisions.RETENTION_DROP),
            panel=(links.OVERVIEW, "Constraint retention over time"),
        ),
        Alert(
            "baton-redundant-rise",
            "Redundant-call rise",
            "work-queue",
            "Redundant tool calls rose: " + _now_then("handoff"),
            "Receivers repeat more of the calls that were made before the transfer. "
            f"{day} known handoffs; fires at a rise of more than {decisions.REDUNDANT_RISE:.0%} {chance}",
            _compared(m["redundant_tool_calls"]),
            0,
            _worse("$A - $B", decisions.REDUNDANT_RISE),
            panel=(links.OVERVIEW, "Redundant-call rate over time"),
        ),
        Alert(
            "baton-rework-rise",
            "Rework rise",
            "work-queue",
            "Fewer tasks end without rework: " + _now_then("task"),
            "More completed tasks hold a bounce, a redundant call or a redone step. "
            f"{day} known tasks; fires at a drop of more than {decisions.REWORK_RISE:.0%} {chance}",
            _compared(m["task_rework_free_rate"]),
            0,
            _worse("$B - $A", decisions.REWORK_RISE),
            panel=(links.OVERVIEW, "Rework-free tasks over time"),
        ),
        Alert(
            "baton-leaks",
            "Leaks",
            "page",
            "{{ humanize .Values.A.Value }} leaks in the last hours: filtered tool content reached a receiver in prose.",
            "Tool content that was filtered out of a receiver's view survives in prose that it sees. "
            f"Counted over {decisions.LEAK_WINDOW // 3600} hours; one is enough.",
            [
                Question(
                    "A",
                    _sums(m["leaks"], "SUM(numerator) FILTER (WHERE unknown IS NULL)"),
                    decisions.LEAK_WINDOW,
                )
            ],
            decisions.LEAKS,
            # A leak does not go away by waiting.
            wait="0s",
            panel=(links.LEAKS, "Leaks in this time range"),
        ),
        Alert(
            "baton-not-acknowledging",
            "Collector not acknowledging",
            "page",
            "The collector turns senders away: {{ humanize .Values.A.Value }} requests per second are not acknowledged.",
            "Requests end with a 5xx or 429 (HTTP) or with a retryable or internal code (gRPC), or the disk refuses the "
            "journal. Senders keep spans for a while and then lose them. No sample at all fires too: then the collector, or "
            "its scraping, is down.",
            [Question("A", pipeline.unacknowledged("5m") + SCRAPED, 600, prometheus=True)],
            decisions.UNACKNOWLEDGED,
            wait="5m",
            no_data="Alerting",
            panel=(links.PIPELINE, "Not acknowledged"),
        ),
        Alert(
            "baton-data-lag",
            "Data lag",
            "page",
            "The newest stored span is {{ humanizeDuration .Values.A.Value }} old.",
            "Nothing that started lately can be asked for: nobody sends, the collector does not take it, or it does not reach "
            f"the store. Fires above {decisions.LAG // 60} minutes. An endpoint that answers nothing fires too.",
            [
                Question(
                    "A",
                    pipeline.LAG.replace(
                        "SELECT extract(epoch from now()) - extract(epoch from MAX(start))",
                        "SELECT COALESCE(extract(epoch from now()) - extract(epoch from MAX(start)), "
                        f"{float(decisions.LAG_HORIZON)})",
                    ),
                    decisions.LAG_HORIZON,
                )
            ],
            decisions.LAG,
            no_data="Alerting",
            panel=(links.PIPELINE, "Data lag"),
        ),
    ]


class _Text(str):
    """Text over several lines, which YAML shows as such."""


def _as_block(dumper: yaml.SafeDumper, text: _Text) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", str(text), style="|")


class _Dumper(yaml.SafeDumper):
    """Writes lists indented, and SQL as blocks."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        """Never without an indent."""
        super().increase_indent(flow, False)


_Dumper.add_representer(_Text, _as_block)


def _blocks(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _blocks(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_blocks(v) for v in value]
    return _Text(value) if isinstance(value, str) and "\n" in value else value


def to_yaml(value: Any) -> str:
    """As YAML, in the order given."""
    return yaml.dump(_blocks(value), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)


def panel_ids(boards: list[tuple[Board, dict[str, Any]]]) -> dict[tuple[str, str], int]:
    """Numbers of panels by dashboard and title."""
    out: dict[tuple[str, str], int] = {}
    for board, made in boards:
        for panel in made["panels"]:
            for p in [panel, *panel.get("panels", [])]:
                out[board.uid, p["title"]] = p["id"]
    return out


def provisioned(measures: Measures, ids: dict[tuple[str, str], int]) -> str:
    """The file of rules."""
    rules = [a.yaml(ids) for a in alerts(measures)]
    groups = [
        {"orgId": 1, "name": "baton", "folder": FOLDER, "interval": "1m", "rules": rules},
    ]
    return to_yaml({"apiVersion": 1, "groups": groups})
