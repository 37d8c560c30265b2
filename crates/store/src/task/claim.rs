//! Claiming: ripen what is due, take what is ready, answer with what was taken, in one transaction
//! and on PostgreSQL in one round trip.

use super::Tasks;
use super::cold::Ask;
use super::floor::{Begun, Lane, NONE};
use super::row::{Task, task};
use crate::error::{Error, Rejection, Result};
use crate::statement;
use crate::statement::Dialect;
use crate::step::{self, Step};
use crate::tx::{Call, Tx};
use crate::value::{Row, Value};
use std::collections::HashMap;
use uuid::Uuid;
use windlass_domain::command::Command;
use windlass_domain::id::{ClaimId, LeaseId, TaskId};
use windlass_domain::profile::Profile;
use windlass_domain::time::Timestamp;

statement!(RIPEN, "task/ripen");
statement!(CLAIM, "task/claim");
statement!(shared ASSIGNED, "task/assigned");
statement!(shared COUNT_CLAIMED, "task/count_claimed");
statement!(shared HELD, "task/held");
statement!(shared HELD_LEASES, "task/held_leases");

/// All of the above.
pub(super) static STATEMENTS: &[&crate::statement::Statement] =
    &[&RIPEN, &CLAIM, &ASSIGNED, &COUNT_CLAIMED, &HELD, &HELD_LEASES];

/// How many due tasks one claim ripens: enough to keep up, few enough to stay short.
const RIPEN_LIMIT: i64 = 1_000;

/// How many steps an assignment carries; whoever has more lists the rest.
pub const STEPS_LIMIT: i64 = 200;
/// How many bytes of results, inputs and errors these have; the first step comes with any size.
pub const STEPS_BYTES: i64 = 1024 * 1024;

/// A worker asks for work.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The call: repeating it returns what it already gave.
    pub claim: ClaimId,
    /// Who asks; becomes `claimed_by` and the actor in the history.
    pub session: String,
    /// From which queues; the first one first.
    pub queues: Vec<String>,
    /// Which kinds of work.
    pub profiles: Vec<Profile>,
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
    /// What earlier attempts have done, oldest first; see [`Tasks::fill_steps`].
    pub steps: Vec<Step>,
    /// Whether these are all; otherwise the rest is listed after the last of them.
    pub steps_complete: bool,
}

/// The ids that one try of a claim gives out. Fresh on every try, unlike other ids: the claim's id
/// says what an earlier try took, and a lease that may have been given out must not be given out
/// again.
struct Fresh {
    leases: Vec<Uuid>,
    changes: Vec<Uuid>,
}

impl Fresh {
    fn new(max: usize) -> Fresh {
        // A lease is a secret of its holder, so it must not be guessed; a change only has to be
        // unique.
        Fresh {
            leases: (0..max).map(|_| Uuid::new_v4()).collect(),
            changes: (0..max).map(|_| Uuid::now_v7()).collect(),
        }
    }
}

/// How a try of a claim looks for tasks.
#[derive(Clone, Copy)]
struct Look {
    /// Whether it looks for due tasks first.
    ripen: bool,
    /// Whether it is the same call's second look, which adds to what the first one took.
    again: bool,
}

/// What one try of a claim did.
struct Taken {
    assignments: Vec<Assignment>,
    /// How many of them this try took; the others are of an earlier one.
    new: usize,
    /// The lowest key taken in each lane.
    lowest: Vec<Option<i64>>,
    ripened: Vec<(String, Profile, i64)>,
}

impl Tasks {
    /// Takes ready tasks, at most `max`. An empty answer means that none was ready.
    pub async fn claim(&self, claim: Claim) -> Result<Vec<Assignment>> {
        let max = claim.max.min(1_000);
        if max == 0 {
            return Ok(Vec::new());
        }
        let lanes: Vec<Lane> = (claim.queues.iter())
            .flat_map(|queue| claim.profiles.iter().map(|&p| (queue.clone(), p)))
            .filter(|(_, profile)| *profile != Profile::Ledger)
            .collect();
        let begun = self.floor.begin(&lanes);
        let floors = &begun.floors;
        let ripen = self.floor.is_time_to_ripen();
        let look = Look { ripen, again: false };
        let taken = self.claim_from(&claim, max, &lanes, floors, look).await?;
        if taken.new == 0 && !taken.assignments.is_empty() {
            // The call was made before: this is what it gave.
            return Ok(taken.assignments);
        }
        let everything = ripen && floors.iter().all(|&f| f == NONE);
        if taken.assignments.len() >= max || everything {
            return Ok(self.settle(taken, &begun, &lanes, floors, max));
        }
        // Short: something may lie below the floor, or be due.
        let everything = vec![NONE; lanes.len()];
        let ripened = taken.ripened;
        let look = Look { ripen: true, again: true };
        let mut taken = self.claim_from(&claim, max, &lanes, &everything, look).await?;
        taken.ripened.extend(ripened);
        Ok(self.settle(taken, &begun, &lanes, &everything, max))
    }

    /// Takes these very tasks, as far as they are ready and in the claim's lanes. What it could not
    /// take is not in the answer.
    pub async fn claim_tasks(&self, claim: &Claim, ids: Vec<TaskId>) -> Result<Vec<Assignment>> {
        let mut asks = Vec::with_capacity(ids.len());
        for id in ids {
            let Some(task) = self.show(id).await? else { continue };
            if claim.queues.contains(&task.queue) && claim.profiles.contains(&task.profile) {
                let command = Command::Claim {
                    session: claim.session.clone(),
                    lease_id: LeaseId(Uuid::new_v4()),
                    claim_id: claim.claim,
                    lease_ms: claim.lease_ms,
                    start: claim.start,
                };
                asks.push(Ask::new(id, command, claim.session.as_str()));
            }
        }
        for outcome in self.asks.join(asks).await {
            if let Err(Rejection::Failed(error)) = outcome {
                return Err(error);
            }
        }
        let claim = claim.clone();
        let body = move |tx: &mut dyn Tx| assignments(&tx.run(assigned(&claim))?);
        self.store.read("claim_tasks", body).await
    }

    /// What a session holds beyond the leases that it knows of: the answer of a claim may have
    /// been lost on the way.
    pub async fn unknown_to(&self, session: &str, known: Vec<LeaseId>) -> Result<Vec<Assignment>> {
        let session = session.to_owned();
        let body = move |tx: &mut dyn Tx| {
            let rows = tx.run(Call::one(&HELD_LEASES, vec![session.as_str().into()]))?;
            let held = rows.iter().map(|row| Ok(LeaseId(row.uuid(0)?)));
            if held.collect::<Result<Vec<_>>>()?.iter().all(|lease| known.contains(lease)) {
                return Ok(Vec::new());
            }
            let rows = tx.run(Call::one(&HELD, vec![session.as_str().into()]))?;
            let mut held = assignments(&rows)?;
            held.retain(|assignment| !known.contains(&assignment.lease_id));
            Ok(held)
        };
        self.store.read("unknown_to", body).await
    }

    /// Adds what earlier attempts have done. A first attempt has nothing behind it, unless it is a
    /// replay, so most claims read nothing here.
    pub async fn fill_steps(&self, mut held: Vec<Assignment>) -> Result<Vec<Assignment>> {
        let has_past = |a: &Assignment| a.attempt > 1 || a.task.replay_of.is_some();
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
                let page = step::page(tx, id, 0, STEPS_LIMIT, left.min(STEPS_BYTES))?;
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

    fn settle(
        &self,
        taken: Taken,
        begun: &Begun,
        lanes: &[Lane],
        began: &[i64],
        max: usize,
    ) -> Vec<Assignment> {
        let full = taken.assignments.len() >= max;
        for ((lane, lowest), &began) in lanes.iter().zip(taken.lowest).zip(began) {
            match lowest {
                Some(lowest) if full => self.floor.raise(begun, lane, began, lowest),
                _ if !full => self.floor.reset(&lane.0, lane.1),
                _ => {}
            }
        }
        for (queue, profile, order_key) in taken.ripened {
            self.floor.lower_to(&queue, profile, order_key);
        }
        taken.assignments
    }

    async fn claim_from(
        &self,
        claim: &Claim,
        max: usize,
        lanes: &[Lane],
        floors: &[i64],
        look: Look,
    ) -> Result<Taken> {
        let (claim, lanes, floors) = (claim.clone(), lanes.to_vec(), floors.to_vec());
        let body = move |tx: &mut dyn Tx| {
            // A test's clock may jump between two claims.
            let look = Look { ripen: look.ripen || tx.fixed_now().is_some(), ..look };
            match tx.dialect() {
                Dialect::Postgres => claim_postgres(tx, &claim, max, &lanes, &floors, look),
                Dialect::Sqlite => claim_sqlite(tx, &claim, max, &lanes, look),
            }
        };
        self.store.write("claim", body).await
    }
}

/// Everything in one flight: each lane's statement counts what the ones before it took.
fn claim_postgres(
    tx: &mut dyn Tx,
    claim: &Claim,
    max: usize,
    lanes: &[Lane],
    floors: &[i64],
    look: Look,
) -> Result<Taken> {
    let mut calls = Vec::with_capacity(lanes.len() + 2);
    if look.ripen {
        calls.push(ripen(tx));
    }
    let lanes: Vec<_> = lanes.iter().zip(floors.iter().copied()).collect();
    calls.extend(self::calls(tx, claim, max, &lanes, look.again));
    let mut rows = tx.run_and_commit(calls)?;
    let assignments = assignments(&rows.pop().unwrap_or_default())?;
    let mut rows = rows.into_iter();
    let ripened = match look.ripen {
        true => ripened(&rows.next().unwrap_or_default())?,
        false => Vec::new(),
    };
    let rows: Vec<_> = rows.collect();
    let new = rows.iter().map(Vec::len).sum();
    let lowest = rows.iter().map(|lane| lowest(lane)).collect::<Result<_>>()?;
    Ok(Taken { assignments, new, lowest, ripened })
}

/// One writer and no round trips: lane by lane, until there is enough. No floor either: SQLite
/// leaves no dead entries in an index.
fn claim_sqlite(
    tx: &mut dyn Tx,
    claim: &Claim,
    max: usize,
    lanes: &[Lane],
    look: Look,
) -> Result<Taken> {
    let call = ripen(tx);
    let ripened = ripened(&tx.run(call)?)?;
    let (assignments, new) = take_sqlite(tx, claim, max, lanes, look.again)?;
    Ok(Taken { assignments, new, lowest: vec![None; lanes.len()], ripened })
}

/// Takes and answers, and tells how many it took; on SQLite.
pub(super) fn take_sqlite(
    tx: &mut dyn Tx,
    claim: &Claim,
    max: usize,
    lanes: &[Lane],
    again: bool,
) -> Result<(Vec<Assignment>, usize)> {
    let fresh = Fresh::new(max);
    let earlier = vec![claim.session.as_str().into(), claim.claim.0.into()];
    let earlier = tx.run(Call::one(&COUNT_CLAIMED, earlier))?;
    let earlier = earlier.first().map_or(Ok(0), |row| row.int(0))? as usize;
    let mut count = earlier;
    // What it took before was its answer, unless this is the same call's second look.
    let lanes = if earlier > 0 && !again { &[] } else { lanes };
    for lane in lanes {
        let free = count.min(max)..max;
        let items = free.map(|i| vec![fresh.leases[i].into(), fresh.changes[i].into()]).collect();
        let mut call = Call::each(&CLAIM, lane_values(tx, claim, lane, max, NONE), items);
        call.stop_when_empty = true;
        count += tx.run(call)?.len();
    }
    Ok((assignments(&tx.run(assigned(claim))?)?, count - earlier))
}

/// Takes and answers, on PostgreSQL: a statement a lane, then one that reads what they took.
pub(super) fn calls<'a>(
    tx: &dyn Tx,
    claim: &Claim,
    max: usize,
    lanes: &[(&Lane, i64)],
    again: bool,
) -> Vec<Call<'a>> {
    let fresh = Fresh::new(max);
    let mut calls = Vec::with_capacity(lanes.len() + 1);
    for &(lane, floor) in lanes {
        let mut shared = lane_values(tx, claim, lane, max, floor);
        shared.push(Value::UuidList(fresh.leases.clone()));
        shared.push(Value::UuidList(fresh.changes.clone()));
        shared.push(again.into());
        calls.push(Call::one(&CLAIM, shared));
    }
    calls.push(assigned(claim));
    calls
}

fn ripen<'a>(tx: &dyn Tx) -> Call<'a> {
    Call::one(&RIPEN, vec![tx.fixed_now().into(), RIPEN_LIMIT.into()])
}

pub(super) fn assigned<'a>(claim: &Claim) -> Call<'a> {
    Call::one(&ASSIGNED, vec![claim.session.as_str().into(), claim.claim.0.into()])
}

/// `$1 … $9` of the claim statement.
fn lane_values(tx: &dyn Tx, claim: &Claim, lane: &Lane, max: usize, floor: i64) -> Vec<Value> {
    vec![
        tx.fixed_now().into(),
        lane.0.as_str().into(),
        lane.1.as_str().into(),
        Value::Int(max as i64),
        floor.into(),
        claim.session.as_str().into(),
        claim.claim.0.into(),
        claim.lease_ms.into(),
        claim.start.into(),
    ]
}

fn lowest(rows: &[Row]) -> Result<Option<i64>> {
    let keys = rows.iter().map(|row| row.int(0)).collect::<Result<Vec<_>>>()?;
    Ok(keys.into_iter().min())
}

fn ripened(rows: &[Row]) -> Result<Vec<(String, Profile, i64)>> {
    rows.iter().map(|row| Ok((row.text(0)?.to_owned(), row.named(1)?, row.int(2)?))).collect()
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
