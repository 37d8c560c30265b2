//! Delegations on one node: reports of those that run elsewhere, and the sweeper.
//!
//! Invariant: a sweep can be asked for alone, and runs by itself as a duty; a panic in it is an
//! error of that sweep and of nothing else.

use serde_json::json;
use std::time::Duration;
use windlass_domain::delegation::SweeperSettings;
use windlass_store::error::Error as StoreError;
use windlass_store::task::{Ask, DelegationSweep, Reported};

use super::duty::BATCH;
use super::{Duty, Engine, Report, Result, Sweep};

/// The sweeper's name as a duty: in logs, metrics, and where it is switched off.
pub const SWEEPER: &str = "delegation_sweeper";

pub(super) struct Sweeper(pub(super) SweeperSettings);

impl Duty for Sweeper {
    fn name(&self) -> &'static str {
        SWEEPER
    }

    fn every(&self) -> Duration {
        Duration::from_millis(self.0.interval_ms.max(1).unsigned_abs())
    }

    fn sweep<'a>(&'a self, engine: &'a Engine) -> Sweep<'a> {
        Box::pin(async {
            let swept = engine.sweep_delegations().await?;
            Ok(Report { scanned: swept.scanned, changed: swept.changed.len() })
        })
    }
}

impl Engine {
    /// The caller of a ledger delegation reports, or says that it is alive.
    pub async fn report(&self, ask: Ask) -> Result<Reported> {
        let id = ask.task;
        let reported = self.inner.tasks.report(ask).await?;
        if reported.unchanged.is_none() {
            if reported.status.is_some_and(|status| status.is_terminal()) {
                self.inner.ended(id);
            }
            self.tell_event();
        }
        Ok(reported)
    }

    /// The same sweep because somebody wants it: the audit tells who, and what it did.
    pub async fn sweep_delegations_for(&self, actor: &str) -> Result<DelegationSweep> {
        let swept = self.sweep_delegations().await?;
        let detail = json!({
            "scanned": swept.scanned, "failed_deadline": swept.failed_deadline,
            "marked_stuck": swept.marked_stuck, "lost_races": swept.lost_races,
            "errors": swept.errors,
        });
        self.audit().write(actor, "delegations_swept", detail).await?;
        Ok(swept)
    }

    /// Looks once at all open delegations: those past their deadline fail, those whose beats
    /// stopped are stuck.
    pub async fn sweep_delegations(&self) -> Result<DelegationSweep> {
        let engine = self.clone();
        let swept = tokio::spawn(async move { engine.inner.tasks.sweep_delegations(BATCH).await });
        let swept = match swept.await {
            Ok(swept) => swept?,
            Err(panic) => {
                let operation = SWEEPER.to_owned();
                let error = StoreError::Internal { operation, detail: panic.to_string() };
                return Err(error.into());
            }
        };
        for (id, state) in &swept.changed {
            if state.is_terminal() {
                self.inner.ended(*id);
            }
        }
        if !swept.changed.is_empty() || swept.errors > 0 {
            let DelegationSweep { scanned, failed_deadline, marked_stuck, .. } = swept;
            let DelegationSweep { lost_races, errors, .. } = swept;
            tracing::info!(
                scanned,
                failed_deadline,
                marked_stuck,
                lost_races,
                errors,
                "swept delegations"
            );
            self.tell_event();
        }
        if swept.changed.iter().any(|(_, state)| state.is_claimable()) {
            self.came_back();
        }
        Ok(swept)
    }
}
