"""The numbers that somebody decided. A panel and the alert that speak of one thing take it from here."""

# Fewer known handoffs (or tasks) than this, now or before, and no alert compares: one odd task is no trend.
LEAST = 50

# A difference within this many standard errors is chance. Handoffs of one task go wrong together, hence three and not two.
ERRORS = 3

# How much worse than before is too much, as a share.
RETENTION_DROP = 0.05
REDUNDANT_RISE = 0.05
REWORK_RISE = 0.10

# What is compared, in seconds: the last day with the seven days before it.
NOW = 24 * 3600
BEFORE = 7 * 24 * 3600

# Leaks are counted over this time, in seconds. One is too many.
LEAK_WINDOW = 6 * 3600
LEAKS = 0

# Seconds between the newest stored span and now.
LAG_WARN = 15 * 60
LAG = 30 * 60
# Older spans than this are not looked for: the lag is then at least this.
LAG_HORIZON = 2 * 24 * 3600

# Requests per second that senders were told to try again, or that failed.
UNACKNOWLEDGED = 0

# Days after the first handoff of a store in which no pair of agents is called new.
YOUNG = 7
