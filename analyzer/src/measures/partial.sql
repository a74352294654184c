-- Tasks of which the data holds only a part. METRICS section 3.
SELECT task_id AS id, TRUE AS rated, CASE WHEN partial THEN 1 ELSE 0 END AS numerator, 1 AS denominator, CAST(NULL AS STRING) AS unknown
FROM tasks
