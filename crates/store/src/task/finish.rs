//! Ending an attempt: complete (hot), fail and release (decided), and the same call again.

use super::cold::{self, Ask};
use super::hold::sorted;
use super::hot::{Hot, task_of};
use super::lane::Lanes;
use super::{Tasks, row};
use crate::error::{Error, Result};
use crate::group::{Bounds, Group, Outcome};
use crate::statement;
use crate::store::{Lane, Store};
use crate::tx::{Call, Tx};
use crate::value::{Row, Value};
use std::collections::HashSet;
use std::sync::Arc;
use uuid::Uuid;
use windlass_domain::command::Command;
use windlass_domain::decide::is_not_told;
use windlass_domain::failure::TaskError;
use windlass_domain::id::{ChangeId, LeaseId, TaskId};
use windlass_domain::refusal::Refusal;
use windlass_domain::snapshot::Snapshot;
use windlass_domain::state::{Event, State};
use windlass_domain::usage::Usage;

statement!(COMPLETE, "task/complete");
statement!(shared FINISHED_BY_LEASE, "task/finished_by_lease");

/// All of the above.
pub(super) static STATEMENTS: &[&crate::statement::Statement] = &[&COMPLETE, &FINISHED_BY_LEASE];

/// How an attempt ends.
#[derive(Clone, Debug)]
pub enum Finishing {
    /// With a result: canonical JSON.
    Complete(Option<String>),
    /// With an error.
    Fail {
        /// What went wrong.
        error: TaskError,
        /// The failure's own wish when to try again.
        retry_after_ms: Option<i64>,
        /// A number in [0, 1) for the jitter, made before the first try.
        chance: f64,
    },
    /// Unfinished: somebody else may take the task.
    Release,
}

/// One attempt's end.
#[derive(Clone, Debug)]
pub struct Finish {
    /// Which task.
    pub task: TaskId,
    /// The holder's lease.
    pub lease: LeaseId,
    /// How.
    pub how: Finishing,
    /// What this attempt took; a release tells nothing.
    pub usage: Option<Usage>,
    /// Who, for the history.
    pub actor: String,
    /// Why, for the history.
    pub reason: Option<String>,
    /// The id of the history row, made before the first try.
    pub change: ChangeId,
}

/// A completion, as its statement takes it.
#[derive(Clone, Debug)]
pub(super) struct Complete {
    task: TaskId,
    lease: LeaseId,
    result: Option<String>,
    usage: Option<Usage>,
    actor: String,
    reason: Option<String>,
    change: ChangeId,
}

impl Tasks {
    /// Ends attempts, each with its own outcome: where the task stands now. The same call again
    /// with the same lease is answered like the first.
    pub async fn finish(&self, items: Vec<Finish>) -> Vec<Outcome<State>> {
        let mut completes = Vec::new();
        let mut asks = Vec::new();
        let mut asked = HashSet::new();
        let mut is_hot = Vec::with_capacity(items.len());
        for item in items {
            let Finish { task, lease: lease_id, how, usage, actor, reason, change } = item;
            // Completions go first. One that stands behind another item of its task must not
            // overtake it, so it is decided with that one, in order.
            let hot = matches!(how, Finishing::Complete(_)) && !asked.contains(&task);
            is_hot.push(hot);
            let command = match how {
                Finishing::Complete(result) if hot => {
                    let lease = lease_id;
                    completes.push(Complete { task, lease, result, usage, actor, reason, change });
                    continue;
                }
                Finishing::Complete(result) => Command::Complete { lease_id, result, usage },
                Finishing::Fail { error, retry_after_ms, chance } => {
                    Command::Fail { lease_id, error, retry_after_ms, chance, usage }
                }
                Finishing::Release => Command::Release { lease_id },
            };
            asked.insert(task);
            asks.push(Ask { task, command, actor, reason, change });
        }
        let mut completed = self.completes.join(completes).await.into_iter();
        let mut asked = self.asks.join(asks).await.into_iter();
        let pick = |hot| if hot { completed.next() } else { asked.next() };
        is_hot.into_iter().filter_map(pick).collect()
    }
}

pub(super) fn complete_group(
    store: Store,
    lanes: Arc<Lanes>,
    bounds: Bounds,
) -> Group<Complete, State> {
    let weigh = |item: &Complete| 128 + item.result.as_ref().map_or(0, String::len);
    Group::new("complete", bounds, weigh, move |items| {
        let (store, lanes) = (store.clone(), Arc::clone(&lanes));
        async move {
            let outcomes = COMPLETES.run(&store, Arc::new(items)).await;
            lanes.freed(outcomes.iter().flatten().map(|completed| completed.lane));
            outcomes.into_iter().map(|outcome| outcome.map(|done| done.state)).collect()
        }
    })
}

/// Where a completed task stands, and in which lane it stood, if the database said so.
struct Completed {
    state: State,
    lane: Option<i64>,
}

const COMPLETES: Hot<Complete, Completed> = Hot {
    name: "complete",
    lane: Lane::Write,
    id: |item| item.task.0,
    run: |tx, items| {
        let items = sorted(items, |i| i.task);
        let ids: Vec<Uuid> = items.iter().map(|i| i.task.0).collect();
        let rows = (items.iter())
            .map(|i| {
                vec![
                    i.task.0.into(),
                    i.lease.0.into(),
                    i.change.0.into(),
                    i.actor.as_str().into(),
                    i.result.clone().map_or(Value::Null, Value::Json),
                    i.reason.clone().into(),
                    i.usage.as_ref().map_or(Value::Null, row::typed),
                ]
            })
            .collect();
        let call = Call::each(&COMPLETE, vec![tx.fixed_now().into()], rows);
        let completed = tx.run_and_commit(vec![call])?;
        let done = |row: &Row| {
            let lane = row.maybe(1, Row::int)?;
            Ok((task_of(row, &ids)?, Completed { state: State::Completed, lane }))
        };
        completed[0].iter().map(done).collect()
    },
    missed: |store, items| {
        Box::pin(async move {
            let asks = items.into_iter().map(|i| Ask {
                task: i.task,
                command: Command::Complete { lease_id: i.lease, result: i.result, usage: i.usage },
                actor: i.actor,
                reason: i.reason,
                change: i.change,
            });
            let outcomes = cold::ask(&store, None, Lane::Write, "complete_again", asks.collect());
            let done = |state| Completed { state, lane: None };
            outcomes.await.into_iter().map(|outcome| outcome.map(done)).collect()
        })
    },
};

/// A finishing call whose lease is gone may be one that was already carried out: the history
/// knows which lease ended which attempt, and how.
pub(super) fn repeated(
    tx: &mut dyn Tx,
    ask: &Ask,
    task: &Snapshot,
    refusal: Refusal,
) -> Result<Result<State, Refusal>> {
    let (Refusal::LeaseLost { .. }, Some(lease)) = (&refusal, finishing_lease(&ask.command)) else {
        return Ok(Err(refusal));
    };
    let params = vec![task.id.0.into(), lease.0.into()];
    let rows = tx.run(Call::one(&FINISHED_BY_LEASE, params))?;
    let Some(row) = rows.first() else { return Ok(Err(refusal)) };
    let (event, to): (Event, State) = (row.named(0)?, row.named(1)?);
    let metadata = row.maybe(2, |r, i| r.json(i))?.unwrap_or_default();
    if is_not_told(&metadata) {
        return Ok(Err(refusal));
    }
    let told = |usage: &Option<Usage>| *usage == Usage::stored(&metadata["usage"]);
    let same = match (&ask.command, event) {
        (Command::Complete { result, usage, .. }, Event::Complete) => {
            *result == task.result && told(usage)
        }
        (Command::Fail { error, usage, .. }, Event::Fail) if told(usage) => {
            let first = serde_json::from_value::<TaskError>(metadata["error"].clone());
            first.map_err(|e| Error::Corrupt(format!("history of {}: {e}", task.id)))? == *error
        }
        (Command::Release { .. }, Event::Release | Event::ReleaseTooOften) => true,
        _ if by_the_holder(event) => false,
        // A sweep or an operator took the lease.
        _ => return Ok(Err(refusal)),
    };
    Ok(if same { Ok(to) } else { Err(Refusal::AlreadyFinished { event }) })
}

/// How a lease ended its attempt, if it did.
pub(crate) fn ended_by(tx: &mut dyn Tx, task: TaskId, lease: LeaseId) -> Result<Option<Event>> {
    let rows = tx.run(Call::one(&FINISHED_BY_LEASE, vec![task.0.into(), lease.0.into()]))?;
    rows.first().map(|row| row.named(0)).transpose()
}

fn finishing_lease(command: &Command) -> Option<LeaseId> {
    match command {
        Command::Complete { lease_id, .. }
        | Command::Fail { lease_id, .. }
        | Command::Release { lease_id } => Some(*lease_id),
        _ => None,
    }
}

fn by_the_holder(event: Event) -> bool {
    use Event::{AskApproval, Complete, Fail, Release, Wait};
    matches!(event, Complete | Fail | Release | AskApproval | Wait)
}
