"""The kinds of panels, each with the settings that all of its kind share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from grafana_foundation_sdk.builders import stat as stat_builder
from grafana_foundation_sdk.builders import statetimeline, table, timeseries
from grafana_foundation_sdk.builders.common import (
    ReduceDataOptions,
    StackingConfig,
    VizLegendOptions,
    VizTooltipOptions,
)
from grafana_foundation_sdk.builders.dashboard import FieldColor, ThresholdsConfig
from grafana_foundation_sdk.cog import builder as cogbuilder
from grafana_foundation_sdk.cog.variants import Dataquery
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models.dashboard import (
    DashboardSpecialValueMapOptions,
    DataTransformerConfig,
    DynamicConfigValue,
    FieldColorModeId,
    SpecialValueMap,
    SpecialValueMatch,
    Threshold,
    ThresholdsMode,
    ValueMap,
    ValueMappingResult,
)

from . import look

SQL = common.DataSourceRef("grafana-postgresql-datasource", "${datasource}")
METRICS = common.DataSourceRef("prometheus", "${metrics}")


class Query(Dataquery, cogbuilder.Builder["Query"]):
    """A query of the built-in PostgreSQL data source, for which the library has no builder, or of Prometheus."""

    def __init__(self, source: common.DataSourceRef, ref: str, **fields: Any) -> None:
        self._fields = {"datasource": source, "refId": ref, **fields}

    def build(self) -> Query:
        """Itself: it is whole from the start."""
        return self

    def to_json(self) -> dict[str, Any]:
        """As Grafana stores it."""
        return self._fields


def legend() -> VizLegendOptions:
    """The names of series in a line below the chart."""
    return (
        VizLegendOptions()
        .show_legend(True)
        .display_mode(common.LegendDisplayMode.LIST)
        .placement(common.LegendPlacement.BOTTOM)
        .calcs([])
    )


def sql_query(sql: str, form: str = "table", ref: str = "A") -> Query:
    """SQL. `form` is `table` or `time_series`."""
    return Query(SQL, ref, editorMode="code", format=form, rawQuery=True, rawSql=sql)


def prom_query(expr: str, legend: str, ref: str = "A") -> Query:
    """PromQL over the time range."""
    return Query(METRICS, ref, editorMode="code", expr=expr, legendFormat=legend, instant=False, range=True)


@dataclass
class Placed:
    """A panel with its size; its place follows from the order."""

    builder: Any
    width: int
    height: int


@dataclass
class Column:
    """How a column of a table or a series is shown."""

    name: str
    unit: str | None = None
    decimals: int | None = None
    link: dict[str, object] | None = None
    hidden: bool = False
    color: str | None = None
    no_value: str | None = None
    width: int | None = None
    # Long texts get a button that shows them whole.
    long: bool = False
    # What stands for a value, with its colour, and without one.
    words: dict[str, tuple[str, str]] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    title: str | None = None

    def properties(self) -> list[DynamicConfigValue]:
        """As overrides."""
        said: list[tuple[str, object]] = [
            ("unit", self.unit),
            ("decimals", self.decimals),
            ("displayName", self.title),
            ("noValue", self.no_value),
            ("color", {"mode": "fixed", "fixedColor": self.color} if self.color else None),
            ("custom.width", self.width),
            ("custom.inspect", self.long or None),
            ("mappings", [_mapping(self.words)] if self.words else [_naming(self.names)] if self.names else None),
            ("custom.cellOptions", {"type": "color-text"} if self.words else None),
            # Tables of Grafana 11 read the first, newer ones the second.
            ("custom.hidden", self.hidden or None),
            ("custom.hideFrom.viz", self.hidden or None),
            ("links", [self.link] if self.link else None),
        ]
        return [DynamicConfigValue(name, value) for name, value in said if value is not None]


def _mapping(words: dict[str, tuple[str, str]]) -> ValueMap:
    return ValueMap({value: ValueMappingResult(text=text, color=color) for value, (text, color) in words.items()})


def _naming(names: dict[str, str]) -> ValueMap:
    return ValueMap({value: ValueMappingResult(text=text) for value, text in names.items()})


def when() -> Column:
    """A column of times, wide enough for one."""
    return Column("time", unit="dateTimeAsIso", width=160)


# A missing number would have the colour of the lowest step, which is that of a good one.
_UNKNOWN_IS_GREY = SpecialValueMap(
    DashboardSpecialValueMapOptions(SpecialValueMatch.NULL, ValueMappingResult(text=look.UNKNOWN, color=look.GREY))
)


def steps(base: str, *limits: tuple[float, str]) -> ThresholdsConfig:
    """Colours from limits on. Only where somebody decides by them."""
    all_steps = [Threshold(None, base), *(Threshold(value, color) for value, color in limits)]
    return ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(all_steps)


def _common(panel: Any, title: str, about: str, source: common.DataSourceRef) -> Any:
    return panel.title(title).description(about).datasource(source)


def stat(
    title: str,
    about: str,
    sql: str,
    unit: str,
    columns: list[Column],
    *,
    width: int = 6,
    height: int = 5,
    thresholds: ThresholdsConfig | None = None,
    decimals: int | None = None,
) -> Placed:
    """One row of numbers: the first is the value, the others say what it is of."""
    p = _common(stat_builder.Panel(), title, about, SQL)
    p = (
        p.unit(unit)
        .no_value(look.UNKNOWN)
        .with_target(sql_query(sql))
        .reduce_options(ReduceDataOptions().values(False).calcs(["lastNotNull"]).fields(""))
        .text_mode(common.BigValueTextMode.VALUE_AND_NAME)
        .color_mode(common.BigValueColorMode.VALUE if thresholds else common.BigValueColorMode.NONE)
        .graph_mode(common.BigValueGraphMode.NONE)
        .justify_mode(common.BigValueJustifyMode.AUTO)
        .orientation(common.VizOrientation.HORIZONTAL)
        .thresholds(thresholds or steps(look.BLUE))
        .color_scheme(FieldColor().mode(FieldColorModeId.THRESHOLDS))
    )
    if decimals is not None:
        p = p.decimals(decimals)
    if thresholds:
        p = p.mappings([_UNKNOWN_IS_GREY])
    return Placed(_overrides(p, columns), width, height)


def series(
    title: str,
    about: str,
    queries: list[Query],
    unit: str,
    columns: list[Column] | None = None,
    *,
    width: int = 8,
    height: int = 8,
    bars: bool = False,
    least: float | None = None,
    most: float | None = None,
    interval: str | None = "5m",
    source: common.DataSourceRef = SQL,
    thresholds: ThresholdsConfig | None = None,
) -> Placed:
    """Numbers over time. The step is no shorter than that of the sums."""
    p = _common(timeseries.Panel(), title, about, source)
    p = (
        p.unit(unit)
        .no_value(look.UNKNOWN)
        .targets(queries)
        .line_width(2)
        .fill_opacity(60 if bars else 0)
        .show_points(common.VisibilityMode.AUTO)
        .span_nulls(False)
        .legend(legend())
        .tooltip(VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI).sort(common.SortOrder.DESCENDING))
        .color_scheme(FieldColor().mode(FieldColorModeId.PALETTE_CLASSIC))
    )
    if bars:
        p = p.draw_style(common.GraphDrawStyle.BARS).stacking(StackingConfig().mode(common.StackingMode.NORMAL).group("A"))
    if least is not None:
        p = p.min(least)
    if most is not None:
        p = p.max(most)
    if interval:
        p = p.interval(interval)
    if source == SQL:
        p = p.max_data_points(look.POINTS)
    if thresholds:
        p = p.thresholds(thresholds)
    return Placed(_overrides(p, columns or []), width, height)


def rows(
    title: str,
    about: str,
    sql: str,
    columns: list[Column],
    *,
    width: int = 24,
    height: int = 9,
    unit: str = look.COUNT,
    no_value: str = look.UNKNOWN,
    transformations: list[DataTransformerConfig] | None = None,
    least: int = 70,
    filterable: bool = True,
) -> Placed:
    """A table. `no_value` stands in empty cells."""
    p = _common(table.Panel(), title, about, SQL)
    p = (
        p.unit(unit)
        .no_value(look.NO_ROWS)
        .override_by_regexp("/.*/", [DynamicConfigValue("noValue", no_value)])
        # Grafana's own least is 150: the last columns of most tables would lie outside.
        .min_width(least)
        .with_target(sql_query(sql))
        .cell_height(common.TableCellHeight.SM)
        # The sign of the filter takes the room of three letters, which narrow tables need and single rows do not filter.
        .filterable(width > 16 and height > 5 and filterable)
        .color_scheme(FieldColor().mode(FieldColorModeId.FIXED).fixed_color(look.BLUE))
    )
    if transformations:
        p = p.transformations(transformations)
    return Placed(_overrides(p, columns), width, height)


def timeline(
    title: str,
    about: str,
    sql: str,
    states: dict[str, tuple[str, str]],
    transformations: list[DataTransformerConfig],
    *,
    width: int = 24,
    height: int = 10,
) -> Placed:
    """Bars over time, a lane each."""
    p = _common(statetimeline.Panel(), title, about, SQL)
    p = (
        p.no_value(look.UNKNOWN)
        .unit("string")
        .with_target(sql_query(sql))
        .transformations(transformations)
        .mappings([_mapping(states)])
        .merge_values(False)
        .show_value(common.VisibilityMode.AUTO)
        .row_height(0.8)
        .fill_opacity(80)
        .color_scheme(FieldColor().mode(FieldColorModeId.FIXED).fixed_color(look.GREY))
        .legend(legend())
        .tooltip(VizTooltipOptions().mode(common.TooltipDisplayMode.SINGLE).sort(common.SortOrder.NONE))
    )
    return Placed(p, width, height)


def _overrides(panel: Any, columns: list[Column]) -> Any:
    for c in columns:
        panel = panel.override_by_name(c.name, c.properties())
    return panel
