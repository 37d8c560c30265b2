//! Asking a person before something is done.

use super::context::{Ctx, Ended};
use super::host::Question;
use super::{Failure, Result};
use serde::Serialize;
use serde_json::json;
use std::future::IntoFuture;
use std::pin::Pin;
use std::time::Duration;

/// A question that is about to be asked; awaiting it asks, and returns when people have agreed.
#[must_use = "the question is asked when this is awaited"]
pub struct Gate<'a> {
    ctx: &'a Ctx,
    gate: String,
    action: String,
    arguments: Result<serde_json::Value>,
    approvers: Option<i64>,
    expires: Option<Duration>,
}

impl Ctx {
    /// Asks whether `action` may be done with exactly these arguments. The task waits without a
    /// worker; a denial ends it. Asked again after it was approved, it goes on at once.
    pub fn approve(
        &self,
        gate: impl Into<String>,
        action: impl Into<String>,
        arguments: &impl Serialize,
    ) -> Gate<'_> {
        Gate {
            ctx: self,
            gate: gate.into(),
            action: action.into(),
            arguments: serde_json::to_value(arguments).map_err(Failure::from),
            approvers: None,
            expires: None,
        }
    }
}

impl Gate<'_> {
    /// How many people must agree; one by default.
    pub fn approvers(mut self, approvers: i64) -> Self {
        self.approvers = Some(approvers);
        self
    }

    /// How long the question stands.
    pub fn expires(mut self, after: Duration) -> Self {
        self.expires = Some(after);
        self
    }
}

impl<'a> IntoFuture for Gate<'a> {
    type Output = Result<()>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let arguments = self.arguments?;
            self.ctx.refuse_to_wait(&format!("the question at gate `{}`", self.gate))?;
            let identity = json!({ "action": self.action, "arguments": arguments });
            let question = Question {
                task: self.ctx.task().id,
                lease: self.ctx.lease(),
                actor: self.ctx.actor(),
                occurrence: self.ctx.occurrence(&format!("approve {}", self.gate), &identity),
                gate: self.gate,
                action: self.action,
                arguments,
                approvers: self.approvers,
                expires_ms: self.expires.map(|d| d.as_millis().try_into().unwrap_or(i64::MAX)),
            };
            match self.ctx.call(|| self.ctx.inner.host.ask(question.clone())).await? {
                true => Ok(()),
                false => self.ctx.end(Ended::Parked).await,
            }
        })
    }
}
