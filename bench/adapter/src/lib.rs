//! How `bench/run` talks to a system that is written in Rust, ours and others alike.
//!
//! A program reads one JSON command a line and answers each with one JSON line; bench/README.md
//! has the list. What a command measures is written here once, so that no system has a kinder
//! clock than another. A [`System`] only says how to submit, to work and to count.
//!
//! Invariant: every load stops by itself, by its count or by its time.
//! Absent: any judgement. Whether counts add up is for `bench/run` to say.

mod load;
mod seen;

pub use seen::Seen;

use serde_json::{Value, json};
use std::io::{BufRead, Write};
use std::ops::Range;
use std::process::ExitCode;
use std::time::Duration;

/// What may go wrong: anything; it is told and ends the program.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Of a payload's JSON, more or less.
const PAYLOAD_BYTES: usize = 200;

/// Tasks of one call of a bulk submit, at most.
pub const BATCH: u64 = 1_000;
/// Calls of a bulk submit that are under way at a time.
pub const BULK_CALLERS: usize = 4;

/// What every system is given to do: a number, and text of a usual size.
pub fn payload(number: u64) -> Value {
    json!({ "n": number, "text": "x".repeat(PAYLOAD_BYTES - 24) })
}

/// The number in a payload.
pub fn number_of(payload: &Value) -> u64 {
    payload["n"].as_u64().unwrap_or(u64::MAX)
}

/// A variable that `bench/run` sets for every program.
pub fn variable(name: &str) -> Result<String> {
    std::env::var(name).map_err(|_| format!("{name} is not set").into())
}

/// What a system's own store says.
pub struct Counts {
    /// Not finished: due, not due, or in somebody's hands.
    pub waiting: u64,
    /// Finished and kept; `None` if nothing is kept.
    pub done: Option<u64>,
}

/// A queue or an engine under measurement. `open` is done before the first command.
pub trait System: Send + Sync + Sized + 'static {
    /// What a submitted task is known by.
    type Id: Send;
    /// A running worker.
    type Worker: Send;

    /// The settings that were chosen, for the report.
    fn settings(&self) -> Value;
    /// Submits one task whose payload is [`payload`].
    fn submit(&self, number: u64) -> impl Future<Output = Result<Self::Id>> + Send;
    /// Submits a batch of [`BATCH`] at most, in the way that is fastest, due now or later; `false`
    /// if there is none. [`BULK_CALLERS`] of these run at a time.
    fn bulk(
        &self,
        numbers: Range<u64>,
        delay: Option<Duration>,
    ) -> impl Future<Output = Result<bool>> + Send;
    /// Begins to work; each handler tells its task's number to [`Seen::handle`] when it starts.
    fn work(&self, seen: Seen) -> impl Future<Output = Result<Self::Worker>> + Send;
    /// Ends work; what is in hand is finished first.
    fn stop(&self, worker: Self::Worker) -> impl Future<Output = Result<()>> + Send;
    /// Counts.
    fn counts(&self) -> impl Future<Output = Result<Counts>> + Send;
    /// How many are not finished, in the cheapest way that there is.
    fn waiting(&self) -> impl Future<Output = Result<u64>> + Send {
        async { Ok(self.counts().await?.waiting) }
    }
    /// Is the task seen to be completed by somebody who asks? `wait` may wait a while.
    fn is_done(&self, id: &Self::Id) -> impl Future<Output = Result<bool>> + Send;
    /// Puts finished tasks into the table, as they would lie there. `false` if nothing is kept.
    fn fill(&self, count: u64) -> impl Future<Output = Result<bool>> + Send;
}

/// Answers commands until there are no more.
pub fn serve<S: System>(open: impl AsyncFnOnce() -> Result<S>) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return told(&error),
    };
    let served: Result<()> = runtime.block_on(async {
        let system = std::sync::Arc::new(open().await?);
        answer(&json!({ "settings": system.settings() }))?;
        let mut bench = load::Bench::new(system);
        for line in std::io::stdin().lock().lines() {
            let command: Value = serde_json::from_str(&line?)?;
            if command["do"] == "close" {
                break;
            }
            answer(&bench.run(&command).await?)?;
        }
        Ok(())
    });
    match served {
        // Whatever still runs in the background is of no interest.
        Ok(()) => std::process::exit(0),
        Err(error) => told(&*error),
    }
}

fn answer(value: &Value) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{value}")?;
    Ok(out.flush()?)
}

fn told(error: &dyn std::error::Error) -> ExitCode {
    println!("{}", json!({ "error": error.to_string() }));
    ExitCode::FAILURE
}
