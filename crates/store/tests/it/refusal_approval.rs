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
    an_approval_is_open_only_while_its_task_waits_for_it,
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
        if dialect == Dialect::Postgres { "no open approval" } else { "its open approval must" };
    let mut of_other = running.clone();
    of_other.extend(to(dialect, other, State::WaitingForApproval));
    let mut closed = to(dialect, id, State::WaitingForApproval);
    for state in [State::Pending, State::Running] {
        let shape = shape(dialect, Profile::Job, state);
        closed.push(format!("UPDATE task_state SET {shape} WHERE id = '{id}'"));
    }
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
            (attempt(of_other, &waits), words),
            (attempt(closed, &waits), words),
            (attempt(waiting.clone(), &swap), words),
            (attempt(waiting.clone(), &truth), words),
            (attempt(waiting, &gone), words),
        ],
    );
    // It brings its question along.
    let look = format!("SELECT gate, status FROM approval WHERE task_id = '{id}'");
    let asked = all_accepted(&world, &[Attempt { look, ..attempt(running, &waits) }]);
    assert_eq!(asked, ["by hand|open"]);
}

/// An approval could stay open for a task that never waited for it, or was over.
async fn an_approval_is_open_only_while_its_task_waits_for_it(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    let ask = open_approval(dialect, held.task.id);
    let said = world.by_hand(&format!("BEGIN; {ask}; COMMIT;")).unwrap_err();
    assert!(said.contains("wait for it"), "{said}");
    assert_eq!(world.by_hand("SELECT count(*) FROM approval").unwrap(), "0");
    let approval = world.ask_approval(&held).await.unwrap();
    let open = format!("SELECT status FROM approval WHERE id = '{approval}'");
    assert_eq!(world.by_hand(&open).unwrap(), "open");
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
    let attempt = |before: &[String], tried: &str| Attempt {
        before: before.to_vec(),
        tried: tried.into(),
        look: String::new(),
    };
    let begins = if dialect == Dialect::Postgres { "begins open" } else { "it begins open" };
    attempts.push((attempt(&running, &approved), begins));
    let second = ask.replace(APPROVAL, CHANGE);
    if dialect == Dialect::Postgres {
        let asked = [running, vec![ask]].concat();
        attempts.push((attempt(&asked, &second), "approval_open"));
    } else {
        let waiting = to(dialect, id, State::WaitingForApproval);
        let replace = second.replace("INSERT", "INSERT OR REPLACE");
        attempts.push((attempt(&waiting, &replace), "windlass: approval: "));
        let same = ask.replace("INSERT", "INSERT OR REPLACE");
        attempts.push((attempt(&waiting, &same), "the task has an open one"));
        let rowid = second.replace("(id", "(rowid, id").replace("VALUES (", "VALUES (1, ");
        let rowid = rowid.replace("INSERT", "INSERT OR REPLACE");
        attempts.push((attempt(&waiting, &rowid), "windlass: "));
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
