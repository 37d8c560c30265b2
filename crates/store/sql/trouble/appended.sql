-- Whether this very act was carried out before: its transaction was run again.
SELECT 1 FROM trouble_note WHERE id = $1::uuid
