//! The drain while somebody holds an old snapshot, which keeps dead entries in every index.
//!
//! Two databases on one server take turns, one of them with a snapshot held open from before its
//! first task to the end: a snapshot of one database does not hold back the other's rows.

use crate::Result;
use crate::arguments::{Engine, Sizes};
use crate::load::{self, Shape};
use crate::place::{self, Place};
use crate::side::Side;
use crate::table::{Table, median, met, percent, rate, whole};
use std::time::Instant;

const HOLD: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM task_state";
/// Of the undisturbed drain.
const TARGET: f64 = 0.7;
/// The rounds at the end that count.
const LAST: usize = 3;

pub async fn run(engine: &Engine, sizes: &Sizes) -> Result<()> {
    let (free, held) = (Place::create(engine).await?, Place::create(engine).await?);
    let (undisturbed, disturbed) = (free.ours()?, held.ours()?);
    for side in [&undisturbed, &disturbed] {
        round(side, 400).await?;
    }
    let holder = place::connect(&held.url()).await?;
    holder.batch_execute(HOLD).await?;
    let started = Instant::now();
    let mut rounds = Vec::new();
    while rounds.len() < LAST || started.elapsed() < sizes.snapshot {
        let without = round(&undisturbed, sizes.snapshot_tasks).await?;
        rounds.push((without, round(&disturbed, sizes.snapshot_tasks).await?));
    }
    let seconds = started.elapsed().as_secs();
    holder.batch_execute("ROLLBACK").await?;
    undisturbed.close();
    disturbed.close();
    free.remove().await?;
    held.remove().await?;
    print(sizes, &rounds, seconds);
    Ok(())
}

/// Submits and drains: drained tasks a second.
async fn round(side: &Side, tasks: usize) -> Result<f64> {
    load::submit(side, Shape::new(1, tasks.min(1_000), tasks)).await?;
    let shape = Shape::new(2, 100, tasks);
    Ok(rate(shape.total, load::drain(side, shape).await?))
}

fn print(sizes: &Sizes, rounds: &[(f64, f64)], seconds: u64) {
    let mut table = Table::new(&["round", "undisturbed tasks/s", "snapshot held tasks/s", "share"]);
    // The first and the last rounds, and some in between.
    let step = rounds.len().div_ceil(10);
    for (number, (without, with)) in rounds.iter().enumerate() {
        if number % step == 0 || number + LAST >= rounds.len() {
            table.row(vec![
                (number + 1).to_string(),
                whole(*without),
                whole(*with),
                percent(with / without),
            ]);
        }
    }
    let tasks = whole(sizes.snapshot_tasks as f64);
    let title = format!("Drain under a snapshot held for {seconds} s, rounds of {tasks}");
    table.print(&title);
    let last = &rounds[rounds.len() - LAST..];
    let share = median(last.iter().map(|(without, with)| with / without).collect());
    let verdict = met(share >= TARGET, "at least 70 %");
    println!(
        "\nThe last {LAST} rounds drain at {} of the undisturbed ({verdict}).",
        percent(share)
    );
}
