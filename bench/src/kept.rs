//! What the product's rows and indexes cost without its rules: the lifecycle in batches of a
//! thousand, by the floor, by the floor with a row of history a change and the indexes that
//! questions need, and by ours, in turns.
//!
//! It tells how much of our distance from the floor is what we keep, and how much is how we keep
//! it.

use crate::Result;
use crate::arguments::{Engine, Sizes};
use crate::load::{self, Shape};
use crate::place::Place;
use crate::side::Side;
use crate::table::{Table, median, times};

const BATCH: usize = 1_000;

pub async fn run(engine: &Engine, sizes: &Sizes) -> Result<()> {
    let (place, other) = (Place::create(engine).await?, Place::create(engine).await?);
    let sides = [place.floor(1).await?, other.kept(1).await?, place.ours()?];
    let shape = Shape::new(1, BATCH, sizes.kept_tasks);
    for side in &sides {
        lifecycle(side, Shape::new(1, 1, 4)).await?;
    }
    let mut rounds: Vec<[f64; 3]> = Vec::new();
    for number in 0..sizes.rounds {
        let mut seconds = [0.0; 3];
        // Everybody goes first as often as the others.
        for turn in 0..sides.len() {
            let index = (turn + number) % sides.len();
            seconds[index] = lifecycle(&sides[index], shape).await?;
        }
        rounds.push(seconds);
        place.vacuum().await?;
        other.vacuum().await?;
    }
    sides.iter().for_each(Side::close);
    place.remove().await?;
    other.remove().await?;
    let mut table = Table::new(&["lifecycle, batches of 1,000", "µs/task", "of the floor's time"]);
    let names = ["floor", "floor with history and indexes, no rules", "ours"];
    for (index, name) in names.iter().enumerate() {
        let micros = median(rounds.iter().map(|seconds| seconds[index]).collect()) * 1e6;
        let ratio = median(rounds.iter().map(|seconds| seconds[index] / seconds[0]).collect());
        let micros = format!("{:.1}", micros / shape.total as f64);
        table.row(vec![(*name).to_owned(), micros, times(ratio)]);
    }
    table.print("What is kept");
    Ok(())
}

async fn lifecycle(side: &Side, shape: Shape) -> Result<f64> {
    let submit = load::submit(side, shape).await?;
    let (claim, held) = load::claim(side, shape).await?;
    Ok((submit + claim + load::complete(side, held).await?).as_secs_f64())
}
