//! The log of all transitions: one tail a node, for everybody who follows it.
//!
//! Invariant: readers see every entry once, in commit order. One that falls behind reads the
//! database again from where it stood; it can neither block the tail nor lose anything.
//! Absent: nobody follows, nothing is read.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::broadcast::error::TryRecvError;
use tokio::sync::{Notify, broadcast};
use windlass_domain::decide::is_not_told;
use windlass_domain::id::TaskId;
use windlass_domain::state::Event;
use windlass_store::task::{Filter, History, Position};

use super::held::Gone;
use super::sieve::Sieve;
use super::{Engine, Error, Inner, Phase, Result};

/// How many entries are read at once.
const PAGE: i64 = 1_000;
/// The tail looks at most so often, whatever wakes it: what came meanwhile comes together.
const PAUSE: Duration = Duration::from_millis(5);
/// After a wake-up that showed nothing: what was told may still wait for an older transaction.
const AGAIN: [Duration; 8] = [
    Duration::from_millis(10),
    Duration::from_millis(40),
    Duration::from_millis(150),
    Duration::from_millis(300),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
];

/// One transition, with its place in the log.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Where it stands; a reader resumes after it.
    pub position: Position,
    /// What happened.
    pub history: History,
}

/// What the tail tells those who follow.
#[derive(Clone)]
enum Told {
    Entry(Arc<Entry>),
    /// The tail begins anew. What was committed before that, it will not tell: a follower that had
    /// read the database a moment earlier would miss it.
    Begins,
}

pub(super) struct Log {
    entries: broadcast::Sender<Told>,
    followers: Arc<AtomicUsize>,
    look: Arc<Notify>,
}

impl Log {
    pub(super) fn new(entries: usize) -> Log {
        let (entries, _) = broadcast::channel(entries.max(16));
        Log { entries, followers: Arc::default(), look: Arc::new(Notify::new()) }
    }

    /// There may be something new.
    pub(super) fn look(&self) {
        self.look.notify_one();
    }

    /// Somebody begins to depend on the tail.
    pub(super) fn needed(&self) {
        self.look.notify_one();
    }
}

/// What a follower lost: nothing, but it must be said why it ends.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Lost {
    /// The engine stops.
    #[error("the node is shutting down; follow another one from the last event")]
    ShuttingDown,
    /// The database gave no answer.
    #[error(transparent)]
    Store(#[from] windlass_store::error::Error),
}

/// A reader of the log.
pub struct Follower {
    engine: Engine,
    entries: broadcast::Receiver<Told>,
    /// Read from the database and not looked at yet.
    page: VecDeque<Arc<Entry>>,
    /// Up to where the log was read.
    at: Position,
    /// Whether everything up to what `entries` shows was read.
    caught_up: bool,
    sieve: Option<Sieve>,
    /// What fits and was not given yet.
    fitting: VecDeque<Arc<Entry>>,
    given: Position,
    _counted: Counted,
}

struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Follower {
    /// Where this reader stands.
    pub fn position(&self) -> Position {
        self.given
    }

    /// The next entry that fits; waits for it.
    pub async fn next(&mut self) -> Result<Arc<Entry>, Lost> {
        while self.fitting.is_empty() {
            let mut some = vec![self.read().await?];
            if let Some(mut sieve) = self.sieve.take() {
                // As many as are there, so that the database is asked once for all of them.
                while let Some(entry) = (some.len() < PAGE as usize).then(|| self.ready()).flatten()
                {
                    some.push(entry);
                }
                let fitting = sieve.fitting(&self.engine.inner.tasks, some).await;
                self.sieve = Some(sieve);
                some = fitting?;
            }
            self.fitting.extend(some);
        }
        let Some(entry) = self.fitting.pop_front() else { return Err(Lost::ShuttingDown) };
        self.given = entry.position;
        Ok(entry)
    }

    /// The next entry if it is here already.
    fn ready(&mut self) -> Option<Arc<Entry>> {
        if let Some(entry) = self.page.pop_front() {
            self.at = entry.position;
            return Some(entry);
        }
        while self.caught_up {
            match self.entries.try_recv() {
                Ok(Told::Entry(entry)) if entry.position > self.at => {
                    self.at = entry.position;
                    return Some(entry);
                }
                Ok(Told::Entry(_)) => {}
                Ok(Told::Begins) | Err(TryRecvError::Lagged(_)) => self.caught_up = false,
                Err(TryRecvError::Empty | TryRecvError::Closed) => return None,
            }
        }
        None
    }

    /// The next entry of all; waits for it.
    async fn read(&mut self) -> Result<Arc<Entry>, Lost> {
        let mut phase = self.engine.inner.phase.subscribe();
        loop {
            if let Some(entry) = self.ready() {
                return Ok(entry);
            }
            if !self.caught_up {
                let read = self.engine.inner.tasks.tail(self.at, PAGE).await?;
                self.caught_up = (read.len() as i64) < PAGE;
                self.page.extend(read.into_iter().map(entry));
                continue;
            }
            let received = tokio::select! {
                received = self.entries.recv() => received,
                _ = phase.wait_for(|phase| *phase != Phase::Running) => {
                    return Err(Lost::ShuttingDown);
                }
            };
            match received {
                Ok(Told::Entry(entry)) if entry.position > self.at => {
                    self.at = entry.position;
                    return Ok(entry);
                }
                Ok(Told::Entry(_)) => {}
                Ok(Told::Begins) => self.caught_up = false,
                Err(broadcast::error::RecvError::Lagged(_)) => self.caught_up = false,
                Err(broadcast::error::RecvError::Closed) => return Err(Lost::ShuttingDown),
            }
        }
    }
}

fn entry((position, history): (Position, History)) -> Arc<Entry> {
    Arc::new(Entry { position, history })
}

impl Engine {
    /// Follows the log: after a position, from its beginning (the default position), or from now
    /// on. A position is refused when something behind it was removed, or when the log has not come
    /// so far: the reader would never know what it missed.
    pub async fn follow(&self, after: Option<Position>) -> Result<Follower> {
        self.follow_tasks(after, Filter::default()).await
    }

    /// The same, of tasks that fit. What a task becomes in time (`status`) is not looked at.
    pub async fn follow_tasks(&self, after: Option<Position>, filter: Filter) -> Result<Follower> {
        let filter = Filter { status: Vec::new(), ..filter };
        let log = &self.inner.log;
        // Subscribe before the query: what comes between the two is then in both, and told once.
        let entries = log.entries.subscribe();
        log.followers.fetch_add(1, Ordering::SeqCst);
        let counted = Counted(Arc::clone(&log.followers));
        log.needed();
        let at = match after {
            Some(beginning) if beginning == Position::default() => beginning,
            Some(position) => self.check_position(position).await?,
            None => self.inner.tasks.head().await?,
        };
        Ok(Follower {
            engine: self.clone(),
            entries,
            page: VecDeque::new(),
            at,
            caught_up: false,
            sieve: Sieve::new(filter),
            fitting: VecDeque::new(),
            given: at,
            _counted: counted,
        })
    }

    async fn check_position(&self, position: Position) -> Result<Position> {
        let tasks = &self.inner.tasks;
        let removed = tasks.removed().await?;
        if position < removed {
            return Err(Error::CursorExpired);
        }
        // What was removed may have been the newest. Where the log stands never goes back, so what
        // it has shown to anybody, through any node, is not beyond it.
        if position <= removed.max(tasks.head().await?) {
            return Ok(position);
        }
        let newest = match tasks.newest().await? {
            Some(newest) => format!("the newest event is {newest}"),
            None => "there is no event yet".to_owned(),
        };
        Err(Error::CursorAhead(newest))
    }

    pub(super) fn spawn_log(&self) {
        let weak = Arc::downgrade(&self.inner);
        let poll = self.inner.options.poll;
        let look = Arc::clone(&self.inner.log.look);
        let mut phase = self.inner.phase.subscribe();
        tokio::spawn(async move {
            let mut tail = Tail { at: None, idle_looks: 0 };
            loop {
                // It holds the engine only while it reads.
                let Some(inner) = weak.upgrade() else { return };
                let pause = tail.round(&inner, poll).await;
                drop(inner);
                tokio::select! {
                    () = look.notified(), if pause > PAUSE => {
                        tail.idle_looks = 0;
                        tokio::time::sleep(PAUSE).await;
                    }
                    () = tokio::time::sleep(pause) => {}
                    () = stopped(&mut phase) => return,
                }
            }
        });
    }
}

/// The engine has stopped, or nobody has it any more.
async fn stopped(phase: &mut tokio::sync::watch::Receiver<Phase>) {
    let _ = phase.wait_for(|phase| *phase == Phase::Stopped).await;
}

struct Tail {
    /// Where it stands; `None` while nobody follows.
    at: Option<Position>,
    idle_looks: usize,
}

impl Tail {
    /// Reads what is new and passes it on; returns how long to wait unless woken.
    async fn round(&mut self, inner: &Arc<Inner>, poll: Duration) -> Duration {
        if !inner.is_followed() {
            self.at = None;
            return poll;
        }
        let read = match self.at {
            Some(at) => inner.tasks.tail(at, PAGE).await,
            None => match inner.tasks.head().await {
                Ok(head) => {
                    self.at = Some(head);
                    let _ = inner.log.entries.send(Told::Begins);
                    inner.waiters.wake_all();
                    inner.deltas.look_all();
                    // What ended before the tail began is not told by it.
                    let awaited = inner.awaited.all();
                    if !awaited.is_empty() {
                        Engine { inner: Arc::clone(inner) }.ended(awaited).await;
                    }
                    inner.tasks.tail(head, PAGE).await
                }
                Err(error) => Err(error),
            },
        };
        let read = match read {
            Ok(read) => read,
            Err(error) => {
                tracing::debug!(%error, "the log cannot be read for now");
                return poll;
            }
        };
        let full = read.len() as i64 >= PAGE;
        if read.is_empty() {
            self.idle_looks += 1;
            return AGAIN.get(self.idle_looks - 1).copied().unwrap_or(poll).min(poll);
        }
        self.idle_looks = 0;
        let mut ended = Vec::new();
        for read in read {
            let entry = entry(read);
            self.at = Some(entry.position);
            inner.happened(&entry);
            let History { task_id, to_status, .. } = &entry.history;
            if to_status.is_terminal() && inner.awaited.take(*task_id) {
                ended.push(*task_id);
            }
            let _ = inner.log.entries.send(Told::Entry(entry));
        }
        if !ended.is_empty() {
            Engine { inner: Arc::clone(inner) }.ended(ended).await;
        }
        if full { Duration::ZERO } else { PAUSE }
    }
}

impl Inner {
    /// A task has ended: whoever waits for it or watches it is told.
    pub(super) fn ended(&self, task: TaskId) {
        self.waiters.wake(task);
        self.deltas.end(task, None);
    }

    fn is_followed(&self) -> bool {
        self.log.followers.load(Ordering::SeqCst) > 0
            || !self.waiters.is_empty()
            || !self.deltas.is_empty()
            || !self.held.is_empty()
            || !self.awaited.is_empty()
    }

    /// Whoever waits for this on this node is told.
    fn happened(&self, entry: &Entry) {
        let history = &entry.history;
        let held = history.to_status.is_held();
        if history.to_status.is_terminal() {
            self.ended(history.task_id);
        }
        if !held && history.from_status.is_some_and(|from| from.is_held()) {
            let gone = match history.event {
                Event::Cancel => Gone::Cancelled,
                Event::LoseLease | Event::ExceedDeadline | Event::ReleaseTooOften => Gone::Lost,
                _ if history.metadata.as_ref().is_some_and(is_not_told) => Gone::Lost,
                _ => Gone::Finished,
            };
            self.held.remove(history.task_id, history.lease_id, gone);
            self.deltas.end(history.task_id, history.lease_id);
        }
    }
}
