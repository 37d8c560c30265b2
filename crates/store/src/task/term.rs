//! Until when the rules of this node are known to be true: somebody reads them again and again, and
//! says so.
//!
//! Invariant: what was counted by rules is committed while they are the node's rules and their term
//! lasts. A process may stand still in the middle of a transaction, or wait there for a lock; what
//! people have changed meanwhile is in force for that transaction as well. Asking costs no round
//! trip: a clock is read before COMMIT is sent; and where the server may let that flight wait for a
//! lock, it compares the version of the rules behind the lock.

use super::lane::Lanes;
use crate::error::{BEHIND, Error, OUTDATED, Result};
use crate::tx::Check;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};
use windlass_domain::limit::Limits;

/// For so long a transaction waits for rules that are known to be true. If nobody can read them the
/// last known ones are enforced, unless the database itself has called them old.
const PATIENCE: Duration = Duration::from_secs(1);

/// How often somebody tries by rules that are others at its end, before it says that it is busy.
pub(super) const TRIES: usize = 8;

/// See the module.
#[derive(Default)]
pub(super) struct Term {
    /// `None` if nobody has ever said.
    until: watch::Sender<Option<Instant>>,
    doubted: Arc<Notify>,
}

fn lasts(until: &Option<Instant>) -> bool {
    until.is_none_or(|until| Instant::now() < until)
}

impl Term {
    pub(super) fn extend(&self, until: Instant) {
        self.until.send_modify(|known| *known = (*known).max(Some(until)));
    }

    /// Waits until somebody has read the rules; whether they did.
    async fn read_anew(&self) -> bool {
        let mut term = self.until.subscribe();
        self.doubted.notify_one();
        let read = tokio::time::timeout(PATIENCE, term.changed()).await;
        read.is_ok_and(|told| told.is_ok())
    }

    pub(super) fn doubted(&self) -> Arc<Notify> {
        Arc::clone(&self.doubted)
    }

    fn lasts(&self) -> bool {
        lasts(&self.until.borrow())
    }

    /// Waits until it lasts; whether it does.
    async fn renewed(&self) -> bool {
        let mut term = self.until.subscribe();
        tokio::time::timeout(PATIENCE, term.wait_for(lasts)).await.is_ok()
    }
}

/// Whether a transaction must be tried again by the rules that are in force now.
pub(super) fn is_outdated(error: &Error) -> bool {
    matches!(error, Error::Busy(detail) if detail == OUTDATED) || is_behind(error)
}

/// Whether the database has said so, which nobody here may know of yet.
pub(super) fn is_behind(error: &Error) -> bool {
    matches!(error, Error::Busy(detail) if detail == BEHIND)
}

impl Lanes {
    /// For a transaction that counts by the rules of now.
    pub(super) fn check(self: &Arc<Self>) -> Check {
        self.check_of(false)
    }

    fn check_of(self: &Arc<Self>, last_try: bool) -> Check {
        let (lanes, limits) = (Arc::clone(self), self.limits());
        Arc::new(move || {
            // Where every look at the rules takes long, no transaction would ever be in time.
            let are_known = last_try || lanes.term.lasts();
            match are_known && same(&limits, &lanes.limits()) {
                true => Ok(()),
                false => Err(Error::Busy(OUTDATED.into())),
            }
        })
    }

    /// The same for its next try, when the rules are known again; `None` if nobody can read them:
    /// the last known ones are enforced then. What the database itself calls old never is.
    pub(super) async fn check_anew(
        self: &Arc<Self>,
        is_behind: bool,
        tries_left: usize,
    ) -> Result<Option<Check>> {
        let check = || self.check_of(tries_left <= 1);
        match is_behind {
            false => Ok(self.term.renewed().await.then(check)),
            true if self.term.read_anew().await => Ok(Some(check())),
            true => Err(Error::Busy(BEHIND.into())),
        }
    }

    /// Runs a transaction until the rules that it counts by are in force when it commits.
    pub(super) async fn by_rules<T, F: Future<Output = Result<T>>>(
        self: &Arc<Self>,
        mut run: impl FnMut(Option<Check>) -> F,
    ) -> Result<T> {
        let mut check = Some(self.check());
        for tries_left in (1..TRIES).rev() {
            match run(check).await {
                Err(error) if is_outdated(&error) => {
                    check = self.check_anew(is_behind(&error), tries_left).await?;
                }
                outcome => return outcome,
            }
        }
        run(check).await
    }
}

fn same(one: &Option<Arc<Limits>>, other: &Option<Arc<Limits>>) -> bool {
    one.as_ref().map(Arc::as_ptr) == other.as_ref().map(Arc::as_ptr)
}
