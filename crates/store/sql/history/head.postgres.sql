-- Everything below the oldest running transaction has been shown; nothing else has.
SELECT (pg_snapshot_xmin(pg_current_snapshot())::text::bigint - 1)::text::xid8,
       9223372036854775807
