//! The state machine, as data.
//!
//! Invariant: this table is the only place that says what may follow what. `decide` obeys it, the
//! guards of the hot SQL statements are generated from it, both databases carry a copy generated
//! from it, and docs/state-machine.md is drawn from it.

use crate::profile::Profile;
use crate::state::{Event, State};

/// Which tasks a transition is meant for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum For {
    /// Every task, ledger delegations too.
    All,
    /// Every task that a worker executes.
    Executed,
    /// Only these profiles.
    Only(&'static [Profile]),
}

impl For {
    /// Whether the transition is open to tasks of this profile.
    pub fn includes(self, profile: Profile) -> bool {
        match self {
            For::All => true,
            For::Executed => profile != Profile::Ledger,
            For::Only(profiles) => profiles.contains(&profile),
        }
    }
}

/// One permitted move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    /// Where the task stands; `None` before it exists.
    pub from: Option<State>,
    /// What happens.
    pub event: Event,
    /// Where it stands afterwards.
    pub to: State,
    /// For which tasks.
    pub tasks: For,
}

const fn row(from: State, event: Event, to: State, tasks: For) -> Transition {
    Transition { from: Some(from), event, to, tasks }
}

use Event::*;
use State::*;
const JOB: For = For::Only(&[Profile::Job]);
const DELEGATION: For = For::Only(&[Profile::Delegation]);
const INFERENCE: For = For::Only(&[Profile::Inference]);
const LEDGER: For = For::Only(&[Profile::Ledger]);

/// Every permitted move.
pub const TRANSITIONS: &[Transition] = &[
    Transition { from: None, event: Submit, to: Pending, tasks: For::All },
    row(Pending, Claim, Claimed, For::Executed),
    row(Pending, Claim, Running, For::Executed),
    row(Retry, Claim, Claimed, For::Executed),
    row(Retry, Claim, Running, For::Executed),
    row(Claimed, Start, Running, For::Executed),
    row(Claimed, Release, Pending, For::Executed),
    row(Running, Release, Pending, For::Executed),
    row(Claimed, LoseLease, Pending, For::Executed),
    row(Running, LoseLease, Retry, JOB),
    row(Running, LoseLease, Poisoned, JOB),
    row(Running, LoseLease, Stuck, DELEGATION),
    row(Running, LoseLease, Pending, INFERENCE),
    row(Claimed, LoseLease, Stuck, LEDGER),
    row(Running, LoseLease, Stuck, LEDGER),
    row(Claimed, Complete, Completed, For::Executed),
    row(Running, Complete, Completed, For::Executed),
    row(Claimed, Fail, Retry, For::Executed),
    row(Running, Fail, Retry, For::Executed),
    row(Claimed, Fail, Poisoned, For::Executed),
    row(Running, Fail, Poisoned, For::Executed),
    row(Claimed, Fail, Failed, For::Executed),
    row(Running, Fail, Failed, For::Executed),
    row(Running, AskApproval, WaitingForApproval, For::Executed),
    row(WaitingForApproval, Approve, Pending, For::Executed),
    row(WaitingForApproval, Deny, Failed, For::Executed),
    row(WaitingForApproval, ExpireApproval, Failed, For::Executed),
    row(Running, Wait, Waiting, For::Executed),
    row(Waiting, Wake, Pending, For::Executed),
    row(Pending, ReleaseTooOften, Poisoned, For::Executed),
    row(Claimed, ReleaseTooOften, Poisoned, For::Executed),
    row(Running, ReleaseTooOften, Poisoned, For::Executed),
    row(Pending, TimeOutPending, Failed, INFERENCE),
    row(Pending, Cancel, Cancelled, For::All),
    row(Claimed, Cancel, Cancelled, For::All),
    row(Running, Cancel, Cancelled, For::All),
    row(WaitingForApproval, Cancel, Cancelled, For::All),
    row(Waiting, Cancel, Cancelled, For::All),
    row(Retry, Cancel, Cancelled, For::All),
    row(Pending, ExceedDeadline, Failed, For::All),
    row(Claimed, ExceedDeadline, Failed, For::All),
    row(Running, ExceedDeadline, Failed, For::All),
    row(WaitingForApproval, ExceedDeadline, Failed, For::All),
    row(Waiting, ExceedDeadline, Failed, For::All),
    row(Retry, ExceedDeadline, Failed, For::All),
    row(Pending, Report, Claimed, LEDGER),
    row(Pending, Report, Running, LEDGER),
    row(Claimed, Report, Running, LEDGER),
    row(Pending, Report, Completed, LEDGER),
    row(Claimed, Report, Completed, LEDGER),
    row(Running, Report, Completed, LEDGER),
    row(Pending, Report, Failed, LEDGER),
    row(Claimed, Report, Failed, LEDGER),
    row(Running, Report, Failed, LEDGER),
    row(Pending, Report, Stuck, LEDGER),
    row(Claimed, Report, Stuck, LEDGER),
    row(Running, Report, Stuck, LEDGER),
];

/// Whether the machine permits this move for a task of this profile.
pub fn permits(profile: Profile, from: Option<State>, event: Event, to: State) -> bool {
    TRANSITIONS
        .iter()
        .any(|t| t.from == from && t.event == event && t.to == to && t.tasks.includes(profile))
}

/// The states from which `event` may happen to a task of some profile; guards are made of it.
pub fn sources(event: Event) -> Vec<State> {
    State::ALL
        .iter()
        .copied()
        .filter(|&s| TRANSITIONS.iter().any(|t| t.from == Some(s) && t.event == event))
        .collect()
}

/// The events that may happen to a task of this profile in this state; refusals name them.
pub fn events_from(profile: Profile, from: State) -> Vec<Event> {
    Event::ALL
        .iter()
        .copied()
        .filter(|&e| {
            TRANSITIONS
                .iter()
                .any(|t| t.from == Some(from) && t.event == e && t.tasks.includes(profile))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_leaves_a_terminal_state() {
        let left: Vec<_> =
            TRANSITIONS.iter().filter(|t| t.from.is_some_and(State::is_terminal)).collect();
        assert!(left.is_empty(), "{left:?}");
    }

    #[test]
    fn every_transition_changes_the_state() {
        // The databases recognise a transition by the changed state.
        assert!(TRANSITIONS.iter().all(|t| t.from != Some(t.to)));
    }

    #[test]
    fn no_transition_is_written_twice() {
        for (i, a) in TRANSITIONS.iter().enumerate() {
            for b in &TRANSITIONS[i + 1..] {
                let same = (a.from, a.event, a.to) == (b.from, b.event, b.to);
                let overlap =
                    Profile::ALL.iter().any(|&p| a.tasks.includes(p) && b.tasks.includes(p));
                assert!(!(same && overlap), "{a:?} and {b:?}");
            }
        }
    }

    #[test]
    fn every_living_state_can_be_cancelled_and_can_exceed_its_deadline() {
        for &state in State::ALL.iter().filter(|s| !s.is_terminal()) {
            for profile in Profile::ALL {
                assert!(permits(*profile, Some(state), Cancel, Cancelled));
                assert!(permits(*profile, Some(state), ExceedDeadline, Failed));
            }
        }
    }

    #[test]
    fn a_ledger_delegation_is_never_handed_to_a_worker() {
        for event in [Claim, Start, Release, Complete, Fail, AskApproval, Wait] {
            assert!(State::ALL.iter().all(|&s| !events_from(Profile::Ledger, s).contains(&event)));
        }
    }
}
