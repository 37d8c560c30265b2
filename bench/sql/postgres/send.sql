-- A message in its handler's hands, and what the audit log says of it: no rule, no authority, no
-- look at who waits.
WITH sent AS (
    INSERT INTO floor_message (id, from_agent, to_agent, type, priority, payload, request_digest,
        sent_by, status, created_at, due_at, deliveries, lease_id, lease_expires_at, handled_by,
        delivered_at, converses)
    VALUES ($1::uuid, $2::text, 'ceo', 'note', 0, $3::text::jsonb, $4::text, $2, 'delivered', now(),
        now(), 1, $5::uuid, now() + interval '60 s', $6::text, now(), true)
)
INSERT INTO floor_audit (at, actor, event, detail, subject, xid)
VALUES (now(), $2, 'message_sent', $7::text::jsonb, $1::text, pg_current_xact_id()::text::bigint)
