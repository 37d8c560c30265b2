//! The store against its model: seeded random commands for the pure model, SQLite and PostgreSQL,
//! which must agree on every answer and, in the end, on every column and every line of history.
//!
//! `WINDLASS_MODEL_COMMANDS=n` runs any number, `WINDLASS_MODEL_SEED=s` repeats one seed. A run
//! that fails prints its seed and the smallest failing sequence that was found within a minute.

mod compare;
mod engine;
mod generate;
mod line;
mod oracle;
pub mod random;
mod shrink;
mod step;

use compare::{Setting, run};
use oracle::Mutant;
use shrink::{Shrunk, shrink};
use std::time::Duration;
use windlass_domain::time::Timestamp;
use windlass_store::statement::Dialect;

const BOTH: &[Dialect] = &[Dialect::Sqlite, Dialect::Postgres];
/// Seeds that every run of the suite repeats.
const SEEDS: [u64; 4] = [1, 2, 3, 4];
const COMMANDS: usize = 10_500;
const SHRINK_FOR: Duration = Duration::from_secs(240);
const NO_FLOOR: Duration = Duration::ZERO;
const FLOOR: Duration = Duration::from_secs(24 * 3_600);

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

fn block_on<F: Future>(future: F) -> F::Output {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.worker_threads(2).enable_all().build().unwrap().block_on(future)
}

/// Runs a seed; `Err` is the story of its failure, shrunk.
async fn try_seed(seed: u64, commands: usize, setting: Setting) -> Result<(), (String, Shrunk)> {
    let steps = generate::steps(seed, commands, Timestamp::from_ms(crate::world::NOON));
    let Err(found) = run(&steps, setting).await else { return Ok(()) };
    let first = found.to_string();
    let shrunk = shrink(&steps, found, setting, SHRINK_FOR).await;
    let mut story = format!("seed {seed} fails: {first}\n\nshrunk to:\n");
    for step in &shrunk.steps {
        story += &format!("{step:?}\n");
    }
    story += &format!("{}\nrepeat it with WINDLASS_MODEL_SEED={seed}\n", shrunk.mismatch);
    Err((story, shrunk))
}

fn compare_all(share: usize, full_scan: Duration) {
    let setting = Setting { engines: BOTH, mutant: Mutant::None, full_scan, every: 100 };
    let commands = number("WINDLASS_MODEL_COMMANDS").map_or(COMMANDS, |n| n as usize) / 2;
    let seeds = match number("WINDLASS_MODEL_SEED") {
        Some(seed) => vec![seed],
        None => SEEDS.iter().map(|seed| seed + share as u64 * 1_000).collect(),
    };
    for &seed in &seeds {
        let outcome = block_on(try_seed(seed, commands.div_ceil(seeds.len()), setting));
        if let Err((story, _)) = outcome {
            panic!("{story}");
        }
    }
}

#[test]
fn model_sqlite_and_postgres_agree() {
    compare_all(0, NO_FLOOR);
}

#[test]
fn model_sqlite_and_postgres_agree_with_a_claim_floor() {
    compare_all(1, FLOOR);
}

fn finds(mutant: Mutant, at_most: usize) {
    let engines = &[Dialect::Sqlite];
    let setting = Setting { engines, mutant, full_scan: NO_FLOOR, every: 20 };
    let (story, shrunk) = block_on(try_seed(11, 3_000, setting)).expect_err("a planted mistake");
    assert!(story.contains("seed 11 fails"), "{story}");
    let few = shrunk.steps.len() <= at_most;
    assert!(few, "{} steps are more than {at_most}: {story}", shrunk.steps.len());
}

#[test]
fn a_model_that_forgets_to_count_a_release_is_found() {
    finds(Mutant::UncountedRelease, 3);
}

#[test]
fn a_model_that_takes_a_late_finish_is_found() {
    finds(Mutant::LateFinish, 6);
}

#[test]
fn a_model_that_is_blind_to_priorities_is_found() {
    finds(Mutant::BlindToPriority, 5);
}
