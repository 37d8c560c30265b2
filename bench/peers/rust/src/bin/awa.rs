//! awa, on its queue storage: append-only tables that rotate, claims and completions in batches.

use awa::{
    Client, InsertOpts, InsertParams, JobArgs, JobResult, JobState, QueueConfig, QueueStorage,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sqlx_for_awa::PgPool;
use sqlx_for_awa::postgres::PgPoolOptions;
use std::ops::Range;
use std::process::ExitCode;
use std::time::Duration;
use windlass_bench_adapter::{self as adapter, Counts, Result, Seen, System};

const QUEUE: &str = "bench";
const WORKERS: u32 = 512;
const CONNECTIONS: u32 = 34;

fn main() -> ExitCode {
    adapter::serve(async || {
        let options = PgPoolOptions::new().max_connections(CONNECTIONS);
        let pool = options.connect(&adapter::variable("BENCH_DATABASE")?).await?;
        awa::migrations::run(&pool).await?;
        // The first worker of a fresh database puts its queue storage to use.
        let first = client(&pool, Seen::default())?;
        first.start().await?;
        first.shutdown(Duration::from_secs(10)).await;
        let schema = QueueStorage::active_schema(&pool).await?;
        let schema = schema.ok_or("queue storage is not active")?;
        Ok(Awa { pool, store: QueueStorage::from_existing_schema(schema)? })
    })
}

#[derive(Serialize, Deserialize, JobArgs)]
struct Job {
    n: u64,
    text: String,
}

fn job(number: u64) -> Result<Job> {
    Ok(serde_json::from_value(adapter::payload(number))?)
}

fn options(delay: Option<Duration>) -> InsertOpts {
    let run_at = delay.map(|delay| chrono::Utc::now() + delay);
    InsertOpts { queue: QUEUE.into(), run_at, ..InsertOpts::default() }
}

fn client(pool: &PgPool, seen: Seen) -> Result<Client> {
    let config = QueueConfig {
        max_workers: WORKERS,
        poll_interval: Duration::from_millis(50),
        ..QueueConfig::default()
    };
    let client = Client::builder(pool.clone())
        .queue(QUEUE, config)
        .register::<Job, _, _>(move |job: Job, _| {
            seen.handle(job.n);
            async { Ok(JobResult::Completed) }
        })
        .build()?;
    Ok(client)
}

struct Awa {
    pool: PgPool,
    store: QueueStorage,
}

impl System for Awa {
    type Id = i64;
    type Worker = Client;

    fn settings(&self) -> Value {
        json!({ "max_workers": WORKERS, "poll_interval_ms": 50, "connections": CONNECTIONS,
            "storage": "queue storage" })
    }

    async fn submit(&self, number: u64) -> Result<i64> {
        Ok(awa::insert_with(&self.pool, &job(number)?, options(None)).await?.id)
    }

    async fn bulk(&self, numbers: Range<u64>, delay: Option<Duration>) -> Result<bool> {
        let jobs: Result<Vec<InsertParams>> = numbers
            .map(|n| Ok(awa::model::insert::params_with(&job(n)?, options(delay))?))
            .collect();
        self.store.enqueue_params_copy(&self.pool, &jobs?).await?;
        Ok(true)
    }

    async fn work(&self, seen: Seen) -> Result<Client> {
        let client = client(&self.pool, seen)?;
        client.start().await?;
        Ok(client)
    }

    async fn stop(&self, client: Client) -> Result<()> {
        client.shutdown(Duration::from_secs(10)).await;
        Ok(())
    }

    async fn counts(&self) -> Result<Counts> {
        let counts = self.store.queue_counts(&self.pool, QUEUE).await?;
        let later = format!("SELECT count(*) FROM {}.deferred_jobs", self.store.schema());
        let later: i64 = sqlx_for_awa::query_scalar(&later).fetch_one(&self.pool).await?;
        let waiting = counts.available + counts.running + later;
        Ok(Counts { waiting: waiting as u64, done: Some(counts.terminal as u64) })
    }

    async fn is_done(&self, id: &i64) -> Result<bool> {
        Ok(awa::admin::get_job(&self.pool, *id).await?.state == JobState::Completed)
    }

    async fn fill(&self, _count: u64) -> Result<bool> {
        Ok(false)
    }
}
