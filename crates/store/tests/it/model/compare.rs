//! A run: the same steps for the model and the databases, compared after every step, and in full
//! every so many.

use super::engine::Engine;
use super::oracle::{Known, Mutant, Oracle};
use super::step::Step;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use windlass_domain::id::TaskId;
use windlass_domain::time::Timestamp;
use windlass_store::statement::Dialect;

/// Which run.
#[derive(Clone, Copy)]
pub struct Setting {
    pub engines: &'static [Dialect],
    pub mutant: Mutant,
    /// How often a claim looks below the claim floor; zero is always.
    pub full_scan: Duration,
    /// So many steps between two full comparisons.
    pub every: usize,
}

/// Where a database and the model part.
pub struct Mismatch {
    pub step: usize,
    pub engine: Dialect,
    pub what: String,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} parts from the model at step {}:\n{}", self.engine, self.step, self.what)
    }
}

pub async fn run(steps: &[Step], setting: Setting) -> Result<(), Mismatch> {
    let clock = Arc::new(AtomicI64::new(crate::world::NOON));
    let mut model = Oracle::new(Timestamp::from_ms(crate::world::NOON), setting.mutant);
    let mut engines = Vec::new();
    for &dialect in setting.engines {
        engines.push(Engine::new(dialect, Arc::clone(&clock), setting.full_scan).await);
    }
    for (number, step) in steps.iter().enumerate() {
        if let Step::Pass { ms } = step {
            clock.fetch_add(*ms, Ordering::SeqCst);
        }
        let answers = all(&mut engines, step).await;
        let expected = model.apply(step);
        for (engine, answer) in engines.iter().zip(&answers) {
            if *answer != expected {
                let what = format!("told {answer:#?}\nbut the model says {expected:#?}");
                return Err(Mismatch { step: number, engine: engine.dialect(), what });
            }
        }
        if number % setting.every == setting.every - 1 || number + 1 == steps.len() {
            check(&engines, &model, number).await?;
        }
    }
    Ok(())
}

/// The databases work at the same time.
async fn all(engines: &mut [Engine], step: &Step) -> Vec<Vec<String>> {
    match engines {
        [one] => vec![one.apply(step).await],
        [one, two] => {
            let (one, two) = tokio::join!(one.apply(step), two.apply(step));
            vec![one, two]
        }
        _ => unreachable!("one or two databases"),
    }
}

async fn check(engines: &[Engine], model: &Oracle, step: usize) -> Result<(), Mismatch> {
    for engine in engines {
        let what = match engine.read().await {
            Ok(found) => difference(&found, &model.tasks),
            Err(error) => Some(error.to_string()),
        };
        if let Some(what) = what {
            return Err(Mismatch { step, engine: engine.dialect(), what });
        }
    }
    Ok(())
}

fn difference(
    found: &BTreeMap<TaskId, Known>,
    expected: &BTreeMap<TaskId, Known>,
) -> Option<String> {
    let only = |a: &BTreeMap<TaskId, Known>, b: &BTreeMap<TaskId, Known>| {
        a.keys().find(|id| !b.contains_key(id)).copied()
    };
    if let Some(id) = only(found, expected) {
        return Some(format!("{id} is in the database alone"));
    }
    if let Some(id) = only(expected, found) {
        return Some(format!("{id} is in the model alone"));
    }
    let (id, known) = expected.iter().find(|(id, known)| found[id] != **known)?;
    Some(format!("{id}\n{}", lines(&found[id], known)))
}

/// The lines in which two pretty-printed values differ.
fn lines(found: &Known, expected: &Known) -> String {
    let (found, expected) = (format!("{found:#?}"), format!("{expected:#?}"));
    let (a, b): (Vec<_>, Vec<_>) = (found.lines().collect(), expected.lines().collect());
    if a.len() != b.len() {
        return format!("database: {found}\nmodel: {expected}");
    }
    let pairs = a.iter().zip(&b).filter(|(a, b)| a != b);
    pairs.map(|(a, b)| format!("database: {}\nmodel:    {}\n", a.trim(), b.trim())).collect()
}
