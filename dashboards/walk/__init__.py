"""Walks the generated dashboards as Grafana would: expands macros and variables, runs all SQL, checks what comes."""
