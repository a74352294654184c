"""Ways from one dashboard to the next. Every link carries the time range and the variables."""

from __future__ import annotations

from grafana_foundation_sdk.builders.dashboard import DashboardLink
from grafana_foundation_sdk.models.dashboard import DashboardLinkType, DynamicConfigValue

from .look import TAG

OVERVIEW, PAIR, ONE, LEAKS, PIPELINE = (
    "handoffs-overview",
    "handoffs-pair",
    "handoffs-one",
    "handoffs-leaks",
    "handoffs-pipeline",
)

# Grafana writes a variable of many values as one parameter each.
_SOURCE = "${datasource:queryparam}"
_ALL = "&".join([_SOURCE, "${service:queryparam}", "${from_agent:queryparam}", "${to_agent:queryparam}"])


def _cell(column: str) -> str:
    """The value of a column of the row that is clicked, safe inside an address."""
    return f"${{__data.fields.{column}:percentencode}}"


def to_pair() -> dict[str, object]:
    """From a row with `from` and `to` to this pair."""
    url = (
        f"/d/{PAIR}?${{__url_time_range}}&{_SOURCE}&${{service:queryparam}}"
        f"&var-from_agent={_cell('from')}&var-to_agent={_cell('to')}"
    )
    return {"title": "Open this pair of agents", "url": url}


def to_one() -> dict[str, object]:
    """From a row with `handoff` to this handoff. The time range becomes that of its task, or nothing would be seen.

    The row holds it as text, `task_from` and `task_to`: a number would be written the way people read it.
    """
    url = f"/d/{ONE}?from={_cell('task_from')}&to={_cell('task_to')}&{_ALL}&var-handoff={_cell('handoff')}"
    return {"title": "Open this handoff", "url": url}


def to_leaks() -> dict[str, object]:
    """To the leaks of the same filters."""
    return {"title": "Open leaks and context", "url": f"/d/{LEAKS}?${{__url_time_range}}&{_ALL}"}


def linked(link: dict[str, object]) -> DynamicConfigValue:
    """The link as the property of a column."""
    return DynamicConfigValue("links", [link])


def menu() -> DashboardLink:
    """The list of all dashboards, at the top of each."""
    return (
        DashboardLink("Handoffs")
        .type(DashboardLinkType.DASHBOARDS)
        .tags([TAG])
        .as_dropdown(True)
        .include_vars(True)
        .keep_time(True)
        .icon("external link")
        .tooltip("The other dashboards, with the same time range and filters")
    )
