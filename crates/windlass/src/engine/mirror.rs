//! Texts between nodes: a watcher gets deltas that a provider posts to another node.
//!
//! The watcher's node asks the node that has the text, which answers with all of it so far and then
//! with what comes, by index. Where it cannot be reached, it is asked through the database for
//! chunks: the deltas of a tenth of a second in a row, written only while somebody wants them.
//!
//! Invariant: a copy is fed by one task of this node, however many watch here, and ends after the
//! last delta. Absent: how a node is reached; the server brings that ([`Peers`]).

use futures_util::{Stream, StreamExt};
use serde_json::Value as Json;
use std::collections::HashSet;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use windlass_domain::id::TaskId;
use windlass_store::delta::{Source, WANTED_MS};
use windlass_store::statement::Dialect;
use windlass_store::store::Wake;

use super::delta::Text;
use super::{Engine, Phase};

/// How long deltas are collected for a chunk, and how often chunks are looked for.
const CHUNK: Duration = Duration::from_millis(100);
/// How long a node that says nothing more is waited for after the end of the attempt.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// How often it is asked whether a copy is still of use.
const LOOK: Duration = Duration::from_secs(1);
/// Looks for sources follow each other no faster.
const PAUSE: Duration = Duration::from_millis(5);

/// What a node that has a text tells one that has not.
#[derive(Clone, Debug, PartialEq)]
pub enum Piece {
    /// Deltas, from an index on.
    Deltas {
        /// The index of the first.
        from: u64,
        /// One after the other.
        deltas: Vec<Json>,
    },
    /// The attempt is over, and nothing follows.
    Ended,
}

/// Pieces as they come, or why none come any more.
pub type Pieces = Pin<Box<dyn Stream<Item = Result<Piece, String>> + Send>>;

/// What came of asking a node.
enum Asked {
    /// It has said all that it has, or nobody wants to hear more.
    Told,
    /// It cannot be asked, or not any more.
    Unreachable,
}

/// Reaches other nodes.
pub trait Peers: Send + Sync + 'static {
    /// Asks the node at this URL for an attempt's deltas from an index on.
    fn subscribe(&self, url: &str, task: TaskId, attempt: i32, from: u64) -> Pieces;
}

/// What this node knows of texts elsewhere.
#[derive(Default)]
pub(super) struct Mirrors {
    peers: OnceLock<Arc<dyn Peers>>,
    look: Notify,
    /// Attempts whose deltas this node writes as chunks.
    chunked: Mutex<HashSet<(TaskId, i32)>>,
}

impl Mirrors {
    /// A text may have begun elsewhere, or be wanted elsewhere.
    pub(super) fn look(&self) {
        self.look.notify_one();
    }
}

impl Engine {
    /// Reaches other nodes from now on. Said once, by the server.
    pub fn reach_nodes(&self, peers: Arc<dyn Peers>) {
        let _ = self.inner.mirrors.peers.set(peers);
    }

    /// The text of an attempt that is here, for another node: all from an index on, then what
    /// comes. `None` if it is not here.
    pub fn text_of(
        &self,
        task: TaskId,
        attempt: i32,
        from: u64,
    ) -> Option<impl Stream<Item = Piece> + Send + use<>> {
        let text = self.inner.deltas.own(task, attempt)?;
        let phase = self.inner.phase.subscribe();
        Some(futures_util::stream::unfold(Some((text, from, phase)), |state| async move {
            let (text, from, mut phase) = state?;
            let mut grown = text.grown();
            loop {
                let (page, stands) = text.read(from);
                if !page.is_empty() {
                    let next = from + page.len() as u64;
                    let deltas = page.iter().map(|delta| Json::clone(delta)).collect();
                    let piece = Piece::Deltas { from, deltas };
                    return Some((piece, Some((text, next, phase))));
                }
                if stands.ended {
                    return Some((Piece::Ended, None));
                }
                tokio::select! {
                    _ = grown.wait_for(|grown| grown.ended || grown.next > from) => {}
                    _ = phase.wait_for(|phase| *phase != Phase::Running) => return None,
                }
            }
        }))
    }

    /// Looks for texts elsewhere that are watched here, and for texts here that are wanted
    /// elsewhere. An embedded database has one node.
    pub(super) fn spawn_mirrors(&self) {
        if self.inner.store.dialect() == Dialect::Sqlite {
            return;
        }
        let weak = Arc::downgrade(&self.inner);
        let poll = self.inner.options.poll;
        let mut phase = self.inner.phase.subscribe();
        tokio::spawn(async move {
            loop {
                let Some(inner) = weak.upgrade() else { return };
                let engine = Engine { inner };
                engine.find_sources().await;
                engine.find_wishes().await;
                tokio::select! {
                    () = engine.inner.mirrors.look.notified() => {}
                    () = tokio::time::sleep(poll) => {}
                    _ = phase.wait_for(|phase| *phase == Phase::Stopped) => return,
                }
                drop(engine);
                tokio::time::sleep(PAUSE).await;
            }
        });
    }

    async fn find_sources(&self) {
        let watched = self.inner.deltas.without_text();
        if watched.is_empty() {
            return;
        }
        match self.inner.sources.find(watched).await {
            Ok(found) => {
                let elsewhere = found.into_iter().filter(|source| source.node != self.inner.node);
                elsewhere.for_each(|source| self.copy(source));
            }
            Err(error) => tracing::debug!(%error, "nobody knows where texts are"),
        }
    }

    /// Fetches the text of an attempt that ended so fast that no copy was begun.
    pub(super) async fn copy_last(&self, task: TaskId, attempt: i32) {
        if self.inner.store.dialect() == Dialect::Sqlite {
            return;
        }
        let found = self.inner.sources.find(vec![task]).await.unwrap_or_default();
        let elsewhere =
            |source: &Source| source.attempt == attempt && source.node != self.inner.node;
        found.into_iter().filter(elsewhere).for_each(|source| self.copy(source));
    }

    fn copy(&self, source: Source) {
        let text = Text::copy(source.task, source.attempt);
        if !Arc::ptr_eq(&self.inner.deltas.begin(Arc::clone(&text)), &text) {
            return;
        }
        let engine = self.clone();
        tokio::spawn(async move {
            engine.chase(&text, source).await;
            engine.inner.deltas.remove(&text);
        });
    }

    /// Feeds a copy until the attempt is over, and goes after the text when its provider goes on at
    /// another node.
    async fn chase(&self, text: &Text, mut source: Source) {
        loop {
            let next = match self.copy_from_node(text, &source).await {
                Asked::Told => self.next_source(text, &source).await,
                Asked::Unreachable => self.copy_from_chunks(text, &source).await,
            };
            match next {
                Some(next) if !self.is_vain(text) => source = next,
                _ => return,
            }
        }
    }

    /// Where the text is, after its node has said that there is no more of it; `None` if that is
    /// all. A node that was started anew at the same address says so of an attempt that goes on:
    /// whoever asked again at once would be told the same, again and again.
    async fn next_source(&self, text: &Text, told: &Source) -> Option<Source> {
        let found = self.inner.sources.find(vec![text.task]).await.unwrap_or_default();
        let found = found.into_iter().find(|source| source.attempt == text.attempt)?;
        if found.node != told.node {
            return Some(found);
        }
        if !found.is_held {
            return None;
        }
        let mut grown = text.grown();
        let ended = grown.wait_for(|grown| grown.ended);
        let _ = tokio::time::timeout(LOOK, ended).await;
        Some(found)
    }

    /// Whether a copy is of use to nobody any more.
    fn is_vain(&self, text: &Text) -> bool {
        // It ends before we say so when the deltas come to this node by themselves.
        text.stands().ended
            || !self.inner.deltas.is_watched(text.task)
            || *self.inner.phase.borrow() != Phase::Running
    }

    /// Feeds a copy by asking the node that has the text.
    async fn copy_from_node(&self, text: &Text, source: &Source) -> Asked {
        let (Some(peers), Some(url)) = (self.inner.mirrors.peers.get(), &source.url) else {
            return Asked::Unreachable;
        };
        let mut pieces = peers.subscribe(url, text.task, text.attempt, text.stands().next);
        loop {
            let piece = tokio::select! {
                piece = pieces.next() => piece,
                () = tokio::time::sleep(LOOK) => {
                    if self.is_vain(text) {
                        return Asked::Told;
                    }
                    continue;
                }
            };
            match piece {
                Some(Ok(Piece::Deltas { from, deltas })) => {
                    if let Err(error) = text.append(from, deltas) {
                        tracing::warn!(task = %text.task, %error, "a node told deltas with a gap");
                        return Asked::Unreachable;
                    }
                    if self.is_vain(text) {
                        return Asked::Told;
                    }
                }
                Some(Ok(Piece::Ended)) => return Asked::Told,
                Some(Err(error)) => {
                    tracing::debug!(task = %text.task, url, error, "a node cannot be asked");
                    return Asked::Unreachable;
                }
                None => return Asked::Unreachable,
            }
        }
    }

    /// Feeds a copy from the chunks that the node with the text writes, until its end, or until
    /// another node has the text, which is given.
    async fn copy_from_chunks(&self, text: &Text, from: &Source) -> Option<Source> {
        let (task, attempt) = (text.task, text.attempt);
        let sources = &self.inner.sources;
        let mut wanted: Option<Instant> = None;
        let mut over: Option<Instant> = None;
        let mut overlaps: Option<Instant> = None;
        loop {
            let still = Duration::from_millis(WANTED_MS as u64) / 2;
            if wanted.is_none_or(|at| at.elapsed() >= still) {
                wanted = Some(Instant::now());
                // Nobody has the text any more.
                if matches!(sources.want(task, attempt).await, Ok(false)) {
                    return None;
                }
                self.inner.store.tell(Wake::Stream);
            }
            self.take_chunks(text, &mut overlaps).await;
            if self.is_vain(text) {
                return None;
            }
            if let Ok(found) = sources.find(vec![task]).await {
                let source = found.into_iter().find(|source| source.attempt == attempt)?;
                let total = source.total;
                if total.is_some_and(|total| text.stands().next >= total) {
                    return None;
                }
                if source.node != from.node {
                    return Some(source);
                }
                // Its last deltas may be on their way; a node that died has no more words.
                if !source.is_held && over.get_or_insert_with(Instant::now).elapsed() >= LAST_WORDS
                {
                    return None;
                }
            }
            tokio::time::sleep(CHUNK).await;
        }
    }

    /// Adds what the chunks have more. Chunks need not begin where this copy stands: it may have
    /// had its beginning from a node that cannot be asked any more, and a provider that goes on at
    /// another node has its text cut anew. So, when there is a gap, and now and then when nothing
    /// comes, those are looked at that begin earlier (`overlaps`: when they were last).
    async fn take_chunks(&self, text: &Text, overlaps: &mut Option<Instant>) {
        let sources = &self.inner.sources;
        let (task, attempt, from) = (text.task, text.attempt, text.stands().next);
        let more = sources.chunks(task, attempt, from).await.unwrap_or_default();
        let is_gap = more.first().is_some_and(|(at, _)| *at > from);
        let is_due = more.is_empty() && overlaps.is_none_or(|at| at.elapsed() >= LOOK);
        if from > 0 && (is_gap || is_due) {
            *overlaps = Some(Instant::now());
            let before = sources.chunks_before(task, attempt, from).await.unwrap_or_default();
            // Earlier than that, and behind a gap: neither tells anything.
            before.into_iter().for_each(|(at, deltas)| drop(text.append(at, deltas)));
        }
        for (at, deltas) in more {
            if text.append(at, deltas).is_err() {
                break;
            }
        }
    }

    /// Writes chunks of texts that a node wants which cannot ask.
    async fn find_wishes(&self) {
        if !self.inner.deltas.has_own() {
            return;
        }
        let wanted = match self.inner.sources.wanted(self.inner.node).await {
            Ok(wanted) => wanted,
            Err(error) => return tracing::debug!(%error, "nobody knows which chunks are wanted"),
        };
        for (task, attempt) in wanted {
            let Some(text) = self.inner.deltas.own(task, attempt) else { continue };
            if self.chunked().insert((task, attempt)) {
                let engine = self.clone();
                tokio::spawn(async move {
                    if let Err(error) = engine.write_chunks(&text).await {
                        tracing::warn!(%task, %error, "deltas were not passed on as chunks");
                    }
                    engine.chunked().remove(&(task, attempt));
                });
            }
        }
    }

    fn chunked(&self) -> std::sync::MutexGuard<'_, HashSet<(TaskId, i32)>> {
        self.inner.mirrors.chunked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Once begun, to the end: whoever wanted them may come again.
    async fn write_chunks(&self, text: &Text) -> windlass_store::error::Result<()> {
        let sources = &self.inner.sources;
        let mut grown = text.grown();
        let mut from = 0;
        loop {
            let (page, stands) = text.read(from);
            if !page.is_empty() {
                let deltas: Vec<&Json> = page.iter().map(|delta| &**delta).collect();
                let deltas = serde_json::to_string(&deltas).unwrap_or_default();
                sources.put_chunk(text.task, text.attempt, from, deltas).await?;
                from += page.len() as u64;
                if from < stands.next {
                    continue;
                }
            } else if stands.ended {
                return sources.end(text.task, text.attempt, self.inner.node, from).await;
            }
            let ended = grown.wait_for(|grown| grown.ended);
            let _ = tokio::time::timeout(CHUNK, ended).await;
        }
    }
}
