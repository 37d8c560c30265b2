//! A lone task that somebody waits for, which is what an idle service sees: on PostgreSQL one
//! statement submits it and hands it over, and no answer is read back on either database.
//!
//! Invariant: what the worker gets is what `decide` makes of the new task and the claim, at the
//! time that the database gave; so it is what a read would show.
//! Absent: a backlog, limits that are reached, rates. A task that meets them goes the way of all
//! batches, see [`super::eager`].

use super::claim::{Assignment, Claim};
use super::hot::task_of;
use super::lane::Lanes;
use super::room::{Lock, Room};
use super::row::Task;
use super::slot;
use super::submit::{Placed, insert, item};
use super::take::take_after;
use crate::error::{Error, Result};
use crate::statement;
use crate::statement::Dialect;
use crate::tx::{Call, Tx};
use crate::value::Value;
use std::sync::Arc;
use uuid::Uuid;
use windlass_domain::command::Command;
use windlass_domain::decide::{Decision, decide};
use windlass_domain::id::LeaseId;
use windlass_domain::limit::Bound;
use windlass_domain::profile::Profile;
use windlass_domain::snapshot::Snapshot;
use windlass_domain::state::State;
use windlass_domain::task::{NewTask, When};
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

/// More lanes than this with something in them are a backlog, and no idle service.
const MOST_LANES: usize = 8;

/// Whether anybody may be given this task at once.
pub(super) fn is_for_now(task: &NewTask) -> bool {
    let is_now = matches!(task.run_at, When::After(ms) if ms <= 0);
    is_now && task.profile != Profile::Ledger
}

/// Whether the claim would take this task. It waits for a task of its batch, but that one may have
/// been refused, and this be the one that is left.
fn is_wanted(task: &NewTask, claim: &Claim) -> bool {
    is_for_now(task)
        && claim.queues.contains(&task.queue)
        && claim.profiles.contains(&task.profile)
        && claim.serves.has(&task.pins())
}

/// Submits a task and hands it over to `claim`, if limits permit that and nothing waits before it.
/// `None`: too much waits, or the claim is not for this task; nothing is written.
pub(super) fn hand_over(
    tx: &mut dyn Tx,
    lanes: &Arc<Lanes>,
    placed: &Placed,
    claim: &Claim,
    room: &mut Room,
) -> Result<Option<Handed>> {
    if !is_wanted(&placed.task, claim) {
        return Ok(None);
    }
    // What its holder's type allows is counted by an ordinary claim.
    if lanes.limits().is_some_and(|limits| slot::is_bound(&limits, claim)) {
        return Ok(None);
    }
    let task = &placed.task;
    let mut before = lanes.waiting(&task.queue, claim);
    if before.len() > MOST_LANES {
        return Ok(None);
    }
    // What is handed out under a rate is written down by an ordinary claim.
    if placed.bounds.iter().any(|bound| bound.rate.is_some()) {
        return Ok(None);
    }
    let fits = match placed.bounds.iter().any(Bound::binds_claims) {
        true => {
            room.hold(tx, Lock::Active, [&placed.bounds[..]])?;
            room.admit(&placed.bounds)
        }
        false => true,
    };
    if !fits {
        return Ok(None);
    }
    // Fresh on every try: one that may have been given out must not be given out again.
    let ids = Ids { lease: Uuid::new_v4(), change: Uuid::now_v7() };
    match tx.dialect() {
        Dialect::Postgres => {
            if !before.iter().any(|(lane, _)| *lane == placed.lane) {
                before.push((placed.lane, i64::MIN));
            }
            hand_over_postgres(tx, placed, claim, &before, &ids, room).map(Some)
        }
        Dialect::Sqlite => {
            hand_over_sqlite(tx, lanes, placed, claim, &before, &ids, room).map(Some)
        }
    }
}

struct Ids {
    lease: Uuid,
    change: Uuid,
}

fn hand_over_postgres(
    tx: &mut dyn Tx,
    placed: &Placed,
    claim: &Claim,
    before: &[(i64, i64)],
    ids: &Ids,
    room: &mut Room,
) -> Result<Handed> {
    let task = &placed.task;
    let mut values = vec![tx.fixed_now().into()];
    values.extend(item(task, placed.lane));
    values.extend([
        claim.session.as_str().into(),
        claim.claim.0.into(),
        claim.lease_ms.into(),
        claim.start.into(),
        ids.lease.into(),
        ids.change.into(),
    ]);
    values.extend(room.share());
    let before = before.iter().map(|&(lane, key)| vec![lane.into(), key.into()]).collect();
    let rows = tx.run_and_commit(vec![Call::each(&HAND_OVER, values, before)])?;
    let Some(row) = rows.first().and_then(|rows| rows.first()) else { return Ok(Handed::Known) };
    if row.named::<State>(0)? == State::Pending {
        return Ok(Handed::New(Vec::new()));
    }
    Ok(Handed::New(vec![assignment(task, claim, ids, row.time(1)?)?]))
}

/// Two statements: here they cost little, and a trigger begins the task's state.
fn hand_over_sqlite(
    tx: &mut dyn Tx,
    lanes: &Arc<Lanes>,
    placed: &Placed,
    claim: &Claim,
    before: &[(i64, i64)],
    ids: &Ids,
    room: &mut Room,
) -> Result<Handed> {
    let task = &placed.task;
    let (inserted, names) = insert(tx, &[placed], room);
    let rows = tx.run(inserted)?;
    if rows.first().map(|row| task_of(row, &names)).transpose()?.is_none() {
        return Ok(Handed::Known);
    }
    let shared = vec![
        tx.fixed_now().into(),
        task.id.0.into(),
        claim.session.as_str().into(),
        claim.claim.0.into(),
        claim.lease_ms.into(),
        claim.start.into(),
        Value::Json(json_list(before, placed.lane)),
    ];
    let item = vec![vec![ids.lease.into(), ids.change.into()]];
    let taken = tx.run(Call::each(&HAND_OVER, shared, item))?;
    if taken.is_empty() {
        // An older one waits: it goes first.
        let claims = std::slice::from_ref(claim);
        let took = take_after(tx, lanes, claims, Vec::new(), Room::adding(claim.max))?;
        let taken = took.settle().0.into_iter().next();
        return Ok(Handed::New(taken.map(|taken| taken.assignments).unwrap_or_default()));
    }
    let now = tx.now()?;
    Ok(Handed::New(vec![assignment(task, claim, ids, now)?]))
}

/// The lanes to look at, as SQLite takes them.
fn json_list(before: &[(i64, i64)], lane: i64) -> String {
    let lanes: Vec<String> =
        before.iter().map(|(lane, _)| *lane).chain([lane]).map(|lane| lane.to_string()).collect();
    format!("[{}]", lanes.join(","))
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
        usage: None,
        created_at: after.created_at,
        started_at: after.started_at,
        updated_at: after.updated_at,
        finished_at: None,
        replay_count: 0,
        waiting_for: None,
    }
}
