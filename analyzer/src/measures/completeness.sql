-- Required contract fields present in the payload, of six. METRICS section 2.
SELECT handoff_id AS id, rated, required_present AS numerator, 6 AS denominator, payload_unknown AS unknown
FROM handoffs
