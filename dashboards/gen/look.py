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

# In a table of events an empty cell means that there is nothing to say.
NOTHING = "-"

TAG = "handoffs"
PREFIX = "Handoffs / "
