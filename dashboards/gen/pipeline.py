"""Handoffs / Pipeline: does the collector take what is sent, and does it reach the store."""

from __future__ import annotations

from . import decisions, links, look
from .board import Board, Section, choice, metrics_source, source
from .common import measures_table, stat_of
from .measures import Measures
from .panels import METRICS, Column, Placed, prom_query, rows, series, sql_query, stat, steps
from .sql import chosen, during, named, where

SPANS = where(during("start"), chosen("service"))

# Codes with which a sender was not told "kept": HTTP 5xx and 429, gRPC unknown, deadline, exhausted, internal, unavailable.
REFUSED = [
    'sum(rate(baton_requests_total{{protocol="http",code=~"5..|429"}}[{w}]))',
    'sum(rate(baton_requests_total{{protocol="grpc",code=~"2|4|8|13|14"}}[{w}]))',
    "sum(rate(baton_journal_errors_total[{w}]))",
]


def unacknowledged(window: str) -> str:
    """Requests per second that were not acknowledged, and appends that the disk refused."""
    return " + ".join(f"({part.format(w=window)} or vector(0))" for part in REFUSED)


LAG = (
    f'SELECT extract(epoch from now()) - extract(epoch from MAX(start)) AS "lag"\n'
    f"FROM spans\nWHERE start >= now() - INTERVAL '{decisions.LAG_HORIZON} seconds'"
)


def board(measures: Measures) -> Board:
    """The dashboard."""
    m = measures
    return Board(
        uid=links.PIPELINE,
        title="Pipeline",
        about="From the sender to the store: what arrives, how old it is, what is only partly there, and the collector itself.",
        variables=[
            source(),
            metrics_source(),
            choice("service", "Service", "Service that sent the traces", SERVICES),
        ],
        since="now-24h",
        sections=[
            Section(
                "Now",
                [
                    lag(),
                    stored(),
                    stat_of(m["partial"], "Partial tasks"),
                    stat_of(m["duplicate_inferences"], "Duplicate recordings"),
                ],
            ),
            Section("What reaches the store", [over_time(), by_dialect(), findings()]),
            Section("Receive (collector)", [*receiving()]),
            Section("Write (collector)", [*writing()]),
            Section(
                "All measures of tasks",
                [measures_table("All measures of tasks", m.of("task"), 11)],
                folded=True,
            ),
        ],
    )


SERVICES = "\n".join(
    [
        f'SELECT DISTINCT {named("service")} AS "name"',
        "FROM measure_sums",
        where("measure IN ('handoffs', 'partial')", during()),
        "ORDER BY 1",
        "LIMIT 1000",
    ]
)


def lag() -> Placed:
    """How old the newest span is."""
    return stat(
        "Data lag",
        "Time from the start of the newest stored span until now, whatever the time range and the service. Lower is better: "
        "orange from 15 minutes, red from 30, where the alert 'Data lag' fires. 'unknown': no span in the last two days.",
        LAG,
        "s",
        [],
        thresholds=steps(look.GREEN, (decisions.LAG_WARN, look.ORANGE), (decisions.LAG, look.RED)),
        decimals=0,
    )


def stored() -> Placed:
    """Spans in the time range."""
    return stat(
        "Spans stored",
        "Spans and log records with content that started in this time range, and the services that sent them. "
        "No way is better. 0: nothing reached the store.",
        f'SELECT COUNT(*) AS "spans", COUNT(DISTINCT {named("service")}) AS "services"\nFROM spans\n{SPANS}',
        "short",
        [],
    )


def over_time() -> Placed:
    """Spans over time."""
    return series(
        "Spans stored over time",
        "Spans and log records with content by their start, once each. No way is better; a sudden end is bad. "
        "A gap: nothing reached the store.",
        [
            sql_query(
                f'SELECT\n  $__timeGroupAlias(start, $__interval, NULL),\n  COUNT(*) AS "spans"\nFROM spans\n{SPANS}\n'
                "GROUP BY 1\nORDER BY 1",
                "time_series",
            )
        ],
        "short",
        [Column("spans", color=look.BLUE)],
        bars=True,
        least=0,
    )


def by_dialect() -> Placed:
    """Who wrote the spans, and what is missing in them."""
    return rows(
        "Spans by service and dialect",
        "Which instrumentation was read in which service, with the spans that carry errors or lost attributes at the "
        "sender. Fewer of those are better. No rows: nothing reached the store in this time range.",
        f"""SELECT
  {named("service")} AS "service",
  dialect AS "dialect",
  COUNT(*) AS "spans",
  COUNT(*) FILTER (WHERE status = 'error') AS "errors",
  COUNT(*) FILTER (WHERE dropped > 0) AS "attributes dropped"
FROM spans
{SPANS}
GROUP BY 1, 2
ORDER BY 3 DESC, 1, 2
LIMIT 100""",
        [Column("spans", width=90), Column("errors", width=70), Column("attributes dropped", width=140)],
        width=8,
        height=8,
    )


def findings() -> Placed:
    """Findings by kind."""
    return rows(
        "Findings by kind",
        "What stood out in tasks of this time range, by kind, with the tasks in which it did. Fewer are better. "
        "It follows the time range alone. No rows: nothing stood out.",
        f"""SELECT
  kind AS "kind",
  severity AS "severity",
  COUNT(*) AS "findings",
  COUNT(DISTINCT task_id) AS "tasks"
FROM findings
{where(during("last_activity"))}
GROUP BY 1, 2
ORDER BY 3 DESC, 1, 2
LIMIT 100""",
        [
            Column(
                "severity",
                words=look.SEVERITY,
                width=80,
            ),
            Column("findings", width=80),
            Column("tasks", width=60),
        ],
        width=8,
        height=8,
    )


NO_SAMPLE = " A gap or 'unknown': Prometheus has no sample of the collector."


def _metric(title: str, about: str, queries: list[tuple[str, str]], unit: str) -> Placed:
    made = [prom_query(expr, legend, "ABCDEFGH"[i]) for i, (expr, legend) in enumerate(queries)]
    return series(
        title,
        about + NO_SAMPLE,
        made,
        unit,
        [Column(legend, color=look.SERIES[i]) for i, (_, legend) in enumerate(queries) if "{" not in legend],
        width=8,
        least=0,
        interval="15s",
        source=METRICS,
    )


def _p95(name: str) -> str:
    return f"histogram_quantile(0.95, sum by (le) (rate({name}_bucket[$__rate_interval])))"


def _rate(name: str) -> str:
    return f"sum(rate({name}[$__rate_interval]))"


def receiving() -> list[Placed]:
    """From the sender to the journal."""
    return [
        _metric(
            "Requests by answer",
            "Requests per second by protocol, signal and code. Fewer that are not 0 (gRPC) or 200 (HTTP) is better.",
            [
                (
                    "sum by (protocol, signal, code) (rate(baton_requests_total[$__rate_interval]))",
                    "{{protocol}} {{signal}} {{code}}",
                )
            ],
            "reqps",
        ),
        _metric(
            "Not acknowledged",
            "Requests per second that senders must repeat, and appends that the disk refused. Lower is better: above 0 the "
            "alert 'Collector not acknowledging' fires.",
            [(unacknowledged("$__rate_interval"), "not acknowledged")],
            "reqps",
        ),
        _metric(
            "Records received, rejected, dropped",
            "Records per second: received, rejected and told to the sender, and taken and not kept. Fewer rejected are better.",
            [
                (_rate("baton_received_records_total"), "received"),
                (_rate("baton_rejected_records_total"), "rejected"),
                (_rate("baton_dropped_records_total"), "dropped"),
            ],
            "cps",
        ),
        _metric(
            "Time to answer",
            "Time from a request to its answer, and to append and sync a group, 95th percentile. Lower is better.",
            [(_p95("baton_answer_seconds"), "answer"), (_p95("baton_journal_sync_seconds"), "journal sync")],
            "s",
        ),
        _metric(
            "Memory of requests",
            "Memory that requests under way hold, with the limit past which senders are told to wait. Lower is better.",
            [
                ("sum(baton_request_memory_bytes)", "used"),
                ("sum(baton_request_memory_limit_bytes)", "limit"),
            ],
            "bytes",
        ),
        _metric(
            "Errors",
            "Errors per second: appends the disk refused, segments that could not be stored at once, damaged segments, and "
            "defects. Lower is better; each deserves a look.",
            [
                (_rate("baton_journal_errors_total"), "journal"),
                (_rate("baton_store_errors_total"), "store"),
                (_rate("baton_damaged_segments_total"), "damaged segments"),
                (_rate("baton_defects_total"), "defects"),
            ],
            "cps",
        ),
    ]


def writing() -> list[Placed]:
    """From the journal to the store."""
    return [
        _metric(
            "Visibility lag",
            "Time from the end of a span until it can be asked for, 95th percentile. Lower is better.",
            [(_p95("baton_visibility_lag_seconds"), "visible after")],
            "s",
        ),
        _metric(
            "Journal not yet stored",
            "Bytes of journal not yet in the store, and bytes that wait to be appended. Lower is better; a steady climb says "
            "that the store is too slow or cannot be reached.",
            [("sum(baton_journal_bytes)", "journal"), ("sum(baton_journal_queue_bytes)", "queue")],
            "bytes",
        ),
        _metric(
            "Segments not yet stored",
            "Segments of the journal not yet in the store. Lower is better.",
            [("sum(baton_journal_segments)", "segments")],
            "short",
        ),
        _metric(
            "Rows stored",
            "Rows written to Parquet per second. No way is better.",
            [(_rate("baton_stored_rows_total"), "rows")],
            "cps",
        ),
        _metric(
            "Parquet written",
            "Bytes of Parquet written per second. No way is better.",
            [(_rate("baton_parquet_bytes_total"), "Parquet")],
            "Bps",
        ),
        _metric(
            "Time to store a segment",
            "Time to turn a segment into Parquet, 95th percentile. Lower is better.",
            [(_p95("baton_store_write_seconds"), "segment")],
            "s",
        ),
    ]
