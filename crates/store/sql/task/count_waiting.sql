-- How many tasks could be claimed now, by lane.
SELECT queue, profile, count(*) FROM task_state WHERE ready GROUP BY queue, profile
