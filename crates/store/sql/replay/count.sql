-- How often a task was replayed.
SELECT count(*) FROM task_spec WHERE replay_of = $1
