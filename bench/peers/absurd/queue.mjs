// absurd as a queue: tasks without steps. Its bulk submit is its own SQL function over many rows.

import pg from 'pg';
import { Absurd } from 'absurd-sdk';
import { payload, serve, variable } from './adapter.mjs';

const queueName = 'bench';
const work = { concurrency: 64, batchSize: 64, pollInterval: 0.01, claimTimeout: 120 };

serve(async () => {
  const pool = new pg.Pool({ connectionString: variable('BENCH_DATABASE'), max: 34 });
  const app = new Absurd({ db: pool, queueName });
  await app.createQueue();
  let handle = () => {};
  app.registerTask({ name: 'bench' }, async (params) => {
    handle(params);
    return { ok: true };
  });
  const spawn = 'SELECT absurd.spawn_task($1, $2, value) FROM jsonb_array_elements($3::jsonb)';
  const done = `SELECT state = 'completed' AS done FROM absurd.t_${queueName} WHERE task_id = $1`;
  return {
    settings: { ...work, pool: 34 },
    submit: async (number) => (await app.spawn('bench', payload(number))).taskID,
    bulk: (numbers, delay) => {
      if (delay) throw new Error('absurd cannot delay a task');
      return pool.query(spawn, [queueName, 'bench', JSON.stringify(numbers.map(payload))]);
    },
    work: async (handler) => {
      handle = handler;
      const worker = await app.startWorker(work);
      return () => worker.close();
    },
    counts: async () => {
      const count = `SELECT count(*) FILTER (WHERE state <> 'completed') AS waiting,
        count(*) FILTER (WHERE state = 'completed') AS done FROM absurd.t_${queueName}`;
      const { rows } = await pool.query(count);
      return { waiting: Number(rows[0].waiting), done: Number(rows[0].done) };
    },
    isDone: async (id) =>
      (await pool.query({ name: 'done', text: done, values: [id] })).rows[0].done,
  };
});
