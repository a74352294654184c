-- Recordings of model calls that were recorded already, of all recordings. METRICS section 5.
SELECT task_id AS id, NOT partial AS rated, duplicate_inferences AS numerator, inferences + duplicate_inferences AS denominator, CAST(NULL AS STRING) AS unknown
FROM tasks
