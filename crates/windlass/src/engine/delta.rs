//! Deltas on their way: the text of running attempts, kept in memory while they run.
//!
//! Invariant: an attempt's deltas stand in one buffer that everybody reads by index; nobody has a
//! queue of its own, so a slow reader costs nothing. A buffer ends with its attempt.
//! Absent: the database; see [`super::posting`]. No delta is written there.

use serde_json::Value as Json;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};
use tokio::sync::{OnceCell, watch};
use windlass_domain::delta::{Kept, MAX_TEXT_BYTES, RENEWALS_A_LEASE};
use windlass_domain::id::{LeaseDigest, LeaseId, SessionId, TaskId};
use windlass_domain::refusal::Refusal;
use windlass_store::task::Assignment;

use super::Result;
use super::handed::{Attempt, Handed};

/// How many deltas a reader takes at once.
const PAGE: usize = 256;
/// After this time without a delta the database is asked whether the attempt goes on: a wake-up
/// that told of its end may have been lost.
const QUIET: Duration = Duration::from_secs(5);

/// How long, and how much of them, texts that ended are kept for other nodes.
const KEPT: Duration = Duration::from_secs(5);
const MOST_KEPT_BYTES: usize = 64 << 20;

/// What the own texts of a node take together, and may take.
#[derive(Debug)]
struct Memory {
    most: usize,
    used: AtomicUsize,
}

impl Memory {
    /// Takes so many bytes, if they are there.
    fn take(&self, bytes: usize) -> Result<(), Refusal> {
        let more = |used: usize| Some(used + bytes).filter(|used| *used <= self.most);
        let taken = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.map(drop).map_err(|_| Refusal::TextsTooLarge { most: self.most })
    }
}

/// The text of one attempt.
pub(super) struct Text {
    pub(super) task: TaskId,
    pub(super) attempt: i32,
    /// Whose deltas are taken; `None` when another node takes them and this is a copy.
    pub(super) holder: Option<Holder>,
    kept: RwLock<Buffer>,
    /// Where its bytes are counted until nobody has it any more. A copy's are counted where it is
    /// a copy of.
    memory: Option<Arc<Memory>>,
    grown: watch::Sender<Grown>,
    signs: Mutex<Signs>,
    /// Set when the database knows that the text is here.
    pub(super) noted: OnceCell<()>,
}

/// Who posts a text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holder {
    pub(super) lease: LeaseId,
    pub(super) lease_ms: i64,
    /// What its session asked for as the length of its leases, if it did.
    pub(super) asked_ms: Option<i64>,
    /// Its session, if the task is in a session's hands.
    pub(super) session: Option<SessionId>,
}

#[derive(Default)]
struct Buffer {
    deltas: Vec<Arc<Json>>,
    bytes: usize,
}

/// What readers of a text are told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Grown {
    /// The index of the next delta.
    pub(super) next: u64,
    /// No more will come.
    pub(super) ended: bool,
}

/// When the holder last gave a sign of life.
pub(super) struct Signs {
    /// That the database knows of.
    pub(super) renewed: Instant,
    /// Of whatever kind; also when the database was asked.
    pub(super) seen: Instant,
}

impl Text {
    /// A copy of what another node has.
    pub(super) fn copy(task: TaskId, attempt: i32) -> Arc<Text> {
        Text::new(task, attempt, None, None)
    }

    fn new(
        task: TaskId,
        attempt: i32,
        holder: Option<Holder>,
        memory: Option<Arc<Memory>>,
    ) -> Arc<Text> {
        let now = Instant::now();
        Arc::new(Text {
            task,
            attempt,
            holder,
            kept: RwLock::default(),
            memory,
            grown: watch::Sender::new(Grown::default()),
            signs: Mutex::new(Signs { renewed: now, seen: now }),
            noted: OnceCell::new(),
        })
    }

    pub(super) fn grown(&self) -> watch::Receiver<Grown> {
        self.grown.subscribe()
    }

    pub(super) fn is_copy(&self) -> bool {
        self.holder.is_none()
    }

    pub(super) fn is_under(&self, lease: LeaseId) -> bool {
        self.holder.is_some_and(|holder| holder.lease == lease)
    }

    /// Takes deltas that were posted from an index on; returns the next index.
    pub(super) fn append(&self, from: u64, deltas: Vec<Json>) -> Result<u64, Refusal> {
        let sizes: Vec<usize> = deltas.iter().map(size).collect();
        let mut kept = self.kept.write().unwrap_or_else(PoisonError::into_inner);
        let known =
            Kept { next: kept.deltas.len() as u64, bytes: kept.bytes }.known(from, &sizes)?;
        let bytes = sizes[known..].iter().sum::<usize>();
        self.memory.as_ref().map_or(Ok(()), |memory| memory.take(bytes))?;
        kept.bytes += bytes;
        kept.deltas.extend(deltas.into_iter().skip(known).map(Arc::new));
        let next = kept.deltas.len() as u64;
        // Under the lock, so that readers hear of indexes in their order.
        self.grown.send_if_modified(|grown| {
            let more = grown.next < next;
            grown.next = next;
            more
        });
        drop(kept);
        self.signs().seen = Instant::now();
        Ok(next)
    }

    /// Some of what stands from an index on, and whether the text may grow after that.
    pub(super) fn read(&self, from: u64) -> (Vec<Arc<Json>>, Grown) {
        let kept = self.kept.read().unwrap_or_else(PoisonError::into_inner);
        let from = usize::try_from(from).unwrap_or(usize::MAX).min(kept.deltas.len());
        let page = kept.deltas[from..].iter().take(PAGE).cloned().collect();
        (page, *self.grown.borrow())
    }

    /// What it takes, about.
    fn bytes(&self) -> usize {
        self.kept.read().unwrap_or_else(PoisonError::into_inner).bytes + 256
    }

    /// How far it has come.
    pub(super) fn stands(&self) -> Grown {
        *self.grown.borrow()
    }

    pub(super) fn end(&self) {
        self.grown.send_if_modified(|grown| !std::mem::replace(&mut grown.ended, true));
    }

    pub(super) fn signs(&self) -> MutexGuard<'_, Signs> {
        self.signs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the lease is to be renewed now; the caller does it, or says that it could not.
    pub(super) fn is_to_renew(&self) -> bool {
        let lease_ms = self.holder.map_or(0, |holder| holder.lease_ms.max(0));
        let every = Duration::from_millis(lease_ms as u64) / RENEWALS_A_LEASE;
        let mut signs = self.signs();
        let due = signs.renewed.elapsed() >= every;
        if due {
            signs.renewed = Instant::now();
        }
        due
    }

    fn is_quiet(&self) -> bool {
        self.signs().seen.elapsed() >= QUIET
    }
}

impl Drop for Text {
    fn drop(&mut self) {
        let bytes = self.kept.get_mut().unwrap_or_else(PoisonError::into_inner).bytes;
        if let Some(memory) = &self.memory {
            memory.used.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

/// What a delta takes in memory, about.
fn size(delta: &Json) -> usize {
    match delta {
        Json::String(text) => text.len() + 2,
        Json::Array(items) => 2 + items.iter().map(|item| 1 + size(item)).sum::<usize>(),
        Json::Object(fields) => {
            2 + fields.iter().map(|(name, value)| 4 + name.len() + size(value)).sum::<usize>()
        }
        _ => 8,
    }
}

/// The texts of this node, and who watches which task.
pub(super) struct Deltas {
    state: Mutex<State>,
    memory: Arc<Memory>,
}

#[derive(Default)]
struct State {
    /// What may begin at once.
    handed: Handed,
    texts: HashMap<TaskId, Arc<Text>>,
    /// Own texts that ended a moment ago: another node may be about to ask for them.
    ended: HashMap<TaskId, (Instant, Arc<Text>)>,
    /// Each with the newest text, also when that is over: a watcher that was slow reads it still.
    watched: HashMap<TaskId, Newest>,
}

type Newest = watch::Sender<Option<Arc<Text>>>;

impl Deltas {
    /// No texts, which may take so many bytes together.
    pub(super) fn new(most: usize) -> Deltas {
        let memory = Arc::new(Memory { most, used: AtomicUsize::new(0) });
        Deltas { state: Mutex::default(), memory }
    }

    /// An empty text that is posted to this node.
    pub(super) fn posted(&self, task: TaskId, attempt: i32, holder: Holder) -> Arc<Text> {
        Text::new(task, attempt, Some(holder), Some(Arc::clone(&self.memory)))
    }

    /// Lets texts that ended go when there is no room for a whole one any more.
    pub(super) fn make_room(&self) {
        let used = self.memory.used.load(Ordering::Relaxed);
        if used + MAX_TEXT_BYTES > self.memory.most {
            self.lock().ended.clear();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nothing is to be heard of: no text, no watcher.
    pub(super) fn is_empty(&self) -> bool {
        let state = self.lock();
        state.texts.is_empty() && state.watched.is_empty()
    }

    /// The text of a task's running attempt, if it is here.
    pub(super) fn text(&self, task: TaskId) -> Option<Arc<Text>> {
        self.lock().texts.get(&task).cloned()
    }

    /// The text of an attempt that is posted to this node, or was until a moment ago.
    pub(super) fn own(&self, task: TaskId, attempt: i32) -> Option<Arc<Text>> {
        let state = self.lock();
        let ended = state.ended.get(&task).map(|(_, text)| text);
        let found = state.texts.get(&task).into_iter().chain(ended);
        found.filter(|text| text.attempt == attempt && !text.is_copy()).map(Arc::clone).next()
    }

    /// Forgets texts that ended a while ago, and attempts that let their readers wait.
    pub(super) fn forget_ended(&self) {
        let mut state = self.lock();
        state.ended.retain(|_, (at, _)| at.elapsed() < KEPT);
        state.handed.forget(Instant::now());
    }

    /// A session was given these: their texts may begin.
    pub(super) fn handed(&self, id: SessionId, asked_ms: Option<i64>, given: &[Assignment]) {
        let mut state = self.lock();
        let now = Instant::now();
        for assignment in given {
            if let Some(attempt) = Attempt::of(id, asked_ms, assignment) {
                state.handed.add(assignment.task.id, attempt, now);
            }
        }
    }

    /// The text of an attempt that was handed out a moment ago and of whose end nobody has heard.
    pub(super) fn begin_handed(
        &self,
        task: TaskId,
        lease: LeaseId,
        from: u64,
    ) -> Option<Arc<Text>> {
        if from > 0 {
            return None;
        }
        let attempt = self.lock().handed.take(task, lease, Instant::now())?;
        let Attempt { number, lease, lease_ms, asked_ms, session } = attempt;
        let holder = Holder { lease, lease_ms, asked_ms, session: Some(session) };
        let text = self.begin(self.posted(task, number, holder));
        text.is_under(lease).then_some(text)
    }

    /// A new text; an older one of the task ends. One of the same attempt that is here already
    /// stays, unless it was a copy and the deltas come here from now on.
    pub(super) fn begin(&self, text: Arc<Text>) -> Arc<Text> {
        let mut state = self.lock();
        if let Some(older) = state.texts.get(&text.task) {
            let stays = older.attempt == text.attempt && (!older.is_copy() || text.is_copy());
            if stays || older.attempt > text.attempt {
                return Arc::clone(older);
            }
            older.end();
        }
        state.texts.insert(text.task, Arc::clone(&text));
        if let Some(watched) = state.watched.get(&text.task) {
            watched.send_replace(Some(Arc::clone(&text)));
        }
        text
    }

    /// The attempt under this lease (`None`: whichever) is over. Copies end when they are told so
    /// by the node that has the deltas, after the last of them.
    pub(super) fn end(&self, task: TaskId, lease: Option<LeaseDigest>) {
        let mut state = self.lock();
        state.handed.end(task, lease);
        if let Some(text) = state.texts.get(&task) {
            let held = text.holder.map(|holder| holder.lease.digest());
            if held.is_some() && (lease.is_none() || held == lease) {
                text.end();
                state.texts.remove(&task).into_iter().for_each(|text| state.keep(text));
            }
        }
        state.look(task);
    }

    /// This very text is over.
    pub(super) fn remove(&self, text: &Arc<Text>) {
        let mut state = self.lock();
        text.end();
        if state.texts.get(&text.task).is_some_and(|known| Arc::ptr_eq(known, text)) {
            state.texts.remove(&text.task).into_iter().for_each(|text| state.keep(text));
        }
        state.look(text.task);
    }

    /// Whether somebody watches this task.
    pub(super) fn is_watched(&self, task: TaskId) -> bool {
        self.lock().watched.contains_key(&task)
    }

    /// Whether texts are posted to this node.
    pub(super) fn has_own(&self) -> bool {
        let state = self.lock();
        !state.ended.is_empty() || state.texts.values().any(|text| !text.is_copy())
    }

    /// Whoever watches looks again: anything may have happened.
    pub(super) fn look_all(&self) {
        let state = self.lock();
        state.watched.values().for_each(|watched| watched.send_modify(|_| {}));
    }

    /// The newest text of a task; told when there is a reason to look at the task.
    pub(super) fn watch(&self, task: TaskId) -> watch::Receiver<Option<Arc<Text>>> {
        let mut state = self.lock();
        let State { texts, watched, .. } = &mut *state;
        let newest = || watch::Sender::new(texts.get(&task).cloned());
        watched.entry(task).or_insert_with(newest).subscribe()
    }

    /// A watcher has gone; its receiver is dropped by now.
    pub(super) fn unwatch(&self, task: TaskId) {
        let mut state = self.lock();
        if state.watched.get(&task).is_some_and(|watched| watched.receiver_count() == 0) {
            state.watched.remove(&task);
        }
    }

    /// How many texts are here.
    pub(super) fn texts(&self) -> usize {
        self.lock().texts.len()
    }

    /// How many watch.
    pub(super) fn watchers(&self) -> usize {
        self.lock().watched.values().map(Newest::receiver_count).sum()
    }

    /// The tasks that are watched here although their text is not here.
    pub(super) fn without_text(&self) -> Vec<TaskId> {
        let state = self.lock();
        let without = |task: &&TaskId| !state.texts.contains_key(task);
        state.watched.keys().filter(without).copied().collect()
    }

    pub(super) fn quiet(&self) -> Vec<Arc<Text>> {
        let state = self.lock();
        let is_quiet = |text: &&Arc<Text>| !text.is_copy() && text.is_quiet();
        state.texts.values().filter(is_quiet).cloned().collect()
    }
}

impl State {
    fn keep(&mut self, text: Arc<Text>) {
        self.ended.retain(|_, (at, _)| at.elapsed() < KEPT);
        let kept: usize = self.ended.values().map(|(_, text)| text.bytes()).sum();
        if !text.is_copy() && kept + text.bytes() <= MOST_KEPT_BYTES {
            self.ended.insert(text.task, (Instant::now(), text));
        }
    }

    fn look(&self, task: TaskId) {
        if let Some(watched) = self.watched.get(&task) {
            watched.send_modify(|_| {});
        }
    }
}
