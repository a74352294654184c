"""The files by which Grafana sets itself up: data sources and where the dashboards lie."""

from __future__ import annotations

from .alerts import FOLDER, METRICS_UID, SQL_UID, to_yaml


def datasources() -> str:
    """Baton's SQL endpoint, and the Prometheus that reads the collector. Addresses and passwords come from the environment."""
    return to_yaml(
        {
            "apiVersion": 1,
            "datasources": [
                {
                    "name": "Baton",
                    "uid": SQL_UID,
                    "type": "grafana-postgresql-datasource",
                    "access": "proxy",
                    "url": "${BATON_SQL_ADDRESS}",
                    "user": "${BATON_SQL_USER}",
                    "secureJsonData": {"password": "${BATON_SQL_PASSWORD}"},
                    "jsonData": {
                        "database": "baton",
                        "sslmode": "${BATON_SQL_SSLMODE}",
                        "postgresVersion": 1500,
                        # The macros for TimescaleDB call functions that the endpoint does not have.
                        "timescaledb": False,
                        "maxOpenConns": 10,
                        "maxIdleConns": 2,
                        "connMaxLifetime": 14400,
                    },
                    "editable": False,
                },
                {
                    "name": "Baton metrics",
                    "uid": METRICS_UID,
                    "type": "prometheus",
                    "access": "proxy",
                    "url": "${BATON_PROMETHEUS_URL}",
                    "jsonData": {"httpMethod": "POST", "timeInterval": "15s"},
                    "editable": False,
                },
            ],
        }
    )


def dashboards() -> str:
    """A folder of files, read again when they change."""
    return to_yaml(
        {
            "apiVersion": 1,
            "providers": [
                {
                    "name": "baton",
                    "orgId": 1,
                    "folder": FOLDER,
                    "type": "file",
                    "disableDeletion": True,
                    "allowUiUpdates": False,
                    "updateIntervalSeconds": 60,
                    "options": {"path": "/etc/grafana/dashboards"},
                }
            ],
        }
    )
