"""Durable steps: which systems, at which settings, and one run of one of them.

Each system is a program that finds its work in BENCH_* variables and prints one JSON line
`{"system": ..., "steps_per_s": ...}`.
"""

import json
import pathlib
import re
import tempfile

from . import install
from .place import Database, Failed, find, output, psql
from .process import run_group

PER_RUN_S = 180

# Every setting worth a try; the table shows all of them and marks each system's best. The number in
# flight is 64 but for restate, which gets the others too because more callers make it faster.
VARIANTS = [
    ("postgres-insert", {}),
    ("windlass-postgres", {}),
    ("windlass-sqlite", {}),
    ("absurd", {"processes": 1, "connections": 16}),
    ("absurd", {"processes": 2, "connections": 32}),
    ("dbos", {"processes": 1, "connections": 20}),
    ("dbos", {"processes": 2, "connections": 32}),
    ("openworkflow", {}),
    ("restate", {"in_flight": 32}),
    ("restate", {"in_flight": 64}),
    ("restate", {"in_flight": 128}),
    ("restate", {"in_flight": 200}),
    ("restate", {"in_flight": 200, "partitions": 4}),
    ("restate", {"in_flight": 200, "partitions": 4, "processes": 2}),
]
# Those that were best wherever all of them were measured: enough for a quick look.
QUICK = [
    ("postgres-insert", {}),
    ("windlass-postgres", {}),
    ("windlass-sqlite", {}),
    ("absurd", {"processes": 2, "connections": 32}),
    ("dbos", {"processes": 2, "connections": 32}),
    ("openworkflow", {}),
    ("restate", {"in_flight": 200}),
    ("restate", {"in_flight": 200, "partitions": 4, "processes": 2}),
]
ON_POSTGRES = ["absurd", "dbos"]


class Peer:
    """A published package with our program for it."""

    def __init__(self, name):
        self.name = name

    def prepare(self):
        self.folder = install.install(self.name)
        self.node = install.node()

    def versions(self):
        return install.npm_versions(self.folder)

    def command(self, environment):
        absurdctl = self.folder / "venv" / "bin" / "absurdctl"
        if absurdctl.exists():
            output(absurdctl, "init", "-d", environment["BENCH_DATABASE"])
        return [self.node, self.folder / "steps.mjs"]


class Windlass:
    """Ours: `store-bench --only steps`, which reads the same variables and prints the same line."""

    def __init__(self, name):
        self.engine = name.removeprefix("windlass-")

    def prepare(self):
        self.binary = install.ours("store-bench")

    def versions(self):
        return install.our_version()

    def command(self, environment):
        folder = environment["BENCH_FOLDER"]
        return [self.binary, "--only", "steps", "--engine", self.engine, "--folder", folder]


class Insert:
    """The physical reference: one INSERT and one commit for every step, by pgbench."""

    def prepare(self):
        find("pgbench")

    def versions(self):
        return output("pgbench", "--version").strip()

    def command(self, environment):
        database, clients = environment["BENCH_DATABASE"], int(environment["BENCH_IN_FLIGHT"])
        steps = int(environment["BENCH_WORKFLOWS"]) * int(environment["BENCH_STEPS"])
        table = "CREATE TABLE step (id bigserial PRIMARY KEY, result jsonb)"
        psql(database.rsplit("/", 1)[1], table)
        script = pathlib.Path(environment["BENCH_FOLDER"]) / "insert.sql"
        script.write_text("""INSERT INTO step (result) VALUES ('{"note": "a small value"}');\n""")
        each = max(1, steps // clients)
        pgbench = ["pgbench", "-n", "-M", "prepared", "-f", script, "-j", "2"]
        return [*pgbench, "-c", str(clients), "-t", str(each), database]


def system_of(name):
    if name == "postgres-insert":
        return Insert()
    return Windlass(name) if name.startswith("windlass-") else Peer(name)


def run_once(name, system, settings, size):
    """One run in a fresh database and folder; its JSON line as a dictionary."""
    with Database() as database, tempfile.TemporaryDirectory(prefix="windlass-steps-") as folder:
        environment = {
            "BENCH_DATABASE": database.url,
            "BENCH_FOLDER": folder,
            "BENCH_WORKFLOWS": str(size.workflows),
            "BENCH_STEPS": str(size.steps),
            "BENCH_IN_FLIGHT": str(size.in_flight),
        }
        environment |= {f"BENCH_{key.upper()}": str(value) for key, value in settings.items()}
        command = system.command(environment)
        printed, status = run_group(command, environment, folder, PER_RUN_S)
    found = result_of(name, printed)
    if status or not found:
        raise Failed(f"{name} ended with {status} and {'a' if found else 'no'} result")
    return found


def result_of(name, printed):
    """The last result in what a program printed, or None."""
    found = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    if rate := re.search(r"^tps = ([\d.]+)", printed, re.MULTILINE):
        found.append({"system": name, "steps_per_s": float(rate[1])})
    found = [line for line in found if line.get("system") == name]
    return found[-1] if found else None


def describe(settings, in_flight):
    named = {"in_flight": in_flight} | settings
    return ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in named.items())
