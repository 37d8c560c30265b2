// Graphile Worker, plain and with what its page on performance recommends: a local queue and
// completions in batches. It deletes what is done.

import pg from 'pg';
import { Logger, makeWorkerUtils, run } from 'graphile-worker';
import { payload, serve, variable } from './adapter.mjs';

const batching = variable('BENCH_VARIANT') === 'batching';
const concurrency = 24;
const quiet = new Logger(() => () => {});

const worker = {
  concurrentJobs: concurrency,
  pollInterval: 100,
  logger: quiet,
  ...(batching && {
    localQueue: { size: 500, refetchDelay: { durationMs: 10 } },
    completeJobBatchDelay: 0,
    failJobBatchDelay: 0,
  }),
};

serve(async () => {
  const pool = new pg.Pool({ connectionString: variable('BENCH_DATABASE'), max: 34 });
  pool.on('error', console.error);
  pool.on('connect', (client) => client.on('error', console.error));
  const utils = await makeWorkerUtils({ pgPool: pool, logger: quiet });
  await utils.migrate();
  const jobs = 'graphile_worker._private_jobs';
  return {
    settings: {
      concurrentJobs: concurrency,
      localQueue: worker.localQueue?.size ?? 'off',
      completeJobBatchDelay: worker.completeJobBatchDelay ?? 'off',
      pool: 34,
    },
    submit: async (number) => (await utils.addJob('bench', payload(number))).id,
    bulk: (numbers, delay) => {
      const runAt = delay ? new Date(Date.now() + delay * 1000) : undefined;
      const spec = { identifier: 'bench', runAt };
      return utils.addJobs(numbers.map((number) => ({ ...spec, payload: payload(number) })));
    },
    work: async (handle) => {
      const taskList = { bench: async (job) => handle(job) };
      const options = { taskList, preset: { worker }, pgPool: pool, noHandleSignals: true };
      const runner = await run(options);
      return () => runner.stop();
    },
    counts: async () => {
      const { rows } = await pool.query(`SELECT count(*) FROM ${jobs}`);
      return { waiting: Number(rows[0].count), done: null };
    },
    isDone: async (id) => {
      const there = `SELECT FROM ${jobs} WHERE id = $1`;
      return (await pool.query({ name: 'there', text: there, values: [id] })).rowCount === 0;
    },
  };
});
