// restate: a server with a log and a store of its own, which calls the handlers over HTTP/2.
//
// The server keeps its defaults, so every command is synced to its log before it counts. Handlers
// run in worker processes that share one port; the process that measures calls them through the
// ingress and waits for each answer.

import cluster from 'node:cluster';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createRequire } from 'node:module';
import { createServer } from 'node:net';
import { arch, platform } from 'node:os';
import * as restate from '@restatedev/restate-sdk';
import * as clients from '@restatedev/restate-sdk-clients';
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

async function freePort() {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address();
  server.close();
  return port;
}

/// Tries until it works, for at most a minute.
async function eventually(attempt) {
  for (let tries = 0; ; tries++) {
    try {
      return await attempt();
    } catch (error) {
      if (tries >= 600) throw error;
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  }
}

async function call(url, body) {
  const headers = { 'content-type': 'application/json', accept: 'application/json' };
  const answer = await fetch(url, { method: 'POST', headers, body: JSON.stringify(body) });
  if (!answer.ok) throw new Error(`${url}: ${answer.status} ${await answer.text()}`);
  return answer.json();
}

async function startServer() {
  const [ingress, admin, fabric] = [await freePort(), await freePort(), await freePort()];
  const require = createRequire(import.meta.url);
  const binary = require.resolve(
    `@restatedev/restate-server-${platform()}-${arch()}/bin/restate-server`,
  );
  const server = spawn(
    binary,
    ['--no-logo', '--base-dir', workload.folder, '--node-name', 'bench', '--listen-mode', 'tcp'],
    {
      env: {
        ...process.env,
        RESTATE_DEFAULT_NUM_PARTITIONS: String(workload.partitions),
        RESTATE_DISABLE_TELEMETRY: 'true',
        RESTATE_LOG_FILTER: 'error,octocrab=off',
        RESTATE_BIND_IP: '127.0.0.1',
        RESTATE_BIND_PORT: String(fabric),
        RESTATE_INGRESS__BIND_PORT: String(ingress),
        RESTATE_ADMIN__BIND_PORT: String(admin),
      },
      stdio: ['ignore', 'inherit', 'inherit'],
    },
  );
  const at = (port) => `http://127.0.0.1:${port}`;
  return { server, ingress: at(ingress), admin: at(admin) };
}

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
  const { server, ingress, admin } = await startServer();
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
