//! What can be asked of a task that exists.

use crate::approval::{Answer, Question};
use crate::failure::TaskError;
use crate::id::{ApprovalId, ClaimId, LeaseId};
use crate::state::{Event, State};
use crate::usage::Usage;

/// One request. Ids and chance are made before the first try and come with it.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// A worker takes the task.
    Claim {
        /// Who takes it.
        session: String,
        /// The fresh lease.
        lease_id: LeaseId,
        /// The claim call this belongs to.
        claim_id: ClaimId,
        /// The session's own lease length, if it asked for one.
        lease_ms: Option<i64>,
        /// Whether work begins at once.
        start: bool,
    },
    /// The holder begins.
    Start {
        /// The holder's lease.
        lease_id: LeaseId,
    },
    /// The holder is alive.
    Heartbeat {
        /// The holder's lease.
        lease_id: LeaseId,
        /// The session's own lease length, if it asked for one.
        lease_ms: Option<i64>,
    },
    /// The holder delivers the result.
    Complete {
        /// The holder's lease.
        lease_id: LeaseId,
        /// Canonical JSON text.
        result: Option<String>,
        /// What this attempt took.
        usage: Option<Usage>,
    },
    /// The holder reports an error.
    Fail {
        /// The holder's lease.
        lease_id: LeaseId,
        /// What went wrong.
        error: TaskError,
        /// The failure's own wish when to try again.
        retry_after_ms: Option<i64>,
        /// A number in [0, 1) for the jitter.
        chance: f64,
        /// What this attempt took.
        usage: Option<Usage>,
    },
    /// The holder gives the task back.
    Release {
        /// The holder's lease.
        lease_id: LeaseId,
    },
    /// A sweep found the lease expired.
    LoseLease,
    /// A sweep or a closed stream found the holder's session gone.
    LoseSession {
        /// The session that is gone.
        session: String,
    },
    /// The holder asks a person.
    AskApproval {
        /// The holder's lease.
        lease_id: LeaseId,
        /// The approval that is opened.
        approval_id: ApprovalId,
        /// What is asked.
        question: Box<Question>,
    },
    /// Enough people said yes.
    Approve(Answer),
    /// A person said no.
    Deny(Answer),
    /// Nobody answered in time.
    ExpireApproval,
    /// The holder parks the task.
    Wait {
        /// The holder's lease.
        lease_id: LeaseId,
    },
    /// What the task waited for has come.
    Wake,
    /// Somebody asks for its end.
    Cancel,
    /// A sweep found the deadline passed.
    ExceedDeadline,
    /// A sweep found it pending for too long.
    TimeOutPending {
        /// How long it may have been in line; the profile's own limit if `None`.
        limit_ms: Option<i64>,
    },
    /// A sweep found it released too often.
    ReleaseTooOften,
    /// The caller of a ledger delegation reports.
    Report {
        /// Where the delegation stands now.
        to: State,
        /// Canonical JSON text, with `completed`.
        result: Option<String>,
        /// With `failed` and `stuck`.
        error: Option<TaskError>,
        /// Who runs it.
        holder: String,
    },
    /// The sweeper looks at a delegation: at its deadline first, then at its last beat.
    SweepDelegation {
        /// How long it may be silent after a beat.
        stuck_ms: i64,
    },
    /// The caller of a ledger delegation says that it is alive.
    ReportBeat,
}

impl Command {
    /// The event that a refusal names.
    pub fn event(&self) -> Event {
        match self {
            Command::Claim { .. } => Event::Claim,
            Command::Start { .. } | Command::Heartbeat { .. } => Event::Start,
            Command::Complete { .. } => Event::Complete,
            Command::Fail { .. } => Event::Fail,
            Command::Release { .. } | Command::LoseSession { .. } => Event::Release,
            Command::LoseLease | Command::SweepDelegation { .. } => Event::LoseLease,
            Command::AskApproval { .. } => Event::AskApproval,
            Command::Approve(_) => Event::Approve,
            Command::Deny(_) => Event::Deny,
            Command::ExpireApproval => Event::ExpireApproval,
            Command::Wait { .. } => Event::Wait,
            Command::Wake => Event::Wake,
            Command::Cancel => Event::Cancel,
            Command::ExceedDeadline => Event::ExceedDeadline,
            Command::TimeOutPending { .. } => Event::TimeOutPending,
            Command::ReleaseTooOften => Event::ReleaseTooOften,
            Command::Report { .. } | Command::ReportBeat => Event::Report,
        }
    }
}
