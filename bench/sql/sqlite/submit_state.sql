INSERT INTO floor_state (id, profile, queue, status, event, change_id, actor, ready, order_key,
    run_at, attempt, retry_count, max_retries, release_count, created_at, entered_at, updated_at)
VALUES (?1, 'job', ?2, 'pending', 'submit', ?1, ?4, 1, ?3, ?3, 0, 0, 3, 0, ?3, ?3, ?3)
