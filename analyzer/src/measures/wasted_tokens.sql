-- Tokens spent on repeats, retries and bounces, of all tokens. METRICS section 3.
SELECT task_id AS id, NOT partial AS rated, wasted_tokens AS numerator, input_tokens + output_tokens AS denominator,
  CASE WHEN wasted_tokens IS NULL THEN 'repeats are not known' WHEN input_tokens IS NULL OR output_tokens IS NULL THEN 'no model call gives its usage' END AS unknown
FROM tasks
