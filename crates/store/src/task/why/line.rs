//! The line in which a task stands: who would take it, whether those are busy, who stands before
//! it, and how fast the line moves.
//!
//! Invariant: before it stands what a worker that would take it would take first, and no other:
//! neither kinds that such a worker does not take, nor what is stopped by something that does not
//! stop the task itself.

use super::super::common::Common;
use super::holder;
use crate::error::Result;
use crate::session::{self, OfQueue};
use crate::statement;
use crate::tx::{Call, Tx};
use crate::value::{Row, Value};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use windlass_domain::id::TaskId;
use windlass_domain::limit::{
    Bound, Count, Key, Limits, Scope, WINDOW_MS, drained_by_moves, room as room_left,
};
use windlass_domain::pins::Serves;
use windlass_domain::profile::Profile;
use windlass_domain::why::{
    Busy, Facts, Holder, MOST_COUNTED, MOST_HELD, MOST_HOLDERS, Sharing, is_full, is_spent,
};

statement!(AHEAD, "task/ahead");
statement!(shared WAITING, "lane/waiting");
statement!(shared BEFORE, "lane/before");
statement!(HELD, "session/held");
statement!(HELD_LONGEST, "session/held_longest");
statement!(PACE, "history/pace");
/// All of the above.
pub(crate) static STATEMENTS: &[&statement::Statement] =
    &[&AHEAD, &WAITING, &BEFORE, &HELD, &HELD_LONGEST, &PACE];

/// How many transitions a pace is read from.
const PACE_ROWS: i64 = 2_000;

/// Where a task stands among those of its venture.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) lane: i64,
    pub(super) order_key: i64,
    pub(super) task: TaskId,
}

impl Place {
    /// As the statements about those before it take it, and to how many they count.
    fn params(&self) -> Vec<Value> {
        vec![self.order_key.into(), self.task.0.into(), Value::Int(MOST_COUNTED + 1)]
    }
}

/// Adds what is known of a task's line.
pub(super) fn add(tx: &mut dyn Tx, facts: &mut Facts, limits: &Limits, place: Place) -> Result<()> {
    let takers: Vec<OfQueue> = session::of_queue(tx, &facts.queue, facts.now)?
        .into_iter()
        .filter(|session| {
            let routes = &session.routes;
            routes.profiles().contains(&facts.profile) && routes.serves().has(&facts.pins)
        })
        .collect();
    facts.line.workers = takers.len() as i64;
    facts.line.slots = takers.iter().map(|session| i64::from(session.slots)).sum();
    let rivals = Rivals::of(facts, &takers, limits);
    let before = before(tx, &rivals, place, facts)?;
    let waiting = waiting(tx, &rivals, &facts.queue)?;
    facts.line.ventures = ventures(waiting.iter());
    for key in shared(facts) {
        let ahead = ahead(tx, before.iter().filter(|(_, lane)| lane.is_of(&key)), place)?;
        let ventures = ventures(waiting.iter().filter(|(_, lane)| lane.is_of(&key)));
        facts.sharing.insert(key, Sharing { ahead, ventures });
    }
    add_busy(tx, facts, limits, &takers)?;
    add_pace(tx, facts)
}

/// Which lanes go by turns with a task's own.
struct Rivals<'a> {
    /// What the workers take that would take the task, without repeats.
    taken: Vec<(Vec<Profile>, Serves)>,
    limits: &'a Limits,
    /// What nothing begins of, and the task belongs to.
    stops: Vec<Key>,
}

impl<'a> Rivals<'a> {
    fn of(facts: &Facts, takers: &[OfQueue], limits: &'a Limits) -> Rivals<'a> {
        let mut taken = Vec::new();
        for session in takers {
            let takes = (session.routes.profiles(), session.routes.serves());
            if !taken.contains(&takes) {
                taken.push(takes);
            }
        }
        // Where nobody is there, nobody knows what a worker to come takes besides.
        if taken.is_empty() {
            let pins = facts.pins.clone();
            let one = |pin: Option<String>| pin.into_iter().collect();
            let serves =
                Serves { llms: one(pins.llm), models: one(pins.model), tiers: one(pins.tier) };
            taken.push((vec![facts.profile], serves));
        }
        let stops = facts.bounds.iter().filter(|bound| bound.lets_nothing_begin());
        Rivals { taken, limits, stops: stops.map(|bound| bound.key.clone()).collect() }
    }

    fn has(&self, lane: &Common) -> bool {
        let is_taken = |(profiles, serves): &(Vec<Profile>, Serves)| {
            profiles.contains(&lane.profile) && serves.has(&lane.pins)
        };
        let stops = |bound: &Bound| bound.lets_nothing_begin() && !self.stops.contains(&bound.key);
        self.taken.iter().any(is_taken) && !lane.bounds(self.limits).iter().any(stops)
    }

    /// Those of the lanes that a call gives, and whether it gave as many as are looked at, so that
    /// there may be others.
    fn among(&self, tx: &mut dyn Tx, call: Call<'_>) -> Result<(Vec<(i64, Common)>, bool)> {
        let lanes = tx.run(call)?.iter().map(Common::read).collect::<Result<Vec<_>>>()?;
        let is_cut = lanes.len() as i64 > MOST_COUNTED;
        Ok((lanes.into_iter().filter(|(_, lane)| self.has(lane)).collect(), is_cut))
    }
}

/// The lanes of those who stand before a task; and how many those are, and whether there may be
/// more: of more lanes than are counted, some are looked at, and those may be of others than its
/// rivals.
fn before(
    tx: &mut dyn Tx,
    rivals: &Rivals<'_>,
    place: Place,
    facts: &mut Facts,
) -> Result<Vec<(i64, Common)>> {
    let params = [vec![place.lane.into()], place.params()].concat();
    let (lanes, is_cut) = rivals.among(tx, Call::one(&BEFORE, params))?;
    facts.line.ahead = ahead(tx, lanes.iter(), place)?;
    facts.line.more_ahead = is_cut;
    Ok(lanes)
}

/// How many of these lanes stand before a task.
fn ahead<'l>(
    tx: &mut dyn Tx,
    lanes: impl Iterator<Item = &'l (i64, Common)>,
    place: Place,
) -> Result<i64> {
    let lanes: Vec<String> = lanes.map(|(id, _)| id.to_string()).collect();
    if lanes.is_empty() {
        return Ok(0);
    }
    let params = [vec![lanes.into()], place.params()].concat();
    tx.run(Call::one(&AHEAD, params))?.first().map_or(Ok(0), |row| row.int(0))
}

/// The lanes of the queue in which something is ready, or some of them where it has more than are
/// looked at.
fn waiting(tx: &mut dyn Tx, rivals: &Rivals<'_>, queue: &str) -> Result<Vec<(i64, Common)>> {
    let params = vec![queue.into(), Value::Int(MOST_COUNTED + 1)];
    Ok(rivals.among(tx, Call::one(&WAITING, params))?.0)
}

/// How many ventures take turns in these lanes.
fn ventures<'l>(lanes: impl Iterator<Item = &'l (i64, Common)>) -> i64 {
    lanes.map(|(_, lane)| lane.venture.as_str()).collect::<BTreeSet<_>>().len() as i64
}

/// The limits and rates that are reached, and bind neither the whole line nor all of its venture.
fn shared(facts: &Facts) -> Vec<Key> {
    let is_reached =
        |bound: &&Bound| is_full(bound, &facts.counts) || is_spent(bound, &facts.counts);
    let reached = facts.bounds.iter().filter(is_reached).map(|bound| bound.key.clone());
    reached
        .filter(|key| matches!(key.scope, Scope::Portfolio | Scope::Stage | Scope::Agent))
        .collect()
}

/// If no session that would take it has a free slot: that; or their types, where each holds all
/// that its type lets it hold.
fn add_busy(tx: &mut dyn Tx, facts: &mut Facts, limits: &Limits, takers: &[OfQueue]) -> Result<()> {
    if takers.is_empty() {
        return Ok(());
    }
    let ids: Vec<String> = takers.iter().map(|session| session.id.to_string()).collect();
    let rows = tx.run(Call::one(&HELD, vec![ids.into(), MOST_HELD.into()]))?;
    let read = |row: &Row| Ok((row.text(0)?.to_owned(), row.int(1)?));
    let held = rows.iter().map(read).collect::<Result<HashMap<String, i64>>>()?;
    let held = |session: &OfQueue| held.get(&session.id.to_string()).copied().unwrap_or(0);
    let most = |session: &OfQueue| limits.most_held(session.worker_type.as_deref());
    let is_full =
        |session: &OfQueue| most(session).is_some_and(|m| room_left(m, held(session)) == 0);
    // Who holds more than its slots asks for more than it said, and may do so again.
    let is_busy = |session: &OfQueue| is_full(session) || held(session) == i64::from(session.slots);
    if !takers.iter().all(is_busy) {
        return Ok(());
    }
    if !takers.iter().all(is_full) {
        let all = takers.iter().map(held).sum();
        let holders = holders(tx, takers.iter())?;
        facts.busy = Some(Busy { held: all, holders });
        return Ok(());
    }
    let mut types: BTreeMap<&str, Vec<&OfQueue>> = BTreeMap::new();
    for session in takers {
        types.entry(session.worker_type.as_deref().unwrap_or_default()).or_default().push(session);
    }
    for (name, sessions) in types {
        let key = Key { scope: Scope::WorkerType, name: name.to_owned() };
        let active = sessions.iter().map(|session| held(session)).max().unwrap_or_default();
        let max_active = sessions.first().and_then(|session| most(session));
        facts.holders.insert(key.clone(), holders(tx, sessions.into_iter())?);
        facts.counts.insert(key.clone(), Count { active, ..Count::default() });
        facts.bounds.push(Bound { key, max_active, max_pending: None, rate: None, pause: None });
    }
    Ok(())
}

/// Some tasks that these sessions hold: those that any of them holds longest.
fn holders<'s>(
    tx: &mut dyn Tx,
    sessions: impl Iterator<Item = &'s OfQueue>,
) -> Result<Vec<Holder>> {
    let ids: Vec<String> = sessions.map(|session| session.id.to_string()).collect();
    let mut found = Vec::new();
    for row in &tx.run(Call::one(&HELD_LONGEST, vec![ids.into(), MOST_HOLDERS.into()]))? {
        found.extend(holder(tx, TaskId(row.uuid(0)?), row, 1)?);
    }
    Ok(found)
}

/// How fast its queue moved in the last minute.
fn add_pace(tx: &mut dyn Tx, facts: &mut Facts) -> Result<()> {
    let since = facts.now.plus_ms(-WINDOW_MS);
    let params = vec![facts.queue.as_str().into(), since.into(), PACE_ROWS.into()];
    let rows = tx.run(Call::one(&PACE, params))?;
    let moves = rows.iter().map(|row| Ok((row.time(0)?.as_ms(), row.int(1)?)));
    let moves = moves.collect::<Result<Vec<(i64, i64)>>>()?;
    let told = rows.first().map_or(Ok(None), |row| row.maybe(2, Row::time))?;
    let since = told.map_or(since, |told| told.max(since)).as_ms();
    let line = &mut facts.line;
    (line.drained, line.drained_over_ms) =
        drained_by_moves(facts.now.as_ms(), since, line.pending, &moves);
    Ok(())
}
