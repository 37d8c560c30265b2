//! Sweeps and operators' commands: what happens to tasks without a worker's call.
//!
//! Each sweep takes a bounded number of rows, skips those that somebody is changing, and decides
//! each again under its lock: a row that completes while being swept stays completed.

use super::cold::{self, Ask, Saved};
use super::{Tasks, row};
use crate::error::Result;
use crate::group::Outcome;
use crate::statement;
use crate::statement::Statement;
use crate::tx::{Call, Tx};
use crate::value::Value;
use uuid::Uuid;
use windlass_domain::command::Command;
use windlass_domain::decide::{Decision, decide};
use windlass_domain::id::{ChangeId, TaskId};
use windlass_domain::profile::PROFILES;
use windlass_domain::state::State;
use windlass_domain::time::Timestamp;

statement!(EXPIRED_LEASES, "task/expired_leases");
statement!(PASSED_DEADLINES, "task/passed_deadlines");
statement!(STALE_PENDING, "task/stale_pending");
statement!(HELD_BY, "task/held_by");
statement!(EXPIRED_APPROVALS, "approval/expired");

/// All of the above.
pub(super) static STATEMENTS: &[&crate::statement::Statement] =
    &[&EXPIRED_LEASES, &PASSED_DEADLINES, &STALE_PENDING, &HELD_BY, &EXPIRED_APPROVALS];

/// What a sweep did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SweepReport {
    /// Rows it looked at.
    pub scanned: usize,
    /// Rows it changed, and what they became.
    pub changed: Vec<(TaskId, State)>,
    /// Rows whose rule no longer applied when they were locked.
    pub lost_races: usize,
    /// Rows that no reader understands; each is in the program's log.
    pub unreadable: usize,
}

impl Tasks {
    /// Takes tasks from holders whose lease ran out.
    pub async fn expire_leases(&self, limit: usize) -> Result<SweepReport> {
        Ok(self.sweep_leases(limit, true, Timestamp::EPOCH).await?.0)
    }

    /// The same, but for delegations: they have a sweeper and a threshold of their own.
    pub async fn expire_worker_leases(&self, limit: usize) -> Result<SweepReport> {
        let from = self.lease_floor.from();
        let (report, now) = self.sweep_leases(limit, false, from).await?;
        if report.scanned < limit {
            self.lease_floor.swept(from, now);
        }
        Ok(report)
    }

    /// Ends tasks whose deadline passed.
    pub async fn expire_deadlines(&self, limit: usize) -> Result<SweepReport> {
        let command = Command::ExceedDeadline;
        self.sweep("expire_deadlines", &PASSED_DEADLINES, command, limit, 0).await
    }

    /// Ends inference that no provider took within `limit_ms`, or else the profile's limit.
    pub async fn time_out_pending(
        &self,
        limit_ms: Option<i64>,
        limit: usize,
    ) -> Result<SweepReport> {
        let standard = PROFILES.iter().find_map(|rules| rules.pending_ms).unwrap_or(i64::MAX);
        let age_ms = limit_ms.unwrap_or(standard);
        let command = Command::TimeOutPending { limit_ms };
        self.sweep("time_out_pending", &STALE_PENDING, command, limit, age_ms).await
    }

    /// Ends tasks whose question nobody answered in time.
    pub async fn expire_approvals(&self, limit: usize) -> Result<SweepReport> {
        let command = Command::ExpireApproval;
        self.sweep("expire_approvals", &EXPIRED_APPROVALS, command, limit, 0).await
    }

    /// Takes back what goes back when a session is gone; the leases decide over the rest.
    pub async fn lose_session(&self, session: &str) -> Result<SweepReport> {
        let command = Command::LoseSession { session: session.to_owned() };
        let session = session.to_owned();
        let change_seed = Uuid::now_v7();
        let swept = self
            .store
            .write("lose_session", move |tx| {
                let rows = tx.run(Call::one(&HELD_BY, vec![session.as_str().into()]))?;
                carry_out(tx, &rows, &command, "lose_session", change_seed)
            })
            .await?;
        Ok(self.stand_again(swept))
    }

    /// Asks for the end of a task. Cancelling a cancelled task is no error.
    pub async fn cancel(
        &self,
        task: TaskId,
        actor: &str,
        reason: Option<String>,
    ) -> Outcome<State> {
        let ask = Ask { reason, ..Ask::new(task, Command::Cancel, actor) };
        self.ask(ask).await
    }

    /// Decides one command and writes what follows. Concurrent calls share a transaction.
    pub async fn ask(&self, ask: Ask) -> Outcome<State> {
        let mut outcomes = self.asks.join(vec![ask]).await;
        outcomes.pop().unwrap_or_else(|| Err(cold::no_answer().into()))
    }

    /// Leases that ran out after `from`; also until when it looked.
    async fn sweep_leases(
        &self,
        limit: usize,
        with_delegations: bool,
        from: Timestamp,
    ) -> Result<(SweepReport, Timestamp)> {
        let bounds = move |tx: &mut dyn Tx| {
            // A test's clock may jump back.
            let from = if tx.fixed_now().is_some() { Timestamp::EPOCH } else { from };
            let now = tx.now()?;
            let limit = Value::Int(limit as i64);
            Ok((vec![now.into(), limit, with_delegations.into(), from.into()], now))
        };
        self.sweep_where("expire_leases", &EXPIRED_LEASES, Command::LoseLease, bounds).await
    }

    async fn sweep(
        &self,
        name: &'static str,
        find: &'static Statement,
        command: Command,
        limit: usize,
        age_ms: i64,
    ) -> Result<SweepReport> {
        let bounds = move |tx: &mut dyn Tx| {
            let now = tx.now()?;
            Ok((vec![now.plus_ms(-age_ms).into(), Value::Int(limit as i64)], now))
        };
        Ok(self.sweep_where(name, find, command, bounds).await?.0)
    }

    /// Sweeps what a statement finds within bounds that follow from the time; returns that as well.
    async fn sweep_where(
        &self,
        name: &'static str,
        find: &'static Statement,
        command: Command,
        bounds: impl Fn(&mut dyn Tx) -> Result<(Vec<Value>, Timestamp)> + Send + 'static,
    ) -> Result<(SweepReport, Timestamp)> {
        let change_seed = Uuid::now_v7();
        let body = move |tx: &mut dyn Tx| {
            let (params, now) = bounds(tx)?;
            let rows = tx.run(Call::one(find, params))?;
            Ok((carry_out(tx, &rows, &command, name, change_seed)?, now))
        };
        let (swept, now) = self.store.write(name, body).await?;
        Ok((self.stand_again(swept), now))
    }

    fn stand_again(&self, swept: Swept) -> SweepReport {
        self.stand_in_line(swept.queued);
        self.lanes.freed(swept.let_go.into_iter().map(Some));
        swept.report
    }
}

struct Swept {
    report: SweepReport,
    queued: Vec<cold::Queued>,
    /// The lanes of tasks that nobody holds any more.
    let_go: Vec<i64>,
}

fn carry_out(
    tx: &mut dyn Tx,
    rows: &[crate::value::Row],
    command: &Command,
    name: &'static str,
    change_seed: Uuid,
) -> Result<Swept> {
    let now = tx.now()?;
    let mut report = SweepReport { scanned: rows.len(), ..SweepReport::default() };
    let (mut saved, mut queued, mut let_go) = (Vec::new(), Vec::new(), Vec::new());
    for row in rows {
        let task = match row::snapshot(row) {
            Ok((task, _)) => task,
            Err(error) => {
                report.unreadable += 1;
                tracing::error!(sweep = name, task = ?row.0.first(), %error, "a row is unreadable");
                continue;
            }
        };
        let Ok(Decision::Change(change)) = decide(&task, command, now) else {
            report.lost_races += 1;
            continue;
        };
        let ask = Ask {
            task: task.id,
            command: command.clone(),
            actor: format!("duty:{name}"),
            reason: None,
            change: derived(change_seed, task.id),
        };
        report.changed.push((task.id, change.after.status));
        cold::waits_no_longer(tx, &change)?;
        queued.extend(cold::queued(&change.after));
        let_go.extend(change.from.is_held().then_some(task.lane));
        saved.push(Saved::change(&change, &ask));
    }
    if !saved.is_empty() {
        cold::save(tx, saved)?;
    }
    Ok(Swept { report, queued, let_go })
}

/// The same change id on every try of a sweep, without knowing beforehand what it will find.
pub(super) fn derived(seed: Uuid, task: TaskId) -> ChangeId {
    ChangeId(Uuid::from_u128(seed.as_u128() ^ task.0.as_u128().rotate_left(64)))
}
