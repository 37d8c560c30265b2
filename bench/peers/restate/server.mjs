// A restate server on free ports of the loopback, and calls to it.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createRequire } from 'node:module';
import { createServer } from 'node:net';
import { arch, platform } from 'node:os';

/// Below those that the system gives to outgoing connections: one of them could take it before the
/// server does.
export async function freePort() {
  for (let tries = 0; ; tries++) {
    const port = 20_000 + Math.floor(Math.random() * 10_000);
    const server = createServer().listen(port);
    try {
      await once(server, 'listening');
      server.close();
      await once(server, 'close');
      return port;
    } catch (error) {
      if (tries >= 100) throw error;
    }
  }
}

/// Tries until it works, for at most a minute.
export async function eventually(attempt) {
  for (let tries = 0; ; tries++) {
    try {
      return await attempt();
    } catch (error) {
      if (tries >= 600) throw error;
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  }
}

export async function call(url, body) {
  const headers = { 'content-type': 'application/json', accept: 'application/json' };
  const answer = await fetch(url, { method: 'POST', headers, body: JSON.stringify(body) });
  if (!answer.ok) throw new Error(`${url}: ${answer.status} ${await answer.text()}`);
  return answer.json();
}

export async function startServer(folder, partitions) {
  const [ingress, admin, fabric] = [await freePort(), await freePort(), await freePort()];
  const require = createRequire(import.meta.url);
  const binary = require.resolve(
    `@restatedev/restate-server-${platform()}-${arch()}/bin/restate-server`,
  );
  const server = spawn(
    binary,
    ['--no-logo', '--base-dir', folder, '--node-name', 'bench', '--listen-mode', 'tcp'],
    {
      env: {
        ...process.env,
        RESTATE_DEFAULT_NUM_PARTITIONS: String(partitions),
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
