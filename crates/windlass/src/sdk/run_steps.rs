//! Steps in an order: each gets the state and returns what is merged into it.
//!
//! After each step the checkpoint says which step it was, the index of the next one, which are
//! done, and the state, so that an attempt goes on where the last one stopped. A checkpoint that
//! something else has kept since says nothing of these steps: what was recorded of each does.

use super::context::Ctx;
use super::step::Call;
use super::{Failure, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use std::pin::Pin;
use std::sync::Arc;
use windlass_domain::step::StepKey;
use windlass_domain::time::Timestamp;

type Work =
    Arc<dyn Fn(Ctx, Json) -> Pin<Box<dyn Future<Output = Result<Json>> + Send>> + Send + Sync>;

/// Named steps in their order.
#[derive(Clone, Default)]
pub struct Steps {
    steps: Vec<(String, bool, Work)>,
}

impl Steps {
    /// No steps yet.
    pub fn new() -> Steps {
        Steps::default()
    }

    /// The next step: it gets the state so far, and the object it returns is merged into it.
    pub fn then<W>(
        self,
        name: impl Into<String>,
        work: impl Fn(Ctx, Json) -> W + Send + Sync + 'static,
    ) -> Steps
    where
        W: Future<Output = Result<Json>> + Send + 'static,
    {
        self.add(name.into(), false, work)
    }

    /// The next step, which must not run twice; see [`StepCall::once`](super::StepCall::once).
    pub fn then_once<W>(
        self,
        name: impl Into<String>,
        work: impl Fn(Ctx, Json) -> W + Send + Sync + 'static,
    ) -> Steps
    where
        W: Future<Output = Result<Json>> + Send + 'static,
    {
        self.add(name.into(), true, work)
    }

    fn add<W>(
        mut self,
        name: String,
        once: bool,
        work: impl Fn(Ctx, Json) -> W + Send + Sync + 'static,
    ) -> Steps
    where
        W: Future<Output = Result<Json>> + Send + 'static,
    {
        let work: Work = Arc::new(move |ctx, state| Box::pin(work(ctx, state)));
        self.steps.push((name, once, work));
        self
    }
}

/// What is kept after each step.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Checkpoint {
    /// How many other lists of steps the handler had run before.
    #[serde(default)]
    list: i32,
    step: String,
    step_index: usize,
    completed_steps: Vec<String>,
    state: Map<String, Json>,
    created_at: Timestamp,
}

impl Ctx {
    /// Runs the steps in their order, from where the last attempt stopped, and returns the state.
    pub async fn run_steps(&self, initial: Json, steps: &Steps) -> Result<Json> {
        let names: Vec<&str> = steps.steps.iter().map(|(name, ..)| name.as_str()).collect();
        if let Some(twice) = names.iter().enumerate().find(|(i, name)| names[..*i].contains(name)) {
            let message = format!("two steps are called `{}`; name them apart", twice.1);
            return Err(Failure::new("INVALID_STEP", message));
        }
        let Json::Object(mut state) = initial else {
            return Err(Failure::new("INVALID_STEP", "the state must be an object"));
        };
        let mut begin = 0;
        // No step has this name, so nothing else is counted under it.
        let list = self.occurrence("", &Json::Null);
        let last = self.last_checkpoint::<Checkpoint>().unwrap_or_default();
        if let Some(last) = last.filter(|last| last.list == list) {
            let done = &last.completed_steps;
            if done.len() != last.step_index || !names.iter().zip(done).all(|(a, b)| a == b) {
                let message = format!(
                    "the checkpoint is after {done:?}, which are not the first \
                    of {names:?}: the steps have changed"
                );
                return Err(Failure::new("STEP_MISMATCH", message));
            }
            for name in done {
                // Counted as if it were revisited, so that the same name later on is another step.
                self.skip(&StepKey::new(name, &Json::Null, self.occurrence(name, &Json::Null)));
            }
            (begin, state) = (last.step_index, last.state);
        }
        for (index, (name, once, work)) in steps.steps.iter().enumerate().skip(begin) {
            let before = Json::Object(state.clone());
            let call = Call {
                ctx: self,
                kind: None,
                inputs: None,
                once: *once,
                timeout: None,
                retry: None,
            };
            let run = || work(self.clone(), before.clone());
            let completed: Vec<String> = names[..=index].iter().map(|n| (*n).to_owned()).collect();
            let checkpoint = |result: &Json| {
                let kept = Checkpoint {
                    list,
                    step: name.clone(),
                    step_index: index + 1,
                    completed_steps: completed.clone(),
                    state: merged(state.clone(), name, result.clone())?,
                    created_at: windlass_store::clock::Clock::System.now(),
                };
                Ok(Some(serde_json::to_value(kept)?))
            };
            let result: Json = call.run(name.clone(), run, checkpoint).await?;
            state = merged(state, name, result)?;
        }
        Ok(Json::Object(state))
    }
}

fn merged(mut state: Map<String, Json>, name: &str, result: Json) -> Result<Map<String, Json>> {
    match result {
        Json::Object(fields) => state.extend(fields),
        Json::Null => {}
        other => {
            let message = format!("step `{name}` must return an object, not {other}");
            return Err(Failure::new("INVALID_STEP", message));
        }
    }
    Ok(state)
}
