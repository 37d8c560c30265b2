-- What the product keeps of a message that a waiting handler takes: its row with the indexes of its
-- lists, its lease and its conversation, and the entry in the audit log with the audit's. No rule,
-- no authority, no trigger.
CREATE TABLE floor_message (
    id TEXT PRIMARY KEY NOT NULL, from_agent TEXT, to_agent TEXT, type TEXT, priority INTEGER,
    payload TEXT, correlation_id TEXT, idempotency_key TEXT, request_digest TEXT, sent_by TEXT,
    redelivery_of TEXT, status TEXT, created_at INTEGER, due_at INTEGER, expires_at INTEGER,
    deliveries INTEGER, lease_id TEXT, lease_expires_at INTEGER, handled_by TEXT,
    delivered_at INTEGER, converses INTEGER, last_error TEXT, finished_at INTEGER,
    ending_digest TEXT
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
    seq INTEGER PRIMARY KEY, at INTEGER, actor TEXT, event TEXT, detail TEXT, subject TEXT
);
CREATE INDEX floor_audit_actor ON floor_audit (actor, seq);
CREATE INDEX floor_audit_event ON floor_audit (event, seq);
CREATE INDEX floor_audit_subject ON floor_audit (subject, seq) WHERE subject IS NOT NULL;
