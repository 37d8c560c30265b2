-- Removes every task. There is no way back but a backup.
DROP FUNCTION windlass_submit(text, jsonb, jsonb);
DROP FUNCTION windlass_submit_problem(text, jsonb, jsonb);
DROP FUNCTION windlass_order_key(int, timestamptz);
DROP VIEW task_failure;
DROP VIEW task;
DROP FUNCTION windlass_refuse_transition(task_state);
DROP FUNCTION windlass_settle_approval(task_state);
DROP FUNCTION windlass_complete_manual_update(task_state, task_state);
DROP TABLE approval, task_tally_position, task_tally, task_history, task_progress, task_state,
    task_tag, task_spec, profile, transition;
DROP FUNCTION windlass_write_tags();
DROP FUNCTION windlass_write_history();
DROP FUNCTION windlass_write_first_history();
DROP FUNCTION windlass_check_progress_task();
DROP FUNCTION windlass_check_approval_closing();
DROP FUNCTION windlass_check_approval_task();
DROP FUNCTION windlass_guard_update();
DROP FUNCTION windlass_json_fits(jsonb);
DROP FUNCTION windlass_refuse_insert();
DROP FUNCTION windlass_refuse_delete();
DROP FUNCTION windlass_refuse();
DROP TYPE approval_status;
DROP TYPE task_event;
DROP TYPE task_status;
DROP TYPE task_profile;
