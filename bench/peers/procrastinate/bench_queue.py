"""procrastinate: one worker process with asynchronous tasks, woken by LISTEN and NOTIFY.

Answers the same commands as bench/peers/adapter.mjs.
"""

import asyncio
import datetime
import json
import os
import sys
import time

import procrastinate

CONCURRENCY = 64
CONNECTIONS = 34
BATCH = 1000
BULK_CALLERS = 4
STUCK_S = 20
TEXT = "x" * 176

connector = procrastinate.PsycopgConnector(
    conninfo=os.environ["BENCH_DATABASE"], min_size=4, max_size=CONNECTIONS
)
app = procrastinate.App(connector=connector)


class Bench:
    next = 0
    seen = 0
    sum = 0
    watched = None
    first = None

    def handle(self, number):
        self.seen += 1
        self.sum += number
        self.first = self.first or time.perf_counter()
        if self.watched and self.watched[0] == number and not self.watched[1].done():
            self.watched[1].set_result(time.perf_counter())

    async def counts(self, _command=None):
        rows = await connector.execute_query_all_async(
            "SELECT count(*) FILTER (WHERE status <> 'succeeded') AS waiting,"
            " count(*) FILTER (WHERE status = 'succeeded') AS done FROM procrastinate_jobs"
        )
        return rows[0]

    async def submit(self, command):
        end = self.next + command["count"]
        done = 0
        began = time.perf_counter()

        async def caller():
            nonlocal done
            while self.next < end and time.perf_counter() - began < command["seconds"]:
                self.next += 1
                await task.defer_async(n=self.next - 1, text=TEXT)
                done += 1

        await asyncio.gather(*(caller() for _ in range(command["callers"])))
        return {"done": done, "seconds": time.perf_counter() - began}

    async def bulk(self, command):
        start, end = self.next, self.next + command["count"]
        delay = command.get("delay_s")
        when = datetime.timedelta(seconds=delay) if delay else None
        began = time.perf_counter()

        async def caller():
            while self.next < end and time.perf_counter() - began < command["seconds"]:
                first, self.next = self.next, min(end, self.next + BATCH)
                items = [{"n": n, "text": TEXT} for n in range(first, self.next)]
                now = datetime.datetime.now(datetime.timezone.utc)
                deferrer = task.configure(schedule_at=now + when) if when else task
                await deferrer.batch_defer_async(*items)

        await asyncio.gather(*(caller() for _ in range(BULK_CALLERS)))
        return {"done": self.next - start, "seconds": time.perf_counter() - began}

    def work(self):
        worker = app.run_worker_async(
            concurrency=CONCURRENCY,
            fetch_job_polling_interval=0.1,
            install_signal_handlers=False,
            listen_notify=True,
        )
        return asyncio.create_task(worker)

    async def stop(self, worker):
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)

    async def drain(self, command):
        before, sum_before = self.seen, self.sum
        self.first = None
        worker = self.work()
        began = time.perf_counter()
        handled, took, done = 0, 0.0, False
        while took < command["seconds"] and not done:
            await asyncio.sleep(0.001)
            handled = self.seen - before
            # Counting costs, so nobody counts before every handler ran.
            if handled >= command["count"]:
                done = (await self.counts())["waiting"] <= command["rest"]
            took = time.perf_counter() - began
        await self.stop(worker)
        at_end, total = self.seen - before, self.sum - sum_before
        answer = {"handled": handled, "seconds": took, "all": done}
        return answer | {"handled_at_end": at_end, "sum": total}

    async def once(self):
        number = self.next
        self.next += 1
        begins = asyncio.get_running_loop().create_future()
        self.watched = (number, begins)
        asked = time.perf_counter()
        job = await task.defer_async(n=number, text=TEXT)
        started = await begins - asked
        while True:
            row = await connector.execute_query_one_async(
                "SELECT status = 'succeeded' AS done FROM procrastinate_jobs WHERE id = %(id)s",
                id=job,
            )
            if row["done"]:
                return started, time.perf_counter() - asked
            await asyncio.sleep(0.001)

    async def latency(self, command):
        worker = self.work()
        starts, ends = [], []
        # The first ones warm everything up, and are not counted.
        warm = min(command["count"], 5)
        began = time.perf_counter()
        for n in range(command["count"] + warm):
            if n == warm:
                began = time.perf_counter()
            # A poller must not be met at the same moment of its interval every time.
            await asyncio.sleep((3 + n * 7 % 11) / 1000)
            start, end = await asyncio.wait_for(self.once(), STUCK_S)
            if n >= warm:
                starts.append(round(start * 1e6))
                ends.append(round(end * 1e6))
                if time.perf_counter() - began >= command["seconds"]:
                    break
        await self.stop(worker)
        return {"warm": warm, "start_us": starts, "done_us": ends}

    async def idle(self, _command):
        self.resting = self.work()
        return {"pid": os.getpid()}

    async def rest(self, _command):
        await self.stop(self.resting)
        return {}

    async def fill(self, command):
        await connector.execute_query_async(
            "INSERT INTO procrastinate_jobs SELECT made.* FROM (SELECT to_jsonb(job) AS row"
            " FROM procrastinate_jobs AS job WHERE status = 'succeeded' LIMIT 1) AS one,"
            " generate_series(1, %(count)s) AS n, jsonb_populate_record(NULL::procrastinate_jobs,"
            " one.row || jsonb_build_object('id', nextval('procrastinate_jobs_id_seq'), 'n', n))"
            " AS made",
            count=command["count"],
        )
        return {"filled": True}


bench = Bench()


@app.task(name="bench")
async def task(n, text):
    bench.handle(n)


def answer(value):
    print(json.dumps(value), flush=True)


async def main():
    loop = asyncio.get_running_loop()
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        settings = {"concurrency": CONCURRENCY, "pool": CONNECTIONS, "listen_notify": True}
        answer({"settings": settings})
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            command = json.loads(line)
            if command["do"] == "close":
                break
            answer(await getattr(bench, command["do"])(command))


try:
    asyncio.run(main())
except Exception as error:
    answer({"error": repr(error)})
    raise
