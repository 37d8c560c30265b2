//! The numbers of a response's events, by which a client says up to where it has read.
//!
//! Invariant: pure. Numbers rise, and no two attempts share one: a number tells of which attempt
//! its event was, so nobody goes on with one attempt's text where another's ended. They stay below
//! what clients that read them as floats can tell apart (2^53, after two million attempts).

use windlass::domain::delta::Place;

/// How many bits count within an attempt: far more events than an attempt's text may have.
const BITS: u32 = 32;
/// What is told before any attempt: that it is made, and that it is in line.
pub const GREETING: [&str; 2] = ["response.created", "response.queued"];

/// How the events of one response are numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// How many numbers at the beginning belong to no attempt.
    lead: u64,
}

impl Numbers {
    /// Those of a response; one in the background is greeted before anybody has taken it.
    pub fn new(is_background: bool) -> Numbers {
        Numbers { lead: if is_background { GREETING.len() as u64 } else { 0 } }
    }

    /// Whether the client is told at once that the response is there.
    pub fn is_greeted(self) -> bool {
        self.lead > 0
    }

    /// The number of an attempt's event at this index.
    pub fn of(self, attempt: i32, index: u64) -> u64 {
        let before = u64::try_from(attempt.saturating_sub(1)).unwrap_or(0);
        let within = self.lead.saturating_add(index).min((1 << BITS) - 1);
        (before << BITS) | within
    }

    /// Up to where somebody has read who read up to this number; none if nothing of an attempt.
    pub fn place(self, number: u64) -> Option<Place> {
        let within = number & ((1 << BITS) - 1);
        let index = within.checked_sub(self.lead)?;
        Some(Place { attempt: attempt(number)?, next: index + 1 })
    }

    /// Whether the events of this many attempts may have the number.
    pub fn is_known(self, number: u64, attempts: i32) -> bool {
        attempt(number).is_some_and(|attempt| attempt <= attempts.max(1))
    }
}

fn attempt(number: u64) -> Option<i32> {
    i32::try_from(number >> BITS).ok()?.checked_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_tells_its_attempt_and_its_place() {
        for numbers in [Numbers::new(false), Numbers::new(true)] {
            let mut last = None;
            for (attempt, index) in [(1, 0), (1, 1), (1, 9_000_000), (2, 0), (2, 5), (21, 0)] {
                let number = numbers.of(attempt, index);
                assert!(Some(number) > last && number < 1 << 53, "{number}");
                last = Some(number);
                assert_eq!(numbers.place(number), Some(Place { attempt, next: index + 1 }));
                assert!(numbers.is_known(number, attempt));
                assert!(attempt == 1 || !numbers.is_known(number, attempt - 1));
            }
        }
    }

    #[test]
    fn a_greeting_is_of_no_attempt() {
        let numbers = Numbers::new(true);
        assert_eq!([0, 1].map(|number| numbers.place(number)), [None, None]);
        assert_eq!(numbers.place(2), Some(Place { attempt: 1, next: 1 }));
        assert_eq!(Numbers::new(false).place(0), Some(Place { attempt: 1, next: 1 }));
    }

    #[test]
    fn no_number_is_too_large_to_be_looked_at() {
        for numbers in [Numbers::new(false), Numbers::new(true)] {
            assert!(!numbers.is_known(u64::MAX, i32::MAX));
            assert_eq!(numbers.place(u64::MAX), None);
            assert!(numbers.of(i32::MAX, u64::MAX) > numbers.of(1, u64::MAX));
        }
    }
}
