//! Tasks that a handler submits and waits for.

use super::context::Ctx;
use super::step::Call;
use super::{Failure, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;
use std::marker::PhantomData;
use std::time::Duration;
use windlass_domain::id::TaskId;
use windlass_domain::profile::Kind;
use windlass_domain::request::SubmitRequest;
use windlass_domain::state::State;
use windlass_domain::step::StepKey;
use windlass_domain::wait::Until;

/// A task that a handler submits.
#[derive(Clone, Debug, Default)]
pub struct NewChild {
    request: SubmitRequest,
}

impl NewChild {
    /// A task for a queue.
    pub fn queue(queue: impl Into<String>) -> NewChild {
        let request = SubmitRequest { queue: Some(queue.into()), ..SubmitRequest::default() };
        NewChild { request }
    }

    /// A delegation to another agent. Its caller is the agent whose task the handler's is: that
    /// task's agent, or of a delegation its callee, or else its queue.
    pub fn callee(callee: impl Into<String>) -> NewChild {
        let (kind, callee) = (Some(Kind::Delegation), Some(callee.into()));
        NewChild { request: SubmitRequest { kind, callee, ..SubmitRequest::default() } }
    }

    /// Which handler runs it.
    pub fn name(mut self, name: impl Into<String>) -> NewChild {
        self.request.name = Some(name.into());
        self
    }

    /// Anything else that can be said of a new task. Its id and its parent are the handler's.
    pub fn with(mut self, change: impl FnOnce(&mut SubmitRequest)) -> NewChild {
        change(&mut self.request);
        self
    }
}

/// A task that was submitted by a handler.
pub struct Child<'a, T> {
    ctx: &'a Ctx,
    id: TaskId,
    result: PhantomData<fn() -> T>,
}

impl Ctx {
    /// Submits a task once, whatever crashes: its id is made of this task and the call.
    pub async fn spawn<T>(&self, child: NewChild, input: &impl Serialize) -> Result<Child<'_, T>> {
        let mut request = child.request;
        request.payload = serde_json::to_value(input)?;
        request.parent_id = Some(self.task().id);
        if request.correlation_id.is_none() {
            request.correlation_id = self.task().correlation_id.clone();
        }
        if request.kind == Some(Kind::Delegation) && request.caller.is_none() {
            let task = self.task();
            let caller = task.agent.as_ref().or(task.callee.as_ref()).unwrap_or(&task.queue);
            request.caller = Some(caller.clone());
        }
        let mut inputs = serde_json::json!({ "queue": request.queue, "name": request.name,
            "payload": request.payload });
        if let Some(callee) = &request.callee {
            inputs["callee"] = callee.as_str().into();
        }
        let name = format!("spawn {}", request.name.as_deref().unwrap_or("a task"));
        let call = Call {
            ctx: self,
            kind: Some("spawn".into()),
            inputs: Some(inputs.clone()),
            once: false,
            timeout: None,
            retry: None,
        };
        let occurrence = self.occurrence("spawned", &inputs);
        let id = StepKey::new("spawned", &inputs, occurrence).id(self.task().id);
        request.id = Some(TaskId(id.0));
        let submit = || async {
            let submitted = self.call(|| self.inner.host.submit(request.clone())).await?;
            Ok(submitted)
        };
        let id: TaskId = call.run(name, submit, |_| Ok(None)).await?;
        Ok(Child { ctx: self, id, result: PhantomData })
    }

    /// Delegates work to another agent and waits for its end, without a worker: the result of the
    /// delegation is the answer. However often the handler is run again, it is delegated once. More
    /// can be said with [`NewChild::callee`] and [`Ctx::spawn`].
    pub async fn delegate<T: DeserializeOwned>(
        &self,
        callee: impl Into<String>,
        input: &impl Serialize,
    ) -> Result<T> {
        self.spawn(NewChild::callee(callee), input).await?.result().await
    }

    /// Any other task, to wait for.
    pub fn other<T>(&self, id: TaskId) -> Child<'_, T> {
        Child { ctx: self, id, result: PhantomData }
    }
}

impl<T: DeserializeOwned> Child<'_, T> {
    /// The task's id.
    pub fn id(&self) -> TaskId {
        self.id
    }

    /// Waits for its end, without a worker. A task that ends without a result is a failure, with
    /// its error in the detail.
    pub async fn result(self) -> Result<T> {
        read(&self.ctx.wait(Until::Task(self.id), None).await?)
    }

    /// Waits at most so long; `None` when the task has not ended by then.
    pub async fn result_within(self, timeout: Duration) -> Result<Option<T>> {
        let came = self.ctx.wait(Until::Task(self.id), Some(timeout)).await?;
        if came["woken"] == "timeout" { Ok(None) } else { read(&came).map(Some) }
    }
}

fn read<T: DeserializeOwned>(came: &Json) -> Result<T> {
    if came["status"] == State::Completed.as_str() {
        return serde_json::from_value(came["result"].clone())
            .map_err(|e| Failure::new("CHILD_MISMATCH", format!("the task's result: {e}")));
    }
    let status = came["status"].as_str().unwrap_or("unknown to the server");
    Err(Failure::new("CHILD_FAILED", format!("the task is {status}")).detail(came.clone()))
}
