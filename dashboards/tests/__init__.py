"""Tests of the dashboards and of what checks them: `python -m unittest` in this folder's parent."""
