//! Handlers in this process: their calls go straight to the engine.
//!
//! Invariant: as over HTTP, a session that has ended is registered again under its id: another node
//! ends it when this process stands still, or is away from the database, for longer than it lives.

use super::TaskInfo;
use super::host::{
    Begun, CallError, Host, HostBeat, PastStep, Pending, Question, StepRun, Told, Work,
};
use crate::engine::{
    ApprovalRequest, Beat, ClaimRequest, Engine, Error, Leased, Phase, SessionRequest,
};
use std::pin::Pin;
use std::time::Duration;
use uuid::Uuid;
use windlass_domain::approval::QuestionRequest;
use windlass_domain::id::{ChangeId, ClaimId, SessionId, TaskId};
use windlass_domain::refusal::Refusal;
use windlass_domain::request::SubmitRequest;
use windlass_domain::step::StepState;
use windlass_domain::validate;
use windlass_store::error::{Error as StoreError, Rejection};
use windlass_store::group::Outcome;
use windlass_store::step::Step;
use windlass_store::task::{
    self, Assignment, BeginStep, Finish, Park, Parked, RecordStep, Recorded, StepEnd,
};

impl From<Error> for CallError {
    fn from(error: Error) -> CallError {
        let is_temporary = match &error {
            Error::Store(error) => is_temporary(error),
            Error::ShuttingDown => true,
            _ => false,
        };
        CallError { code: error.code().to_owned(), detail: error.to_string(), is_temporary }
    }
}

impl From<Rejection> for CallError {
    fn from(rejection: Rejection) -> CallError {
        Error::from(rejection).into()
    }
}

fn is_temporary(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::Busy(_)
            | StoreError::Timeout(_)
            | StoreError::Unavailable(_)
            | StoreError::StorageFull(_)
            | StoreError::OutcomeUnknown(_)
    )
}

fn single<T>(outcomes: Vec<Outcome<T>>) -> Result<T, CallError> {
    let none =
        || CallError { code: "internal".into(), detail: "no outcome".into(), is_temporary: false };
    Ok(outcomes.into_iter().next().ok_or_else(none)??)
}

fn past(step: Step) -> PastStep {
    let Step { id, seq, name, status, result, .. } = step;
    PastStep { id, seq, name, status, result }
}

fn work(assignment: Assignment) -> Work {
    let task = &assignment.task;
    Work {
        task: TaskInfo {
            id: task.id,
            name: task.name.clone(),
            queue: task.queue.clone(),
            attempt: assignment.attempt,
            retry_count: task.retry_count,
            max_retries: task.max_retries,
            tags: task.tags.clone(),
            agent: task.agent.clone(),
            venture: task.venture.clone(),
            caller: task.caller.clone(),
            callee: task.callee.clone(),
            parent_id: task.parent_id,
            replay_of: task.replay_of,
            correlation_id: task.correlation_id.clone(),
            deadline_at: task.deadline_at,
            created_at: task.created_at,
        },
        lease: assignment.lease_id,
        payload: task.payload.clone(),
        checkpoint: task.checkpoint.clone(),
        steps: assignment.steps.iter().cloned().map(past).collect(),
        steps_complete: assignment.steps_complete,
        assignment: Some(Box::new(assignment)),
    }
}

/// The engine of this process, for one worker.
pub(crate) struct Local {
    pub engine: Engine,
    /// How the session was registered.
    pub registration: SessionRequest,
}

impl Local {
    /// A call of the session.
    async fn of_session<T, F>(&self, call: impl Fn() -> F) -> Result<T, CallError>
    where
        F: Future<Output = Result<T, Error>>,
    {
        match call().await {
            Err(Error::SessionClosed(..) | Error::UnknownSession(_)) => {
                self.engine.register(self.registration.clone()).await?;
                Ok(call().await?)
            }
            answer => Ok(answer?),
        }
    }
}

impl Host for Local {
    fn close(&self, session: SessionId) -> Pending<'_, ()> {
        Box::pin(async move { Ok(self.engine.close_session(session).await?) })
    }

    fn claim(
        &self,
        session: SessionId,
        claim: ClaimId,
        max: usize,
        wait: Duration,
    ) -> Pending<'_, Vec<Work>> {
        let request = ClaimRequest { max, wait, start: true, claim: Some(claim), tasks: None };
        Box::pin(async move {
            let claimed = self.of_session(|| self.engine.claim(session, request.clone())).await?;
            Ok(claimed.into_iter().map(work).collect())
        })
    }

    fn beat(&self, session: SessionId, beats: Vec<HostBeat>) -> Pending<'_, Told> {
        let beat = |beat: &HostBeat| {
            let HostBeat { task, lease, checkpoint, progress } = beat.clone();
            Beat { task, lease, checkpoint, progress }
        };
        let beats: Vec<Beat> = beats.iter().map(beat).collect();
        Box::pin(async move {
            let answer = self.of_session(|| self.engine.heartbeat(session, beats.clone())).await?;
            let of = |gone: Vec<Leased>| gone.into_iter().map(|leased| leased.lease).collect();
            let unnamed = answer.unnamed.iter().map(|held| (held.task.id, held.lease_id)).collect();
            Ok(Told { cancelled: of(answer.cancelled), lost: of(answer.lost), unnamed })
        })
    }

    fn tell(&self, lease_ms: Option<i64>, beat: HostBeat, actor: String) -> Pending<'_, Told> {
        Box::pin(async move {
            let HostBeat { task, lease, checkpoint, progress } = beat;
            let change = ChangeId(Uuid::now_v7());
            let item = task::Beat { task, lease, lease_ms, checkpoint, progress, actor, change };
            let mut told = Told::default();
            match single(self.engine.tasks().heartbeat(vec![item]).await.into_iter().collect()) {
                Ok(_) => {}
                Err(error) if error.code == "lease_lost" => told.lost.push(lease),
                Err(error) => return Err(error),
            }
            Ok(told)
        })
    }

    fn finish(&self, _session: SessionId, item: Finish) -> Pending<'_, ()> {
        Box::pin(async move { single(self.engine.finish(vec![item]).await).map(drop) })
    }

    fn record(&self, item: RecordStep) -> Pending<'_, Recorded> {
        Box::pin(async move { single(self.engine.record_steps(vec![item]).await) })
    }

    fn begin(&self, item: BeginStep) -> Pending<'_, Begun> {
        Box::pin(async move {
            Ok(match self.engine.begin_step(item).await? {
                task::Begun::New(id, run) => Begun::New(id, run),
                task::Begun::Ended(step) if step.status == StepState::Done => {
                    Begun::Done(step.result.unwrap_or_default())
                }
                task::Begun::Ended(step) => Begun::Rejected(format!(
                    "{} decided that step `{}` has failed",
                    step.actor, step.name
                )),
            })
        })
    }

    fn end(&self, run: StepRun, actor: String, end: StepEnd) -> Pending<'_, ()> {
        let StepRun { step, lease, number } = run;
        Box::pin(async move {
            Ok(self.engine.end_step(step, lease, number, &actor, end).await.map(drop)?)
        })
    }

    fn park(&self, item: Park) -> Pending<'_, Parked> {
        Box::pin(async move { Ok(self.engine.park(item).await?) })
    }

    fn ask(&self, question: Question) -> Pending<'_, bool> {
        Box::pin(async move {
            let request = ApprovalRequest {
                task: question.task,
                lease: question.lease,
                question: QuestionRequest {
                    gate: question.gate,
                    action: question.action,
                    arguments: question.arguments,
                    expires_ms: question.expires_ms,
                    approvers: question.approvers,
                    occurrence: Some(question.occurrence.into()),
                },
                checkpoint: None,
                requester: None,
                actor: question.actor,
            };
            Ok(!self.engine.ask_approval(request).await?.parked)
        })
    }

    fn submit(&self, request: SubmitRequest) -> Pending<'_, TaskId> {
        Box::pin(async move {
            let id = request.id.unwrap_or_else(|| TaskId(Uuid::now_v7()));
            let invalid = |refusal: Refusal| CallError::from(Error::from(refusal));
            self.engine.know_agents(std::iter::once(&request)).await?;
            let task = self.engine.new_task(&request, id, "", "sdk").map_err(invalid)?;
            Ok(single(self.engine.submit(vec![task]).await)?.id)
        })
    }

    fn steps(&self, task: TaskId, after: i64) -> Pending<'_, (Vec<PastStep>, bool)> {
        Box::pin(async move {
            let page = self.engine.steps().page(task, after, validate::MAX_LIST_LIMIT).await;
            let page = page.map_err(Error::from)?;
            Ok((page.steps.into_iter().map(past).collect(), page.complete))
        })
    }

    fn draining(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.engine.draining())
    }

    fn abandoned(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.engine.abandoned())
    }

    fn phase(&self) -> Phase {
        self.engine.phase()
    }

    fn count(&self) -> Box<dyn Send + Sync> {
        Box::new(self.engine.count_worker())
    }
}
