-- The planner cannot know that little has ended since the tally was folded, and would read the
-- whole history.
SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true)
