//! Durable steps in process: how many a second with many tasks in flight, and whether a step costs
//! more when a task has many behind it.
//!
//! Prints a JSON line for `bench/run` and `bench/steps`, which put it beside the peers' in the same
//! run.

use crate::Result;
use crate::arguments::{Engine, Sizes};
use crate::load;
use crate::place::Place;
use crate::table::{Table, met, quantile, times};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use uuid::Uuid;
use windlass::domain::id::TaskId;
use windlass::domain::state::State;
use windlass::sdk::{Ctx, Handlers};
use windlass::worker::WorkerOptions;
use windlass::{Engine as Windlass, Options};
use windlass_domain::request::SubmitRequest;
use windlass_domain::task::NewTask;
use windlass_domain::validate;

/// How often the long task is run.
const LONG_TASKS: usize = 3;

fn number(name: &str, otherwise: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

pub async fn run(engine: &Engine, sizes: &Sizes) -> Result<()> {
    let workflows = number("BENCH_WORKFLOWS", sizes.workflows);
    let steps = number("BENCH_STEPS", 10);
    let in_flight = number("BENCH_IN_FLIGHT", 64);
    let place = Place::create(engine).await?;
    let windlass = Windlass::start(place.open()?.store().clone(), Options::default()).await?;
    load::raise_limits(&windlass).await?;
    let options = WorkerOptions::queue("bench", load::QUEUE, in_flight.try_into()?);
    let workflow = move |ctx: Ctx, n: usize| async move {
        let mut sum = 0;
        for step in 0..steps {
            sum += ctx.step(format!("step {step}"), || async { Ok(n + step) }).await?;
        }
        Ok(sum)
    };
    let worker = windlass.run(options, Handlers::new().on("workflow", workflow)).await?;
    // A warm-up as wide as the load.
    all_done(&windlass, &tasks("workflow", in_flight)?).await?;
    let work = tasks("workflow", workflows)?;
    let began = Instant::now();
    all_done(&windlass, &work).await?;
    let took = began.elapsed();
    worker.stop().await;
    check(&windlass, &work, steps).await?;
    let per_second = (workflows * steps) as f64 / took.as_secs_f64();
    let system =
        format!("windlass-{}", engine.name().to_lowercase().replace("postgresql", "postgres"));
    println!(
        "{}",
        serde_json::json!({ "system": system, "workflows": workflows, "steps": steps,
            "in_flight": in_flight, "seconds": took.as_secs_f64(), "steps_per_s": per_second })
    );
    // A driver that says how many workflows it wants has no use for the other table.
    if std::env::var_os("BENCH_WORKFLOWS").is_none() {
        growth(&windlass, sizes).await?;
    }
    windlass.shutdown(Duration::from_secs(5)).await;
    place.remove().await
}

fn tasks(name: &str, count: usize) -> Result<Vec<NewTask>> {
    let task = |n| {
        let request = SubmitRequest {
            queue: Some(load::QUEUE.into()),
            name: Some(name.into()),
            venture: Some("bench".into()),
            stage: Some("run".into()),
            payload: serde_json::json!(n),
            ..SubmitRequest::default()
        };
        validate::new_task(&request, TaskId(Uuid::now_v7()), "", load::ACTOR)
            .map_err(|wrong| format!("{wrong:?}").into())
    };
    (0..count).map(task).collect()
}

/// Submits, and waits until each is seen to be completed.
async fn all_done(windlass: &Windlass, work: &[NewTask]) -> Result<()> {
    for batch in work.chunks(1_000) {
        for outcome in windlass.submit(batch.to_vec()).await {
            outcome?;
        }
    }
    let mut waits = JoinSet::new();
    for task in work {
        let (windlass, id) = (windlass.clone(), task.id);
        waits.spawn(async move { windlass.wait_for(id, Duration::from_secs(120)).await });
    }
    while let Some(waited) = waits.join_next().await {
        let status = waited??.task.status;
        if status != State::Completed {
            return Err(format!("a workflow is {status}").into());
        }
    }
    Ok(())
}

/// A run counts only if every step was kept.
async fn check(windlass: &Windlass, work: &[NewTask], steps: usize) -> Result<()> {
    for task in work {
        let kept = windlass.steps().list(task.id, 0, steps as i64 + 1).await?.len();
        if kept != steps {
            return Err(format!("{kept} steps were kept, not {steps}").into());
        }
    }
    Ok(())
}

/// The cost of a step does not grow with the number of steps behind it.
async fn growth(windlass: &Windlass, sizes: &Sizes) -> Result<()> {
    let length = sizes.long_task;
    let spent: Arc<Mutex<Vec<Vec<Duration>>>> = Arc::default();
    let told = Arc::clone(&spent);
    let long = move |ctx: Ctx, _: usize| {
        let told = Arc::clone(&told);
        async move {
            let mut spent = Vec::with_capacity(length);
            for step in 0..length {
                let began = Instant::now();
                ctx.step("step", || async { Ok(step) }).inputs(&step).await?;
                spent.push(began.elapsed());
            }
            told.lock().unwrap_or_else(PoisonError::into_inner).push(spent);
            Ok(())
        }
    };
    let options = WorkerOptions::queue("long", load::QUEUE, 1);
    let worker = windlass.run(options, Handlers::new().on("long", long)).await?;
    all_done(windlass, &tasks("long", LONG_TASKS)?).await?;
    worker.stop().await;
    let spent = spent.lock().unwrap_or_else(PoisonError::into_inner);
    // A neighbourhood of each place, because a single step is at the mercy of the disk.
    let around = |from: usize, to: usize| {
        let mut all: Vec<Duration> =
            spent.iter().flat_map(|task| task[from.min(length)..to.min(length)].to_vec()).collect();
        quantile(&mut all, 0.5)
    };
    let (early, late) = (around(5, 55), around(length.saturating_sub(50), length));
    let ratio = late / early;
    let mut table = Table::new(&["one task's steps, one by one", "p50 µs", "ratio", "target"]);
    table.row(vec!["around the 10th".into(), format!("{early:.0}"), String::new(), String::new()]);
    let target = met(ratio <= 1.5, "at most 1.5x");
    table.row(vec![format!("around the {length}th"), format!("{late:.0}"), times(ratio), target]);
    table.print("The cost of a step");
    Ok(())
}
