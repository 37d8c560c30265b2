"""What was measured: rounds of figures by workload and system, failures, settings, facts."""

import json
import subprocess

from .stats import Figures


def words(why):
    """Why something failed, without the paths of this machine."""
    if isinstance(why, subprocess.TimeoutExpired):
        return f"it did not end within {why.timeout:g} s"
    if isinstance(why, subprocess.CalledProcessError):
        return f"it ended with {why.returncode}"
    return str(why)


class Results:
    def __init__(self, lines=None):
        self.rounds = {}
        self.failures = {}
        self.absent = {}
        self.settings = {}
        self.notes = []
        self.lines = lines

    def add(self, workload, system, value, **more):
        self.rounds.setdefault(workload, {}).setdefault(system, []).append(value)
        self.tell({"workload": workload, "system": system, "value": value} | more)

    def fail(self, workload, system, why):
        self.failures.setdefault(workload, {})[system] = words(why)
        self.tell({"workload": workload, "system": system, "failed": words(why)})

    def lack(self, workload, system, why):
        self.absent.setdefault(workload, {})[system] = why

    def tell(self, line):
        if self.lines:
            print(json.dumps(line), file=self.lines, flush=True)

    def figures(self, workload):
        """Of every system that has a figure. One failed run is no figure at all: nobody knows
        which of the others to believe."""
        failed = self.failures.get(workload, {})
        rounds = self.rounds.get(workload, {})
        return {name: Figures(found) for name, found in rounds.items() if name not in failed}

    def median(self, workload, system):
        found = self.figures(workload).get(system)
        return found.median if found else None
