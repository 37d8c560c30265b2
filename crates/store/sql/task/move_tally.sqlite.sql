UPDATE task_tally_position SET seq = coalesce((SELECT max(seq) FROM task_history), seq)
