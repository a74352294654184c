-- Transfers after which the receiver began by repeating a lookup or asking for what the task holds. METRICS section 2.
SELECT handoff_id AS id, rated, CASE WHEN retriage THEN 1 ELSE 0 END AS numerator, 1 AS denominator, retriage_unknown AS unknown
FROM handoffs
