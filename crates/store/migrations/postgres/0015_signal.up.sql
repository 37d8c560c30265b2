-- Signals are removed: those that belong to a task, taken or not, together with its steps' results;
-- those of a key that nobody took when they are old. A wait looks among untaken ones only.
DROP INDEX signal_of_task;
CREATE INDEX signal_of_task ON signal (task_id, name, created_at, id)
    WHERE task_id IS NOT NULL AND taken_by IS NULL;
CREATE INDEX signal_taken ON signal (taken_by) WHERE taken_by IS NOT NULL;
CREATE INDEX signal_untaken ON signal (created_at) WHERE key IS NOT NULL AND taken_by IS NULL;
