-- Items that the receiver saw, instructions left out. METRICS section 2.
SELECT handoff_id AS id, rated, items_after AS numerator, 1 AS denominator, after_unknown AS unknown
FROM handoffs
