//! What this node knows of the lanes: which may have something ready, from which key on, and whose
//! turn it is. A lane is all tasks that are alike for every rule; see migration 0010.
//!
//! Everything here is a hint. A claim takes what the database gives it; what a hint hides is found
//! by the next scan, which every claim that finds too little makes, and every two seconds anybody.
//! The hints spare claims the way over dead index entries, over lanes without a task, and over
//! those that no limit lets through.
//!
//! Invariant: what is written while a claim or a scan is under way is not forgotten by it.

use super::claim::Claim;
use super::common::Common;
use super::eager::Idle;
use super::looking::Lines;
use super::room::Hope;
use super::term::Term;
use crate::error::Result;
use crate::statement;
use crate::store::Store;
use crate::tx::{Call, Tx};
use crate::value::Value;
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};
use windlass_domain::fair::Line;
use windlass_domain::limit::{Bound, Key, Limits};
use windlass_domain::order::order_key;
use windlass_domain::profile::Profile;
use windlass_domain::task::{NewTask, When};
use windlass_domain::time::Timestamp;

statement!(FIND, "lane/find");

/// All of the above.
pub(super) static STATEMENTS: &[&crate::statement::Statement] = &[&FIND];

/// How often somebody looks everywhere.
const FULL_SCAN: Duration = Duration::from_secs(2);

/// A scan walks over what was ready since the oldest snapshot began. While somebody holds an old
/// one, so that the last scans all were slow, no more than a twentieth of the time goes into them.
const SLOW_SCAN: Duration = Duration::from_millis(50);
const SLOW_REST: u32 = 20;

/// After so long a scan is old where limits hold tasks back.
const OLD_SCAN: Duration = Duration::from_millis(200);

/// Who hears of another node's tasks looks everywhere soon, but spends no more than a tenth of the
/// time on it.
const HEARD_SCAN: Duration = Duration::from_millis(20);
const HEARD_REST: u32 = 10;

/// How often claims look for due tasks.
const RIPEN_EVERY: Duration = Duration::from_millis(100);

/// For how long a key that was full is passed over, unless something of it ends on this node.
const FULL_FOR: Duration = Duration::from_millis(50);

/// For so long nobody hopes for plenty of room after there was none.
const CROWDED_FOR: Duration = Duration::from_secs(1);

/// What this node knows.
#[derive(Default)]
pub(super) struct Lanes {
    state: Mutex<State>,
    full_scan_ms: AtomicU64,
    /// Whether another node has said since the last scan that it wrote something.
    heard: AtomicBool,
    ripened: Mutex<Option<Instant>>,
    /// When limits last left too little room to share their lock.
    crowded: Mutex<Option<Instant>>,
    /// Until when the rules are known to be true.
    pub(super) term: Term,
    /// Who is told when there is room again.
    idle: OnceLock<Weak<dyn Idle>>,
}

/// See [`Lanes`].
pub(super) struct State {
    ids: HashMap<Arc<Common>, i64>,
    pub(super) lanes: HashMap<i64, Arc<Common>>,
    bounds: HashMap<i64, Arc<[Bound]>>,
    pub(super) lines: HashMap<String, Line>,
    limits: Option<Arc<Limits>>,
    /// What the database calls them, if they are from there.
    version: Option<i64>,
    /// Keys that had no room when a claim looked.
    full: HashMap<Key, Instant>,
    /// A time that is past for sure: that of a task that was claimed.
    pub(super) past: Timestamp,
    pub(super) scanned: Option<Instant>,
    /// How long the last scans took, the newest first.
    pub(super) scans_took: [Duration; 3],
    /// When everybody who waits is told next.
    waking: Option<Instant>,
    /// The looks under way, each with what was written since it began: lanes and lowest keys.
    pub(super) under_way: Vec<(u64, HashMap<i64, i64>)>,
    pub(super) looks: u64,
}

impl Default for State {
    fn default() -> State {
        State {
            ids: HashMap::new(),
            lanes: HashMap::new(),
            bounds: HashMap::new(),
            lines: HashMap::new(),
            limits: None,
            version: None,
            full: HashMap::new(),
            past: Timestamp::EPOCH,
            scanned: None,
            scans_took: [Duration::ZERO; 3],
            waking: None,
            under_way: Vec::new(),
            looks: 0,
        }
    }
}

impl State {
    pub(super) fn learn(&mut self, id: i64, common: Common) -> Arc<Common> {
        if let Some(known) = self.lanes.get(&id) {
            return Arc::clone(known);
        }
        let common = Arc::new(common);
        self.ids.insert(Arc::clone(&common), id);
        self.lanes.insert(id, Arc::clone(&common));
        common
    }

    pub(super) fn line(&mut self, lane: i64) -> Option<(&mut Line, Arc<Common>)> {
        let common = Arc::clone(self.lanes.get(&lane)?);
        let line = self.lines.entry(common.queue.clone()).or_default();
        Some((line, common))
    }

    pub(super) fn open(&mut self, lane: i64, key: i64) {
        if let Some((line, common)) = self.line(lane) {
            line.open(&common.venture, lane, key);
        }
    }

    pub(super) fn set(&mut self, lane: i64, key: i64) {
        if let Some((line, common)) = self.line(lane) {
            line.set(&common.venture, lane, key);
        }
    }

    pub(super) fn close(&mut self, lane: i64) {
        if let Some((line, _)) = self.line(lane) {
            line.close(lane);
        }
    }

    pub(super) fn give_back(&mut self, lane: i64, turns: i64) {
        if let Some((line, _)) = self.line(lane) {
            line.give_back(lane, turns);
        }
    }

    pub(super) fn note(&mut self, lane: i64, key: i64) {
        if !self.lanes.contains_key(&lane) {
            // Another node made it: the next claim looks.
            self.scanned = None;
        }
        self.open(lane, key);
        for (_, written) in &mut self.under_way {
            let lowest = written.entry(lane).or_insert(key);
            *lowest = key.min(*lowest);
        }
    }

    pub(super) fn written(&self, look: u64, lane: i64) -> Option<i64> {
        let (_, written) = self.under_way.iter().find(|(other, _)| *other == look)?;
        written.get(&lane).copied()
    }

    /// For how long nobody scans after a scan. One that was slow by chance counts for nothing.
    fn rest(&self) -> Duration {
        let least = self.scans_took.iter().min().copied().unwrap_or_default();
        if least < SLOW_SCAN { Duration::ZERO } else { least * SLOW_REST }
    }

    fn is_resting(&self) -> bool {
        self.scanned.is_some_and(|at| at.elapsed() < self.rest())
    }

    /// A claim kept places of this lane's keys and did not use them all, so what was full by them
    /// is not.
    pub(super) fn is_not_full(&mut self, lane: i64) {
        if !self.full.is_empty() {
            let bounds = self.bounds(lane);
            self.full.retain(|key, _| bounds.iter().all(|bound| bound.key != *key));
        }
    }

    pub(super) fn is_full(&self, key: &Key) -> bool {
        self.full.get(key).is_some_and(|since| since.elapsed() < FULL_FOR)
    }

    /// Whether nothing more can begin under this bound, or could not a moment ago.
    pub(super) fn holds_back(&self, bound: &Bound) -> bool {
        bound.lets_nothing_begin() || self.is_full(&bound.key)
    }

    /// What binds a lane. Nothing, for one that is not known yet; that is not remembered.
    pub(super) fn bounds(&mut self, lane: i64) -> Arc<[Bound]> {
        if let Some(known) = self.bounds.get(&lane) {
            return Arc::clone(known);
        }
        let Some((limits, common)) = self.limits.as_ref().zip(self.lanes.get(&lane)) else {
            return Arc::new([]);
        };
        let bounds: Arc<[Bound]> = common.bounds(limits).into();
        self.bounds.insert(lane, Arc::clone(&bounds));
        bounds
    }
}

impl Lanes {
    pub(super) fn new() -> Lanes {
        let lanes = Lanes::default();
        lanes.scan_every(FULL_SCAN);
        lanes
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Who is told when there is room again.
    pub(super) fn tell(&self, idle: Weak<dyn Idle>) {
        let _ = self.idle.set(idle);
    }

    /// Looks everywhere so often; zero is at every claim.
    pub(super) fn scan_every(&self, interval: Duration) {
        self.full_scan_ms.store(interval.as_millis() as u64, Ordering::Relaxed);
    }

    /// Whether the next claim should look everywhere first, if nobody rests from the last look.
    pub(super) fn scan_is_due(&self) -> bool {
        let every = Duration::from_millis(self.full_scan_ms.load(Ordering::Relaxed));
        let heard = self.heard.load(Ordering::Relaxed);
        let state = self.lock();
        let soon = HEARD_SCAN.max(state.scans_took[0] * HEARD_REST);
        let every = if heard { every.min(soon) } else { every };
        state.scanned.is_none_or(|at| at.elapsed() >= every)
    }

    /// Whether a claim may look everywhere at all.
    pub(super) fn may_scan(&self) -> bool {
        !self.lock().is_resting()
    }

    /// Another node has written something.
    pub(super) fn hear(&self) {
        self.heard.store(true, Ordering::Relaxed);
    }

    /// A scan begins: what is heard from now on it may miss.
    pub(super) fn scan_begins(&self) {
        self.heard.store(false, Ordering::Relaxed);
    }

    /// The next claim looks everywhere: what is known turned out to be old.
    pub(super) fn look_anew(&self) {
        self.lock().scanned = None;
    }

    /// Whether a claim that limits held back should look everywhere.
    pub(super) fn scan_is_old(&self) -> bool {
        self.lock().scanned.is_none_or(|at| at.elapsed() >= OLD_SCAN)
    }

    /// Whether the next claim should look for due tasks first.
    pub(super) fn is_time_to_ripen(&self) -> bool {
        let mut ripened = self.ripened.lock().unwrap_or_else(PoisonError::into_inner);
        let due = ripened.is_none_or(|at| at.elapsed() >= RIPEN_EVERY);
        if due {
            *ripened = Some(Instant::now());
        }
        due
    }

    /// The next claim looks for due tasks.
    pub(super) fn ripen_again(&self) {
        *self.ripened.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// The rules from now on, and their version in the database.
    pub(super) fn bind(&self, limits: Option<Arc<Limits>>, version: Option<i64>) {
        let mut state = self.lock();
        state.bounds.clear();
        // What had no room may have some now.
        state.full.clear();
        (state.limits, state.version) = (limits, version);
    }

    /// The rules in force, if there are any.
    pub(super) fn limits(&self) -> Option<Arc<Limits>> {
        self.lock().limits.clone()
    }

    /// What a transaction may count on; if it `must_check`, only while the rules are the newest.
    pub(super) fn hope(&self, must_check: bool) -> Hope {
        let crowded = self.crowded.lock().unwrap_or_else(PoisonError::into_inner);
        let is_roomy = crowded.is_none_or(|at| at.elapsed() >= CROWDED_FOR);
        drop(crowded);
        Hope { is_roomy, version: self.lock().version.filter(|_| must_check) }
    }

    /// They did not.
    pub(super) fn was_crowded(&self) {
        *self.crowded.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// What binds the tasks of a lane.
    pub(super) fn bounds(&self, lane: i64) -> Arc<[Bound]> {
        self.lock().bounds(lane)
    }

    /// What binds a new task of a lane, also if the lane was forgotten since it was found.
    pub(super) fn bounds_of(&self, task: &NewTask, lane: i64) -> Arc<[Bound]> {
        let mut state = self.lock();
        match &state.limits {
            Some(limits) if !state.lanes.contains_key(&lane) => {
                Common::from(task).bounds(limits).into()
            }
            _ => state.bounds(lane),
        }
    }

    /// Forgets everything but the rules. To those who go by what is forgotten they are others now.
    pub(super) fn forget(&self) {
        let mut state = self.lock();
        let limits = state.limits.take().map(|limits| Arc::new(Limits::clone(&limits)));
        let (version, looks) = (state.version, state.looks);
        *state = State { limits, version, looks, ..State::default() };
    }

    /// These lanes are no more.
    pub(super) fn unlearn(&self, lanes: &[i64]) {
        let mut state = self.lock();
        for lane in lanes {
            state.close(*lane);
            state.bounds.remove(lane);
            if let Some(common) = state.lanes.remove(lane) {
                state.ids.remove(&common);
            }
        }
    }

    /// The lane of each task. Lanes that this node does not know are looked up, or made.
    pub(super) async fn of(&self, store: &Store, tasks: &[NewTask]) -> Result<Vec<i64>> {
        let common: Vec<Common> = tasks.iter().map(Common::from).collect();
        let unknown: Vec<Common> = {
            let state = self.lock();
            common.iter().filter(|c| !state.ids.contains_key(*c)).cloned().collect()
        };
        if !unknown.is_empty() {
            let body = move |tx: &mut dyn Tx| find(tx, &unknown);
            let found = store.write("find_lanes", body).await?;
            let mut state = self.lock();
            for (id, common) in found {
                state.learn(id, common);
            }
        }
        let state = self.lock();
        Ok(common.iter().map(|c| state.ids.get(c).copied().unwrap_or_default()).collect())
    }

    /// These tasks were or will be written to these lanes.
    pub(super) fn note<'t>(&self, tasks: impl IntoIterator<Item = (&'t NewTask, i64)>) {
        let mut state = self.lock();
        for (task, lane) in tasks.into_iter().filter(|(t, _)| t.profile != Profile::Ledger) {
            // A task for "now" carries the database's time, which this node does not know; a
            // time that is past is early enough. One for later is ripened when it is due.
            let earliest = match task.run_at {
                When::At(at) => at,
                When::After(ms) if ms > 0 => continue,
                When::After(_) => state.past,
            };
            state.note(lane, order_key(task.priority, earliest));
        }
    }

    /// A task stands in this lane at this key.
    pub(super) fn stand(&self, lane: i64, key: i64) {
        self.lock().note(lane, key);
    }

    /// These keys have no room now.
    pub(super) fn fill(&self, keys: impl IntoIterator<Item = Key>) {
        let mut state = self.lock();
        let now = Instant::now();
        state.full.extend(keys.into_iter().map(|key| (key, now)));
        if state.full.len() > 10_000 {
            state.full.retain(|_, since| since.elapsed() < FULL_FOR);
        }
    }

    /// No key is known to be full.
    pub(super) fn empty(&self) {
        self.lock().full.clear();
    }

    /// Tasks of these lanes are no longer active; `None` if nobody knows of which. Whoever waits
    /// for room is told.
    pub(super) fn freed(&self, lanes: impl IntoIterator<Item = Option<i64>>) {
        let mut state = self.lock();
        if state.full.is_empty() {
            return;
        }
        let mut queues = BTreeSet::new();
        for lane in lanes {
            let Some(lane) = lane else {
                state.full.clear();
                let some = state.lines.iter().filter(|(_, line)| !line.is_empty());
                queues.extend(some.map(|(queue, _)| queue.clone()));
                break;
            };
            let bounds = state.bounds(lane);
            let waited = bounds.iter().filter(|bound| state.full.contains_key(&bound.key)).count();
            if waited > 0 {
                state.full.retain(|key, _| bounds.iter().all(|bound| bound.key != *key));
                // The room may be anybody's: all who are bound by that key, in whatever queue.
                queues.extend(state.lines.keys().cloned());
            }
        }
        drop(state);
        if let Some(idle) = self.idle.get().and_then(Weak::upgrade) {
            queues.iter().for_each(|queue| idle.room(queue));
        }
    }

    /// Another node has changed something. Where somebody here found no room there may be some now:
    /// they look a little later, once for all that is heard until then, because most often those
    /// who made the room are faster.
    pub(super) fn hear_of_room(self: &Arc<Self>) {
        if !self.lock().full.is_empty() {
            self.wake_in(FULL_FOR);
        }
    }

    /// Tells everybody who waits in so long: the period of a rate ends then, say.
    pub(super) fn wake_in(self: &Arc<Self>, after: Duration) {
        let at = Instant::now() + after;
        let mut state = self.lock();
        if state.waking.is_some_and(|known| known <= at) {
            return;
        }
        state.waking = Some(at);
        let lanes = Arc::clone(self);
        tokio::spawn(async move {
            tokio::time::sleep_until(at.into()).await;
            lanes.lock().waking.take_if(|known| *known <= at);
            lanes.freed([None]);
        });
    }

    /// The lanes of this queue that may have something for this claim, and the keys of their heads.
    pub(super) fn waiting(&self, queue: &str, claim: &Claim) -> Vec<(i64, i64)> {
        let state = self.lock();
        let Some(line) = state.lines.get(queue) else { return Vec::new() };
        let lines = Lines::of(claim);
        let takes = |lane: &i64| state.lanes.get(lane).is_some_and(|common| lines.take(common));
        let lanes = line.lanes().filter(takes);
        lanes.filter_map(|lane| Some((lane, line.key_of(lane)?))).collect()
    }
}

fn find(tx: &mut dyn Tx, wanted: &[Common]) -> Result<Vec<(i64, Common)>> {
    let items: Vec<Vec<Value>> = wanted.iter().map(Common::values).collect();
    let rows = tx.run(Call::each(&FIND, Vec::new(), items))?;
    rows.iter().map(Common::read).collect()
}
