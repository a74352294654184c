-- Hard constraints known before the first transfer, or stated in it, that a later receiver still got: one row per transfer.
SELECT h.handoff_id AS id, h.rated, s.got AS numerator, s.known AS denominator,
  CASE WHEN h.outcome <> 'accepted' THEN 'no receiver ran' WHEN s.known IS NULL THEN 'no constraint was known at the first transfer' WHEN s.undecided > 0 THEN 'content not captured or cut off' END AS unknown
FROM handoffs h
LEFT JOIN (
  SELECT c.handoff_id, COUNT(*) AS known, SUM(CASE WHEN c.got THEN 1 ELSE 0 END) AS got, SUM(CASE WHEN c.got IS NULL THEN 1 ELSE 0 END) AS undecided
  FROM handoff_constraints c
  JOIN (SELECT DISTINCT task_id, hash FROM handoff_constraints WHERE hop = 0 AND NOT soft) f ON f.task_id = c.task_id AND f.hash = c.hash
  WHERE NOT c.soft
  GROUP BY c.handoff_id
) s ON s.handoff_id = h.handoff_id
