//! How many more tasks a session may take, where its type says how many it holds at once.
//!
//! Invariant: what a session holds and what its claims under way on this node may still take
//! together never exceed its slots. A session that claims through several nodes at the same moment
//! is not seen as a whole; its type is a size, not a right.

use super::{Engine, Result};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use windlass_domain::id::SessionId;
use windlass_domain::limit;
use windlass_store::session::Session;

/// What claims under way may still take, by session.
#[derive(Default)]
pub(super) struct UnderWay(Mutex<HashMap<SessionId, usize>>);

/// Slots that a claim has for itself until it is answered.
pub(super) struct Slots<'a> {
    under_way: &'a UnderWay,
    session: SessionId,
    pub(super) count: usize,
}

impl UnderWay {
    fn add(&self, session: SessionId, count: usize) -> usize {
        let mut under_way = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let others = under_way.entry(session).or_default();
        let before = *others;
        *others += count;
        before
    }

    fn remove(&self, session: SessionId, count: usize) {
        let mut under_way = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(others) = under_way.get_mut(&session) {
            *others -= count;
            if *others == 0 {
                under_way.remove(&session);
            }
        }
    }
}

impl Drop for Slots<'_> {
    fn drop(&mut self) {
        self.under_way.remove(self.session, self.count);
    }
}

impl Engine {
    /// How many of `wanted` tasks a session may take, for as long as the answer is kept; `None` if
    /// its type says nothing about it.
    pub(super) async fn slots(
        &self,
        session: &Session,
        wanted: usize,
    ) -> Result<Option<Slots<'_>>> {
        let Some(most) = limit::most_slots(session.worker_type.as_deref()) else { return Ok(None) };
        let most = usize::try_from(session.slots.min(most)).unwrap_or(1);
        let wanted = wanted.min(most);
        // First what is under way, then what is held: a claim that ends in between counts twice
        // rather than not at all.
        let under_way = &self.inner.under_way;
        let before = under_way.add(session.id, wanted);
        let mut slots = Slots { under_way, session: session.id, count: wanted };
        let held = self.inner.tasks.count_held(&session.id.to_string()).await?;
        let free = most.saturating_sub(before + held).min(wanted);
        under_way.remove(session.id, wanted - free);
        slots.count = free;
        Ok(Some(slots))
    }
}
