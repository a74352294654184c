-- Episodes in which control went back with the same goal. METRICS section 3.
SELECT task_id AS id, NOT partial AS rated, bounces AS numerator, 1 AS denominator, CASE WHEN bounces IS NULL THEN 'the agents are unknown' END AS unknown
FROM tasks
