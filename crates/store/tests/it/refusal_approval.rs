//! A task waits for an approval exactly while one is open, and an answer is written once.

use crate::hand::{Attempt, all_accepted, all_refused};
use crate::refusal::{APPROVAL, CHANGE, instant, open_approval, path, shape};
use crate::world::*;
use windlass_domain::id::TaskId;
use windlass_domain::profile::Profile;
use windlass_domain::state::State;
use windlass_store::statement::Dialect;

conformance!(
    a_task_waits_only_for_an_open_approval_of_its_own,
    leaving_the_wait_closes_the_approval_as_the_event_says,
    only_a_running_task_asks_and_an_approval_begins_open,
    an_answer_is_written_once_and_only_by_moving_the_task,
);

fn waits(dialect: Dialect, id: TaskId) -> String {
    let shape = shape(dialect, Profile::Job, State::WaitingForApproval);
    format!("UPDATE task_state SET {shape} WHERE id = '{id}'")
}

fn to(dialect: Dialect, id: TaskId, state: State) -> Vec<String> {
    path(dialect, id, Profile::Job, state).expect("a job gets there")
}

async fn a_task_waits_only_for_an_open_approval_of_its_own(dialect: Dialect) {
    let world = World::new(dialect).await;
    let (id, other) = (world.submit(job()).await, world.submit(job()).await);
    let running = to(dialect, id, State::Running);
    let words =
        if dialect == Dialect::Postgres { "no open approval" } else { "open approval first" };
    let mut of_other = [running.clone(), to(dialect, other, State::Running)].concat();
    of_other.push(open_approval(dialect, other));
    let mut closed = running.clone();
    closed.push(open_approval(dialect, id));
    closed.push(format!(
        "UPDATE approval SET status = 'denied', decided_at = {}",
        instant(dialect, NOON)
    ));
    let waiting = to(dialect, id, State::WaitingForApproval);
    let attempt =
        |before, tried: &str| Attempt { before, tried: tried.into(), look: String::new() };
    let waits = waits(dialect, id);
    let swap = format!("UPDATE task_state SET approval_id = '{CHANGE}' WHERE id = '{id}'");
    let truth = format!(
        "UPDATE task_state SET approval_id = '{CHANGE}', from_status = status,
         change_id = '{CHANGE}' WHERE id = '{id}'"
    );
    let gone = format!("UPDATE task_state SET approval_id = NULL WHERE id = '{id}'");
    all_refused(
        &world,
        &[
            (attempt(running, &waits), words),
            (attempt(of_other, &waits), words),
            (attempt(closed, &waits), words),
            (attempt(waiting.clone(), &swap), words),
            (attempt(waiting.clone(), &truth), words),
            (
                attempt(waiting, &gone),
                if dialect == Dialect::Postgres { words } else { "open approval first" },
            ),
        ],
    );
}

async fn leaving_the_wait_closes_the_approval_as_the_event_says(dialect: Dialect) {
    let world = World::new(dialect).await;
    let id = world.submit(job()).await;
    let leave = |to_state: State, extra: &str| {
        let shape = shape(dialect, Profile::Job, to_state);
        Attempt {
            before: to(dialect, id, State::WaitingForApproval),
            tried: format!("UPDATE task_state SET {shape}{extra} WHERE id = '{id}'"),
            look: format!(
                "SELECT a.status, CASE WHEN a.decided_at = s.updated_at THEN 'then' END
                 FROM approval a JOIN task_state s ON s.id = a.task_id WHERE a.id = '{APPROVAL}'"
            ),
        }
    };
    let told =
        |event: &str| format!(", from_status = status, event = '{event}', change_id = '{CHANGE}'");
    let seen = all_accepted(
        &world,
        &[
            leave(State::Pending, ""),
            leave(State::Failed, ""),
            leave(State::Cancelled, ""),
            leave(State::Pending, &told("approve")),
            leave(State::Failed, &told("deny")),
            leave(State::Failed, &told("expire_approval")),
            leave(State::Failed, &told("exceed_deadline")),
        ],
    );
    let expected =
        ["approved", "denied", "withdrawn", "approved", "denied", "expired", "withdrawn"];
    assert_eq!(seen, expected.map(|status| format!("{status}|then")));
}

async fn only_a_running_task_asks_and_an_approval_begins_open(dialect: Dialect) {
    let world = World::new(dialect).await;
    let id = world.submit(job()).await;
    let ask = open_approval(dialect, id);
    let not_running =
        if dialect == Dialect::Postgres { "is not running" } else { "windlass: approval: " };
    let mut attempts = Vec::new();
    for &state in State::ALL.iter().filter(|&&s| s != State::Running && s != State::Stuck) {
        let before = to(dialect, id, state);
        let tried = ask.replace(APPROVAL, CHANGE);
        attempts.push((Attempt { before, tried, look: String::new() }, not_running));
    }
    let unknown = ask.replace(&id.to_string(), CHANGE);
    attempts.push((Attempt::new(unknown), not_running));
    let running = to(dialect, id, State::Running);
    let now = instant(dialect, NOON);
    let approved = format!(
        "INSERT INTO approval (id, task_id, gate, status, created_at, decided_at)
         VALUES ('{APPROVAL}', '{id}', 'deploy', 'approved', {now}, {now})"
    );
    let attempt = |more: &str, tried: &str| Attempt {
        before: running.iter().cloned().chain((!more.is_empty()).then(|| more.into())).collect(),
        tried: tried.into(),
        look: String::new(),
    };
    attempts.push((attempt("", &approved), "begins open"));
    let second = ask.replace(APPROVAL, CHANGE);
    let one =
        if dialect == Dialect::Postgres { "approval_open" } else { "the task has an open one" };
    attempts.push((attempt(&ask, &second), one));
    if dialect == Dialect::Sqlite {
        let replace = second.replace("INSERT", "INSERT OR REPLACE");
        attempts.push((attempt(&ask, &replace), one));
        let rowid = second.replace("(id", "(rowid, id").replace("VALUES (", "VALUES (1, ");
        attempts.push((attempt(&ask, &rowid.replace("INSERT", "INSERT OR REPLACE")), "windlass: "));
    }
    all_refused(&world, &attempts);
}

async fn an_answer_is_written_once_and_only_by_moving_the_task(dialect: Dialect) {
    let world = World::new(dialect).await;
    let (id, other) = (world.submit(job()).await, world.submit(job()).await);
    let now = instant(dialect, NOON);
    let waiting = to(dialect, id, State::WaitingForApproval);
    let mut answered = waiting.clone();
    let shape = shape(dialect, Profile::Job, State::Failed);
    answered.push(format!("UPDATE task_state SET {shape} WHERE id = '{id}'"));
    let attempt = |before: &[String], set: &str| Attempt {
        before: before.to_vec(),
        tried: format!("UPDATE approval SET {set}"),
        look: String::new(),
    };
    let once = "an answer is written once";
    let waits =
        if dialect == Dialect::Postgres { "waits for approval" } else { "task waits for it" };
    let delete = |before: &[String]| {
        let tried = "DELETE FROM approval".to_owned();
        (Attempt { before: before.to_vec(), tried, look: String::new() }, "only the retention duty")
    };
    all_refused(
        &world,
        &[
            (attempt(&waiting, &format!("status = 'approved', decided_at = {now}")), waits),
            (attempt(&waiting, &format!("task_id = '{other}'")), once),
            (attempt(&waiting, &format!("id = '{CHANGE}'")), once),
            (attempt(&waiting, "gate = 'other'"), once),
            (attempt(&waiting, "status = 'approved'"), waits),
            (attempt(&answered, "status = 'approved'"), once),
            (attempt(&answered, "status = 'open', decided_at = NULL"), once),
            (attempt(&answered, &format!("decided_at = {now}")), once),
            delete(&waiting),
            delete(&answered),
        ],
    );
}
