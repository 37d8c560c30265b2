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
//! key on, and whether one more task of a lane fits. What it has not counted yet ends a look, so
//! that nobody is passed over for it.

#[cfg(test)]
mod tests;

use crate::order::{last_alike, priority_of};
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

    /// Whether the heads of its lanes do not tell in which order to take several: some task of it
    /// is more or less urgent than usual, and what comes behind the heads is not known.
    fn is_mixed(&self) -> bool {
        let (first, last) = (self.heads.first(), self.heads.last());
        let differs = first.zip(last).is_some_and(|((first, _), (last, _))| {
            priority_of(*first) > 0 || priority_of(*last) < 0
        });
        differs && self.heads.len() > 1
    }

    /// Its lanes in the order in which they are next.
    fn ranked(&self, insight: &Insight) -> Ranked {
        let open = self.heads.iter().map(|(key, lane)| (insight.rank(*lane, *key, 0), *lane));
        Ranked { open: open.collect(), late: BTreeSet::new() }
    }
}

/// What is known beyond the heads of lanes.
#[derive(Debug, Default)]
pub struct Insight {
    /// The keys of the first tasks of some lanes, in their order.
    pub keys: HashMap<i64, Vec<i64>>,
    /// How many tasks of each lane are planned already.
    pub planned: HashMap<i64, i64>,
}

/// Which lane of a share is next: the one whose next task comes first, where that is known. Of
/// others only the head is known, so the share takes from them in turn: an urgent task is not
/// behind what follows another's urgent head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Key(i64),
    Turn { taken: i64, head: i64 },
}

impl Insight {
    /// The rank of a lane of which so many more are taken.
    fn rank(&self, lane: i64, head: i64, more: i64) -> Rank {
        let taken = self.planned.get(&lane).copied().unwrap_or_default() + more;
        let keys = self.keys.get(&lane);
        let next = usize::try_from(taken).ok().and_then(|at| keys?.get(at));
        next.map_or(Rank::Turn { taken, head }, |key| Rank::Key(*key))
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

/// The lanes of a share that is served, in the order in which they are next.
#[derive(Debug, Default)]
struct Ranked {
    open: BTreeSet<(Rank, i64)>,
    /// Those that no longer fitted after the share was given something, if it got nothing after
    /// that: what it was given may be what they lack, so they still come before others.
    late: BTreeSet<(Rank, i64)>,
}

impl Ranked {
    /// The first of the lanes that fits; those that do not are out: what is full stays full.
    fn next(&mut self, gate: &mut impl Gate, is_served: bool) -> Next {
        while let Some(&(rank, lane)) = self.open.first() {
            match gate.fits(lane, 1) {
                Fit::Yes => return Next::Lane(lane),
                Fit::No => {
                    self.open.remove(&(rank, lane));
                    if is_served {
                        self.late.insert((rank, lane));
                    }
                }
                Fit::Shut => return Next::Nothing,
                Fit::Unknown => return Next::Unknown,
            }
        }
        Next::Nothing
    }

    /// The last key that may be taken of a lane before it is another's turn: another of these lanes
    /// has something more urgent than what comes behind that. Whoever took the lane's head
    /// meanwhile, what is behind it goes by its own priority.
    fn until(&self, lane: i64) -> i64 {
        let until = [&self.open, &self.late].map(|ranked| until(ranked, lane));
        until.into_iter().min().unwrap_or(i64::MAX)
    }
}

/// As far as these lanes tell.
fn until(ranked: &BTreeSet<(Rank, i64)>, lane: i64) -> i64 {
    let others = |from: Rank| {
        let others = ranked.range((from, i64::MIN)..).map(|(rank, lane)| (*rank, *lane));
        others.filter(|(_, other)| *other != lane).map(|(rank, _)| rank).next()
    };
    let known = match others(Rank::Key(i64::MIN)) {
        Some(Rank::Key(key)) => Some(key),
        _ => None,
    };
    let head = match others(Rank::Turn { taken: 0, head: i64::MIN }) {
        Some(Rank::Turn { taken: 0, head }) => Some(head),
        _ => None,
    };
    known.into_iter().chain(head).min().map_or(i64::MAX, last_alike)
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
    /// Nothing beyond this key: others of the venture come before that.
    pub until_key: i64,
}

/// Whether so many more tasks of a lane may be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// They may, all of them; they take their places.
    Yes,
    /// Something holds it back.
    No,
    /// Something holds all lanes of its venture back.
    Shut,
    /// Nobody has counted yet.
    Unknown,
}

impl From<bool> for Fit {
    fn from(fits: bool) -> Fit {
        if fits { Fit::Yes } else { Fit::No }
    }
}

/// What limits say.
pub trait Gate {
    /// Whether so many more tasks of a lane may be taken.
    fn fits(&mut self, lane: i64, many: i64) -> Fit;

    /// Whether all lanes of this one's venture are known to be held back, so that none of them is
    /// looked at, however many there are.
    fn is_shut(&mut self, _lane: i64) -> bool {
        false
    }
}

impl<F: FnMut(i64, i64) -> R, R: Into<Fit>> Gate for F {
    fn fits(&mut self, lane: i64, many: i64) -> Fit {
        self(lane, many).into()
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
    pub fn next_lanes<F: Into<Fit>>(&self, count: usize, mut open: impl FnMut(i64) -> F) {
        let shares = self.order.iter().filter_map(|(_, name)| self.shares.get(name));
        let (mut shares_left, mut lanes_left) = (count, count.saturating_mul(LANES_EACH));
        for share in shares {
            let mut agreed = 0;
            for (_, lane) in &share.heads {
                if agreed == count || lanes_left == agreed {
                    break;
                }
                match open(*lane).into() {
                    Fit::Yes => agreed += 1,
                    Fit::Shut => break,
                    Fit::No | Fit::Unknown => {}
                }
            }
            lanes_left -= agreed;
            shares_left -= usize::from(agreed > 0);
            if shares_left == 0 || lanes_left == 0 {
                return;
            }
        }
    }

    /// Lanes of the next `count` shares, and the keys of their heads, of which more must be known
    /// to take several tasks in the right order.
    pub fn mixed_lanes(&self, count: usize) -> impl Iterator<Item = (i64, i64)> {
        let shares = self.order.iter().filter_map(|(_, name)| self.shares.get(name));
        let mixed = shares.take(count).filter(|share| share.is_mixed());
        mixed.flat_map(|share| share.heads.iter().map(|&(key, lane)| (lane, key)))
    }

    /// Whose turn the next `max` tasks are, as far as they fit. Those turns are over then; what
    /// could not be taken is given back by [`Line::give_back`]. It ends where it is not known
    /// whether something fits. The gate is asked for many at once first, where there is no choice.
    pub fn take(&mut self, max: i64, insight: &Insight, mut gate: impl Gate) -> Vec<Part> {
        let mut quotas: BTreeMap<i64, i64> = BTreeMap::new();
        let mut passed: Vec<Arc<str>> = Vec::new();
        // Those that were looked at, with their lanes.
        let mut ranks: HashMap<Arc<str>, Ranked> = HashMap::new();
        let mut served: BTreeSet<Arc<str>> = BTreeSet::new();
        let mut left = max;
        let now = self.now();
        while left > 0 {
            let Some((place, name)) = self.order.pop_first() else { break };
            let Some(share) = self.shares.get_mut(&name) else { continue };
            share.place = None;
            if share.heads.first().is_some_and(|(_, lane)| gate.is_shut(*lane)) {
                share.is_held_back |= !served.contains(&name);
                passed.push(name);
                continue;
            }
            let ranked = ranks.entry(Arc::clone(&name)).or_insert_with(|| share.ranked(insight));
            let open = &ranked.open;
            let only = open.first().filter(|_| self.order.is_empty() && open.len() == 1);
            let all = only.map(|(_, lane)| *lane).filter(|_| left > 1);
            let all = all.filter(|lane| gate.fits(*lane, left) == Fit::Yes);
            let is_served = served.contains(&name);
            let next = || ranked.next(&mut gate, is_served);
            let (lane, count) = match all.map_or_else(next, Next::Lane) {
                Next::Lane(lane) => (lane, if all.is_some() { left } else { 1 }),
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
            let quota = quotas.entry(lane).or_default();
            *quota += count;
            ranked.late.clear();
            let ranked = &mut ranked.open;
            if let (Some((_, lane)), Some((_, head))) = (ranked.pop_first(), self.lanes.get(&lane))
            {
                ranked.insert((insight.rank(lane, *head, *quota), lane));
            }
            left -= count;
            if std::mem::take(&mut share.is_held_back) {
                share.turn = share.turn.max(now);
            }
            served.insert(Arc::clone(&name));
            share.turn += count;
            self.last = self.last.max(share.turn - 1);
            // What its next head is nobody knows yet: until then it has the turn of anybody.
            share.place = Some(2 * share.turn + 1);
            self.order.insert((2 * share.turn + 1, name));
        }
        passed.iter().for_each(|name| self.stand(name));
        served.iter().for_each(|name| self.note_free(name));
        let part = |(lane, quota)| {
            let (name, from_key) = self.lanes.get(&lane)?;
            let until_key = ranks.get(name).map_or(i64::MAX, |ranked| ranked.until(lane));
            Some(Part { lane, from_key: *from_key, quota, until_key })
        };
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
