//! The states of a task and the events that move it.
//!
//! Invariant: the names below are the names everywhere: JSON, both databases, history, CLI.

use serde::{Deserialize, Serialize};

macro_rules! named {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum $name { $($(#[$vdoc])* $variant,)* }

        impl $name {
            /// Every value, in the order of declaration.
            pub const ALL: &[$name] = &[$($name::$variant,)*];

            /// The name used in JSON and in the database.
            pub const fn as_str(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::state::UnknownName;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                $name::ALL.iter().copied().find(|v| v.as_str() == text).ok_or_else(|| {
                    $crate::state::UnknownName {
                        given: text.chars().take(64).collect(),
                        known: $name::ALL.iter().map(|v| v.as_str()).collect(),
                    }
                })
            }
        }
    };
}
pub(crate) use named;

/// A name that is none of the known ones.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{given}` is not one of: {}", known.join(", "))]
pub struct UnknownName {
    /// What was given, cut to 64 characters.
    pub given: String,
    /// What would have been understood.
    pub known: Vec<&'static str>,
}

named! {
    /// Where a task stands.
    State {
        /// Waits for a worker (or for its `run_at`).
        Pending = "pending",
        /// Given to a worker that has not started it.
        Claimed = "claimed",
        /// A worker runs it.
        Running = "running",
        /// Parked until a person decides.
        WaitingForApproval = "waiting_for_approval",
        /// Parked until a timer, a signal, a child task, or a person who settles an in-doubt step.
        Waiting = "waiting",
        /// Failed or lost, and will run again at `run_at`.
        Retry = "retry",
        /// Finished with a result.
        Completed = "completed",
        /// Finished with an error.
        Failed = "failed",
        /// Ended on request.
        Cancelled = "cancelled",
        /// A delegation whose worker fell silent; a person investigates.
        Stuck = "stuck",
        /// Failed too often; a person investigates.
        Poisoned = "poisoned",
    }
}

impl State {
    /// Terminal is terminal: nothing leaves these states, and nothing in the task changes any more.
    pub const fn is_terminal(self) -> bool {
        matches!(
            self,
            State::Completed | State::Failed | State::Cancelled | State::Stuck | State::Poisoned
        )
    }

    /// A worker holds the task under a lease.
    pub const fn is_held(self) -> bool {
        matches!(self, State::Claimed | State::Running)
    }

    /// A claim may take the task once its time has come.
    pub const fn is_claimable(self) -> bool {
        matches!(self, State::Pending | State::Retry)
    }

    /// The task ended badly, so that `error` must say why.
    pub const fn needs_error(self) -> bool {
        matches!(self, State::Failed | State::Stuck | State::Poisoned)
    }
}

named! {
    /// What happened to a task; each transition in the history names one.
    Event {
        /// The task was accepted.
        Submit = "submit",
        /// A worker took it (and, if it said so, started it at once).
        Claim = "claim",
        /// The holder began, by saying so or by its first heartbeat or step.
        Start = "start",
        /// The holder gave it back.
        Release = "release",
        /// The holder's lease ran out.
        LoseLease = "lose_lease",
        /// The holder delivered the result.
        Complete = "complete",
        /// The holder reported an error.
        Fail = "fail",
        /// The holder asked a person and parked the task.
        AskApproval = "ask_approval",
        /// The holder parked the task.
        Wait = "wait",
        /// Enough people said yes.
        Approve = "approve",
        /// A person said no.
        Deny = "deny",
        /// Nobody answered in time.
        ExpireApproval = "expire_approval",
        /// What the task waited for has come, or its wait timed out.
        Wake = "wake",
        /// It was handed out and given back too often.
        ReleaseTooOften = "release_too_often",
        /// No worker took it in time.
        TimeOutPending = "time_out_pending",
        /// Somebody asked for its end.
        Cancel = "cancel",
        /// Its deadline passed.
        ExceedDeadline = "exceed_deadline",
        /// The caller of a ledger delegation reported progress.
        Report = "report",
    }
}
