-- There is one writer.
SELECT {trouble_columns} FROM trouble tr JOIN task_state st ON st.id = tr.task_id
WHERE tr.task_id = $1
