//! The state machine as a picture and as tables, drawn from the data itself.
//!
//! Invariant: docs/state-machine.md is exactly [`document`]; a test compares them, and
//! `UPDATE_DOCS=1` writes the file anew. So the document cannot lie.

use crate::profile::{FirstLease, MAX_RELEASES, PROFILES, Profile, Rules, WhenLost};
use crate::state::{Event, State};
use crate::transition::{For, TRANSITIONS};
use std::fmt::Write as _;

/// One arrow of the picture: everything that leads from one state to another.
struct Edge {
    from: Option<State>,
    to: State,
    /// Each event once, with all the profiles that know it.
    events: Vec<(Event, Vec<Profile>)>,
}

fn profiles(tasks: For) -> impl Iterator<Item = Profile> {
    let all = Profile::ALL.iter().copied();
    all.filter(move |&profile| tasks.includes(profile))
}

fn edges() -> Vec<Edge> {
    let mut edges: Vec<Edge> = Vec::new();
    for t in TRANSITIONS {
        let at = edges.iter().position(|e| (e.from, e.to) == (t.from, t.to));
        let at = at.unwrap_or_else(|| {
            edges.push(Edge { from: t.from, to: t.to, events: Vec::new() });
            edges.len() - 1
        });
        let events = &mut edges[at].events;
        match events.iter_mut().find(|(event, _)| *event == t.event) {
            Some((_, known)) => known.extend(profiles(t.tasks)),
            None => events.push((t.event, profiles(t.tasks).collect())),
        }
    }
    edges
}

/// For whom, in words: nothing for every executed task, because that is the rule.
fn for_whom(known: &[Profile]) -> String {
    let executed = |p: &Profile| *p != Profile::Ledger;
    if Profile::ALL.iter().filter(|p| executed(p)).all(|p| known.contains(p)) {
        return String::new();
    }
    let mut names: Vec<_> = known.iter().map(|p| p.as_str()).collect();
    names.sort_unstable();
    format!(" ({})", names.join(", "))
}

/// The machine as a Mermaid diagram. Parallel arrows are one arrow with several events; an event
/// that only some profiles know names them.
pub fn mermaid() -> String {
    let mut out = String::from("stateDiagram-v2\n");
    for edge in edges() {
        let labels: Vec<_> = edge
            .events
            .iter()
            .map(|(event, known)| format!("{event}{}", for_whom(known)))
            .collect();
        let from = edge.from.map_or("[*]", State::as_str);
        let _ = writeln!(out, "    {from} --> {} : {}", edge.to, labels.join(", "));
    }
    for state in State::ALL.iter().filter(|s| s.is_terminal()) {
        let _ = writeln!(out, "    {state} --> [*]");
    }
    out
}

/// The machine as a Markdown table: one row for each event and target, with all its sources.
pub fn table() -> String {
    let mut rows: Vec<(Event, State, For, Vec<&str>)> = Vec::new();
    for t in TRANSITIONS {
        let from = t.from.map_or("–", State::as_str);
        let same =
            |row: &&mut (Event, State, For, _)| (row.0, row.1, row.2) == (t.event, t.to, t.tasks);
        match rows.iter_mut().find(same) {
            Some(row) => row.3.push(from),
            None => rows.push((t.event, t.to, t.tasks, vec![from])),
        }
    }
    let mut out = String::from("| from | event | to | for |\n|---|---|---|---|\n");
    for (event, to, tasks, from) in rows {
        let whom = match tasks {
            For::All => "every task".to_owned(),
            For::Executed => "every task that a worker executes".to_owned(),
            For::Only(only) => {
                let names: Vec<_> = only.iter().map(|p| p.as_str()).collect();
                names.join(", ")
            }
        };
        let from = from.join(", ");
        let _ = writeln!(out, "| {from} | {event} | {to} | {whom} |");
    }
    out
}

fn meaning(state: State) -> &'static str {
    match state {
        State::Pending => "waits for a worker, or for its `run_at`",
        State::Claimed => "given to a worker under a lease; the worker has not started it",
        State::Running => "a worker runs it under a lease",
        State::WaitingForApproval => "parked until a person decides; holds no worker and no lease",
        State::Waiting => {
            "parked until a timer, a signal, a child task, or a person who settles a step in doubt"
        }
        State::Retry => "failed or lost, and runs again at `run_at`",
        State::Completed => "finished with a result",
        State::Failed => "finished with an error",
        State::Cancelled => "ended on request",
        State::Stuck => "a delegation whose worker fell silent; a person investigates",
        State::Poisoned => "failed or came back too often; a person investigates",
    }
}

fn states() -> String {
    let mut out = String::from("| state | terminal | a task in it… |\n|---|---|---|\n");
    for &state in State::ALL {
        let terminal = if state.is_terminal() { "yes" } else { "no" };
        let _ = writeln!(out, "| `{state}` | {terminal} | {} |", meaning(state));
    }
    out
}

/// A span in the largest unit that divides it.
fn span(ms: i64) -> String {
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s")];
    match units.iter().find(|(unit, _)| ms != 0 && ms % unit == 0) {
        Some((unit, name)) => format!("{} {name}", ms / unit),
        None => format!("{ms} ms"),
    }
}

fn lease(rules: &Rules) -> String {
    let lease = span(rules.lease_ms);
    match (rules.profile, rules.first_lease) {
        (Profile::Ledger, _) => format!("none; stuck {lease} after its last heartbeat"),
        (_, FirstLease::Timed) => format!("{lease} from the claim and from each heartbeat"),
        (_, FirstLease::UntilFirstBeat) => {
            format!("no end until the first heartbeat, then {lease} from each")
        }
    }
}

fn when_lost(rules: &Rules) -> &'static str {
    match rules.when_lost {
        WhenLost::Retry => "`retry` at once while retries are left, then `poisoned`",
        WhenLost::Stuck => "`stuck`",
        WhenLost::Release => "`pending`, counted as a release",
    }
}

fn exhausted(rules: &Rules) -> String {
    let end = if rules.poison_when_exhausted { State::Poisoned } else { State::Failed };
    format!("{}, then `{end}`", rules.max_retries)
}

fn profile_table() -> String {
    let mut out = String::from("| |");
    for rules in &PROFILES {
        let _ = write!(out, " {} |", rules.profile);
    }
    out.push_str("\n|---|");
    out.push_str(&"---|".repeat(PROFILES.len()));
    out.push('\n');
    let or = |ms: Option<i64>, none: &str| ms.map_or(none.to_owned(), span);
    let mut row = |name: &str, cell: &dyn Fn(&Rules) -> String| {
        let cells: Vec<_> = PROFILES.iter().map(cell).collect();
        let _ = writeln!(out, "| {name} | {} |", cells.join(" | "));
    };
    row("lease", &lease);
    row("lease lost while running", &|r| when_lost(r).to_owned());
    row("retries unless the task says otherwise", &exhausted);
    row("deadline unless the task says otherwise", &|r| or(r.deadline_ms, "none"));
    row("longest stay in `pending`", &|r| or(r.pending_ms, "no end"));
    row("kept after its end", &|r| or(r.retention_ms, "for ever"));
    out
}

const HEAD: &str = "\
# The state machine

<!-- Drawn by crates/domain/src/diagram.rs from the tables that the program runs on.
     Do not edit: UPDATE_DOCS=1 cargo test -p windlass-domain writes it anew. -->

One machine moves every task, whatever its kind. What differs between the kinds is data: the
profile.
";

const DATABASE_RULES: &str = "\
Both databases carry the table above and refuse what it forbids, whoever asks; a statement typed by
hand is no exception.

- A state follows another only if the table says so, for the task's profile.
- A terminal task never changes: no column of it.
- The payload never changes.
- `finished_at` is set exactly in terminal states, `run_at` always in `retry`.
- A lease stands only on `claimed` and `running` tasks.
- `failed`, `poisoned` and `stuck` tasks have an `error`.
- An open approval exists exactly in `waiting_for_approval`.
- `retry_count` stays within 0 and `max_retries`, `max_retries` within 0 and 100.
- Every transition writes one row of history; history is only ever appended to, and removed only
  together with a task whose retention has ended.
- `updated_at` and `finished_at` are stamped by the database.
";

/// The whole of docs/state-machine.md.
pub fn document() -> String {
    format!(
        "{HEAD}\n## States\n\n{}\n## Diagram\n\nAn event without a note is open to every task \
         that a worker executes. Ledger delegations,\nwhich their caller runs elsewhere, know \
         `submit`, `report`, `lose_lease`, `cancel` and\n`exceed_deadline` only.\n\n\
         ```mermaid\n{}```\n\n## Transitions\n\n{}\nA task that was handed out and given back \
         {MAX_RELEASES} times is poisoned (`release_too_often`).\nTerminal is terminal: a replay \
         is a new task.\n\n## Profiles\n\n{}\n## What the databases enforce\n\n{DATABASE_RULES}",
        states(),
        mermaid(),
        table(),
        profile_table(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transition::events_from;

    #[test]
    fn the_document_is_drawn_from_the_tables() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/state-machine.md");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(path, document()).unwrap();
        }
        let committed = std::fs::read_to_string(path).unwrap();
        let hint = "run UPDATE_DOCS=1 cargo test -p windlass-domain";
        assert!(committed == document(), "docs/state-machine.md is stale; {hint}");
    }

    #[test]
    fn every_arrow_is_drawn_once() {
        let picture = mermaid();
        let mut arrows: Vec<_> =
            picture.lines().filter_map(|line| line.split(" : ").next()).collect();
        let drawn = arrows.len();
        arrows.sort_unstable();
        arrows.dedup();
        assert_eq!(arrows.len(), drawn);
    }

    #[test]
    fn no_transition_is_left_out() {
        for t in TRANSITIONS {
            let from = t.from.map_or("[*]", State::as_str);
            let start = format!("    {from} --> {} : ", t.to);
            let picture = mermaid();
            let line = picture.lines().find(|line| line.starts_with(&start));
            assert!(line.is_some_and(|l| l.contains(t.event.as_str())), "{t:?}");
        }
    }

    #[test]
    fn the_events_of_ledger_delegations_are_those_that_the_document_names() {
        let mut known: Vec<_> =
            State::ALL.iter().flat_map(|&state| events_from(Profile::Ledger, state)).collect();
        known.sort_unstable();
        known.dedup();
        use Event::*;
        assert_eq!(known, [LoseLease, Cancel, ExceedDeadline, Report]);
    }

    #[test]
    fn an_event_of_some_profiles_names_them() {
        let picture = mermaid();
        for line in [
            "    [*] --> pending : submit\n",
            "    running --> stuck : lose_lease (delegation, ledger), report (ledger)\n",
            "pending --> failed : time_out_pending (inference), exceed_deadline, report (ledger)",
        ] {
            assert!(picture.contains(line), "{line}{picture}");
        }
    }

    #[test]
    fn spans_are_written_in_their_largest_unit() {
        let spans = [60_000, 600_000, 21_600_000, 604_800_000, 1_500, 0].map(span);
        assert_eq!(spans, ["1 min", "10 min", "6 h", "7 d", "1500 ms", "0 ms"]);
    }
}
