"""What the command line says, and the sizes of the loads."""

import argparse
import dataclasses
import pathlib

from . import steps
from .place import ROOT, TARGET
from .systems import SYSTEMS

PARTS = {
    "reference": "pgbench with one INSERT a transaction, fdatasync",
    "memory": "idle workers, windlass serve",
    "latency": "idle: submit to handler start, and to visible completion",
    "submit": "one by one, 1 and 32 callers",
    "bulk": "batches of 1,000",
    "drain": "everything that was submitted",
    "steps": "durable workflows of 10 steps",
    "backlog": "drain beside finished tasks, and beside tasks that are not due",
    "snapshot": "drain while a reader holds its snapshot",
}
QUEUE_PARTS = {"memory", "latency", "submit", "bulk", "drain"}


@dataclasses.dataclass
class Size:
    """How much of everything. A load ends at its count or at its seconds, whichever comes first."""

    name: str
    rounds: int
    latencies: int
    latency_s: float
    submits: int
    submit_s: float
    tasks: int
    bulk_s: float
    drain_s: float
    finished: int
    not_due: int
    backlog_rounds: int
    snapshot_s: float
    # Of peers, in the full run.
    peer_snapshot_s: float
    reference_s: float
    idle_s: float
    workflows: int
    steps_rounds: int
    # No round is begun that would end after this, by what the one before took.
    budget_s: float
    # How long to wait, before the first run, until the machine is quiet.
    patience_s: float
    steps: int = 10
    in_flight: int = 64
    only: frozenset = frozenset()

    def wants(self, part):
        return not self.only or part in self.only

    def wants_queue(self):
        return any(self.wants(part) for part in QUEUE_PARTS)


FULL = Size(
    name="full",
    rounds=5,
    latencies=1_000,
    latency_s=5,
    submits=20_000,
    submit_s=3,
    tasks=50_000,
    bulk_s=6,
    drain_s=6,
    finished=1_000_000,
    not_due=100_000,
    backlog_rounds=5,
    snapshot_s=300,
    peer_snapshot_s=40,
    reference_s=4,
    idle_s=5,
    workflows=1_000,
    steps_rounds=3,
    budget_s=3_500,
    patience_s=180,
)
QUICK = Size(
    name="quick",
    rounds=3,
    latencies=100,
    latency_s=0.6,
    submits=10_000,
    submit_s=0.4,
    tasks=10_000,
    bulk_s=0.6,
    drain_s=1.2,
    finished=100_000,
    not_due=20_000,
    backlog_rounds=3,
    snapshot_s=15,
    peer_snapshot_s=0,
    reference_s=1,
    idle_s=2,
    workflows=200,
    steps_rounds=2,
    budget_s=290,
    patience_s=120,
)
TINY = Size(
    name="tiny",
    rounds=1,
    latencies=10,
    latency_s=0.3,
    submits=100,
    submit_s=0.2,
    tasks=500,
    bulk_s=0.3,
    drain_s=3,
    finished=1_000,
    not_due=200,
    backlog_rounds=1,
    snapshot_s=1,
    peer_snapshot_s=0,
    reference_s=1,
    idle_s=1,
    workflows=20,
    steps_rounds=1,
    budget_s=600,
    patience_s=0,
)


def names():
    found = [system.name for system in SYSTEMS]
    return found + [name for name, _ in steps.VARIANTS if name not in found]


def parser():
    parts = "\n".join(f"  {name:10} {what}" for name, what in PARTS.items())
    systems = "\n".join(f"  {name}" for name in dict.fromkeys(names()))
    found = argparse.ArgumentParser(
        prog="bench/run",
        description="Windlass beside what a user would pick instead, on one machine, in turns.",
        epilog=f"parts:\n{parts}\n\nsystems:\n{systems}\n\nbench/README.md explains everything.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = found.add_argument
    add("--quick", action="store_true", help="5 minutes instead of an hour")
    add("--tiny", action="store_true", help="does everything work? its figures mean nothing")
    add("--only", action="append", choices=PARTS, metavar="PART", help="may be repeated")
    add("--peer", action="append", choices=sorted(set(names())), metavar="SYSTEM",
        help="measure it and ours; may be repeated")
    add("--rounds", type=positive, help="how often all are measured")
    add("--json", type=pathlib.Path, help="where every single figure goes, a JSON line each")
    add("--out", type=pathlib.Path,
        help="where RESULTS.md and charts/ go (bench/ if everything is measured)")
    return found


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return value


def read(words=None):
    """The arguments, with their size."""
    given = parser().parse_args(words)
    size = TINY if given.tiny else QUICK if given.quick else FULL
    size = dataclasses.replace(size, only=frozenset(given.only or ()))
    if given.rounds:
        both = {"rounds": given.rounds, "steps_rounds": given.rounds}
        size = dataclasses.replace(size, backlog_rounds=given.rounds, **both)
    given.size = size
    given.is_complete = not (given.only or given.peer or given.tiny)
    given.out = given.out or (ROOT / "bench" if given.is_complete else TARGET / "bench-results")
    given.json = (given.json or given.out / "runs.jsonl") if not given.is_complete else (
        given.json or TARGET / "bench-results" / "runs.jsonl"
    )
    return given


def chosen(given):
    """The systems to measure as queues, and the variants of steps: ours are always there."""
    def is_wanted(name):
        return not given.peer or name in given.peer or name.startswith("windlass-")

    variants = steps.VARIANTS if given.size.name == "full" else steps.QUICK
    queues = [system for system in SYSTEMS if is_wanted(system.name)]
    return queues, [variant for variant in variants if is_wanted(variant[0])]
