-- Tokens that the sender's context held, instructions left out. METRICS section 2.
SELECT handoff_id AS id, rated, tokens_before AS numerator, 1 AS denominator,
  COALESCE(before_unknown, CASE WHEN tokens_before IS NULL THEN 'not counted' END) AS unknown
FROM handoffs
