//! What this node knows of the lanes: which may have something ready, from which key on, and whose
//! turn it is. A lane is all tasks that are alike for every rule; see migration 0010.
//!
//! Everything here is a hint. A claim takes what the database gives it; what a hint hides is found
//! by the next scan, which every claim that finds too little makes, and every two seconds anybody.
//! The hints spare claims the way over dead index entries, over lanes without a task, and over
//! those that no limit lets through.
//!
//! Invariant: what is written while a claim or a scan is under way is not forgotten by it.

use super::eager::Idle;
use super::row::Task;
use crate::error::Result;
use crate::statement;
use crate::store::Store;
use crate::tx::{Call, Tx};
use crate::value::{Row, Value};
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};
use windlass_domain::fair::{Line, Part};
use windlass_domain::limit::{Bound, Key, Limits, Names};
use windlass_domain::order::{order_key, run_at_of};
use windlass_domain::profile::Profile;
use windlass_domain::task::{NewTask, When};
use windlass_domain::time::Timestamp;

statement!(FIND, "lane/find");
statement!(SCAN, "lane/scan");

/// All of the above.
pub(super) static STATEMENTS: &[&crate::statement::Statement] = &[&FIND, &SCAN];

/// How often somebody looks everywhere.
const FULL_SCAN: Duration = Duration::from_secs(2);

/// After so long a scan is old where limits hold tasks back.
const OLD_SCAN: Duration = Duration::from_millis(200);

/// How often claims look for due tasks.
const RIPEN_EVERY: Duration = Duration::from_millis(100);

/// For how long a key that was full is passed over, unless something of it ends on this node.
const FULL_FOR: Duration = Duration::from_millis(50);

/// What the tasks of a lane have in common. The agent of a delegation is who it is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Common {
    pub(super) queue: String,
    pub(super) profile: Profile,
    venture: String,
    portfolio: String,
    stage: String,
    agent: String,
}

impl From<&NewTask> for Common {
    fn from(task: &NewTask) -> Common {
        let text = |name: &Option<String>| name.clone().unwrap_or_default();
        Common {
            queue: task.queue.clone(),
            profile: task.profile,
            venture: text(&task.venture),
            portfolio: text(&task.portfolio),
            stage: text(&task.stage),
            agent: text(if task.agent.is_some() { &task.agent } else { &task.callee }),
        }
    }
}

impl From<&Task> for Common {
    fn from(task: &Task) -> Common {
        let text = |name: &Option<String>| name.clone().unwrap_or_default();
        Common {
            queue: task.queue.clone(),
            profile: task.profile,
            venture: text(&task.venture),
            portfolio: text(&task.portfolio),
            stage: text(&task.stage),
            agent: text(if task.agent.is_some() { &task.agent } else { &task.callee }),
        }
    }
}

impl Common {
    fn read(row: &Row) -> Result<(i64, Common)> {
        let text = |at| row.text(at).map(str::to_owned);
        let common = Common {
            queue: text(1)?,
            profile: row.named(2)?,
            venture: text(3)?,
            portfolio: text(4)?,
            stage: text(5)?,
            agent: text(6)?,
        };
        Ok((row.int(0)?, common))
    }

    fn values(&self) -> Vec<Value> {
        vec![
            self.queue.as_str().into(),
            self.profile.as_str().into(),
            self.venture.as_str().into(),
            self.portfolio.as_str().into(),
            self.stage.as_str().into(),
            self.agent.as_str().into(),
        ]
    }

    pub(super) fn bounds(&self, limits: &Limits) -> Vec<Bound> {
        if self.profile == Profile::Ledger {
            return Vec::new();
        }
        fn named(name: &str) -> Option<&str> {
            Some(name).filter(|name| !name.is_empty())
        }
        limits.binding(&Names {
            portfolio: named(&self.portfolio),
            venture: named(&self.venture),
            stage: named(&self.stage),
            agent: named(&self.agent),
            queue: Some(&self.queue),
        })
    }
}

/// What this node knows.
#[derive(Default)]
pub(super) struct Lanes {
    state: Mutex<State>,
    full_scan_ms: AtomicU64,
    ripened: Mutex<Option<Instant>>,
    /// Who is told when there is room again.
    idle: OnceLock<Weak<dyn Idle>>,
}

struct State {
    ids: HashMap<Arc<Common>, i64>,
    lanes: HashMap<i64, Arc<Common>>,
    bounds: HashMap<i64, Arc<[Bound]>>,
    lines: HashMap<(String, Profile), Line>,
    limits: Option<Arc<Limits>>,
    /// Keys that had no room when a claim looked.
    full: HashMap<Key, Instant>,
    /// A time that is past for sure: that of a task that was claimed.
    past: Timestamp,
    scanned: Option<Instant>,
    /// When everybody who waits is told next.
    waking: Option<Instant>,
    /// The looks under way, each with what was written since it began: lanes and lowest keys.
    under_way: Vec<(u64, HashMap<i64, i64>)>,
    looks: u64,
}

impl Default for State {
    fn default() -> State {
        State {
            ids: HashMap::new(),
            lanes: HashMap::new(),
            bounds: HashMap::new(),
            lines: HashMap::new(),
            limits: None,
            full: HashMap::new(),
            past: Timestamp::EPOCH,
            scanned: None,
            waking: None,
            under_way: Vec::new(),
            looks: 0,
        }
    }
}

/// A look at the lanes that is under way. Dropping it forgets it; what it had in hand and did not
/// settle may still be there.
pub(super) struct Looking {
    lanes: Arc<Lanes>,
    look: u64,
    in_hand: Vec<Part>,
}

impl Drop for Looking {
    fn drop(&mut self) {
        let mut state = self.lanes.lock();
        state.under_way.retain(|(look, _)| *look != self.look);
        for part in std::mem::take(&mut self.in_hand) {
            state.open(part.lane, part.from_key);
            state.give_back(part.lane, part.quota);
        }
    }
}

/// What a plan found.
pub(super) struct Plan {
    pub(super) parts: Vec<Part>,
    /// Whether something was passed over because a limit is reached.
    pub(super) held_back: bool,
}

impl State {
    fn learn(&mut self, id: i64, common: Common) -> Arc<Common> {
        if let Some(known) = self.lanes.get(&id) {
            return Arc::clone(known);
        }
        let common = Arc::new(common);
        self.ids.insert(Arc::clone(&common), id);
        self.lanes.insert(id, Arc::clone(&common));
        common
    }

    fn line(&mut self, lane: i64) -> Option<(&mut Line, Arc<Common>)> {
        let common = Arc::clone(self.lanes.get(&lane)?);
        let line = self.lines.entry((common.queue.clone(), common.profile)).or_default();
        Some((line, common))
    }

    fn open(&mut self, lane: i64, key: i64) {
        if let Some((line, common)) = self.line(lane) {
            line.open(&common.venture, lane, key);
        }
    }

    fn set(&mut self, lane: i64, key: i64) {
        if let Some((line, common)) = self.line(lane) {
            line.set(&common.venture, lane, key);
        }
    }

    fn close(&mut self, lane: i64) {
        if let Some((line, _)) = self.line(lane) {
            line.close(lane);
        }
    }

    fn give_back(&mut self, lane: i64, turns: i64) {
        if let Some((line, _)) = self.line(lane) {
            line.give_back(lane, turns);
        }
    }

    fn note(&mut self, lane: i64, key: i64) {
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

    fn written(&self, look: u64, lane: i64) -> Option<i64> {
        let (_, written) = self.under_way.iter().find(|(other, _)| *other == look)?;
        written.get(&lane).copied()
    }

    fn is_full(&self, key: &Key) -> bool {
        self.full.get(key).is_some_and(|since| since.elapsed() < FULL_FOR)
    }

    /// What binds a lane. Nothing, for one that is not known yet; that is not remembered.
    fn bounds(&mut self, lane: i64) -> Arc<[Bound]> {
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

    fn lock(&self) -> MutexGuard<'_, State> {
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

    /// Whether the next claim should look everywhere first.
    pub(super) fn scan_is_due(&self) -> bool {
        let every = Duration::from_millis(self.full_scan_ms.load(Ordering::Relaxed));
        self.lock().scanned.is_none_or(|at| at.elapsed() >= every)
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

    /// The rules from now on.
    pub(super) fn bind(&self, limits: Option<Arc<Limits>>) {
        let mut state = self.lock();
        state.bounds.clear();
        // What had no room may have some now.
        state.full.clear();
        state.limits = limits;
    }

    /// The rules in force, if there are any.
    pub(super) fn limits(&self) -> Option<Arc<Limits>> {
        self.lock().limits.clone()
    }

    /// What binds the tasks of a lane.
    pub(super) fn bounds(&self, lane: i64) -> Arc<[Bound]> {
        self.lock().bounds(lane)
    }

    /// Forgets everything but the rules.
    pub(super) fn forget(&self) {
        let mut state = self.lock();
        let (limits, looks) = (state.limits.take(), state.looks);
        *state = State { limits, looks, ..State::default() };
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
                queues.extend(state.lines.keys().map(|(queue, _)| queue.clone()));
                break;
            };
            let bounds = state.bounds(lane);
            let waited = bounds.iter().filter(|bound| state.full.contains_key(&bound.key)).count();
            if waited > 0 {
                state.full.retain(|key, _| bounds.iter().all(|bound| bound.key != *key));
                // The room may be anybody's: all who are bound by that key, in whatever queue.
                queues.extend(state.lines.keys().map(|(queue, _)| queue.clone()));
            }
        }
        drop(state);
        if let Some(idle) = self.idle.get().and_then(Weak::upgrade) {
            queues.iter().for_each(|queue| idle.room(queue));
        }
    }

    /// Tells everybody who waits in so long: the period of a rate ends then.
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

    /// A look begins.
    pub(super) fn begin(self: &Arc<Self>) -> Looking {
        let mut state = self.lock();
        state.looks += 1;
        let look = state.looks;
        state.under_way.push((look, HashMap::new()));
        drop(state);
        Looking { lanes: Arc::clone(self), look, in_hand: Vec::new() }
    }

    /// The lanes of this queue and profile that may have something, with the keys of their heads.
    pub(super) fn waiting(&self, queue: &str, profile: Profile) -> Vec<(i64, i64)> {
        let state = self.lock();
        let Some(line) = state.lines.get(&(queue.to_owned(), profile)) else { return Vec::new() };
        line.lanes().filter_map(|lane| Some((lane, line.key_of(lane)?))).collect()
    }
}

impl Looking {
    /// The lanes that it has in hand.
    pub(super) fn in_hand(&self) -> impl Iterator<Item = i64> {
        self.in_hand.iter().map(|part| part.lane)
    }

    /// Whether anybody may have something in these lines.
    pub(super) fn is_anybody(&self, lines: &[(String, Profile)]) -> bool {
        let state = self.lanes.lock();
        lines.iter().any(|name| state.lines.get(name).is_some_and(|line| !line.is_empty()))
    }

    /// What binds the lanes whose turn comes next, `max` of each line, leaving out those that are
    /// stopped or full, or were full a moment ago.
    pub(super) fn candidates(
        &self,
        lines: &[(String, Profile)],
        max: usize,
        is_full: impl Fn(&Key) -> bool,
    ) -> Vec<Arc<[Bound]>> {
        let mut state = self.lanes.lock();
        let mut found = Vec::new();
        for name in lines {
            let Some(line) = state.lines.remove(name) else { continue };
            let mut open = |lane| {
                let bounds = state.bounds(lane);
                let full = bounds.iter().any(|bound| {
                    bound.lets_nothing_begin() || is_full(&bound.key) || state.is_full(&bound.key)
                });
                if !full {
                    found.push(bounds);
                }
                !full
            };
            line.next_lanes(max, &mut open);
            state.lines.insert(name.clone(), line);
        }
        found
    }

    /// What the next `max` tasks of these lines are, as far as they fit, the first line first.
    pub(super) fn plan(
        &mut self,
        lines: &[(String, Profile)],
        max: i64,
        mut fits: impl FnMut(&[Bound]) -> bool,
    ) -> Plan {
        let mut state = self.lanes.lock();
        let mut plan = Plan { parts: Vec::new(), held_back: false };
        let mut left = max;
        for name in lines {
            let Some(mut line) = state.lines.remove(name) else { continue };
            let parts = line.take(left, |lane| {
                let fits = fits(&state.bounds(lane));
                plan.held_back |= !fits;
                fits
            });
            state.lines.insert(name.clone(), line);
            left -= parts.iter().map(|part| part.quota).sum::<i64>();
            plan.parts.extend(parts);
        }
        drop(state);
        for part in &plan.parts {
            match self.in_hand.iter_mut().find(|known| known.lane == part.lane) {
                Some(known) => known.quota += part.quota,
                None => self.in_hand.push(*part),
            }
        }
        plan
    }

    /// Which of these parts have a neighbour in their venture: what comes behind them matters then.
    pub(super) fn neighbours(&self, parts: &[Part]) -> Vec<bool> {
        let mut state = self.lanes.lock();
        let has =
            |part: &Part| state.line(part.lane).is_some_and(|(line, _)| line.has_others(part.lane));
        parts.iter().map(has).collect()
    }

    /// What became of a part: how many tasks were taken, and the key of the last, or of the next.
    pub(super) fn settle(&mut self, lane: i64, taken: i64, last_key: Option<i64>) {
        let Some(at) = self.in_hand.iter().position(|part| part.lane == lane) else { return };
        let part = self.in_hand.swap_remove(at);
        let mut state = self.lanes.lock();
        if let Some(key) = last_key {
            state.past = state.past.max(run_at_of(key));
        }
        let written = state.written(self.look, lane);
        state.give_back(lane, part.quota - taken);
        match (taken < part.quota, written) {
            (true, None) => state.close(lane),
            (true, Some(key)) => state.set(lane, key),
            (false, written) => {
                // Without a key nobody knows whether its next head is urgent, too.
                let key = last_key.unwrap_or(part.from_key.max(0));
                state.set(lane, written.map_or(key, |written| written.min(key)));
            }
        }
    }

    /// What a scan found, in place of what was known; but what was written since it began stays.
    pub(super) fn scanned(&self, rows: &[Row]) -> Result<()> {
        let mut found = HashMap::new();
        let mut state = self.lanes.lock();
        for row in rows {
            let (lane, common) = Common::read(row)?;
            state.learn(lane, common);
            found.insert(lane, row.int(7)?);
        }
        let known: Vec<i64> = state.lines.values().flat_map(Line::lanes).collect();
        for lane in known.into_iter().filter(|lane| !found.contains_key(lane)) {
            match state.written(self.look, lane) {
                Some(key) => state.set(lane, key),
                None => state.close(lane),
            }
        }
        for (lane, key) in found {
            let written = state.written(self.look, lane);
            state.set(lane, written.map_or(key, |written| written.min(key)));
        }
        state.scanned = Some(Instant::now());
        Ok(())
    }
}

/// Looks everywhere.
pub(super) fn scan<'a>() -> Call<'a> {
    Call::one(&SCAN, Vec::new())
}

fn find(tx: &mut dyn Tx, wanted: &[Common]) -> Result<Vec<(i64, Common)>> {
    let items: Vec<Vec<Value>> = wanted.iter().map(Common::values).collect();
    let rows = tx.run(Call::each(&FIND, Vec::new(), items))?;
    rows.iter().map(Common::read).collect()
}
