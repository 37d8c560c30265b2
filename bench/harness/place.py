"""Where everything is: the repository, what is built, the cache outside of it, the server."""

import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PEERS = ROOT / "bench" / "peers"
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
CACHE = CACHE / "windlass-bench"


class Missing(Exception):
    """A system that cannot be measured here, and why."""


class Failed(Exception):
    """A run that gives no figure, and why."""


def say(*words):
    print("bench:", *words, file=sys.stderr, flush=True)


def output(*command, **options):
    return subprocess.run(command, check=True, capture_output=True, text=True, **options).stdout


def with_postgres(program):
    """Runs the program again with a private server behind it, unless there is one."""
    if "WINDLASS_TEST_POSTGRES" in os.environ:
        return
    conf = (ROOT / "bench" / "postgresql.conf").read_text()
    os.environ.setdefault("WINDLASS_PG_SETTINGS", conf)
    again = [str(ROOT / "scripts" / "with-postgres"), sys.executable, program, *sys.argv[1:]]
    os.execv(again[0], again)


def admin():
    """The superuser's URL of the private server."""
    return os.environ["WINDLASS_TEST_POSTGRES"]


def url_of(database):
    return admin().rsplit("/", 1)[0] + "/" + database


def psql(database, *statements):
    """Runs statements; what the last one found, as lines without decoration."""
    words = ["psql", "-qXAt", "-v", "ON_ERROR_STOP=1", url_of(database)]
    for statement in statements:
        words += ["-c", statement]
    return output(*words)


class Database:
    """A fresh database that is gone afterwards, begun after a checkpoint."""

    number = 0

    def __enter__(self):
        Database.number += 1
        self.name = f"bench_{os.getpid()}_{Database.number}"
        psql("postgres", f"CREATE DATABASE {self.name}", "CHECKPOINT")
        self.url = url_of(self.name)
        return self

    def __exit__(self, *_):
        psql("postgres", f"DROP DATABASE {self.name} WITH (FORCE)")


class Snapshot:
    """Somebody who reads in one transaction for as long as this is entered."""

    def __init__(self, database):
        self.database = database

    def __enter__(self):
        words = ["psql", "-qXAt", url_of(self.database)]
        self.reader = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.ask("BEGIN ISOLATION LEVEL REPEATABLE READ;")
        assert self.ask("SELECT 'held';") == "held"
        return self

    def ask(self, statement):
        self.reader.stdin.write(statement + "\n")
        self.reader.stdin.flush()
        return self.reader.stdout.readline().strip() if statement.startswith("SELECT") else ""

    def is_held(self):
        return self.ask("SELECT 'still held';") == "still held"

    def __exit__(self, *_):
        self.reader.stdin.close()
        self.reader.wait(timeout=30)


def find(program):
    found = shutil.which(program)
    if not found:
        raise Missing(f"{program} is not installed")
    return found
