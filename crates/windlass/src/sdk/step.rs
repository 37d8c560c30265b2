//! One step of a handler.

use super::context::{Ctx, refused};
use super::host::{Begun, StepRun};
use super::{Failure, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;
use std::future::IntoFuture;
use std::pin::Pin;
use std::time::Duration;
use windlass_domain::retry::{Backoff, Class, classify, code};
use windlass_domain::step::{CheckedStep, Effect, StepInput, StepState, check};
use windlass_domain::validate;
use windlass_store::task::{BeginStep, RecordStep, StepEnd};

tokio::task_local! {
    /// The step whose work runs. A handler has a task of its own, so it is a step of this handler;
    /// steps side by side do not see each other's, because each sets it for its own work only.
    static WITHIN: String;
}

/// How often a step is tried again within its attempt, and how soon.
#[derive(Clone, Debug, PartialEq)]
pub struct Retry {
    /// How many tries beyond the first.
    pub times: i32,
    /// How long to wait before each, and which codes are worth it.
    pub backoff: Backoff,
}

impl Retry {
    /// So many tries beyond the first, with the default backoff: 1 s, 2 s, 4 s … with jitter.
    pub fn times(times: i32) -> Retry {
        Retry { times, backoff: Backoff::default() }
    }
}

/// A step that is about to run; awaiting it runs it, or takes what an earlier attempt recorded.
#[must_use = "a step runs when it is awaited"]
pub struct StepCall<'a, F> {
    ctx: &'a Ctx,
    name: String,
    work: F,
    options: Options,
}

#[derive(Default)]
struct Options {
    kind: Option<String>,
    inputs: Option<Result<Json>>,
    once: bool,
    timeout: Option<Duration>,
    retry: Option<Retry>,
    checkpoint: Option<Result<Json>>,
}

impl Ctx {
    /// A step: `work` runs unless an earlier attempt has recorded its result. It may run more than
    /// once if the worker dies in it; [`StepCall::once`] is for work that must not. Steps, waits
    /// and questions inside `work` are refused: they belong beside it.
    pub fn step<F>(&self, name: impl Into<String>, work: F) -> StepCall<'_, F> {
        StepCall { ctx: self, name: name.into(), work, options: Options::default() }
    }
}

impl Ctx {
    /// Refuses to begin something durable inside a step's work. Once the step is recorded its work
    /// does not run again, so a later attempt would not come past what was begun in there.
    pub(super) fn refuse_in_step(&self, what: &str) -> Result<()> {
        let Ok(outer) = WITHIN.try_with(String::clone) else { return Ok(()) };
        let message = format!(
            "{what} was begun inside the work of step `{outer}`; begin it in the handler itself, \
             before or after that step, and hand over what it gave (steps side by side: \
             `Ctx::parallel`)"
        );
        Err(Failure::new("INSIDE_STEP", message))
    }
}

impl<F> StepCall<'_, F> {
    /// What kind of step it is, such as `llm` or `tool`; for people and queries.
    pub fn kind(mut self, kind: impl Into<String>) -> Self {
        self.options.kind = Some(kind.into());
        self
    }

    /// What the step works on: other inputs are another step.
    pub fn inputs(mut self, inputs: &impl Serialize) -> Self {
        self.options.inputs = Some(serde_json::to_value(inputs).map_err(Failure::from));
        self
    }

    /// The work must not run twice. Its intent is written before it begins; if the worker dies in
    /// it, the task waits until a person records its result, allows it to run again, or fails it.
    pub fn once(mut self) -> Self {
        self.options.once = true;
        self
    }

    /// How long one try may take.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.options.timeout = Some(timeout);
        self
    }

    /// Tries again within this attempt. A step that runs [`once`](Self::once) is tried again only
    /// if its failure says that it had [`no effect`](Failure::no_effect).
    pub fn retry(mut self, retry: Retry) -> Self {
        self.options.retry = Some(retry);
        self
    }

    /// A checkpoint that is kept together with the step's result, in one commit.
    pub fn checkpoint(mut self, checkpoint: &impl Serialize) -> Self {
        self.options.checkpoint = Some(serde_json::to_value(checkpoint).map_err(Failure::from));
        self
    }
}

impl<'a, F, W, T> IntoFuture for StepCall<'a, F>
where
    F: Fn() -> W + Send + Sync + 'a,
    W: Future<Output = Result<T>> + Send,
    T: Serialize + DeserializeOwned + Send,
{
    type Output = Result<T>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let StepCall { ctx, name, work, options } = self;
            let checkpoint = options.checkpoint.transpose()?;
            let call = Call {
                ctx,
                kind: options.kind,
                inputs: options.inputs.transpose()?,
                once: options.once,
                timeout: options.timeout,
                retry: options.retry,
            };
            call.run(name, work, |_: &T| Ok(checkpoint.clone())).await
        })
    }
}

/// A step with everything that was said of it.
pub(super) struct Call<'a> {
    pub ctx: &'a Ctx,
    pub kind: Option<String>,
    pub inputs: Option<Json>,
    pub once: bool,
    pub timeout: Option<Duration>,
    pub retry: Option<Retry>,
}

impl Call<'_> {
    /// Runs the step, or takes what was recorded; `checkpoint` is made of its result.
    pub(super) async fn run<W, T>(
        self,
        name: String,
        work: impl Fn() -> W,
        checkpoint: impl Fn(&T) -> Result<Option<Json>>,
    ) -> Result<T>
    where
        W: Future<Output = Result<T>>,
        T: Serialize + DeserializeOwned,
    {
        self.ctx.refuse_in_step(&format!("step `{name}`"))?;
        let inputs = self.inputs.clone().unwrap_or_default();
        let occurrence = self.ctx.occurrence(&name, &inputs);
        let input = StepInput {
            name: &name,
            kind: self.kind.as_deref(),
            inputs: Some(&inputs),
            occurrence: Some(occurrence),
        };
        let step = check(&input).map_err(|r| Failure::new("INVALID_STEP", r.to_string()))?;
        let (_, past) = self.ctx.revisit(&step.key)?;
        // Only such a step writes anything before it is done.
        let past_is_begun = past.as_ref().is_some_and(|past| past.status != StepState::Done);
        if let Some(past) = past.filter(|past| past.status == StepState::Done) {
            return read(&name, past.result);
        }
        if !self.once && past_is_begun {
            let message = format!(
                "step `{name}` was begun as one that must not run twice, and the handler runs it \
                 as one that may: the handler has changed. Run the old version, or decide over it"
            );
            return Err(Failure::new("STEP_MISMATCH", message));
        }
        match self.once {
            false => self.run_again(step, work, checkpoint).await,
            true => self.run_once(step, work, checkpoint).await,
        }
    }

    async fn run_again<W, T>(
        &self,
        step: CheckedStep,
        work: impl Fn() -> W,
        checkpoint: impl Fn(&T) -> Result<Option<Json>>,
    ) -> Result<T>
    where
        W: Future<Output = Result<T>>,
        T: Serialize + DeserializeOwned,
    {
        let value = self.tries(&step.key.name, &work).await?;
        let (result, json) = written(&value)?;
        let checkpoint = text_of(checkpoint(&value)?)?;
        let name = step.key.name.clone();
        let item = RecordStep { holder: self.ctx.holder(), step, result, checkpoint };
        let recorded = self.ctx.call(|| self.ctx.inner.host.record(item.clone())).await?;
        match recorded.earlier {
            // Somebody was faster, or this very call was repeated: the first result stands.
            Some(earlier) => {
                self.ctx.did(recorded.id, &name, earlier.clone());
                read(&name, earlier)
            }
            None => {
                self.ctx.did(recorded.id, &name, json);
                Ok(value)
            }
        }
    }

    async fn run_once<W, T>(
        &self,
        step: CheckedStep,
        work: impl Fn() -> W,
        checkpoint: impl Fn(&T) -> Result<Option<Json>>,
    ) -> Result<T>
    where
        W: Future<Output = Result<T>>,
        T: Serialize + DeserializeOwned,
    {
        let name = step.key.name.clone();
        let mut tried = 0;
        loop {
            let item = BeginStep { holder: self.ctx.holder(), step: step.clone() };
            let begun = self.ctx.call(|| self.ctx.inner.host.begin(item.clone())).await?;
            let run = match begun {
                Begun::New(step, number) => StepRun { step, lease: self.ctx.lease(), number },
                Begun::Done(result) => return read(&name, result),
                Begun::Rejected(detail) => return Err(Failure::new(code::STEP_REJECTED, detail)),
            };
            let failure = match self.one_try(&name, &work).await {
                Ok(value) => {
                    let (result, json) = written(&value)?;
                    let checkpoint = text_of(checkpoint(&value)?)?;
                    self.tell_end(run, StepEnd::Complete { result, checkpoint }).await?;
                    self.ctx.did(run.step, &name, json);
                    return Ok(value);
                }
                Err(failure) => failure,
            };
            let (error, effect) = (failure.told(), failure.effect);
            self.tell_end(run, StepEnd::Fail { error, effect }).await?;
            if effect != Effect::None {
                return Err(failure);
            }
            self.pause(&mut tried, failure).await?;
        }
    }

    async fn tell_end(&self, run: StepRun, end: StepEnd) -> Result<()> {
        let ctx = self.ctx;
        ctx.call(|| ctx.inner.host.end(run, ctx.actor(), end.clone())).await
    }

    async fn tries<W, T>(&self, name: &str, work: &impl Fn() -> W) -> Result<T>
    where
        W: Future<Output = Result<T>>,
    {
        let mut tried = 0;
        loop {
            match self.one_try(name, work).await {
                Ok(value) => return Ok(value),
                Err(failure) => self.pause(&mut tried, failure).await?,
            }
        }
    }

    async fn one_try<W, T>(&self, name: &str, work: &impl Fn() -> W) -> Result<T>
    where
        W: Future<Output = Result<T>>,
    {
        let inside = WITHIN.scope(name.to_owned(), async { work().await });
        let Some(timeout) = self.timeout else { return inside.await };
        match tokio::time::timeout(timeout, inside).await {
            Ok(done) => done,
            Err(_) => {
                let message = format!("the step took longer than {} ms", timeout.as_millis());
                Err(Failure::new(code::TIMEOUT, message))
            }
        }
    }

    /// Waits before the next try, or gives the failure back when there is none.
    async fn pause(&self, tried: &mut i32, failure: Failure) -> Result<()> {
        let Some(retry) = &self.retry else { return Err(failure) };
        let worth_it = classify(failure.code(), Some(&retry.backoff)) == Class::Retry;
        if *tried >= retry.times || !worth_it {
            return Err(failure);
        }
        let ms = retry.backoff.delay_ms(*tried, crate::engine::chance());
        let pause = failure.retry_after.unwrap_or(Duration::from_millis(ms.max(0) as u64));
        *tried += 1;
        tokio::time::sleep(pause).await;
        Ok(())
    }
}

fn read<T: DeserializeOwned>(name: &str, result: Json) -> Result<T> {
    serde_json::from_value(result).map_err(|e| {
        let message = format!("what step `{name}` recorded does not fit the handler: {e}");
        Failure::new("STEP_MISMATCH", message)
    })
}

fn written<T: Serialize>(value: &T) -> Result<(String, Json)> {
    let json = serde_json::to_value(value)?;
    Ok((validate::result(&json).map_err(refused)?, json))
}

fn text_of(checkpoint: Option<Json>) -> Result<Option<String>> {
    checkpoint.map(|json| validate::checkpoint(&json).map_err(refused)).transpose()
}
