-- How many tasks could be claimed now, by state and place: one walk for both, because the index
-- holds every task that was ready since the oldest snapshot.
SELECT status, queue, profile, count(*) FROM task_state WHERE ready GROUP BY 1, 2, 3
