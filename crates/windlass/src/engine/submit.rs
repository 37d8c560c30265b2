//! Submitting, finishing, cancelling: the store's operations, and whoever must be told.

use std::collections::HashMap;
use windlass_domain::id::TaskId;
use windlass_domain::refusal::Refusal;
use windlass_domain::state::State;
use windlass_domain::task::{NewTask, When};
use windlass_domain::validate;
use windlass_store::error::Rejection;
use windlass_store::group::Outcome;
use windlass_store::store::Wake;
use windlass_store::task::{Finish, Finishing, Start, Submitted};

use super::held::Gone;
use super::{Engine, Result};

impl Engine {
    /// Submits tasks; each gets its own outcome. Concurrent calls share a transaction.
    pub async fn submit(&self, tasks: Vec<NewTask>) -> Vec<Outcome<Submitted>> {
        let queues = ready_queues(&tasks);
        self.keep_up_with_limits().await;
        let outcomes = self.inner.tasks.submit(tasks).await;
        let new = outcomes.iter().any(|o| o.as_ref().is_ok_and(|s| !s.duplicate));
        if new {
            self.tell_ready(queues);
        }
        outcomes
    }

    /// Submits all of the tasks or none; a refusal names the first task to blame.
    pub async fn submit_atomic(
        &self,
        tasks: Vec<NewTask>,
    ) -> std::result::Result<Vec<Submitted>, (usize, Rejection)> {
        let queues = ready_queues(&tasks);
        self.keep_up_with_limits().await;
        let submitted = self.inner.tasks.submit_atomic(tasks).await?;
        self.tell_ready(queues);
        Ok(submitted)
    }

    /// Begins claimed tasks.
    pub async fn begin(&self, items: Vec<Start>) -> Vec<Outcome<State>> {
        let outcomes = self.inner.tasks.start(items).await;
        self.tell_event();
        outcomes
    }

    /// A result as canonical text, of a task whose kind is not known yet.
    pub fn result(&self, value: &serde_json::Value) -> Result<String, Refusal> {
        validate::result_within(value, self.inner.options.inference_max_body)
    }

    /// Ends attempts, each with its own outcome: where the task stands now.
    pub async fn finish(&self, items: Vec<Finish>) -> Vec<Outcome<State>> {
        let mut refused = Vec::new();
        for (index, item) in items.iter().enumerate() {
            if let Err(rejection) = self.fits(item).await {
                refused.push((index, rejection));
            }
        }
        if refused.is_empty() {
            return self.finish_all(items).await;
        }
        let is_good = |index: &usize| refused.iter().all(|(bad, _)| bad != index);
        let good = items.into_iter().enumerate().filter(|(index, _)| is_good(index));
        let good: Vec<Finish> = good.map(|(_, item)| item).collect();
        let mut outcomes = self.finish_all(good).await;
        // In their order, so each place is right when it comes.
        for (index, rejection) in refused {
            outcomes.insert(index.min(outcomes.len()), Err(rejection));
        }
        outcomes
    }

    /// Only a result that is too large for some kind of task needs to know the task's.
    async fn fits(&self, item: &Finish) -> Outcome<()> {
        let most = self.inner.options.inference_max_body;
        let Finishing::Complete(Some(result)) = &item.how else { return Ok(()) };
        if validate::result_fits_all(result.len(), most) {
            return Ok(());
        }
        // An unknown task is told so by the store.
        match self.inner.tasks.show(item.task).await? {
            Some(task) => Ok(validate::result_fits(result.len(), task.profile.kind(), most)?),
            None => Ok(()),
        }
    }

    async fn finish_all(&self, items: Vec<Finish>) -> Vec<Outcome<State>> {
        let ids: Vec<_> = items.iter().map(|item| (item.task, item.lease)).collect();
        let outcomes = self.inner.tasks.finish(items).await;
        let mut back = false;
        for ((id, lease), outcome) in ids.into_iter().zip(&outcomes) {
            // A lease that is over takes no slot either. The log may have shown its end before the
            // stream was told of it, and shows it once.
            if outcome.is_ok() || outcome.as_ref().is_err_and(is_over) {
                self.inner.held.remove(id, Some(lease.digest()), Gone::Finished);
            }
            let Ok(state) = outcome else { continue };
            back |= state.is_claimable();
            self.inner.deltas.end(id, Some(lease.digest()));
            if state.is_terminal() {
                self.inner.ended(id);
            }
        }
        if back {
            self.inner.dispatcher.wake_everything();
            self.inner.store.tell(Wake::Everything);
        }
        self.tell_event();
        outcomes
    }

    /// Asks for the end of a task. A worker that holds it is told at once if it is here.
    pub async fn cancel(&self, id: TaskId, actor: &str, reason: Option<String>) -> Result<State> {
        let state = self.inner.tasks.cancel(id, actor, reason).await?;
        self.inner.held.remove(id, None, Gone::Cancelled);
        self.inner.ended(id);
        self.tell_event();
        Ok(state)
    }

    fn tell_ready(&self, queues: HashMap<String, usize>) {
        for (queue, count) in queues {
            // Other nodes need not look for what somebody here has already.
            let told = match self.inner.dispatcher.wake(&queue, count) {
                0 => Wake::Event,
                _ => Wake::Ready(queue),
            };
            self.inner.store.tell(told);
        }
        self.inner.log.look();
    }

    pub(super) fn tell_event(&self) {
        self.inner.log.look();
        self.inner.store.tell(Wake::Event);
    }
}

/// How many tasks of each queue can be claimed at once.
fn ready_queues(tasks: &[NewTask]) -> HashMap<String, usize> {
    let mut queues = HashMap::new();
    for task in tasks {
        if !matches!(task.run_at, When::After(ms) if ms > 0) {
            *queues.entry(task.queue.clone()).or_default() += 1;
        }
    }
    queues
}

/// Whether a refusal says that the lease it was asked with is nobody's any more.
fn is_over(rejection: &Rejection) -> bool {
    use Refusal::{AlreadyFinished, LeaseLost};
    matches!(rejection, Rejection::Refused(LeaseLost { .. } | AlreadyFinished { .. }))
}
