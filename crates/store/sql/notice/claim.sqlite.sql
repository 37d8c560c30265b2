-- Takes notices of one severity for a try: counted before it begins, so that a crash counts too.
UPDATE notice SET tries = tries + 1, due_at = $3
WHERE id IN (
    SELECT id FROM notice
    WHERE delivered_at IS NULL AND given_up_at IS NULL AND severity = $1 AND due_at <= $2
    ORDER BY due_at
    LIMIT $4)
RETURNING {notice_columns}, sealed
