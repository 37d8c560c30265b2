// openworkflow on SQLite: a row for every step, workers in the process that starts the workflows.

import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { OpenWorkflow } from 'openworkflow';
import { BackendSqlite } from 'openworkflow/sqlite';
import * as bench from './workload.mjs';

const { workload } = bench;
const file = join(workload.folder, 'openworkflow.db');
const ow = new OpenWorkflow({ backend: BackendSqlite.connect(file) });
const workflow = ow.defineWorkflow({ name: 'ten-steps' }, async ({ input, step }) => {
  for (let number = 0; number < workload.steps; number++) {
    await step.run({ name: `step-${number}` }, async () => bench.stepResult(number));
  }
  return { done: input.number };
});
const reader = new DatabaseSync(file, { readOnly: true });
const count = (text) => reader.prepare(text).get().count;

/// Starts so many workflows and waits until all are completed.
async function run(workflows, all) {
  await bench.keepInFlight(workflows, 32, (number) => workflow.run({ number }));
  const completed = "SELECT count(*) AS count FROM workflow_runs WHERE status = 'completed'";
  while (count(completed) < all) await new Promise((resolve) => setTimeout(resolve, 10));
}

const worker = ow.newWorker({ concurrency: workload.inFlight });
await worker.start();
await run(workload.inFlight, workload.inFlight);
const started = bench.now();
await run(workload.workflows, workload.inFlight + workload.workflows);
const seconds = bench.now() - started;
const recorded = count("SELECT count(*) AS count FROM step_attempts WHERE status = 'completed'");
bench.report('openworkflow', seconds, recorded);
process.exit(0);
