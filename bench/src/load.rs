//! Load: callers that submit, claim, beat and complete batches at the same time, and the time it
//! takes them.

use crate::Result;
use crate::side::{Held, Side};
use std::future::Future;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use uuid::Uuid;
use windlass_domain::id::TaskId;
use windlass_domain::limit::{Maxima, Scope};
use windlass_domain::request::SubmitRequest;
use windlass_domain::task::NewTask;
use windlass_domain::validate;

pub const QUEUE: &str = "bench";
pub const ACTOR: &str = "bench";
pub const RESULT: &str = r#"{"ok":true}"#;
/// Of the payload's JSON.
pub const PAYLOAD_BYTES: usize = 200;

/// Far above any load here. "Limits on" means: checked by every claim and submit, and not reached.
pub const LIMIT: i64 = 1_000_000;

/// Sets a limit for everything, for each venture and for each stage, all above the load.
pub async fn raise_limits(windlass: &windlass::Engine) -> Result<()> {
    let maxima =
        Maxima { max_active: Some(Some(LIMIT)), max_pending: Some(Some(LIMIT)), rate: None };
    for scope in [Scope::Global, Scope::Venture, Scope::Stage] {
        windlass.put_limit(maxima.of(scope, None, None), ACTOR).await?;
    }
    Ok(())
}

/// How the work comes.
#[derive(Clone, Copy)]
pub struct Shape {
    pub callers: usize,
    pub batch: usize,
    /// Of all callers together; a multiple of callers times batch.
    pub total: usize,
}

impl Shape {
    pub fn new(callers: usize, batch: usize, total: usize) -> Shape {
        let step = callers * batch;
        Shape { callers, batch, total: total.div_ceil(step) * step }
    }

    fn batches(self) -> usize {
        self.total / self.callers / self.batch
    }
}

/// New tasks, due now, or after `delay_ms`. Made before the clock runs: to validate a request is
/// not the store's work.
pub fn tasks(count: usize, delay_ms: Option<i64>) -> Result<Vec<NewTask>> {
    let text = "x".repeat(PAYLOAD_BYTES - r#"{"text":""}"#.len());
    let request = SubmitRequest {
        queue: Some(QUEUE.into()),
        payload: serde_json::json!({ "text": text }),
        delay_ms,
        ..SubmitRequest::default()
    };
    let first = validate::new_task(&request, TaskId(Uuid::now_v7()), "", ACTOR);
    let first = first.map_err(|wrong| format!("{wrong:?}"))?;
    let task = |_| NewTask { id: TaskId(Uuid::now_v7()), ..first.clone() };
    Ok((0..count).map(task).collect())
}

/// Runs all callers at once, each with its own input.
async fn together<T, U, F>(
    inputs: Vec<T>,
    run: impl Fn(usize, T) -> F,
) -> Result<(Duration, Vec<U>)>
where
    U: Send + 'static,
    F: Future<Output = Result<U>> + Send + 'static,
{
    let mut callers = JoinSet::new();
    let started = Instant::now();
    for (caller, input) in inputs.into_iter().enumerate() {
        callers.spawn(run(caller, input));
    }
    let mut outputs = Vec::new();
    while let Some(done) = callers.join_next().await {
        outputs.push(done??);
    }
    Ok((started.elapsed(), outputs))
}

pub async fn submit(side: &Side, shape: Shape) -> Result<Duration> {
    let mut inputs = vec![Vec::with_capacity(shape.batches()); shape.callers];
    for _ in 0..shape.batches() {
        // In turns: ids carry their time, and callers that make theirs when they submit have ids
        // close to each other.
        for caller in &mut inputs {
            caller.push(tasks(shape.batch, None)?);
        }
    }
    let (time, _) = together(inputs, |caller, batches: Vec<Vec<NewTask>>| {
        let side = side.clone();
        async move {
            for batch in batches {
                side.submit(caller, batch).await?;
            }
            Ok(())
        }
    })
    .await?;
    Ok(time)
}

/// What each caller holds after a claim, batch by batch.
pub type Holdings = Vec<Vec<Vec<Held>>>;

pub async fn claim(side: &Side, shape: Shape) -> Result<(Duration, Holdings)> {
    together(vec![(); shape.callers], |caller, ()| {
        let side = side.clone();
        async move {
            let mut batches = Vec::with_capacity(shape.batches());
            for _ in 0..shape.batches() {
                batches.push(claim_batch(&side, caller, shape.batch).await?);
            }
            Ok(batches)
        }
    })
    .await
}

/// One claim, or more when it comes back short because others hold the rows.
async fn claim_batch(side: &Side, caller: usize, size: usize) -> Result<Vec<Held>> {
    let mut held = side.claim(caller, size).await?;
    let mut tries = 0;
    while held.len() < size {
        tries += 1;
        if tries > 10_000 {
            return Err(format!("only {} of {size} tasks could be claimed", held.len()).into());
        }
        held.extend(side.claim(caller, size - held.len()).await?);
    }
    Ok(held)
}

pub async fn heartbeat(side: &Side, holdings: &Holdings) -> Result<Duration> {
    let (time, _) = together(holdings.clone(), |caller, batches| {
        let side = side.clone();
        async move {
            for batch in batches {
                side.heartbeat(caller, &batch).await?;
            }
            Ok(())
        }
    })
    .await?;
    Ok(time)
}

pub async fn complete(side: &Side, holdings: Holdings) -> Result<Duration> {
    let (time, _) = together(holdings, |caller, batches| {
        let side = side.clone();
        async move {
            for batch in batches {
                side.complete(caller, &batch).await?;
            }
            Ok(())
        }
    })
    .await?;
    Ok(time)
}

/// Claims and completes everything, as workers do: the time of both.
pub async fn drain(side: &Side, shape: Shape) -> Result<Duration> {
    let (time, _) = together(vec![(); shape.callers], |caller, ()| {
        let side = side.clone();
        async move {
            for _ in 0..shape.batches() {
                let held = claim_batch(&side, caller, shape.batch).await?;
                side.complete(caller, &held).await?;
            }
            Ok(())
        }
    })
    .await?;
    Ok(time)
}
