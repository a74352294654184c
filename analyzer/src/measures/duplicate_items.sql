-- Extra copies of an earlier item in the receiver's view, of all its items. METRICS section 2.
SELECT handoff_id AS id, rated, duplicate_items AS numerator, items_after AS denominator,
  CASE WHEN duplicate_items IS NULL OR items_after IS NULL THEN COALESCE(after_unknown, before_unknown, 'content masked') END AS unknown
FROM handoffs
