// DBOS as a queue: workflows without steps, enqueued by its client and run through one of its
// queues, which polls. Its bulk submit is many enqueues in one transaction.

import pg from 'pg';
import { DBOS, DBOSClient } from '@dbos-inc/dbos-sdk';
import { payload, serve, variable } from './adapter.mjs';

const queueName = 'bench';
const poolSize = 34;
const options = { workerConcurrency: 1000, minPollingIntervalMs: 10 };

serve(async () => {
  let handle = () => {};
  const workflowName = 'bench';
  DBOS.registerWorkflow(
    async (params) => {
      handle(params);
      return { ok: true };
    },
    { name: workflowName },
  );
  const systemDatabaseUrl = variable('BENCH_DATABASE');
  DBOS.setConfig({
    name: 'bench',
    applicationVersion: '1',
    executorID: 'bench',
    systemDatabaseUrl,
    systemDatabasePoolSize: poolSize,
    logLevel: 'error',
  });
  // Once before, so that the schema is there.
  await DBOS.launch();
  await DBOS.registerQueue(queueName, options);
  await DBOS.shutdown();
  const client = await DBOSClient.create({
    systemDatabaseUrl,
    systemDatabasePoolSize: poolSize,
    applicationName: 'bench',
  });
  const pool = new pg.Pool({ connectionString: systemDatabaseUrl, max: 8 });
  const enqueue = { queueName, workflowName, appVersion: '1' };
  const table = 'dbos.workflow_status';
  const done = `SELECT status = 'SUCCESS' AS done FROM ${table} WHERE workflow_uuid = $1`;
  return {
    settings: { ...options, pool: poolSize },
    submit: async (number) => (await client.enqueue(enqueue, payload(number))).workflowID,
    bulk: async (numbers, delay) => {
      const later = delay ? { ...enqueue, delaySeconds: delay } : enqueue;
      const connection = await pool.connect();
      await connection.query('BEGIN');
      for (const number of numbers) {
        await client.enqueueInTransaction(connection, later, payload(number));
      }
      await connection.query('COMMIT');
      connection.release();
    },
    work: async (handler) => {
      handle = handler;
      await DBOS.launch();
      await DBOS.registerQueue(queueName, options);
      return () => DBOS.shutdown({ workflowCompletionTimeoutMS: 10000 });
    },
    counts: async () => {
      const count = `SELECT count(*) FILTER (WHERE status <> 'SUCCESS') AS waiting,
        count(*) FILTER (WHERE status = 'SUCCESS') AS done FROM ${table}`;
      const { rows } = await pool.query(count);
      return { waiting: Number(rows[0].waiting), done: Number(rows[0].done) };
    },
    isDone: async (id) =>
      (await pool.query({ name: 'done', text: done, values: [id] })).rows[0].done,
  };
});
