// openworkflow on SQLite: workflows without steps. Its file has SQLite's default, which syncs every
// commit.

import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { OpenWorkflow } from 'openworkflow';
import { BackendSqlite } from 'openworkflow/sqlite';
import { payload, serve, variable } from './adapter.mjs';

const concurrency = 64;

serve(async () => {
  const file = join(variable('BENCH_FOLDER'), 'openworkflow.db');
  const backend = BackendSqlite.connect(file);
  const ow = new OpenWorkflow({ backend });
  let handle = () => {};
  const workflow = ow.defineWorkflow({ name: 'bench' }, async ({ input }) => {
    handle(input);
    return { ok: true };
  });
  const reader = new DatabaseSync(file, { readOnly: true });
  const counting = reader.prepare(`SELECT count(*) FILTER (WHERE status <> 'completed') AS waiting,
    count(*) FILTER (WHERE status = 'completed') AS done FROM workflow_runs`);
  const one = reader.prepare('SELECT status FROM workflow_runs WHERE id = ?');
  return {
    settings: { concurrency, synchronous: 'FULL' },
    submit: async (number) => (await workflow.run(payload(number))).workflowRun.id,
    work: async (handler) => {
      handle = handler;
      const worker = ow.newWorker({ concurrency });
      await worker.start();
      return () => worker.stop();
    },
    counts: async () => ({ ...counting.get() }),
    isDone: async (id) => one.get(id)?.status === 'completed',
  };
});
