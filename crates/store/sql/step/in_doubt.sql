-- Steps that a person must decide over: those in doubt, and what ended tasks left behind (`left` of
-- the domain). The first condition is that of the index; what living tasks are at meanwhile is
-- passed over.
SELECT {step_columns} FROM step
WHERE NOT idempotent AND (status = 'in_doubt' OR status = 'begun'
        OR status = 'failed' AND coalesce(effect, 'unknown') <> 'none')
    AND (status = 'in_doubt' OR EXISTS (
        SELECT 1 FROM task_state st WHERE st.id = step.task_id AND st.finished_at IS NOT NULL))
    AND seq {beyond} $1
ORDER BY seq {direction}
LIMIT $2
