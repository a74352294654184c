"""Pictures of the dashboards, drawn with Grafana's published components in a browser. A tool for tests."""
