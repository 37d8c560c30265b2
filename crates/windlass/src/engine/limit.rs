//! Limits and pauses on one node: loaded at the start, bound to the store, and kept up to date.
//!
//! Invariant: a change is enforced at once on the node that made it, and on every other node within
//! a second. It never goes back to an older state unless the database does. Whoever waits for work
//! looks after each change: there may be room now.
//! Absent: counting. The store counts in the transactions of claims and submits.

use super::{Engine, Inner, Result};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use windlass_domain::limit::{self, Counts, Limits, Maxima, Pause, Rule, Scope};
use windlass_domain::refusal::Refusal;
use windlass_domain::task::NewTask;
use windlass_store::group::Outcome;
use windlass_store::limit::{Flow, KeptPause, KeptRule, LimitRules};
use windlass_store::task::Submitted;

/// How often a node looks for changes, with one read of one row; at once if the database has said
/// that there are some.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Older than this nothing is submitted or claimed under a rule without another look: the process
/// may have stood still. The store asks once more when it commits.
const STALE_AFTER: Duration = Duration::from_secs(1);

/// What this node enforces.
#[derive(Default)]
pub(super) struct Known(Mutex<Enforced>);

#[derive(Clone, Default)]
struct Enforced {
    flow: Arc<Flow>,
    limits: Arc<Limits>,
    /// When it had been read.
    read: Option<Instant>,
    /// When the last look that had an answer began.
    looked: Option<Instant>,
}

impl Known {
    fn is_stale(&self) -> bool {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.looked.is_none_or(|looked| looked.elapsed() > STALE_AFTER)
    }

    fn get(&self) -> Enforced {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What people have set.
    pub(super) fn flow(&self) -> Arc<Flow> {
        self.get().flow
    }
}

impl Engine {
    /// What people have set, as this node enforces it.
    pub fn flow(&self) -> Arc<Flow> {
        self.inner.limits.flow()
    }

    /// The same, ready to be asked.
    pub fn limits(&self) -> Arc<Limits> {
        self.inner.limits.get().limits
    }

    /// What people have set, and what is held of it now.
    pub async fn limits_in_use(&self) -> Result<(Flow, Counts)> {
        Ok(self.rules().read_with_use().await?)
    }

    /// Whether a submit of this task would be taken now: as a new one (`None`), or as one that was
    /// taken before. Nothing is written.
    pub async fn admission(&self, task: NewTask) -> Outcome<Option<Submitted>> {
        self.keep_up_with_limits().await;
        self.inner.tasks.admission(task).await
    }

    /// Sets a rule.
    pub async fn put_limit(&self, rule: Rule, actor: &str) -> Result<KeptRule> {
        rule.validate()?;
        let kept = self.rules().put(rule, actor).await?;
        self.learn_limits().await?;
        Ok(kept)
    }

    /// Sets all of a rule; what is left out is as in a new one.
    pub async fn replace_limit(
        &self,
        scope: Scope,
        name: Option<String>,
        said: Maxima,
        actor: &str,
    ) -> Result<KeptRule> {
        said.of(scope, name.clone(), None).validate()?;
        let kept = self.rules().replace(scope, name, said, actor).await?;
        self.learn_limits().await?;
        Ok(kept)
    }

    /// Changes what is said of a rule; what is left out stays as it is. Where there is none, one is
    /// made.
    pub async fn amend_limit(
        &self,
        scope: Scope,
        name: Option<String>,
        said: Maxima,
        actor: &str,
    ) -> Result<KeptRule> {
        // What stands there was valid, and each field is for itself.
        said.of(scope, name.clone(), None).validate()?;
        let kept = self.rules().amend(scope, name, said, actor).await?;
        self.learn_limits().await?;
        Ok(kept)
    }

    /// Removes a rule; gives what it said.
    pub async fn delete_limit(
        &self,
        scope: Scope,
        name: Option<String>,
        actor: &str,
    ) -> Result<KeptRule> {
        let gone = self.rules().delete(scope, name, actor).await?;
        self.learn_limits().await?;
        Ok(gone.ok_or(Refusal::Unknown { what: "limit" })?)
    }

    /// Stops something.
    pub async fn pause(&self, pause: Pause, actor: &str) -> Result<KeptPause> {
        pause.validate()?;
        let kept = self.rules().pause(pause, actor).await?;
        self.learn_limits().await?;
        Ok(kept)
    }

    /// Lets it go on; gives what had been stopped.
    pub async fn resume(
        &self,
        scope: Scope,
        name: Option<String>,
        actor: &str,
    ) -> Result<KeptPause> {
        limit::check_target(scope, name.as_deref())?;
        let gone = self.rules().resume(scope, name, actor).await?;
        self.learn_limits().await?;
        Ok(gone.ok_or(Refusal::Unknown { what: "pause" })?)
    }

    fn rules(&self) -> LimitRules {
        LimitRules::new(self.inner.store.clone())
    }

    /// Reads everything and enforces it.
    pub(super) async fn learn_limits(&self) -> Result<()> {
        let began = Instant::now();
        let flow = self.rules().read().await?;
        self.inner.enforce(flow, began);
        self.inner.looked_at_limits(began);
        Ok(())
    }

    /// Reads what has changed, if anything has.
    async fn look_at_limits(&self) -> Result<()> {
        let (began, known) = (Instant::now(), self.flow().version);
        if self.rules().version().await? == known {
            self.inner.looked_at_limits(began);
            return Ok(());
        }
        self.learn_limits().await
    }

    /// Sees to it that what is submitted or claimed now meets the rules of this second, also on a
    /// node that stood still. Where the database does not answer, whoever asks learns that itself.
    pub(super) async fn keep_up_with_limits(&self) {
        if self.inner.limits.is_stale()
            && let Err(error) = self.look_at_limits().await
        {
            tracing::warn!(%error, "limits were not read; the last known ones are enforced");
        }
    }

    pub(super) fn spawn_limits(&self) {
        let doubted = self.inner.tasks.rules_doubted();
        self.spawn_woken("limits", LOOK_EVERY, doubted, |inner| async move {
            let engine = Engine { inner };
            let looked = engine.look_at_limits().await;
            if let Err(error) = looked {
                tracing::warn!(%error, "limits were not read; the last known ones are enforced");
            }
        });
    }
}

impl Inner {
    fn looked_at_limits(&self, began: Instant) {
        self.tasks.rules_hold_until(began + STALE_AFTER);
        let mut known = self.limits.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.looked = known.looked.max(Some(began));
    }

    /// `began`: when this was about to be read.
    fn enforce(&self, flow: Flow, began: Instant) {
        let mut known = self.limits.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Two reads may end in another order than they began. One that began after the other had
        // ended and saw less saw a database that has gone back: a restored one, or a standby.
        let is_newer = flow.version > known.flow.version;
        let has_gone_back =
            flow.version < known.flow.version && known.read.is_none_or(|read| began > read);
        if !is_newer && !has_gone_back {
            return;
        }
        let limits = flow.limits();
        self.tasks.bind_version(limits.clone(), flow.version);
        (known.flow, known.limits) = (Arc::new(flow), Arc::new(limits));
        known.read = Some(Instant::now());
        drop(known);
        self.dispatcher.wake_everything();
    }
}
