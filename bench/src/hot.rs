//! Submit, claim, heartbeat and complete, in batches and by many callers, beside the floor.

use crate::Result;
use crate::arguments::{Engine, Sizes};
use crate::load::{self, Shape};
use crate::place::Place;
use crate::side::Side;
use crate::table::{Table, median, met, times, whole};

const OPERATIONS: [&str; 5] = ["submit", "claim", "complete", "lifecycle", "heartbeat"];
const LIFECYCLE: usize = 3;
/// The lifecycle in batches of a thousand may take so many times as long as the floor's.
const TARGET: f64 = 1.6;

/// Seconds of each operation.
type Times = [f64; 5];

pub async fn run(engine: &Engine, sizes: &Sizes) -> Result<()> {
    let mut table = Table::new(&[
        "callers",
        "batch",
        "operation",
        "ours tasks/s",
        "floor tasks/s",
        "ours µs/task",
        "floor µs/task",
        "time ours / floor",
        "target",
    ]);
    let place = Place::create(engine).await?;
    let most = sizes.shapes.iter().map(|(callers, ..)| *callers).max().unwrap_or(1);
    let (ours, floor) = (place.ours()?, place.floor(most).await?);
    for side in [&ours, &floor] {
        // The first statements are prepared and the caches filled outside the clock.
        round(side, Shape::new(most, 1, most * 4)).await?;
    }
    for &(callers, batch, total) in &sizes.shapes {
        place.vacuum().await?;
        let shape = Shape::new(callers, batch, total);
        let mut rounds: Vec<(Times, Times)> = Vec::new();
        for number in 0..sizes.rounds {
            // A B, B A, A B: who goes first pays or gains by it in turns.
            rounds.push(if number % 2 == 0 {
                let first = round(&ours, shape).await?;
                (first, round(&floor, shape).await?)
            } else {
                let first = round(&floor, shape).await?;
                (round(&ours, shape).await?, first)
            });
        }
        for (index, operation) in OPERATIONS.iter().enumerate() {
            table.row(row(shape, operation, index, &rounds));
        }
    }
    ours.close();
    place.remove().await?;
    table.print("Hot operations");
    Ok(())
}

fn row(shape: Shape, operation: &str, index: usize, rounds: &[(Times, Times)]) -> Vec<String> {
    let total = shape.total as f64;
    let ours = median(rounds.iter().map(|(ours, _)| ours[index]).collect());
    let floor = median(rounds.iter().map(|(_, floor)| floor[index]).collect());
    let ratio = median(rounds.iter().map(|(ours, floor)| ours[index] / floor[index]).collect());
    let aimed = index == LIFECYCLE && (shape.callers, shape.batch) == (1, 1_000);
    let micros = |seconds: f64| format!("{:.1}", seconds * 1e6 / total);
    vec![
        shape.callers.to_string(),
        shape.batch.to_string(),
        operation.to_owned(),
        whole(total / ours),
        whole(total / floor),
        micros(ours),
        micros(floor),
        times(ratio),
        if aimed { met(ratio <= TARGET, "at most 1.6x") } else { String::new() },
    ]
}

/// One lifecycle, then a second one for the heartbeat alone, whose row versions would otherwise
/// burden the completion.
async fn round(side: &Side, shape: Shape) -> Result<Times> {
    let submit = load::submit(side, shape).await?.as_secs_f64();
    let (claim, held) = load::claim(side, shape).await?;
    let claim = claim.as_secs_f64();
    let complete = load::complete(side, held).await?.as_secs_f64();
    load::submit(side, shape).await?;
    let (_, held) = load::claim(side, shape).await?;
    let heartbeat = load::heartbeat(side, &held).await?.as_secs_f64();
    load::complete(side, held).await?;
    Ok([submit, claim, complete, submit + claim + complete, heartbeat])
}
