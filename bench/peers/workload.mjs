// What every peer's program does in the same way: read the size of the workload, keep a number of
// workflows in flight, start worker processes, print one JSON line.
//
// Invariant: the clock runs from the first call that starts a workflow until the last one is seen
// completed; what a peer prepares once lies before it: its schema, its connections, and as many
// workflows as are in flight at a time, so that its code is compiled.

import { fork } from 'node:child_process';
import { once } from 'node:events';

const number = (name, otherwise) => Number(process.env[name] ?? otherwise);

export const workload = {
  database: process.env.BENCH_DATABASE,
  folder: process.env.BENCH_FOLDER,
  workflows: number('BENCH_WORKFLOWS', 50),
  steps: number('BENCH_STEPS', 10),
  inFlight: number('BENCH_IN_FLIGHT', 64),
  processes: number('BENCH_PROCESSES', 1),
  connections: number('BENCH_CONNECTIONS', 16),
  partitions: number('BENCH_PARTITIONS', 24),
};

/// What a step returns.
export const stepResult = (step) => ({ step, note: 'a small value' });

/// Runs `start(0)` to `start(total - 1)`, at most `inFlight` of them at a time.
export async function keepInFlight(total, inFlight, start) {
  let next = 0;
  const caller = async () => {
    while (next < total) await start(next++);
  };
  await Promise.all(Array.from({ length: Math.min(inFlight, total) }, caller));
}

/// `count` into `parts` that differ by one at most.
export const share = (count, parts, part) => Math.floor((count + part) / parts);

/// Starts this program again as workers; each says when it is ready.
export async function startWorkers(count) {
  const workers = Array.from({ length: count }, (_, index) => {
    const worker = fork(process.argv[1], [], {
      env: { ...process.env, BENCH_WORKER: String(index) },
    });
    worker.on('exit', (code) => {
      if (code !== 0) {
        console.error(`worker ${index} ended with ${code}`);
        process.exit(1);
      }
    });
    return worker;
  });
  await Promise.all(workers.map((worker) => once(worker, 'message')));
  return workers;
}

/// Sends every worker a message and waits until each has answered.
export async function tell(workers, message) {
  const answers = workers.map((worker) => once(worker, 'message'));
  for (const worker of workers) worker.send(message);
  await Promise.all(answers);
}

export const stopWorkers = (workers) => {
  for (const worker of workers) worker.disconnect();
};

/// The number of this worker, or undefined in the process that measures.
export const workerIndex = () =>
  process.env.BENCH_WORKER === undefined ? undefined : Number(process.env.BENCH_WORKER);

/// Answers the messages of the process that measures, and ends with it.
export function serveWorker(answer, close) {
  process.on('message', async (message) => {
    await answer(message);
    process.send('done');
  });
  process.on('disconnect', async () => {
    await close();
    process.exit(0);
  });
  process.send('ready');
}

/// Prints the result. `recorded` are all steps found in the peer's store; a peer that has another
/// number of them than were run has no result.
export function report(system, seconds, recorded) {
  const { workflows, steps, inFlight, processes, connections, partitions } = workload;
  const expected = workflows * steps;
  const withWarmUp = (workflows + inFlight) * steps;
  if (recorded !== withWarmUp) {
    throw new Error(`${system} recorded ${recorded} steps instead of ${withWarmUp}`);
  }
  const settings = { in_flight: inFlight, processes, connections, partitions };
  const result = { system, seconds, steps_per_s: expected / seconds, workflows, steps, settings };
  console.log(JSON.stringify(result));
}

export const now = () => performance.now() / 1000;
