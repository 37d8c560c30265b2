//! Until when the rules of this node are known to be true: somebody reads them again and again, and
//! says so.
//!
//! Invariant: what was counted by rules is committed while they are the node's rules and their term
//! lasts. A process may stand still in the middle of a transaction, or wait there for a lock; what
//! people have changed meanwhile is in force for that transaction as well. Asking costs no round
//! trip: a clock is read before COMMIT is sent.

use super::lane::Lanes;
use crate::error::{Error, OUTDATED, Result};
use crate::tx::Check;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use windlass_domain::limit::Limits;

/// For so long a transaction waits for rules that are known to be true. If nobody can read them the
/// last known ones are enforced.
const PATIENCE: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Default)]
pub(super) struct Term(watch::Sender<Option<Instant>>);

fn lasts(until: &Option<Instant>) -> bool {
    until.is_none_or(|until| Instant::now() < until)
}

impl Term {
    pub(super) fn extend(&self, until: Instant) {
        self.0.send_modify(|known| *known = (*known).max(Some(until)));
    }

    fn lasts(&self) -> bool {
        lasts(&self.0.borrow())
    }

    /// Waits until it lasts; whether it does.
    async fn renewed(&self) -> bool {
        let mut term = self.0.subscribe();
        tokio::time::timeout(PATIENCE, term.wait_for(lasts)).await.is_ok()
    }
}

/// Whether a transaction must be tried again by the rules that are in force now.
pub(super) fn is_outdated(error: &Error) -> bool {
    matches!(error, Error::Busy(detail) if detail == OUTDATED)
}

impl Lanes {
    /// For a transaction that counts by the rules of now.
    pub(super) fn check(self: &Arc<Self>) -> Check {
        let (lanes, limits) = (Arc::clone(self), self.limits());
        Arc::new(move || match lanes.term.lasts() && same(&limits, &lanes.limits()) {
            true => Ok(()),
            false => Err(Error::Busy(OUTDATED.into())),
        })
    }

    /// The same for its next try, when the rules are known again; `None` if nobody can read them.
    pub(super) async fn check_anew(self: &Arc<Self>) -> Option<Check> {
        self.term.renewed().await.then(|| self.check())
    }

    /// Runs a transaction until the rules that it counts by are in force when it commits.
    pub(super) async fn by_rules<T, F: Future<Output = Result<T>>>(
        self: &Arc<Self>,
        mut run: impl FnMut(Option<Check>) -> F,
    ) -> Result<T> {
        let mut check = Some(self.check());
        loop {
            match run(check).await {
                Err(error) if is_outdated(&error) => check = self.check_anew().await,
                outcome => return outcome,
            }
        }
    }
}

fn same(one: &Option<Arc<Limits>>, other: &Option<Arc<Limits>>) -> bool {
    one.as_ref().map(Arc::as_ptr) == other.as_ref().map(Arc::as_ptr)
}
