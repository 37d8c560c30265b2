"""The machine and the versions: what a reader needs to judge the figures."""

import os
import pathlib
import platform
import tempfile
import time

from .place import output, psql

SETTINGS = [
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "shared_buffers",
    "max_wal_size",
    "wal_sync_method",
    "autovacuum",
]

# Load average for each core: below the first nobody else is at work, above the second somebody is.
QUIET, BUSY = 0.25, 0.75


def processor():
    try:
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.machine()


def memory_gib():
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30


def file_system():
    """Where the databases are: a disk in memory would sync nothing."""
    try:
        return output("stat", "-f", "-c", "%T", tempfile.gettempdir()).strip()
    except OSError:
        return "unknown"


def server():
    version = psql("postgres", "SHOW server_version").strip()
    found = {name: psql("postgres", f"SHOW {name}").strip() for name in SETTINGS}
    wrong = [name for name in SETTINGS[:3] if found[name] != "on"]
    return version, found, wrong


def quiet_load(patience_s, say):
    """The load average once it is that of a quiet machine, or what it is when patience ends: what
    was built a moment ago is not what is measured."""
    until = time.monotonic() + patience_s
    while (load := os.getloadavg()[0]) > os.cpu_count() * QUIET and time.monotonic() < until:
        say(f"waiting for a quiet machine: the load average is {load:.2f}")
        time.sleep(10)
    return load


def lines(load):
    """The facts as a list, the load before the first run among them."""
    version, settings, wrong = server()
    words = ", ".join(f"{name} = {value}" for name, value in settings.items())
    cores, kind = os.cpu_count(), file_system()
    found = [
        f"machine: {processor()}, {cores} cores, {memory_gib():.0f} GiB, {platform.system()}"
        f" {platform.release()}; temporary files on {kind}",
        f"PostgreSQL {version}: {words}",
        "SQLite: every commit synced (`synchronous = FULL`, WAL), in every system",
        f"load average before the first run: {load:.2f}",
    ]
    if wrong:
        found.append(f"**{', '.join(wrong)} is off: these figures are worth nothing.**")
    if kind in ("tmpfs", "ramfs"):
        found.append("**The databases are in memory: nothing is ever synced.**")
    if load > cores * BUSY:
        found.append("**The machine was busy: these figures only show that everything works.**")
    return found
