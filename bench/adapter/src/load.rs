//! The loads, and their clocks.

use crate::{BATCH, BULK_CALLERS, Result, Seen, System};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// How often somebody looks whether a task is done, or all of them.
const LOOK: Duration = Duration::from_millis(1);
/// How long one idle task may take.
const STUCK: Duration = Duration::from_secs(20);

/// A system under load, and what was told of it so far.
pub struct Bench<S: System> {
    system: Arc<S>,
    seen: Seen,
    next: u64,
    idle: Option<S::Worker>,
}

fn number(command: &Value, name: &str) -> Result<u64> {
    command[name].as_u64().ok_or_else(|| format!("{name} is missing").into())
}

fn seconds(command: &Value, name: &str) -> Result<Duration> {
    let seconds = command[name].as_f64().ok_or_else(|| format!("{name} is missing"))?;
    Ok(Duration::try_from_secs_f64(seconds)?)
}

fn micros(times: &[Duration]) -> Vec<u64> {
    times.iter().map(|time| time.as_micros() as u64).collect()
}

impl<S: System> Bench<S> {
    pub fn new(system: Arc<S>) -> Bench<S> {
        Bench { system, seen: Seen::default(), next: 0, idle: None }
    }

    pub async fn run(&mut self, command: &Value) -> Result<Value> {
        match command["do"].as_str().unwrap_or_default() {
            "submit" => self.submit(command).await,
            "bulk" => self.bulk(command).await,
            "drain" => self.drain(command).await,
            "latency" => self.latency(command).await,
            "counts" => self.counts().await,
            "fill" => {
                let filled = self.system.fill(number(command, "count")?).await?;
                Ok(json!({ "filled": filled }))
            }
            "idle" => {
                self.idle = Some(self.system.work(self.seen.clone()).await?);
                Ok(json!({ "pid": std::process::id() }))
            }
            "rest" => {
                if let Some(worker) = self.idle.take() {
                    self.system.stop(worker).await?;
                }
                Ok(json!({}))
            }
            other => Err(format!("there is no command {other}").into()),
        }
    }

    /// One by one: each caller submits its next task when the one before is acknowledged.
    async fn submit(&mut self, command: &Value) -> Result<Value> {
        let (callers, count) = (number(command, "callers")?, number(command, "count")?);
        let limit = seconds(command, "seconds")?;
        let next = Arc::new(AtomicU64::new(self.next));
        let end = self.next + count;
        let mut running = JoinSet::new();
        let began = Instant::now();
        for _ in 0..callers {
            let (system, next) = (Arc::clone(&self.system), Arc::clone(&next));
            running.spawn(async move {
                let mut done = 0;
                while began.elapsed() < limit {
                    let take = |n| (n < end).then_some(n + 1);
                    let Ok(number) = next.fetch_update(Ordering::AcqRel, Ordering::Acquire, take)
                    else {
                        break;
                    };
                    system.submit(number).await?;
                    done += 1;
                }
                Result::Ok(done)
            });
        }
        let mut done = 0;
        while let Some(caller) = running.join_next().await {
            done += caller??;
        }
        let took = began.elapsed();
        self.next = next.load(Ordering::Acquire);
        Ok(json!({ "done": done, "seconds": took.as_secs_f64() }))
    }

    async fn bulk(&mut self, command: &Value) -> Result<Value> {
        let count = number(command, "count")?;
        let delay = command["delay_s"].as_u64().map(Duration::from_secs);
        let limit = seconds(command, "seconds")?;
        let (start, end) = (self.next, self.next + count);
        let mut running = JoinSet::new();
        let began = Instant::now();
        while self.next < end && began.elapsed() < limit {
            if running.len() == BULK_CALLERS
                && let Some(done) = running.join_next().await
                && !done??
            {
                return Ok(json!({ "absent": "there is no bulk submit" }));
            }
            let batch = self.next..end.min(self.next + BATCH);
            self.next = batch.end;
            let system = Arc::clone(&self.system);
            running.spawn(async move { system.bulk(batch, delay).await });
        }
        while let Some(done) = running.join_next().await {
            if !done?? {
                return Ok(json!({ "absent": "there is no bulk submit" }));
            }
        }
        let took = began.elapsed().as_secs_f64();
        Ok(json!({ "done": self.next - start, "seconds": took }))
    }

    /// From when the worker has started, or the first handler has if that was earlier, until the
    /// store holds nothing more to do (but for `rest` tasks that are not due), or until the time is
    /// up.
    async fn drain(&mut self, command: &Value) -> Result<Value> {
        let (count, rest) = (number(command, "count")?, number(command, "rest")?);
        let limit = seconds(command, "seconds")?;
        let (before, sum_before) = (self.seen.count(), self.seen.sum());
        self.seen.expect_first();
        let worker = self.system.work(self.seen.clone()).await?;
        let ready = Instant::now();
        let began = self.seen.first().map_or(ready, |first| first.min(ready));
        let mut handled = 0;
        let mut took = began.elapsed();
        let mut all = false;
        while took < limit && !all {
            sleep(LOOK).await;
            handled = self.seen.count() - before;
            // Counting costs, so nobody counts before every handler ran.
            all = handled >= count && self.system.waiting().await? <= rest;
            took = began.elapsed();
        }
        self.system.stop(worker).await?;
        Ok(json!({
            "handled": handled,
            "seconds": took.as_secs_f64(),
            "all": all,
            "handled_at_end": self.seen.count() - before,
            "sum": self.seen.sum() - sum_before,
        }))
    }

    /// One task at a time for a worker that has nothing else to do.
    async fn latency(&mut self, command: &Value) -> Result<Value> {
        let count = number(command, "count")?;
        let limit = seconds(command, "seconds")?;
        let worker = self.system.work(self.seen.clone()).await?;
        let (mut starts, mut ends) = (Vec::new(), Vec::new());
        let mut began = Instant::now();
        // The first ones warm everything up, and are not counted; a slow poller's are fewer.
        let mut warm = count.min(5);
        let mut n = 0;
        while n < count + warm {
            if n == warm {
                began = Instant::now();
            }
            // A poller must not be met at the same moment of its interval every time.
            sleep(Duration::from_millis(3 + n * 7 % 11)).await;
            let (start, end) = timeout(STUCK, self.once()).await??;
            if n >= warm {
                starts.push(start);
                ends.push(end);
            }
            n += 1;
            if began.elapsed() >= limit {
                if n > warm {
                    break;
                }
                warm = n;
            }
        }
        self.system.stop(worker).await?;
        Ok(json!({ "warm": warm, "start_us": micros(&starts), "done_us": micros(&ends) }))
    }

    async fn once(&mut self) -> Result<(Duration, Duration)> {
        let number = self.next;
        self.next += 1;
        let begins = self.seen.watch(number);
        let asked = Instant::now();
        let id = self.system.submit(number).await?;
        let started = begins.await? - asked;
        while !self.system.is_done(&id).await? {
            sleep(LOOK).await;
        }
        Ok((started, asked.elapsed()))
    }

    async fn counts(&self) -> Result<Value> {
        let counts = self.system.counts().await?;
        Ok(json!({ "waiting": counts.waiting, "done": counts.done }))
    }
}
