-- From the transfer to the receiver's first call that is no repeat, no retry and no error; without calls, to its answer. METRICS section 2.
SELECT handoff_id AS id, rated, first_action_ns AS numerator, 1 AS denominator, first_action_unknown AS unknown
FROM handoffs
