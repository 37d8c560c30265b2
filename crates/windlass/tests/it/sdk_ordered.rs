//! Steps in an order beside other things that keep checkpoints: what stands there is not always
//! theirs, and then what was recorded of each step says where they go on.

use crate::sdk::{Ran, ended, named, run};
use crate::world::*;
use serde_json::{Value, json};
use windlass::domain::state::State;
use windlass::sdk::{Ctx, Failure, Handlers, Result, Steps};
use windlass::store::statement::Dialect;

conformance!(
    a_function_that_keeps_a_checkpoint_does_not_stop_its_steps,
    one_list_of_steps_after_another_goes_on_where_it_stopped,
);

/// Notes that it ran, and fails in the first attempt if it is told to.
async fn work(ctx: Ctx, ran: Ran, name: &'static str, fails: bool) -> Result<Value> {
    ran.note(name);
    if fails && ctx.task().attempt == 1 {
        return Err(Failure::new("TIMEOUT", "again"));
    }
    Ok(json!({ name: true, "last": name }))
}

/// A function may keep a checkpoint; the next attempt could not read it, and failed until the task
/// was poisoned.
async fn a_function_that_keeps_a_checkpoint_does_not_stop_its_steps(dialect: Dialect) {
    let world = World::new(dialect).await;
    let ran = Ran::default();
    let noted = ran.clone();
    let handler = move |ctx: Ctx, state: Value| {
        let [a, b] = [noted.clone(), noted.clone()];
        async move {
            let steps = Steps::new()
                .then("a", move |ctx, _| work(ctx, a.clone(), "a", false))
                .then("b", move |ctx, _| {
                    let ran = b.clone();
                    async move {
                        ctx.checkpoint(&json!({ "page": 3 })).await?;
                        work(ctx, ran, "b", true).await
                    }
                });
            ctx.run_steps(state, &steps).await
        }
    };
    let _worker = run(&world.engine, Handlers::new().on("t", handler)).await;
    let id = named(&world.engine, "t", json!({ "n": 1 })).await;
    let task = ended(&world.engine, id).await;
    assert_eq!(task.status, State::Completed, "{:?}", task.error);
    assert_eq!(task.result, Some(json!({ "n": 1, "a": true, "b": true, "last": "b" })));
    assert_eq!(ran.all(), ["a", "b", "b"]);
}

/// The first list took the checkpoint of the second for its own: a mismatch where the names differ,
/// and the other's state where they are the same. A step of the name of one that was gone past was
/// answered with what that had recorded.
async fn one_list_of_steps_after_another_goes_on_where_it_stopped(dialect: Dialect) {
    let world = World::new(dialect).await;
    let ran = Ran::default();
    let noted = ran.clone();
    let handler = move |ctx: Ctx, (): ()| {
        let noted = noted.clone();
        async move {
            let mut states = Vec::new();
            for (list, second) in [(1, "b"), (2, "c")] {
                let [x, y] = [noted.clone(), noted.clone()];
                let steps = Steps::new()
                    .then("a", move |ctx, _| work(ctx, x.clone(), "a", false))
                    .then(second, move |ctx, _| work(ctx, y.clone(), second, list == 2));
                states.push(ctx.run_steps(json!({ "list": list }), &steps).await?);
            }
            let last: u64 = ctx.step("a", || async { Ok(7) }).await?;
            Ok((states, last))
        }
    };
    let _worker = run(&world.engine, Handlers::new().on("t", handler)).await;
    let id = named(&world.engine, "t", json!(null)).await;
    let task = ended(&world.engine, id).await;
    assert_eq!(task.status, State::Completed, "{:?}", task.error);
    let expected = json!([
        { "list": 1, "a": true, "b": true, "last": "b" },
        { "list": 2, "a": true, "c": true, "last": "c" },
    ]);
    assert_eq!(task.result, Some(json!([expected, 7])));
    assert_eq!(ran.all(), ["a", "b", "a", "c", "c"]);
}
