//! How long a node has been in touch with its database.
//!
//! Invariant: whoever says that others have been silent has listened all the while. While the
//! database was away nobody could be heard, so its return is no moment to judge anybody.
//!
//! Absent: what the nodes know of each other. Each needs only its own contact, because a database
//! that was away was away for whoever judges, too. One that a single node could not reach was
//! there for the others, and what depends on that node is silent indeed.

use crate::time::Timestamp;

/// The contact of one node, in the database's own time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contact {
    since: Timestamp,
    last: Timestamp,
}

impl Contact {
    /// The database has answered for the first time.
    pub fn begun(now: Timestamp) -> Contact {
        Contact { since: now, last: now }
    }

    /// The database has answered again. After a gap the contact begins anew.
    ///
    /// What lives for `ttl_ms` without a sign of life gives one at least twice in that time, so a
    /// gap of a third of it can make nobody look silent.
    #[must_use]
    pub fn seen(self, now: Timestamp, ttl_ms: i64) -> Contact {
        if now.since_ms(self.last) > ttl_ms / 3 {
            return Contact::begun(now);
        }
        // Answers may overtake each other.
        Contact { since: self.since, last: self.last.max(now) }
    }

    /// Whether it has lasted for so long that everybody alive has given a sign of it meanwhile.
    pub fn has_lasted(self, ttl_ms: i64) -> bool {
        self.last.since_ms(self.since) >= ttl_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL_MS: i64 = 15_000;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_ms(1_769_860_800_000 + ms)
    }

    #[test]
    fn a_contact_lasts_for_as_long_as_there_is_no_gap() {
        let mut contact = Contact::begun(at(0));
        for second in 1..15 {
            contact = contact.seen(at(second * 1_000), TTL_MS);
            assert!(!contact.has_lasted(TTL_MS), "{second}");
        }
        contact = contact.seen(at(15_000), TTL_MS);
        assert!(contact.has_lasted(TTL_MS));
        contact = contact.seen(at(20_000), TTL_MS);
        assert!(contact.has_lasted(TTL_MS), "a third is no gap");
        contact = contact.seen(at(25_001), TTL_MS);
        assert_eq!(contact, Contact::begun(at(25_001)));
    }

    #[test]
    fn an_answer_that_comes_late_takes_nothing_back() {
        let contact = Contact::begun(at(0)).seen(at(5_000), TTL_MS).seen(at(10_000), TTL_MS);
        assert_eq!(contact.seen(at(3_000), TTL_MS), contact);
    }
}
