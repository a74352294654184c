-- Tool calls spent on repeats and retries, of all tool calls. METRICS section 3.
SELECT task_id AS id, NOT partial AS rated, wasted_calls AS numerator, tool_calls AS denominator, CASE WHEN wasted_calls IS NULL THEN 'repeats are not known' END AS unknown
FROM tasks
