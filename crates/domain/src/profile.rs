//! What differs between the kinds of work, as data.
//!
//! Invariant: a new kind of work is a new row of [`PROFILES`] and its facade, never a second
//! engine. Both databases carry a copy of this table, checked by a test.

use crate::state::named;
use serde::{Deserialize, Serialize};

named! {
    /// What a task is for.
    Kind {
        /// An agent's workflow or task.
        Job = "job",
        /// Work that one agent hands to another.
        Delegation = "delegation",
        /// One model call through a pool of providers.
        Inference = "inference",
    }
}

named! {
    /// The set of rules a task lives by: its kind, and for a delegation who runs it.
    Profile {
        /// A job.
        Job = "job",
        /// A delegation that a worker of the callee executes.
        Delegation = "delegation",
        /// A delegation that the caller runs elsewhere and only reports; never claimable, no lease.
        Ledger = "ledger",
        /// An inference.
        Inference = "inference",
    }
}

impl Profile {
    /// The kind that users see.
    pub const fn kind(self) -> Kind {
        match self {
            Profile::Job => Kind::Job,
            Profile::Delegation | Profile::Ledger => Kind::Delegation,
            Profile::Inference => Kind::Inference,
        }
    }

    /// The rules of this profile.
    pub const fn rules(self) -> &'static Rules {
        match self {
            Profile::Job => &PROFILES[0],
            Profile::Delegation => &PROFILES[1],
            Profile::Ledger => &PROFILES[2],
            Profile::Inference => &PROFILES[3],
        }
    }
}

/// What becomes of a running task whose lease ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenLost {
    /// Runs again at once while retries are left, then is poisoned.
    Retry,
    /// Ends `stuck`; a person investigates.
    Stuck,
    /// Goes back to `pending`, counted as a release.
    Release,
}

/// How long after a beat an executor sends the next one: half of what runs out first, its leases or
/// its session, so that one beat may be lost without losing work.
pub const fn beat_every_ms(lease_ms: i64, session_ms: i64) -> i64 {
    let first = if lease_ms < session_ms { lease_ms } else { session_ms };
    if first < 2 { 1 } else { first / 2 }
}

/// When the lease of a fresh claim runs out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstLease {
    /// After `lease_ms`, like every other.
    Timed,
    /// Never, until the first heartbeat: the first-beat free pass.
    UntilFirstBeat,
}

/// One row of [`PROFILES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Whose rules these are.
    pub profile: Profile,
    /// How long a claim or a heartbeat keeps the lease.
    pub lease_ms: i64,
    /// Whether the lease runs from the claim or from the first heartbeat.
    pub first_lease: FirstLease,
    /// What becomes of a running task whose lease ran out.
    pub when_lost: WhenLost,
    /// Retries unless the task says otherwise.
    pub max_retries: i32,
    /// Whether a task that used up its retries is `poisoned` (or else `failed`).
    pub poison_when_exhausted: bool,
    /// Deadline, counted from the submit, unless the task says otherwise.
    pub deadline_ms: Option<i64>,
    /// How long a task may stay `pending`, counted from its last entry into it.
    pub pending_ms: Option<i64>,
    /// How long a finished task is kept; for ever if `None`.
    pub retention_ms: Option<i64>,
}

const SECOND: i64 = 1_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// DELEGATION_STUCK_THRESHOLD_S: a delegation without a beat for this long is stuck.
pub const DELEGATION_STUCK_THRESHOLD_MS: i64 = 10 * MINUTE;

/// Attempts are counted so far and no further; no number written by hand can overflow.
pub const MAX_ATTEMPT: i32 = 1_000_000_000;

/// How often a task may be handed out and given back before it is poisoned.
pub const MAX_RELEASES: i32 = 20;

/// The rules of every profile.
pub const PROFILES: [Rules; 4] = [
    Rules {
        profile: Profile::Job,
        lease_ms: 60 * SECOND,
        first_lease: FirstLease::Timed,
        when_lost: WhenLost::Retry,
        max_retries: 3,
        poison_when_exhausted: true,
        deadline_ms: None,
        pending_ms: None,
        retention_ms: None,
    },
    Rules {
        profile: Profile::Delegation,
        lease_ms: DELEGATION_STUCK_THRESHOLD_MS,
        first_lease: FirstLease::UntilFirstBeat,
        when_lost: WhenLost::Stuck,
        max_retries: 0,
        poison_when_exhausted: false,
        deadline_ms: Some(6 * HOUR),
        pending_ms: None,
        retention_ms: None,
    },
    Rules {
        profile: Profile::Ledger,
        lease_ms: DELEGATION_STUCK_THRESHOLD_MS,
        first_lease: FirstLease::UntilFirstBeat,
        when_lost: WhenLost::Stuck,
        max_retries: 0,
        poison_when_exhausted: false,
        deadline_ms: Some(6 * HOUR),
        pending_ms: None,
        retention_ms: None,
    },
    Rules {
        profile: Profile::Inference,
        lease_ms: 10 * MINUTE,
        first_lease: FirstLease::Timed,
        when_lost: WhenLost::Release,
        max_retries: 0,
        poison_when_exhausted: false,
        deadline_ms: None,
        pending_ms: Some(HOUR),
        retention_ms: Some(7 * DAY),
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executors_beat_at_half_of_what_runs_out_first() {
        for (lease_ms, session_ms, every_ms) in
            [(60_000, 15_000, 7_500), (1_000, 15_000, 500), (15_000, 15_000, 7_500), (1, 9, 1)]
        {
            assert_eq!(beat_every_ms(lease_ms, session_ms), every_ms);
        }
    }

    #[test]
    fn each_profile_finds_its_own_rules() {
        for &profile in Profile::ALL {
            assert_eq!(profile.rules().profile, profile);
        }
    }
}
