-- Time spent on repeats, retries and bounces. METRICS section 3.
SELECT task_id AS id, NOT partial AS rated, wasted_ns AS numerator, 1 AS denominator, CASE WHEN wasted_ns IS NULL THEN 'repeats are not known' END AS unknown
FROM tasks
