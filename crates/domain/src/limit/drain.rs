//! How fast tasks leave the line: what the last minute shows, in parts of a second.
//!
//! Invariant: only time in which something waited counts. A line that was empty for a while says
//! nothing about how fast it would have moved.

use std::collections::VecDeque;

/// How long something is remembered.
pub const WINDOW_MS: i64 = 60_000;
const PART_MS: i64 = 1_000;

/// What left the line lately.
#[derive(Clone, Debug, Default)]
pub struct Drain {
    parts: VecDeque<Part>,
}

#[derive(Clone, Copy, Debug)]
struct Part {
    at: i64,
    drained: i64,
    busy_ms: i64,
}

impl Drain {
    /// In the `span_ms` before `now_ms` so many tasks left, and others waited or did not. Any clock
    /// that only goes forward will do.
    pub fn record(&mut self, now_ms: i64, span_ms: i64, drained: i64, waited: bool) {
        let at = now_ms.div_euclid(PART_MS);
        let is_known = self.parts.back().is_some_and(|part| part.at >= at);
        if !is_known {
            self.parts.push_back(Part { at, drained: 0, busy_ms: 0 });
        }
        if let Some(part) = self.parts.back_mut() {
            part.drained += drained.max(0);
            part.busy_ms += if waited || drained > 0 { span_ms.max(0) } else { 0 };
        }
        let oldest = (now_ms - WINDOW_MS).div_euclid(PART_MS);
        while self.parts.front().is_some_and(|part| part.at <= oldest) {
            self.parts.pop_front();
        }
    }

    /// How many left, and how long that took.
    pub fn lately(&self) -> (i64, i64) {
        let sum = |of: fn(&Part) -> i64| self.parts.iter().map(of).sum();
        (sum(|part| part.drained), sum(|part| part.busy_ms))
    }
}

/// How many left a line since `since_ms`, and in how long, from what it has gone through: each move
/// with its time, the last one first, as how many more wait after it. `waiting` do now.
pub fn drained_by_moves(
    now_ms: i64,
    since_ms: i64,
    waiting: i64,
    moves: &[(i64, i64)],
) -> (i64, i64) {
    let span_ms = (now_ms - since_ms).clamp(1, WINDOW_MS);
    let last = (span_ms - 1) / PART_MS;
    let part = |ms: i64| ((now_ms - ms) / PART_MS).clamp(0, last) as usize;
    let mut is_busy = vec![false; part(since_ms) + 1];
    let (mut drained, mut level, mut until) = (0, waiting, now_ms);
    for &(at, change) in moves {
        drained += i64::from(change < 0);
        is_busy[part(at)] |= change < 0;
        // From just after this move until the next one.
        if level > 0 && at < until {
            is_busy[part(until)..=part(at + 1)].fill(true);
        }
        // What was read a moment apart need not fit together.
        level = (level - change).max(0);
        until = at;
    }
    if level > 0 {
        is_busy[part(until)..].fill(true);
    }
    let spans = (0..).map(|part| (span_ms - part * PART_MS).min(PART_MS));
    let busy = is_busy.into_iter().zip(spans).filter(|(busy, _)| *busy);
    (drained, busy.map(|(_, span)| span).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_left_lately_is_added_up_and_forgotten_after_a_minute() {
        let mut drain = Drain::default();
        for tick in 0..10 {
            drain.record(tick * 500, 500, 3, true);
        }
        assert_eq!(drain.lately(), (30, 5_000));
        drain.record(4_500 + WINDOW_MS - 1_000, 500, 0, true);
        assert_eq!(drain.lately(), (6, 1_500));
        drain.record(10 * WINDOW_MS, 500, 0, false);
        assert_eq!(drain.lately(), (0, 0));
    }

    #[test]
    fn time_in_which_nothing_waited_does_not_count() {
        let mut drain = Drain::default();
        drain.record(1_000, 500, 0, false);
        drain.record(1_500, 500, 4, false);
        drain.record(2_000, 500, 0, false);
        assert_eq!(drain.lately(), (4, 500));
        drain.record(2_500, 500, 0, true);
        assert_eq!(drain.lately(), (4, 1_000));
    }

    #[test]
    fn moves_of_a_line_tell_its_pace() {
        let lately = |waiting, moves: &[(i64, i64)]| {
            drained_by_moves(100_000, 100_000 - WINDOW_MS, waiting, moves)
        };
        // Nothing has happened for a minute, and five wait: they have waited all the time.
        assert_eq!(lately(5, &[]), (0, 60_000));
        assert_eq!(lately(0, &[]), (0, 0), "nobody waited");
        // Ten left at once, half a minute ago, and others wait still.
        assert_eq!(lately(5, &[(70_000, -1); 10]), (10, 60_000));
        // The line was empty until five came, two seconds ago; two of them have left.
        assert_eq!(lately(3, &[(99_200, -1), (99_100, -1), (98_000, 5)]), (2, 2_000));
        // What was handed over at once has waited for nobody; the second in which it came counts.
        assert_eq!(lately(0, &[(80_500, -1), (80_500, 1)]), (1, 1_000));
        assert_eq!(lately(0, &[(100_000, -1), (100_000, 1)]), (1, 1_000));
        // Only ten seconds are known, or no time at all.
        let known = |since| drained_by_moves(100_000, since, 5, &[(95_000, -1), (93_000, -1)]);
        assert_eq!((known(90_000), known(90_500)), ((2, 10_000), (2, 9_500)));
        assert_eq!(drained_by_moves(100_000, 100_000, 1, &[(100_000, -1)]), (1, 1));
    }

    #[test]
    fn the_memory_is_bounded() {
        let mut drain = Drain::default();
        (0..10_000).for_each(|tick| drain.record(tick * 100, 100, 1, true));
        assert!(drain.parts.len() <= 61);
        let (drained, over_ms) = drain.lately();
        assert_eq!(drained * 100, over_ms);
    }
}
