//! JSON by hand: what no reader would understand, and what a finished task told.

use crate::hand::{Attempt, all_accepted, all_refused};
use crate::refusal::{CHANGE, instant, path};
use crate::refusal_column::{NO_HOLD, in_state};
use crate::world::*;
use windlass_domain::profile::Profile;
use windlass_domain::state::State;
use windlass_store::statement::Dialect;

conformance!(an_error_that_no_reader_understands_is_refused, progress_belongs_to_a_living_task);

async fn an_error_that_no_reader_understands_is_refused(dialect: Dialect) {
    let world = World::new(dialect).await;
    let id = world.submit(job()).await;
    let failed = |error: &str| {
        let set = format!("status = 'failed', error = '{error}', ready = FALSE, {NO_HOLD}");
        in_state(dialect, id, State::Running, &set)
    };
    let mut attempts: Vec<_> = [
        "\"oops\"",
        "{}",
        "[]",
        "null",
        "{\"code\": 1}",
        "{\"code\": \"X\", \"message\": 3}",
        "{\"code\": \"X\", \"more\": 1}",
    ]
    .into_iter()
    .map(|error| (failed(error), "error_has_a_code"))
    .collect();
    attempts.push((failed("{\"code\": \"X\", \"detail\": [1e400]}"), "64-bit float"));
    let huge = format!("status = 'completed', result = '[-1e999]', ready = FALSE, {NO_HOLD}");
    attempts.push((in_state(dialect, id, State::Running, &huge), "64-bit float"));
    all_refused(&world, &attempts);
    all_accepted(
        &world,
        &[failed("{\"code\": \"X\"}"), failed("{\"code\":\"X\",\"detail\":null}")],
    );
}

async fn progress_belongs_to_a_living_task(dialect: Dialect) {
    let world = World::new(dialect).await;
    let (id, other) = (world.submit(job()).await, world.submit(job()).await);
    let now = instant(dialect, NOON);
    let insert = |json: &str| {
        format!(
            "INSERT INTO task_progress (task_id, checkpoint, updated_at)
             VALUES ('{id}', {json}, {now})"
        )
    };
    let kept = insert("'{\"step\": 1}'");
    let end = path(dialect, id, Profile::Job, State::Completed).expect("an end");
    let ended = |tried: String| {
        let before = [vec![kept.clone()], end.clone()].concat();
        Attempt { before, tried, look: String::new() }
    };
    let large = match dialect {
        Dialect::Postgres => "to_jsonb(repeat('x', 4194304))",
        Dialect::Sqlite => "json_quote(replace(hex(zeroblob(2097152)), '0', 'x'))",
    };
    let finished = "finished or unknown";
    let moved = if dialect == Dialect::Postgres { "cannot be given" } else { finished };
    let upsert = "ON CONFLICT (task_id) DO UPDATE SET checkpoint = '2'";
    let unknown = kept.replace(&id.to_string(), CHANGE);
    all_refused(
        &world,
        &[
            (Attempt { before: end.clone(), tried: kept.clone(), look: String::new() }, finished),
            (ended("UPDATE task_progress SET checkpoint = '2'".into()), finished),
            (ended(format!("{kept} {upsert}")), finished),
            (ended(format!("UPDATE task_progress SET task_id = '{other}'")), moved),
            (ended("DELETE FROM task_progress".into()), "only the retention duty"),
            (Attempt::new(unknown), finished),
            (Attempt::new(insert(large)), "checkpoint_is_bounded"),
            (Attempt::new(insert(large).replace("checkpoint", "progress")), "progress_is_bounded"),
        ],
    );
}
