"""The run: who is measured when, and what happens when somebody fails."""

import dataclasses
import signal
import subprocess
import sys
import time

from . import arguments, facts, reference, report, server, steps, workloads
from .place import Failed, Missing, say, with_postgres
from .results import Results
from .systems import BY_NAME, ours_on

# In the full run these drain beside full tables as well: the faster ones. Others can be asked for.
BACKLOG_PEERS = ["graphile-worker-batching", "pg-boss", "apalis-postgres", "awa"]
# And these under a held snapshot: the fastest that deletes, and one that says it is made for it.
SNAPSHOT_PEERS = ["graphile-worker-batching", "awa"]


class Run:
    def __init__(self, given, results):
        self.size, self.results, self.given = given.size, results, given
        self.queues, self.variants = arguments.chosen(given)
        self.commands, self.programs, self.versions = {}, {}, {}
        self.began = None

    def prepare(self):
        """Installs and builds everything before anything is measured."""
        size = self.size
        queues = size.wants_queue() or size.wants("backlog") or size.wants("snapshot")
        for system in self.queues if queues else []:
            try:
                self.commands[system.name] = system.prepare()
                self.versions[system.name] = system.versions()
            except (Missing, OSError, subprocess.SubprocessError) as why:
                self.leave_out(system.name, workloads.names_of("start"), why)
        if not size.wants("steps"):
            return
        for name in dict.fromkeys(name for name, _ in self.variants):
            program = steps.system_of(name)
            try:
                program.prepare()
                self.programs[name] = program
                self.versions.setdefault(name, program.versions())
            except (Missing, OSError, subprocess.SubprocessError) as why:
                self.leave_out(name, ["steps"], why)

    def leave_out(self, name, parts, why):
        """A system that cannot be had is a failure, too."""
        say("cannot be measured:", name, why)
        for part in parts:
            self.results.fail(part, name, f"could not be installed: {why}")

    def spent(self):
        return time.monotonic() - self.began

    def all(self):
        """Every kind of load once, then again in turns until each has its rounds."""
        self.began = time.monotonic()
        size, last_s = self.size, 0.0
        for number in range(1, max(size.rounds, size.steps_rounds) + 1):
            if self.spent() + last_s > size.budget_s:
                note = f"the time was up: rounds from number {number} on were left out"
                self.results.notes.append(note)
                break
            round_began = self.spent()
            if size.wants("reference") and number <= size.rounds:
                reference.measure(size, self.results)
            if size.wants_queue() and number <= size.rounds:
                self.queue_round(number)
            if size.wants("steps") and number <= size.steps_rounds:
                self.steps_round(number)
            last_s = self.spent() - round_began
            if number == 1:
                self.once()

    def queue_round(self, number):
        # Every second round goes the other way, so that nobody is always after the same neighbour.
        systems = self.queues if number % 2 else list(reversed(self.queues))
        for system in systems:
            if system.name not in self.commands:
                continue
            say(f"round {number}: {system.name}")
            command = self.commands[system.name]
            if not workloads.queue_round(system, command, self.size, self.results, number):
                # It would only fail again.
                del self.commands[system.name]

    def steps_round(self, number):
        for name, settings in self.variants:
            if name not in self.programs:
                continue
            words = steps.describe(settings, self.size.in_flight)
            say(f"round {number}: steps of {name}, {words}")
            try:
                found = steps.run_once(name, self.programs[name], settings, self.size)
            except (Failed, OSError, subprocess.SubprocessError) as why:
                say("failed:", name, why)
                self.results.fail(f"steps: {words}", name, why)
                continue
            self.results.add(f"steps: {words}", name, found["steps_per_s"], round=number)

    def best_steps(self):
        """Each system counts with the best of its settings."""
        best, kept = {}, self.results
        for workload in [name for name in kept.rounds if name.startswith("steps: ")]:
            for name, found in kept.figures(workload).items():
                if name not in best or found.median > best[name][0]:
                    best[name] = (found.median, found.values, workload.removeprefix("steps: "))
        for name, (_, values, words) in best.items():
            kept.rounds.setdefault("steps", {})[name] = values
            kept.settings.setdefault("steps", {})[name] = words
        for workload, failed in list(kept.failures.items()):
            for name, why in failed.items():
                if not workload.startswith("steps: "):
                    continue
                kept.notes.append(f"**{name} failed, {workload}: {why}**")
                if name not in best:
                    kept.failures.setdefault("steps", {})[name] = why

    def once(self):
        """The loads that have rounds of their own."""
        size = self.size
        if size.wants("memory"):
            say("memory of windlass serve and windlass worker")
            server.memory(size, self.results)
        asked = set(self.given.peer or ())
        for system in self.queues:
            if system.name not in self.commands:
                continue
            rounds = size.backlog_rounds if system.is_ours else min(2, size.backlog_rounds)
            wanted = size.name == "full" and system.name in BACKLOG_PEERS
            if size.wants("backlog") and (wanted or system.is_ours or system.name in asked):
                say(f"full tables: {system.name}")
                of_peer = dataclasses.replace(size, backlog_rounds=rounds)
                workloads.backlog(system, self.commands[system.name], of_peer, self.results)
        for name in dict.fromkeys([ours_on("postgres"), *SNAPSHOT_PEERS, *sorted(asked)]):
            system = BY_NAME.get(name)
            if name not in self.commands or system.engine != "postgres":
                continue
            seconds = size.snapshot_s if system.is_ours else size.peer_snapshot_s
            seconds = seconds or (size.snapshot_s if name in asked else 0)
            if size.wants("snapshot") and seconds:
                say(f"held snapshot, {seconds:g} s: {name}")
                command = self.commands[name]
                workloads.snapshot(system, command, size, seconds, self.results)


def main(program):
    given = arguments.read()
    with_postgres(program)
    # Asked to stop, we unwind like after an error, and leave no server behind.
    for asked in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(asked, lambda number, _: sys.exit(128 + number))
    given.json.parent.mkdir(parents=True, exist_ok=True)
    with open(given.json, "w", encoding="utf-8") as lines:
        results = Results(lines)
        run = Run(given, results)
        run.prepare()
        told = facts.lines(facts.quiet_load(given.size.patience_s, say))
        run.all()
        run.best_steps()
    took_s = time.monotonic() - run.began
    text = report.write(results, given.size, told, run.versions, given.out, took_s)
    print(text)
    say(f"took {took_s:.0f} s; wrote {given.out / 'RESULTS.md'}; every figure: {given.json}")
    failed = {name for failures in results.failures.values() for name in failures}
    if failed:
        say("failed:", ", ".join(sorted(failed)))
    return 1 if failed else 0
