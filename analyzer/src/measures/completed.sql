-- Tasks that reached a final answer. METRICS section 3.
SELECT task_id AS id, NOT partial AS rated, CASE WHEN completed THEN 1 ELSE 0 END AS numerator, 1 AS denominator, CASE WHEN completed IS NULL THEN 'the last answer is not recorded' END AS unknown
FROM tasks
