"""Programs under measurement: whatever they start is gone afterwards, even if they hung."""

import contextlib
import json
import os
import queue
import signal
import subprocess
import threading

from .place import Failed

# How long a program may take to be ready, with its schema.
OPEN_S = 120


def start(command, environment, folder, **options):
    return subprocess.Popen(
        [str(word) for word in command],
        cwd=folder,
        env=os.environ | {"NODE_NO_WARNINGS": "1"} | environment,
        text=True,
        start_new_session=True,
        **options,
    )


def end(running):
    """Ends a program with its whole group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGKILL)
    running.wait()


def run_group(command, environment, folder, seconds):
    """Runs a command to its end; what it printed, and its status."""
    running = start(command, environment, folder, stdout=subprocess.PIPE)
    try:
        printed, _ = running.communicate(timeout=seconds)
        return printed, running.returncode
    finally:
        end(running)


class Adapter:
    """A system that answers commands, one JSON line each."""

    def __init__(self, name, command, environment, folder):
        self.name, self.command = name, command
        self.environment, self.folder = environment, folder
        self.has_failed = False

    def __enter__(self):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.running = start(self.command, self.environment, self.folder, **pipes)
        self.lines = queue.Queue()
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()
        try:
            self.settings = self.answer(OPEN_S)["settings"]
        except BaseException:
            end(self.running)
            raise
        return self

    def read(self):
        for line in self.running.stdout:
            # Libraries print, too.
            if line.startswith("{"):
                self.lines.put(line)
        self.lines.put(None)

    def answer(self, seconds):
        why = None
        try:
            line = self.lines.get(timeout=seconds)
            found = json.loads(line) if line else {}
            why = found.get("error") if line else f"it ended with {self.running.wait()}"
        except queue.Empty:
            why = f"no answer for {seconds:.0f} s"
        if why:
            self.has_failed = True
            raise Failed(why)
        return found

    def ask(self, do, give_up_s=180, **fields):
        """One command, whose answer is given up after a while."""
        try:
            self.running.stdin.write(json.dumps({"do": do} | fields) + "\n")
            self.running.stdin.flush()
        except BrokenPipeError:
            pass
        return self.answer(give_up_s)

    def __exit__(self, *_):
        # One that failed has nothing to say goodbye to.
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            self.running.stdin.write('{"do": "close"}\n')
            self.running.stdin.close()
            self.running.wait(timeout=0.1 if self.has_failed else 10)
        end(self.running)
        self.reader.join()
        self.running.stdout.close()


def resident_mb(pid):
    """The resident memory of a process."""
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        for line in status:
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
    raise Failed(f"no memory of process {pid}")
