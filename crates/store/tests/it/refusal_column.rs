//! What a person may not do to a task's columns, in any state.

use crate::hand::{Attempt, all_accepted, all_refused};
use crate::refusal::{APPROVAL, CHANGE, LEASE, instant, new_task, path};
use crate::world::*;
use windlass_domain::id::TaskId;
use windlass_domain::profile::Profile;
use windlass_domain::state::State;
use windlass_store::statement::Dialect;

conformance!(
    a_statement_that_lies_about_the_past_is_corrected_or_refused,
    nothing_in_a_finished_task_changes,
    what_was_submitted_never_changes,
    each_state_has_exactly_its_columns,
    counters_keep_their_bounds,
    a_task_begins_once_and_as_pending,
    one_illegal_row_undoes_the_whole_statement,
    a_touch_by_hand_is_stamped_and_leaves_no_history,
    a_postponed_task_is_not_claimed_before_its_time,
);

/// Brings the job to `state`, then tries `set`.
pub fn in_state(dialect: Dialect, id: TaskId, state: State, set: &str) -> Attempt {
    let before = path(dialect, id, Profile::Job, state).expect("a job gets there");
    let tried = format!("UPDATE task_state SET {set} WHERE id = '{id}'");
    Attempt { before, tried, look: String::new() }
}

fn columns(world: &World, table: &str) -> Vec<String> {
    let sql = match world.dialect() {
        Dialect::Postgres => format!(
            "SELECT attname FROM pg_attribute WHERE attrelid = '{table}'::regclass
             AND attnum > 0 AND attgenerated = ''"
        ),
        Dialect::Sqlite => format!("SELECT name FROM pragma_table_info('{table}')"),
    };
    world.by_hand(&sql).unwrap().lines().map(str::to_owned).collect()
}

async fn a_statement_that_lies_about_the_past_is_corrected_or_refused(dialect: Dialect) {
    let world = World::new(dialect).await;
    let id = world.submit(job()).await;
    let held = format!(
        "lease_id = '{LEASE}', lease_expires_at = {}, claimed_by = 'me', ready = FALSE",
        instant(dialect, NOON)
    );
    let no_lease = "lease_id = NULL, lease_expires_at = NULL";
    // A fresh change and a state before that never was.
    all_refused(
        &world,
        &[
            (
                in_state(
                    dialect,
                    id,
                    State::Pending,
                    &format!(
                        "status = 'completed', from_status = 'running', event = 'complete',
                         change_id = '{CHANGE}', ready = FALSE"
                    ),
                ),
                "windlass: ",
            ),
            (
                in_state(
                    dialect,
                    id,
                    State::Waiting,
                    &format!(
                        "status = 'retry', from_status = 'running', event = 'fail',
                         change_id = '{CHANGE}'"
                    ),
                ),
                "windlass: ",
            ),
            // The truth about the past, and an event that does not lead there.
            (
                in_state(
                    dialect,
                    id,
                    State::Running,
                    &format!(
                        "status = 'completed', from_status = 'running', event = 'cancel',
                         change_id = '{CHANGE}', {no_lease}"
                    ),
                ),
                "legal_transition",
            ),
            (
                in_state(
                    dialect,
                    id,
                    State::Completed,
                    &format!(
                        "status = 'running', from_status = 'completed', event = 'claim',
                         change_id = '{CHANGE}', result = NULL, {held}"
                    ),
                ),
                "legal_transition",
            ),
        ],
    );
    // A lie that amounts to a legal change is told as what it is.
    let lie = format!(
        "status = 'running', from_status = 'retry', event = 'start', actor = 'somebody else',
         reason = 'because', change_id = '{CHANGE}', {held}"
    );
    let attempt = in_state(dialect, id, State::Pending, &lie).look(format!(
        "SELECT from_status, event, to_status, substr(actor, 1, 4), coalesce(reason, 'none')
         FROM task_history WHERE task_id = '{id}' ORDER BY seq DESC LIMIT 1"
    ));
    assert_eq!(all_accepted(&world, &[attempt]), ["pending|claim|running|sql:|none"]);
}

async fn nothing_in_a_finished_task_changes(dialect: Dialect) {
    let world = World::new(dialect).await;
    let id = world.submit(job()).await;
    let delegated = world.submit(new_task(Profile::Delegation)).await;
    let ends = [State::Completed, State::Failed, State::Cancelled, State::Poisoned, State::Stuck];
    let mut attempts = Vec::new();
    for end in ends {
        let profile = if end == State::Stuck { Profile::Delegation } else { Profile::Job };
        let task = if end == State::Stuck { delegated } else { id };
        let before = path(dialect, task, profile, end).expect("an end");
        for column in columns(&world, "task_state") {
            let update = |set: String| Attempt {
                before: before.clone(),
                tried: format!("UPDATE task_state SET {set} WHERE id = '{task}'"),
                look: String::new(),
            };
            attempts
                .push((update(format!("{column} = {column}")), "a finished task never changes"));
            if column != "from_status" && column != "change_id" {
                let true_story = format!("from_status = status, change_id = '{CHANGE}'");
                let set = format!("{column} = {column}, {true_story}");
                attempts.push((update(set), "legal_transition"));
            }
        }
    }
    assert!(attempts.len() > 300);
    all_refused(&world, &attempts);
}

async fn what_was_submitted_never_changes(dialect: Dialect) {
    let world = World::new(dialect).await;
    let id = world.submit(task(|r| r.tags = Some([("k".into(), "v".into())].into()))).await;
    let mut attempts: Vec<(Attempt, &str)> = columns(&world, "task_spec")
        .into_iter()
        .map(|column| {
            let sql = format!("UPDATE task_spec SET {column} = {column} WHERE id = '{id}'");
            (Attempt::new(sql), "what was submitted never changes")
        })
        .collect();
    let later = instant(dialect, NOON + 1);
    let sets = [
        format!("id = '{CHANGE}'"),
        "profile = 'inference'".into(),
        "queue = 'other'".into(),
        format!("created_at = {later}"),
        "max_retries = 7".into(),
    ];
    for state in State::ALL.iter().filter(|s| !s.is_terminal()) {
        for set in &sets {
            let with_truth = format!("{set}, from_status = status, change_id = '{CHANGE}'");
            for set in [set, &with_truth] {
                let words = "what was submitted never changes";
                attempts.push((in_state(dialect, id, *state, set), words));
            }
        }
    }
    let tag = "what was submitted never changes";
    attempts.push((Attempt::new("UPDATE task_tag SET value = 'w'"), tag));
    let tag = "INSERT INTO task_tag SELECT 'k', 'w', created_at, task_id FROM task_tag";
    attempts.push((Attempt::new(tag), "the database writes it"));
    attempts.push((Attempt::new("DELETE FROM task_tag"), "only the retention duty"));
    attempts.push((Attempt::new("DELETE FROM task_spec"), "only the retention duty"));
    attempts.push((Attempt::new("DELETE FROM task_state"), "only the retention duty"));
    all_refused(&world, &attempts);
}

async fn each_state_has_exactly_its_columns(dialect: Dialect) {
    let world = World::new(dialect).await;
    let id = world.submit(job()).await;
    let now = instant(dialect, NOON);
    let mut attempts = Vec::new();
    for &state in State::ALL.iter().filter(|s| !s.is_terminal()) {
        let mut wrong =
            |set: &str, words| attempts.push((in_state(dialect, id, state, set), words));
        let generated =
            if dialect == Dialect::Postgres { "finished_at" } else { "generated column" };
        wrong(&format!("finished_at = {now}"), generated);
        wrong("run_at = NULL", "run_at");
        wrong("updated_at = updated_at, result = '{}'", "result_only_when_completed");
        if state.is_held() {
            wrong("lease_id = NULL", "lease_only_while_held");
            wrong("lease_expires_at = NULL", "lease_expiry_only_while_held");
            wrong("claimed_by = NULL", "holder_while_held");
        } else {
            wrong(&format!("lease_id = '{LEASE}'"), "lease_only_while_held");
            wrong("claimed_by = 'me'", "holder_while_held");
            wrong(&format!("lease_expires_at = {now}"), "lease_expiry_only_while_held");
        }
        if state != State::WaitingForApproval {
            wrong(&format!("approval_id = '{APPROVAL}'"), "approval_exactly_while_waiting_for_it");
        }
        if !state.is_claimable() {
            wrong(
                &format!("ready = TRUE, from_status = status, change_id = '{CHANGE}'"),
                "ready_only_when_claimable",
            );
        }
        let ends = format!("status = 'failed', error = NULL, ready = FALSE, {NO_HOLD}");
        wrong(&ends, "error_says_why_it_ended");
    }
    let poisoned = format!("status = 'poisoned', error = NULL, ready = FALSE, {NO_HOLD}");
    attempts.push((in_state(dialect, id, State::Running, &poisoned), "error_says_why_it_ended"));
    let ready = "ready = TRUE";
    all_refused(&world, &attempts);
    let delegated = world.submit(new_task(Profile::Delegation)).await;
    let ledger = world.submit(new_task(Profile::Ledger)).await;
    let stuck = format!("status = 'stuck', error = NULL, ready = FALSE, {NO_HOLD}");
    let before = path(dialect, delegated, Profile::Delegation, State::Running).expect("runs");
    let of = |id, set: &str| format!("UPDATE task_state SET {set} WHERE id = '{id}'");
    let stuck = Attempt { before, tried: of(delegated, &stuck), look: String::new() };
    let before = path(dialect, ledger, Profile::Ledger, State::Running).expect("runs");
    let lease = of(ledger, &format!("lease_id = '{LEASE}'"));
    all_refused(
        &world,
        &[
            (stuck, "error_says_why_it_ended"),
            (Attempt::new(of(ledger, ready)), "ready_only_when_claimable"),
            (Attempt { before, tried: lease, look: String::new() }, "lease_only_while_held"),
        ],
    );
}

/// Nobody holds the task, and it waits for nobody.
pub const NO_HOLD: &str = "lease_id = NULL, lease_expires_at = NULL, approval_id = NULL";

async fn counters_keep_their_bounds(dialect: Dialect) {
    let world = World::new(dialect).await;
    let id = world.submit(job()).await;
    let bounded = |set: &str, words| (in_state(dialect, id, State::Running, set), words);
    let ends = "status = 'cancelled', lease_id = NULL, lease_expires_at = NULL";
    let now = instant(dialect, NOON);
    let insert = |max: i64| {
        Attempt::new(format!(
            "INSERT INTO task_state (id, profile, queue, change_id, actor, ready, order_key, run_at,
                 max_retries, created_at, entered_at, updated_at)
             VALUES ('{CHANGE}', 'job', 'q', '{CHANGE}', 'me', TRUE, 1, {now}, {max}, {now}, {now},
                 {now})"
        ))
    };
    all_refused(
        &world,
        &[
            bounded("retry_count = 4", "retries_are_bounded"),
            bounded("retry_count = -1", "retries_are_bounded"),
            bounded(&format!("attempt = -1, {ends}"), "counters_are_bounded"),
            bounded(&format!("attempt = 1000000001, {ends}"), "counters_are_bounded"),
            bounded("release_count = -1", "counters_are_bounded"),
            bounded("release_count = 21", "counters_are_bounded"),
            (insert(101), "retries_are_bounded"),
            (insert(-1), "retries_are_bounded"),
        ],
    );
    all_accepted(&world, &[bounded("retry_count = 3", "").0]);
}

async fn a_task_begins_once_and_as_pending(dialect: Dialect) {
    let world = World::new(dialect).await;
    let id = world.submit(job()).await;
    let now = instant(dialect, NOON);
    let insert = |id: &str, more: &str, values: &str| {
        format!(
            "INSERT INTO task_state (id, profile, queue, change_id, actor, ready, order_key, run_at,
                 max_retries, created_at, entered_at, updated_at{more})
             VALUES ('{id}', 'job', 'q', '{CHANGE}', 'me', FALSE, 1, {now}, 3, {now}, {now},
                 {now}{values})"
        )
    };
    let id = id.to_string();
    let again = if dialect == Dialect::Postgres { "task_state_pkey" } else { "begins once" };
    let upsert =
        format!("{} ON CONFLICT (id) DO UPDATE SET status = 'completed'", insert(&id, "", ""));
    let mut attempts =
        vec![(Attempt::new(insert(&id, "", "")), again), (Attempt::new(upsert), "windlass: ")];
    for &state in State::ALL.iter().filter(|&&s| s != State::Pending) {
        let held = state.is_held();
        let value = |holds: bool, v: &str| if holds { v.to_owned() } else { "NULL".to_owned() };
        let values = format!(
            ", '{state}', {}, {}, {}, {}",
            value(held, &format!("'{LEASE}'")),
            value(held, &now),
            value(held || state.is_terminal(), "'me'"),
            value(state.needs_error(), "'{\"code\":\"X\"}'"),
        );
        let more = ", status, lease_id, lease_expires_at, claimed_by, error";
        attempts.push((Attempt::new(insert(CHANGE, more, &values)), "legal_transition"));
        let more = format!("{more}, from_status, event");
        let values = format!("{values}, 'running', 'complete'");
        attempts.push((Attempt::new(insert(CHANGE, &more, &values)), "a task begins"));
    }
    attempts[2..].iter_mut().filter(|(a, _)| a.tried.contains("waiting_for")).for_each(|a| {
        let begins = a.0.tried.contains("from_status");
        a.1 = if begins { "a task begins" } else { "_" };
    });
    all_refused(&world, &attempts);
}

async fn one_illegal_row_undoes_the_whole_statement(dialect: Dialect) {
    let world = World::new(dialect).await;
    let done = world.running(job()).await;
    world.finish(&done, complete()).await.unwrap();
    for _ in 0..5 {
        world.submit(job()).await;
    }
    let said = world.by_hand("UPDATE task_state SET status = 'cancelled', ready = FALSE");
    assert!(said.unwrap_err().contains("a finished task never changes"));
    let count = "SELECT count(*) FROM task WHERE status = 'pending'";
    assert_eq!(world.by_hand(count).unwrap(), "5");
    assert_eq!(world.by_hand("SELECT count(*) FROM task_history").unwrap(), "8");
}

async fn a_touch_by_hand_is_stamped_and_leaves_no_history(dialect: Dialect) {
    let world = World::new(dialect).await;
    let id = world.submit(job()).await;
    let before = instant(dialect, NOON);
    let set =
        format!("order_key = 5, event = 'cancel', updated_at = {before}, entered_at = {before}");
    let attempt = in_state(dialect, id, State::Waiting, &set).look(format!(
        "SELECT s.order_key, s.event, s.from_status, substr(s.actor, 1, 4),
             CASE WHEN s.updated_at = {before} THEN 'old' ELSE 'stamped' END,
             CASE WHEN s.entered_at = {before} THEN 'old' ELSE 'kept' END,
             (SELECT count(*) FROM task_history h WHERE h.task_id = s.id)
         FROM task_state s WHERE s.id = '{id}'"
    ));
    let seen = all_accepted(&world, &[attempt]);
    assert_eq!(seen, ["5|wait|waiting|sql:|stamped|kept|3"]);
}

async fn a_postponed_task_is_not_claimed_before_its_time(dialect: Dialect) {
    let world = World::with_real_clock(dialect).await;
    let id = world.submit(job()).await;
    let later = match dialect {
        Dialect::Postgres => "clock_timestamp() + interval '1 hour'",
        Dialect::Sqlite => "CAST(unixepoch('now') + 3600 AS INTEGER) * 1000",
    };
    world.by_hand(&format!("UPDATE task_state SET run_at = {later} WHERE id = '{id}'")).unwrap();
    assert!(world.claim("w1", 1).await.is_empty());
    let now = later.replace("+ interval '1 hour'", "").replace("+ 3600", "- 1");
    world.by_hand(&format!("UPDATE task_state SET run_at = {now} WHERE id = '{id}'")).unwrap();
    assert_eq!(world.claim("w1", 1).await.len(), 1);
}
