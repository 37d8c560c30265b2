//! Approvals: questions that people answer, voices, and tokens.
//!
//! Invariant: a gate's question opens with the task that parks and closes with the task's
//! transition, in one transaction; a request's answer and what it permits are one transaction too.
//! The task is locked before its approval, always in this order, so votes stand in line.
//! Absent: who somebody is, and who is told. The server knows credentials, the engine tells.

mod announce;
mod ask;
mod replay;
mod token;
mod vote;

pub use announce::Announce;
pub use ask::{Asked, Asking};
pub use replay::{ReplayRequest, Requested, carry_out_replay};
pub use token::{Issue, Issued};
pub use vote::{Decided, Deciding, Right};

use crate::error::Result;
use crate::statement;
use crate::task::Tasks;
use crate::tx::{Call, Tx};
use crate::value::{Row, Value};
use serde_json::Value as Json;
use std::sync::{Arc, OnceLock};
use uuid::Uuid;
use windlass_domain::approval::{
    Ballot, Choice, Kind, Question, QuestionRequest, REPLAY_GATE, Refused, Status,
};
use windlass_domain::id::{ApprovalId, TaskId};
use windlass_domain::page::{Order, Part};
use windlass_domain::refusal::Refusal;
use windlass_domain::time::Timestamp;
use windlass_domain::why::TokenHolder;

/// What is read of an approval, in the order in which [`approval`] reads it.
pub(crate) const COLUMNS: &str = "a.id, a.task_id, a.kind, a.gate, a.action, a.arguments, \
    a.digest, a.occurrence, a.required, a.requested_by, a.request, a.status, a.expires_at, \
    a.created_at, a.decided_at, (SELECT count(*) FROM approval_vote v \
    WHERE v.approval_id = a.id AND v.choice = 'approve')";

statement!(shared OPEN, "approval/open");
statement!(shared SHOW, "approval/show");
statement!(LOCK, "approval/lock");
statement!(shared REQUESTED, "approval/requested");
statement!(shared VOTES, "approval/votes");
statement!(shared TOKEN_HOLDERS, "approval/token_holders");
statement!(ordered shared LIST_RECENT, "approval/list_recent");
statement!(ordered shared LIST_OF_STATUS, "approval/list_of_status");
statement!(ordered shared LIST_OF_TASK, "approval/list_of_task");
statement!(EXPIRE_REQUESTS, "approval/expire_requests");

static OWN: &[&statement::Statement] =
    &[&OPEN, &SHOW, &LOCK, &REQUESTED, &VOTES, &TOKEN_HOLDERS, &EXPIRE_REQUESTS];

/// The lists, each in both orders.
pub(crate) static LISTS: &[&statement::Ordered] = &[&LIST_RECENT, &LIST_OF_STATUS, &LIST_OF_TASK];

/// The order of a list unless another one is asked for.
pub const ORDER: Order = Order::Descending;

/// Every statement about approvals.
pub(crate) fn statements() -> impl Iterator<Item = &'static statement::Statement> {
    let all = [OWN, ask::STATEMENTS, vote::STATEMENTS, token::STATEMENTS];
    all.into_iter().flatten().copied().chain(statement::both(LISTS))
}

/// A question as users see it.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // Named like the columns of `approval`.
pub struct Approval {
    pub id: ApprovalId,
    pub task_id: TaskId,
    pub kind: Kind,
    pub gate: String,
    pub action: String,
    /// Canonical JSON text: exactly what will run.
    pub arguments: String,
    pub digest: String,
    pub occurrence: i64,
    pub required: i64,
    pub requested_by: String,
    /// What is carried out when it is approved, if no task waits for it.
    pub request: Option<Json>,
    pub status: Status,
    pub expires_at: Option<Timestamp>,
    pub created_at: Timestamp,
    pub decided_at: Option<Timestamp>,
    /// How many have approved so far.
    pub approvals: i64,
}

/// What somebody said.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // Named like the columns of `approval_vote`.
pub struct Vote {
    pub actor: String,
    pub choice: Choice,
    pub comment: Option<String>,
    pub via: String,
    pub vote_id: Uuid,
    pub at: Timestamp,
}

/// Which approvals. Everything that is set must hold.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(missing_docs)] // Named like the columns of `approval`.
pub struct Filter {
    pub status: Option<Status>,
    pub task_id: Option<TaskId>,
    pub gate: Option<String>,
}

/// Where a page begins: behind this approval.
pub type Cursor = (Timestamp, Uuid);

/// A request that somebody must approve: about a finished task, and nobody waits for the answer.
#[derive(Clone, Debug)]
pub struct NewRequest {
    /// Its id, made before the first try.
    pub id: ApprovalId,
    /// The finished task that it is about.
    pub task: TaskId,
    /// What would be done, as the approver reads it.
    pub action: String,
    /// With what, as the approver reads it.
    pub arguments: Json,
    /// What [`OnApproved`] gets: with every id that is to be made.
    pub request: Json,
    /// How many must say yes; one if `None`.
    pub approvers: Option<i64>,
    /// Who asks.
    pub requested_by: String,
    /// How long it stands; for ever if `None`.
    pub expires_ms: Option<i64>,
    /// Who is told.
    pub announce: Option<Announce>,
}

/// Carries out an approved request, in the transaction of the last voice. It may run again from the
/// start, so it makes no ids; when it refuses, it must have written nothing, the voice does not
/// count, and the request is withdrawn if it can never be carried out.
pub type OnApproved = dyn Fn(&mut dyn Tx, &Approval) -> Result<Result<(), Refusal>> + Send + Sync;

/// The repository of approvals; cheap to clone.
#[derive(Clone)]
pub struct Approvals {
    tasks: Tasks,
    on_approved: Arc<OnceLock<Arc<OnApproved>>>,
}

impl Approvals {
    /// The approvals of the tasks of one database.
    pub fn new(tasks: Tasks) -> Approvals {
        Approvals { tasks, on_approved: Arc::default() }
    }

    /// Says what carries out approved requests. Said once, by the engine.
    pub fn on_approved(&self, carry_out: Arc<OnApproved>) {
        let _ = self.on_approved.set(carry_out);
    }

    /// One question and what people said so far.
    pub async fn show(&self, id: ApprovalId) -> Result<Option<(Approval, Vec<Vote>)>> {
        let body = move |tx: &mut dyn Tx| match find(tx, &SHOW, id)? {
            Some(approval) => Ok(Some((approval, votes(tx, id)?))),
            None => Ok(None),
        };
        self.tasks.store().read("approval_show", body).await
    }

    /// A page of questions, newest first.
    pub async fn list(
        &self,
        filter: Filter,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<(Vec<Approval>, Option<Cursor>)> {
        self.page(filter, Part::new(ORDER, after, limit)).await
    }

    /// A page of questions, in either order.
    pub async fn page(
        &self,
        filter: Filter,
        part: Part<Cursor>,
    ) -> Result<(Vec<Approval>, Option<Cursor>)> {
        let (order, (time, id), most) = (part.order, part.begin(), part.most());
        let body = move |tx: &mut dyn Tx| {
            let mut params = vec![time.into(), id.into(), Value::Int(most)];
            let status = Value::from(filter.status.map(Status::as_str));
            let list = match (filter.task_id, filter.status) {
                (Some(task), _) => {
                    params.extend([status, task.0.into()]);
                    &LIST_OF_TASK
                }
                (None, Some(_)) => {
                    params.push(status);
                    &LIST_OF_STATUS
                }
                (None, None) => &LIST_RECENT,
            };
            params.push(filter.gate.clone().into());
            tx.run(Call::one(list.in_order(order), params))?.iter().map(approval).collect()
        };
        let items: Vec<Approval> = self.tasks.store().read("approval_list", body).await?;
        Ok(part.cut(items, |approval| (approval.created_at, approval.id.0)))
    }

    /// Opens a request in a transaction of somebody else's, or finds the same one open already.
    pub fn open_request(tx: &mut dyn Tx, new: &NewRequest) -> Result<Result<Approval, Refusal>> {
        let asked = QuestionRequest {
            gate: REPLAY_GATE.to_owned(),
            action: new.action.clone(),
            arguments: new.arguments.clone(),
            expires_ms: new.expires_ms,
            approvers: new.approvers,
            occurrence: None,
        };
        let question = match asked.validate(&new.requested_by) {
            Ok(question) => question,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let params = vec![new.task.0.into(), question.digest.as_str().into()];
        let rows = tx.run(Call::one(&REQUESTED, params))?;
        if let Some(row) = rows.first() {
            return approval(row).map(Ok);
        }
        let now = tx.now()?;
        let request = Some(&new.request);
        open(tx, new.id, new.task, Kind::Replay, &question, request, now)?;
        opened(tx, new.id, new.announce.as_ref()).map(Ok)
    }

    /// Ends requests that nobody decided about in time; returns how many. Tasks that wait at a gate
    /// are [`Tasks::expire_approvals`]'.
    pub async fn expire_requests(&self, limit: usize) -> Result<usize> {
        let body = move |tx: &mut dyn Tx| {
            let now = tx.now()?;
            let params = vec![now.into(), Value::Int(limit as i64)];
            Ok(tx.run(Call::one(&EXPIRE_REQUESTS, params))?.len())
        };
        self.tasks.store().write("expire_requests", body).await
    }
}

/// Writes a question down.
pub(crate) fn open(
    tx: &mut dyn Tx,
    id: ApprovalId,
    task: TaskId,
    kind: Kind,
    question: &Question,
    request: Option<&Json>,
    now: Timestamp,
) -> Result<()> {
    let request = request.map_or(Value::Null, |r| Value::Json(windlass_domain::json::canonical(r)));
    let params = vec![
        id.0.into(),
        task.0.into(),
        question.gate.as_str().into(),
        question.expires_ms.map(|ms| now.plus_ms(ms)).into(),
        now.into(),
        kind.as_str().into(),
        question.action.as_str().into(),
        question.arguments.as_str().into(),
        question.digest.as_str().into(),
        question.occurrence.into(),
        question.required.into(),
        question.requested_by.as_str().into(),
        request,
    ];
    tx.run(Call::one(&OPEN, params)).map(drop)
}

/// A question that was just written down, and told.
fn opened(tx: &mut dyn Tx, id: ApprovalId, told: Option<&Announce>) -> Result<Approval> {
    let approval = find(tx, &SHOW, id)?;
    let approval = approval.ok_or_else(|| internal("an approval that was opened is not there"))?;
    if let Some(told) = told {
        announce::announce(tx, &approval, told)?;
    }
    Ok(approval)
}

/// Locks the task of an approval, then reads the approval as it stands under the lock.
fn locked(tx: &mut dyn Tx, id: ApprovalId) -> Result<Option<Approval>> {
    let Some(seen) = find(tx, &SHOW, id)? else { return Ok(None) };
    crate::task::load(tx, seen.task_id)?;
    find(tx, &LOCK, id)
}

/// A question as it stands.
pub(crate) fn shown(tx: &mut dyn Tx, id: ApprovalId) -> Result<Option<Approval>> {
    find(tx, &SHOW, id)
}

fn find(
    tx: &mut dyn Tx,
    statement: &'static statement::Statement,
    id: ApprovalId,
) -> Result<Option<Approval>> {
    tx.run(Call::one(statement, vec![id.0.into()]))?.first().map(approval).transpose()
}

/// Who has a token for a question that is good, in the order in which they got it.
pub(crate) fn token_holders(
    tx: &mut dyn Tx,
    id: ApprovalId,
    now: Timestamp,
    most: i64,
) -> Result<Vec<TokenHolder>> {
    let rows = tx.run(Call::one(&TOKEN_HOLDERS, vec![id.0.into(), now.into(), most.into()]))?;
    let holder =
        |row: &Row| Ok(TokenHolder { approver: row.text(0)?.to_owned(), expires_at: row.time(1)? });
    rows.iter().map(holder).collect()
}

/// What people said, in order.
pub(crate) fn votes(tx: &mut dyn Tx, id: ApprovalId) -> Result<Vec<Vote>> {
    let rows = tx.run(Call::one(&VOTES, vec![id.0.into()]))?;
    rows.iter()
        .map(|row| {
            Ok(Vote {
                actor: row.text(0)?.to_owned(),
                choice: row.named(1)?,
                comment: row.maybe(2, |r, i| r.text(i).map(str::to_owned))?,
                via: row.text(3)?.to_owned(),
                vote_id: row.uuid(4)?,
                at: row.time(5)?,
            })
        })
        .collect()
}

fn approval(row: &Row) -> Result<Approval> {
    let text = |index: usize| row.text(index).map(str::to_owned);
    Ok(Approval {
        id: ApprovalId(row.uuid(0)?),
        task_id: TaskId(row.uuid(1)?),
        kind: row.named(2)?,
        gate: text(3)?,
        action: text(4)?,
        arguments: text(5)?,
        digest: text(6)?,
        occurrence: row.int(7)?,
        required: row.int(8)?,
        requested_by: text(9)?,
        request: row.maybe(10, Row::json)?,
        status: row.named(11)?,
        expires_at: row.maybe(12, Row::time)?,
        created_at: row.time(13)?,
        decided_at: row.maybe(14, Row::time)?,
        approvals: row.int(15)?,
    })
}

impl Approval {
    /// As the rule sees it.
    fn ballot<'a>(&'a self, voices: &'a [(String, Choice)]) -> Ballot<'a> {
        Ballot {
            status: self.status,
            digest: &self.digest,
            required: self.required,
            requested_by: &self.requested_by,
            expires_at: self.expires_at,
            voices,
        }
    }
}

fn unknown() -> Refusal {
    Refused::UnknownApproval.into()
}

fn internal(detail: &str) -> crate::error::Error {
    crate::error::Error::Internal { operation: "approval".into(), detail: detail.into() }
}
