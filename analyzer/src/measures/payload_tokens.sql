-- Tokens of the payload. METRICS section 2.
SELECT handoff_id AS id, rated, payload_tokens AS numerator, 1 AS denominator,
  CASE WHEN payload_tokens IS NULL THEN COALESCE(payload_unknown, 'not counted') END AS unknown
FROM handoffs
