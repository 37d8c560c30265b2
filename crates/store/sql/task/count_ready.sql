-- How many tasks could be claimed now, by state.
SELECT status, count(*) FROM task_state WHERE ready GROUP BY status
