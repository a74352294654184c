-- Output tokens of all model calls of a task, each call once. METRICS section 5.
SELECT task_id AS id, NOT partial AS rated, output_tokens AS numerator, 1 AS denominator, CASE WHEN output_tokens IS NULL THEN 'no model call gives its usage' END AS unknown
FROM tasks
