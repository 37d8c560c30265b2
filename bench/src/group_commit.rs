//! Group commit: many callers with one task each, beside one client that writes as many rows as
//! there are callers in each commit.

use crate::Result;
use crate::arguments::{Engine, Sizes};
use crate::load::{self, Shape};
use crate::place::Place;
use crate::table::{Table, median, met, percent, rate, whole};

const CALLERS: usize = 32;
/// Of the raw rate.
const TARGET: f64 = 0.5;

pub async fn run(engine: &Engine, sizes: &Sizes) -> Result<()> {
    let place = Place::create(engine).await?;
    let (ours, floor) = (place.ours()?, place.floor(1).await?);
    let callers = Shape::new(CALLERS, 1, sizes.group_tasks);
    let raw = Shape::new(1, CALLERS, sizes.group_tasks);
    load::submit(&ours, Shape::new(CALLERS, 1, CALLERS * 4)).await?;
    load::submit(&floor, Shape::new(1, CALLERS, CALLERS * 4)).await?;
    let mut rounds = Vec::new();
    for _ in 0..sizes.rounds.max(3) {
        let ours = rate(callers.total, load::submit(&ours, callers).await?);
        rounds.push((ours, rate(raw.total, load::submit(&floor, raw).await?)));
    }
    ours.close();
    place.remove().await?;
    let share = median(rounds.iter().map(|(ours, raw)| ours / raw).collect());
    let mut table = Table::new(&[
        "32 callers, one task each /s",
        "raw, 32 rows a commit /s",
        "share",
        "target",
    ]);
    table.row(vec![
        whole(median(rounds.iter().map(|(ours, _)| *ours).collect())),
        whole(median(rounds.iter().map(|(_, raw)| *raw).collect())),
        percent(share),
        met(share >= TARGET, "at least 50 %"),
    ]);
    table.print("Group commit");
    Ok(())
}
