INSERT INTO floor_history (task_id, change_id, from_status, to_status, event, actor, lease_id, at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
