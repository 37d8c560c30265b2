"""Physical references, measured between the systems: what the disk and PostgreSQL do at best."""

import os
import pathlib
import re
import tempfile
import time

from .place import Database, Failed, output, psql

INSERT = "INSERT INTO reference (payload) VALUES ('{\"n\": 1, \"text\": \"%s\"}');\n" % ("x" * 176)
PAGE = b"\x07" * 8192


def pgbench(clients, seconds):
    """INSERTs a second, each committed by itself."""
    with Database() as database, tempfile.TemporaryDirectory(prefix="windlass-bench-") as folder:
        table = "CREATE TABLE reference (id bigserial PRIMARY KEY, payload jsonb NOT NULL)"
        psql(database.name, table)
        script = pathlib.Path(folder) / "insert.sql"
        script.write_text(INSERT)
        words = ["pgbench", "-n", "-M", "prepared", "-f", str(script), "-j", "2"]
        words += ["-c", str(clients), "-T", str(max(1, round(seconds))), database.url]
        printed = output(*words, timeout=seconds + 60)
        return rate_of(printed)


def rate_of(printed):
    """The figure in what pgbench printed."""
    if re.search(r"failed transactions: [1-9]", printed):
        raise Failed("pgbench had failed transactions")
    found = re.search(r"^tps = ([\d.]+)", printed, re.MULTILINE)
    if not found:
        raise Failed("pgbench printed no rate")
    return float(found[1])


def fdatasync(seconds):
    """Writes of a page a second, each synced, inside a file that has its size already, as a
    write-ahead log has."""
    with tempfile.TemporaryFile(prefix="windlass-bench-") as file:
        pages = 2000
        file.write(PAGE * pages)
        file.flush()
        os.fsync(file.fileno())
        done = 0
        began = time.monotonic()
        while time.monotonic() - began < seconds:
            os.pwrite(file.fileno(), PAGE, done % pages * len(PAGE))
            os.fdatasync(file.fileno())
            done += 1
        return done / (time.monotonic() - began)


def measure(size, results):
    """One round of all references."""
    results.add("reference", "insert-1", pgbench(1, size.reference_s))
    results.add("reference", "insert-32", pgbench(32, size.reference_s))
    results.add("reference", "fdatasync", fdatasync(min(1.0, size.reference_s)))
