-- The number of the run that begins now: of the log's numbers, so that the first entry of a task
-- says which runs began after it was made.
SELECT nextval('task_history_seq')
