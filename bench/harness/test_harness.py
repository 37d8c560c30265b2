"""Facts about the harness itself: no network, no database, no other system.

  python3 -m unittest discover -s bench -t bench
"""

import contextlib
import io
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock
import xml.etree.ElementTree

from harness import arguments, facts, goals, install, process, reference, report, stats, steps, svg
from harness import systems, workloads
from harness.place import PEERS, Failed
from harness.results import Results

# Answers like a system: {"do": "say", "value": ...} is echoed, others do what their names say.
PROGRAM = """
import json, sys, time
print("a library says hello")
print(json.dumps({"settings": {"slots": 3}}), flush=True)
for line in sys.stdin:
    command = json.loads(line)
    if command["do"] == "hang":
        time.sleep(60)
    if command["do"] == "break":
        print(json.dumps({"error": "broken"}), flush=True)
        sys.exit(1)
    if command["do"] == "vanish":
        sys.exit(3)
    print(json.dumps(command.get("value")), flush=True)
"""


class Quiet(unittest.TestCase):
    def load(self, *values, patience_s):
        """What is taken for the load when it is read as `values`, and how often we waited."""
        left, said = list(values), []
        with (
            unittest.mock.patch("os.getloadavg", lambda: (left.pop(0) if left else values[-1],)),
            unittest.mock.patch("os.cpu_count", lambda: 2),
            unittest.mock.patch("time.sleep", said.append),
        ):
            return facts.quiet_load(patience_s, lambda words: None), len(said)

    def test_a_quiet_machine_is_not_waited_for(self):
        self.assertEqual(self.load(0.5, patience_s=60), (0.5, 0))

    def test_what_was_just_built_is_over_before_the_first_run(self):
        self.assertEqual(self.load(1.9, 0.8, 0.4, patience_s=60), (0.4, 2))

    def test_a_machine_that_stays_busy_is_told_as_it_is(self):
        self.assertEqual(self.load(1.9, patience_s=0), (1.9, 0))


class Arithmetic(unittest.TestCase):
    def test_a_median_comes_with_its_extremes(self):
        found = stats.Figures([30.0, 10.0, 20.0])
        self.assertEqual((found.median, found.least, found.most), (20.0, 10.0, 30.0))
        self.assertEqual(found.spread, 1.0)
        self.assertEqual(stats.Figures([1.0, 3.0]).median, 2.0)

    def test_no_rounds_are_no_figure(self):
        with self.assertRaises(ValueError):
            stats.Figures([])
        with self.assertRaises(ValueError):
            stats.quantile([], 0.5)

    def test_a_quantile_is_a_measured_value(self):
        values = list(range(1, 101))
        self.assertEqual(stats.quantile(values, 0.5), 50)
        self.assertEqual(stats.quantile(values, 0.99), 99)
        self.assertEqual(stats.quantile([7], 0.99), 7)
        self.assertEqual(stats.quantile([1, 2], 1.0), 2)

    def test_a_ratio_of_nothing_is_none(self):
        self.assertEqual(stats.ratio(3.0, 2.0), 1.5)
        self.assertIsNone(stats.ratio(3.0, 0))


class CommandLine(unittest.TestCase):
    def test_sizes_follow_the_options(self):
        self.assertEqual(arguments.read([]).size.name, "full")
        self.assertEqual(arguments.read(["--quick"]).size.name, "quick")
        self.assertEqual(arguments.read(["--tiny", "--quick"]).size.name, "tiny")
        self.assertEqual(arguments.read(["--quick", "--rounds", "7"]).size.rounds, 7)

    def test_only_names_parts(self):
        size = arguments.read(["--only", "drain", "--only", "steps"]).size
        self.assertTrue(size.wants("drain") and size.wants("steps") and size.wants_queue())
        self.assertFalse(size.wants("bulk"))
        self.assertFalse(arguments.read(["--only", "steps"]).size.wants_queue())

    def test_ours_is_measured_beside_every_peer(self):
        queues, variants = arguments.chosen(arguments.read(["--peer", "pg-boss"]))
        names = [system.name for system in queues]
        self.assertEqual(names, ["windlass-postgres", "windlass-sqlite", "pg-boss"])
        self.assertEqual({name for name, _ in variants}, {"windlass-postgres", "windlass-sqlite"})

    def test_only_a_complete_run_writes_into_the_repository(self):
        self.assertEqual(arguments.read(["--quick"]).out, PEERS.parent)
        for words in (["--quick", "--peer", "awa"], ["--only", "drain"], ["--tiny"]):
            self.assertNotEqual(arguments.read(words).out, PEERS.parent)

    def test_what_does_not_exist_is_refused(self):
        for words in (["--only", "nothing"], ["--peer", "nobody"], ["--rounds", "0"]):
            with contextlib.redirect_stderr(io.StringIO()), self.assertRaises(SystemExit):
                arguments.read(words)


class Charts(unittest.TestCase):
    def bars(self):
        return [
            svg.Bar("ours <&>", 200.0, 150.0, 230.0, "ours", "200 tasks/s"),
            svg.Bar("theirs", 0.001, 0.001, 0.001, "peer", "0 tasks/s"),
        ]

    def test_a_chart_is_well_formed_and_names_everything(self):
        text = svg.chart("Drain & more", "tasks/s", self.bars())
        root = xml.etree.ElementTree.fromstring(text)
        words = "".join(root.itertext())
        for word in ("Drain & more", "ours <&>", "theirs", "200 tasks/s"):
            self.assertIn(word, words)
        self.assertIn("prefers-color-scheme: dark", text)

    def test_bars_stay_inside(self):
        wild = [svg.Bar("a", 10.0, 1.0, 1_000_000.0, "peer", "10")]
        root = xml.etree.ElementTree.fromstring(svg.chart("t", "s", wild))
        for each in root.iter():
            right = float(each.get("x2", 0)), float(each.get("x", 0)) + float(each.get("width", 0))
            self.assertLessEqual(max(right), svg.WIDTH)

    def test_an_empty_chart_is_a_chart(self):
        xml.etree.ElementTree.fromstring(svg.chart("t", "s", []))
        self.assertEqual(svg.scale(5, 0), 0.0)


def sample():
    """Results in which ours is three times as fast as pg-boss, and absurd failed."""
    results = Results()
    for rate in (300.0, 330.0, 270.0):
        results.add("drain", "windlass-postgres", rate)
        results.add("drain", "pg-boss", rate / 3)
        results.add("drain", "absurd", rate * 100)
    results.fail("drain", "absurd", "9 | instead of 10")
    results.add("start-p50", "windlass-postgres", 1.0)
    results.add("start-p50", "pg-boss", 4.0)
    results.add("reference", "insert-32", 100.0)
    results.add("submit-32", "windlass-postgres", 90.0)
    return results


class Judgement(unittest.TestCase):
    def test_a_failed_run_is_never_a_figure(self):
        figures = sample().figures("drain")
        self.assertEqual(set(figures), {"windlass-postgres", "pg-boss"})
        lines = "\n".join(report.table(sample(), "drain", "tasks/s", ""))
        self.assertIn("| absurd | | **failed** | 9 / instead of 10 |", lines)
        self.assertNotIn("30,000", lines)

    def test_goals_are_reached_missed_or_not_measured(self):
        found = {each.what: each for each in goals.verdicts(sample(), arguments.QUICK)}
        drain = found["drain, the fastest PostgreSQL peer"]
        self.assertEqual((drain.found, drain.word), ("3.00x pg-boss", "reached"))
        latency = found["idle submit to start, p50, PostgreSQL"]
        self.assertEqual((latency.found, latency.is_reached), ("0.25x pg-boss", True))
        floor = found["one by one, 32 callers, raw pgbench"]
        self.assertEqual((floor.found, floor.word), ("0.90x", "**not reached**"))
        self.assertEqual(found["drain, SQLite"].word, "not measured")

    def test_ratios_say_how_much_better_ours_is_in_every_unit(self):
        results = sample()
        for workload, unit, wanted in (("drain", "tasks/s", "3.00x"), ("start-p50", "ms", "4.00x")):
            figures = results.figures(workload)
            found = report.beside("pg-boss", figures, unit, "windlass-postgres")
            self.assertEqual(found, wanted)

    def test_the_report_has_a_table_and_a_chart_and_every_verdict(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            versions = {"windlass-postgres": "1", "pg-boss": "2"}
            text = report.write(sample(), arguments.QUICK, ["a fact"], versions, folder, 61)
            self.assertEqual((folder / "RESULTS.md").read_text(encoding="utf-8"), text)
            self.assertTrue((folder / "charts" / "drain.svg").exists())
        for words in ("- a fact", "| pg-boss | PostgreSQL | 100 |", "charts/drain.svg", "reached"):
            self.assertIn(words, text)

    def test_every_system_has_its_program_and_its_pins(self):
        for system in systems.SYSTEMS:
            if system.source == "npm":
                self.assertTrue((PEERS / system.folder / "queue.mjs").exists(), system.name)
                self.assertTrue((PEERS / system.folder / "package-lock.json").exists())
            elif system.source == "crate":
                program = PEERS / "rust" / "src" / "bin" / f"{system.name}.rs"
                self.assertTrue(program.exists(), system.name)
            elif system.source == "pip":
                self.assertTrue((PEERS / system.folder / "requirements.txt").exists())
        for lock in PEERS.glob("*/package-lock.json"):
            self.assertNotIn('"resolved"', lock.read_text(), f"{lock} names a registry's address")


class Programs(unittest.TestCase):
    def adapter(self):
        command = [sys.executable, "-c", PROGRAM]
        return process.Adapter("fake", command, {}, tempfile.gettempdir())

    def test_a_program_answers_line_by_line(self):
        with self.adapter() as adapter:
            self.assertEqual(adapter.settings, {"slots": 3})
            self.assertEqual(adapter.ask("say", value={"done": 1}), {"done": 1})
            self.assertGreater(process.resident_mb(adapter.running.pid), 1)

    def test_errors_silence_and_ends_are_failures(self):
        for do, words in (("break", "broken"), ("vanish", "ended with 3"), ("hang", "no answer")):
            with self.subTest(do), self.adapter() as adapter:
                with self.assertRaisesRegex(Failed, words):
                    adapter.ask(do, give_up_s=20 if do != "hang" else 0.3)

    def test_what_a_program_started_is_gone_with_it(self):
        nested = "import subprocess, sys, time; p = subprocess.Popen(['sleep', '60']);"
        nested += " print(p.pid, flush=True); time.sleep(60)"
        with self.assertRaises(process.subprocess.TimeoutExpired):
            process.run_group([sys.executable, "-c", nested], {}, tempfile.gettempdir(), 1)
        command, pipe = [sys.executable, "-c", nested], process.subprocess.PIPE
        running = process.start(command, {}, tempfile.gettempdir(), stdout=pipe)
        child = int(running.stdout.readline())
        process.end(running)
        running.stdout.close()
        for _ in range(100):
            if not is_running(child):
                return
            time.sleep(0.05)
        self.fail("the child is still there")

    def test_a_failure_says_no_path_of_the_machine(self):
        found = Results()
        command = ["/home/somebody/node", "steps.mjs"]
        found.fail("steps", "restate", subprocess.TimeoutExpired(command, 180))
        found.fail("steps", "dbos", subprocess.CalledProcessError(2, command))
        told = {"restate": "it did not end within 180 s", "dbos": "it ended with 2"}
        self.assertEqual(found.failures["steps"], told)

    def test_results_are_found_among_other_lines(self):
        printed = 'hello\n{"system": "a", "steps_per_s": 5}\n{"system": "b", "steps_per_s": 6}\n'
        self.assertEqual(steps.result_of("a", printed)["steps_per_s"], 5)
        self.assertIsNone(steps.result_of("c", printed))
        tps = "latency average = 1\ntps = 1234.5 (without initial connection time)\n"
        self.assertEqual(steps.result_of("postgres-insert", tps)["steps_per_s"], 1234.5)
        self.assertEqual(reference.rate_of(tps), 1234.5)
        with self.assertRaises(Failed):
            reference.rate_of("number of failed transactions: 3 (1 %)\n" + tps)
        with self.assertRaises(Failed):
            reference.rate_of("nothing")

    def test_pins_are_read(self):
        self.assertIn("awa 0.", install_version("awa"))


def install_version(name):
    manifest = (PEERS / "rust" / "Cargo.toml").read_text()
    return f"{name} {install.re.search(rf'^{name} = .=([0-9.]+)', manifest, 8)[1]}"


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            return stat.read().rsplit(") ", 1)[1][0] not in "ZX"
    except OSError:
        return False


class FakeAdapter:
    """Answers as it is told, and remembers nothing."""

    def __init__(self, answers):
        self.answers = list(answers)

    def ask(self, do, **_):
        wanted, answer = self.answers.pop(0)
        assert do == wanted, f"{do} instead of {wanted}"
        return answer


class Counts(unittest.TestCase):
    def opened(self, *answers):
        found = workloads.Opened(systems.BY_NAME["pg-boss"], ["nothing"])
        found.adapter = FakeAdapter(answers)
        return found

    def drained(self, handled, total, waiting, done, all_done=True):
        return self.opened(
            ("bulk", {"done": 4, "seconds": 2.0}),
            ("counts", {"waiting": 4, "done": 7}),
            ("drain", {"handled": handled, "handled_at_end": handled, "seconds": 2.0,
                       "all": all_done, "sum": total}),
            ("counts", {"waiting": waiting, "done": done}),
        )

    def test_counts_that_add_up_are_a_figure(self):
        opened = self.drained(4, 6, 0, 11)
        self.assertEqual(opened.bulk(4, 1), 2.0)
        self.assertEqual(opened.drain(1), 2.0)
        self.assertEqual((opened.waiting, opened.waiting_sum, opened.handled), (0, 0, 4))

    def test_a_drain_whose_time_is_up_counts_what_it_did(self):
        opened = self.drained(2, 1, 2, 9, all_done=False)
        opened.bulk(4, 1)
        self.assertEqual(opened.drain(1), 1.0)
        self.assertEqual((opened.waiting, opened.waiting_sum), (2, 5))

    def test_counts_that_do_not_add_up_are_a_failure(self):
        for wrong in (
            self.drained(5, 6, 0, 12),  # One ran twice.
            self.drained(4, 7, 0, 11),  # One ran twice instead of another.
            self.drained(4, 6, 1, 11),  # One is still waiting.
            self.drained(4, 6, 0, 10),  # One was lost.
            self.drained(0, 0, 4, 7, all_done=False),  # Nothing happened.
        ):
            wrong.bulk(4, 1)
            with self.assertRaises(Failed):
                wrong.drain(1)

    def test_tasks_that_never_arrived_are_a_failure(self):
        opened = self.opened(
            ("submit", {"done": 1, "seconds": 1.0}),
            ("submit", {"done": 3, "seconds": 1.0}),
            ("counts", {"waiting": 3, "done": 0}),
        )
        self.assertEqual(opened.submit(1, 3, 1), 3.0)
        with self.assertRaisesRegex(Failed, "3 instead of 4"):
            opened.drain(1)


if __name__ == "__main__":
    os.chdir(PEERS.parent)
    unittest.main()
