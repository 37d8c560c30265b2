//! What claims share: whose turn it is, what fits under the limits, and taking it, in one
//! transaction.
//!
//! Invariant: the database decides. Lanes, turns and counts say where to look and how much to ask
//! for; what a claim gets is what its statement changed.
//! Invariant: what becomes active under a limit was counted after the lock that all claims take.

mod postgres;
mod sqlite;

use super::claim::{Assignment, Claim};
use super::lane::Lanes;
use super::looking::{self, Lines, Looking};
use super::room::{Lock, Room};
use super::slot;
use crate::error::Result;
use crate::statement;
use crate::statement::Dialect;
use crate::tx::{Call, Tx};
use crate::value::{Row, Value};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;
use uuid::Uuid;
use windlass_domain::fair::{Fit, Part};
use windlass_domain::limit::Bound;

statement!(RIPEN, "task/ripen");
statement!(CLAIM, "task/claim");
statement!(CLAIM_ONCE, "task/claim_once");
statement!(shared COUNT_CLAIMED, "task/count_claimed");
statement!(shared HEAD, "lane/head");

/// All of the above.
pub(super) static STATEMENTS: &[&crate::statement::Statement] =
    &[&RIPEN, &CLAIM, &CLAIM_ONCE, &COUNT_CLAIMED, &HEAD];

/// How many due tasks one claim ripens: enough to keep up, few enough to stay short.
const RIPEN_LIMIT: i64 = 1_000;

/// The most tasks that one claim takes.
const MOST_TASKS: usize = 1_000;

/// How many more ventures than tasks wanted a claim looks at first, and by how much more each time
/// that those turn out to be full: a few looks go past any number of them.
const MORE_VENTURES: usize = 16;
const MORE_EACH_TIME: usize = 4;

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
pub(super) struct Asking {
    pub(super) claim: Claim,
    pub(super) lines: Lines,
    max: usize,
    pub(super) has: Vec<Assignment>,
    /// Whether an earlier round of this very call took something, so that this one adds to it.
    pub(super) again: bool,
    /// Whether it would rather look again than take what is less urgent than it was told.
    is_strict: bool,
}

impl Asking {
    pub(super) fn new(claim: Claim) -> Asking {
        let lines = Lines::of(&claim);
        let max = claim.max.min(MOST_TASKS);
        Asking { claim, lines, max, has: Vec::new(), again: false, is_strict: true }
    }

    /// The same, as strict as this.
    pub(super) fn strictly(&self, is_strict: bool) -> Asking {
        Asking { is_strict, ..self.clone() }
    }

    pub(super) fn left(&self) -> i64 {
        self.max.saturating_sub(self.has.len()) as i64
    }
}

/// What one transaction did for one claim.
pub(super) struct Taken {
    /// The call was made before, and this is what it gave.
    pub(super) repeated: bool,
    /// All that the call holds, also from before.
    pub(super) assignments: Vec<Assignment>,
    /// How many of them this transaction took.
    pub(super) new: usize,
    /// How many it asked for.
    pub(super) asked: i64,
}

/// What a claim saw of a lane.
#[derive(Clone, Copy, Default)]
pub(super) struct Seen {
    /// How many it took.
    pub(super) taken: i64,
    /// The highest key that it took or that comes next.
    pub(super) last: Option<i64>,
    /// What comes next and was not taken.
    pub(super) next: Option<i64>,
}

/// What one transaction did; hints are settled after its commit.
pub(super) struct Took {
    pub(super) each: Vec<Taken>,
    /// The rows of the calls that went before.
    pub(super) before: Vec<Vec<Row>>,
    looking: Looking,
    /// What was seen of each lane.
    lanes: HashMap<i64, Seen>,
    /// Lanes that were asked for by a call that had its answer already.
    untouched: HashSet<i64>,
    /// Whether all lanes were looked at and nothing was held back.
    everything: bool,
    /// In how long the first rate that held something back begins anew.
    pub(super) next_period_ms: Option<i64>,
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
            let seen = self.lanes.get(&lane).copied().unwrap_or_default();
            self.looking.settle(lane, seen);
        }
        (self.each, self.everything)
    }
}

/// Whether a claim that finds too little looks everywhere.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    Everywhere,
    /// With the lock of claims had first: what it sees nobody else takes before it does.
    Locked,
    /// Only where this node knows of something.
    Here,
}

/// Finds and takes, in the caller's transaction, after the calls of `before`; on PostgreSQL that
/// ends it.
pub(super) fn take(
    tx: &mut dyn Tx,
    lanes: &Arc<Lanes>,
    asking: &[Asking],
    before: Vec<Call<'_>>,
    look: Look,
    room: Room,
) -> Result<Took> {
    let mut looking = Looking::begin(lanes);
    if tx.fixed_now().is_some() {
        // A test's clock may jump between two claims.
        lanes.empty();
    }
    let limits = lanes.limits();
    let mut room = limits.as_ref().map(|_| room);
    if let Some(room) = room.as_mut().filter(|_| look == Look::Locked) {
        room.lock_claims(tx)?;
    }
    let ripens = look != Look::Here && (lanes.is_time_to_ripen() || tx.fixed_now().is_some());
    let mut looked = look == Look::Here;
    // Where a test has the clock, what it sees must not depend on how quick the machine is.
    let may_scan = lanes.may_scan() || tx.fixed_now().is_some();
    let is_due = || look == Look::Locked || lanes.scan_is_due();
    if look != Look::Here && may_scan && is_due() {
        look_everywhere(tx, lanes, &looking)?;
        looked = true;
    } else if ripens {
        ripen(tx, lanes)?;
    }
    let mut asking = Cow::Borrowed(asking);
    if let (Some(limits), Some(room)) = (&limits, &mut room)
        && asking.iter().any(|asking| slot::is_bound(limits, &asking.claim))
    {
        let free = slot::free(tx, limits, asking.iter().map(|asking| &asking.claim), room)?;
        for (asking, free) in asking.to_mut().iter_mut().zip(free) {
            asking.max = asking.max.min(asking.has.len().saturating_add(free));
        }
    }
    let asking = &*asking;
    let mut plans: Vec<Vec<Part>> = vec![Vec::new(); asking.len()];
    let (brought, before) = match look {
        Look::Here => bring(tx, &looking, asking, &mut room, before)?,
        Look::Everywhere | Look::Locked => (Vec::new(), before),
    };
    look_behind_heads(tx, &mut looking, asking, &mut room)?;
    let mut held_back = plan(tx, lanes, &mut looking, asking, &mut room, &mut plans)?;
    let short = |plans: &[Vec<Part>]| {
        plans.iter().zip(asking).any(|(parts, asking)| quota(parts) < asking.left())
    };
    // Where a limit holds lanes back there may still be others that this node has not heard of.
    if !looked && may_scan && short(&plans) && (!held_back || lanes.scan_is_old()) {
        look_everywhere(tx, lanes, &looking)?;
        look_behind_heads(tx, &mut looking, asking, &mut room)?;
        held_back = plan(tx, lanes, &mut looking, asking, &mut room, &mut plans)?;
        looked = true;
    }
    let everything = looked && !held_back;
    let next_period_ms = match &room {
        Some(room) if room.is_rate_full() => room.next_period_ms(tx.now()?),
        _ => None,
    };
    let mut took = Took {
        each: Vec::new(),
        before: Vec::new(),
        looking,
        lanes: HashMap::new(),
        untouched: HashSet::new(),
        everything,
        next_period_ms,
    };
    match tx.dialect() {
        Dialect::Postgres => {
            if look != Look::Here {
                postgres::claim_once(tx, asking, &plans)?;
            }
            postgres::take(tx, lanes, asking, &plans, room, before, &mut took)?;
        }
        Dialect::Sqlite => sqlite::take(tx, lanes, asking, &plans, room, before, &mut took)?,
    }
    took.before.splice(..0, brought);
    Ok(took)
}

/// For those who wait for what `before` brings.
pub(super) fn take_after(
    tx: &mut dyn Tx,
    lanes: &Arc<Lanes>,
    claims: &[Claim],
    before: Vec<Call<'_>>,
    room: Room,
) -> Result<Took> {
    let asking: Vec<Asking> = claims.iter().cloned().map(Asking::new).collect();
    take(tx, lanes, &asking, before, Look::Here, room)
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
            add(parts, looking.plan(&asking.lines, left, |_, _| Fit::Yes).parts);
        }
        return Ok(false);
    };
    let mut held_back = false;
    let mut more = MORE_VENTURES;
    // Those whose turn it is may be full: then it is the next ones' turn.
    loop {
        let left = |(asking, parts): &(&Asking, &Vec<Part>)| asking.left() - quota(parts);
        let open = asking.iter().zip(plans.iter()).filter(|each| left(each) > 0);
        let wanted: i64 = open.clone().map(|each| left(&each)).sum();
        let all: Vec<&Lines> = open.map(|(asking, _)| &asking.lines).collect();
        let candidates = match wanted {
            0 => Vec::new(),
            _ => looking.candidates(&all, wanted as usize + more, |key| room.is_full(key)),
        };
        if candidates.is_empty() {
            return Ok(held_back || (wanted > 0 && looking.is_anybody(&all)));
        }
        room.hold(tx, Lock::Active, candidates.iter().map(|bounds| &bounds[..]))?;
        let mut uncounted = false;
        for (asking, parts) in asking.iter().zip(plans.iter_mut()) {
            let left = asking.left() - quota(parts);
            let planned = looking.plan(&asking.lines, left, |bounds, many| match many {
                1 => fit(room, bounds),
                many => Fit::from(room.fit_all(bounds, many)),
            });
            held_back |= planned.held_back;
            uncounted |= planned.uncounted;
            add(parts, planned.parts);
        }
        lanes.fill(room.full().cloned());
        if !held_back && !uncounted {
            return Ok(false);
        }
        more = more.saturating_mul(MORE_EACH_TIME);
    }
}

fn fit(room: &mut Room, bounds: &[Bound]) -> Fit {
    match room.fit(bounds) {
        Some(true) => Fit::Yes,
        Some(false) => match looking::held_by(bounds, |bound| room.is_full(&bound.key)) {
            Fit::Shut => Fit::Shut,
            _ => Fit::No,
        },
        None => Fit::Unknown,
    }
}

fn add(parts: &mut Vec<Part>, more: Vec<Part>) {
    for part in more {
        match parts.iter_mut().find(|known| known.lane == part.lane) {
            Some(known) => {
                known.quota += part.quota;
                known.until_key = known.until_key.max(part.until_key);
            }
            None => parts.push(part),
        }
    }
}

/// Several tasks go by priority, too, whatever lanes of their venture they stand in. Limits are
/// locked first: what was seen before may be gone by then, and something more urgent there.
fn look_behind_heads(
    tx: &mut dyn Tx,
    looking: &mut Looking,
    asking: &[Asking],
    room: &mut Option<Room>,
) -> Result<()> {
    let wanted = asking.iter().map(Asking::left).sum::<i64>().max(0) as usize;
    let all: Vec<&Lines> = asking.iter().map(|asking| &asking.lines).collect();
    if wanted < 2 || !looking.is_mixed(&all, wanted) {
        return Ok(());
    }
    lock_next(tx, looking, &all, wanted, room)?;
    looking.look_into(tx, &all, wanted)
}

/// Locks the limits of those whose turn comes next.
fn lock_next(
    tx: &mut dyn Tx,
    looking: &Looking,
    all: &[&Lines],
    wanted: usize,
    room: &mut Option<Room>,
) -> Result<()> {
    let Some(room) = room else { return Ok(()) };
    let next = looking.candidates(all, wanted + MORE_VENTURES, |key| room.is_full(key));
    room.hold(tx, Lock::Active, next.iter().map(|bounds| &bounds[..]))
}

/// Runs what comes before at once, where those who wait for it take several tasks and the heads of
/// the lanes do not tell which: it must be there to be looked at. Gives its rows, and what is still
/// to be run. Limits are locked first, as everywhere.
fn bring<'c>(
    tx: &mut dyn Tx,
    looking: &Looking,
    asking: &[Asking],
    room: &mut Option<Room>,
    before: Vec<Call<'c>>,
) -> Result<(Vec<Vec<Row>>, Vec<Call<'c>>)> {
    let wanted = asking.iter().map(Asking::left).sum::<i64>().max(0) as usize;
    let all: Vec<&Lines> = asking.iter().map(|asking| &asking.lines).collect();
    if wanted < 2 || before.is_empty() || !looking.is_mixed(&all, wanted) {
        return Ok((Vec::new(), before));
    }
    lock_next(tx, looking, &all, wanted, room)?;
    let rows = before.into_iter().map(|call| tx.run(call)).collect::<Result<_>>()?;
    Ok((rows, Vec::new()))
}

/// Ripens what is due and looks at all lanes.
fn look_everywhere(tx: &mut dyn Tx, lanes: &Lanes, looking: &Looking) -> Result<()> {
    ripen(tx, lanes)?;
    lanes.scan_begins();
    let began = Instant::now();
    let rows = tx.run(looking::scan())?;
    looking.scanned(&rows, began.elapsed())
}

fn ripen(tx: &mut dyn Tx, lanes: &Lanes) -> Result<()> {
    let call = Call::one(&RIPEN, vec![tx.fixed_now().into(), RIPEN_LIMIT.into()]);
    let ripened = tx.run(call)?;
    for row in &ripened {
        lanes.stand(row.int(0)?, row.int(1)?);
    }
    if ripened.len() as i64 == RIPEN_LIMIT {
        // More may be due, of ventures that have had nothing yet.
        lanes.ripen_again();
    }
    Ok(())
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
