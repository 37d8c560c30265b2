-- What the product keeps of a message that a waiting handler takes: its row with the indexes of its
-- lists, its lease and its conversation, and the entry in the audit log with the audit's. No rule,
-- no authority, no trigger, no lock.
CREATE TABLE floor_message (
    id uuid PRIMARY KEY, from_agent text, to_agent text, type text, priority int, payload jsonb,
    correlation_id text, idempotency_key text, request_digest text, sent_by text,
    redelivery_of uuid, status text, created_at timestamptz, due_at timestamptz,
    expires_at timestamptz, deliveries int, lease_id uuid, lease_expires_at timestamptz,
    handled_by text, delivered_at timestamptz, converses boolean, last_error text,
    finished_at timestamptz, ending_digest text
);
CREATE UNIQUE INDEX floor_message_conversation ON floor_message (to_agent)
    WHERE status = 'delivered' AND converses;
CREATE INDEX floor_message_from ON floor_message (from_agent, created_at, id);
CREATE INDEX floor_message_held ON floor_message (to_agent) WHERE status = 'delivered';
CREATE INDEX floor_message_lease ON floor_message (lease_expires_at) WHERE status = 'delivered';
CREATE UNIQUE INDEX floor_message_lease_id ON floor_message (lease_id) WHERE status = 'delivered';
CREATE INDEX floor_message_recent ON floor_message (created_at, id);
CREATE INDEX floor_message_to ON floor_message (to_agent, created_at, id);
CREATE TABLE floor_audit (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at timestamptz, actor text, event text,
    detail jsonb, subject text, xid bigint
);
CREATE INDEX floor_audit_actor ON floor_audit (actor, seq);
CREATE INDEX floor_audit_event ON floor_audit (event, seq);
CREATE INDEX floor_audit_order ON floor_audit (xid, seq);
CREATE INDEX floor_audit_subject ON floor_audit (subject, seq) WHERE subject IS NOT NULL;
