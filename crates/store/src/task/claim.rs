//! Claiming: whose turn it is, what fits, take it, and answer with what was taken, in one
//! transaction. Concurrent claims share it.
//!
//! Invariant: the database decides. Lanes, turns and counts say where to look and how much to ask
//! for; what a claim gets is what its statement changed.
//! Invariant: what becomes active under a limit was counted after the lock that all claims take.

use super::Tasks;
use super::cold::{self, Ask};
use super::lane::Common;
use super::lane::{self, Lanes, Looking};
use super::room::{Lock, Room};
use super::row::{Task, task};
use crate::error::{Error, Result};
use crate::group::{Bounds, Group, Outcome};
use crate::statement;
use crate::statement::Dialect;
use crate::step::{self, Step};
use crate::store::Store;
use crate::tx::{Call, Tx};
use crate::value::{Row, Value};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use uuid::Uuid;
use windlass_domain::command::Command;
use windlass_domain::fair::Part;
use windlass_domain::id::{ClaimId, LeaseId, TaskId};
use windlass_domain::limit::Bound;
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

/// The most tasks that one claim takes.
const MOST_TASKS: usize = 1_000;

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

/// A claim on its way: what it still wants, and what it has.
#[derive(Clone)]
struct Asking {
    claim: Claim,
    lines: Vec<(String, Profile)>,
    max: usize,
    has: Vec<Assignment>,
    /// Whether an earlier round of this very call took something, so that this one adds to it.
    again: bool,
}

impl Asking {
    fn new(claim: Claim) -> Asking {
        let lines = (claim.queues.iter())
            .flat_map(|queue| claim.profiles.iter().map(|&p| (queue.clone(), p)))
            .filter(|(_, profile)| *profile != Profile::Ledger)
            .collect();
        let max = claim.max.min(MOST_TASKS);
        Asking { claim, lines, max, has: Vec::new(), again: false }
    }

    fn left(&self) -> i64 {
        self.max.saturating_sub(self.has.len()) as i64
    }
}

/// What one transaction did for one claim.
pub(super) struct Taken {
    /// The call was made before, and this is what it gave.
    repeated: bool,
    /// All that the call holds, also from before.
    pub(super) assignments: Vec<Assignment>,
    /// How many of them this transaction took.
    new: usize,
    /// How many it asked for.
    asked: i64,
}

/// What one transaction did; hints are settled after its commit.
pub(super) struct Took {
    pub(super) each: Vec<Taken>,
    /// The rows of the calls that went before.
    pub(super) before: Vec<Vec<Row>>,
    looking: Looking,
    /// How many were taken of each lane, and the key of the last.
    lanes: HashMap<i64, (i64, Option<i64>)>,
    /// Lanes that were asked for by a call that had its answer already.
    untouched: HashSet<i64>,
    /// Whether all lanes were looked at and nothing was held back.
    everything: bool,
}

impl Took {
    fn add(&mut self, asking: &Asking, parts: &[Part], held: Vec<Assignment>, new: usize) {
        let repeated = !asking.again && new == 0 && !held.is_empty();
        if repeated {
            self.untouched.extend(parts.iter().map(|part| part.lane));
        }
        self.each.push(Taken { assignments: held, new, asked: quota(parts), repeated });
    }

    /// The transaction is committed.
    pub(super) fn settle(mut self) -> (Vec<Taken>, bool) {
        let lanes: Vec<i64> = self.looking.in_hand().collect();
        // A repeated call took nothing because it had its answer: that says nothing of its lanes.
        for lane in lanes.into_iter().filter(|lane| !self.untouched.contains(lane)) {
            let (taken, last) = self.lanes.get(&lane).copied().unwrap_or_default();
            self.looking.settle(lane, taken, last);
        }
        (self.each, self.everything)
    }
}

/// Claims of this node share transactions.
pub(super) fn group(
    store: Store,
    lanes: Arc<Lanes>,
    bounds: Bounds,
) -> Group<Claim, Vec<Assignment>> {
    // Each claim may take a thousand tasks.
    let bounds = Bounds { items: 64, ..bounds };
    Group::new(
        "claim",
        bounds,
        |_| 1024,
        move |claims| {
            let (store, lanes) = (store.clone(), Arc::clone(&lanes));
            async move { run(&store, &lanes, claims).await }
        },
    )
}

/// A lane may be shorter than its share, and a line shorter than what was wanted: then a claim asks
/// again, so often at most for each of its lines.
const ROUNDS: usize = 4;

async fn run(
    store: &Store,
    lanes: &Arc<Lanes>,
    claims: Vec<Claim>,
) -> Vec<Outcome<Vec<Assignment>>> {
    let mut asking: Vec<Asking> = claims.into_iter().map(Asking::new).collect();
    let mut open: Vec<usize> = (0..asking.len()).collect();
    let lines = asking.iter().map(|asking| asking.lines.len()).max().unwrap_or_default();
    for _ in 0..ROUNDS + lines {
        let (lanes, wanted) = (Arc::clone(lanes), open.iter().map(|&i| asking[i].clone()));
        let wanted: Vec<Asking> = wanted.collect();
        let body = move |tx: &mut dyn Tx| take(tx, &lanes, &wanted, Vec::new(), Look::Everywhere);
        let (each, everything) = match store.write("claim", body).await {
            Ok(took) => took.settle(),
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
            asking.has = taken.assignments;
            asking.again = !asking.has.is_empty();
            if again && asking.left() > 0 && !(everything && taken.new == 0 && taken.asked == 0) {
                short.push(index);
            }
        }
        open = short;
        if open.is_empty() {
            break;
        }
    }
    asking.into_iter().map(|asking| Ok(asking.has)).collect()
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
            Some(Err(crate::error::Rejection::Failed(error))) => Err(error),
            Some(Err(crate::error::Rejection::Refused(_))) | None => Err(cold::no_answer()),
        }
    }

    /// Takes these very tasks, as far as they are ready, in the claim's lanes, and within limits.
    /// What it could not take is not in the answer.
    pub async fn claim_tasks(&self, claim: &Claim, ids: Vec<TaskId>) -> Result<Vec<Assignment>> {
        let limits = self.lanes.limits();
        let mut asks: Vec<(Ask, Vec<Bound>)> = Vec::with_capacity(ids.len());
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
                let bounds = limits.as_ref().map(|limits| Common::from(&task).bounds(limits));
                let ask = Ask::new(id, command, claim.session.as_str());
                asks.push((ask, bounds.unwrap_or_default()));
            }
        }
        let body = move |tx: &mut dyn Tx| {
            let mut room = Room::default();
            if limits.is_some() {
                room.hold(tx, Lock::Active, asks.iter().map(|(_, bounds)| &bounds[..]))?;
            }
            let fitting = asks.iter().filter(|(_, bounds)| room.admit(bounds));
            let fitting: Vec<Ask> = fitting.map(|(ask, _)| ask.clone()).collect();
            cold::decide_all(tx, &fitting)
        };
        self.store.write("claim_tasks", body).await?;
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
}

/// Whether a claim that finds too little looks everywhere.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    Everywhere,
    /// Only where this node knows of something.
    Here,
}

/// Finds and takes, in the caller's transaction, after the calls of `before`; on PostgreSQL that
/// ends it.
fn take(
    tx: &mut dyn Tx,
    lanes: &Arc<Lanes>,
    asking: &[Asking],
    before: Vec<Call<'_>>,
    look: Look,
) -> Result<Took> {
    let mut looking = lanes.begin();
    // A test's clock may jump between two claims.
    let ripens = look == Look::Everywhere && (lanes.is_time_to_ripen() || tx.fixed_now().is_some());
    let mut looked = look == Look::Here;
    if look == Look::Everywhere && lanes.scan_is_due() {
        look_everywhere(tx, lanes, &looking)?;
        looked = true;
    } else if ripens {
        ripen(tx, lanes)?;
    }
    let mut room = lanes.limits().map(|_| Room::default());
    let mut plans: Vec<Vec<Part>> = vec![Vec::new(); asking.len()];
    let mut held_back = plan(tx, lanes, &mut looking, asking, &mut room, &mut plans)?;
    let short = |plans: &[Vec<Part>]| {
        plans.iter().zip(asking).any(|(parts, asking)| quota(parts) < asking.left())
    };
    if !looked && !held_back && short(&plans) {
        look_everywhere(tx, lanes, &looking)?;
        held_back = plan(tx, lanes, &mut looking, asking, &mut room, &mut plans)?;
        looked = true;
    }
    let everything = looked && !held_back;
    if let Some(room) = &room {
        lanes.fill(room.full().cloned());
    }
    let mut took = Took {
        each: Vec::new(),
        before: Vec::new(),
        looking,
        lanes: HashMap::new(),
        untouched: HashSet::new(),
        everything,
    };
    match tx.dialect() {
        Dialect::Postgres => take_postgres(tx, lanes, asking, &plans, room, before, &mut took)?,
        Dialect::Sqlite => take_sqlite(tx, lanes, asking, &plans, room, before, &mut took)?,
    }
    Ok(took)
}

/// For those who wait for what `before` brings.
pub(super) fn take_after(
    tx: &mut dyn Tx,
    lanes: &Arc<Lanes>,
    claims: &[Claim],
    before: Vec<Call<'_>>,
) -> Result<Took> {
    let asking: Vec<Asking> = claims.iter().cloned().map(Asking::new).collect();
    take(tx, lanes, &asking, before, Look::Here)
}

fn quota(parts: &[Part]) -> i64 {
    parts.iter().map(|part| part.quota).sum()
}

/// Adds to the plans what is still missing. Whether a limit holds something back.
fn plan(
    tx: &mut dyn Tx,
    lanes: &Lanes,
    looking: &mut Looking,
    asking: &[Asking],
    room: &mut Option<Room>,
    plans: &mut [Vec<Part>],
) -> Result<bool> {
    let Some(room) = room else {
        for (asking, parts) in asking.iter().zip(plans) {
            let left = asking.left() - quota(parts);
            add(parts, looking.plan(&asking.lines, left, |_| true).parts);
        }
        return Ok(false);
    };
    let mut held_back = false;
    // Those whose turn it is may be full: then it is the next ones' turn.
    for _ in 0..ROUNDS {
        let left = |(asking, parts): (&Asking, &Vec<Part>)| asking.left() - quota(parts);
        let wanted: i64 = asking.iter().zip(plans.iter()).map(left).sum();
        let all: Vec<_> = asking.iter().flat_map(|asking| asking.lines.iter().cloned()).collect();
        let candidates = match wanted {
            0 => Vec::new(),
            _ => looking.candidates(&all, wanted),
        };
        if candidates.is_empty() {
            return Ok(held_back || (wanted > 0 && looking.is_anybody(&all)));
        }
        room.hold(tx, Lock::Active, candidates.iter().map(|bounds| &bounds[..]))?;
        for (asking, parts) in asking.iter().zip(plans.iter_mut()) {
            let left = asking.left() - quota(parts);
            let planned = looking.plan(&asking.lines, left, |bounds| room.admit(bounds));
            held_back |= planned.held_back;
            add(parts, planned.parts);
        }
        lanes.fill(room.full().cloned());
        if !held_back {
            break;
        }
    }
    Ok(held_back)
}

fn add(parts: &mut Vec<Part>, more: Vec<Part>) {
    for part in more {
        match parts.iter_mut().find(|known| known.lane == part.lane) {
            Some(known) => known.quota += part.quota,
            None => parts.push(part),
        }
    }
}

/// Ripens what is due and looks at all lanes.
fn look_everywhere(tx: &mut dyn Tx, lanes: &Lanes, looking: &Looking) -> Result<()> {
    ripen(tx, lanes)?;
    let rows = tx.run(lane::scan())?;
    looking.scanned(&rows)
}

fn ripen(tx: &mut dyn Tx, lanes: &Lanes) -> Result<()> {
    let call = Call::one(&RIPEN, vec![tx.fixed_now().into(), RIPEN_LIMIT.into()]);
    for row in tx.run(call)? {
        lanes.stand(row.int(0)?, row.int(1)?);
    }
    Ok(())
}

/// A statement a claim, then one each that reads what it holds now.
fn take_postgres(
    tx: &mut dyn Tx,
    lanes: &Lanes,
    asking: &[Asking],
    plans: &[Vec<Part>],
    room: Option<Room>,
    before: Vec<Call<'_>>,
    took: &mut Took,
) -> Result<()> {
    let count = before.len();
    let mut calls = before;
    for (asking, parts) in asking.iter().zip(plans) {
        let fresh = Fresh::new(asking.max);
        let mut shared = claim_values(tx, &asking.claim);
        shared.push(Value::UuidList(fresh.leases));
        shared.push(Value::UuidList(fresh.changes));
        shared.push(asking.again.into());
        let item = |part: &Part| vec![part.lane.into(), part.from_key.into(), part.quota.into()];
        if !parts.is_empty() {
            calls.push(Call::each(&CLAIM, shared, parts.iter().map(item).collect()));
        }
    }
    let rated = room.filter(|_| is_rated(lanes, plans));
    let mut rows = match rated {
        None => {
            calls.extend(asking.iter().map(|asking| assigned(&asking.claim)));
            tx.run_and_commit(calls)?
        }
        Some(mut room) => {
            let mut rows = Vec::with_capacity(calls.len() + asking.len());
            for call in calls {
                rows.push(tx.run(call)?);
            }
            for row in rows[count..].iter().flatten() {
                room.took(&lanes.bounds(row.int(0)?), 1);
            }
            let rates: Vec<Call<'_>> = room.rates(tx.fixed_now()).into_iter().collect();
            let skip = rates.len();
            let rest = asking.iter().map(|asking| assigned(&asking.claim));
            rows.extend(
                tx.run_and_commit(rates.into_iter().chain(rest).collect())?.split_off(skip),
            );
            rows
        }
    };
    let held = rows.split_off(rows.len() - asking.len());
    let mut claimed = rows.split_off(count).into_iter();
    took.before = rows;
    for ((asking, parts), held) in asking.iter().zip(plans).zip(held) {
        let rows = if parts.is_empty() { Vec::new() } else { claimed.next().unwrap_or_default() };
        for row in &rows {
            let (lane, key) = (row.int(0)?, row.int(1)?);
            let entry = took.lanes.entry(lane).or_default();
            *entry = (entry.0 + 1, entry.1.max(Some(key)));
        }
        took.add(asking, parts, assignments(&held)?, rows.len());
    }
    Ok(())
}

fn is_rated(lanes: &Lanes, plans: &[Vec<Part>]) -> bool {
    plans.iter().flatten().any(|part| lanes.bounds(part.lane).iter().any(|b| b.rate.is_some()))
}

/// One writer and no round trips: task by task. No keys either: SQLite leaves no dead entries in
/// an index, so a lane is read from its beginning.
fn take_sqlite(
    tx: &mut dyn Tx,
    lanes: &Lanes,
    asking: &[Asking],
    plans: &[Vec<Part>],
    mut room: Option<Room>,
    before: Vec<Call<'_>>,
    took: &mut Took,
) -> Result<()> {
    for call in before {
        took.before.push(tx.run(call)?);
    }
    for (asking, parts) in asking.iter().zip(plans) {
        let claim = &asking.claim;
        let earlier = vec![claim.session.as_str().into(), claim.claim.0.into()];
        let earlier = tx.run(Call::one(&COUNT_CLAIMED, earlier))?;
        let earlier = earlier.first().map_or(Ok(0), |row| row.int(0))? as usize;
        // What it took before was its answer, unless this is the same call's next round.
        let due: &[Part] = if earlier > 0 && !asking.again { &[] } else { parts };
        let mut fresh = Fresh::new(quota(due) as usize);
        let mut new = 0;
        for part in due {
            let ids = (0..part.quota).filter_map(|_| fresh.leases.pop().zip(fresh.changes.pop()));
            let items = ids.map(|(lease, change)| vec![lease.into(), change.into()]).collect();
            let mut shared = claim_values(tx, claim);
            shared.push(part.lane.into());
            let mut call = Call::each(&CLAIM, shared, items);
            call.stop_when_empty = true;
            let taken = tx.run(call)?.len();
            new += taken;
            took.lanes.entry(part.lane).or_default().0 += taken as i64;
            if let Some(room) = &mut room {
                room.took(&lanes.bounds(part.lane), taken as i64);
            }
        }
        took.add(asking, parts, assignments(&tx.run(assigned(claim))?)?, new);
    }
    if let Some(call) = room.and_then(|mut room| room.rates(None)) {
        tx.run(call)?;
    }
    Ok(())
}

pub(super) fn assigned<'a>(claim: &Claim) -> Call<'a> {
    Call::one(&ASSIGNED, vec![claim.session.as_str().into(), claim.claim.0.into()])
}

/// `$1 … $5` of the claim statement.
fn claim_values(tx: &dyn Tx, claim: &Claim) -> Vec<Value> {
    vec![
        tx.fixed_now().into(),
        claim.session.as_str().into(),
        claim.claim.0.into(),
        claim.lease_ms.into(),
        claim.start.into(),
    ]
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
