//! Claiming: a worker asks, and gets what it may have. Concurrent claims share a transaction; what
//! happens in it is in `take`.

use super::Tasks;
use super::cold::{self, Ask};
use super::common::Common;
use super::lane::Lanes;
use super::room::{self, Lock, Room};
use super::row::{Task, task};
use super::slot;
use super::take::{Asking, Look, take};
use crate::error::{Error, Rejection, Result};
use crate::group::{Bounds, Group, Outcome};
use crate::statement;
use crate::step::{self, Step};
use crate::store::Store;
use crate::tx::{Call, Check, Tx};
use crate::value::{Row, Value};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;
use windlass_domain::command::Command;
use windlass_domain::id::{ClaimId, LeaseId, TaskId};
use windlass_domain::limit::{Bound, Limits};
use windlass_domain::pins::Serves;
use windlass_domain::profile::Profile;
use windlass_domain::time::Timestamp;

statement!(shared ASSIGNED, "task/assigned");
statement!(HELD, "task/held");
statement!(shared HELD_LEASES, "task/held_leases");

/// All of the above.
pub(super) static STATEMENTS: &[&crate::statement::Statement] = &[&ASSIGNED, &HELD, &HELD_LEASES];

/// How many steps an assignment carries; whoever has more lists the rest.
pub const STEPS_LIMIT: i64 = 200;
/// How many bytes of results, inputs and errors these have; the first step comes with any size.
pub const STEPS_BYTES: i64 = 1024 * 1024;

/// How many assignments a heartbeat is told that it did not name.
pub const UNNAMED_LIMIT: usize = 100;
/// After how many bytes of them no more are read; what was read then is told.
pub const UNNAMED_BYTES: usize = 8 * 1024 * 1024;
/// How many assignments of what a session holds are read at once: each may have a large payload
/// and a large checkpoint.
pub const HELD_PART: usize = 10;

/// A worker asks for work.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The call: repeating it returns what it already gave.
    pub claim: ClaimId,
    /// Whether whoever asks knows that id, so that the same call may come again, also by another
    /// node.
    pub may_repeat: bool,
    /// Who asks; becomes `claimed_by` and the actor in the history.
    pub session: String,
    /// What kind of worker it is; a rule may say how many tasks one of its kind holds.
    pub worker_type: Option<String>,
    /// From which queues; the first one first.
    pub queues: Vec<String>,
    /// Which kinds of work.
    pub profiles: Vec<Profile>,
    /// What it has, of what tasks are pinned to.
    pub serves: Serves,
    /// At most so many tasks; 1,000 at most.
    pub max: usize,
    /// The session's own lease length; the profile's if `None`.
    pub lease_ms: Option<i64>,
    /// Whether work begins at once, so that no call to start is needed.
    pub start: bool,
}

/// A task in a worker's hands.
#[derive(Clone, Debug, PartialEq)]
pub struct Assignment {
    /// The task.
    pub task: Task,
    /// The holder's right; given here and never shown again.
    pub lease_id: LeaseId,
    /// The attempt that begins, from 1.
    pub attempt: i32,
    /// Until when, unless a heartbeat renews it; `None` before a delegation's first beat.
    pub lease_expires_at: Option<Timestamp>,
    /// What was done so far, oldest first; see [`Tasks::fill_steps`].
    pub steps: Vec<Step>,
    /// Whether these are all; otherwise the rest is listed after the last of them. Of an assignment
    /// that is told again nobody knows before they are read.
    pub steps_complete: bool,
}

/// Claims of this node share transactions.
pub(super) fn group(
    store: Store,
    lanes: Arc<Lanes>,
    bounds: Bounds,
) -> Group<Claim, Vec<Assignment>> {
    // Each claim may take a thousand tasks.
    let bounds = Bounds { items: 64, ..bounds };
    Group::with_worth(
        "claim",
        bounds,
        |_| 1024,
        |claim: &Claim| claim.max,
        move |claims| {
            let (store, lanes) = (store.clone(), Arc::clone(&lanes));
            async move { run_each_once(&store, &lanes, claims).await }
        },
    )
}

/// A lane may be shorter than its share, and a line shorter than what was wanted: then a claim asks
/// again, so often at most for each of its lines.
const ROUNDS: usize = 4;

/// So many of them look first and lock then, and insist on priorities: nodes that take from the
/// same lanes may outrun each other. The next one has the lock of claims first, so that what it
/// sees is there. Without limits there is no such lock; then something is better than nothing.
const STRICT_ROUNDS: usize = 3;

/// A call that is sent again while it is under way meets itself here: it takes once, and each of
/// its repeats is told what that was. What a repeat found in the same transaction would be taken
/// for an earlier round of its own, and it would take more.
async fn run_each_once(
    store: &Store,
    lanes: &Arc<Lanes>,
    claims: Vec<Claim>,
) -> Vec<Outcome<Vec<Assignment>>> {
    let mut places: HashMap<(String, ClaimId), usize> = HashMap::new();
    let (mut once, mut of) = (Vec::with_capacity(claims.len()), Vec::with_capacity(claims.len()));
    for claim in claims {
        let place = *places.entry((claim.session.clone(), claim.claim)).or_insert(once.len());
        of.push(place);
        if place == once.len() {
            once.push(claim);
        }
    }
    let outcomes = run(store, lanes, once).await;
    if outcomes.len() == of.len() {
        return outcomes;
    }
    of.into_iter().filter_map(|place| outcomes.get(place).cloned()).collect()
}

async fn run(
    store: &Store,
    lanes: &Arc<Lanes>,
    claims: Vec<Claim>,
) -> Vec<Outcome<Vec<Assignment>>> {
    let mut asking: Vec<Asking> = claims.into_iter().map(Asking::new).collect();
    let mut open: Vec<usize> = (0..asking.len()).collect();
    let lines = asking.iter().map(|asking| asking.lines.queues.len()).max().unwrap_or_default();
    let mut is_crowded = false;
    for round in 0..ROUNDS + lines {
        let look = match round == STRICT_ROUNDS && lanes.limits().is_some() {
            true => Look::Locked,
            false => Look::Everywhere,
        };
        let is_strict = round < STRICT_ROUNDS || look == Look::Locked;
        let wanted = open.iter().map(|&i| asking[i].strictly(is_strict));
        let wanted: Arc<[Asking]> = wanted.collect();
        let once = |check: Option<Check>| {
            let (known, wanted) = (Arc::clone(lanes), Arc::clone(&wanted));
            let body = move |tx: &mut dyn Tx| {
                let is_told = by_rules(tx, check.as_ref(), wanted.iter().map(|a| &a.claim))?;
                let hope = known.hope(check.is_some());
                let room = match is_crowded || is_told || look == Look::Locked {
                    true => Room::alone(),
                    false => Room::adding(wanted.iter().map(|asking| asking.left() as usize).sum())
                        .hoping(hope),
                };
                take(tx, &known, &wanted, Vec::new(), look, room)
            };
            store.write("claim", body)
        };
        let (each, everything) = match lanes.by_rules(once).await {
            Ok(took) => {
                if let Some(ms) = took.next_period_ms {
                    lanes.wake_in(Duration::from_millis(ms.unsigned_abs()));
                }
                took.settle()
            }
            Err(error) if room::is_crowded(&error) && !is_crowded => {
                lanes.was_crowded();
                is_crowded = true;
                continue;
            }
            // What was taken in an earlier round is somebody's already.
            Err(error) => {
                let outcome = |asking: Asking| match asking.has.is_empty() {
                    true => Err(error.clone().into()),
                    false => Ok(asking.has),
                };
                return asking.into_iter().map(outcome).collect();
            }
        };
        let mut short = Vec::new();
        for (&index, taken) in open.iter().zip(each) {
            let asking = &mut asking[index];
            // Less than it asked for: what it was counted on was not there, but others may be.
            let again = !taken.repeated && (taken.new as i64) < taken.asked;
            asking.has = match taken.repeated {
                true => told_again(taken.assignments),
                false => taken.assignments,
            };
            asking.again = !asking.has.is_empty();
            if again && asking.left() > 0 && !(everything && taken.new == 0 && taken.asked == 0) {
                short.push(index);
            }
        }
        open = short;
        if open.is_empty() {
            break;
        }
        // Lanes that turned out to be empty may stand before others: look at all of them anew.
        if round > 0 {
            lanes.look_anew();
        }
    }
    asking.into_iter().map(|asking| Ok(asking.has)).collect()
}

/// Has the transaction of these claims asked for the rules before it commits, unless a try before
/// it was committed, in doubt: what that took is told, whatever the rules say now. Whether it was.
fn by_rules<'c>(
    tx: &mut dyn Tx,
    check: Option<&Check>,
    claims: impl Iterator<Item = &'c Claim>,
) -> Result<bool> {
    if tx.in_doubt().is_some() {
        for claim in claims {
            if !tx.run(assigned(claim))?.is_empty() {
                return Ok(true);
            }
        }
    }
    check.into_iter().for_each(|check| tx.only_if(Arc::clone(check)));
    Ok(false)
}

/// A task that a claim names.
#[derive(Clone)]
struct Named {
    ask: Ask,
    run_at: Timestamp,
    common: Common,
}

impl Tasks {
    /// Takes ready tasks, at most `max`. An empty answer means that none was ready, or that limits
    /// hold them back.
    pub async fn claim(&self, claim: Claim) -> Result<Vec<Assignment>> {
        if claim.max == 0 {
            return Ok(Vec::new());
        }
        match self.claims.join(vec![claim]).await.pop() {
            Some(Ok(assignments)) => Ok(assignments),
            Some(Err(Rejection::Failed(error))) => Err(error),
            Some(Err(Rejection::Refused(_))) | None => Err(cold::no_answer()),
        }
    }

    /// Takes these very tasks, as far as they are ready, in the claim's lanes, and within limits;
    /// at most `max` of them. What it could not take is not in the answer.
    pub async fn claim_tasks(&self, claim: &Claim, ids: Vec<TaskId>) -> Result<Vec<Assignment>> {
        let mut asks: Vec<Named> = Vec::with_capacity(ids.len());
        let mut seen = HashSet::new();
        for id in ids.into_iter().filter(|id| seen.insert(*id)) {
            let Some(task) = self.show(id).await? else { continue };
            let common = Common::from(&task);
            let is_asked = claim.queues.contains(&task.queue)
                && claim.profiles.contains(&task.profile)
                && claim.serves.has(&common.pins);
            // What cannot be taken must not use up the room of what can.
            if is_asked && task.status.is_claimable() {
                let command = Command::Claim {
                    session: claim.session.clone(),
                    lease_id: LeaseId(Uuid::new_v4()),
                    claim_id: claim.claim,
                    lease_ms: claim.lease_ms,
                    start: claim.start,
                };
                let ask = Ask::new(id, command, claim.session.as_str());
                asks.push(Named { ask, run_at: task.run_at, common });
            }
        }
        let asks: Arc<[Named]> = asks.into();
        let once = |check: Option<Check>| {
            let (asks, asked, limits) = (Arc::clone(&asks), claim.clone(), self.lanes.limits());
            let body = move |tx: &mut dyn Tx| {
                by_rules(tx, check.as_ref(), std::iter::once(&asked))?;
                take_named(tx, &asked, &asks, limits.as_deref())
            };
            self.store.write("claim_tasks", body)
        };
        self.lanes.by_rules(once).await?;
        let claim = claim.clone();
        let body = move |tx: &mut dyn Tx| Ok(told_again(assignments(&tx.ask(assigned(&claim))?)?));
        self.store.read("claim_tasks", body).await
    }

    /// What a session holds beyond the leases that it knows of: the answer of a claim may have
    /// been lost on the way. At most [`UNNAMED_LIMIT`], and fewer after [`UNNAMED_BYTES`]: whoever
    /// knows of these asks for the rest.
    pub async fn unknown_to(&self, session: &str, known: Vec<LeaseId>) -> Result<Vec<Assignment>> {
        let session = session.to_owned();
        let body = move |tx: &mut dyn Tx| {
            let known: HashSet<LeaseId> = known.iter().copied().collect();
            let mut unknown = leases(&tx.run(held_leases(&session))?)?;
            unknown.retain(|(_, lease)| !known.contains(lease));
            let (mut found, mut bytes) = (Vec::new(), 0);
            for part in unknown.chunks(HELD_PART) {
                let rows = tx.run(held(&session, part.iter().map(|(task, _)| *task)))?;
                bytes += rows.iter().map(size).sum::<usize>();
                // On PostgreSQL a task may have come back under another lease since the first look.
                let part = assignments(&rows)?;
                found.extend(part.into_iter().filter(|a| !known.contains(&a.lease_id)));
                if found.len() >= UNNAMED_LIMIT || bytes >= UNNAMED_BYTES {
                    break;
                }
            }
            found.truncate(UNNAMED_LIMIT);
            Ok(told_again(found))
        };
        self.store.read("unknown_to", body).await
    }

    /// All that a session holds, and under which leases.
    pub async fn held_by(&self, session: &str) -> Result<Vec<(TaskId, LeaseId)>> {
        let session = session.to_owned();
        let body = move |tx: &mut dyn Tx| leases(&tx.ask(held_leases(&session))?);
        self.store.read("held_by", body).await
    }

    /// Those of the tasks that a session holds.
    pub async fn held_of(&self, session: &str, tasks: Vec<TaskId>) -> Result<Vec<Assignment>> {
        let session = session.to_owned();
        let body = move |tx: &mut dyn Tx| {
            let rows = tx.ask(held(&session, tasks.iter().copied()))?;
            Ok(told_again(assignments(&rows)?))
        };
        self.store.read("held_of", body).await
    }

    /// How many tasks a session holds.
    pub async fn count_held(&self, session: &str) -> Result<usize> {
        let session = session.to_owned();
        let body = move |tx: &mut dyn Tx| Ok(tx.ask(held_leases(&session))?.len());
        self.store.read("count_held", body).await
    }

    /// Adds what was done so far. A first attempt has nothing behind it, unless it is a replay or
    /// told again, so most claims read nothing here.
    pub async fn fill_steps(&self, mut held: Vec<Assignment>) -> Result<Vec<Assignment>> {
        let has_past =
            |a: &Assignment| a.attempt > 1 || a.task.replay_of.is_some() || !a.steps_complete;
        let ids: Vec<TaskId> = held.iter().filter(|a| has_past(a)).map(|a| a.task.id).collect();
        if ids.is_empty() {
            return Ok(held);
        }
        let body = move |tx: &mut dyn Tx| {
            // All assignments of an answer share its bytes: behind a few big pasts, others' pasts
            // are listed by whoever needs them.
            let mut left = step::PAGE_BYTES;
            let mut read = HashMap::new();
            for &id in &ids {
                if left <= 0 {
                    break;
                }
                let page = step::first(tx, id, STEPS_LIMIT as usize, left.min(STEPS_BYTES))?;
                left -= page.bytes;
                read.insert(id, page);
            }
            Ok(read)
        };
        let mut read = self.store.read("assignment_steps", body).await?;
        for assignment in held.iter_mut().filter(|a| has_past(a)) {
            let page = read.remove(&assignment.task.id);
            (assignment.steps, assignment.steps_complete) =
                page.map_or((Vec::new(), false), |page| (page.steps, page.complete));
        }
        Ok(held)
    }
}

/// Takes those that are ready and within limits, unless an earlier call took some.
fn take_named(
    tx: &mut dyn Tx,
    claim: &Claim,
    asks: &[Named],
    limits: Option<&Limits>,
) -> Result<()> {
    // The same call again: what it took before is its answer.
    if !tx.run(assigned(claim))?.is_empty() {
        return Ok(());
    }
    let bound = |named: &Named| limits.map(|limits| named.common.bounds(limits));
    let bounds: Vec<Vec<Bound>> = asks.iter().map(|a| bound(a).unwrap_or_default()).collect();
    let mut room = Room::adding(asks.len());
    let mut free = claim.max;
    if let Some(limits) = limits {
        let of_type = slot::free(tx, limits, std::iter::once(claim), &mut room)?.pop();
        free = free.min(of_type.unwrap_or(free));
        room.hold(tx, Lock::Active, bounds.iter().map(|bounds| &bounds[..]))?;
    }
    let now = tx.now()?;
    let due = asks.iter().zip(&bounds).filter(|(named, _)| named.run_at <= now);
    let fitting = due.filter(|(_, bounds)| room.admit(bounds)).take(free);
    let (fitting, bounds): (Vec<Ask>, Vec<&Vec<Bound>>) =
        fitting.map(|(named, bounds)| (named.ask.clone(), bounds)).unzip();
    let outcomes = cold::decide_all(tx, &fitting)?;
    let taken = bounds.iter().zip(outcomes).filter(|(_, outcome)| outcome.is_ok());
    taken.for_each(|(bounds, _)| room.took(bounds, 1));
    if let Some(call) = room.rates(tx.fixed_now()) {
        tx.run(call)?;
    }
    Ok(())
}

pub(super) fn held_leases<'a>(session: &str) -> Call<'a> {
    Call::one(&HELD_LEASES, vec![session.into()])
}

fn held<'a>(session: &str, tasks: impl Iterator<Item = TaskId>) -> Call<'a> {
    let tasks: Vec<Uuid> = tasks.map(|task| task.0).collect();
    Call::one(&HELD, vec![session.into(), tasks.into()])
}

fn leases(rows: &[Row]) -> Result<Vec<(TaskId, LeaseId)>> {
    rows.iter().map(|row| Ok((TaskId(row.uuid(1)?), LeaseId(row.uuid(0)?)))).collect()
}

/// The bytes of a row's texts, its payload among them.
fn size(row: &Row) -> usize {
    let text = |value: &Value| match value {
        Value::Text(text) | Value::Json(text) => text.len(),
        _ => 0,
    };
    row.0.iter().map(text).sum()
}

pub(super) fn assigned<'a>(claim: &Claim) -> Call<'a> {
    Call::one(&ASSIGNED, vec![claim.session.as_str().into(), claim.claim.0.into()])
}

/// A row that cannot be read is left out, so that the others are handed over: its lease runs out,
/// and a task that was given back too often ends poisoned.
pub(super) fn assignments(rows: &[Row]) -> Result<Vec<Assignment>> {
    let readable = |row: &Row| match assignment(row) {
        Ok(assignment) => Some(Ok(assignment)),
        Err(error @ Error::Corrupt(_)) => {
            tracing::error!(task = ?row.0.get(3), %error, "a task cannot be read");
            None
        }
        Err(error) => Some(Err(error)),
    };
    rows.iter().filter_map(readable).collect()
}

/// Assignments that somebody was told of before, and may have worked on since.
fn told_again(mut held: Vec<Assignment>) -> Vec<Assignment> {
    held.iter_mut().for_each(|assignment| assignment.steps_complete = false);
    held
}

fn assignment(row: &Row) -> Result<Assignment> {
    Ok(Assignment {
        lease_id: LeaseId(row.uuid(0)?),
        attempt: row.int32(1)?,
        lease_expires_at: row.maybe(2, |r, i| r.time(i))?,
        task: task(row, 3)?,
        steps: Vec::new(),
        steps_complete: true,
    })
}
