-- Deleting is open for this transaction alone, of what ended at least $1 ms ago.
SELECT set_config('windlass.retention', 'on', true),
       set_config('windlass.retention_keep_ms', $1::bigint::text, true)
