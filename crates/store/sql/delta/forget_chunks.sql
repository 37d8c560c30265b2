-- Chunks go with their source.
DELETE FROM delta_chunk
WHERE NOT EXISTS (
    SELECT 1 FROM delta_source d
    WHERE d.task_id = delta_chunk.task_id AND d.attempt = delta_chunk.attempt)
