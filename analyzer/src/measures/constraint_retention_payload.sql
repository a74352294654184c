-- Hard constraints in force before the transfer that its payload carries. METRICS section 2.
SELECT h.handoff_id AS id, h.rated, c.carried AS numerator, c.active AS denominator, h.retention_payload_unknown AS unknown
FROM handoffs h
LEFT JOIN (
  SELECT handoff_id, COUNT(*) AS active, SUM(CASE WHEN in_payload THEN 1 ELSE 0 END) AS carried
  FROM handoff_constraints WHERE active AND NOT soft GROUP BY handoff_id
) c ON c.handoff_id = h.handoff_id
