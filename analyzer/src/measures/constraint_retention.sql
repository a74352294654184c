-- Hard constraints in force that the receiver got, of all in force. METRICS section 2.
SELECT h.handoff_id AS id, h.rated, c.got AS numerator, c.counted AS denominator, h.retention_unknown AS unknown
FROM handoffs h
LEFT JOIN (
  SELECT handoff_id, COUNT(*) AS counted, SUM(CASE WHEN got THEN 1 ELSE 0 END) AS got
  FROM handoff_constraints WHERE counted GROUP BY handoff_id
) c ON c.handoff_id = h.handoff_id
