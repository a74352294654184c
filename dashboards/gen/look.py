"""Colours and words that all panels share.

The palette is Okabe and Ito's, which people with any common colour blindness tell apart. Colour never stands alone:
each panel also says in words which way is good.
"""

from __future__ import annotations

BLUE = "#0072B2"
ORANGE = "#E69F00"
GREEN = "#009E73"
RED = "#D55E00"
SKY = "#56B4E9"
PURPLE = "#CC79A7"
YELLOW = "#F0E442"
GREY = "#999999"

# Series of one panel, in this order.
SERIES = [BLUE, ORANGE, GREEN, PURPLE, SKY, RED, YELLOW, GREY]

# What stands where there is no value. Never 0.
UNKNOWN = "unknown"

# What stands in a whole table without rows. Its description says what that means.
NO_ROWS = "No rows"

# Grafana's unit for what is counted: 2,130 and not 2.13 K, since people add these up and look for them elsewhere.
COUNT = "locale"

# Points of a curve. With one for each pixel, a step holds a few handoffs and its rate jumps between none and all.
POINTS = 80

# In a table of events an empty cell means that there is nothing to say.
NOTHING = "-"

TAG = "handoffs"
PREFIX = "Handoffs / "

# Severities of findings: what is shown, and its colour.
SEVERITY = {"error": ("error", RED), "warning": ("warning", ORANGE), "info": ("info", GREY)}
