//! Which function runs which task.

use super::{Ctx, Failure, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;

type Run = Arc<dyn Fn(Ctx, Json) -> Running + Send + Sync>;
pub(crate) type Running = Pin<Box<dyn Future<Output = Result<Json>> + Send>>;

/// Handlers by the names of their tasks; cheap to clone.
#[derive(Clone, Default)]
pub struct Handlers {
    by_name: HashMap<String, Run>,
    otherwise: Option<Run>,
    lenient: bool,
}

impl Handlers {
    /// No handlers yet.
    pub fn new() -> Handlers {
        Handlers::default()
    }

    /// Runs tasks of this name. The payload becomes the function's input; what it returns is the
    /// task's result.
    pub fn on<I, O, F, W>(mut self, name: impl Into<String>, handler: F) -> Handlers
    where
        F: Fn(Ctx, I) -> W + Send + Sync + 'static,
        W: Future<Output = Result<O>> + Send + 'static,
        I: DeserializeOwned + Send + 'static,
        O: Serialize + 'static,
    {
        self.by_name.insert(name.into(), typed(handler));
        self
    }

    /// Runs every other task.
    pub fn otherwise<I, O, F, W>(mut self, handler: F) -> Handlers
    where
        F: Fn(Ctx, I) -> W + Send + Sync + 'static,
        W: Future<Output = Result<O>> + Send + 'static,
        I: DeserializeOwned + Send + 'static,
        O: Serialize + 'static,
    {
        self.otherwise = Some(typed(handler));
        self
    }

    /// Does not mind recorded steps that a handler no longer visits.
    pub fn lenient(mut self) -> Handlers {
        self.lenient = true;
        self
    }

    pub(crate) fn is_strict(&self) -> bool {
        !self.lenient
    }

    pub(crate) fn run(&self, ctx: Ctx, payload: Json) -> Running {
        let name = ctx.task().name.clone().unwrap_or_default();
        match self.by_name.get(&name).or(self.otherwise.as_ref()) {
            Some(run) => run(ctx, payload),
            None => {
                let mut known: Vec<_> = self.by_name.keys().cloned().collect();
                known.sort();
                let message = format!(
                    "this worker has no handler for tasks named `{name}`; it has: {}",
                    known.join(", ")
                );
                Box::pin(async move { Err(Failure::new("NO_HANDLER", message)) })
            }
        }
    }
}

fn typed<I, O, F, W>(handler: F) -> Run
where
    F: Fn(Ctx, I) -> W + Send + Sync + 'static,
    W: Future<Output = Result<O>> + Send + 'static,
    I: DeserializeOwned + Send + 'static,
    O: Serialize + 'static,
{
    let handler = Arc::new(handler);
    Arc::new(move |ctx, payload| {
        let handler = Arc::clone(&handler);
        Box::pin(async move {
            let input = serde_json::from_value(payload)
                .map_err(|e| Failure::invalid_input(format!("the payload: {e}")))?;
            let output = handler(ctx, input).await?;
            Ok(serde_json::to_value(output)?)
        })
    })
}
