-- Items that the sender's context held, instructions left out. METRICS section 2.
SELECT handoff_id AS id, rated, items_before AS numerator, 1 AS denominator, before_unknown AS unknown
FROM handoffs
