-- Calls that repeat what was done before the transfer, of the receiver's tool calls. METRICS section 2.
SELECT h.handoff_id AS id, h.rated, COALESCE(c.repeats, 0) AS numerator, COALESCE(c.calls, 0) AS denominator, h.repeats_unknown AS unknown
FROM handoffs h
LEFT JOIN (
  SELECT handoff_id, COUNT(*) AS calls, SUM(CASE WHEN repeat_kind = 'redundant' THEN 1 ELSE 0 END) AS repeats
  FROM tool_calls WHERE handoff_id IS NOT NULL GROUP BY handoff_id
) c ON c.handoff_id = h.handoff_id
