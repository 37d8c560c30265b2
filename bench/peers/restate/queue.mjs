// restate as a queue: one-way calls through the ingress. It pushes each to its handler as soon as
// it has it, so there is nothing to drain.

process.env.NODE_ENV = 'production';

import * as restate from '@restatedev/restate-sdk';
import * as clients from '@restatedev/restate-sdk-clients';
import { payload, serve, variable } from './adapter.mjs';
import { call, eventually, freePort, startServer } from './server.mjs';

const partitions = 4;

serve(async () => {
  let handle = () => {};
  const handlers = {
    bench: async (_, params) => {
      handle(params);
      return { ok: true };
    },
  };
  const service = restate.service({ name: 'bench', handlers });
  const { server, ingress, admin } = await startServer(variable('BENCH_FOLDER'), partitions);
  process.on('exit', () => server.kill());
  const port = await freePort();
  restate.serve({ services: [service], port, logger: () => {} });
  await eventually(() => call(`${admin}/deployments`, { uri: `http://127.0.0.1:${port}` }));
  const client = clients.connect({ url: ingress }).serviceSendClient(service);
  return {
    settings: { partitions },
    // Its own memory is that of the server, not of the process with the handlers.
    pid: server.pid,
    submit: async (number) => (await client.bench(payload(number))).invocationId,
    work: async (handler) => {
      handle = handler;
      return async () => {};
    },
    counts: async () => {
      const query = `SELECT count(*) FILTER (WHERE status <> 'completed') AS waiting,
        count(*) FILTER (WHERE status = 'completed') AS done FROM sys_invocation`;
      return (await call(`${admin}/query`, { query })).rows[0];
    },
    isDone: async (id) => (await fetch(`${ingress}/restate/invocation/${id}/output`)).ok,
  };
});
