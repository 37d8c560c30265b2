//! graphile_worker, the rewrite of Graphile Worker in Rust, with its local queue and its batches of
//! completions. It deletes what is done.

use chrono::{DateTime, Utc};
use graphile_worker::{
    IntoTaskHandlerResult, JobSpec, LocalQueueConfig, TaskHandler, Worker, WorkerContext,
    WorkerOptions, WorkerUtils,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use std::ops::Range;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use windlass_bench_adapter::{self as adapter, Counts, Result, Seen, System};

const CONCURRENCY: usize = 24;
const LOCAL_QUEUE: usize = 500;
const CONNECTIONS: u32 = 34;
const SCHEMA: &str = "graphile_worker";

fn main() -> ExitCode {
    adapter::serve(async || {
        let options = PgPoolOptions::new().max_connections(CONNECTIONS);
        let pool = options.connect(&adapter::variable("BENCH_DATABASE")?).await?;
        let utils = WorkerUtils::new(pool.clone(), SCHEMA);
        utils.migrate().await?;
        Ok(Graphile { pool, utils })
    })
}

#[derive(Clone, Deserialize, Serialize)]
#[serde(transparent)]
struct Job(Value);

impl TaskHandler for Job {
    const IDENTIFIER: &'static str = "bench";

    async fn run(self, context: WorkerContext) -> impl IntoTaskHandlerResult {
        if let Some(seen) = context.get_ext::<Seen>() {
            seen.handle(adapter::number_of(&self.0));
        }
        Ok::<(), String>(())
    }
}

struct Graphile {
    pool: PgPool,
    utils: WorkerUtils,
}

struct Running {
    worker: Arc<Worker>,
    done: tokio::task::JoinHandle<Result<()>>,
}

impl System for Graphile {
    type Id = i64;
    type Worker = Running;

    fn settings(&self) -> Value {
        json!({ "concurrency": CONCURRENCY, "local_queue": LOCAL_QUEUE,
            "complete_job_batch_delay_ms": 1, "connections": CONNECTIONS })
    }

    async fn submit(&self, number: u64) -> Result<i64> {
        let job = Job(adapter::payload(number));
        Ok(*self.utils.add_job(job, JobSpec::default()).await?.id())
    }

    async fn bulk(&self, numbers: Range<u64>, delay: Option<Duration>) -> Result<bool> {
        let run_at: Option<DateTime<Utc>> = delay.map(|delay| Utc::now() + delay);
        let spec = JobSpec { run_at, ..JobSpec::default() };
        let jobs: Vec<_> = numbers.map(|n| (Job(adapter::payload(n)), &spec)).collect();
        self.utils.add_jobs(&jobs).await?;
        Ok(true)
    }

    async fn work(&self, seen: Seen) -> Result<Running> {
        let worker = WorkerOptions::default()
            .pg_pool(self.pool.clone())
            .schema(SCHEMA)
            .concurrency(CONCURRENCY)
            .local_queue(LocalQueueConfig::default().with_size(LOCAL_QUEUE))
            .complete_job_batch_delay(Duration::from_millis(1))
            .listen_os_shutdown_signals(false)
            .add_extension(seen)
            .define_job::<Job>()
            .init()
            .await?;
        let worker = Arc::new(worker);
        let running = Arc::clone(&worker);
        let done = tokio::spawn(async move { Ok(running.run().await?) });
        Ok(Running { worker, done })
    }

    async fn stop(&self, running: Running) -> Result<()> {
        running.worker.request_shutdown();
        running.done.await?
    }

    async fn counts(&self) -> Result<Counts> {
        let count = "SELECT count(*) FROM graphile_worker._private_jobs";
        let waiting: i64 = sqlx::query_scalar(count).fetch_one(&self.pool).await?;
        Ok(Counts { waiting: waiting as u64, done: None })
    }

    async fn is_done(&self, id: &i64) -> Result<bool> {
        let is_there = "SELECT EXISTS (SELECT FROM graphile_worker._private_jobs WHERE id = $1)";
        let is_there: bool = sqlx::query_scalar(is_there).bind(id).fetch_one(&self.pool).await?;
        Ok(!is_there)
    }

    async fn fill(&self, _count: u64) -> Result<bool> {
        Ok(false)
    }
}
