//! In which order waiting tasks of one lane are handed out: higher priority first, then the
//! earlier `run_at`.
//!
//! Invariant: one integer says it all, so that one index column does.

use crate::time::Timestamp;

/// The lowest priority.
pub const MIN_PRIORITY: i32 = -32_768;
/// The highest priority.
pub const MAX_PRIORITY: i32 = 32_767;

/// Each priority has a band of this many milliseconds for its tasks: until the year 3084.
const BAND_MS: i64 = 1 << 45;

/// The place of a task in its lane; the smaller key is handed out first.
///
/// A later time than the band holds counts as the band's last millisecond. Such tasks do not wait
/// in a lane before that year, and without the cut they would fall behind lower priorities.
pub fn order_key(priority: i32, run_at: Timestamp) -> i64 {
    let priority = i64::from(priority.clamp(MIN_PRIORITY, MAX_PRIORITY));
    -priority * BAND_MS + run_at.as_ms().min(BAND_MS - 1)
}

/// The priority inside a key.
pub fn priority_of(order_key: i64) -> i64 {
    -order_key.div_euclid(BAND_MS)
}

/// The last key of the same priority.
pub fn last_alike(order_key: i64) -> i64 {
    (order_key.div_euclid(BAND_MS) * BAND_MS).saturating_add(BAND_MS - 1)
}

/// The time inside a key.
pub fn run_at_of(order_key: i64) -> Timestamp {
    Timestamp::from_ms(order_key.rem_euclid(BAND_MS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_higher_priority_goes_first_whatever_the_times() {
        let priorities = [i32::MIN, -32_768, -1, 0, 1, 32_767];
        for pair in priorities[1..].windows(2) {
            let latest_of_higher = order_key(pair[1], Timestamp::MAX);
            assert!(latest_of_higher < order_key(pair[0], Timestamp::EPOCH));
        }
        assert_eq!(order_key(i32::MIN, Timestamp::MAX), order_key(MIN_PRIORITY, Timestamp::MAX));
    }

    #[test]
    fn within_a_priority_the_earlier_time_goes_first() {
        let now = Timestamp::from_ms(1_769_860_800_000);
        for priority in [MIN_PRIORITY, 0, MAX_PRIORITY] {
            assert!(order_key(priority, now) < order_key(priority, now.plus_ms(1)));
        }
        assert_eq!(order_key(0, now), now.as_ms());
    }

    #[test]
    fn a_key_tells_what_it_was_made_of() {
        let at = Timestamp::from_ms(1_769_860_800_000);
        for priority in [MIN_PRIORITY, -1, 0, 1, MAX_PRIORITY] {
            let key = order_key(priority, at);
            assert_eq!((priority_of(key), run_at_of(key)), (priority.into(), at));
        }
    }

    #[test]
    fn the_last_key_of_a_priority_is_before_all_of_the_next() {
        for priority in [MIN_PRIORITY, -1, 0, 1, MAX_PRIORITY] {
            let last = last_alike(order_key(priority, Timestamp::from_ms(5)));
            assert_eq!(priority_of(last), i64::from(priority));
            assert_eq!(last, order_key(priority, Timestamp::MAX));
        }
    }

    #[test]
    fn the_extremes_do_not_overflow() {
        assert!(order_key(i32::MAX, Timestamp::EPOCH) < 0);
        assert!(order_key(i32::MIN, Timestamp::MAX) > 0);
    }
}
