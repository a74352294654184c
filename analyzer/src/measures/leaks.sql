-- Filtered tool content that survives in prose the receiver sees. METRICS section 2.
SELECT h.handoff_id AS id, h.rated, COALESCE(l.leaks, 0) AS numerator, 1 AS denominator, h.leaks_unknown AS unknown
FROM handoffs h
LEFT JOIN (SELECT handoff_id, COUNT(*) AS leaks FROM leaks GROUP BY handoff_id) l ON l.handoff_id = h.handoff_id
