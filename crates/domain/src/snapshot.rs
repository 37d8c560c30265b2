//! A task as the machine sees it: its mutable state and the few fixed fields that rules need.
//!
//! Absent: payload, names and tags. No rule reads them.

use crate::failure::TaskError;
use crate::id::{ApprovalId, ClaimId, LeaseId, TaskId};
use crate::order::order_key;
use crate::profile::Profile;
use crate::retry::Backoff;
use crate::state::State;
use crate::task::NewTask;
use crate::time::Timestamp;
use crate::usage::Usage;

/// One task at one moment.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // Named like the columns of `task`.
pub struct Snapshot {
    pub id: TaskId,
    pub profile: Profile,
    pub queue: String,
    /// Where it stands in line; no rule looks at it.
    pub lane: i64,
    pub priority: i32,
    pub backoff: Option<Backoff>,
    pub max_retries: i32,
    pub status: State,
    /// Whether a claim may take it without looking at `run_at`.
    pub ready: bool,
    /// Its place among the ready tasks of its queue.
    pub order_key: i64,
    pub run_at: Timestamp,
    pub deadline_at: Option<Timestamp>,
    pub attempt: i32,
    pub retry_count: i32,
    pub release_count: i32,
    pub lease_id: Option<LeaseId>,
    pub lease_expires_at: Option<Timestamp>,
    pub claim_id: Option<ClaimId>,
    pub claimed_by: Option<String>,
    pub claimed_at: Option<Timestamp>,
    pub last_heartbeat_at: Option<Timestamp>,
    pub approval_id: Option<ApprovalId>,
    /// Canonical JSON text.
    pub result: Option<String>,
    pub error: Option<TaskError>,
    /// What all attempts told together.
    pub usage: Option<Usage>,
    pub created_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub entered_at: Timestamp,
    pub updated_at: Timestamp,
}

impl Snapshot {
    /// The task right after its submit.
    pub fn submitted(new: &NewTask, now: Timestamp) -> Snapshot {
        let run_at = new.run_at.resolve(now);
        Snapshot {
            id: new.id,
            profile: new.profile,
            queue: new.queue.clone(),
            lane: 0,
            priority: new.priority,
            backoff: new.backoff.clone(),
            max_retries: new.max_retries,
            status: State::Pending,
            ready: run_at <= now && new.profile != Profile::Ledger,
            order_key: order_key(new.priority, run_at),
            run_at,
            deadline_at: new.deadline.map(|when| when.resolve(now)),
            attempt: 0,
            retry_count: 0,
            release_count: 0,
            lease_id: None,
            lease_expires_at: None,
            claim_id: None,
            claimed_by: None,
            claimed_at: None,
            last_heartbeat_at: None,
            approval_id: None,
            result: None,
            error: None,
            usage: None,
            created_at: now,
            started_at: None,
            entered_at: now,
            updated_at: now,
        }
    }

    /// Nobody holds the task any more, and no trace of the holder stays on it.
    pub(crate) fn drop_holder(&mut self) {
        self.drop_lease();
        self.claim_id = None;
        self.claimed_by = None;
        self.claimed_at = None;
        self.last_heartbeat_at = None;
    }

    /// Nobody holds the task any more; who held it last stays visible.
    pub(crate) fn drop_lease(&mut self) {
        self.lease_id = None;
        self.lease_expires_at = None;
    }

    /// Back in line: claimable from `run_at` on.
    pub(crate) fn queue_up(&mut self, now: Timestamp) {
        self.ready = self.run_at <= now && self.profile != Profile::Ledger;
    }
}
