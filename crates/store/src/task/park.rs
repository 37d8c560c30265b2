//! Parking a task until something comes, and waking it.
//!
//! Invariant: parking looks for what it waits for in its own transaction, and whatever may wake the
//! task takes the same lock (the task's row, the other task's row, or the signal's key): nothing
//! that came early, or at the same moment, is lost. Each wait ends once, because its step does.

use super::cold::{self, Ask, Queued};
use super::step::{Holder, save_checkpoint};
use super::sweep::{SweepReport, derived};
use super::{Tasks, row};
use crate::error::Result;
use crate::group::Outcome;
use crate::signal::{self, Inserted, NewSignal, Target};
use crate::step::{self, NewStep, Step};
use crate::tx::Tx;
use crate::value::Row;
use crate::wait::{self, Wait};
use serde_json::Value as Json;
use uuid::Uuid;
use windlass_domain::command::Command;
use windlass_domain::decide::may_record;
use windlass_domain::id::{StepId, TaskId};
use windlass_domain::json;
use windlass_domain::refusal::{FieldError, Refusal};
use windlass_domain::snapshot::Snapshot;
use windlass_domain::state::{Event, State};
use windlass_domain::step::{CheckedStep, StepState};
use windlass_domain::time::Timestamp;
use windlass_domain::wait::{Until, parked, signal_came, task_ended, timer_rang, woken};

/// The holder parks its task.
#[derive(Clone, Debug)]
pub struct Park {
    /// Who.
    pub holder: Holder,
    /// For what.
    pub until: Until,
    /// Which repetition of the same wait; `None`: a new one.
    pub occurrence: Option<i32>,
    /// For how long at most.
    pub timeout_ms: Option<i64>,
    /// Canonical JSON; `None` keeps the last.
    pub checkpoint: Option<String>,
}

/// What became of a wait.
#[derive(Clone, Debug, PartialEq)]
pub enum Parked {
    /// The task waits, and its lease has ended.
    Waiting(StepId),
    /// What it waited for is there; the task is still held.
    Woken(StepId, Json),
}

/// What became of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signalled {
    /// Whether it was there before.
    pub duplicate: bool,
    /// Which task it woke at once.
    pub woke: Option<TaskId>,
}

impl Tasks {
    /// Parks a task, unless what it waits for is there already.
    pub async fn park(&self, item: Park) -> Outcome<Parked> {
        let parked = self.store.write("park", move |tx| park(tx, &item)).await?;
        self.made_room();
        parked
    }

    /// A task that was active may be so no more: whoever waits for room looks.
    pub(crate) fn made_room(&self) {
        self.lanes.freed([None]);
    }

    /// Tells a signal to the task that waits for it, or keeps it for the one that will.
    pub async fn signal(&self, new: NewSignal) -> Outcome<Signalled> {
        let seed = Uuid::now_v7();
        let (outcome, queued) = self.store.write("signal", move |tx| send(tx, &new, seed)).await?;
        self.stand_in_line(queued.into_iter().collect());
        outcome
    }

    /// Wakes tasks whose time has come.
    pub async fn wake_due(&self, limit: usize) -> Result<SweepReport> {
        let seed = Uuid::now_v7();
        let body = move |tx: &mut dyn Tx| {
            let now = tx.now()?;
            let rows = wait::due(tx, now, limit)?;
            wake_all(tx, &rows, "wake_due", seed, |_, wait| Ok(timer_rang(wait.kind)))
        };
        let (report, queued) = self.store.write("wake_due", body).await?;
        self.stand_in_line(queued);
        Ok(report)
    }

    /// Forgets waits of tasks that were ended by hand, at most `limit`.
    pub async fn forget_stray_waits(&self, limit: usize) -> Result<()> {
        self.store.write("stray_waits", move |tx| wait::remove_stray(tx, limit)).await
    }

    /// The tasks whose end is awaited, at most `limit`.
    pub async fn awaited(&self, limit: usize) -> Result<Vec<TaskId>> {
        self.store.read("awaited", move |tx| wait::awaited(tx, limit)).await
    }

    /// Wakes tasks that wait for one of these, if it has ended; `None` looks at all that wait.
    pub async fn wake_parents(
        &self,
        ended: Option<Vec<TaskId>>,
        limit: usize,
    ) -> Result<SweepReport> {
        let seed = Uuid::now_v7();
        let ended = ended.map(|ids| ids.into_iter().map(|id| id.0).collect::<Vec<_>>());
        let body = move |tx: &mut dyn Tx| {
            let rows = wait::ended(tx, ended.clone(), limit)?;
            wake_all(tx, &rows, "wake_parents", seed, |row, wait| {
                let child = wait.child.unwrap_or(wait.task);
                let result = row.maybe(AFTER_WAIT + 1, Row::json)?.unwrap_or_default();
                let error = row.maybe(AFTER_WAIT + 2, Row::json)?.unwrap_or_default();
                Ok(task_ended(child, row.named(AFTER_WAIT)?, &result, &error))
            })
        };
        let (report, queued) = self.store.write("wake_parents", body).await?;
        self.stand_in_line(queued);
        Ok(report)
    }
}

/// Where the wait's columns begin, and where they end, in a row of `wait/due` and `wait/ended`.
const AT_WAIT: usize = row::SNAPSHOT_LENGTH;
const AFTER_WAIT: usize = AT_WAIT + 7;

fn park(tx: &mut dyn Tx, item: &Park) -> Result<Outcome<Parked>> {
    let holder = &item.holder;
    if item.until == Until::Task(holder.task) {
        let detail = "a task that waits for its own end never goes on; name another one".into();
        let field = FieldError { pointer: "/until/task".into(), code: "not_allowed", detail };
        return Ok(Err(Refusal::Invalid(vec![field]).into()));
    }
    if let Until::Signal { key: Some(key), .. } = &item.until {
        signal::lock(tx, key)?;
    }
    // The other task's end waits for this transaction, or was before it.
    let other = if let Until::Task(other) = item.until { Some(other) } else { None };
    let mut locked = cold::load_all(tx, [Some(holder.task), other].into_iter().flatten())?;
    let Some(task) = locked.remove(&holder.task) else {
        return Ok(Err(Refusal::UnknownTask.into()));
    };
    let (mut task, last) = task?;
    if last == holder.changes[1] {
        let waits = wait::of_task(tx, task.id)?;
        return Ok(Ok(Parked::Waiting(waits.map_or(StepId(Uuid::nil()), |wait| wait.step))));
    }
    let occurrence = match item.occurrence {
        Some(occurrence) => occurrence,
        None => next_occurrence(tx, task.id, &item.until)?,
    };
    let key = item.until.key(occurrence);
    let id = key.id(task.id);
    if let Some(wait) = wait::of_task(tx, task.id)?
        && (task.status, wait.lease) == (State::Waiting, Some(holder.lease))
    {
        return parked_before(tx, item, id, &wait);
    }
    if task.status == State::Claimed
        && let Err(refusal) = cold::decide_and_save(tx, &mut task, &holder.start(), None)?
    {
        return Ok(Err(refusal.into()));
    }
    if let Err(refusal) = may_record(&task, holder.lease) {
        return Ok(Err(refusal.into()));
    }
    let known = step::find(tx, task.id, id)?;
    if let Some(step) = &known
        && step.status == StepState::Done
    {
        return Ok(Ok(Parked::Woken(id, step.result.clone().unwrap_or_default())));
    }
    save_checkpoint(tx, holder, &item.checkpoint)?;
    let now = tx.now()?;
    // A wait that is not over goes on as it began, whoever took its task out of it by hand.
    let begun_at = known.as_ref().map_or(now, |step| step.created_at);
    let wake_at = item.until.wake_at(item.timeout_ms, begun_at);
    let came = already_there(tx, &task, &item.until, wake_at, now)?;
    let kind = item.until.kind();
    let step =
        CheckedStep { key, kind: kind.to_string(), inputs: json::canonical(&item.until.inputs()) };
    let is_there = came.is_some();
    let new = NewStep {
        task: task.id,
        step: &step,
        idempotent: true,
        status: if is_there { StepState::Done } else { StepState::Waiting },
        result: came.as_ref().map(json::canonical),
        lease: holder.lease,
        attempt: task.attempt,
        actor: &holder.actor,
        now,
    };
    if let Some(came) = came {
        write(tx, known, &new)?;
        return Ok(Ok(Parked::Woken(id, came)));
    }
    let metadata = parked(id, kind, wake_at);
    if let Err(refusal) = cold::decide_and_save(tx, &mut task, &holder.wait(), Some(metadata))? {
        return Ok(Err(refusal.into()));
    }
    write(tx, known, &new)?;
    let (signal, key) = match &item.until {
        Until::Signal { name, key } => (Some(name.clone()), key.clone()),
        _ => (None, None),
    };
    let lease = Some(holder.lease);
    let waits = Wait { task: task.id, kind, step: id, lease, child: other, signal, key };
    wait::park(tx, &waits, wake_at, now)?;
    Ok(Ok(Parked::Waiting(id)))
}

/// The same call again, after it has parked the task; or another one, which comes too late. Nobody
/// holds the task since, so what stands there is what parked it.
fn parked_before(tx: &mut dyn Tx, item: &Park, id: StepId, wait: &Wait) -> Result<Outcome<Parked>> {
    let begun_at = step::find(tx, wait.task, wait.step)?.map(|step| step.created_at);
    let wake_at = begun_at.and_then(|at| item.until.wake_at(item.timeout_ms, at));
    let kept = super::show::checkpoint(tx, wait.task)?;
    let same = id == wait.step
        && wait::wakes_at(tx, wait.task)? == wake_at
        && (item.checkpoint.is_none() || item.checkpoint == kept);
    Ok(match same {
        true => Ok(Parked::Waiting(wait.step)),
        false => Err(Refusal::AlreadyFinished { event: Event::Wait }.into()),
    })
}

/// Writes the wait's step, or takes up the one that is still there.
fn write(tx: &mut dyn Tx, known: Option<Step>, new: &NewStep<'_>) -> Result<()> {
    let Some(mut step) = known else { return step::insert(tx, new) };
    (step.lease_id, step.attempt) = (Some(new.lease), new.attempt);
    step.actor = new.actor.to_owned();
    if let Some(result) = &new.result {
        (step.status, step.ended_at) = (new.status, Some(new.now));
        step.result = serde_json::from_str(result).ok();
    }
    step::save(tx, &step)
}

/// What a wait would be woken by, if it is there already.
fn already_there(
    tx: &mut dyn Tx,
    task: &Snapshot,
    until: &Until,
    wake_at: Option<Timestamp>,
    now: Timestamp,
) -> Result<Option<Json>> {
    match until {
        Until::Time(_) | Until::DelayMs(_) => {
            Ok(wake_at.filter(|at| *at <= now).map(|_| timer_rang(until.kind())))
        }
        Until::Signal { name, key } => {
            let target = key.clone().map_or(Target::Task(task.id), Target::Key);
            let Some(found) = signal::next(tx, &target, name)? else { return Ok(None) };
            signal::take(tx, found.id, task.id, now)?;
            Ok(Some(signal_came(found.id, &found.payload)))
        }
        Until::Task(other) => {
            let Some(row) = wait::other(tx, *other)? else {
                // Removed by retention, or never there: nothing will ever come of it.
                return Ok(Some(serde_json::json!({ "woken": "unknown_task" })));
            };
            if !row.bool(3)? {
                return Ok(None);
            }
            let result = row.maybe(1, Row::json)?.unwrap_or_default();
            let error = row.maybe(2, Row::json)?.unwrap_or_default();
            Ok(Some(task_ended(*other, row.named(0)?, &result, &error)))
        }
    }
}

/// The number of the next repetition of a wait that does not say its own: the first that is not
/// over.
fn next_occurrence(tx: &mut dyn Tx, task: TaskId, until: &Until) -> Result<i32> {
    let mut occurrence = 0;
    let is_over = |step: &Step| step.status == StepState::Done;
    while step::find(tx, task, until.key(occurrence).id(task))?.as_ref().is_some_and(is_over) {
        occurrence += 1;
    }
    Ok(occurrence)
}

type Sent = (Outcome<Signalled>, Option<Queued>);

fn send(tx: &mut dyn Tx, new: &NewSignal, seed: Uuid) -> Result<Sent> {
    let refused = |refusal: Refusal| Ok((Err(refusal.into()), None));
    // The receiver's lock first: a wait that begins at this moment sees the signal, or is seen.
    let waits = match &new.target {
        Target::Task(task) => {
            let Some((task, _)) = cold::load(tx, *task)? else {
                return refused(Refusal::UnknownTask);
            };
            if task.status.is_terminal() {
                let sent = signal::is_known(tx, new)?;
                return match sent {
                    true => Ok((Ok(Signalled { duplicate: true, woke: None }), None)),
                    false => refused(Refusal::TaskFinished { state: task.status }),
                };
            }
            let wants = |wait: &Wait| wait.signal.as_ref() == Some(&new.name) && wait.key.is_none();
            wait::of_task(tx, task.id)?.filter(wants)
        }
        Target::Key(key) => {
            signal::lock(tx, key)?;
            longest_waiting(tx, &new.name, key)?
        }
    };
    let now = tx.now()?;
    match signal::insert(tx, new, now)? {
        Inserted::New => {}
        Inserted::Same => return Ok((Ok(Signalled { duplicate: true, woke: None }), None)),
        Inserted::Other => return refused(Refusal::IdempotencyKeyReused { what: "the id" }),
    }
    let kept = Ok((Ok(Signalled { duplicate: false, woke: None }), None));
    let Some(waits) = waits else { return kept };
    let Some((mut task, _)) = cold::load(tx, waits.task)? else { return kept };
    if task.status != State::Waiting {
        return kept;
    }
    signal::take(tx, new.id, task.id, now)?;
    let payload = serde_json::from_str(&new.payload).unwrap_or_default();
    let ask = Ask {
        task: task.id,
        command: Command::Wake,
        actor: new.sent_by.clone(),
        reason: None,
        change: derived(seed, task.id),
    };
    wake(tx, &mut task, &waits, &signal_came(new.id, &payload), &ask)?;
    let woke = Some(task.id);
    Ok((Ok(Signalled { duplicate: false, woke }), cold::queued(&task)))
}

/// Who has waited longest for a signal of a key, and still does: one that is being woken or ended
/// at this moment is passed over, once its lock is free.
fn longest_waiting(tx: &mut dyn Tx, name: &str, key: &str) -> Result<Option<Wait>> {
    while let Some(found) = wait::with_key(tx, name, key)? {
        let task = cold::load(tx, found.task)?;
        if task.is_some_and(|(task, _)| task.status == State::Waiting) {
            return Ok(Some(found));
        }
        wait::remove(tx, found.task)?;
    }
    Ok(None)
}

/// Ends a wait with what came, and puts its task in line again.
fn wake(
    tx: &mut dyn Tx,
    task: &mut Snapshot,
    wait: &Wait,
    result: &Json,
    ask: &Ask,
) -> Result<bool> {
    if cold::decide_and_save(tx, task, ask, Some(woken(wait.step, result)))?.is_err() {
        // Somebody moved the task by hand: it does not wait any more.
        wait::remove(tx, wait.task)?;
        return Ok(false);
    }
    wait::remove(tx, wait.task)?;
    if let Some(mut step) = step::find(tx, wait.task, wait.step)?
        && step.status == StepState::Waiting
    {
        (step.status, step.result, step.ended_at) =
            (StepState::Done, Some(result.clone()), Some(tx.now()?));
        step::save(tx, &step)?;
    }
    Ok(true)
}

fn wake_all(
    tx: &mut dyn Tx,
    rows: &[Row],
    name: &'static str,
    seed: Uuid,
    result: impl Fn(&Row, &Wait) -> Result<Json>,
) -> Result<(SweepReport, Vec<Queued>)> {
    let mut report = SweepReport { scanned: rows.len(), ..SweepReport::default() };
    let mut queued = Vec::new();
    for found in rows {
        let (mut task, wait) = match row::snapshot(found) {
            Ok((task, _)) => (task, wait::wait(found, AT_WAIT)?),
            Err(error) => {
                report.unreadable += 1;
                tracing::error!(sweep = name, %error, "a row is unreadable");
                continue;
            }
        };
        let ask = Ask {
            task: task.id,
            command: Command::Wake,
            actor: format!("duty:{name}"),
            reason: None,
            change: derived(seed, task.id),
        };
        if wake(tx, &mut task, &wait, &result(found, &wait)?, &ask)? {
            report.changed.push((task.id, task.status));
            queued.extend(cold::queued(&task));
        } else {
            report.lost_races += 1;
        }
    }
    Ok((report, queued))
}
