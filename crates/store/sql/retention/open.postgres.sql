-- Deleting is open for this transaction alone.
SELECT set_config('windlass.retention', 'on', true)
