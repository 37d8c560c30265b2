//! Tasks: every way in which a task's state is written or read.
//!
//! Hot operations (submit, claim, start, heartbeat, complete) are one guarded statement over many
//! items; an item whose guard did not hold is looked at again by the cold path, which says why.
//! Cold operations load, decide, save. There are no other writers of a task's state.

mod admission;
mod claim;
mod cold;
mod common;
mod count;
mod delegation;
mod eager;
mod family;
mod finish;
mod floor;
mod hand_over;
mod hold;
mod hot;
mod lane;
mod list;
mod looking;
mod own;
mod park;
mod pressure;
mod push;
mod recount;
mod replay;
mod resolve;
mod retention;
mod room;
mod row;
mod show;
mod slot;
mod step;
mod stream;
mod submit;
mod sweep;
mod take;
mod term;
mod why;

pub use claim::{Assignment, Claim, HELD_PART, STEPS_BYTES, STEPS_LIMIT, UNNAMED_LIMIT};
pub use cold::Ask;
pub(crate) use cold::{Queued, carry_out, load, queued};
pub use count::Counts;
pub use delegation::{DelegationSweep, Reported};
pub use eager::Idle;
pub(crate) use finish::ended_by;
pub use finish::{Finish, Finishing};
pub(crate) use hold::keep_checkpoint;
pub use hold::{Beat, Beaten, Start};
pub use list::{Cursor, Filter, ORDER, Page};
pub use park::{Park, Parked, Signalled};
pub use pressure::Traffic;
pub use push::result_message;
pub use recount::Drift;
pub(crate) use replay::create as create_replay;
pub use replay::{Consent, Replay, Replayed};
pub use resolve::Resolution;
pub use room::SEATS;
pub use row::{Failure, History, Task};
pub(crate) use show::checkpoint;
pub use show::{HISTORY_ORDER, Position};
pub use step::{BeginStep, Begun, Holder, RecordStep, Recorded, StepEnd};
pub use stream::{BeginStream, StreamBegun};
pub use submit::Submitted;
pub use sweep::SweepReport;
pub use why::Why;

use crate::group::{Bounds, Group};
use crate::statement::{Dialect, Statement, both};
use crate::store::Store;
use floor::Floor;
use lane::Lanes;
use recount::Rest;
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;
use tokio::sync::Notify;
use windlass_domain::id::TaskId;
use windlass_domain::limit::Limits;
pub use windlass_domain::page::Order;
use windlass_domain::profile::DELEGATION_STUCK_THRESHOLD_MS;
use windlass_domain::state::State;
use windlass_domain::task::NewTask;

/// Every statement about tasks; tests look at their plans.
pub(crate) fn statements() -> impl Iterator<Item = &'static Statement> {
    let fixed = [
        submit::STATEMENTS,
        claim::STATEMENTS,
        take::STATEMENTS,
        lane::STATEMENTS,
        looking::STATEMENTS,
        room::STATEMENTS,
        hand_over::STATEMENTS,
        hold::STATEMENTS,
        stream::STATEMENTS,
        finish::STATEMENTS,
        cold::STATEMENTS,
        sweep::STATEMENTS,
        delegation::STATEMENTS,
        push::STATEMENTS,
        retention::STATEMENTS,
        show::STATEMENTS,
        count::STATEMENTS,
        pressure::STATEMENTS,
        recount::STATEMENTS,
        why::STATEMENTS,
        why::LINE_STATEMENTS,
        step::STATEMENTS,
        family::STATEMENTS,
        replay::STATEMENTS,
    ];
    fixed.into_iter().flatten().copied().chain(both(show::LISTS)).chain(list::statements())
}

/// The repository of tasks; cheap to clone.
#[derive(Clone)]
pub struct Tasks {
    store: Store,
    lanes: Arc<Lanes>,
    idle: Arc<OnceLock<Weak<dyn Idle>>>,
    submits: Arc<Group<NewTask, Submitted>>,
    claims: Arc<Group<Claim, Vec<Assignment>>>,
    starts: Arc<Group<Start, State>>,
    beats: Arc<Group<hold::Timed, Beaten>>,
    stuck_ms: Arc<AtomicI64>,
    lease_floor: Arc<Floor>,
    recounted: Arc<Rest>,
    streams: Arc<Group<BeginStream, StreamBegun>>,
    completes: Arc<Group<finish::Complete, State>>,
    asks: Arc<Group<Ask, State>>,
    records: Arc<Group<RecordStep, Recorded>>,
    looks: Arc<Group<TaskId, Option<Task>>>,
}

impl Tasks {
    /// The tasks of one database. One per node: it holds what the node knows of lanes, and its
    /// groups.
    pub fn new(store: Store) -> Tasks {
        // SQLite has one writer: a second batch would only wait for it.
        let leaders = if store.dialect() == Dialect::Sqlite { 1 } else { 2 };
        let bounds = Bounds { leaders, ..Bounds::default() };
        // Steps are short, and their callers come back for the next one as soon as they are
        // answered: while one batch is being synced, the other half of them fills the next.
        let steps = Bounds { enough: 24, ..bounds };
        let lanes = Arc::new(Lanes::new());
        let idle = Arc::new(OnceLock::new());
        let submits = submit::group(store.clone(), Arc::clone(&lanes), bounds, Arc::clone(&idle));
        Tasks {
            submits: Arc::new(submits),
            claims: Arc::new(claim::group(store.clone(), Arc::clone(&lanes), bounds)),
            starts: Arc::new(hold::start_group(store.clone(), bounds)),
            beats: Arc::new(hold::beat_group(store.clone(), bounds)),
            stuck_ms: Arc::new(AtomicI64::new(DELEGATION_STUCK_THRESHOLD_MS)),
            lease_floor: Arc::new(Floor::default()),
            recounted: Arc::new(Rest::default()),
            streams: Arc::new(stream::stream_group(store.clone(), bounds)),
            completes: Arc::new(finish::complete_group(store.clone(), Arc::clone(&lanes), bounds)),
            asks: Arc::new(cold::group(store.clone(), Arc::clone(&lanes), bounds)),
            records: Arc::new(step::record_group(store.clone(), steps)),
            looks: Arc::new(show::look_group(store.clone(), bounds)),
            lanes,
            idle,
            store,
        }
    }

    /// Lets submits hand their tasks over to those who wait; see [`Idle`]. Said once, by the
    /// engine.
    pub fn dispatch_to(&self, idle: &Arc<dyn Idle>) {
        self.lanes.tell(Arc::downgrade(idle));
        let _ = self.idle.set(Arc::downgrade(idle));
    }

    /// The limits from now on, on this node; without any, nothing is counted or locked.
    pub fn bind(&self, limits: Option<Limits>) {
        self.lanes.bind(limits.map(Arc::new), None);
    }

    /// The same, as the database calls them: what waits for a lock there while they are changed
    /// does not go by them any more.
    pub fn bind_version(&self, limits: Limits, version: i64) {
        self.lanes.bind(Some(Arc::new(limits)), Some(version));
    }

    /// Until then the rules are known to be true; after that nothing is claimed or submitted by
    /// them until somebody says this again, or has not for a while. Whoever never says it is
    /// believed.
    pub fn rules_hold_until(&self, until: Instant) {
        self.lanes.term.extend(until);
    }

    /// Is notified when the database has newer rules than these: whoever reads them should do so
    /// now, because transactions wait for it.
    pub fn rules_doubted(&self) -> Arc<Notify> {
        self.lanes.term.doubted()
    }

    /// Another node, or somebody's SQL, has submitted something: claims look for it soon.
    pub fn heard(&self) {
        self.lanes.hear();
    }

    /// Another node has changed something, such as the end of a task: those whom limits hold back
    /// here look soon. Must be called inside a tokio runtime.
    pub fn heard_of_room(&self) {
        self.lanes.hear_of_room();
    }

    /// How often claims look at all lanes, whatever they know; tests choose it.
    #[doc(hidden)]
    pub fn with_full_scan(self, interval: std::time::Duration) -> Tasks {
        self.lanes.scan_every(interval);
        self
    }

    /// The database underneath.
    pub fn store(&self) -> &Store {
        &self.store
    }
}
