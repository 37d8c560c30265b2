//! Idle latency in process: from the call of submit to the start of the handler, beside one synced
//! commit of the same database, and beside the least SQL that writes what a hand-over keeps.

use crate::Result;
use crate::arguments::{Engine, Sizes};
use crate::load;
use crate::place::Place;
use crate::reference;
use crate::table::{Table, met, quantile, times};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use windlass::worker::WorkerOptions;
use windlass::{Engine as Windlass, Options};

/// Between two tasks, and between two commits.
const IDLE: Duration = Duration::from_millis(2);

pub async fn run(engine: &Engine, sizes: &Sizes) -> Result<()> {
    let place = Place::create(engine).await?;
    let windlass = Windlass::start(place.open()?.store().clone(), Options::default()).await?;
    load::raise_limits(&windlass).await?;
    let (started, mut starts) = mpsc::unbounded_channel();
    let options = WorkerOptions::queue("bench", load::QUEUE, 1);
    let worker = windlass.work(options, move |_| {
        let _ = started.send(Instant::now());
        async { Ok(serde_json::Value::Bool(true)) }
    });
    let worker = worker.await?;
    let mut ours = Vec::new();
    let mut commits = Vec::new();
    // The same rows, written by hand on a connection of their own: no rule, no limit, no worker.
    let beside = Place::create(engine).await?;
    let floor = beside.kept(1).await?;
    let mut least = Vec::new();
    // In turns, so that a noisy moment meets both.
    for _ in 0..sizes.latencies.div_ceil(20) {
        for _ in 0..20 {
            let task = load::tasks(1, None)?;
            while windlass.idle_workers() == 0 {
                tokio::time::sleep(Duration::from_micros(200)).await;
            }
            tokio::time::sleep(IDLE).await;
            let asked = Instant::now();
            let (mut submitted, begun) = tokio::join!(windlass.submit(task), starts.recv());
            ours.push(begun.ok_or("the worker is gone")? - asked);
            submitted.pop().ok_or("no outcome")??;
        }
        commits.extend(reference::commit_times(engine, 20, IDLE).await?);
        for task in load::tasks(20, None)? {
            tokio::time::sleep(IDLE).await;
            let asked = Instant::now();
            floor.hand_over(&task).await?;
            least.push(asked.elapsed());
        }
    }
    worker.stop().await;
    windlass.shutdown(Duration::from_secs(5)).await;
    place.remove().await?;
    beside.remove().await?;
    let (most, target) = match engine {
        Engine::Sqlite { .. } => (1.5, "at most 1.5x"),
        Engine::Postgres { .. } => (2.0, "at most 2x"),
    };
    let mut table = Table::new(&[
        "idle, in process",
        "p50 µs",
        "p99 µs",
        "one synced commit p50 µs",
        "ratio of p50",
        "target",
    ]);
    let (p50, commit) = (quantile(&mut ours, 0.5), quantile(&mut commits, 0.5));
    let p99 = quantile(&mut ours, 0.99);
    let ratio = p50 / commit;
    let (least_p50, least_p99) = (quantile(&mut least, 0.5), quantile(&mut least, 0.99));
    table.row(vec![
        "its rows and history by hand, no rules, no worker".into(),
        format!("{least_p50:.0}"),
        format!("{least_p99:.0}"),
        format!("{commit:.0}"),
        times(least_p50 / commit),
        String::new(),
    ]);
    table.row(vec![
        "submit to handler start".into(),
        format!("{p50:.0}"),
        format!("{p99:.0}"),
        format!("{commit:.0}"),
        times(ratio),
        met(ratio <= most, target),
    ]);
    table.print("Latency");
    Ok(())
}
