//! From a failing run to the few commands that matter: delta debugging, in fresh databases.

use super::compare::{Mismatch, Setting, run};
use super::step::Step;
use std::time::{Duration, Instant};
use windlass_store::statement::Dialect;

/// A failing sequence, as small as it became within the time.
pub struct Shrunk {
    pub steps: Vec<Step>,
    pub mismatch: Mismatch,
}

/// Takes away chunks, then single items, as long as the rest still fails.
pub async fn shrink(steps: &[Step], found: Mismatch, setting: Setting, limit: Duration) -> Shrunk {
    // One database is quicker than two, and it is the one that parted.
    let engines: &'static [Dialect] = match found.engine {
        Dialect::Sqlite => &[Dialect::Sqlite],
        Dialect::Postgres => &[Dialect::Postgres],
    };
    let setting = Setting { engines, ..setting };
    let end = Instant::now() + limit;
    let steps = steps[..=found.step].to_vec();
    let mut best = match run(&steps, setting).await {
        Ok(()) => return Shrunk { steps, mismatch: found },
        Err(mismatch) => cut(steps, mismatch),
    };
    let mut chunk = best.steps.len().div_ceil(2);
    while Instant::now() < end {
        let before = best.steps.len();
        best = pass(best, chunk, setting, end, &without).await;
        if chunk > 1 {
            chunk = chunk.div_ceil(2).min(best.steps.len().div_ceil(2)).max(1);
        } else if best.steps.len() == before {
            break;
        }
    }
    pass(best, 1, setting, end, &with_fewer_items).await
}

/// Nothing after the step that failed matters.
fn cut(mut steps: Vec<Step>, mismatch: Mismatch) -> Shrunk {
    steps.truncate(mismatch.step + 1);
    Shrunk { steps, mismatch }
}

type Smaller = dyn Fn(&[Step], usize, usize) -> Vec<Vec<Step>>;

async fn pass(
    mut best: Shrunk,
    chunk: usize,
    setting: Setting,
    end: Instant,
    smaller: &Smaller,
) -> Shrunk {
    // From the end: what happened early is often needed, what happened late often not.
    let mut at = best.steps.len();
    while at > 0 && Instant::now() < end {
        at = at.saturating_sub(chunk);
        for candidate in smaller(&best.steps, at, chunk) {
            // Reading everything after each step is for short sequences.
            let every = if candidate.len() < 60 { 1 } else { 20 };
            if let Err(mismatch) = run(&candidate, Setting { every, ..setting }).await {
                best = cut(candidate, mismatch);
                break;
            }
        }
        at = at.min(best.steps.len());
    }
    best
}

fn without(steps: &[Step], at: usize, chunk: usize) -> Vec<Vec<Step>> {
    let mut rest = steps.to_vec();
    rest.drain(at..(at + chunk).min(steps.len()));
    vec![rest]
}

/// The step at `at` with one item less, for each item, and with a single one.
fn with_fewer_items(steps: &[Step], at: usize, _: usize) -> Vec<Vec<Step>> {
    fn one<T: Clone>(items: &[T]) -> Vec<Vec<T>> {
        if items.len() < 2 {
            return Vec::new();
        }
        let alone = items.iter().map(|item| vec![item.clone()]);
        let less = (0..items.len()).map(|i| [&items[..i], &items[i + 1..]].concat());
        alone.chain(less).collect()
    }
    let smaller: Vec<Step> = match &steps[at] {
        Step::Submit(items) => one(items).into_iter().map(Step::Submit).collect(),
        Step::Start(items) => one(items).into_iter().map(Step::Start).collect(),
        Step::Beat(items) => one(items).into_iter().map(Step::Beat).collect(),
        Step::Finish(items) => one(items).into_iter().map(Step::Finish).collect(),
        _ => Vec::new(),
    };
    let replaced = smaller.into_iter().map(|step| {
        let mut steps = steps.to_vec();
        steps[at] = step;
        steps
    });
    replaced.collect()
}
