// restate: a server with a log and a store of its own, which calls the handlers over HTTP/2.
//
// The server keeps its defaults, so every command is synced to its log before it counts. Handlers
// run in worker processes that share one port; the process that measures calls them through the
// ingress and waits for each answer.

import cluster from 'node:cluster';
import { once } from 'node:events';
import * as restate from '@restatedev/restate-sdk';
import * as clients from '@restatedev/restate-sdk-clients';
import { call, eventually, freePort, startServer } from './server.mjs';
import * as bench from './workload.mjs';

const { workload } = bench;

const service = restate.service({
  name: 'bench',
  handlers: {
    tenSteps: async (ctx, number) => {
      for (let step = 0; step < workload.steps; step++) {
        await ctx.run(`step-${step}`, () => bench.stepResult(step));
      }
      return { done: number };
    },
  },
});

async function startHandlers() {
  const port = await freePort();
  const workers = Array.from({ length: workload.processes }, () =>
    cluster.fork({ BENCH_WORKER: '0', BENCH_PORT: String(port) }),
  );
  await Promise.all(workers.map((worker) => once(worker, 'listening')));
  return { workers, url: `http://127.0.0.1:${port}` };
}

/// Steps that the server has in its journals.
async function recorded(admin) {
  const query = "SELECT count(*) AS steps FROM sys_journal WHERE entry_type = 'Notification: Run'";
  return (await call(`${admin}/query`, { query })).rows[0].steps;
}

async function measure() {
  const { server, ingress, admin } = await startServer(workload.folder, workload.partitions);
  const handlers = await startHandlers();
  try {
    await eventually(() => call(`${admin}/deployments`, { uri: handlers.url }));
    const client = clients.connect({ url: ingress }).serviceClient(service);
    const run = (workflows) =>
      bench.keepInFlight(workflows, workload.inFlight, (number) => client.tenSteps(number));
    await run(workload.inFlight);
    const started = bench.now();
    await run(workload.workflows);
    const seconds = bench.now() - started;
    bench.report('restate', seconds, await recorded(admin));
  } finally {
    for (const worker of handlers.workers) worker.process.kill();
    server.kill();
  }
}

if (bench.workerIndex() === undefined) {
  await measure();
} else {
  process.env.NODE_ENV = 'production';
  restate.serve({ services: [service], port: Number(process.env.BENCH_PORT), logger: () => {} });
}
