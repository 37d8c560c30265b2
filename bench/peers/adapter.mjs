// How bench/run talks to a system that is written for Node.js: a command a line on stdin, an answer
// a line on stdout. What a command measures is written here once for all of them, and is the same
// as in bench/adapter, which does it for Rust.
//
// A system is an object of these: settings; submit(number) gives an id; bulk(numbers, delaySeconds)
// or nothing; work(handle) gives stop(); counts() gives { waiting, done }; isDone(id); fill(count)
// or nothing; pid, if its memory is another process's. `handle(payload)` is called by each handler
// when it starts.

import { createInterface } from 'node:readline';

export const variable = (name) => process.env[name];

const text = 'x'.repeat(176);
export const payload = (number) => ({ n: number, text });

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const now = () => performance.now() / 1000;
const micros = (seconds) => Math.round(seconds * 1e6);

const BATCH = 1000;
const BULK_CALLERS = 4;
const STUCK_S = 20;

class Bench {
  next = 0;
  seen = 0;
  sum = 0;
  watched = undefined;

  constructor(system) {
    this.system = system;
    this.handle = ({ n }) => {
      this.first ??= now();
      this.seen += 1;
      this.sum += n;
      if (this.watched?.number === n) this.watched.began(now());
    };
  }

  /// One by one: each caller submits its next task when the one before is acknowledged.
  async submit({ callers, count, seconds }) {
    const end = this.next + count;
    let done = 0;
    const began = now();
    const caller = async () => {
      while (this.next < end && now() - began < seconds) {
        await this.system.submit(this.next++);
        done += 1;
      }
    };
    await Promise.all(Array.from({ length: callers }, caller));
    return { done, seconds: now() - began };
  }

  async bulk({ count, delay_s, seconds }) {
    if (!this.system.bulk) return { absent: 'there is no bulk submit' };
    const [start, end] = [this.next, this.next + count];
    const began = now();
    const caller = async () => {
      while (this.next < end && now() - began < seconds) {
        const first = this.next;
        this.next = Math.min(end, first + BATCH);
        const numbers = Array.from({ length: this.next - first }, (_, index) => first + index);
        await this.system.bulk(numbers, delay_s);
      }
    };
    await Promise.all(Array.from({ length: BULK_CALLERS }, caller));
    return { done: this.next - start, seconds: now() - began };
  }

  /// From when the worker has started, or the first handler has if that was earlier, until the
  /// store holds nothing more to do (but for `rest` tasks that are not due), or until the time is
  /// up.
  async drain({ count, rest, seconds }) {
    const [before, sumBefore] = [this.seen, this.sum];
    this.first = undefined;
    const stop = await this.system.work(this.handle);
    const began = this.first ?? now();
    let [handled, took, all] = [0, now() - began, false];
    while (took < seconds && !all) {
      await sleep(1);
      handled = this.seen - before;
      // Counting costs, so nobody counts before every handler ran.
      all = handled >= count && (await this.system.counts()).waiting <= rest;
      took = now() - began;
    }
    await stop();
    const handled_at_end = this.seen - before;
    return { handled, seconds: took, all, handled_at_end, sum: this.sum - sumBefore };
  }

  /// One task at a time for a worker that has nothing else to do.
  async latency({ count, seconds }) {
    const stop = await this.system.work(this.handle);
    const [starts, ends] = [[], []];
    // The first ones warm everything up, and are not counted; a slow poller's are fewer.
    let warm = Math.min(count, 5);
    let began = now();
    for (let n = 0; n < count + warm; n++) {
      if (n === warm) began = now();
      // A poller must not be met at the same moment of its interval every time.
      await sleep(3 + ((n * 7) % 11));
      const [start, end] = await this.once();
      if (n >= warm) {
        starts.push(micros(start));
        ends.push(micros(end));
      }
      if (now() - began >= seconds) {
        if (n >= warm) break;
        warm = n + 1;
      }
    }
    await stop();
    return { warm, start_us: starts, done_us: ends };
  }

  async once() {
    const number = this.next++;
    const begins = new Promise((began) => (this.watched = { number, began }));
    const asked = now();
    const stuck = setTimeout(() => fail(new Error('an idle task got stuck')), STUCK_S * 1000);
    const id = await this.system.submit(number);
    const started = (await begins) - asked;
    while (!(await this.system.isDone(id))) await sleep(1);
    clearTimeout(stuck);
    return [started, now() - asked];
  }

  counts = () => this.system.counts();

  async fill({ count }) {
    if (!this.system.fill) return { filled: false };
    await this.system.fill(count);
    return { filled: true };
  }

  async idle() {
    this.resting = await this.system.work(this.handle);
    return { pid: this.system.pid ?? process.pid };
  }

  async rest() {
    await this.resting?.();
    return {};
  }
}

const answer = (value) => process.stdout.write(`${JSON.stringify(value)}\n`);

function fail(error) {
  console.error(error);
  process.stdout.write(`${JSON.stringify({ error: String(error) })}\n`, () => process.exit(1));
}

/// Answers commands until there are no more.
export async function serve(open) {
  try {
    const system = await open();
    answer({ settings: system.settings });
    const bench = new Bench(system);
    for await (const line of createInterface({ input: process.stdin })) {
      const command = JSON.parse(line);
      if (command.do === 'close') break;
      answer(await bench[command.do](command));
    }
    process.exit(0);
  } catch (error) {
    fail(error);
  }
}
