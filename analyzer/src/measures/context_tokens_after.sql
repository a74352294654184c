-- Tokens that the receiver saw, instructions left out. METRICS section 2.
SELECT handoff_id AS id, rated, tokens_after AS numerator, 1 AS denominator,
  COALESCE(after_unknown, CASE WHEN tokens_after IS NULL THEN 'not counted' END) AS unknown
FROM handoffs
