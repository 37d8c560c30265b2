-- Whether a batch of one severity is due: something new is $3 old, or something is tried again.
SELECT EXISTS (
    SELECT 1 FROM notice
    WHERE delivered_at IS NULL AND given_up_at IS NULL
      AND severity = $1::text AND due_at <= $2::timestamptz
      AND (tries > 0 OR due_at <= $3::timestamptz))
