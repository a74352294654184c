-- Completed tasks without a bounce, a redundant call or a redone step, of the completed ones. METRICS section 3.
SELECT task_id AS id, NOT partial AND COALESCE(completed, TRUE) AS rated, CASE WHEN rework_free THEN 1 ELSE 0 END AS numerator, 1 AS denominator,
  CASE WHEN rework_free IS NULL THEN 'a part of it is not known' END AS unknown
FROM tasks
