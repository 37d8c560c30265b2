//! apalis on PostgreSQL: LISTEN and NOTIFY for latency, batches for throughput.
//!
//! Tasks are pushed by `queries::push_tasks`, one statement without a transaction around it: the
//! fastest of its documented ways.

use apalis::prelude::*;
use apalis_postgres::{Config, PgTask, PostgresStorage};
use serde_json::{Value, json};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use std::ops::Range;
use std::process::ExitCode;
use std::time::Duration;
use ulid::Ulid;
use windlass_bench_adapter::{self as adapter, Counts, Result, Seen, System};

const QUEUE: &str = "bench";
const BATCH: usize = 500;
const CONNECTIONS: u32 = 34;

fn main() -> ExitCode {
    adapter::serve(async || {
        let options = PgPoolOptions::new().max_connections(CONNECTIONS);
        let pool = options.connect(&adapter::variable("BENCH_DATABASE")?).await?;
        PostgresStorage::setup(&pool).await?;
        Ok(Apalis { pool })
    })
}

struct Apalis {
    pool: PgPool,
}

struct Running {
    context: WorkerContext,
    done: tokio::task::JoinHandle<Result<()>>,
}

fn task(number: u64, delay: Option<Duration>) -> Result<(Ulid, PgTask)> {
    let id = Ulid::generate();
    let args = serde_json::to_vec(&adapter::payload(number))?;
    let task = TaskBuilder::new(args).task_id(TaskId::from_string(id.to_string()));
    Ok((id, task.run_after(delay.unwrap_or_default()).build()))
}

impl System for Apalis {
    type Id = Ulid;
    type Worker = Running;

    fn settings(&self) -> Value {
        json!({ "batch_size": BATCH, "connections": CONNECTIONS, "strategy": "pubsub, 10 ms" })
    }

    async fn submit(&self, number: u64) -> Result<Ulid> {
        let (id, task) = task(number, None)?;
        let mut connection = self.pool.acquire().await?;
        apalis_postgres::queries::push_tasks(&mut *connection, QUEUE, vec![task]).await?;
        Ok(id)
    }

    async fn bulk(&self, numbers: Range<u64>, delay: Option<Duration>) -> Result<bool> {
        let tasks: Result<Vec<_>> = numbers.map(|n| Ok(task(n, delay)?.1)).collect();
        let mut connection = self.pool.acquire().await?;
        apalis_postgres::queries::push_tasks(&mut *connection, QUEUE, tasks?).await?;
        Ok(true)
    }

    async fn work(&self, seen: Seen) -> Result<Running> {
        // A fetch has claimed the task already; to lock it once more would only cost.
        let config = Config::default().queue(QUEUE).batch_size(BATCH).lock_tasks(false);
        let backend = PostgresStorage::<Value>::new(&self.pool)
            .with_config(config)
            .with_pubsub()
            .poll_with_interval(Duration::from_millis(10));
        let context = WorkerContext::new(&format!("bench-{}", Ulid::generate()));
        let worker = WorkerBuilder::new(&context).backend(backend).build(move |task: Value| {
            seen.handle(adapter::number_of(&task));
            std::future::ready(Ok::<Value, BoxDynError>(json!({ "ok": true })))
        });
        // On a thread of its own: the compiler cannot show that its future may change threads.
        let runtime = tokio::runtime::Handle::current();
        let run = move || Ok(runtime.block_on(worker.run())?);
        let done = tokio::task::spawn_blocking(run);
        Ok(Running { context, done })
    }

    async fn stop(&self, running: Running) -> Result<()> {
        running.context.stop()?;
        running.done.await?
    }

    async fn counts(&self) -> Result<Counts> {
        let count = "SELECT count(*) FILTER (WHERE status <> 'Done'), \
            count(*) FILTER (WHERE status = 'Done') FROM apalis.jobs";
        let (waiting, done): (i64, i64) = sqlx::query_as(count).fetch_one(&self.pool).await?;
        Ok(Counts { waiting: waiting as u64, done: Some(done as u64) })
    }

    async fn is_done(&self, id: &Ulid) -> Result<bool> {
        let done = "SELECT status = 'Done' FROM apalis.jobs WHERE id = $1";
        let id = id.to_string();
        Ok(sqlx::query_scalar(done).bind(id).fetch_one(&self.pool).await?)
    }

    async fn fill(&self, count: u64) -> Result<bool> {
        // By name: not every type of a column comes back from JSON as it was.
        let columns: String = sqlx::query_scalar(
            "SELECT string_agg(quote_ident(column_name), ', ') FROM information_schema.columns \
             WHERE table_schema = 'apalis' AND table_name = 'jobs' AND column_name <> 'id' \
             AND is_generated = 'NEVER'",
        )
        .fetch_one(&self.pool)
        .await?;
        let fill = format!(
            "INSERT INTO apalis.jobs (id, {columns}) SELECT 'old' || n, {columns} \
             FROM (SELECT * FROM apalis.jobs WHERE status = 'Done' LIMIT 1) AS one, \
             generate_series(1, $1) AS n"
        );
        sqlx::query(sqlx::AssertSqlSafe(fill)).bind(count as i64).execute(&self.pool).await?;
        Ok(true)
    }
}
