//! Every pair of states, by hand: the databases permit what `TRANSITIONS` has and nothing else.

use crate::hand::{Attempt, attempt_all};
use crate::world::*;
use std::collections::BTreeMap;
use windlass_domain::id::TaskId;
use windlass_domain::profile::Profile;
use windlass_domain::state::{Event, State};
use windlass_domain::task::NewTask;
use windlass_domain::transition::TRANSITIONS;
use windlass_store::statement::Dialect;

conformance!(a_hand_written_update_is_refused_exactly_when_the_machine_has_no_such_pair);

/// A lease, a change or an approval made up by a person.
pub const LEASE: &str = "11111111-1111-4111-8111-111111111111";
pub const CHANGE: &str = "22222222-2222-4222-8222-222222222222";
pub const APPROVAL: &str = "33333333-3333-4333-8333-333333333333";

/// A new task of the profile in queue `q`.
pub fn new_task(profile: Profile) -> NewTask {
    match profile {
        Profile::Job => job(),
        Profile::Delegation => delegation(|r| r.max_retries = Some(2)),
        Profile::Ledger => ledger(),
        Profile::Inference => inference(),
    }
}

/// An instant in the database's own type.
pub fn instant(dialect: Dialect, ms: i64) -> String {
    match dialect {
        Dialect::Postgres => format!("to_timestamp({ms} / 1000.0)"),
        Dialect::Sqlite => ms.to_string(),
    }
}

/// What a row in `to` looks like: everything but the transition is right.
pub fn shape(dialect: Dialect, profile: Profile, to: State) -> String {
    let held = to.is_held();
    let when = |holds: bool, value: String| if holds { value } else { "NULL".to_owned() };
    let mut set = vec![
        format!("status = '{to}'"),
        "ready = FALSE".to_owned(),
        format!("lease_id = {}", when(held && profile != Profile::Ledger, format!("'{LEASE}'"))),
        format!("lease_expires_at = {}", when(held, instant(dialect, NOON + 60_000))),
        format!(
            "error = {}",
            when(to.needs_error(), "'{\"code\":\"X\",\"message\":\"m\"}'".into())
        ),
        format!("approval_id = {}", when(to == State::WaitingForApproval, format!("'{APPROVAL}'"))),
    ];
    // A finished task keeps its last holder.
    if !to.is_terminal() {
        set.push(format!("claimed_by = {}", when(held, "'a person'".into())));
    }
    if to == State::Completed {
        set.push("result = '{}'".into());
    }
    set.join(", ")
}

/// The statement that moves a task to `to`; an approval follows by itself if one is needed.
pub fn step(dialect: Dialect, id: TaskId, profile: Profile, to: State) -> String {
    let shape = shape(dialect, profile, to);
    format!("UPDATE task_state SET {shape} WHERE id = '{id}'")
}

pub fn open_approval(dialect: Dialect, id: TaskId) -> String {
    let now = instant(dialect, NOON);
    format!(
        "INSERT INTO approval (id, task_id, gate, created_at)
         VALUES ('{APPROVAL}', '{id}', 'deploy', {now})"
    )
}

/// The statements that bring a pending task to `to`; `None` if no task of the profile gets there.
pub fn path(dialect: Dialect, id: TaskId, profile: Profile, to: State) -> Option<Vec<String>> {
    let mut came_from: BTreeMap<State, State> = BTreeMap::new();
    let mut reached = vec![State::Pending];
    let mut next = 0;
    while let Some(&from) = reached.get(next) {
        next += 1;
        for t in TRANSITIONS.iter().filter(|t| t.from == Some(from) && t.tasks.includes(profile)) {
            if !reached.contains(&t.to) {
                reached.push(t.to);
                came_from.insert(t.to, from);
            }
        }
    }
    let mut states = vec![to];
    while states[0] != State::Pending {
        states.insert(0, *came_from.get(&states[0])?);
    }
    Some(states[1..].iter().map(|&s| step(dialect, id, profile, s)).collect())
}

/// The event that a hand-written change amounts to.
fn event(profile: Profile, from: State, to: State) -> Option<Event> {
    let fits = |t: &&windlass_domain::transition::Transition| {
        t.from == Some(from) && t.to == to && t.tasks.includes(profile)
    };
    TRANSITIONS.iter().find(fits).map(|t| t.event)
}

/// The last history row, how many there are, and whether the row's times are right.
fn look(dialect: Dialect, id: TaskId) -> String {
    let (me, just_now) = match dialect {
        Dialect::Postgres => (
            "'sql:' || session_user",
            "abs(extract(epoch FROM clock_timestamp() - s.updated_at)) < 60",
        ),
        Dialect::Sqlite => ("'sql:sqlite'", "abs(unixepoch('now') - s.updated_at / 1000) < 60"),
    };
    format!(
        "SELECT h.from_status || ' ' || h.event || ' ' || h.to_status, s.status,
             CASE WHEN h.actor = {me} THEN 'by hand' ELSE h.actor END,
             CASE WHEN {just_now} THEN 'just now' ELSE 'at another time' END,
             CASE WHEN h.at = s.updated_at AND h.change_id = s.change_id THEN 'same' END,
             CASE WHEN s.finished_at IS NULL THEN 'open'
                  WHEN s.finished_at = s.updated_at THEN 'finished' ELSE 'wrong' END
         FROM task_state s JOIN task_history h ON h.task_id = s.id
         WHERE s.id = '{id}' ORDER BY h.seq DESC LIMIT 1"
    )
}

async fn a_hand_written_update_is_refused_exactly_when_the_machine_has_no_such_pair(
    dialect: Dialect,
) {
    let world = World::new(dialect).await;
    for &profile in Profile::ALL {
        let id = world.submit(new_task(profile)).await;
        let (mut cases, mut attempts) = (Vec::new(), Vec::new());
        for &from in State::ALL {
            let Some(path) = path(dialect, id, profile, from) else { continue };
            for &to in State::ALL.iter().filter(|&&to| to != from || from.is_terminal()) {
                let before = path.clone();
                let expected = event(profile, from, to);
                let tried = step(dialect, id, profile, to);
                cases.push((from, to, expected));
                attempts.push(Attempt { before, tried, look: look(dialect, id) });
            }
        }
        assert!(cases.len() > 50, "{profile}: {} pairs", cases.len());
        for (outcome, (from, to, event)) in attempt_all(&world, &attempts).iter().zip(cases) {
            let what = format!("{dialect:?}: {profile} {from} -> {to}: {outcome:?}");
            match event {
                None => {
                    let said = outcome.refused.as_deref().unwrap_or("accepted");
                    assert!(said.contains("windlass: "), "{what}");
                }
                Some(event) => {
                    assert!(outcome.refused.is_none(), "{what}");
                    let end = if to.is_terminal() { "finished" } else { "open" };
                    let seen = format!("{from} {event} {to}|{to}|by hand|just now|same|{end}");
                    assert_eq!(outcome.seen, seen, "{what}");
                }
            }
        }
    }
}
