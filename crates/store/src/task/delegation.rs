//! Delegations: what their callers report of them, and the sweeper.
//!
//! Invariant: a report or a beat of a delegation that has ended, or that is not there, changes
//! nothing and says so. The sweeper finds without locks and decides again under the lock of each:
//! one that completes meanwhile stays completed, and counts as a lost race.

use super::Tasks;
use super::cold::{self, Ask};
use crate::error::{Rejection, Result};
use crate::group::Outcome;
use crate::statement;
use crate::store::Lane;
use crate::tx::{Call, Tx};
use crate::value::Value;
use std::collections::HashSet;
use windlass_domain::command::Command;
use windlass_domain::decide::{Decision, decide};
use windlass_domain::delegation::Unchanged;
use windlass_domain::id::TaskId;
use windlass_domain::profile::{Kind, Profile};
use windlass_domain::refusal::{FieldError, Refusal};
use windlass_domain::snapshot::Snapshot;
use windlass_domain::state::State;

statement!(shared SWEEP, "task/sweep_delegations");
statement!(shared COUNT, "task/count_delegations");

/// All of the above.
pub(super) static STATEMENTS: &[&statement::Statement] = &[&SWEEP, &COUNT];

/// What a report or a beat came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reported {
    /// Where the delegation stands now, if it is there.
    pub status: Option<State>,
    /// Why nothing changed; `None`: something did.
    pub unchanged: Option<Unchanged>,
}

impl Reported {
    fn unchanged(status: Option<State>, why: Unchanged) -> Reported {
        Reported { status, unchanged: Some(why) }
    }
}

/// What the sweeper did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DelegationSweep {
    /// Delegations that had not ended.
    pub scanned: usize,
    /// Those that ended because their deadline had passed.
    pub failed_deadline: usize,
    /// Those that ended because their beats had stopped.
    pub marked_stuck: usize,
    /// Those that ended, or beat again, while they were being looked at.
    pub lost_races: usize,
    /// Those that nobody could read or write; each is in the program's log.
    pub errors: usize,
    /// What changed, and what it became.
    pub changed: Vec<(TaskId, State)>,
}

impl DelegationSweep {
    /// Both together.
    pub fn and(mut self, other: DelegationSweep) -> DelegationSweep {
        self.scanned += other.scanned;
        self.failed_deadline += other.failed_deadline;
        self.marked_stuck += other.marked_stuck;
        self.lost_races += other.lost_races;
        self.errors += other.errors;
        self.changed.extend(other.changed);
        self
    }
}

impl Tasks {
    /// The caller of a ledger delegation reports, or beats. Only forward; what changes nothing is
    /// no error. A delegation that a worker executes is the worker's to report.
    pub async fn report(&self, ask: Ask) -> Outcome<Reported> {
        let stuck_ms = self.stuck_ms();
        let body = move |tx: &mut dyn Tx| report(tx, &ask, stuck_ms);
        let reported = self.store.write("report", body).await?.map_err(Rejection::Refused)?;
        Ok(reported)
    }

    /// Open delegations that are overdue or fell silent, so many of each at most; the
    /// threshold is what [`Tasks::stuck_after`] said.
    pub async fn find_stuck(&self, limit: usize) -> Result<Vec<TaskId>> {
        let stuck_ms = self.stuck_ms();
        let body = move |tx: &mut dyn Tx| {
            let now = tx.now()?;
            let silent = now.plus_ms(-stuck_ms);
            let params = vec![now.into(), silent.into(), Value::Int(limit as i64)];
            let rows = tx.run(Call::one(&SWEEP, params))?;
            rows.iter().map(|row| Ok(TaskId(row.uuid(0)?))).collect()
        };
        self.store.read("find_stuck", body).await
    }

    /// How many delegations have not ended.
    pub async fn count_delegations(&self) -> Result<usize> {
        let body = |tx: &mut dyn Tx| {
            let rows = tx.run(Call::one(&COUNT, Vec::new()))?;
            rows.first().map_or(Ok(0), |row| row.int(0))
        };
        let count = self.store.read("count_delegations", body).await?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    /// Ends those of these delegations that are still overdue or silent, each by the rule that
    /// comes first.
    pub async fn sweep_found(&self, found: Vec<TaskId>) -> DelegationSweep {
        let stuck_ms = self.stuck_ms();
        let ask = |&task: &TaskId| {
            Ask::new(task, Command::SweepDelegation { stuck_ms }, "duty:delegation_sweeper")
        };
        let asks = found.iter().map(ask).collect();
        let lanes = Some(&*self.lanes);
        let outcomes = cold::ask(&self.store, lanes, Lane::Write, "sweep_delegations", asks).await;
        let mut report = DelegationSweep::default();
        for (id, outcome) in found.into_iter().zip(outcomes) {
            match outcome {
                Ok(state) => {
                    report.failed_deadline += usize::from(state == State::Failed);
                    report.marked_stuck += usize::from(state == State::Stuck);
                    report.changed.push((id, state));
                }
                Err(Rejection::Refused(_)) => report.lost_races += 1,
                Err(Rejection::Failed(error)) => {
                    report.errors += 1;
                    tracing::error!(task = %id, %error, "a delegation could not be swept");
                }
            }
        }
        report
    }

    /// Ends every delegation whose deadline passed (`failed`) or whose beats stopped (`stuck`), in
    /// batches.
    pub async fn sweep_delegations(&self, batch: usize) -> Result<DelegationSweep> {
        let scanned = self.count_delegations().await?;
        let mut report = DelegationSweep { scanned, ..DelegationSweep::default() };
        // What could not be ended is not tried again by this sweep, and keeps nobody from being
        // found.
        let mut left: HashSet<TaskId> = HashSet::new();
        loop {
            let mut found = self.find_stuck(batch + left.len()).await?;
            found.retain(|id| !left.contains(id));
            if found.is_empty() {
                return Ok(report);
            }
            left.extend(&found);
            let swept = self.sweep_found(found).await;
            for (id, _) in &swept.changed {
                left.remove(id);
            }
            report = report.and(swept);
        }
    }
}

/// What a worker executes is the worker's to report.
fn needs_lease() -> Refusal {
    let detail = "is required: a worker executes this delegation, and whoever reports it gives the \
                  lease of its claim";
    let (pointer, detail) = ("/lease_id".to_owned(), detail.to_owned());
    Refusal::Invalid(vec![FieldError { pointer, code: "required", detail }])
}

fn report(tx: &mut dyn Tx, ask: &Ask, stuck_ms: i64) -> Result<Result<Reported, Refusal>> {
    let Some((task, last)) = cold::load(tx, ask.task)? else {
        return Ok(Ok(Reported::unchanged(None, Unchanged::NotFound)));
    };
    if task.profile.kind() != Kind::Delegation {
        return Ok(Ok(Reported::unchanged(None, Unchanged::NotFound)));
    }
    if last == ask.change {
        // An earlier try of this very call was committed, but its answer was lost.
        return Ok(Ok(Reported { status: Some(task.status), unchanged: None }));
    }
    let to = match &ask.command {
        Command::Report { to, .. } => Some(*to),
        _ => None,
    };
    let decision = match decide(&task, &ask.command, tx.now()?) {
        Ok(decision) => decision,
        Err(Refusal::IllegalTransition { .. })
            if task.profile == Profile::Ledger || task.status.is_terminal() =>
        {
            let why = Unchanged::of(task.status, to);
            return Ok(Ok(Reported::unchanged(Some(task.status), why)));
        }
        Err(Refusal::IllegalTransition { .. }) => return Ok(Err(needs_lease())),
        Err(refusal) => return Ok(Err(refusal)),
    };
    let mut after: Snapshot = match &decision {
        Decision::Nothing => {
            let why = Unchanged::of(task.status, to);
            return Ok(Ok(Reported::unchanged(Some(task.status), why)));
        }
        Decision::Touch(after) => (**after).clone(),
        Decision::Change(change) => change.after.clone(),
    };
    if after.lease_expires_at.is_some() {
        after.lease_expires_at = after.last_heartbeat_at.map(|beat| beat.plus_ms(stuck_ms));
    }
    let status = after.status;
    cold::save_decided(tx, decision, after, ask)?;
    Ok(Ok(Reported { status: Some(status), unchanged: None }))
}
