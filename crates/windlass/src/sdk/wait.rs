//! Waiting without a worker: for a time, a signal, another task.

use super::context::{Ctx, Ended};
use super::{Failure, Result};
use serde::de::DeserializeOwned;
use serde_json::Value as Json;
use std::future::IntoFuture;
use std::marker::PhantomData;
use std::pin::Pin;
use std::time::Duration;
use windlass_domain::step::StepState;
use windlass_domain::time::Timestamp;
use windlass_domain::wait::Until;
use windlass_store::task::{Park, Parked};

impl Ctx {
    /// Sleeps; meanwhile the task has no worker and no lease, and it survives every restart.
    pub async fn sleep(&self, duration: Duration) -> Result<()> {
        let ms = duration.as_millis().try_into().unwrap_or(i64::MAX);
        self.wait(Until::DelayMs(ms), None).await.map(drop)
    }

    /// Sleeps until a point in time.
    pub async fn sleep_until(&self, time: Timestamp) -> Result<()> {
        self.wait(Until::Time(time), None).await.map(drop)
    }

    /// Waits for a signal to this task; its payload is the answer.
    pub fn wait_signal<T>(&self, name: impl Into<String>) -> SignalWait<'_, T> {
        SignalWait { ctx: self, name: name.into(), key: None, payload: PhantomData }
    }

    /// Refuses to wait where the task could not go on from: in a step, or beside one.
    pub(super) fn refuse_to_wait(&self, what: &str) -> Result<()> {
        self.refuse_in_step(what)?;
        if !self.is_parallel() {
            return Ok(());
        }
        let message = "a task that waits has no worker for the steps beside the wait; wait before \
                       or after the parallel section";
        Err(Failure::new("WAIT_IN_PARALLEL", message))
    }

    /// Parks the task until something comes; what came is the answer.
    pub(super) async fn wait(&self, until: Until, timeout: Option<Duration>) -> Result<Json> {
        let timeout_ms = timeout.map(|t| t.as_millis().try_into().unwrap_or(i64::MAX));
        until.check(timeout_ms).map_err(|r| Failure::new("INVALID_WAIT", r.to_string()))?;
        self.refuse_to_wait(&format!("a wait for a {}", until.kind()))?;
        let name = until.key(0).name;
        let occurrence = self.occurrence(&name, &until.inputs());
        let (_, past) = self.revisit(&until.key(occurrence))?;
        if let Some(past) = past.filter(|past| past.status == StepState::Done) {
            return Ok(past.result);
        }
        let item = Park {
            holder: self.holder(),
            until,
            occurrence: Some(occurrence),
            timeout_ms,
            checkpoint: None,
        };
        match self.call(|| self.inner.host.park(item.clone())).await? {
            Parked::Waiting(_) => self.end(Ended::Parked).await,
            Parked::Woken(id, came) => {
                self.did(id, &name, came.clone());
                Ok(came)
            }
        }
    }
}

/// A wait for a signal; awaiting it gives the payload.
#[must_use = "the task waits when this is awaited"]
pub struct SignalWait<'a, T> {
    ctx: &'a Ctx,
    name: String,
    key: Option<String>,
    payload: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> SignalWait<'_, T> {
    /// For a signal to whoever waits with this key, instead of one to this very task.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Waits at most so long; `None` when nothing came.
    pub async fn within(self, timeout: Duration) -> Result<Option<T>> {
        let until = Until::Signal { name: self.name, key: self.key };
        let came = self.ctx.wait(until, Some(timeout)).await?;
        if came["woken"] == "timeout" { Ok(None) } else { payload(&came).map(Some) }
    }
}

impl<'a, T: DeserializeOwned + 'a> IntoFuture for SignalWait<'a, T> {
    type Output = Result<T>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        let (ctx, until) = (self.ctx, Until::Signal { name: self.name, key: self.key });
        Box::pin(async move { payload(&ctx.wait(until, None).await?) })
    }
}

fn payload<T: DeserializeOwned>(came: &Json) -> Result<T> {
    serde_json::from_value(came["payload"].clone())
        .map_err(|e| Failure::new("SIGNAL_MISMATCH", format!("the signal's payload: {e}")))
}
