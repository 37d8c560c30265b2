//! Why a task does not run. The reasons, their order and their words are the domain's.

use super::Api;
use super::problem::Result;
use super::request::Id;
use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;
use windlass::domain::id::TaskId;
use windlass::domain::refusal::Refusal;
use windlass::domain::time::Timestamp;
use windlass::domain::why::Reason;
use windlass::store::task::Why;

/// Every reason that holds a task back, the most important first.
#[derive(Serialize, ToSchema)]
pub struct WhyBody {
    task_id: Uuid,
    #[schema(value_type = super::body::Status)]
    status: &'static str,
    /// When this was so.
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    /// Never empty.
    #[schema(value_type = Vec<ReasonBody>)]
    reasons: Vec<Told>,
}

/// A reason as it is sent.
#[derive(Serialize)]
struct Told {
    detail: String,
    #[serde(flatten)]
    reason: Reason,
}

/// One reason. Which fields it has depends on its code; docs/why.md lists them.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, missing_docs)] // The document's view of `Told`, compared with it by a test.
pub struct ReasonBody {
    /// What programs decide by.
    code: ReasonCode,
    /// The reason in words.
    detail: String,
    status: Option<String>,
    error: Option<ReasonError>,
    #[schema(value_type = Option<String>, format = DateTime)]
    since: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = DateTime)]
    until: Option<Timestamp>,
    session: Option<String>,
    worker: Option<String>,
    attempt: Option<i32>,
    retry_count: Option<i32>,
    max_retries: Option<i32>,
    #[schema(value_type = Option<String>, format = DateTime)]
    lease_expires_at: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = DateTime)]
    last_heartbeat_at: Option<Timestamp>,
    lease_expired: Option<bool>,
    approval_id: Option<Uuid>,
    gate: Option<String>,
    action: Option<String>,
    required: Option<i64>,
    approvals: Option<i64>,
    /// The first ten.
    voters: Option<Vec<VoterBody>>,
    more_voters: Option<i64>,
    /// The first ten.
    token_holders: Option<Vec<TokenHolderBody>>,
    more_token_holders: Option<i64>,
    step_id: Option<Uuid>,
    step: Option<String>,
    signal: Option<String>,
    key: Option<String>,
    task_id: Option<Uuid>,
    caller: Option<String>,
    scope: Option<String>,
    name: Option<String>,
    by: Option<String>,
    reason: Option<String>,
    limit: Option<i64>,
    held: Option<i64>,
    holders: Option<Vec<SlotHolder>>,
    period_ms: Option<i64>,
    queue: Option<String>,
    kind: Option<String>,
    llm: Option<String>,
    model: Option<String>,
    tier: Option<String>,
    ahead: Option<i64>,
    ahead_at_least: Option<bool>,
    ventures: Option<i64>,
    workers: Option<i64>,
    slots: Option<i64>,
    estimated_wait_ms: Option<i64>,
    #[schema(value_type = Option<String>, format = DateTime)]
    estimated_start_at: Option<Timestamp>,
}

/// What holds a task back, the most important first.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[allow(dead_code, missing_docs)] // The document's view of the domain's `Reason`.
pub enum ReasonCode {
    Finished,
    Held,
    WaitingForApproval,
    InDoubt,
    WaitingForSignal,
    WaitingForTask,
    WaitingForTime,
    Waiting,
    RunElsewhere,
    BackingOff,
    Scheduled,
    Paused,
    LimitReached,
    RateReached,
    NoWorker,
    WorkersBusy,
    Draining,
    InLine,
    Ready,
}

/// The last error, without its detail.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, missing_docs)] // The document's view of the domain's `LastError`.
pub struct ReasonError {
    code: String,
    message: String,
}

/// Somebody who voted on an approval.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Voter)]
#[allow(dead_code, missing_docs)] // The document's view of the domain's `Voter`.
pub struct VoterBody {
    actor: String,
    /// `approve` or `deny`.
    choice: String,
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
}

/// Somebody who has a token for an approval that is good, and has not used it.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = TokenHolder)]
#[allow(dead_code, missing_docs)] // The document's view of the domain's `TokenHolder`.
pub struct TokenHolderBody {
    approver: String,
    #[schema(value_type = String, format = DateTime)]
    expires_at: Timestamp,
}

/// A task that holds a slot of a limit.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, missing_docs)] // The document's view of the domain's `Holder`.
pub struct SlotHolder {
    task_id: Uuid,
    session: String,
    worker: Option<String>,
    #[schema(value_type = Option<String>, format = DateTime)]
    since: Option<Timestamp>,
}

impl From<Why> for WhyBody {
    fn from(why: Why) -> WhyBody {
        let told = |reason: Reason| Told { detail: reason.detail(), reason };
        WhyBody {
            task_id: why.task.0,
            status: why.status.as_str(),
            at: why.at,
            reasons: why.reasons.into_iter().map(told).collect(),
        }
    }
}

/// Say why a task does not run.
#[utoipa::path(get, path = "/v1/tasks/{id}/why", tag = "tasks",
    operation_id = "why_task", params(("id" = Uuid, Path)),
    responses((status = 200, description = "Every reason", body = WhyBody)))]
pub async fn why(State(api): State<Api>, Id(id): Id<TaskId>) -> Result<Json<WhyBody>> {
    let why = api.engine.tasks().why(id).await?.ok_or(Refusal::UnknownTask)?;
    Ok(Json(why.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass::domain::approval::Choice;
    use windlass::domain::id::{ApprovalId, StepId};
    use windlass::domain::limit::Scope;
    use windlass::domain::pins::Pins;
    use windlass::domain::profile::Kind;
    use windlass::domain::state::State;
    use windlass::domain::why::{Holder, LastError, TokenHolder, Voices, Voter};

    const AT: Timestamp = Timestamp::EPOCH;

    fn error() -> Option<LastError> {
        Some(LastError { code: "TIMEOUT".into(), message: "silence".into() })
    }

    fn parked() -> Vec<Reason> {
        let (gate, action) = ("pay".to_owned(), "transfer".to_owned());
        let approval_id = ApprovalId(Uuid::nil());
        let (required, approvals, until) = (2, 1, Some(AT));
        let voter = Voter { actor: "olga".into(), choice: Choice::Approve, at: AT };
        let token_holder = TokenHolder { approver: "ann".into(), expires_at: AT };
        vec![
            Reason::WaitingForApproval {
                approval_id,
                gate,
                action,
                required,
                approvals,
                until,
                voices: Voices::new(vec![voter], vec![token_holder]),
            },
            Reason::InDoubt { step_id: StepId(Uuid::nil()), step: Some("charge".into()) },
            Reason::WaitingForSignal { signal: "go".into(), key: Some("k".into()), until },
            Reason::WaitingForTask {
                task_id: TaskId(Uuid::nil()),
                status: Some(State::Running),
                until,
            },
            Reason::WaitingForTime { until: AT },
            Reason::Waiting {},
        ]
    }

    fn stopped() -> Vec<Reason> {
        let (scope, name) = (Scope::Venture, Some("acme".to_owned()));
        let (by, since, reason) = ("eve".to_owned(), AT, Some("audit".to_owned()));
        let holder = Holder {
            task_id: TaskId(Uuid::nil()),
            session: "s1".into(),
            worker: Some("ann".into()),
            since: Some(AT),
        };
        vec![
            Reason::Paused {
                scope,
                name: name.clone(),
                by: by.clone(),
                since,
                reason: reason.clone(),
            },
            Reason::Draining { scope, name: name.clone(), by, since, reason },
            Reason::WorkersBusy {
                queue: "q".into(),
                workers: 1,
                slots: 1,
                held: 1,
                holders: vec![holder.clone()],
            },
            Reason::LimitReached {
                scope,
                name: name.clone(),
                limit: 1,
                held: 1,
                holders: vec![holder],
            },
            Reason::RateReached { scope, name, limit: 1, period_ms: 1, until: Some(AT) },
        ]
    }

    fn others() -> Vec<Reason> {
        vec![
            Reason::Finished { status: State::Failed, since: Some(AT), error: error() },
            Reason::Held {
                status: State::Running,
                session: Some("s1".into()),
                worker: Some("ann".into()),
                since: Some(AT),
                attempt: 1,
                lease_expires_at: Some(AT),
                last_heartbeat_at: Some(AT),
                lease_expired: true,
            },
            Reason::RunElsewhere { caller: Some("boss".into()) },
            Reason::BackingOff {
                until: AT,
                attempt: 1,
                retry_count: 1,
                max_retries: 3,
                error: error(),
            },
            Reason::Scheduled { until: AT },
            Reason::NoWorker {
                queue: "q".into(),
                kind: Kind::Job,
                pins: Pins {
                    llm: Some("l".into()),
                    model: Some("m".into()),
                    tier: Some("t".into()),
                },
            },
            Reason::InLine {
                ahead: 1,
                ahead_at_least: false,
                ventures: 2,
                estimated_wait_ms: Some(4),
                estimated_start_at: Some(AT),
            },
            Reason::Ready {
                ahead: 1,
                ahead_at_least: false,
                ventures: 2,
                workers: 1,
                slots: 3,
                estimated_wait_ms: Some(4),
                estimated_start_at: Some(AT),
            },
        ]
    }

    #[test]
    fn the_document_knows_every_reason_and_all_its_fields() {
        for reason in others().into_iter().chain(parked()).chain(stopped()) {
            let told = serde_json::to_value(Told { detail: reason.detail(), reason }).unwrap();
            let known = serde_json::from_value::<ReasonBody>(told.clone());
            assert!(known.is_ok(), "{told}: {:?}", known.err());
        }
    }
}
