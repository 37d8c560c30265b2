//! The claim floor: where in the ready index a claim begins to look.
//!
//! Claims take the head of the index, so dead entries pile up there while some reader holds an old
//! snapshot, and every claim would walk over them. The floor lets the scan start past them. It is
//! a hint of this node alone, one for each lane, in the index's own order.
//!
//! Invariant: whatever may lie below a floor is found all the same: this node's own submits,
//! releases and ripened tasks lower it at once, also against a claim that is under way and would
//! raise it, a claim that comes back short scans everything right away, and every [`FULL_SCAN`] a
//! claim scans everything anyhow (for what other nodes wrote and for transactions that committed
//! late).

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use windlass_domain::order::{order_key, run_at_of};
use windlass_domain::profile::Profile;
use windlass_domain::task::{NewTask, When};
use windlass_domain::time::Timestamp;

/// How long a task may lie below the floor unseen.
pub(super) const FULL_SCAN: Duration = Duration::from_secs(2);

/// How often a node looks for due tasks when its claims come back full: a task whose time came
/// waits no longer than this for its turn, and a busy node is spared the look at every claim.
const RIPEN_EVERY: Duration = Duration::from_millis(50);

/// No floor.
pub(super) const NONE: i64 = i64::MIN;

/// One queue's tasks of one profile.
pub(super) type Lane = (String, Profile);

pub(super) struct ClaimFloor {
    lanes: Mutex<HashMap<Lane, Floor>>,
    full_scan_ms: AtomicU64,
    claims: AtomicU64,
    ripened: Mutex<Option<Instant>>,
}

impl Default for ClaimFloor {
    fn default() -> Self {
        let full_scan_ms = AtomicU64::new(FULL_SCAN.as_millis() as u64);
        ClaimFloor {
            lanes: Mutex::default(),
            full_scan_ms,
            claims: AtomicU64::new(0),
            ripened: Mutex::default(),
        }
    }
}

/// What this node knows of one lane.
struct Floor {
    order_key: i64,
    /// A time that is past: that of a task that was claimed.
    past: Timestamp,
    /// When the last full scan began.
    scanned: Option<Instant>,
    /// The claims under way, each with the lowest key that was written since it began.
    under_way: Vec<(u64, i64)>,
}

impl Floor {
    fn none() -> Floor {
        let (past, scanned) = (Timestamp::EPOCH, None);
        Floor { order_key: NONE, past, scanned, under_way: Vec::new() }
    }

    fn lower_to(&mut self, order_key: i64) {
        self.order_key = self.order_key.min(order_key);
        for (_, written) in &mut self.under_way {
            *written = order_key.min(*written);
        }
    }

    fn is_fresh(&self, full_scan: Duration) -> bool {
        self.scanned.is_some_and(|at| at.elapsed() < full_scan)
    }
}

/// A claim under way. Dropping it forgets it, whatever became of the claim.
pub(super) struct Begun {
    floor: Arc<ClaimFloor>,
    claim: u64,
    at: Instant,
    lanes: Vec<Lane>,
    /// Where each lane's scan begins.
    pub(super) floors: Vec<i64>,
}

impl Drop for Begun {
    fn drop(&mut self) {
        let mut lanes = self.floor.lanes();
        for lane in &self.lanes {
            let Some(floor) = lanes.get_mut(lane) else { continue };
            floor.under_way.retain(|(claim, _)| *claim != self.claim);
            if floor.scanned.is_none() && floor.under_way.is_empty() {
                lanes.remove(lane);
            }
        }
    }
}

impl ClaimFloor {
    fn lanes(&self) -> MutexGuard<'_, HashMap<Lane, Floor>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Scans everything so often; zero is at every claim.
    pub(super) fn scan_every(&self, interval: Duration) {
        self.full_scan_ms.store(interval.as_millis() as u64, Ordering::Relaxed);
    }

    /// Whether the next claim should look for due tasks first.
    pub(super) fn is_time_to_ripen(&self) -> bool {
        let mut ripened = self.ripened.lock().unwrap_or_else(PoisonError::into_inner);
        let due = ripened.is_none_or(|at| at.elapsed() >= RIPEN_EVERY);
        if due {
            *ripened = Some(Instant::now());
        }
        due
    }

    /// A claim of these lanes begins.
    pub(super) fn begin(self: &Arc<Self>, lanes: &[Lane]) -> Begun {
        let full_scan = Duration::from_millis(self.full_scan_ms.load(Ordering::Relaxed));
        let claim = self.claims.fetch_add(1, Ordering::Relaxed);
        let mut known = self.lanes();
        let mut begin = |lane: &Lane| {
            let floor = known.entry(lane.clone()).or_insert_with(Floor::none);
            floor.under_way.push((claim, i64::MAX));
            if floor.is_fresh(full_scan) { floor.order_key } else { NONE }
        };
        let floors = lanes.iter().map(&mut begin).collect();
        drop(known);
        Begun { floor: Arc::clone(self), claim, at: Instant::now(), lanes: lanes.to_vec(), floors }
    }

    /// A full claim's lowest key becomes the lane's floor, unless something was written below it
    /// meanwhile. `began` is where that claim began to look: a full scan restarts the clock.
    pub(super) fn raise(&self, begun: &Begun, lane: &Lane, began: i64, lowest: i64) {
        let mut lanes = self.lanes();
        let Some(floor) = lanes.get_mut(lane) else { return };
        let mine = floor.under_way.iter().filter(|(claim, _)| *claim == begun.claim);
        let written = mine.map(|(_, written)| *written).min().unwrap_or(NONE);
        floor.past = floor.past.max(run_at_of(lowest));
        if began == NONE {
            floor.scanned = Some(begun.at);
            floor.order_key = lowest.min(written);
        } else if floor.order_key == began {
            // Lowered meanwhile? Then it stays low.
            floor.order_key = lowest.max(began).min(written);
        }
    }

    /// Something may lie at or above `order_key` in this lane.
    pub(super) fn lower_to(&self, queue: &str, profile: Profile, order_key: i64) {
        let mut lanes = self.lanes();
        if lanes.is_empty() {
            return;
        }
        if let Some(floor) = lanes.get_mut(&(queue.to_owned(), profile)) {
            floor.lower_to(order_key);
        }
    }

    /// These tasks were written.
    pub(super) fn lower(&self, tasks: &[NewTask]) {
        let mut lanes = self.lanes();
        if lanes.is_empty() {
            return;
        }
        for task in tasks.iter().filter(|t| t.profile != Profile::Ledger) {
            let Some(floor) = lanes.get_mut(&(task.queue.clone(), task.profile)) else { continue };
            // A task for "now" carries the database's time, which this node does not know; a
            // time that is past is early enough.
            let earliest = match task.run_at {
                When::At(at) => at,
                When::After(_) => floor.past,
            };
            floor.lower_to(order_key(task.priority, earliest));
        }
    }

    /// Tasks of this lane went back to it, with keys that nobody here knows.
    pub(super) fn reset(&self, queue: &str, profile: Profile) {
        self.lower_to(queue, profile, NONE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_domain::id::TaskId;
    use windlass_domain::request::SubmitRequest;
    use windlass_domain::validate;

    fn lane() -> Lane {
        ("q".into(), Profile::Job)
    }

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_ms(ms)
    }

    fn job(priority: i32, run_at: Option<Timestamp>) -> NewTask {
        let request = SubmitRequest {
            queue: Some("q".into()),
            priority: Some(priority),
            run_at,
            ..SubmitRequest::default()
        };
        validate::new_task(&request, TaskId(uuid::Uuid::nil()), "", "tester").unwrap()
    }

    /// A full claim that took tasks from `lowest` on; returns where it began.
    fn full_claim(floor: &Arc<ClaimFloor>, lowest: i64) -> i64 {
        let begun = floor.begin(&[lane()]);
        floor.raise(&begun, &lane(), begun.floors[0], lowest);
        begun.floors[0]
    }

    #[test]
    fn a_full_claim_raises_the_floor() {
        let floor = Arc::new(ClaimFloor::default());
        assert_eq!(full_claim(&floor, 100), NONE);
        assert_eq!(full_claim(&floor, 200), 100);
        assert_eq!(full_claim(&floor, 300), 200);
    }

    #[test]
    fn a_task_written_while_a_claim_is_under_way_lowers_the_floor_it_leaves() {
        let urgent = order_key(9, at(50));
        for known in [false, true] {
            let floor = Arc::new(ClaimFloor::default());
            if known {
                full_claim(&floor, 100);
                floor.reset("q", Profile::Job);
            }
            let begun = floor.begin(&[lane()]);
            floor.lower(&[job(9, Some(at(50)))]);
            floor.raise(&begun, &lane(), NONE, 200);
            drop(begun);
            assert_eq!(floor.begin(&[lane()]).floors, [urgent]);
        }
    }

    #[test]
    fn a_task_for_later_does_not_hide_one_for_now() {
        let floor = Arc::new(ClaimFloor::default());
        full_claim(&floor, order_key(0, at(100)));
        floor.lower(&[job(5, Some(at(9_000)))]);
        floor.lower(&[job(5, None)]);
        assert!(floor.begin(&[lane()]).floors[0] <= order_key(5, at(100)));
    }

    #[test]
    fn lanes_that_were_only_asked_for_are_forgotten() {
        let floor = Arc::new(ClaimFloor::default());
        drop(floor.begin(&[lane(), ("r".into(), Profile::Inference)]));
        assert!(floor.lanes().is_empty());
    }
}
