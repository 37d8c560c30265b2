-- Signals are removed; migrations/postgres/0015_signal.up.sql says more.
DROP INDEX signal_of_task;
CREATE INDEX signal_of_task ON signal (task_id, name, created_at, id)
    WHERE task_id IS NOT NULL AND taken_by IS NULL;
CREATE INDEX signal_taken ON signal (taken_by) WHERE taken_by IS NOT NULL;
CREATE INDEX signal_untaken ON signal (created_at) WHERE key IS NOT NULL AND taken_by IS NULL;
