// pg-boss: batches, fetched again while they are full. With LISTEN and NOTIFY it is woken at once;
// without it it polls, and concurrent submits can share a sync, which NOTIFY does not let them.

import pg from 'pg';
import { PgBoss } from 'pg-boss';
import { payload, serve, variable } from './adapter.mjs';

const queue = 'bench';
const notify = variable('BENCH_VARIANT') === 'notify';
const work = {
  batchSize: 500,
  localConcurrency: 2,
  pollingIntervalSeconds: 0.5,
  notifyPollingIntervalSeconds: 0.5,
  burstWhenBatchFull: true,
};

serve(async () => {
  const connectionString = variable('BENCH_DATABASE');
  const pool = new pg.Pool({ connectionString, max: 4 });
  const boss = new PgBoss({ connectionString, max: 34, useListenNotify: notify, schedule: false });
  boss.on('error', (error) => console.error(error));
  await boss.start();
  await boss.createQueue(queue, { notify });
  return {
    settings: { ...work, notify, pool: 34 },
    submit: (number) => boss.send(queue, payload(number)),
    bulk: (numbers, delay) => {
      const options = delay ? { startAfter: delay } : {};
      return boss.insert(queue, numbers.map((number) => ({ data: payload(number), ...options })));
    },
    work: async (handle) => {
      await boss.work(queue, work, async (jobs) => {
        for (const job of jobs) handle(job.data);
      });
      return () => boss.offWork(queue, { wait: true });
    },
    counts: async () => {
      const count = `SELECT count(*) FILTER (WHERE state < 'completed') AS waiting,
        count(*) FILTER (WHERE state = 'completed') AS done FROM pgboss.job WHERE name = $1`;
      const { waiting, done } = (await pool.query(count, [queue])).rows[0];
      return { waiting: Number(waiting), done: Number(done) };
    },
    isDone: async (id) => {
      const text = `SELECT state = 'completed' AS done FROM pgboss.job WHERE name = $1 AND id = $2`;
      return (await pool.query({ name: 'done', text, values: [queue, id] })).rows[0].done;
    },
    fill: (count) => pool.query(
      `INSERT INTO pgboss.job SELECT made.* FROM (SELECT to_jsonb(job) AS row FROM pgboss.job
         WHERE name = $1 AND state = 'completed' LIMIT 1) AS one, generate_series(1, $2) AS n,
         jsonb_populate_record(NULL::pgboss.job,
           one.row || jsonb_build_object('id', gen_random_uuid(), 'n', n)) AS made`,
      [queue, count],
    ),
  };
});
