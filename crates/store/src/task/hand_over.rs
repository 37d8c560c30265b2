//! A lone task that somebody waits for, which is what an idle service sees: on PostgreSQL one
//! statement submits it and hands it over, and no answer is read back on either database.
//!
//! Invariant: what the worker gets is what `decide` makes of the new task and the claim, at the
//! time that the database gave; so it is what a read would show.
//! Absent: limits. A task that they bind goes the way of all batches, see [`super::eager`].

use super::claim::{self, Assignment, Claim};
use super::floor::Lane;
use super::hot::task_of;
use super::row::Task;
use super::submit::{insert, item};
use crate::error::{Error, Result};
use crate::statement;
use crate::statement::Dialect;
use crate::tx::{Call, Tx};
use uuid::Uuid;
use windlass_domain::command::Command;
use windlass_domain::decide::{Decision, decide};
use windlass_domain::id::LeaseId;
use windlass_domain::snapshot::Snapshot;
use windlass_domain::state::State;
use windlass_domain::task::NewTask;
use windlass_domain::time::Timestamp;

statement!(HAND_OVER, "task/hand_over");

/// All of the above.
pub(super) static STATEMENTS: &[&crate::statement::Statement] = &[&HAND_OVER];

/// What became of the task, and of the claim that waited for it.
pub(super) enum Handed {
    /// The task is new, and this is what the claim took: nothing, if others wait in its lane.
    New(Vec<Assignment>),
    /// Its id or key was known, perhaps from an earlier try of this very call.
    Known,
}

/// Submits `task` and hands it over to `claim`, whose lane is scanned from `floor` on.
pub(super) fn hand_over(
    tx: &mut dyn Tx,
    task: &NewTask,
    claim: &Claim,
    lane: &Lane,
    floor: i64,
) -> Result<Handed> {
    // Fresh on every try: one that may have been given out must not be given out again.
    let ids = Ids { lease: Uuid::new_v4(), change: Uuid::now_v7() };
    match tx.dialect() {
        Dialect::Postgres => hand_over_postgres(tx, task, claim, floor, &ids),
        Dialect::Sqlite => hand_over_sqlite(tx, task, claim, lane, &ids),
    }
}

struct Ids {
    lease: Uuid,
    change: Uuid,
}

fn hand_over_postgres(
    tx: &mut dyn Tx,
    task: &NewTask,
    claim: &Claim,
    floor: i64,
    ids: &Ids,
) -> Result<Handed> {
    let mut values = vec![tx.fixed_now().into()];
    values.extend(item(task));
    values.extend([
        floor.into(),
        claim.session.as_str().into(),
        claim.claim.0.into(),
        claim.lease_ms.into(),
        claim.start.into(),
        ids.lease.into(),
        ids.change.into(),
    ]);
    let rows = tx.run_and_commit(vec![Call::one(&HAND_OVER, values)])?;
    let Some(row) = rows.first().and_then(|rows| rows.first()) else { return Ok(Handed::Known) };
    if row.named::<State>(0)? == State::Pending {
        return Ok(Handed::New(Vec::new()));
    }
    Ok(Handed::New(vec![assignment(task, claim, ids, row.time(1)?)?]))
}

/// Two statements: here they cost little, and a trigger begins the task's state.
fn hand_over_sqlite(
    tx: &mut dyn Tx,
    task: &NewTask,
    claim: &Claim,
    lane: &Lane,
    ids: &Ids,
) -> Result<Handed> {
    let (inserted, names) = insert(tx, &[task]);
    let rows = tx.run(inserted)?;
    if rows.first().map(|row| task_of(row, &names)).transpose()?.is_none() {
        return Ok(Handed::Known);
    }
    let shared = vec![
        tx.fixed_now().into(),
        task.id.0.into(),
        lane.0.as_str().into(),
        lane.1.as_str().into(),
        claim.session.as_str().into(),
        claim.claim.0.into(),
        claim.lease_ms.into(),
        claim.start.into(),
    ];
    let item = vec![vec![ids.lease.into(), ids.change.into()]];
    let taken = tx.run(Call::each(&HAND_OVER, shared, item))?;
    if taken.is_empty() {
        // An older one waits: it goes first.
        let lanes = std::slice::from_ref(lane);
        return Ok(Handed::New(claim::take_sqlite(tx, claim, claim.max, lanes, false)?.0));
    }
    let now = tx.now()?;
    Ok(Handed::New(vec![assignment(task, claim, ids, now)?]))
}

fn assignment(task: &NewTask, claim: &Claim, ids: &Ids, now: Timestamp) -> Result<Assignment> {
    let wrong = |what: String| Error::Internal { operation: "hand_over".into(), detail: what };
    let command = Command::Claim {
        session: claim.session.clone(),
        lease_id: LeaseId(ids.lease),
        claim_id: claim.claim,
        lease_ms: claim.lease_ms,
        start: claim.start,
    };
    let decided = decide(&Snapshot::submitted(task, now), &command, now);
    let Decision::Change(change) = decided.map_err(|refusal| wrong(refusal.to_string()))? else {
        return Err(wrong("the claim changed nothing".into()));
    };
    let payload = serde_json::from_str(&task.payload).map_err(|error| wrong(error.to_string()))?;
    let after = change.after;
    Ok(Assignment {
        lease_id: LeaseId(ids.lease),
        attempt: after.attempt,
        lease_expires_at: after.lease_expires_at,
        task: held(task.clone(), after, payload),
        steps: Vec::new(),
        steps_complete: true,
    })
}

/// The task as a read right after the claim shows it.
fn held(new: NewTask, after: Snapshot, payload: serde_json::Value) -> Task {
    Task {
        id: new.id,
        profile: new.profile,
        name: new.name,
        queue: new.queue,
        status: after.status,
        payload,
        result: None,
        error: None,
        checkpoint: None,
        progress: None,
        priority: new.priority,
        tags: new.tags,
        agent: new.agent,
        venture: new.venture,
        portfolio: new.portfolio,
        stage: new.stage,
        owner: new.owner,
        caller: new.caller,
        callee: new.callee,
        pool: new.pool,
        llm: new.llm,
        model: new.model,
        tier: new.tier,
        parent_id: new.parent_id,
        replay_of: new.replay_of,
        correlation_id: new.correlation_id,
        idempotency_key: new.idempotency_key,
        attempt: after.attempt,
        retry_count: after.retry_count,
        max_retries: after.max_retries,
        release_count: after.release_count,
        run_at: after.run_at,
        deadline_at: after.deadline_at,
        claimed_by: after.claimed_by,
        claimed_at: after.claimed_at,
        lease_expires_at: after.lease_expires_at,
        last_heartbeat_at: None,
        stream_started_at: None,
        created_at: after.created_at,
        started_at: after.started_at,
        updated_at: after.updated_at,
        finished_at: None,
        replay_count: 0,
        waiting_for: None,
    }
}
