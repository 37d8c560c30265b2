//! Where time enters the store.
//!
//! Invariant: the system's clock never goes backwards while the process lives. It reads the wall
//! once and adds monotonic time, so that a clock that is set back can neither prolong nor end a
//! lease.
//!
//! Absent: the wall is not read again; a server that runs for months drifts with its hardware.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use windlass_domain::time::Timestamp;

/// What a database asks for the time.
#[derive(Clone, Debug, Default)]
pub enum Clock {
    /// The wall clock at the first use in this process plus monotonic time since.
    #[default]
    System,
    /// Milliseconds since the epoch, set by a test.
    Fixed(Arc<AtomicI64>),
}

impl Clock {
    /// The time, in whole milliseconds.
    pub fn now(&self) -> Timestamp {
        match self {
            Clock::System => system_now(),
            Clock::Fixed(ms) => Timestamp::from_ms(ms.load(Ordering::SeqCst)),
        }
    }

    /// The time a test has set, if one did.
    pub fn fixed(&self) -> Option<Timestamp> {
        match self {
            Clock::System => None,
            Clock::Fixed(_) => Some(self.now()),
        }
    }
}

fn system_now() -> Timestamp {
    // One anchor a process: two databases of one process must not disagree on the time.
    static ANCHOR: OnceLock<(i64, Instant)> = OnceLock::new();
    let (wall_ms, started) = ANCHOR.get_or_init(|| {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH);
        let wall_ms = wall.map_or(0, |since| since.as_millis() as i64);
        (wall_ms, Instant::now())
    });
    Timestamp::from_ms(wall_ms + started.elapsed().as_millis() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_clock_never_goes_backwards() {
        let mut last = Clock::System.now();
        for _ in 0..10_000 {
            let now = Clock::System.now();
            assert!(now >= last);
            last = now;
        }
    }

    #[test]
    fn the_systems_clock_tells_the_walls_time() {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let gap_ms = Clock::System.now().as_ms() - wall.as_millis() as i64;
        assert!(gap_ms.abs() < 5_000, "{gap_ms} ms apart");
    }

    #[test]
    fn a_fixed_clock_says_what_the_test_says() {
        let ms = Arc::new(AtomicI64::new(7));
        let clock = Clock::Fixed(Arc::clone(&ms));
        assert_eq!(clock.fixed(), Some(Timestamp::from_ms(7)));
        ms.store(9, Ordering::SeqCst);
        assert_eq!(clock.now(), Timestamp::from_ms(9));
        assert_eq!(Clock::System.fixed(), None);
    }
}
