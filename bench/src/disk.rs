//! Bytes on disk for a finished task, beside the floor's.
//!
//! Measured as growth after the first batch of tasks, with a vacuum in between, so that neither
//! the empty schema nor space that will be used again is counted.

use crate::Result;
use crate::arguments::{Engine, Sizes};
use crate::load::{self, Shape};
use crate::place::Place;
use crate::table::{Table, times, whole};

const GROWTH: usize = 4;

pub async fn run(engine: &Engine, sizes: &Sizes) -> Result<()> {
    let place = Place::create(engine).await?;
    let part = sizes.disk_tasks.div_ceil(GROWTH);
    let shape = Shape::new(1, part.min(1_000), part);
    let mut first = (0, 0);
    for number in 0..=GROWTH {
        let (ours, floor) = (place.ours()?, place.floor(1).await?);
        for side in [&ours, &floor] {
            load::submit(side, shape).await?;
            load::drain(side, shape).await?;
        }
        ours.close();
        drop((ours, floor));
        place.vacuum().await?;
        if number == 0 {
            first = place.sizes().await?;
        }
    }
    let last = place.sizes().await?;
    place.remove().await?;
    let tasks = (GROWTH * shape.total) as f64;
    let ours = (last.0 - first.0) as f64 / tasks;
    let floor = (last.1 - first.1) as f64 / tasks;
    let mut table = Table::new(&["ours, with history", "floor, without", "ratio"]);
    table.row(vec![whole(ours), whole(floor), times(ours / floor)]);
    table.print("Bytes on disk for a finished task");
    Ok(())
}
