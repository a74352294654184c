-- The receiver's own tool calls until it hands off again or ends. METRICS section 2.
SELECT h.handoff_id AS id, h.rated, COALESCE(c.calls, 0) AS numerator, 1 AS denominator, h.calls_unknown AS unknown
FROM handoffs h
LEFT JOIN (SELECT handoff_id, COUNT(*) AS calls FROM tool_calls WHERE handoff_id IS NOT NULL GROUP BY handoff_id) c ON c.handoff_id = h.handoff_id
