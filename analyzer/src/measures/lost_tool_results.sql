-- Calls of the transfer's turn whose result reaches no later message. METRICS section 2.
SELECT handoff_id AS id, rated, lost_tool_results AS numerator, 1 AS denominator, lost_unknown AS unknown
FROM handoffs
