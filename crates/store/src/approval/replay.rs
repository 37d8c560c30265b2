//! Replays that a person must agree to: the request, and what follows when it is approved.
//!
//! Invariant: whether a person is needed, the question, and the new task are decided under the
//! origin's lock; the new task is made in the transaction of the last voice, or not at all, and the
//! trouble that it is to resolve is resolved with it.

use super::{Announce, Approval, Approvals, NewRequest, internal};
use crate::error::{Rejection, Result};
use crate::group::Outcome;
use crate::task::{self, Consent, Replay, Replayed};
use crate::trouble::{self, Act};
use crate::tx::Tx;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeMap;
use uuid::Uuid;
use windlass_domain::approval::REQUEST_MS;
use windlass_domain::id::{ApprovalId, StepId, TaskId};
use windlass_domain::refusal::Refusal;
use windlass_domain::replay::{Agreed, Plan, ReplayFrom};
use windlass_domain::trouble::Event;

/// Somebody wants a replay. Ids are made before the first try.
#[derive(Clone, Debug)]
pub struct ReplayRequest {
    /// What is to be replayed, and by whom.
    pub replay: Replay,
    /// Whether a person must agree.
    pub consent: Consent,
    /// The id of the question, should there be one.
    pub approval: ApprovalId,
    /// Who asks, and so cannot approve.
    pub requested_by: String,
    /// Who is told of the question.
    pub announce: Option<Announce>,
    /// The trouble that the new task resolves, in the same transaction.
    pub resolves: Option<Act>,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq)]
pub enum Requested {
    /// The new task is there; whether it was before.
    Task(TaskId, bool),
    /// It waits for people.
    Waits(Box<Approval>),
}

/// What is kept with the question, to be carried out when it is approved.
#[derive(Serialize, Deserialize)]
struct Kept {
    #[serde(flatten)]
    replay: Replay,
    /// The steps that the question names: no others that must not run twice run again. Absent in
    /// questions of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    runs_again: Option<Vec<StepId>>,
    /// The highest number of their runs: none of them has run since. Absent like the steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last_run: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    resolves: Option<Resolves>,
}

/// The trouble of the origin is resolved with the new task: by whom, and with which words.
#[derive(Serialize, Deserialize)]
struct Resolves {
    actor: String,
    note: Option<String>,
    note_ids: [Uuid; 2],
}

impl Kept {
    fn new(request: &ReplayRequest, plan: &Plan) -> Kept {
        let resolves = request.resolves.as_ref().map(|act| Resolves {
            actor: act.actor.clone(),
            note: act.note.clone(),
            note_ids: act.note_ids,
        });
        let Agreed { steps, last_run } = plan.agreed();
        Kept { replay: request.replay.clone(), runs_again: Some(steps), last_run, resolves }
    }

    fn of(approval: &Approval) -> Option<Kept> {
        approval.request.clone().and_then(|request| serde_json::from_value(request).ok())
    }

    fn act(&self) -> Option<Act> {
        let Resolves { actor, note, note_ids } = self.resolves.as_ref()?;
        let act = Act::new(self.replay.origin, Event::Resolve, actor.clone());
        Some(Act { note: note.clone(), note_ids: *note_ids, ..act })
    }
}

impl Approvals {
    /// Replays a task, or opens the question whether it may be; the same question is asked once.
    pub async fn replay(&self, request: ReplayRequest) -> Outcome<Requested> {
        let body = move |tx: &mut dyn Tx| ask_or_create(tx, &request);
        let (requested, queued) = self.tasks.store().write("replay_request", body).await??;
        self.tasks.stand_in_line(queued);
        Ok(requested)
    }
}

type Done = (Requested, Vec<task::Queued>);

fn ask_or_create(tx: &mut dyn Tx, request: &ReplayRequest) -> Result<Outcome<Done>> {
    let replay = &request.replay;
    if let Some(act) = &request.resolves {
        // The task's lock first, as everywhere; then nothing that follows can be refused any more.
        task::load(tx, replay.origin)?;
        if let Err(refusal) = trouble::check(tx, act)? {
            return Ok(Err(refusal.into()));
        }
    }
    match task::create_replay(tx, replay, &request.consent)? {
        Err(rejection) => Ok(Err(rejection)),
        Ok((Replayed::New(id, _), _)) => {
            resolve(tx, request.resolves.as_ref(), id)?;
            Ok(Ok((Requested::Task(id, false), in_line(tx, id)?)))
        }
        Ok((Replayed::Existing(id), _)) => {
            resolve(tx, request.resolves.as_ref(), id)?;
            Ok(Ok((Requested::Task(id, true), Vec::new())))
        }
        Ok((Replayed::NeedsApproval(plan), _)) => {
            let new = NewRequest {
                id: request.approval,
                task: replay.origin,
                action: "replay".to_owned(),
                arguments: arguments(request, &plan),
                request: serde_json::to_value(Kept::new(request, &plan)).unwrap_or_default(),
                approvers: None,
                requested_by: request.requested_by.clone(),
                expires_ms: Some(REQUEST_MS),
                announce: request.announce.clone(),
            };
            let opened = Approvals::open_request(tx, &new)?;
            let waits = opened.map(|approval| (Requested::Waits(Box::new(approval)), Vec::new()));
            Ok(waits.map_err(Rejection::from))
        }
    }
}

/// So many names of steps are told, as long as names may be: an approver reads no more, and there
/// is no room for more.
const NAMES: usize = 200;
/// Under what the others are counted.
const OTHERS: &str = "(others)";

/// What the approver reads: everything that will be done, and how many steps of which name run
/// again that must not run twice.
fn arguments(request: &ReplayRequest, plan: &Plan) -> serde_json::Value {
    let replay = &request.replay;
    let mut arguments = json!({
        "task": replay.origin,
        "from": from(&replay.from),
        "allow_non_idempotent": replay.allow_non_idempotent,
    });
    let mut runs_again: BTreeMap<&str, u64> = BTreeMap::new();
    for step in plan.runs_again() {
        let is_told = runs_again.len() < NAMES || runs_again.contains_key(step.name.as_str());
        *runs_again.entry(if is_told { &step.name } else { OTHERS }).or_default() += 1;
    }
    if !runs_again.is_empty() {
        arguments["runs_again"] = json!(runs_again);
        // Whoever asks again after another run asks another question.
        arguments["last_run"] = json!(plan.agreed().last_run);
    }
    if request.resolves.is_some() {
        arguments["resolves_poison"] = json!(true);
    }
    arguments
}

fn resolve(tx: &mut dyn Tx, act: Option<&Act>, new: TaskId) -> Result<()> {
    let Some(act) = act else { return Ok(()) };
    let act = Act { resolved_by_task: Some(new), ..act.clone() };
    let resolved = trouble::carry_out(tx, &act)?;
    resolved.map(drop).map_err(|refusal| internal(&refusal.to_string()))
}

fn from(from: &ReplayFrom) -> serde_json::Value {
    serde_json::to_value(from).unwrap_or_default()
}

/// Makes the new task of an approved request, and resolves what it is to resolve. The engine says
/// that this is what follows.
pub fn carry_out_replay(tx: &mut dyn Tx, approval: &Approval) -> Result<Result<(), Refusal>> {
    let kept = Kept::of(approval);
    let kept = kept.ok_or_else(|| internal("an approved replay does not say of what"))?;
    let act = kept.act();
    // The origin is locked, as its approval is.
    if let Some(act) = &act
        && let Err(refusal) = trouble::check(tx, act)?
    {
        return Ok(Err(refusal));
    }
    let agreed = kept.runs_again.map(|steps| Agreed { steps, last_run: kept.last_run });
    let consent = agreed.map_or(Consent::Given, Consent::To);
    match task::create_replay(tx, &kept.replay, &consent)? {
        Ok(_) => resolve(tx, act.as_ref(), kept.replay.id).map(Ok),
        Err(Rejection::Refused(refusal)) => Ok(Err(refusal)),
        Err(Rejection::Failed(error)) => Err(error),
    }
}

/// Where the task that an approved request made stands in line.
pub(super) fn made(tx: &mut dyn Tx, approval: &Approval) -> Result<Vec<task::Queued>> {
    match Kept::of(approval) {
        Some(kept) => in_line(tx, kept.replay.id),
        None => Ok(Vec::new()),
    }
}

fn in_line(tx: &mut dyn Tx, id: TaskId) -> Result<Vec<task::Queued>> {
    let found = task::load(tx, id)?;
    Ok(found.and_then(|(task, _)| task::queued(&task)).into_iter().collect())
}
