"""A dashboard from rows of panels: places, numbers, variables and links."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from grafana_foundation_sdk.builders.dashboard import (
    AnnotationQuery,
    Dashboard,
    DatasourceVariable,
    QueryVariable,
    Row,
)
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    GridPos,
    VariableOption,
    VariableRefresh,
    VariableSort,
)

from . import links, look
from .panels import SQL, Placed, sql_query
from .sql import AGENTS, ALL, chosen, during, named, where

WIDTH = 24

# The last number of this form of dashboards. The library would rather see its successor, which Grafana 11 cannot read.
SCHEMA = 42


@dataclass
class Section:
    """A row with its panels. Details are folded."""

    title: str
    panels: list[Placed]
    folded: bool = False


@dataclass
class Board:
    """What makes one dashboard."""

    uid: str
    title: str
    about: str
    sections: list[Section]
    variables: list[Builder[models.VariableModel]]
    annotations: list[Builder[models.AnnotationQuery]] = field(default_factory=list)
    since: str = "now-7d"
    refresh: str = "1m"

    def json(self) -> str:
        """As Grafana reads it, the same bytes each time."""
        board = (
            Dashboard(look.PREFIX + self.title)
            .uid(self.uid)
            .description(self.about)
            .tags([look.TAG])
            .readonly()
            .tooltip(DashboardCursorSync.CROSSHAIR)
            .timezone("utc")
            .time(self.since, "now")
            .refresh(self.refresh)
            .variables(self.variables)
            .annotations(self.annotations)
            .link(links.menu())
        )
        number, y = 0, 0
        for section in self.sections:
            number += 1
            row = Row(section.title).id(number).grid_pos(GridPos(h=1, w=WIDTH, x=0, y=y))
            y += 1
            x, tallest, built = 0, 0, []
            for panel in section.panels:
                if x + panel.width > WIDTH:
                    x, y, tallest = 0, y + tallest, 0
                number += 1
                place = GridPos(h=panel.height, w=panel.width, x=x, y=y)
                built.append(panel.builder.id(number).grid_pos(place))
                x += panel.width
                tallest = max(tallest, panel.height)
            y += tallest
            if section.folded:
                for panel in built:
                    row = row.with_panel(panel)
                board = board.with_row(row)
                continue
            board = board.with_row(row.collapsed(False))
            for panel in built:
                board = board.with_panel(panel)
        made = board.build()
        made.schema_version = SCHEMA
        model = json.loads(json.dumps(made, cls=JSONEncoder))
        # The library would fold these into a menu of Grafana 12.3; ways to other dashboards are to be seen.
        for shown in [*model["links"], *model.get("annotations", {}).get("list", [])]:
            del shown["placement"]
        return json.dumps(model, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def source() -> DatasourceVariable:
    """Which Baton."""
    return (
        DatasourceVariable("datasource")
        .label("Baton")
        .description("The PostgreSQL data source that points at `baton serve` or `baton up`")
        .type("grafana-postgresql-datasource")
        .current(VariableOption(text="Baton", value="baton"))
    )


def metrics_source() -> DatasourceVariable:
    """Which Prometheus."""
    return (
        DatasourceVariable("metrics")
        .label("Collector metrics")
        .description("The Prometheus that reads the collector's /metrics")
        .type("prometheus")
        .current(VariableOption(text="Baton metrics", value="baton-metrics"))
    )


def choice(
    name: str, label: str, about: str, sql: str, refresh: VariableRefresh = VariableRefresh.ON_TIME_RANGE_CHANGED
) -> QueryVariable:
    """Names to choose from, several or all."""
    return (
        QueryVariable(name)
        .label(label)
        .description(about)
        .datasource(SQL)
        .query(sql)
        .definition(sql)
        .refresh(refresh)
        .sort(VariableSort.DISABLED)
        .multi(True)
        .include_all(True)
        .all_value(ALL)
        .current(VariableOption(text=["All"], value=["$__all"]))
    )


def _names(column: str, *conditions: str) -> str:
    # Every handoff is in the sums of `handoffs`, every task in those of `partial`. A task has no agents.
    measures = ["measure IN ('handoffs', 'partial')" if column == "service" else "measure = 'handoffs'"]
    return "\n".join(
        [
            f'SELECT DISTINCT {named(column)} AS "name"',
            "FROM measure_sums",
            where(*measures, during(), *conditions),
            "ORDER BY 1",
            "LIMIT 1000",
        ]
    )


def filters() -> list[Builder[models.VariableModel]]:
    """From coarse to fine. Each offers what the ones before it leave."""
    sender, receiver = AGENTS
    return [
        source(),
        choice("service", "Service", "Service that sent the traces", _names("service")),
        choice(sender, "From", "Agent that hands off", _names(sender, chosen("service"))),
        choice(receiver, "To", "Agent that receives", _names(receiver, chosen("service"), chosen(sender))),
    ]


def annotation(name: str, color: str, sql: str) -> AnnotationQuery:
    """Marks over all time panels, from rows of `time` and `text`."""
    return (
        AnnotationQuery()
        .name(name)
        .datasource(SQL)
        .enable(True)
        .hide(False)
        .icon_color(color)
        .target(sql_query(sql, ref="Anno"))
    )
