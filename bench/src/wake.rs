//! How soon a parked task goes on, on an idle system: from its cause to its handler's next line.

use crate::Result;
use crate::arguments::{Engine, Sizes};
use crate::load;
use crate::place::Place;
use crate::table::{Table, met, quantile};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use uuid::Uuid;
use windlass::domain::id::{SignalId, TaskId};
use windlass::domain::state::State;
use windlass::sdk::{Ctx, Handlers, NewChild};
use windlass::worker::WorkerOptions;
use windlass::{Engine as Windlass, Options};
use windlass_domain::request::SubmitRequest;
use windlass_domain::validate;
use windlass_store::signal::{NewSignal, Target};

/// How long the sleepers sleep.
const NAP: Duration = Duration::from_millis(100);

pub async fn run(engine: &Engine, sizes: &Sizes) -> Result<()> {
    let place = Place::create(engine).await?;
    let windlass = Windlass::start(place.open()?.store().clone(), Options::default()).await?;
    load::raise_limits(&windlass).await?;
    let (told, mut telling) = mpsc::unbounded_channel::<Instant>();
    let (asleep, mut sleeping) = mpsc::unbounded_channel::<Instant>();
    let (ended, mut ending) = mpsc::unbounded_channel::<Instant>();
    let tell = told.clone();
    let signal = move |ctx: Ctx, (): ()| {
        let tell = tell.clone();
        async move {
            ctx.wait_signal::<()>("go").await?;
            Ok(tell.send(Instant::now())?)
        }
    };
    let tell = told.clone();
    let nap = move |ctx: Ctx, (): ()| {
        let (tell, asleep) = (tell.clone(), asleep.clone());
        async move {
            if ctx.task().attempt == 1 {
                asleep.send(Instant::now())?;
            }
            ctx.sleep(NAP).await?;
            Ok(tell.send(Instant::now())?)
        }
    };
    let parent = move |ctx: Ctx, (): ()| {
        let tell = told.clone();
        async move {
            let child = ctx.spawn::<()>(NewChild::queue(load::QUEUE).name("child"), &()).await?;
            child.result().await?;
            Ok(tell.send(Instant::now())?)
        }
    };
    let child = move |ctx: Ctx, (): ()| {
        let ended = ended.clone();
        async move {
            // The parent is asleep by then.
            ctx.sleep(NAP).await?;
            Ok(ended.send(Instant::now())?)
        }
    };
    let handlers =
        Handlers::new().on("signal", signal).on("nap", nap).on("parent", parent).on("child", child);
    let options = WorkerOptions::queue("bench", load::QUEUE, 4);
    let worker = windlass.run(options, handlers).await?;
    let (mut by_signal, mut by_time, mut by_child) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..sizes.wakes {
        let id = submit(&windlass, "signal").await?;
        while windlass.tasks().show(id).await?.is_none_or(|task| task.status != State::Waiting) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let asked = Instant::now();
        windlass.signal(go(id)).await?;
        by_signal.push(telling.recv().await.ok_or("the worker is gone")? - asked);
        submit(&windlass, "nap").await?;
        let began = sleeping.recv().await.ok_or("the worker is gone")?;
        let woke = telling.recv().await.ok_or("the worker is gone")?;
        by_time.push((woke - began).saturating_sub(NAP));
        submit(&windlass, "parent").await?;
        let done = ending.recv().await.ok_or("the worker is gone")?;
        by_child.push(telling.recv().await.ok_or("the worker is gone")? - done);
    }
    worker.stop().await;
    windlass.shutdown(Duration::from_secs(5)).await;
    place.remove().await?;
    let mut table = Table::new(&["idle, in process", "p50 ms", "p99 ms", "target for p99"]);
    for (name, mut spent, most) in [
        ("signal to handler", by_signal, 100.0),
        ("another task's end to handler", by_child, 100.0),
        ("time to handler, beyond the time itself", by_time, 1_000.0),
    ] {
        let (p50, p99) = (quantile(&mut spent, 0.5) / 1e3, quantile(&mut spent, 0.99) / 1e3);
        let target = met(p99 <= most, &format!("at most {most:.0} ms"));
        table.row(vec![name.into(), format!("{p50:.1}"), format!("{p99:.1}"), target]);
    }
    table.print("Waking");
    Ok(())
}

fn go(task: TaskId) -> NewSignal {
    NewSignal {
        id: SignalId(Uuid::now_v7()),
        name: "go".into(),
        target: Target::Task(task),
        payload: "null".into(),
        sent_by: load::ACTOR.into(),
    }
}

async fn submit(windlass: &Windlass, name: &str) -> Result<TaskId> {
    let request = SubmitRequest {
        queue: Some(load::QUEUE.into()),
        name: Some(name.into()),
        ..SubmitRequest::default()
    };
    let task = validate::new_task(&request, TaskId(Uuid::now_v7()), "", load::ACTOR)
        .map_err(|wrong| format!("{wrong:?}"))?;
    Ok(windlass.submit(vec![task]).await.pop().ok_or("no outcome")??.id)
}
