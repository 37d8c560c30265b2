//! apalis on SQLite.
//!
//! Its `setup` switches syncing off for the one connection that ran the migrations. Here every
//! commit is synced, as in every other system: the migrations run on a connection that is closed,
//! and those that do the work have `synchronous = FULL`.

use apalis::prelude::*;
use apalis_sqlite::{Config, SqliteStorage, SqliteTask};
use serde_json::{Value, json};
use sqlx::SqlitePool;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use std::ops::Range;
use std::process::ExitCode;
use std::time::Duration;
use ulid::Ulid;
use windlass_bench_adapter::{self as adapter, Counts, Result, Seen, System};

const QUEUE: &str = "bench";
const BATCH: usize = 500;
/// SQLite has one writer: more connections only wait for each other.
const CONNECTIONS: u32 = 4;
const POLL: Duration = Duration::from_millis(10);

fn main() -> ExitCode {
    adapter::serve(async || {
        let file = std::path::Path::new(&adapter::variable("BENCH_FOLDER")?).join("apalis.db");
        let options = SqliteConnectOptions::new()
            .filename(file)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .busy_timeout(Duration::from_secs(30));
        let setup = SqlitePool::connect_with(options.clone()).await?;
        SqliteStorage::setup(&setup).await?;
        setup.close().await;
        let pool = SqlitePoolOptions::new().max_connections(CONNECTIONS);
        Ok(Apalis { pool: pool.connect_with(options).await? })
    })
}

struct Apalis {
    pool: SqlitePool,
}

struct Running {
    context: WorkerContext,
    done: tokio::task::JoinHandle<Result<()>>,
}

fn task(number: u64, delay: Option<Duration>) -> Result<(Ulid, SqliteTask)> {
    let id = Ulid::generate();
    let args = serde_json::to_vec(&adapter::payload(number))?;
    let task = TaskBuilder::new(args).task_id(TaskId::from_string(id.to_string()));
    Ok((id, task.run_after(delay.unwrap_or_default()).build()))
}

impl System for Apalis {
    type Id = Ulid;
    type Worker = Running;

    fn settings(&self) -> Value {
        json!({ "batch_size": BATCH, "connections": CONNECTIONS, "poll": "10 ms",
            "synchronous": "FULL" })
    }

    async fn submit(&self, number: u64) -> Result<Ulid> {
        let (id, task) = task(number, None)?;
        let mut connection = self.pool.acquire().await?;
        apalis_sqlite::queries::push_tasks(&mut *connection, QUEUE, &[task]).await?;
        Ok(id)
    }

    async fn bulk(&self, numbers: Range<u64>, delay: Option<Duration>) -> Result<bool> {
        let tasks: Result<Vec<_>> = numbers.map(|n| Ok(task(n, delay)?.1)).collect();
        // One at a time: it begins with a read, and two that want to write after it would fail.
        let mut transaction = self.pool.begin_with("BEGIN IMMEDIATE").await?;
        apalis_sqlite::queries::push_tasks(&mut *transaction, QUEUE, &tasks?).await?;
        transaction.commit().await?;
        Ok(true)
    }

    async fn work(&self, seen: Seen) -> Result<Running> {
        // A fetch has claimed the task already; to lock it once more would only cost.
        let config = Config::default().queue(QUEUE).batch_size(BATCH).lock_tasks(false);
        let backend =
            SqliteStorage::<Value>::new(&self.pool).with_config(config).poll_with_interval(POLL);
        let context = WorkerContext::new(&format!("bench-{}", Ulid::generate()));
        let worker = WorkerBuilder::new(&context).backend(backend).build(move |task: Value| {
            seen.handle(adapter::number_of(&task));
            std::future::ready(Ok::<Value, BoxDynError>(json!({ "ok": true })))
        });
        // On a thread of its own: the compiler cannot show that its future may change threads.
        let runtime = tokio::runtime::Handle::current();
        let run = move || {
            runtime.block_on(async {
                let mut running = std::pin::pin!(worker.run());
                // It forgets its interval when a fetch is answered at once, and sleeps for ever:
                // so it is looked after as often as it would look itself.
                let mut tick = tokio::time::interval(POLL);
                loop {
                    tokio::select! {
                        done = &mut running => return Ok(done?),
                        _ = tick.tick() => {}
                    }
                }
            })
        };
        let done = tokio::task::spawn_blocking(run);
        Ok(Running { context, done })
    }

    async fn stop(&self, running: Running) -> Result<()> {
        running.context.stop()?;
        running.done.await?
    }

    async fn counts(&self) -> Result<Counts> {
        let count = "SELECT count(*) FILTER (WHERE status <> 'Done'), \
            count(*) FILTER (WHERE status = 'Done') FROM Jobs";
        let (waiting, done): (i64, i64) = sqlx::query_as(count).fetch_one(&self.pool).await?;
        Ok(Counts { waiting: waiting as u64, done: Some(done as u64) })
    }

    async fn is_done(&self, id: &Ulid) -> Result<bool> {
        let done = "SELECT status = 'Done' FROM Jobs WHERE id = ?1";
        let id = id.to_string();
        Ok(sqlx::query_scalar(done).bind(id).fetch_one(&self.pool).await?)
    }

    async fn fill(&self, _count: u64) -> Result<bool> {
        Ok(false)
    }
}
