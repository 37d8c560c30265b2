-- For what a parked task waits: its wait, or the open question at a gate.
SELECT w.kind, w.step_id, w.wake_at, w.signal, w.key, w.child_id, a.id, a.expires_at
FROM task_state st
LEFT JOIN wait w ON w.task_id = st.id AND st.status = 'waiting'
LEFT JOIN approval a ON a.id = st.approval_id AND st.status = 'waiting_for_approval'
WHERE st.id = $1
