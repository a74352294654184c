-- Items of the receiver's view that the sender's context did not hold, of all of the view. METRICS section 2.
SELECT handoff_id AS id, rated, added_items AS numerator, items_after AS denominator,
  CASE WHEN added_items IS NULL OR items_after IS NULL THEN COALESCE(after_unknown, before_unknown, 'content masked') END AS unknown
FROM handoffs
