-- Whether this very act was carried out before: its transaction was run again.
SELECT 1 FROM dead_letter_note WHERE id = $1::uuid
