INSERT INTO floor_state (id, profile, queue, status, from_status, event, change_id, actor,
    change_lease_id, ready, order_key, run_at, attempt, retry_count, max_retries, release_count,
    lease_id, lease_expires_at, claim_id, claimed_by, claimed_at, created_at, started_at,
    entered_at, updated_at)
VALUES (?1, 'job', ?2, 'running', 'pending', 'claim', ?5, ?4, ?6, 0, ?3, ?3, 1, 0, 3, 0, ?6,
    ?3 + 60000, ?7, ?4, ?3, ?3, ?3, ?3, ?3)
