"""Builds the dashboards, alert rules and provisioning files from the analyzer's list of measures."""
