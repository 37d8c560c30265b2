//! The cold path: load, decide, save, in one transaction.
//!
//! Also the second look of the hot operations: an item whose guard did not hold comes here to
//! learn why, and is carried out if a racing change has made it possible meanwhile.

use super::lane::Lanes;
use super::{Tasks, push, row};
use crate::approval;
use crate::error::{Error, Rejection, Result};
use crate::group::{Bounds, Group, Outcome};
use crate::statement;
use crate::store::{Lane, Store};
use crate::tx::{Call, Tx};
use crate::value::Value;
use crate::wait;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use uuid::Uuid;
use windlass_domain::approval::Kind;
use windlass_domain::command::Command;
use windlass_domain::decide::{Change, Decision, decide};
use windlass_domain::id::{ChangeId, TaskId};
use windlass_domain::profile;
use windlass_domain::refusal::Refusal;
use windlass_domain::snapshot::Snapshot;
use windlass_domain::state::State;
use windlass_domain::time::Timestamp;

statement!(LOAD, "task/load");
statement!(SAVE, "task/save");

/// All of the above.
pub(super) static STATEMENTS: &[&crate::statement::Statement] = &[&LOAD, &SAVE];

/// One command for one task, with who asks and why.
#[derive(Clone, Debug)]
pub struct Ask {
    /// Which task.
    pub task: TaskId,
    /// What.
    pub command: Command,
    /// Who, for the history.
    pub actor: String,
    /// Why, for the history.
    pub reason: Option<String>,
    /// The id of the history row, made before the first try.
    pub change: ChangeId,
}

impl Ask {
    /// A command with a fresh change id.
    pub fn new(task: TaskId, command: Command, actor: impl Into<String>) -> Ask {
        let change = ChangeId(Uuid::now_v7());
        Ask { task, command, actor: actor.into(), reason: None, change }
    }
}

/// A task that is back in line.
pub(crate) struct Queued {
    pub(crate) queue: String,
    lane: i64,
    order_key: i64,
}

/// Where the task went back in line, if it did.
pub(crate) fn queued(after: &Snapshot) -> Option<Queued> {
    let back = after.status.is_claimable();
    let (lane, order_key) = (after.lane, after.order_key);
    back.then(|| Queued { queue: after.queue.clone(), lane, order_key })
}

/// Concurrent commands share a transaction.
pub(super) fn group(store: Store, lanes: Arc<Lanes>, bounds: Bounds) -> Group<Ask, State> {
    Group::new(
        "ask",
        bounds,
        |_| 1024,
        move |asks| {
            let (store, lanes) = (store.clone(), Arc::clone(&lanes));
            async move { ask(&store, Some(&lanes), Lane::Write, "ask", asks).await }
        },
    )
}

/// Runs the commands in one transaction: each is decided and gives its own outcome. If the data
/// of one makes the database refuse, they are tried again in halves until it stands alone.
pub(super) async fn ask(
    store: &Store,
    lanes: Option<&Lanes>,
    lane: Lane,
    name: &'static str,
    asks: Vec<Ask>,
) -> Vec<Outcome<State>> {
    let mut outcomes = Vec::with_capacity(asks.len());
    let mut batches = vec![asks];
    while let Some(batch) = batches.pop() {
        if batch.is_empty() {
            continue;
        }
        let body = batch.clone();
        match store.run(lane, name, move |tx| run(tx, &body)).await {
            Ok(answered) => {
                if let Some(lanes) = lanes {
                    answered.queued.iter().for_each(|q| lanes.stand(q.lane, q.order_key));
                    lanes.freed(answered.let_go.into_iter().map(Some));
                }
                outcomes.extend(answered.outcomes);
            }
            Err(error) if error.is_about_data() && batch.len() > 1 => {
                let mut first = batch;
                let second = first.split_off(first.len() / 2);
                batches.push(second);
                batches.push(first);
            }
            Err(error) => outcomes.extend(batch.iter().map(|_| Err(error.clone().into()))),
        }
    }
    outcomes
}

/// A group that gave no outcome: a defect of ours.
pub(super) fn no_answer() -> Error {
    Error::Internal { operation: "ask".into(), detail: "no outcome".into() }
}

/// The tasks under their locks, which are taken in the order of their ids. A row that cannot be
/// read is the affair of those who ask for it.
pub(super) fn load_all(
    tx: &mut dyn Tx,
    ids: impl IntoIterator<Item = TaskId>,
) -> Result<BTreeMap<TaskId, Result<(Snapshot, ChangeId)>>> {
    let mut ids: Vec<Uuid> = ids.into_iter().map(|id| id.0).collect();
    ids.sort_unstable();
    ids.dedup();
    let rows = tx.run(Call::one(&LOAD, vec![Value::UuidList(ids)]))?;
    rows.iter().map(|row| Ok((TaskId(row.uuid(0)?), row::snapshot(row)))).collect()
}

/// Decides one command for a task that is locked, and writes what follows. `metadata` says more
/// than the rule knows.
pub(super) fn decide_and_save(
    tx: &mut dyn Tx,
    task: &mut Snapshot,
    ask: &Ask,
    metadata: Option<serde_json::Value>,
) -> Result<Result<(), Refusal>> {
    match decide(task, &ask.command, tx.now()?) {
        Err(refusal) => return Ok(Err(refusal)),
        Ok(Decision::Nothing) => {}
        Ok(Decision::Touch(after)) => {
            save(tx, vec![Saved::touch(&after, ask)])?;
            *task = *after;
        }
        Ok(Decision::Change(mut change)) => {
            change.metadata = metadata.or(change.metadata);
            save(tx, vec![Saved::change(&change, ask)])?;
            *task = change.after;
        }
    }
    Ok(Ok(()))
}

/// Writes what was decided, with `after` as the task is then.
pub(super) fn save_decided(
    tx: &mut dyn Tx,
    decision: Decision,
    after: Snapshot,
    ask: &Ask,
) -> Result<()> {
    match decision {
        Decision::Nothing => Ok(()),
        Decision::Touch(_) => save(tx, vec![Saved::touch(&after, ask)]),
        Decision::Change(change) => {
            save(tx, vec![Saved::change(&Change { after, ..*change }, ask)])
        }
    }
}

/// What came of a command that is part of somebody's transaction.
pub(crate) struct Carried {
    /// Where the task stands now, or which rule forbids it.
    pub(crate) outcome: Result<State, Refusal>,
    /// Where it went back in line: for [`Tasks::stand_in_line`], after the commit.
    pub(crate) queued: Vec<Queued>,
}

/// Loads a task for a decision, and locks it. With it comes the change that made it so.
pub(crate) fn load(tx: &mut dyn Tx, task: TaskId) -> Result<Option<(Snapshot, ChangeId)>> {
    let rows = tx.run(Call::one(&LOAD, vec![Value::UuidList(vec![task.0])]))?;
    rows.first().map(row::snapshot).transpose()
}

/// Decides and writes one command in a transaction that does more than that.
pub(crate) fn carry_out(tx: &mut dyn Tx, ask: &Ask) -> Result<Carried> {
    let mut answered = run(tx, std::slice::from_ref(ask))?;
    let outcome = match answered.outcomes.pop().ok_or_else(no_answer)? {
        Ok(state) => Ok(state),
        Err(Rejection::Refused(refusal)) => Err(refusal),
        Err(Rejection::Failed(error)) => return Err(error),
    };
    Ok(Carried { outcome, queued: answered.queued })
}

impl Tasks {
    /// Lets claims look where tasks stand in line again; said after the commit.
    pub(crate) fn stand_in_line(&self, queued: Vec<Queued>) {
        queued.iter().for_each(|q| self.lanes.stand(q.lane, q.order_key));
    }
}

/// Decides and writes these commands in one transaction, with the outcomes of each.
pub(super) fn decide_all(tx: &mut dyn Tx, asks: &[Ask]) -> Result<Vec<Outcome<State>>> {
    Ok(run(tx, asks)?.outcomes)
}

struct Answered {
    outcomes: Vec<Outcome<State>>,
    queued: Vec<Queued>,
    /// The lanes of tasks that nobody holds.
    let_go: Vec<i64>,
}

fn run(tx: &mut dyn Tx, asks: &[Ask]) -> Result<Answered> {
    let mut tasks = load_all(tx, asks.iter().map(|ask| ask.task))?;
    let mut work = Work { now: tx.now()?, unsaved: Vec::new(), touched: HashSet::new() };
    let mut outcomes = Vec::with_capacity(asks.len());
    for ask in asks {
        outcomes.push(match tasks.get_mut(&ask.task) {
            None => Err(Refusal::UnknownTask.into()),
            Some(Err(unreadable)) => Err(unreadable.clone().into()),
            Some(Ok((task, last))) => work.run_one(tx, ask, task, last)?.map_err(Into::into),
        });
    }
    work.flush(tx)?;
    let read = tasks.values().flatten();
    let queued = read.clone().filter_map(|(task, _)| queued(task)).collect();
    let let_go = read.filter(|(task, _)| !task.status.is_held()).map(|(task, _)| task.lane);
    Ok(Answered { outcomes, queued, let_go: let_go.collect() })
}

/// What was decided and is not written yet: one statement writes it all.
struct Work {
    now: Timestamp,
    unsaved: Vec<Saved>,
    touched: HashSet<TaskId>,
}

impl Work {
    fn run_one(
        &mut self,
        tx: &mut dyn Tx,
        ask: &Ask,
        task: &mut Snapshot,
        last: &mut ChangeId,
    ) -> Result<Result<State, Refusal>> {
        if *last == ask.change {
            // An earlier try of this very call was committed, but its answer was lost.
            return Ok(Ok(task.status));
        }
        if self.touched.contains(&ask.task) {
            // Two commands for one task in one batch follow each other.
            self.flush(tx)?;
        }
        let after = match decide(task, &ask.command, self.now) {
            Ok(Decision::Nothing) => return Ok(Ok(task.status)),
            Ok(Decision::Touch(after)) => {
                self.unsaved.push(Saved::touch(&after, ask));
                *after
            }
            Ok(Decision::Change(change)) => {
                waits_no_longer(tx, &change)?;
                self.open_approval(tx, ask)?;
                self.unsaved.push(Saved::change(&change, ask));
                change.after
            }
            Err(refusal) => return super::finish::repeated(tx, ask, task, refusal),
        };
        self.touched.insert(ask.task);
        (*task, *last) = (after, ask.change);
        Ok(Ok(task.status))
    }

    /// A task that asks brings its question along; the database wants to see it first.
    fn open_approval(&self, tx: &mut dyn Tx, ask: &Ask) -> Result<()> {
        let Command::AskApproval { approval_id, question, .. } = &ask.command else {
            return Ok(());
        };
        approval::open(tx, *approval_id, ask.task, Kind::Gate, question, None, self.now)
    }

    fn flush(&mut self, tx: &mut dyn Tx) -> Result<()> {
        self.touched.clear();
        let unsaved = std::mem::take(&mut self.unsaved);
        if unsaved.is_empty() { Ok(()) } else { save(tx, unsaved) }
    }
}

/// A parked task that goes on or ends is not to be woken any more.
pub(super) fn waits_no_longer(tx: &mut dyn Tx, change: &Change) -> Result<()> {
    if change.from == State::Waiting {
        wait::remove(tx, change.after.id)?;
    }
    Ok(())
}

/// One row for `task/save`.
pub(super) struct Saved {
    values: Vec<Value>,
    /// The delegation that it ends.
    ends: Option<Uuid>,
}

impl Saved {
    /// A transition.
    pub(super) fn change(change: &Change, ask: &Ask) -> Saved {
        let after = &change.after;
        let ends = after.status.is_terminal() && after.profile.kind() == profile::Kind::Delegation;
        let ends = ends.then_some(after.id.0);
        let values = Saved::row(
            &change.after,
            change.event.as_str(),
            ask,
            change.lease_id.map(|l| l.0),
            change.metadata.as_ref().map_or(Value::Null, row::typed),
        );
        Saved { values, ends }
    }

    /// A renewed lease or a later beat; the history does not hear of it.
    fn touch(after: &Snapshot, ask: &Ask) -> Saved {
        let values = Saved::row(after, ask.command.event().as_str(), ask, None, Value::Null);
        Saved { values, ends: None }
    }

    fn row(
        after: &Snapshot,
        event: &str,
        ask: &Ask,
        lease: Option<Uuid>,
        metadata: Value,
    ) -> Vec<Value> {
        vec![
            after.id.0.into(),
            after.status.as_str().into(),
            event.into(),
            ask.change.0.into(),
            ask.actor.as_str().into(),
            ask.reason.clone().into(),
            lease.into(),
            metadata,
            after.ready.into(),
            after.order_key.into(),
            after.run_at.into(),
            after.deadline_at.into(),
            after.attempt.into(),
            after.retry_count.into(),
            after.release_count.into(),
            after.lease_id.map(|l| l.0).into(),
            after.lease_expires_at.into(),
            after.claim_id.map(|c| c.0).into(),
            after.claimed_by.clone().into(),
            after.claimed_at.into(),
            after.last_heartbeat_at.into(),
            after.approval_id.map(|a| a.0).into(),
            after.result.clone().map_or(Value::Null, Value::Json),
            after.error.as_ref().map_or(Value::Null, row::typed),
            after.usage.as_ref().map_or(Value::Null, row::typed),
            after.started_at.into(),
            after.entered_at.into(),
            after.updated_at.into(),
        ]
    }
}

/// Writes decided rows; every one of them must be there, because they are locked. The callers of
/// delegations that end are told.
pub(super) fn save(tx: &mut dyn Tx, rows: Vec<Saved>) -> Result<()> {
    let expected = rows.len();
    let ended = rows.iter().filter_map(|row| row.ends).collect();
    let items = rows.into_iter().map(|row| row.values).collect();
    let saved = tx.run(Call::each(&SAVE, vec![], items))?;
    if saved.len() == expected {
        return push::results(tx, ended);
    }
    let detail = format!("saved {} of {expected} locked rows", saved.len());
    Err(Error::Internal { operation: "task/save".into(), detail })
}
