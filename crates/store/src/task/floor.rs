//! From where a sweep over a time looks. Its index keeps every entry that was in it since the
//! oldest snapshot began, the oldest ones first: a sweep that began there every second would walk
//! over more and more of them for as long as somebody holds that snapshot.
//!
//! Invariant: a hint. What was written late, or was locked when a sweep came by, is found by the
//! next sweeps up to `MARGIN_MS` later, and by the one that looks from the beginning after that.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use windlass_domain::time::Timestamp;

/// How late an entry may come.
const MARGIN_MS: i64 = 5_000;

/// How often a sweep looks from the beginning.
const WHOLE_EVERY: Duration = Duration::from_secs(30);

#[derive(Default)]
pub(super) struct Floor(Mutex<Option<Known>>);

#[derive(Clone, Copy)]
struct Known {
    /// Nothing is left before this.
    clear_to: Timestamp,
    /// When somebody last looked from the beginning.
    whole_at: Instant,
}

impl Floor {
    /// From where to look: the beginning where nothing is known, or not for a while.
    pub(super) fn from(&self) -> Timestamp {
        let known = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match known {
            Some(known) if known.whole_at.elapsed() < WHOLE_EVERY => known.clear_to,
            _ => Timestamp::EPOCH,
        }
    }

    /// A sweep from there to `now` has found everything.
    pub(super) fn swept(&self, from: Timestamp, now: Timestamp) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let clear_to = now.plus_ms(-MARGIN_MS);
        let whole_at = match *known {
            Some(known) if from > Timestamp::EPOCH => known.whole_at,
            _ => Instant::now(),
        };
        *known = Some(Known { clear_to, whole_at });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_sweep_looks_from_the_beginning_and_the_next_from_a_while_ago() {
        let floor = Floor::default();
        assert_eq!(floor.from(), Timestamp::EPOCH);
        let now = Timestamp::EPOCH.plus_ms(100_000);
        floor.swept(Timestamp::EPOCH, now);
        assert_eq!(floor.from(), Timestamp::EPOCH.plus_ms(95_000));
    }

    #[test]
    fn what_only_short_sweeps_saw_is_looked_at_from_the_beginning_again() {
        let floor = Floor::default();
        let (from, now) = (Timestamp::EPOCH.plus_ms(95_000), Timestamp::EPOCH.plus_ms(101_000));
        floor.swept(Timestamp::EPOCH, now);
        let long_ago = Instant::now().checked_sub(WHOLE_EVERY).unwrap();
        floor.0.lock().unwrap().as_mut().unwrap().whole_at = long_ago;
        floor.swept(from, now);
        assert_eq!(floor.from(), Timestamp::EPOCH);
    }
}
