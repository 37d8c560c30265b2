-- What is told of delegations that have ended, in the order of their ids.
SELECT s.id, s.caller, s.callee, s.name, s.correlation_id, st.status, st.result, st.error
FROM task_state st JOIN task_spec s ON s.id = st.id
WHERE st.id = ANY ($1::uuid[]) AND st.status IN ({terminal})
ORDER BY st.id
