// DBOS: a library that runs workflows in the process that starts them, and writes their start,
// every step and their end to PostgreSQL.
//
// Its fastest way, and so the one measured: workflows are started directly, without a queue (whose
// dispatch polls), and awaited by their handles. Work is shared among processes, 64 workflows at a
// time over all of them.

import pg from 'pg';
import { DBOS } from '@dbos-inc/dbos-sdk';
import * as bench from './workload.mjs';

const { workload } = bench;

async function tenSteps(number) {
  for (let step = 0; step < workload.steps; step++) {
    await DBOS.runStep(async () => bench.stepResult(step), { name: `step-${step}` });
  }
  return { done: number };
}
const workflow = DBOS.registerWorkflow(tenSteps, { name: 'tenSteps' });

const launch = (executorID) => {
  DBOS.setConfig({
    name: 'bench',
    applicationVersion: '1',
    executorID,
    systemDatabaseUrl: workload.database,
    systemDatabasePoolSize: bench.share(workload.connections, workload.processes, 0),
    logLevel: 'error',
  });
  return DBOS.launch();
};

async function worker(index) {
  await launch(`worker-${index}`);
  const run = async (number) => {
    const handle = await DBOS.startWorkflow(workflow)(number);
    await handle.getResult();
  };
  const mine = (all) => bench.share(all, workload.processes, index);
  bench.serveWorker(
    (workflows) => bench.keepInFlight(mine(workflows), mine(workload.inFlight), run),
    () => DBOS.shutdown(),
  );
}

async function measure() {
  // Once here, so that the workers do not race to create the schema.
  await launch('measure');
  await DBOS.shutdown();
  const workers = await bench.startWorkers(workload.processes);
  await bench.tell(workers, workload.inFlight);
  const started = bench.now();
  await bench.tell(workers, workload.workflows);
  const seconds = bench.now() - started;
  bench.stopWorkers(workers);
  const client = new pg.Client(workload.database);
  await client.connect();
  const { rows } = await client.query('SELECT count(*) FROM dbos.operation_outputs');
  await client.end();
  bench.report('dbos', seconds, Number(rows[0].count));
}

await (bench.workerIndex() === undefined ? measure() : worker(bench.workerIndex()));
