"""The systems that are measured as queues, and what each of them guarantees."""

import dataclasses

from . import install
from .place import output

ENGINES = {"postgres": "PostgreSQL", "sqlite": "SQLite", "own": "its own store"}


@dataclasses.dataclass(frozen=True)
class Guarantees:
    """What a system does for a task, in words; `keeps` is whether finished tasks stay."""

    keeps: bool
    history: str
    limits: str
    fencing: str


@dataclasses.dataclass(frozen=True)
class System:
    name: str
    engine: str
    guarantees: Guarantees
    # Where its program comes from: npm, pip, crate, or ours.
    source: str
    folder: str = ""
    variant: str = ""
    # What of a load it cannot do.
    lacks: tuple = ()

    @property
    def is_ours(self):
        return self.source == "ours"

    def prepare(self):
        """Installs or builds it; gives the command that runs it."""
        if self.is_ours:
            return [install.ours("beside")]
        if self.source == "crate":
            return [install.rust_peer(self.name)]
        folder = install.install(self.folder)
        if self.source == "pip":
            return [folder / "venv" / "bin" / "python", folder / "bench_queue.py"]
        return [install.node(), folder / "queue.mjs"]

    def versions(self):
        if self.is_ours:
            return install.our_version()
        if self.source == "crate":
            return install.crate_version(self.folder)
        folder = install.install(self.folder)
        if self.source == "pip":
            return install.pip_version(folder, self.folder)
        return install.npm_versions(folder)

    def before(self, database_url):
        """What has to be in the database first."""
        if self.name == "absurd":
            folder = install.install(self.folder)
            output(folder / "venv" / "bin" / "absurdctl", "init", "-d", database_url)


OURS = Guarantees(
    keeps=True,
    history="every transition, with who and when",
    limits="on: global, each venture, each stage",
    fencing="every write of a worker, by its lease",
)
GRAPHILE = Guarantees(
    keeps=False,
    history="none: a finished job is deleted",
    limits="one at a time in a named queue",
    fencing="none: a job locked for four hours is given to another, and the first may still end it",
)
BOSS = Guarantees(
    keeps=True,
    history="last state and output",
    limits="of a queue by policy, of a group; none here",
    fencing="by the number of the attempt (its retry count)",
)
APALIS = Guarantees(
    keeps=True,
    history="last status and result",
    limits="of a worker, in its memory",
    fencing="by the worker's name, not by the attempt",
)

SYSTEMS = [
    System("windlass-postgres", "postgres", OURS, "ours"),
    System("windlass-sqlite", "sqlite", OURS, "ours"),
    System("graphile-worker", "postgres", GRAPHILE, "npm", "graphile-worker"),
    System(
        "graphile-worker-batching", "postgres", GRAPHILE, "npm", "graphile-worker", "batching"
    ),
    System("pg-boss", "postgres", BOSS, "npm", "pg-boss"),
    System("pg-boss-notify", "postgres", BOSS, "npm", "pg-boss", "notify"),
    System(
        "absurd",
        "postgres",
        Guarantees(
            keeps=True,
            history="runs of a task, no transitions",
            limits="of a worker, in its memory",
            fencing="refused once the run is failed",
        ),
        "npm",
        "absurd",
        lacks=("delay",),
    ),
    System(
        "dbos",
        "postgres",
        Guarantees(
            keeps=True,
            history="last status",
            limits="of a queue, in the database",
            fencing="the first result stays",
        ),
        "npm",
        "dbos",
    ),
    System(
        "procrastinate",
        "postgres",
        Guarantees(
            keeps=True,
            history="an event a transition, without who",
            limits="locks: one at a time of a name",
            fencing="none: a job is ended by its id",
        ),
        "pip",
        "procrastinate",
    ),
    System("apalis-postgres", "postgres", APALIS, "crate", "apalis-postgres"),
    System("graphile-worker-rs", "postgres", GRAPHILE, "crate", "graphile_worker"),
    System(
        "awa",
        "postgres",
        Guarantees(
            keeps=True,
            history="last state, until its segment is pruned",
            limits="rate and weight of a queue in a worker's memory; none here",
            fencing="by the attempt's lease number",
        ),
        "crate",
        "awa",
    ),
    System("apalis-sqlite", "sqlite", APALIS, "crate", "apalis-sqlite"),
    System(
        "openworkflow",
        "sqlite",
        Guarantees(
            keeps=True,
            history="last status, steps",
            limits="of a worker, in its memory",
            fencing="by the worker's id",
        ),
        "npm",
        "openworkflow",
        lacks=("bulk", "delay"),
    ),
    System(
        "restate",
        "own",
        Guarantees(
            keeps=True,
            history="a journal of steps, for one day",
            limits="of the server, in its memory",
            fencing="refused by the server",
        ),
        "npm",
        "restate",
        lacks=("bulk", "drain", "delay"),
    ),
]
BY_NAME = {system.name: system for system in SYSTEMS}


def ours_on(engine):
    """Ours on the same database; whatever brings its own is compared with ours on SQLite."""
    return "windlass-postgres" if engine == "postgres" else "windlass-sqlite"
