//! Keeping a task: start and heartbeat.

use super::Tasks;
use super::cold::{self, Ask};
use super::hot::{Hot, task_of};
use crate::error::Result;
use crate::group::{Bounds, Group, Outcome};
use crate::statement;
use crate::store::{Lane, Store};
use crate::tx::{Call, Tx};
use crate::value::Value;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use uuid::Uuid;
use windlass_domain::command::Command;
use windlass_domain::id::{ChangeId, LeaseId, TaskId};
use windlass_domain::state::State;
use windlass_domain::time::Timestamp;

statement!(START, "task/start");
statement!(HEARTBEAT, "task/heartbeat");
statement!(SAVE_PROGRESS, "task/save_progress");

/// All of the above.
pub(super) static STATEMENTS: &[&crate::statement::Statement] =
    &[&START, &HEARTBEAT, &SAVE_PROGRESS];

/// A holder begins.
#[derive(Clone, Debug)]
pub struct Start {
    /// Which task.
    pub task: TaskId,
    /// The holder's lease.
    pub lease: LeaseId,
    /// Who, for the history.
    pub actor: String,
    /// The id of the history row, made before the first try.
    pub change: ChangeId,
}

/// A holder is alive, and may tell how far it is.
#[derive(Clone, Debug)]
pub struct Beat {
    /// Which task.
    pub task: TaskId,
    /// The holder's lease.
    pub lease: LeaseId,
    /// The session's own lease length; the profile's if `None`.
    pub lease_ms: Option<i64>,
    /// Canonical JSON; `None` keeps the last.
    pub checkpoint: Option<String>,
    /// Canonical JSON; `None` keeps the last.
    pub progress: Option<String>,
    /// Who, for the history, should the beat start the task.
    pub actor: String,
    /// The id of the history row, made before the first try.
    pub change: ChangeId,
}

/// The answer to a beat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beaten {
    /// Until when the lease holds now; `None` when the task is a ledger's.
    pub lease_expires_at: Option<Timestamp>,
}

impl Tasks {
    /// Starts claimed tasks; starting a running one again is no error.
    pub async fn start(&self, items: Vec<Start>) -> Vec<Outcome<State>> {
        self.starts.join(items).await
    }

    /// Renews leases, and only those that are named.
    pub async fn heartbeat(&self, items: Vec<Beat>) -> Vec<Outcome<Beaten>> {
        let stuck_ms = self.stuck_ms();
        self.beats.join(items.into_iter().map(|beat| Timed { beat, stuck_ms }).collect()).await
    }

    /// How long a delegation may be silent after a beat, on this node.
    pub(super) fn stuck_ms(&self) -> i64 {
        self.stuck_ms.load(Ordering::Relaxed)
    }

    /// Sets how long a delegation may be silent after a beat. Said once, by the engine.
    pub fn stuck_after(&self, ms: i64) {
        self.stuck_ms.store(ms, Ordering::Relaxed);
    }
}

/// A beat, and how long a delegation may be silent after it.
#[derive(Clone, Debug)]
pub(super) struct Timed {
    beat: Beat,
    stuck_ms: i64,
}

pub(super) fn start_group(store: Store, bounds: Bounds) -> Group<Start, State> {
    Group::new(
        "start",
        bounds,
        |_| 128,
        move |items| {
            let store = store.clone();
            async move { STARTS.run(&store, Arc::new(items)).await }
        },
    )
}

const STARTS: Hot<Start, State> = Hot {
    name: "start",
    lane: Lane::Write,
    id: |item| item.task.0,
    run: |tx, items| {
        let items = sorted(items, |i| i.task);
        let ids: Vec<Uuid> = items.iter().map(|i| i.task.0).collect();
        let rows = (items.iter())
            .map(|i| {
                let (task, lease) = (i.task.0.into(), i.lease.0.into());
                vec![task, lease, i.change.0.into(), i.actor.as_str().into()]
            })
            .collect();
        let call = Call::each(&START, vec![tx.fixed_now().into()], rows);
        let started = tx.run_and_commit(vec![call])?;
        started[0].iter().map(|row| Ok((task_of(row, &ids)?, State::Running))).collect()
    },
    missed: |store, items| {
        Box::pin(async move {
            let asks = items.into_iter().map(|i| Ask {
                task: i.task,
                command: Command::Start { lease_id: i.lease },
                actor: i.actor,
                reason: None,
                change: i.change,
            });
            cold::ask(&store, None, Lane::Write, "start_again", asks.collect()).await
        })
    },
};

pub(super) fn beat_group(store: Store, bounds: Bounds) -> Group<Timed, Beaten> {
    let weigh = |timed: &Timed| {
        let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        128 + length(&timed.beat.checkpoint) + length(&timed.beat.progress)
    };
    Group::new("heartbeat", bounds, weigh, move |items| {
        let store = store.clone();
        async move { BEATS.run(&store, Arc::new(items)).await }
    })
}

const BEATS: Hot<Timed, Beaten> = Hot {
    name: "heartbeat",
    lane: Lane::Heartbeat,
    id: |item| item.beat.task.0,
    run: beat,
    missed: |store, items| {
        Box::pin(async move {
            let asks = items.into_iter().map(|timed| timed.beat).map(|i| Ask {
                task: i.task,
                command: Command::Heartbeat { lease_id: i.lease, lease_ms: i.lease_ms },
                actor: i.actor,
                reason: None,
                change: i.change,
            });
            let asked = cold::ask(&store, None, Lane::Heartbeat, "heartbeat_again", asks.collect());
            let outcomes = asked.await.into_iter();
            outcomes.map(|o| o.map(|_| Beaten { lease_expires_at: None })).collect()
        })
    },
};

fn beat(tx: &mut dyn Tx, items: &[&Timed]) -> Result<HashMap<Uuid, Beaten>> {
    let now = Value::from(tx.fixed_now());
    let items = sorted(items, |i| i.beat.task);
    let beats = (items.iter())
        .map(|timed| {
            let i = &timed.beat;
            vec![
                i.task.0.into(),
                i.lease.0.into(),
                i.change.0.into(),
                i.actor.as_str().into(),
                i.lease_ms.into(),
                timed.stuck_ms.into(),
            ]
        })
        .collect();
    let mut calls = vec![Call::each(&HEARTBEAT, vec![now.clone()], beats)];
    let told: Vec<_> = (items.iter())
        .map(|timed| &timed.beat)
        .filter(|i| i.checkpoint.is_some() || i.progress.is_some())
        .map(|i| {
            let json = |text: &Option<String>| text.clone().map_or(Value::Null, Value::Json);
            let (checkpoint, progress) = (json(&i.checkpoint), json(&i.progress));
            vec![i.task.0.into(), i.lease.0.into(), checkpoint, progress, i.change.0.into()]
        })
        .collect();
    if !told.is_empty() {
        calls.push(save_progress(now, told));
    }
    let rows = tx.run_and_commit(calls)?;
    rows[0]
        .iter()
        .map(|row| Ok((row.uuid(0)?, Beaten { lease_expires_at: row.maybe(1, |r, i| r.time(i))? })))
        .collect()
}

/// Keeps what holders told: task, lease, checkpoint, progress and change of each.
pub(super) fn save_progress<'a>(now: Value, told: Vec<Vec<Value>>) -> Call<'a> {
    Call::each(&SAVE_PROGRESS, vec![now], told)
}

/// Keeps a checkpoint in a transaction that does more than that; absent means keep the last.
pub(crate) fn keep_checkpoint(
    tx: &mut dyn Tx,
    task: TaskId,
    lease: LeaseId,
    checkpoint: &Option<String>,
    change: ChangeId,
) -> Result<()> {
    let Some(checkpoint) = checkpoint else { return Ok(()) };
    let checkpoint = Value::Json(checkpoint.clone());
    let item = vec![task.0.into(), lease.0.into(), checkpoint, Value::Null, change.0.into()];
    let now = tx.fixed_now().into();
    tx.run(save_progress(now, vec![item])).map(drop)
}

/// In the order of their ids: two batches that share tasks lock them in the same order.
pub(super) fn sorted<'a, I>(items: &[&'a I], task: fn(&I) -> TaskId) -> Vec<&'a I> {
    let mut ordered = items.to_vec();
    ordered.sort_by_key(|i| task(i));
    ordered
}
