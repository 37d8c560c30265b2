//! Deltas that a holder posts.
//!
//! The database is asked once an attempt whether the lease holds, told that text comes, and told
//! again now and then that the holder lives.
//!
//! Invariant: a delta is passed on only under a lease that holds, as far as this node knows. Of an
//! attempt that it has just handed out it knows that by itself, so readers get the first delta
//! before the database is asked. Should that say that the lease was lost, what they were given is
//! of a lost attempt, and they are told so like of any other.

use serde_json::Value as Json;
use std::sync::Arc;
use std::time::{Duration, Instant};
use uuid::Uuid;
use windlass_domain::id::{ChangeId, LeaseId, TaskId};
use windlass_domain::refusal::Refusal;
use windlass_domain::validate;
use windlass_store::delta::Source;
use windlass_store::error::{Error, Rejection};
use windlass_store::store::Wake;
use windlass_store::task::{Beat, BeginStream, StreamBegun};

use super::delta::{Holder, Text};
use super::{Engine, Result};

impl Engine {
    /// Takes deltas of the attempt that a lease holds, from an index on; returns the next index.
    /// Indexes that are there already are ignored, a gap is refused. A delta is a sign of life.
    pub async fn post_deltas(
        &self,
        task: TaskId,
        lease: LeaseId,
        from_offset: u64,
        deltas: Vec<Json>,
    ) -> Result<u64> {
        validate::batch("/deltas", deltas.len(), 0)?;
        let text = match self.inner.deltas.text(task) {
            Some(text) if text.is_under(lease) => text,
            _ => match self.inner.deltas.begin_handed(task, lease, from_offset) {
                Some(text) => text,
                None => self.begin_text(task, lease, from_offset).await?,
            },
        };
        if text.is_to_renew() {
            self.renew_by_delta(&text, lease).await?;
        }
        self.inner.deltas.make_room();
        let next = text.append(from_offset, deltas)?;
        // After the readers have it: these are commits.
        self.note(&text).await?;
        if let Some(session) = text.holder.and_then(|holder| holder.session)
            && let Err(error) = self.touch(session).await
        {
            // The lease decides; a provider that polls learns it by its next claim.
            tracing::debug!(%session, %error, "deltas came from a session that is gone");
        }
        if text.stands().ended {
            // It ended meanwhile: the database knows how.
            self.beat_once(task, lease, None).await?;
        }
        Ok(next)
    }

    /// The first delta that this node gets of an attempt that it knows nothing of: the database
    /// says whether the lease holds, and is told where the text is.
    async fn begin_text(&self, task: TaskId, lease: LeaseId, from: u64) -> Result<Arc<Text>> {
        let holder = match self.inner.held.holder(task, lease) {
            Some(known) => Some(known),
            None => self.inner.sessions.holder(task).await?,
        };
        let (session, asked_ms) = (holder.map(|(id, _)| id), holder.and_then(|(_, ms)| ms));
        if from > 0 {
            // Its beginning went to another node. Whoever has it goes on there, or begins here.
            self.beat_once(task, lease, asked_ms).await?;
            return Err(Refusal::DeltaGap { expected: 0, from }.into());
        }
        let begun = self.begin_stream(task, lease, asked_ms).await?;
        let holder = Holder { lease, lease_ms: begun.lease_ms, asked_ms, session };
        let text = self.inner.deltas.posted(task, begun.attempt, holder);
        let _ = text.noted.set(());
        let text = self.inner.deltas.begin(text);
        if !text.is_under(lease) {
            // A later attempt has begun meanwhile: the database refuses this one.
            self.beat_once(task, lease, asked_ms).await?;
            return Err(Error::Busy("the task was being changed; post again".into()).into());
        }
        self.tell_stream();
        Ok(text)
    }

    /// Says in the database that this node has the text, unless it was said. If the lease was lost,
    /// what readers were given is of a lost attempt: the text ends, and they are told.
    async fn note(&self, text: &Arc<Text>) -> Result<()> {
        let Some(holder) = text.holder else { return Ok(()) };
        let begin = || async {
            let begun = self.begin_stream(text.task, holder.lease, holder.asked_ms).await;
            if let Err(super::Error::Refused(_)) = &begun {
                self.inner.deltas.remove(text);
            }
            begun.map(|_| self.tell_stream())
        };
        text.noted.get_or_try_init(begin).await?;
        Ok(())
    }

    async fn begin_stream(
        &self,
        task: TaskId,
        lease: LeaseId,
        lease_ms: Option<i64>,
    ) -> Result<StreamBegun> {
        let (node, change) = (self.inner.node, ChangeId(Uuid::now_v7()));
        let item = BeginStream { task, lease, lease_ms, node, change };
        Ok(self.inner.tasks.begin_stream(item).await?)
    }

    fn tell_stream(&self) {
        self.tell_event();
        self.inner.store.tell(Wake::Stream);
    }

    async fn renew_by_delta(&self, text: &Arc<Text>, lease: LeaseId) -> Result<()> {
        let lease_ms = text.holder.map(|holder| holder.lease_ms);
        match self.beat_once(text.task, lease, lease_ms).await {
            Ok(()) => Ok(()),
            Err(error @ super::Error::Refused(_)) => {
                self.inner.deltas.remove(text);
                Err(error)
            }
            // The lease holds for a while without it; the next delta tries again.
            Err(error) => {
                tracing::warn!(task = %text.task, %error, "a lease was not renewed by a delta");
                let earlier = Instant::now().checked_sub(Duration::from_secs(3_600));
                text.signs().renewed = earlier.unwrap_or_else(Instant::now);
                Ok(())
            }
        }
    }

    async fn beat_once(&self, task: TaskId, lease: LeaseId, lease_ms: Option<i64>) -> Result<()> {
        let beat = Beat {
            task,
            lease,
            lease_ms,
            checkpoint: None,
            progress: None,
            actor: "delta".into(),
            change: ChangeId(Uuid::now_v7()),
        };
        match self.inner.tasks.heartbeat(vec![beat]).await.pop() {
            Some(Err(Rejection::Refused(refusal))) => Err(refusal.into()),
            Some(Err(Rejection::Failed(error))) => Err(error.into()),
            Some(Ok(_)) | None => Ok(()),
        }
    }

    /// Ends texts whose attempts are over, should nobody have told.
    pub(super) async fn check_texts(&self) {
        self.inner.deltas.forget_ended();
        let quiet = self.inner.deltas.quiet();
        if quiet.is_empty() {
            return;
        }
        let tasks: Vec<TaskId> = quiet.iter().map(|text| text.task).collect();
        let found = match self.inner.sources.find(tasks).await {
            Ok(found) => found,
            Err(error) => return tracing::debug!(%error, "nobody knows which texts are over"),
        };
        for text in quiet {
            // Its provider may have gone on at another node.
            let is_here = |source: &Source| {
                (source.task, source.attempt) == (text.task, text.attempt)
                    && source.node == self.inner.node
            };
            if found.iter().any(|source| source.is_held && is_here(source)) {
                text.signs().seen = Instant::now();
            } else {
                self.inner.deltas.remove(&text);
            }
        }
    }
}
