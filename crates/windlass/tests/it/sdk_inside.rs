//! What may not be begun inside a step's work, in process: it is refused when it is tried, not
//! when a later attempt fails to come past it.

use crate::sdk::{Ran, ended, named, run, tried_once};
use crate::world::*;
use serde_json::{Value, json};
use std::time::Duration;
use windlass::domain::id::TaskId;
use windlass::domain::state::State;
use windlass::sdk::{Ctx, Failure, Handlers, NewChild, Result, Steps};
use windlass::store::statement::Dialect;

conformance!(
    nothing_durable_begins_inside_a_step,
    nothing_durable_begins_inside_a_function_of_run_steps,
    a_step_inside_one_of_parallel_steps_is_refused,
    what_was_refused_inside_a_step_can_be_done_after_it,
    a_step_tells_checkpoint_and_progress,
);

/// Everything that has a place of its own in a handler, and how a refusal names it.
const DURABLE: [(&str, &str); 6] = [
    ("step", "step `inner`"),
    ("once", "step `inner`"),
    ("sleep", "a wait for a time"),
    ("signal", "a wait for a signal"),
    ("child", "step `spawn inner`"),
    ("approve", "the question at gate `inner`"),
];

async fn begin(ctx: &Ctx, what: &str, ran: &Ran) -> Result<()> {
    let inner = || async {
        ran.note("inner");
        Ok(())
    };
    match what {
        "step" => ctx.step("inner", inner).await,
        "once" => ctx.step("inner", inner).once().await,
        "sleep" => ctx.sleep(Duration::from_secs(3_600)).await,
        "signal" => ctx.wait_signal("inner").await,
        "child" => ctx.spawn::<()>(NewChild::queue("q").name("inner"), &()).await.map(drop),
        "approve" => ctx.approve("inner", "do it", &()).await,
        other => Err(Failure::invalid_input(other)),
    }
}

/// The task failed for what it began inside of `outer`, and nothing is left of it.
async fn refused(world: &World, id: TaskId, inner: &str, ran: &Ran) {
    let task = ended(&world.engine, id).await;
    let error = task.error.unwrap();
    assert_eq!(error.code, "INSIDE_STEP", "{}", error.message);
    let said = format!("{inner} was begun inside the work of step `outer`");
    assert!(error.message.contains(&said), "{}", error.message);
    assert_eq!(world.engine.steps().list(id, 0, 10).await.unwrap(), []);
    assert!(ran.all().is_empty());
}

async fn nothing_durable_begins_inside_a_step(dialect: Dialect) {
    let world = World::new(dialect).await;
    let ran = Ran::default();
    let noted = ran.clone();
    let handler = move |ctx: Ctx, what: String| {
        let ran = noted.clone();
        async move { ctx.step("outer", || begin(&ctx, &what, &ran)).await }
    };
    let _worker = run(&world.engine, Handlers::new().on("t", handler)).await;
    for (what, named) in DURABLE {
        let id = tried_once(&world.engine, "t", json!(what)).await;
        refused(&world, id, named, &ran).await;
    }
}

async fn nothing_durable_begins_inside_a_function_of_run_steps(dialect: Dialect) {
    let world = World::new(dialect).await;
    let ran = Ran::default();
    let noted = ran.clone();
    let handler = move |ctx: Ctx, state: Value| {
        let ran = noted.clone();
        async move {
            let outer = move |ctx: Ctx, state: Value| {
                let ran = ran.clone();
                async move {
                    begin(&ctx, state["what"].as_str().unwrap_or_default(), &ran).await?;
                    Ok(json!({}))
                }
            };
            ctx.run_steps(state, &Steps::new().then("outer", outer)).await
        }
    };
    let _worker = run(&world.engine, Handlers::new().on("t", handler)).await;
    for (what, named) in DURABLE {
        let id = tried_once(&world.engine, "t", json!({ "what": what })).await;
        refused(&world, id, named, &ran).await;
    }
}

async fn a_step_inside_one_of_parallel_steps_is_refused(dialect: Dialect) {
    let world = World::new(dialect).await;
    let ran = Ran::default();
    let noted = ran.clone();
    let handler = move |ctx: Ctx, (): ()| {
        let ran = noted.clone();
        async move {
            let beside = || async {
                tokio::task::yield_now().await;
                Ok(())
            };
            let nested = || begin(&ctx, "step", &ran);
            let both = async {
                tokio::join!(async { ctx.step("beside", beside).await }, async {
                    ctx.step("outer", nested).await
                })
            };
            let (beside, nested) = ctx.parallel(both).await;
            beside?;
            nested
        }
    };
    let _worker = run(&world.engine, Handlers::new().on("t", handler)).await;
    let id = tried_once(&world.engine, "t", json!(null)).await;
    assert_eq!(ended(&world.engine, id).await.error.unwrap().code, "INSIDE_STEP");
    assert!(ran.all().is_empty());
    let steps = world.engine.steps().list(id, 0, 10).await.unwrap();
    assert_eq!(steps.iter().map(|step| step.name.as_str()).collect::<Vec<_>>(), ["beside"]);
}

async fn what_was_refused_inside_a_step_can_be_done_after_it(dialect: Dialect) {
    let world = World::new(dialect).await;
    let ran = Ran::default();
    let noted = ran.clone();
    let handler = move |ctx: Ctx, (): ()| {
        let ran = noted.clone();
        async move {
            let within = || async { Ok(begin(&ctx, "step", &ran).await.is_err()) };
            let refused: bool = ctx.step("outer", within).await?;
            begin(&ctx, "step", &ran).await?;
            if ctx.task().attempt == 1 {
                return Err(Failure::new("TIMEOUT", "again"));
            }
            Ok(refused)
        }
    };
    let _worker = run(&world.engine, Handlers::new().on("t", handler)).await;
    let id = named(&world.engine, "t", json!(null)).await;
    let task = ended(&world.engine, id).await;
    assert_eq!((task.status, task.result), (State::Completed, Some(json!(true))));
    assert_eq!(ran.all(), ["inner"]);
}

async fn a_step_tells_checkpoint_and_progress(dialect: Dialect) {
    let world = World::new(dialect).await;
    let handler = |ctx: Ctx, (): ()| async move {
        let work = || async {
            ctx.checkpoint(&7).await?;
            ctx.progress(&"half").await
        };
        ctx.step("outer", work).await
    };
    let _worker = run(&world.engine, Handlers::new().on("t", handler)).await;
    let id = named(&world.engine, "t", json!(null)).await;
    let task = ended(&world.engine, id).await;
    assert_eq!((task.checkpoint, task.progress), (Some(json!(7)), Some(json!("half"))));
}
