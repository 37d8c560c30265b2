//! `beside`: ours as `bench/run` measures it beside other systems, in process, on PostgreSQL or on
//! SQLite, by the same commands as they.
//!
//! Everything is on: history, leases, fencing, and limits with a rule for all, for each venture and
//! for each stage, whose values are above the load and printed. Requests are validated inside the
//! clock, as a caller's are.

mod place;

use serde_json::{Value, json};
use std::ops::Range;
use std::process::ExitCode;
use std::time::Duration;
use uuid::Uuid;
use windlass::domain::id::TaskId;
use windlass::domain::limit::{Maxima, Scope};
use windlass::domain::request::SubmitRequest;
use windlass::domain::state::State;
use windlass::domain::task::NewTask;
use windlass::worker::{Worker, WorkerOptions};
use windlass::{Engine, Options};
use windlass_bench_adapter::{self as adapter, Counts, Result, Seen, System};

const QUEUE: &str = "bench";
const ACTOR: &str = "bench";
/// Of every rule: checked by every submit and claim, and never reached.
const LIMIT: i64 = 10_000_000;

fn main() -> ExitCode {
    adapter::serve(open)
}

async fn open() -> Result<Ours> {
    let store = place::open().await?;
    let engine = Engine::start(store, Options::default()).await?;
    let maxima = || Maxima {
        max_active: Some(Some(LIMIT)),
        max_pending: Some(Some(LIMIT)),
        ..Maxima::default()
    };
    for scope in [Scope::Global, Scope::Venture, Scope::Stage] {
        engine.put_limit(maxima().of(scope, None, None), ACTOR).await?;
    }
    let slots = std::env::var("BENCH_SLOTS").ok().and_then(|text| text.parse().ok());
    Ok(Ours { engine, slots: slots.unwrap_or(1_000) })
}

struct Ours {
    engine: Engine,
    slots: i32,
}

fn task(number: u64, delay: Option<Duration>) -> Result<NewTask> {
    let request = SubmitRequest {
        queue: Some(QUEUE.into()),
        venture: Some("bench".into()),
        stage: Some("run".into()),
        payload: adapter::payload(number),
        delay_ms: delay.map(|delay| delay.as_millis() as i64),
        ..SubmitRequest::default()
    };
    windlass::domain::validate::new_task(&request, TaskId(Uuid::now_v7()), "", ACTOR)
        .map_err(|wrong| format!("{wrong:?}").into())
}

impl Ours {
    async fn submit_all(&self, tasks: Vec<NewTask>) -> Result<()> {
        for outcome in self.engine.submit(tasks).await {
            outcome?;
        }
        Ok(())
    }
}

impl System for Ours {
    type Id = TaskId;
    type Worker = Worker;

    fn settings(&self) -> Value {
        json!({ "slots": self.slots, "max_active": LIMIT, "max_pending": LIMIT,
            "rules": "global, venture, stage" })
    }

    async fn submit(&self, number: u64) -> Result<TaskId> {
        let task = task(number, None)?;
        let id = task.id;
        self.submit_all(vec![task]).await?;
        Ok(id)
    }

    async fn bulk(&self, numbers: Range<u64>, delay: Option<Duration>) -> Result<bool> {
        let tasks: Result<Vec<_>> = numbers.map(|number| task(number, delay)).collect();
        self.submit_all(tasks?).await?;
        Ok(true)
    }

    async fn work(&self, seen: Seen) -> Result<Worker> {
        let options = WorkerOptions::queue("bench", QUEUE, self.slots);
        let worker = self.engine.work(options, move |assignment| {
            seen.handle(adapter::number_of(&assignment.task.payload));
            async { Ok(json!({ "ok": true })) }
        });
        Ok(worker.await?)
    }

    async fn stop(&self, worker: Worker) -> Result<()> {
        worker.stop().await;
        Ok(())
    }

    async fn counts(&self) -> Result<Counts> {
        let counts = self.engine.tasks().counts().await?;
        let of = |wanted: &dyn Fn(State) -> bool| -> u64 {
            let found = counts.by_status.iter().filter(|(state, _)| wanted(**state));
            found.map(|(_, count)| u64::try_from(*count).unwrap_or(0)).sum()
        };
        let done = of(&|state| state == State::Completed);
        Ok(Counts { waiting: of(&|state| !state.is_terminal()), done: Some(done) })
    }

    /// The database counts these by itself; nobody has to read what is done for them.
    async fn waiting(&self) -> Result<u64> {
        let (active, pending) = self.engine.tasks().in_all().await?;
        Ok(u64::try_from(active + pending)?)
    }

    async fn is_done(&self, id: &TaskId) -> Result<bool> {
        Ok(self.engine.wait_for(*id, Duration::from_secs(1)).await?.done)
    }

    /// They were put there before the database was opened.
    async fn fill(&self, count: u64) -> Result<bool> {
        Ok(place::finished() == count)
    }
}
