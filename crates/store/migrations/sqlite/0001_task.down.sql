-- Removes every task. There is no way back but a backup.
INSERT INTO retention_gate (open) VALUES (1);
DROP VIEW task_failure;
DROP VIEW task;
DROP TABLE audit;
DROP TABLE approval;
DROP TABLE task_tally_position;
DROP TABLE task_tally;
DROP TABLE task_history;
DROP TABLE task_progress;
DROP TABLE task_state;
DROP TABLE task_tag;
DROP TABLE task_spec;
DROP TABLE retention_gate;
DROP TABLE profile;
DROP TABLE transition;
