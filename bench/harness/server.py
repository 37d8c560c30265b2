"""The memory of our own programs when nothing happens: `windlass serve` and `windlass worker`."""

import pathlib
import random
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

from . import install
from .place import Database, Failed, say
from .process import end, resident_mb, start

READY_S = 60


def free_port():
    """Below those that the system gives to outgoing connections: one of them could take it first."""
    for _ in range(100):
        port = random.randrange(20_000, 30_000)
        with socket.socket() as found:
            try:
                found.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise Failed("no port is free from 20,000 to 29,999")


def wait_until_ready(url, server):
    until = time.monotonic() + READY_S
    while time.monotonic() < until:
        if server.poll() is not None:
            raise Failed(f"the server ended with {server.returncode}")
        try:
            with urllib.request.urlopen(url + "/readyz", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.05)
    raise Failed("the server did not get ready")


def memory(size, results):
    """Of a server on each database, and of a worker of the first of them."""
    try:
        program = install.ours("windlass")
        with tempfile.TemporaryDirectory(prefix="windlass-bench-") as folder:
            measure(program, pathlib.Path(folder), size, results)
    except (Failed, OSError) as why:
        say("failed: windlass serve", why)
        results.fail("memory", "windlass serve", why)


def measure(program, folder, size, results):
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with Database() as database:
        for engine, url in (("PostgreSQL", database.url), ("SQLite", f"sqlite:{folder}/w.db")):
            address = f"127.0.0.1:{free_port()}"
            serve = [program, "serve", "--database", url, "--listen", address]
            running = [start(serve, {"WINDLASS_LOG": "warn"}, folder, **quiet)]
            try:
                wait_until_ready(f"http://{address}", running[0])
                worker = [program, "worker", "--server", f"http://{address}"]
                worker += ["--queue", "bench", "--", "cat"]
                running.append(start(worker, {"WINDLASS_LOG": "warn"}, folder, **quiet))
                time.sleep(size.idle_s)
                for each in running:
                    if each.poll() is not None:
                        raise Failed(f"{each.args[1]} ended with {each.returncode}")
                server, worker = running
                results.add("memory", f"windlass serve ({engine})", resident_mb(server.pid))
                if engine == "PostgreSQL":
                    results.add("memory", "windlass worker", resident_mb(worker.pid))
            finally:
                for each in reversed(running):
                    end(each)
