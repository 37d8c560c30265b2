// absurd: tasks in PostgreSQL, a checkpoint for every step.
//
// The process that measures spawns the tasks, while workers of their own run them: absurd's worker
// claims in batches, and 64 tasks run at a time over all workers. Completion is looked up by one
// cheap query every 10 ms, since waiting for each task by itself would poll a thousand times.

import pg from 'pg';
import { Absurd } from 'absurd-sdk';
import * as bench from './workload.mjs';

const { workload } = bench;
const queueName = 'bench';
const pool = new pg.Pool({
  connectionString: workload.database,
  max: Math.max(2, bench.share(workload.connections, workload.processes, 0)),
});
const app = new Absurd({ db: pool, queueName });

app.registerTask({ name: 'ten-steps' }, async (params, ctx) => {
  for (let step = 0; step < workload.steps; step++) {
    await ctx.step(`step-${step}`, async () => bench.stepResult(step));
  }
  return { done: params.number };
});

const count = async (text) => Number((await pool.query(text)).rows[0].count);
const completed = () =>
  count(`SELECT count(*) FROM absurd.t_${queueName} WHERE state = 'completed'`);

async function worker(index) {
  const concurrency = bench.share(workload.inFlight, workload.processes, index);
  await app.startWorker({ concurrency, batchSize: concurrency, pollInterval: 0.01 });
  bench.serveWorker(async () => {}, () => app.close());
}

/// Spawns so many tasks and waits until all tasks are completed.
async function run(tasks, allTasks) {
  await bench.keepInFlight(tasks, 32, (number) => app.spawn('ten-steps', { number }));
  while ((await completed()) < allTasks) {
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

async function measure() {
  await app.createQueue();
  const workers = await bench.startWorkers(workload.processes);
  await run(workload.inFlight, workload.inFlight);
  const started = bench.now();
  await run(workload.workflows, workload.inFlight + workload.workflows);
  const seconds = bench.now() - started;
  const recorded = await count(`SELECT count(*) FROM absurd.c_${queueName}`);
  bench.stopWorkers(workers);
  await pool.end();
  bench.report('absurd', seconds, recorded);
}

await (bench.workerIndex() === undefined ? measure() : worker(bench.workerIndex()));
