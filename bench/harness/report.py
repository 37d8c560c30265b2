"""The report: Markdown with every figure beside ours, and charts."""

import json

from .goals import verdicts
from .place import ROOT
from .stats import ratio
from .svg import Bar, chart
from .systems import BY_NAME, ENGINES, ours_on

# Each section: its title, what it says, and its workloads with their units. Rates are better when
# they are higher, times and sizes when they are lower.
SECTIONS = [
    ("Drain", "One worker process, from when it has started until the store holds nothing more to"
     " do.",
     [("drain", "tasks/s", "")]),
    ("Bulk submit", "Batches of 1,000, four calls at a time.", [("bulk", "tasks/s", "")]),
    ("One by one", "Each caller submits its next task when the one before is acknowledged.",
     [("submit-1", "tasks/s", "1 caller"), ("submit-32", "tasks/s", "32 callers")]),
    ("Idle latency", "One task at a time for a worker that has nothing else to do, from before the"
     " call of submit.",
     [("start-p50", "ms", "to the handler's start, p50"),
      ("start-p99", "ms", "to the handler's start, p99"),
      ("done-p50", "ms", "to visible completion, p50"),
      ("done-p99", "ms", "to visible completion, p99")]),
    ("Durable steps", "Workflows of 10 steps, each durable before the next one begins.",
     [("steps", "steps/s", "best setting of each")]),
    ("Drain beside a full table", "Finished tasks, or tasks that are not due, in the same table.",
     [("backlog-empty", "tasks/s", "empty"), ("backlog-finished", "tasks/s", "finished"),
      ("backlog-waiting", "tasks/s", "not due")]),
    ("Drain under a held snapshot", "A reader's snapshot is older than every task; the last three"
     " rounds, as a share of the same drain in a database without that reader.",
     [("snapshot", "share", "")]),
    ("Memory", "Resident, while a worker waits for work.", [("memory", "MB", "")]),
]
LOWER_IS_BETTER = ("ms", "MB")
CHARTS = ["drain", "bulk", "submit-1", "submit-32", "start-p50", "start-p99", "done-p50", "steps",
          "memory"]
REFERENCES = {
    "insert-1": "pgbench, one INSERT a transaction, 1 client",
    "insert-32": "pgbench, one INSERT a transaction, 32 clients",
    "fdatasync": "8 KiB written and synced by fdatasync",
}


def number(value, unit):
    if unit == "share":
        return f"{value * 100:.0f} %"
    if unit == "ms":
        return f"{value:,.2f}" if value < 100 else f"{value:,.0f}"
    return f"{value:,.1f}" if unit == "MB" else f"{value:,.0f}"


def engine_of(name):
    return BY_NAME[name].engine if name in BY_NAME else "postgres"


def beside(name, figures, unit, ours):
    """Our ratio to a system: how many times faster ours is, whatever the unit."""
    mine = figures.get(ours)
    if name.startswith("windlass") or mine is None:
        return ""
    theirs = figures[name].median
    found = ratio(theirs, mine.median) if unit in LOWER_IS_BETTER else ratio(mine.median, theirs)
    return f"{found:.2f}x" if found is not None else ""


def ordered(figures, unit):
    """Best first."""
    sign = 1 if unit in LOWER_IS_BETTER else -1
    return sorted(figures, key=lambda name: sign * figures[name].median)


def table(results, workload, unit, title):
    figures = results.figures(workload)
    failed = results.failures.get(workload, {})
    absent = results.absent.get(workload, {})
    if not figures and not failed:
        return []
    heading = f"{title}, {unit}" if title else unit
    columns = ["system", "on", heading, "least to most", "rounds", "ours is better by"]
    lines = ["| " + " | ".join(columns) + " |", "|---|---|---:|---:|---:|---:|"]
    for name in ordered(figures, unit):
        found, engine = figures[name], engine_of(name)
        mark = "**" if name.startswith("windlass") else ""
        on = ENGINES.get(engine, "") if name in BY_NAME else ""
        lines.append(
            f"| {mark}{name}{mark} | {on} | {mark}{number(found.median, unit)}{mark}"
            f" | {number(found.least, unit)} to {number(found.most, unit)}"
            f" | {len(found.values)} | {beside(name, figures, unit, ours_on(engine))} |"
        )
    for name, why in failed.items():
        lines.append(f"| {name} | | **failed** | {clean(why)} | | |")
    for name, why in absent.items():
        lines.append(f"| {name} | | | {clean(why)} | | |")
    return [*lines, ""]


def clean(text):
    return " ".join(str(text).replace("|", "/").split())[:160]


def goal_table(results, size):
    lines = ["| what | goal | found | |", "|---|---|---|---|"]
    reasons = ROOT / "bench" / "reasons.json"
    reasons = json.loads(reasons.read_text()) if reasons.exists() else {}
    told = []
    for verdict in verdicts(results, size):
        words = f"{verdict.what} | {verdict.goal} | {verdict.found or ''} | {verdict.word}"
        lines.append(f"| {words} |")
        if verdict.is_reached is False:
            why = reasons.get(verdict.what, "the reason has not been looked into")
            told.append(f"- {verdict.what}: {why}.")
    if told:
        lines += ["", "Why those that are not reached are not:", "", *told]
    return [*lines, ""]


def reference_table(results):
    figures = results.figures("reference")
    if not figures:
        return []
    lines = ["## Physical references", "",
             "| reference | a second | least to most | ours beside it |", "|---|---:|---:|---|"]
    for name, words in REFERENCES.items():
        if name in figures:
            found = figures[name]
            spread = f"{found.least:,.0f} to {found.most:,.0f}"
            lines.append(f"| {words} | {found.median:,.0f} | {spread} | {floor(results, name)} |")
    return [*lines, ""]


def floor(results, name):
    """Our one-by-one submit beside the reference with as many clients."""
    workload = "submit-32" if name == "insert-32" else "submit-1"
    ours = ours_on("sqlite" if name == "fdatasync" else "postgres")
    mine = results.median(workload, ours)
    if not mine:
        return ""
    found = ratio(mine, results.median("reference", name))
    callers = workload.removeprefix("submit-")
    return f"{ours}, one by one, callers {callers}: {found:.2f}x"


def guarantee_table(names):
    lines = ["## What each guarantees", "", "All of them survive a crash of the worker and of the"
             " machine once a submit is acknowledged: every commit is synced.", "",
             "| system | finished tasks | history | limits | a late write of a worker that lost its"
             " task |", "|---|---|---|---|---|"]
    for name in names:
        if name not in BY_NAME:
            continue
        has = BY_NAME[name].guarantees
        kept = "kept" if has.keeps else "deleted"
        lines.append(f"| {name} | {kept} | {has.history} | {has.limits} | {has.fencing} |")
    return [*lines, ""]


def charts(results, folder):
    """Writes the charts; the names of those that have anything to show."""
    units = {workload: (unit, words, title) for title, _, parts in SECTIONS
             for workload, unit, words in parts}
    written = {}
    folder.mkdir(parents=True, exist_ok=True)
    for workload in CHARTS:
        figures = results.figures(workload)
        if len(figures) < 2:
            continue
        unit, words, title = units[workload]
        bars = []
        for name in ordered(figures, unit):
            found = figures[name]
            kind = "floor" if name == "postgres-insert" else "peer"
            kind = "ours" if name.startswith("windlass") else kind
            figure = f"{number(found.median, unit)} {unit}"
            bars.append(Bar(name, found.median, found.least, found.most, kind, figure))
        clients = {"submit-1": "insert-1", "submit-32": "insert-32"}.get(workload)
        if reference := results.figures("reference").get(clients):
            bars.append(Bar("pgbench INSERT", reference.median, reference.least, reference.most,
                            "floor", f"{reference.median:,.0f} /s"))
        better = "less is better" if unit in LOWER_IS_BETTER else "more is better"
        heading = f"{title}: {words}" if words else title
        subtitle = f"{unit}, median of the rounds with their extremes; {better}"
        (folder / f"{workload}.svg").write_text(chart(heading, subtitle, bars), encoding="utf-8")
        written[workload] = heading
    return written


def write(results, size, facts, versions, folder, took_s):
    """RESULTS.md and charts/, in the folder. Gives the text."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = charts(results, folder / "charts")
    lines = ["# Side by side", "", f"Written by `bench/run` ({size.name} size, {took_s / 60:.0f}"
             " minutes); [README.md](README.md) says what is measured and how. All systems ran in"
             " turns, each in a fresh database of one server. Figures are medians of the rounds;"
             " read the ratios, for absolute figures move from machine to machine.", ""]
    lines += [f"- {fact}" for fact in facts] + [f"- {note}" for note in results.notes]
    lines += ["", "## Goals", "", *goal_table(results, size), *reference_table(results)]
    for title, words, parts in SECTIONS:
        section = []
        for workload, unit, heading in parts:
            if workload in drawn:
                section += [f"![{drawn[workload]}](charts/{workload}.svg)", ""]
            section += table(results, workload, unit, heading)
        if section:
            lines += [f"## {title}", "", words, "", *section]
    names = [*versions]
    lines += guarantee_table(names)
    lines += ["## Versions and settings", ""]
    for name, version in versions.items():
        settings = results.settings.get(name)
        words = json.dumps(settings).replace('"', "") if settings else ""
        lines.append(f"- {name}: {version}{'; ' + words if words else ''}")
    for name, words in results.settings.get("steps", {}).items():
        lines.append(f"- steps of {name}: {words}")
    text = "\n".join(lines) + "\n"
    (folder / "RESULTS.md").write_text(text, encoding="utf-8")
    return text
