//! Watching a task: its deltas while they come, and its end.
//!
//! Invariant: a watcher is given every delta of the attempt that ends the task, once and in order;
//! of a lost attempt it may have been given some, and is told so before anything else comes.
//! Absent: a copy of the text for each watcher. All read the same buffer.

use futures_util::Stream;
use serde_json::Value as Json;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::watch;
use windlass_domain::delta::{Place, Reader};
use windlass_domain::id::TaskId;
use windlass_store::task::Task;

use super::delta::Text;
use super::{Engine, Error, Phase, Result};

/// What a watcher sees.
#[derive(Clone, Debug, PartialEq)]
pub enum Watched {
    /// A piece of the text.
    Delta {
        /// The attempt it is of.
        attempt: i32,
        /// Its place, from 0.
        index: u64,
        /// As its provider posted it.
        value: Arc<Json>,
    },
    /// The attempt whose deltas were given so far is lost: forget them, the text begins anew.
    Reset {
        /// The lost attempt.
        attempt: i32,
    },
    /// The task has ended. Nothing follows.
    Finished(Box<Task>),
}

/// A task being watched. It ends after [`Watched::Finished`]; without it when the node shuts down
/// or its database does not answer: watch again, on any node, from where it stood.
pub type Watching = Pin<Box<dyn Stream<Item = Watched> + Send>>;

impl Engine {
    /// Watches a task from the beginning of its running attempt's text.
    pub async fn watch(&self, task: TaskId) -> Result<Watching> {
        self.watch_from(task, None).await
    }

    /// Watches a task after a place up to which the watcher was given the text before.
    pub async fn watch_from(&self, task: TaskId, after: Option<Place>) -> Result<Watching> {
        // Subscribe before the query: what comes between the two would otherwise be missed.
        let subscription = Subscription::new(self, task);
        self.inner.log.needed();
        let first = self.look_at(task).await?.task;
        // Within an attempt its text decides, and that may have to be sent anew.
        if after.is_some_and(|place| place.attempt > first.attempt) {
            let told = format!("the task has come to attempt {}", first.attempt);
            return Err(Error::CursorAhead(told));
        }
        let was_alive = !first.status.is_terminal();
        let reader = Reader::at(after);
        Ok(Watcher { was_alive, seen: Some(first), reader, ..Watcher::new(subscription) }.stream())
    }

    /// Watches a task that is about to be submitted here, under an id that nobody else knows yet;
    /// so nothing has to be read. Said before the submit, and of use only if the task was new.
    pub fn watch_new(&self, task: TaskId) -> Watching {
        let subscription = Subscription::new(self, task);
        self.inner.log.needed();
        Watcher { is_new: true, ..Watcher::new(subscription) }.stream()
    }

    /// Of how many running attempts this node has the text.
    pub fn open_texts(&self) -> usize {
        self.inner.deltas.texts()
    }

    /// How many watch tasks on this node.
    pub fn watchers(&self) -> usize {
        self.inner.deltas.watchers()
    }
}

/// Ends with its watcher.
struct Subscription {
    engine: Engine,
    task: TaskId,
    newest: Option<watch::Receiver<Option<Arc<Text>>>>,
}

impl Subscription {
    fn new(engine: &Engine, task: TaskId) -> Subscription {
        let newest = Some(engine.inner.deltas.watch(task));
        Subscription { engine: engine.clone(), task, newest }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.newest = None;
        self.engine.inner.deltas.unwatch(self.task);
    }
}

struct Watcher {
    subscription: Subscription,
    reader: Reader,
    /// What is being read.
    text: Option<Arc<Text>>,
    /// The task as it was just read.
    seen: Option<Task>,
    ready: VecDeque<Watched>,
    /// The task had not ended when it was first seen: its last text is looked for everywhere.
    was_alive: bool,
    /// It was submitted after the watch had begun, and nobody has told of anything since.
    is_new: bool,
    finished: bool,
}

impl Watcher {
    fn new(subscription: Subscription) -> Watcher {
        Watcher {
            subscription,
            reader: Reader::at(None),
            text: None,
            seen: None,
            ready: VecDeque::new(),
            was_alive: true,
            is_new: false,
            finished: false,
        }
    }

    fn stream(self) -> Watching {
        let next = |mut watcher: Watcher| async move {
            let watched = watcher.next().await?;
            Some((watched, watcher))
        };
        Box::pin(futures_util::stream::unfold(self, next))
    }

    async fn next(&mut self) -> Option<Watched> {
        loop {
            if let Some(watched) = self.ready.pop_front() {
                return Some(watched);
            }
            if self.finished {
                return None;
            }
            match self.text.clone() {
                Some(text) => self.read(&text).await?,
                None => self.look().await?,
            }
        }
    }

    /// Takes what the text has more, or waits for it. `None`: this node does not go on.
    async fn read(&mut self, text: &Arc<Text>) -> Option<()> {
        let mut grown = text.grown();
        let next = self.reader.next();
        let (page, stands) = text.read(next);
        if !page.is_empty() {
            let attempt = text.attempt;
            for (index, value) in (next..).zip(page) {
                self.ready.push_back(Watched::Delta { attempt, index, value });
                self.reader.gave(attempt, index + 1);
            }
            return Some(());
        }
        if stands.ended {
            self.text = None;
            return Some(());
        }
        let engine = &self.subscription.engine;
        let mut phase = engine.inner.phase.subscribe();
        tokio::select! {
            _ = grown.wait_for(|grown| grown.ended || grown.next > next) => Some(()),
            _ = phase.wait_for(|phase| *phase != Phase::Running) => None,
        }
    }

    /// Looks where the task stands, and waits until there is a reason to look again.
    async fn look(&mut self) -> Option<()> {
        let engine = self.subscription.engine.clone();
        let task = self.subscription.task;
        let newest = self.subscription.newest.as_mut()?;
        // What was seen before the last reason to look is old, unless it was the end.
        if newest.has_changed().unwrap_or(true) {
            self.seen.take_if(|seen| !seen.status.is_terminal());
            self.is_new = false;
        }
        let text = newest.borrow_and_update().clone();
        let is_mine =
            |text: &&Arc<Text>| !text.stands().ended && !self.reader.has_lost(text.attempt);
        if let Some(text) = text.as_ref().filter(is_mine) {
            self.go_on_with(text);
            return Some(());
        }
        if std::mem::take(&mut self.is_new) {
            return self.wait().await;
        }
        let found = match self.seen.take() {
            Some(seen) => seen,
            None => {
                // A text that begins meanwhile is not kept waiting for the answer.
                let looked = tokio::select! {
                    looked = engine.look_at(task) => looked,
                    _ = newest.changed() => return Some(()),
                };
                match looked {
                    Ok(found) => found.task,
                    Err(error) => {
                        tracing::warn!(%task, %error, "a watcher was let go");
                        return None;
                    }
                }
            }
        };
        if found.status.is_terminal() {
            let is_there = text.as_ref().is_some_and(|text| text.attempt == found.attempt);
            if std::mem::take(&mut self.was_alive) && !is_there {
                engine.copy_last(task, found.attempt).await;
                self.seen = Some(found);
            } else {
                self.finish(found, text);
            }
            return Some(());
        }
        self.meet(found.status.is_held().then_some(found.attempt));
        if !self.ready.is_empty() {
            return Some(());
        }
        if found.status.is_held() {
            // Its text may be on another node.
            engine.inner.mirrors.look();
        }
        self.wait().await
    }

    /// Until there is a reason to look; `None`: this node does not go on.
    async fn wait(&mut self) -> Option<()> {
        let mut phase = self.subscription.engine.inner.phase.subscribe();
        let newest = self.subscription.newest.as_mut()?;
        tokio::select! {
            _ = newest.changed() => Some(()),
            _ = phase.wait_for(|phase| *phase != Phase::Running) => None,
        }
    }

    fn go_on_with(&mut self, text: &Arc<Text>) {
        self.meet(Some(text.attempt));
        self.text = Some(Arc::clone(text));
    }

    /// The task has ended. A watcher that was slower than its last attempt reads that first.
    fn finish(&mut self, task: Task, text: Option<Arc<Text>>) {
        self.meet(Some(task.attempt));
        let text = text.filter(|text| text.attempt == task.attempt);
        if let Some(text) = text.filter(|text| text.stands().next > self.reader.next()) {
            self.go_on_with(&text);
            self.seen = Some(task);
            return;
        }
        self.ready.push_back(Watched::Finished(Box::new(task)));
        self.finished = true;
    }

    /// The text is that of this attempt now, or of none.
    fn meet(&mut self, attempt: Option<i32>) {
        if let Some(attempt) = self.reader.meet(attempt) {
            self.ready.push_back(Watched::Reset { attempt });
        }
    }
}
