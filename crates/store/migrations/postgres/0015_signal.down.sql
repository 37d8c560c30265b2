DROP INDEX signal_untaken;
DROP INDEX signal_taken;
DROP INDEX signal_of_task;
CREATE INDEX signal_of_task ON signal (task_id, name, created_at, id) WHERE task_id IS NOT NULL;
