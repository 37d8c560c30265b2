//! A look at the lanes: whose turn it is for a claim, what it has in hand, and what became of it.
//!
//! Invariant: what is written while a look is under way is not forgotten by it.

use super::claim::Claim;
use super::common::Common;
use super::lane::{Lanes, State};
use super::take::Seen;
use crate::error::Result;
use crate::statement;
use crate::tx::{Call, Tx};
use crate::value::{Row, Value};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use windlass_domain::fair::{Fit, Gate, Insight, Line, Part};
use windlass_domain::limit::{Bound, Key, Scope};
use windlass_domain::order::run_at_of;
use windlass_domain::pins::Serves;
use windlass_domain::profile::Profile;

statement!(SCAN, "lane/scan");
statement!(PEEK, "lane/peek");

/// All of the above.
pub(super) static STATEMENTS: &[&crate::statement::Statement] = &[&SCAN, &PEEK];

/// How many lanes a look looks into, and how many keys it reads in all, about.
const MOST_LANES: usize = 256;
const MOST_KEYS: usize = 2_048;

/// Where a claim looks: its queues, the first one first; and what it takes there. All kinds of work
/// stand in one line, so that none of them goes before the others.
#[derive(Clone, Debug)]
pub(super) struct Lines {
    pub(super) queues: Vec<String>,
    pub(super) profiles: Vec<Profile>,
    pub(super) serves: Serves,
}

impl Lines {
    pub(super) fn of(claim: &Claim) -> Lines {
        let is_claimed = |profile: &Profile| *profile != Profile::Ledger;
        Lines {
            queues: claim.queues.clone(),
            profiles: claim.profiles.iter().copied().filter(is_claimed).collect(),
            serves: claim.serves.clone(),
        }
    }

    /// Whether it may take what stands in this lane.
    pub(super) fn take(&self, common: &Common) -> bool {
        self.profiles.contains(&common.profile) && self.serves.has(&common.pins)
    }

    fn take_from(&self, state: &State, lane: i64) -> bool {
        state.lanes.get(&lane).is_some_and(|common| self.take(common))
    }
}

/// A look at the lanes that is under way. Dropping it forgets it; what it had in hand and did not
/// settle may still be there.
pub(super) struct Looking {
    lanes: Arc<Lanes>,
    look: u64,
    in_hand: Vec<Part>,
    insight: Insight,
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
    /// Whether it ends before something that is not counted yet.
    pub(super) uncounted: bool,
}

impl Looking {
    /// A look begins.
    pub(super) fn begin(lanes: &Arc<Lanes>) -> Looking {
        let mut state = lanes.lock();
        state.looks += 1;
        let look = state.looks;
        state.under_way.push((look, HashMap::new()));
        drop(state);
        let (in_hand, insight) = (Vec::new(), Insight::default());
        Looking { lanes: Arc::clone(lanes), look, in_hand, insight }
    }

    /// The lanes that it has in hand.
    pub(super) fn in_hand(&self) -> impl Iterator<Item = i64> {
        self.in_hand.iter().map(|part| part.lane)
    }

    /// Whether these lines may have something for those who look there.
    pub(super) fn is_anybody(&self, asked: &[&Lines]) -> bool {
        let state = self.lanes.lock();
        let mut all = asked.iter().flat_map(|lines| lines.queues.iter().map(move |q| (lines, q)));
        all.any(|(lines, name)| {
            let line = state.lines.get(name);
            line.is_some_and(|line| line.lanes().any(|lane| lines.take_from(&state, lane)))
        })
    }

    /// What binds the lanes whose turn comes next, those of `max` ventures of each line, leaving
    /// out those that are stopped or full, or were full a moment ago.
    pub(super) fn candidates(
        &self,
        asked: &[&Lines],
        max: usize,
        is_full: impl Fn(&Key) -> bool,
    ) -> Vec<Arc<[Bound]>> {
        let mut state = self.lanes.lock();
        let mut found = Vec::new();
        for (lines, name) in asked.iter().flat_map(|l| l.queues.iter().map(move |q| (l, q))) {
            let Some(line) = state.lines.remove(name) else { continue };
            let mut open = |lane| {
                let bounds = state.bounds(lane);
                let holds = |bound: &Bound| is_full(&bound.key) || state.holds_back(bound);
                match held_by(&bounds, holds) {
                    Fit::Yes if lines.take_from(&state, lane) => {
                        found.push(bounds);
                        Fit::Yes
                    }
                    Fit::Yes => Fit::No,
                    held => held,
                }
            };
            line.next_lanes(max, &mut open);
            state.lines.insert(name.clone(), line);
        }
        found
    }

    /// Lanes of which more than the head must be known to take `max` tasks in the right order.
    fn mixed(&self, asked: &[&Lines], max: usize) -> Vec<(i64, i64)> {
        let mut mixed: Vec<(i64, i64)> = Vec::new();
        let state = self.lanes.lock();
        for (lines, name) in asked.iter().flat_map(|l| l.queues.iter().map(move |q| (l, q))) {
            let Some(line) = state.lines.get(name) else { continue };
            let lanes = line.mixed_lanes(max);
            mixed.extend(lanes.filter(|(lane, _)| lines.take_from(&state, *lane)));
        }
        mixed
    }

    /// Whether there are any.
    pub(super) fn is_mixed(&self, asked: &[&Lines], max: usize) -> bool {
        !self.mixed(asked, max).is_empty()
    }

    /// Looks behind the heads, where those do not tell in which order to take `max` tasks.
    pub(super) fn look_into(
        &mut self,
        tx: &mut dyn Tx,
        asked: &[&Lines],
        max: usize,
    ) -> Result<()> {
        let mut items = self.mixed(asked, max);
        items.sort_unstable_by_key(|(lane, key)| (*key, *lane));
        items.dedup();
        items.truncate(MOST_LANES);
        if items.is_empty() {
            return Ok(());
        }
        let each = max.min(MOST_KEYS / items.len());
        let items = items.into_iter().map(|(lane, key)| vec![lane.into(), key.into()]).collect();
        self.insight.keys.clear();
        for row in tx.run(Call::each(&PEEK, vec![Value::Int(each as i64)], items))? {
            self.insight.keys.entry(row.int(0)?).or_default().push(row.int(1)?);
        }
        self.insight.keys.values_mut().for_each(|keys| keys.sort_unstable());
        Ok(())
    }

    /// What the next `max` tasks of these lines are, as far as they fit, the first line first.
    /// Where `fits` cannot tell of one more task, the plan ends.
    pub(super) fn plan(
        &mut self,
        lines: &Lines,
        max: i64,
        mut fits: impl FnMut(&[Bound], i64) -> Fit,
    ) -> Plan {
        let mut state = self.lanes.lock();
        let mut plan = Plan { parts: Vec::new(), held_back: false, uncounted: false };
        let mut left = max;
        for name in &lines.queues {
            let Some(mut line) = state.lines.remove(name) else { continue };
            let gate = Limited { state: &mut state, lines, plan: &mut plan, fits: &mut fits };
            let parts = line.take(left, &self.insight, gate);
            state.lines.insert(name.clone(), line);
            left -= parts.iter().map(|part| part.quota).sum::<i64>();
            plan.parts.extend(parts);
            if plan.uncounted {
                // Nor is a later queue served before an earlier one.
                break;
            }
        }
        drop(state);
        for part in &plan.parts {
            match self.in_hand.iter_mut().find(|known| known.lane == part.lane) {
                Some(known) => {
                    known.quota += part.quota;
                    known.until_key = known.until_key.max(part.until_key);
                }
                None => self.in_hand.push(*part),
            }
            *self.insight.planned.entry(part.lane).or_default() += part.quota;
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

    /// What became of a part.
    pub(super) fn settle(&mut self, lane: i64, seen: Seen) {
        let Seen { taken, last: last_key, next } = seen;
        let Some(at) = self.in_hand.iter().position(|part| part.lane == lane) else { return };
        let part = self.in_hand.swap_remove(at);
        let mut state = self.lanes.lock();
        if let Some(key) = last_key {
            state.past = state.past.max(run_at_of(key));
        }
        let written = state.written(self.look, lane);
        state.give_back(lane, part.quota - taken);
        if taken < part.quota {
            state.is_not_full(lane);
        }
        // Where others come before what is next in this lane, it is not empty.
        let left = next.filter(|_| part.until_key < i64::MAX);
        match (taken < part.quota, written.into_iter().chain(left).min()) {
            (true, None) => state.close(lane),
            (true, Some(key)) => state.set(lane, key),
            (false, _) => {
                // Without a key nobody knows whether its next head is urgent, too.
                let key = last_key.unwrap_or(part.from_key.max(0));
                state.set(lane, written.map_or(key, |written| written.min(key)));
            }
        }
    }

    /// What a scan found, in place of what was known; but what was written since it began stays.
    pub(super) fn scanned(&self, rows: &[Row], took: Duration) -> Result<()> {
        let mut found = HashMap::new();
        let mut state = self.lanes.lock();
        for row in rows {
            let (lane, common) = Common::read(row)?;
            state.learn(lane, common);
            found.insert(lane, row.int(Common::COLUMNS)?);
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
        state.scans_took.rotate_right(1);
        state.scans_took[0] = took;
        Ok(())
    }
}

/// What holds lanes back, for one line of a plan.
struct Limited<'a, F> {
    state: &'a mut State,
    lines: &'a Lines,
    plan: &'a mut Plan,
    fits: &'a mut F,
}

impl<F: FnMut(&[Bound], i64) -> Fit> Gate for Limited<'_, F> {
    fn fits(&mut self, lane: i64, many: i64) -> Fit {
        if !self.lines.take_from(self.state, lane) {
            return Fit::No;
        }
        let bounds = self.state.bounds(lane);
        let fit = (self.fits)(&bounds, many);
        if many > 1 || fit == Fit::Yes {
            return fit;
        }
        let held = held_by(&bounds, |bound| self.state.holds_back(bound));
        // What is left out of the candidates is not counted, either.
        if fit == Fit::Unknown && held == Fit::Yes {
            self.plan.uncounted = true;
            return Fit::Unknown;
        }
        self.plan.held_back = true;
        if [fit, held].contains(&Fit::Shut) { Fit::Shut } else { Fit::No }
    }

    fn is_shut(&mut self, lane: i64) -> bool {
        let bounds = self.state.bounds(lane);
        let is_shut = held_by(&bounds, |bound| self.state.holds_back(bound)) == Fit::Shut;
        self.plan.held_back |= is_shut;
        is_shut
    }
}

/// What becomes of a lane with these bounds when some of them hold it back. That of its venture
/// holds all of the venture's lanes back.
pub(super) fn held_by(bounds: &[Bound], holds: impl Fn(&Bound) -> bool) -> Fit {
    let mut held = Fit::Yes;
    for bound in bounds.iter().filter(|bound| holds(bound)) {
        if matches!(bound.key.scope, Scope::Global | Scope::Venture) {
            return Fit::Shut;
        }
        held = Fit::No;
    }
    held
}

/// Looks everywhere.
pub(super) fn scan<'a>() -> Call<'a> {
    Call::one(&SCAN, Vec::new())
}
