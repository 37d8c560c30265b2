-- Responses that their owner has deleted. A finished task never changes, and goes with its
-- retention; until then nobody is shown it as a response any more. The row goes with its task.
CREATE TABLE deleted_response (
    task_id uuid PRIMARY KEY,
    deleted_by text NOT NULL,
    deleted_at timestamptz NOT NULL
);
