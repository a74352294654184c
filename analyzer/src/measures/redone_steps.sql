-- Steps declared complete that an agent after the transfer carries out again. METRICS section 3.
SELECT task_id AS id, NOT partial AS rated, redone_steps AS numerator, 1 AS denominator, CASE WHEN redone_steps IS NULL THEN 'no payload is known' END AS unknown
FROM tasks
