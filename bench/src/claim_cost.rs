//! What a claim costs beside many tasks that cannot be claimed: finished ones, and ones whose
//! time has not come.

use crate::Result;
use crate::arguments::{Engine, Sizes};
use crate::load::{self, Shape};
use crate::place::Place;
use crate::side::Side;
use crate::table::{Table, median, met, times, whole};

const DAY_MS: i64 = 86_400_000;
/// Times the cost without them.
const TARGET: f64 = 1.2;

/// Milliseconds of a claim of one task and of a hundred.
type Cost = [f64; 2];

pub async fn run(engine: &Engine, sizes: &Sizes) -> Result<()> {
    let empty = Place::create(engine).await?;
    let finished = Place::create(engine).await?;
    finished.load_finished(sizes.finished).await?;
    let later = Place::create(engine).await?;
    let sides = [empty.ours()?, finished.ours()?, later.ours()?];
    for _ in 0..sizes.not_due.div_ceil(1_000) {
        let count = sizes.not_due.min(1_000);
        sides[2].submit(0, load::tasks(count, Some(DAY_MS))?).await?;
    }
    later.vacuum().await?;
    for side in &sides {
        cost(side, (5, 2)).await?;
    }
    let mut rounds: Vec<Vec<Cost>> = Vec::new();
    for _ in 0..sizes.rounds.max(3) {
        let mut round = Vec::new();
        for side in &sides {
            round.push(cost(side, sizes.claims).await?);
        }
        rounds.push(round);
    }
    for (side, place) in sides.iter().zip([empty, finished, later]) {
        side.close();
        place.remove().await?;
    }
    print(sizes, &rounds);
    Ok(())
}

async fn cost(side: &Side, (ones, hundreds): (usize, usize)) -> Result<Cost> {
    let mut cost = [0.0; 2];
    for (slot, (batch, claims)) in cost.iter_mut().zip([(1, ones), (100, hundreds)]) {
        let shape = Shape::new(1, batch, batch * claims);
        load::submit(side, Shape::new(1, shape.total.min(1_000), shape.total)).await?;
        let (time, held) = load::claim(side, shape).await?;
        *slot = time.as_secs_f64() * 1e3 / claims as f64;
        load::complete(side, held).await?;
    }
    Ok(cost)
}

fn print(sizes: &Sizes, rounds: &[Vec<Cost>]) {
    let mut table = Table::new(&[
        "beside",
        "claim of 1, ms",
        "ratio",
        "claim of 100, ms",
        "ratio",
        "target for both",
    ]);
    let names = [
        "nothing".to_owned(),
        format!("{} finished", whole(sizes.finished as f64)),
        format!("{} not yet due", whole(sizes.not_due as f64)),
    ];
    for (place, name) in names.into_iter().enumerate() {
        let of = |size: usize| median(rounds.iter().map(|r| r[place][size]).collect());
        let ratio =
            |size: usize| median(rounds.iter().map(|r| r[place][size] / r[0][size]).collect());
        let is_met = ratio(0) <= TARGET && ratio(1) <= TARGET;
        table.row(vec![
            name,
            format!("{:.3}", of(0)),
            times(ratio(0)),
            format!("{:.3}", of(1)),
            times(ratio(1)),
            if place == 0 { String::new() } else { met(is_met, "at most 1.2x") },
        ]);
    }
    table.print("Cost of a claim");
}
