SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

DROP TRIGGER task_state_insert_count ON task_state;
DROP TRIGGER task_state_update_count ON task_state;
DROP TRIGGER task_state_finds_its_lane ON task_state;
DROP TRIGGER task_state_keeps_its_lane ON task_state;
DROP FUNCTION windlass_count_tasks();
DROP FUNCTION windlass_find_lane();
DROP FUNCTION windlass_refuse_lane(bigint);
DROP FUNCTION windlass_hold(int, text[]);
DROP INDEX task_state_ready;
ALTER TABLE task_state DROP COLUMN lane;
DROP VIEW limit_use;
DROP TABLE pause, limit_rate, limit_rule, limit_count, lane;
CREATE INDEX task_state_ready ON task_state (queue, profile, order_key, id)
    WHERE ready;
