"""The machine and the versions: what a reader needs to judge the figures."""

import os
import pathlib
import platform
import tempfile

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
    if load > cores * 0.75:
        found.append("**The machine was busy: these figures only show that everything works.**")
    return found
