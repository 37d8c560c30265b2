//! The ledger of effects: what the workers really did, in the order in which they did it.
//!
//! Invariant: a line is on the disk before the worker goes on. An effect that is not in the ledger
//! did not happen, and a result that is sent has its `ended` line before it.
//! Absent: the server. It neither writes nor reads this.

use crate::log::{Held, now_ms};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;

/// Which side of an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)] // The names say it.
pub enum Phase {
    Begun,
    Ended,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Effect {
    /// Whether it begins or ends.
    pub phase: Phase,
    /// For which task, under which lease.
    pub held: Held,
    /// In which attempt.
    pub attempt: i32,
    /// By whom.
    pub worker: String,
    /// When, by the worker's clock.
    pub at_ms: i64,
    /// Where the line stands, such as `worker-1.ledger:3`.
    #[serde(default, skip_serializing)]
    pub place: String,
}

impl std::fmt::Display for Effect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Effect { phase, held, attempt, worker, at_ms, place } = self;
        let Held { task, lease } = held;
        write!(f, "{place} {worker} at {at_ms} {phase:?} task {task} attempt {attempt}")?;
        write!(f, " lease {lease}")
    }
}

/// A ledger that is being written.
pub struct Ledger {
    file: Mutex<File>,
    worker: String,
}

impl Ledger {
    /// A new ledger in a new file.
    pub fn create(path: &Path, worker: &str) -> std::io::Result<Ledger> {
        let file = File::options().create_new(true).append(true).open(path)?;
        Ok(Ledger { file: Mutex::new(file), worker: worker.to_owned() })
    }

    /// Writes one line and waits for the disk. Blocks: call it where blocking is allowed.
    pub fn note(&self, phase: Phase, held: Held, attempt: i32) {
        let worker = self.worker.clone();
        let effect = Effect { phase, held, attempt, worker, at_ms: now_ms(), place: String::new() };
        let mut text = serde_json::to_string(&effect).expect("an effect is plain data");
        text.push('\n');
        let mut file = self.file.lock().expect("no writer of the ledger panics");
        let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_data());
        written.expect("the ledger can be written");
    }
}

/// Every effect in a ledger file; half a line is no line.
pub fn read(path: &Path) -> std::io::Result<Vec<Effect>> {
    let text = std::fs::read_to_string(path)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let lines = whole.lines().enumerate().map(|(i, line)| {
        let mut effect: Effect = serde_json::from_str(line)?;
        effect.place = format!("{name}:{}", i + 1);
        Ok(effect)
    });
    lines.collect()
}
