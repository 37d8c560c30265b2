-- One page of tasks. The parts in braces say which index leads: see task/list.rs.
-- $1 and $2 are where the page begins; every other parameter but the limit may be NULL.
SELECT {task_columns}
FROM {from}
LEFT JOIN task_progress p ON p.task_id = s.id
WHERE {driven}
  AND st.id = s.id
  AND ({time}, {id}) {beyond} ($1::timestamptz, $2::uuid)
  AND {time} >= $3::timestamptz
  AND {time} < $4::timestamptz
  AND ($6::task_status[] IS NULL OR {status_among})
  AND ($7::task_profile[] IS NULL OR {profile_among})
  AND ($8::text IS NULL OR s.queue = $8)
  AND ($9::text IS NULL OR s.agent = $9)
  AND ($10::text IS NULL OR s.venture = $10)
  AND ($11::text IS NULL OR s.portfolio = $11)
  AND ($12::text IS NULL OR s.stage = $12)
  AND ($13::text IS NULL OR s.owner = $13)
  AND ($14::text IS NULL OR s.caller = $14)
  AND ($15::text IS NULL OR s.callee = $15)
  AND ($16::text IS NULL OR s.pool = $16)
  AND ($17::uuid IS NULL OR s.parent_id = $17)
  AND ($18::uuid IS NULL OR s.replay_of = $18)
  AND ($19::text IS NULL OR s.correlation_id = $19)
  AND ($20::text IS NULL OR s.name = $20)
  AND ($21::text IS NULL OR EXISTS (
      SELECT 1 FROM task_tag t
      WHERE t.key = $21 AND t.value = $22::text AND t.created_at = s.created_at
        AND t.task_id = s.id))
ORDER BY {time} {direction}, {id} {direction}
LIMIT $5::bigint
