"""The loads: what each system is told to do, in which order, and whether its counts add up."""

import subprocess
import tempfile
import time

from .place import Database, Failed, Snapshot, say
from .process import Adapter, resident_mb
from .stats import quantile

# Whatever happens to a system is its failure, and the others go on.
TROUBLE = (Failed, OSError, KeyError, subprocess.SubprocessError)
# The callers that submit one by one.
CALLERS = (1, 32)
# Tasks that are not due stay so for longer than any run.
NOT_DUE_S = 24 * 60 * 60
# The rounds at the end of a held snapshot that count.
LAST = 3
# How long a system that works by itself may take to finish what it was given.
SETTLED_S = 30
# For the first task of every caller.
WARM_S = 10
# After its start, and before its memory is read.
SETTLE_S = 1.0


class Opened:
    """A system in a fresh database and folder, ready for commands, and what it was told so far."""

    def __init__(self, system, command, **variables):
        self.system, self.command, self.variables = system, command, variables
        # Submitted and not drained, with the sum of their numbers; and drained.
        self.waiting = self.waiting_sum = self.handled = self.next = 0

    def __enter__(self):
        self.database = Database().__enter__()
        self.folder = tempfile.TemporaryDirectory(prefix="windlass-bench-")
        try:
            self.system.before(self.database.url)
            environment = {
                "BENCH_DATABASE": self.database.url,
                "BENCH_FOLDER": self.folder.name,
                "BENCH_ENGINE": self.system.engine,
                "BENCH_VARIANT": self.system.variant,
            }
            environment |= {f"BENCH_{key.upper()}": str(v) for key, v in self.variables.items()}
            adapter = Adapter(self.system.name, self.command, environment, self.folder.name)
            self.adapter = adapter.__enter__()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(self, *error):
        self.adapter.__exit__(*error)
        self.remove()

    def remove(self):
        self.folder.cleanup()
        self.database.__exit__()

    def took(self, found):
        """Numbers are given in their order, so a count says which ones were taken."""
        done = found["done"]
        self.waiting += done
        self.waiting_sum += sum(range(self.next, self.next + done))
        self.next += done
        if not done:
            raise Failed("nothing was submitted")
        return done / found["seconds"]

    def submit(self, callers, count, seconds):
        """Tasks a second, one by one."""
        ask = self.adapter.ask
        # One of each caller first: connections are made outside the clock.
        self.took(ask("submit", callers=callers, count=callers, seconds=WARM_S))
        return self.took(ask("submit", callers=callers, count=count, seconds=seconds))

    def bulk(self, count, seconds):
        """Tasks a second in bulk, or None."""
        if "bulk" in self.system.lacks:
            return None
        return self.took(self.adapter.ask("bulk", count=count, seconds=seconds))

    def put_off(self, count):
        """Tasks that are not due."""
        found = self.adapter.ask("bulk", give_up_s=600, count=count, seconds=600, delay_s=NOT_DUE_S)
        if found.get("done") != count:
            raise Failed(f"{count} tasks should wait, and {found.get('done')} do")
        self.next += count

    def fill(self, count):
        """Finished tasks. False if the system keeps none, or cannot be given any."""
        return self.adapter.ask("fill", give_up_s=600, count=count)["filled"]

    def load(self, count, seconds):
        """Tasks to be drained, in whatever way is fast."""
        if self.bulk(count, seconds) is None:
            self.submit(32, count, seconds)

    def drain(self, seconds, rest=0):
        """Drained tasks a second, after everything was counted again."""
        count, total = self.waiting, self.waiting_sum
        before = self.adapter.ask("counts")
        expect("waiting before the drain", before["waiting"], count + rest)
        found = self.adapter.ask("drain", count=count, rest=rest, seconds=seconds)
        handled, after = found["handled_at_end"], self.adapter.ask("counts")
        if found["all"]:
            expect("handlers that ran", handled, count)
            expect("the sum of their numbers", found["sum"], total)
        expect("waiting after the drain", after["waiting"], count - handled + rest)
        if after["done"] is not None:
            expect("finished and kept", after["done"] - before["done"], handled)
        if not found["handled"]:
            raise Failed("nothing was drained")
        self.waiting -= handled
        self.waiting_sum -= found["sum"]
        self.handled += handled
        return found["handled"] / found["seconds"]

    def settle(self):
        """Waits until nothing is left to do in a system that works by itself."""
        until = time.monotonic() + SETTLED_S
        while (found := self.adapter.ask("counts"))["waiting"]:
            if time.monotonic() > until:
                raise Failed(f"{found['waiting']:,} tasks are not finished after {SETTLED_S} s")
            time.sleep(0.1)
        expect("finished and kept", found["done"], self.next)

    def latency(self, count, seconds):
        """Microseconds from a submit to the handler's start, and until it is seen completed."""
        found = self.adapter.ask("latency", count=count, seconds=seconds)
        self.next += len(found["start_us"]) + found["warm"]
        return found["start_us"], found["done_us"]

    def memory(self):
        """Of the process while its worker waits for work."""
        pid = self.adapter.ask("idle")["pid"]
        time.sleep(SETTLE_S)
        found = resident_mb(pid)
        self.adapter.ask("rest")
        return found


def expect(what, found, wanted):
    if found != wanted:
        raise Failed(f"{what}: {found:,} instead of {wanted:,}")


def queue_round(system, command, size, results, number):
    """All that is asked of a queue, in one fresh database. A failure ends the round."""
    name, wants, part = system.name, size.wants, "start"
    try:
        with Opened(system, command) as opened:
            results.settings[name] = opened.adapter.settings
            if wants("memory") and number == 1:
                part = "memory"
                results.add("memory", name, opened.memory(), round=number)
            if wants("latency"):
                part = "latency"
                starts, ends = opened.latency(size.latencies, size.latency_s)
                for share in (0.5, 0.99):
                    suffix = f"p{share * 100:.0f}"
                    value = quantile(starts, share) / 1000
                    results.add(f"start-{suffix}", name, value, samples=len(starts))
                    value = quantile(ends, share) / 1000
                    results.add(f"done-{suffix}", name, value, samples=len(ends))
            if wants("submit"):
                for callers in CALLERS:
                    part = f"submit-{callers}"
                    rate = opened.submit(callers, size.submits, size.submit_s)
                    results.add(part, name, rate, round=number)
            if wants("bulk"):
                part = "bulk"
                rate = opened.bulk(size.tasks, size.bulk_s)
                if rate is None:
                    results.lack("bulk", name, "it has no bulk submit")
                else:
                    results.add("bulk", name, rate, round=number)
            if "drain" in system.lacks:
                part = "drain"
                opened.settle()
                results.lack("drain", name, "it pushes work as soon as it has it")
            elif wants("drain"):
                part = "drain"
                if opened.waiting < size.tasks / 2:
                    opened.load(size.tasks, size.bulk_s)
                results.add("drain", name, opened.drain(size.drain_s), round=number)
            else:
                part = "bulk" if wants("bulk") else "submit-32"
                waiting = opened.adapter.ask("counts")["waiting"]
                expect("waiting at the end", waiting, opened.waiting)
    except TROUBLE as why:
        say("failed:", name, part, why)
        for part in names_of(part):
            results.fail(part, name, why)
        return False
    return True


def names_of(part):
    """The figures that a failed part leaves without a value."""
    if part == "latency":
        return ["start-p50", "start-p99", "done-p50", "done-p99"]
    if part == "start":
        return ["memory", *names_of("latency"), "submit-1", "submit-32", "bulk", "drain"]
    return [part]


def backlog(system, command, size, results):
    """Drains beside an empty table, beside finished tasks, and beside tasks that are not due; all
    three are open at once and take turns."""
    name = system.name
    if "drain" in system.lacks:
        return
    kinds = ["empty", "finished", "waiting"]
    if not system.guarantees.keeps:
        kinds.remove("finished")
        results.lack("backlog-finished", name, "it keeps no finished tasks")
    if "delay" in system.lacks:
        kinds.remove("waiting")
        results.lack("backlog-waiting", name, "its tasks cannot be due later")
    opened = {}
    try:
        for kind in kinds:
            finished = size.finished if kind == "finished" else 0
            opened[kind] = Opened(system, command, finished=finished).__enter__()
            # A first drain warms up, and leaves a finished task to copy.
            opened[kind].load(500, size.bulk_s)
            opened[kind].drain(size.drain_s)
        if "finished" in kinds and not opened["finished"].fill(size.finished):
            results.lack("backlog-finished", name, "finished tasks cannot be put there by SQL")
            kinds.remove("finished")
        if "waiting" in kinds:
            opened["waiting"].put_off(size.not_due)
        for _ in range(size.backlog_rounds):
            for kind in kinds:
                opened[kind].load(size.tasks, size.bulk_s)
                rest = size.not_due if kind == "waiting" else 0
                rate = opened[kind].drain(size.drain_s, rest)
                results.add(f"backlog-{kind}", name, rate)
    except TROUBLE as why:
        say("failed:", name, "backlog", why)
        for kind in kinds:
            results.fail(f"backlog-{kind}", name, why)
    finally:
        for each in opened.values():
            each.__exit__()


def snapshot(system, command, size, seconds, results):
    """Drains of two databases in turns, one of them with a reader that holds its snapshot from
    before the first task to the end. A snapshot of one database does not hold back the other's."""
    name, rounds = system.name, []
    try:
        with Opened(system, command) as free, Opened(system, command) as held:
            for each in (free, held):
                each.load(500, size.bulk_s)
                each.drain(size.drain_s)
            with Snapshot(held.database.name) as reader:
                began = time.monotonic()
                while len(rounds) < LAST or time.monotonic() - began < seconds:
                    rates = []
                    for each in (free, held):
                        each.load(size.tasks, size.bulk_s)
                        rates.append(each.drain(size.drain_s))
                    rounds.append(rates)
                    results.tell({"workload": "snapshot", "system": name, "rates": rates})
                if not reader.is_held():
                    raise Failed("the reader lost its snapshot")
    except TROUBLE as why:
        say("failed:", name, "snapshot", why)
        results.fail("snapshot", name, why)
        return
    for without, within in rounds[-LAST:]:
        results.add("snapshot", name, within / without)
    results.settings.setdefault("snapshot_s", {})[name] = seconds
