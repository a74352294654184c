-- References in the payload that the receiver uses, of all in the payload. METRICS section 2.
SELECT handoff_id AS id, rated, CAST(COALESCE(array_length(artifacts_reused), 0) AS BIGINT) AS numerator,
  CAST(COALESCE(array_length(artifact_refs), 0) AS BIGINT) AS denominator, artifacts_unknown AS unknown
FROM handoffs
