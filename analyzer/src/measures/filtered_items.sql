-- Items of the sender's context that the receiver did not get, of all of them. METRICS section 2.
SELECT handoff_id AS id, rated, filtered_items AS numerator, items_before AS denominator,
  CASE WHEN filtered_items IS NULL OR items_before IS NULL THEN COALESCE(after_unknown, before_unknown, 'content masked') END AS unknown
FROM handoffs
