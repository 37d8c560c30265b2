//! Failures that hold more than can be kept, in process: as much of each is told as can be.

use crate::sdk::{Ran, ended, named, run, tried_once};
use crate::world::*;
use serde_json::{Value, json};
use std::time::Duration;
use windlass::domain::failure::MAX_MESSAGE_BYTES;
use windlass::domain::state::State;
use windlass::domain::usage::Usage;
use windlass::sdk::{Ctx, Failure, Handlers, Result};
use windlass::store::statement::Dialect;

conformance!(
    a_failure_that_cannot_be_kept_as_it_is_is_told_all_the_same,
    a_step_without_effect_runs_again_whatever_its_failure_holds,
    usage_that_cannot_be_kept_costs_no_result,
);

/// The whole answer of a service, and a pause that nobody waits for.
fn overfull() -> Failure {
    Failure::new("rate limited", format!("\0{}", "é".repeat(MAX_MESSAGE_BYTES)))
        .detail(json!("\0".repeat(300_000)))
        .retry_after(Duration::MAX)
}

async fn a_failure_that_cannot_be_kept_as_it_is_is_told_all_the_same(dialect: Dialect) {
    let world = World::new(dialect).await;
    let handler = async |_: Ctx, (): ()| Err::<(), _>(overfull());
    let _worker = run(&world.engine, Handlers::new().on("t", handler)).await;
    let id = tried_once(&world.engine, "t", Value::Null).await;
    let error = ended(&world.engine, id).await.error.unwrap();
    assert_eq!((error.code.as_str(), error.validate()), ("rate_limited", Ok(())));
    assert!(error.message.starts_with("\u{fffd}éé"), "{}", error.code);
}

async fn a_step_without_effect_runs_again_whatever_its_failure_holds(dialect: Dialect) {
    let world = World::new(dialect).await;
    let ran = Ran::default();
    let noted = ran.clone();
    let handler = move |ctx: Ctx, (): ()| {
        let ran = noted.clone();
        async move {
            let charge = || async {
                ran.note("charge");
                if ran.all().len() < 2 { Err(overfull().no_effect()) } else { Ok("paid") }
            };
            let charge = || async { charge().await.map(str::to_owned) };
            let paid: Result<String> = ctx.step("charge", charge).once().await;
            paid.map_err(|failure| failure.retry_after(Duration::ZERO))
        }
    };
    let _worker = run(&world.engine, Handlers::new().on("t", handler)).await;
    let id = named(&world.engine, "t", Value::Null).await;
    assert_eq!(ended(&world.engine, id).await.result, Some(json!("paid")));
    assert_eq!(ran.all(), ["charge", "charge"]);
}

async fn usage_that_cannot_be_kept_costs_no_result(dialect: Dialect) {
    let world = World::new(dialect).await;
    let handler = async |ctx: Ctx, (): ()| {
        ctx.add_usage(&Usage { total_tokens: u64::MAX, ..Usage::default() });
        let others = [("a\nb".to_owned(), 1)].into();
        ctx.add_usage(&Usage { others, ..Usage::default() });
        Ok(1)
    };
    let _worker = run(&world.engine, Handlers::new().on("t", handler)).await;
    let id = named(&world.engine, "t", Value::Null).await;
    let task = ended(&world.engine, id).await;
    assert_eq!((task.status, task.result), (State::Completed, Some(json!(1))));
    let usage = task.usage.unwrap();
    assert_eq!((usage.total_tokens, usage.others.len()), ((1 << 53) - 1, 0));
}
