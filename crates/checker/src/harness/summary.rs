//! What a run amounted to, in figures.

use crate::check::Run;
use crate::log::{Operation, Outcome};
use std::collections::BTreeMap;
use uuid::Uuid;
use windlass_domain::state::{Event, State};

/// The figures of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // Said by `Display`.
pub struct Summary {
    pub acknowledged: usize,
    pub ended: BTreeMap<State, usize>,
    pub attempts: usize,
    pub takeovers: usize,
    /// The longest time from a lease's last sign of life to the next claim.
    pub slowest_takeover_ms: i64,
    pub effects: usize,
    pub calls: usize,
    pub unknown_calls: usize,
    /// Writes that were refused because their lease was lost.
    pub fenced: usize,
}

impl Summary {
    /// The figures of this run.
    pub fn of(run: &Run) -> Summary {
        let mut summary = Summary { calls: run.calls.len(), ..Summary::default() };
        let mut acknowledged = std::collections::BTreeSet::new();
        let mut alive_ms: BTreeMap<Uuid, i64> = BTreeMap::new();
        for call in &run.calls {
            match (&call.operation, &call.outcome) {
                (Operation::Submit { task, .. }, Outcome::Ok(_)) => {
                    acknowledged.insert(*task);
                }
                (Operation::Heartbeat { leases, .. }, Outcome::Ok(_)) => {
                    for held in leases {
                        let last = alive_ms.entry(held.lease).or_default();
                        *last = call.invoked_ms.max(*last);
                    }
                }
                (_, Outcome::Failed { code, .. }) if code == "lease_lost" => summary.fenced += 1,
                (_, Outcome::Unknown { .. }) => summary.unknown_calls += 1,
                _ => {}
            }
        }
        summary.acknowledged = acknowledged.len();
        for task in run.dump.tasks.values() {
            *summary.ended.entry(task.status).or_default() += 1;
        }
        let begun = run.effects.iter().filter(|e| e.phase == crate::ledger::Phase::Begun);
        summary.effects = begun.count();
        summary.count_takeovers(run, &alive_ms);
        summary
    }

    fn count_takeovers(&mut self, run: &Run, alive_ms: &BTreeMap<Uuid, i64>) {
        let mut lost: BTreeMap<Uuid, i64> = BTreeMap::new();
        let mut claimed: BTreeMap<Uuid, i64> = BTreeMap::new();
        for row in &run.dump.history {
            match row.event {
                Event::Claim => {
                    self.attempts += 1;
                    claimed.insert(row.task, row.at_ms);
                    if let Some(since_ms) = lost.remove(&row.task) {
                        self.takeovers += 1;
                        let took_ms = row.at_ms - since_ms;
                        self.slowest_takeover_ms = self.slowest_takeover_ms.max(took_ms);
                    }
                }
                Event::LoseLease => {
                    let beat = row.lease.and_then(|lease| alive_ms.get(&lease)).copied();
                    let claim = claimed.get(&row.task).copied();
                    lost.insert(row.task, beat.max(claim).unwrap_or(row.at_ms));
                }
                _ => {}
            }
        }
    }
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Summary { acknowledged, attempts, takeovers, slowest_takeover_ms, .. } = self;
        let Summary { effects, calls, unknown_calls, fenced, ended, .. } = self;
        write!(f, "{acknowledged} tasks acknowledged, {attempts} attempts, {effects} effects, ")?;
        write!(f, "{takeovers} takeovers (slowest {slowest_takeover_ms} ms), {fenced} fenced, ")?;
        write!(f, "{calls} calls, {unknown_calls} unknown;")?;
        ended.iter().try_for_each(|(state, count)| write!(f, " {count} {state}"))
    }
}
