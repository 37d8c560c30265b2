//! Deltas: the text of a running attempt, piece by piece, as its holder posts it.
//!
//! Invariant: within an attempt every delta has one index, from 0 without gaps; a reader is given
//! each once and in order, and never deltas of two attempts without a reset between them.
//! Absent: storage. Deltas are delivered and forgotten; the result is what is kept.

use crate::refusal::Refusal;

/// What one attempt's deltas may take in memory together.
pub const MAX_TEXT_BYTES: usize = 8 << 20;

/// The part of the lease after which a delta renews it at the database: the twentieth. Sooner would
/// write for nothing, much later would lose holders that still send.
pub const RENEWALS_A_LEASE: u32 = 20;

/// What is kept of an attempt so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// The index of the next delta.
    pub next: u64,
    /// What those before it take.
    pub bytes: usize,
}

impl Kept {
    /// How many of `sizes.len()` deltas, posted from index `from` on, are there already. A repeat
    /// is ignored, a gap is refused.
    pub fn known(self, from: u64, sizes: &[usize]) -> Result<usize, Refusal> {
        if from > self.next {
            return Err(Refusal::DeltaGap { expected: self.next, from });
        }
        let known = usize::try_from(self.next - from).unwrap_or(usize::MAX).min(sizes.len());
        let new: usize = sizes[known..].iter().sum();
        if self.bytes.saturating_add(new) > MAX_TEXT_BYTES {
            return Err(Refusal::TextTooLarge);
        }
        Ok(known)
    }
}

/// Up to where a reader was given the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Of which attempt.
    pub attempt: i32,
    /// The index that comes next.
    pub next: u64,
}

/// Somebody who reads a task's text while it comes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reader {
    given: Option<Place>,
    /// The last attempt that the reader was told to forget.
    lost: i32,
}

impl Reader {
    /// A reader that was given text up to a place, perhaps on another connection.
    pub fn at(given: Option<Place>) -> Reader {
        Reader { given: given.filter(|place| place.next > 0), lost: 0 }
    }

    /// The task's text is that of this attempt now, or of none. Returns the attempt whose deltas
    /// the reader was given in vain: it must be told that the text begins anew.
    pub fn meet(&mut self, attempt: Option<i32>) -> Option<i32> {
        let lost = self.given.filter(|place| Some(place.attempt) != attempt)?;
        self.given = None;
        self.lost = self.lost.max(lost.attempt);
        Some(lost.attempt)
    }

    /// Whether the text of this attempt is none of the reader's any more. Another node may still
    /// have it for a moment.
    pub fn has_lost(&self, attempt: i32) -> bool {
        attempt <= self.lost || self.given.is_some_and(|place| attempt < place.attempt)
    }

    /// The index that comes next.
    pub fn next(&self) -> u64 {
        self.given.map_or(0, |place| place.next)
    }

    /// Everything before `next` was given.
    pub fn gave(&mut self, attempt: i32, next: u64) {
        self.given = Some(Place { attempt, next });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deltas_come_in_order_and_repeats_are_ignored() {
        let kept = Kept { next: 3, bytes: 30 };
        for (from, count, known) in [(3, 2, 0), (2, 2, 1), (0, 3, 3), (0, 1, 1), (0, 5, 3)] {
            assert_eq!(kept.known(from, &vec![1; count]), Ok(known), "{count} from {from}");
        }
    }

    #[test]
    fn a_gap_is_refused_and_says_what_is_expected() {
        let gap = Kept { next: 3, bytes: 30 }.known(5, &[1]).unwrap_err();
        assert_eq!(gap, Refusal::DeltaGap { expected: 3, from: 5 });
        assert!(gap.to_string().contains("from 3 on"), "{gap}");
    }

    #[test]
    fn an_attempts_text_is_bounded() {
        let full = Kept { next: 1, bytes: MAX_TEXT_BYTES - 1 };
        assert_eq!(full.known(1, &[1]), Ok(0));
        assert_eq!(full.known(1, &[2]), Err(Refusal::TextTooLarge));
        assert_eq!(full.known(0, &[2]), Ok(1), "what is there already takes no more");
    }

    #[test]
    fn a_reader_of_a_lost_attempt_is_told_once() {
        let mut reader = Reader::default();
        assert_eq!(reader.meet(Some(1)), None);
        assert!(!reader.has_lost(1));
        reader.gave(1, 4);
        assert_eq!((reader.meet(Some(1)), reader.next()), (None, 4));
        assert_eq!((reader.meet(None), reader.next()), (Some(1), 0));
        assert!(reader.has_lost(1) && !reader.has_lost(2));
        assert_eq!(reader.meet(Some(2)), None);
        reader.gave(2, 1);
        assert!(reader.has_lost(1) && !reader.has_lost(2) && !reader.has_lost(3));
        assert_eq!(reader.meet(Some(3)), Some(2));
    }

    #[test]
    fn a_reader_that_was_given_nothing_is_told_nothing() {
        let mut reader = Reader::at(Some(Place { attempt: 1, next: 0 }));
        assert_eq!(reader.meet(Some(2)), None);
    }
}
