//! Whose turn it is: ventures that wait in one queue are served in turns, and each venture's more
//! urgent tasks before its others.
//!
//! Tasks that are alike for every rule form a lane; the lanes of one venture form its share. A
//! share's turn counts what it was given, and the lowest turn is next. Whoever comes to an empty
//! place, or could take nothing for a while, begins at the turn that is being served: nobody saves
//! turns up by staying away, nor by being held back, and no newcomer is measured by those who are.
//!
//! Invariant: of two ventures that wait, none gets more than one turn ahead of the other. Priority
//! decides within a venture; between ventures it moves a head by one turn and no more, so an urgent
//! task is next, and a thousand of them are not.
//! Absent: what is ready, and limits. The caller says which lanes may have something, from which
//! key on, and whether one more task of a lane fits. What it has not counted yet ends a look: nobody
//! is passed over for not being counted.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// Those who wait in one queue.
#[derive(Debug, Default)]
pub struct Line {
    shares: HashMap<Arc<str>, Share>,
    lanes: HashMap<i64, (Arc<str>, i64)>,
    /// The shares that have something, by their place.
    order: BTreeSet<(i64, Arc<str>)>,
    /// Those of them that nothing held back when it was their turn, by it.
    free: BTreeSet<(i64, Arc<str>)>,
    /// The highest turn that was served.
    last: i64,
}

#[derive(Debug, Default)]
struct Share {
    turn: i64,
    /// Its lanes, by the key of their heads.
    heads: BTreeSet<(i64, i64)>,
    /// Where it stands in the order, if it does.
    place: Option<i64>,
    /// Where it stands among the free, if it does.
    free_at: Option<i64>,
    /// Whether nothing of it fitted when it was its turn.
    is_held_back: bool,
}

impl Share {
    /// The lower place is served first. An urgent head (its key is negative exactly if its priority
    /// is above normal) is one turn early, and before others of that turn.
    fn wanted_place(&self) -> Option<i64> {
        let (key, _) = self.heads.first()?;
        let urgent = i64::from(*key < 0);
        Some(2 * (self.turn - urgent) + (1 - urgent))
    }

    /// Which of its lanes is next. Of a lane only the head is known, so a share that has several
    /// turns takes from its lanes in turn: an urgent one is not behind what follows another's
    /// urgent head.
    fn next<F: Into<Fit>>(
        &self,
        quotas: &BTreeMap<i64, i64>,
        full: &mut BTreeSet<i64>,
        fits: &mut impl FnMut(i64) -> F,
    ) -> Next {
        let mut heads: Vec<i64> = self.heads.iter().map(|(_, lane)| *lane).collect();
        if heads.len() > 1 {
            heads.sort_by_key(|lane| quotas.get(lane).copied().unwrap_or_default());
        }
        for lane in heads {
            // Asked once: what is full stays full.
            if full.contains(&lane) {
                continue;
            }
            match fits(lane).into() {
                Fit::Yes => return Next::Lane(lane),
                Fit::No => drop(full.insert(lane)),
                Fit::Unknown => return Next::Unknown,
            }
        }
        Next::Nothing
    }
}

/// What a share has for its turn.
enum Next {
    Lane(i64),
    /// Nothing of it fits.
    Nothing,
    /// It is not known yet what fits.
    Unknown,
}

/// What a claim may take of one lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Which lane.
    pub lane: i64,
    /// Nothing ready lies below this key.
    pub from_key: i64,
    /// At most so many.
    pub quota: i64,
}

/// Whether one more task of a lane may be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// It may; it takes its place.
    Yes,
    /// Something holds it back.
    No,
    /// Nobody has counted yet.
    Unknown,
}

impl From<bool> for Fit {
    fn from(fits: bool) -> Fit {
        if fits { Fit::Yes } else { Fit::No }
    }
}

/// How many lanes are called for each share that is wanted, at most.
const LANES_EACH: usize = 4;

impl Line {
    /// The lane may have something from `key` on, or from the lower one that was known.
    pub fn open(&mut self, venture: &str, lane: i64, key: i64) {
        if self.key_of(lane).is_none_or(|known| key < known) {
            self.set(venture, lane, key);
        }
    }

    /// The lane may have something from `key` on, and nothing below it.
    pub fn set(&mut self, venture: &str, lane: i64, key: i64) {
        let now = self.now();
        let name = match self.shares.get_key_value(venture) {
            Some((name, _)) => Arc::clone(name),
            None => Arc::from(venture),
        };
        let share = self.shares.entry(Arc::clone(&name)).or_default();
        if share.heads.is_empty() {
            share.turn = share.turn.max(now);
            share.is_held_back = false;
        }
        if let Some((_, known)) = self.lanes.insert(lane, (Arc::clone(&name), key)) {
            share.heads.remove(&(known, lane));
        }
        share.heads.insert((key, lane));
        self.stand(&name);
    }

    /// The lane has nothing that is ready.
    pub fn close(&mut self, lane: i64) {
        let Some((name, key)) = self.lanes.remove(&lane) else { return };
        if let Some(share) = self.shares.get_mut(&name) {
            share.heads.remove(&(key, lane));
        }
        self.stand(&name);
        // Who left is remembered for as long as it is ahead of the others, and no longer.
        if self.shares.len() > 2 * self.order.len() + 64 {
            let last = self.last;
            self.shares.retain(|_, share| !share.heads.is_empty() || share.turn > last);
        }
    }

    /// From which key on the lane may have something; `None` if it has nothing.
    pub fn key_of(&self, lane: i64) -> Option<i64> {
        self.lanes.get(&lane).map(|(_, key)| *key)
    }

    /// Whether the lane's share has another that may have something.
    pub fn has_others(&self, lane: i64) -> bool {
        let share = self.lanes.get(&lane).and_then(|(name, _)| self.shares.get(name));
        share.is_some_and(|share| share.heads.len() > 1)
    }

    /// The lanes that may have something, in no order.
    pub fn lanes(&self) -> impl Iterator<Item = i64> {
        self.lanes.keys().copied()
    }

    /// Whether nobody has anything.
    pub fn is_empty(&self) -> bool {
        self.lanes.is_empty()
    }

    /// Calls `open` with the lanes whose turn comes next, until it has agreed to one of each of
    /// `count` shares. One share's many lanes do not hide the other shares.
    pub fn next_lanes(&self, count: usize, mut open: impl FnMut(i64) -> bool) {
        let shares = self.order.iter().filter_map(|(_, name)| self.shares.get(name));
        let (mut shares_left, mut lanes_left) = (count, count.saturating_mul(LANES_EACH));
        for share in shares {
            let mut agreed = 0;
            for (_, lane) in &share.heads {
                if agreed == count || lanes_left == agreed {
                    break;
                }
                agreed += usize::from(open(*lane));
            }
            lanes_left -= agreed;
            shares_left -= usize::from(agreed > 0);
            if shares_left == 0 || lanes_left == 0 {
                return;
            }
        }
    }

    /// Whose turn the next `max` tasks are, as far as they fit. Those turns are over then; what
    /// could not be taken is given back by [`Line::give_back`]. It ends where it is not known
    /// whether something fits.
    pub fn take<F: Into<Fit>>(&mut self, max: i64, mut fits: impl FnMut(i64) -> F) -> Vec<Part> {
        let mut quotas: BTreeMap<i64, i64> = BTreeMap::new();
        let mut full: BTreeSet<i64> = BTreeSet::new();
        let mut passed: Vec<Arc<str>> = Vec::new();
        let mut served: BTreeSet<Arc<str>> = BTreeSet::new();
        let mut left = max;
        let now = self.now();
        while left > 0 {
            let Some((place, name)) = self.order.pop_first() else { break };
            let Some(share) = self.shares.get_mut(&name) else { continue };
            share.place = None;
            let lane = match share.next(&quotas, &mut full, &mut fits) {
                Next::Lane(lane) => lane,
                Next::Nothing => {
                    share.is_held_back |= !served.contains(&name);
                    passed.push(name);
                    continue;
                }
                Next::Unknown => {
                    share.place = Some(place);
                    self.order.insert((place, name));
                    break;
                }
            };
            *quotas.entry(lane).or_default() += 1;
            left -= 1;
            if std::mem::take(&mut share.is_held_back) {
                share.turn = share.turn.max(now);
            }
            served.insert(Arc::clone(&name));
            self.last = self.last.max(share.turn);
            share.turn += 1;
            // What its next head is nobody knows yet: until then it has the turn of anybody.
            share.place = Some(2 * share.turn + 1);
            self.order.insert((2 * share.turn + 1, name));
        }
        passed.iter().for_each(|name| self.stand(name));
        served.iter().for_each(|name| self.note_free(name));
        let part = |(lane, quota)| Some(Part { lane, from_key: self.key_of(lane)?, quota });
        quotas.into_iter().filter_map(part).collect()
    }

    /// So many turns of this lane's share were not used.
    pub fn give_back(&mut self, lane: i64, turns: i64) {
        let Some((name, _)) = self.lanes.get(&lane).cloned() else { return };
        if let Some(share) = self.shares.get_mut(&name) {
            share.turn -= turns;
        }
        self.stand(&name);
    }

    /// The turn that is being served.
    fn now(&self) -> i64 {
        self.free.first().map_or(self.last, |(turn, _)| *turn)
    }

    /// Puts a share where it belongs.
    fn stand(&mut self, name: &Arc<str>) {
        let Some(share) = self.shares.get_mut(name) else { return };
        let place = share.wanted_place();
        if place != share.place {
            if let Some(place) = share.place {
                self.order.remove(&(place, Arc::clone(name)));
            }
            if let Some(place) = place {
                self.order.insert((place, Arc::clone(name)));
            }
            share.place = place;
        }
        self.note_free(name);
    }

    fn note_free(&mut self, name: &Arc<str>) {
        let Some(share) = self.shares.get_mut(name) else { return };
        let free_at = (share.place.is_some() && !share.is_held_back).then_some(share.turn);
        if free_at != share.free_at {
            if let Some(turn) = share.free_at {
                self.free.remove(&(turn, Arc::clone(name)));
            }
            if let Some(turn) = free_at {
                self.free.insert((turn, Arc::clone(name)));
            }
            share.free_at = free_at;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::order_key;
    use crate::time::Timestamp;

    fn key(priority: i32) -> i64 {
        order_key(priority, Timestamp::from_ms(1_000))
    }

    /// Who gets the next `count` tasks, one claim each; every lane is as long as it says.
    fn serve(line: &mut Line, lengths: &mut HashMap<i64, i64>, count: usize) -> Vec<i64> {
        let mut served = Vec::new();
        while served.len() < count {
            let Some(part) = line.take(1, |_| true).pop() else { break };
            let left = lengths.entry(part.lane).or_default();
            match *left {
                0 => line.close(part.lane),
                _ => {
                    *left -= 1;
                    served.push(part.lane);
                }
            }
        }
        served
    }

    #[test]
    fn a_long_backlog_gets_no_more_turns_than_a_short_one() {
        let mut line = Line::default();
        let mut lengths = HashMap::from([(0, 10_000)]);
        line.open("big", 0, key(0));
        serve(&mut line, &mut lengths, 1_000);
        for lane in 1..100 {
            line.open(&format!("small {lane}"), lane, key(0));
            lengths.insert(lane, 10);
        }
        let served = serve(&mut line, &mut lengths, 10 * 99 + 15);
        assert_eq!(served.iter().filter(|lane| **lane != 0).count(), 10 * 99);
    }

    #[test]
    fn an_urgent_task_is_next_and_a_second_one_waits_for_its_turn() {
        let mut line = Line::default();
        for lane in 0..100 {
            line.open(&format!("v{lane}"), lane, key(0));
        }
        let mut lengths: HashMap<i64, i64> = (0..100).map(|lane| (lane, 100)).collect();
        serve(&mut line, &mut lengths, 550);
        // Another lane of the same venture, served a moment ago.
        line.open("v7", 1_007, key(5));
        lengths.insert(1_007, 2);
        let served = serve(&mut line, &mut lengths, 101);
        assert_eq!(served[0], 1_007);
        assert!(served[1..].iter().filter(|lane| **lane % 1_000 == 7).count() <= 1);
    }

    #[test]
    fn within_a_venture_the_more_urgent_lane_goes_first() {
        let mut line = Line::default();
        line.open("v", 1, key(0));
        line.open("v", 2, key(3));
        line.open("v", 3, key(-3));
        let first = |line: &mut Line| line.take(1, |_| true)[0].lane;
        assert_eq!(first(&mut line), 2);
        line.close(2);
        assert_eq!(first(&mut line), 1);
        line.close(1);
        assert_eq!(first(&mut line), 3);
    }

    #[test]
    fn several_turns_of_a_venture_are_taken_from_its_lanes_in_turn() {
        let mut line = Line::default();
        line.open("v", 1, key(9));
        line.open("v", 2, key(5));
        line.open("v", 3, key(0));
        assert_eq!(quotas(&line.take(2, |_| true)), [(1, 1), (2, 1)]);
        assert_eq!(quotas(&line.take(7, |_| true)), [(1, 3), (2, 2), (3, 2)]);
        assert_eq!(quotas(&line.take(4, |lane| lane != 1)), [(2, 2), (3, 2)]);
    }

    fn quotas(parts: &[Part]) -> Vec<(i64, i64)> {
        parts.iter().map(|part| (part.lane, part.quota)).collect()
    }

    #[test]
    fn what_does_not_fit_holds_nobody_up_is_next_when_it_fits_and_saves_nothing_up() {
        let mut line = Line::default();
        line.open("a", 1, key(0));
        line.open("b", 2, key(0));
        assert_eq!(quotas(&line.take(50, |lane| lane == 2)), [(2, 50)]);
        assert_eq!(quotas(&line.take(1, |_| true)), [(1, 1)]);
        assert_eq!(quotas(&line.take(100, |_| true)), [(1, 50), (2, 50)]);
    }

    #[test]
    fn a_newcomer_is_not_measured_by_those_who_are_held_back() {
        let mut line = Line::default();
        line.open("held back", 1, key(0));
        line.open("old", 2, key(0));
        line.take(60, |lane| lane != 1);
        line.open("new", 3, key(0));
        assert_eq!(quotas(&line.take(10, |lane| lane != 1)), [(2, 5), (3, 5)]);
        // Nor when all are, and one is let go.
        line.take(1, |_| false);
        line.open("newest", 4, key(0));
        assert_eq!(quotas(&line.take(20, |lane| lane != 1)).len(), 3);
        let served = quotas(&line.take(40, |_| true));
        assert!(served.iter().all(|(_, quota)| (9..=11).contains(quota)), "{served:?}");
    }

    #[test]
    fn a_lane_with_room_is_found_behind_one_without_in_the_same_venture() {
        let mut line = Line::default();
        line.open("a", 1, key(1));
        line.open("a", 2, key(0));
        assert_eq!(line.take(1, |lane| lane == 2)[0].lane, 2);
    }

    #[test]
    fn nobody_saves_turns_up_by_staying_away() {
        let mut line = Line::default();
        line.open("early", 1, key(0));
        line.take(1_000, |_| true);
        line.open("late", 2, key(0));
        let parts = line.take(10, |_| true);
        assert_eq!(parts.iter().map(|part| part.quota).collect::<Vec<_>>(), [5, 5]);
        line.close(2);
        line.open("late", 2, key(0));
        let parts = line.take(10, |_| true);
        assert_eq!(parts.iter().map(|part| part.quota).collect::<Vec<_>>(), [5, 5]);
    }

    #[test]
    fn turns_that_were_not_used_come_back() {
        let mut line = Line::default();
        line.open("a", 1, key(0));
        line.open("b", 2, key(0));
        line.take(100, |_| true);
        line.give_back(1, 40);
        let parts = line.take(40, |_| true);
        assert_eq!(parts, [Part { lane: 1, from_key: key(0), quota: 40 }]);
    }

    #[test]
    fn nobody_is_passed_over_for_not_being_counted() {
        let mut line = Line::default();
        line.open("a", 1, key(0));
        line.open("b", 2, key(0));
        let mut counted = false;
        let mut served: BTreeMap<i64, i64> = BTreeMap::new();
        for _ in 0..2 {
            let fits = |lane| if lane == 1 || counted { Fit::Yes } else { Fit::Unknown };
            let left = 10 - served.values().sum::<i64>();
            for part in line.take(left, fits) {
                *served.entry(part.lane).or_default() += part.quota;
            }
            counted = true;
        }
        assert_eq!(served, BTreeMap::from([(1, 5), (2, 5)]));
    }

    #[test]
    fn many_lanes_of_one_share_do_not_hide_the_next_share() {
        let mut line = Line::default();
        (0..1_000).for_each(|lane| line.open("a", lane, key(0)));
        line.open("b", 1_000, key(0));
        let called = |count| {
            let mut called = Vec::new();
            line.next_lanes(count, |lane| {
                called.push(lane);
                true
            });
            called
        };
        assert_eq!((called(0).len(), called(1).len(), called(10).len()), (0, 1, 11));
        assert_eq!(called(10).last(), Some(&1_000));
        let mut looked = 0;
        line.next_lanes(10, |_| {
            looked += 1;
            false
        });
        assert_eq!(looked, 1_001, "what is not open is passed over");
    }
}
