"""What ours has to reach, as data: each goal says from the results what was found and whether it
is enough. A goal whose figures are missing is neither reached nor missed."""

from __future__ import annotations

import dataclasses

from .stats import ratio
from .systems import BY_NAME, SYSTEMS, ours_on

PEERS_PG = [each.name for each in SYSTEMS if each.engine == "postgres" and not each.is_ours]
KEEPERS = [name for name in PEERS_PG if BY_NAME[name].guarantees.keeps]
PEERS_SQLITE = [each.name for each in SYSTEMS if each.engine == "sqlite" and not each.is_ours]
PEERS = [each.name for each in SYSTEMS if not each.is_ours]
PG, SQLITE = ours_on("postgres"), ours_on("sqlite")
STEPS_PG = ["absurd", "dbos"]


@dataclasses.dataclass
class Verdict:
    what: str
    goal: str
    # The figure in words; None if it was not measured.
    found: str | None
    is_reached: bool | None

    @property
    def word(self):
        if self.is_reached is None:
            return "not measured"
        return "reached" if self.is_reached else "**not reached**"


def fastest(results, workload, names):
    """The best of these, by name and median: the highest rate."""
    found = {name: results.median(workload, name) for name in names}
    found = {name: median for name, median in found.items() if median is not None}
    return max(found.items(), key=lambda item: item[1], default=None)


def lowest(results, workload, names):
    found = {name: results.median(workload, name) for name in names}
    found = {name: median for name, median in found.items() if median is not None}
    return min(found.items(), key=lambda item: item[1], default=None)


def at_least(results, what, workload, ours, names, times):
    """Ours beside the fastest of these."""
    mine, other = results.median(workload, ours), fastest(results, workload, names)
    goal = f"at least {times:g}x" if times != 1 else "at least level"
    if mine is None or other is None:
        return Verdict(what, goal, None, None)
    found = ratio(mine, other[1])
    return Verdict(what, goal, f"{found:.2f}x {other[0]}", found >= times)


def at_most(results, what, workload, ours, names, share):
    """Ours beside the lowest of these."""
    mine, other = results.median(workload, ours), lowest(results, workload, names)
    goal = f"at most {share:g}x" if share != 1 else "the lowest of all"
    if mine is None or other is None:
        return Verdict(what, goal, None, None)
    found = ratio(mine, other[1])
    return Verdict(what, goal, f"{found:.2f}x {other[0]}", found <= share)


def above(results, what, mine, other, times=1.0):
    """One figure beside another that is no system's."""
    if mine is None or other is None:
        return Verdict(what, "above it", None, None)
    found = ratio(mine, other)
    return Verdict(what, "above it", f"{found:.2f}x", found > times)


def bounded(what, found, most, unit, more=""):
    goal = f"at most {most:g}{unit}"
    if found is None:
        return Verdict(what, goal, None, None)
    return Verdict(what, goal, f"{found:.{2 if unit == 'x' else 1}f}{unit}{more}", found <= most)


def verdicts(results, size):
    """All goals, in the order of the workloads."""
    median = results.median
    floor = median("reference", "insert-32")
    found = [
        at_least(results, "drain, the fastest PostgreSQL peer", "drain", PG, PEERS_PG, 1.5),
        at_least(results, "drain, peers that keep finished tasks", "drain", PG, KEEPERS, 2),
        at_least(results, "bulk submit, PostgreSQL", "bulk", PG, PEERS_PG, 1.5),
        at_least(results, "one by one, 32 callers, PostgreSQL", "submit-32", PG, PEERS_PG, 5),
        above(results, "one by one, 32 callers, raw pgbench", median("submit-32", PG), floor),
        at_least(results, "one by one, 1 caller, PostgreSQL", "submit-1", PG, PEERS_PG, 1),
        at_most(results, "idle submit to start, p50, PostgreSQL", "start-p50", PG, PEERS_PG, 0.5),
        at_most(results, "idle submit to start, p99, PostgreSQL", "start-p99", PG, PEERS, 1),
        at_least(results, "durable steps, PostgreSQL", "steps", PG, STEPS_PG, 8),
        at_least(results, "durable steps, ours on PostgreSQL", "steps", PG, ["restate"], 3),
        at_least(results, "durable steps, ours on SQLite", "steps", SQLITE, ["restate"], 3),
        at_least(results, "drain, SQLite", "drain", SQLITE, PEERS_SQLITE, 20),
        at_least(results, "one by one, 32 callers, SQLite", "submit-32", SQLITE, PEERS_SQLITE, 5),
    ]
    for ours in (PG, SQLITE):
        for kind, count in (("finished", size.finished), ("waiting", size.not_due)):
            empty, full = median("backlog-empty", ours), median(f"backlog-{kind}", ours)
            slower = ratio(empty, full) if empty and full else None
            what = f"{ours}: drain beside {kind} tasks, time beside an empty table's"
            found.append(bounded(what, slower, 1.15, "x", f" beside {count:,}"))
    held = median("snapshot", PG)
    goal = "at least 70 %"
    words = None if held is None else f"{held * 100:.0f} % after {size.snapshot_s:g} s"
    what = "drain under a held snapshot, of the undisturbed"
    found.append(Verdict(what, goal, words, None if held is None else held >= 0.7))
    for name, most in (
        ("windlass worker", 15),
        ("windlass serve (PostgreSQL)", 40),
        ("windlass serve (SQLite)", 40),
    ):
        found.append(bounded(f"idle memory of {name}", median("memory", name), most, " MB"))
    return found
