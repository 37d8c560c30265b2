SELECT {task_columns}
FROM task_spec s
JOIN task_state st ON st.id = s.id
LEFT JOIN task_progress p ON p.task_id = s.id
WHERE s.id = $1
