//! The checker: one run, all its witnesses, and every promise that was broken.
//!
//! One file for each invariant, numbered as in the project's list of invariants. Each is a pure
//! function of the run; none knows which fault was injected.
//!
//! Invariant: a violation names the invariant, the task, and the lines that prove it, so that a
//! person can follow it without running anything again.
//! Absent: retention. The load submits jobs, which no rule ever removes. That a raw update against
//! the machine is refused (the second half of 4) is shown by the store's own tests.

mod acknowledged;
mod beat;
mod cap;
mod chain;
mod lease;
mod machine;
mod result;
mod settled;
#[cfg(test)]
mod story;
mod view;

use crate::dump::Dump;
use crate::ledger::Effect;
use crate::log::Call;
use uuid::Uuid;
use view::View;

/// How far two clocks of one machine may be apart, and how long a statement may have waited for a
/// lock after it read the database's clock. The faults of the harness last seconds.
pub const SLACK_MS: i64 = 500;

/// A promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Invariant {
    /// 1: what was acknowledged exists.
    Acknowledged,
    /// 2: at most one result for a task, and every later read shows it.
    OneResult,
    /// 3: lease ids never repeat, and no accepted write carries a lost lease.
    Lease,
    /// 4: every transition is one that the machine permits.
    Machine,
    /// 5: accepted heartbeats of two leases never overlap.
    Beats,
    /// 9: attempts stay within their cap.
    Cap,
    /// 14: one history row for each transition, and the rows make a chain.
    Chain,
    /// 16: with the faults gone, everything acknowledged ends.
    Settled,
}

impl Invariant {
    /// Its number.
    pub fn number(self) -> u8 {
        match self {
            Invariant::Acknowledged => 1,
            Invariant::OneResult => 2,
            Invariant::Lease => 3,
            Invariant::Machine => 4,
            Invariant::Beats => 5,
            Invariant::Cap => 9,
            Invariant::Chain => 14,
            Invariant::Settled => 16,
        }
    }
}

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub invariant: Invariant,
    /// Of which task.
    pub task: Uuid,
    /// In words.
    pub what: String,
    /// The lines that prove it.
    pub evidence: Vec<String>,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Violation { invariant, task, what, evidence } = self;
        write!(f, "invariant {} ({invariant:?}), task {task}: {what}", invariant.number())?;
        evidence.iter().try_for_each(|line| write!(f, "\n    {line}"))
    }
}

/// Everything that is known of a run.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// What the clients saw.
    pub calls: Vec<Call>,
    /// What the workers did.
    pub effects: Vec<Effect>,
    /// What the database holds.
    pub dump: Dump,
}

/// Every broken promise of a run.
pub fn check(run: &Run) -> Vec<Violation> {
    let view = View::of(run);
    let mut found = Vec::new();
    for check in [
        acknowledged::check,
        result::check,
        lease::check,
        machine::check,
        beat::check,
        cap::check,
        chain::check,
        settled::check,
    ] {
        check(&view, &mut found);
    }
    found
}
