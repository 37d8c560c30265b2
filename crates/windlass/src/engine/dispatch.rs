//! Who on this node waits for work, and who is told when there is some.
//!
//! A wait is registered only while nothing else can give it work: a claim first asks the database,
//! and waits if nothing has been told for its queues since it asked. A submit may take a waiting
//! claim along in its own transaction (eager dispatch); until it delivers, nobody else does.
//!
//! Invariant: a wake-up is never lost between asking and waiting: each queue counts its wake-ups.
//! Invariant: one new task wakes few, of each sort of claim: a wake-up does not say what there is,
//! so nobody may be passed over for those who could not take it. Who finds more than it can take
//! wakes two others.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;
use uuid::Uuid;
use windlass_domain::id::{ChangeId, ClaimId, LeaseId, SessionId, TaskId};
use windlass_domain::pins::{Pins, Serves};
use windlass_domain::profile::Profile;
use windlass_store::error::{Error, Result};
use windlass_store::session::Sessions;
use windlass_store::task::{Assignment, Claim, Finish, Finishing, Idle, Tasks};

use super::Engine;
use super::shutdown::Phase;

/// How many others a full claim wakes: twice as many each time, and no herd.
const CHAIN: usize = 2;

pub(super) struct Dispatcher {
    tasks: Tasks,
    sessions: Sessions,
    /// What was taken is delivered by the database's threads, which are in no runtime.
    runtime: Handle,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    queues: HashMap<String, Queue>,
    waiting: HashMap<u64, Waiting>,
    offered: HashMap<ClaimId, oneshot::Sender<Woken>>,
    next: u64,
}

/// One queue that somebody here asks for.
#[derive(Default)]
struct Queue {
    /// How many claims are under way or waiting; the last one takes the entry away.
    interested: usize,
    wakes: u64,
    /// Who waits, by what they would take. Most often all take the same.
    waiting: Vec<(Sort, VecDeque<u64>)>,
    /// Tasks that were handed over already, whose wake-up is still to come.
    handed_over: usize,
}

/// What a claim would take of a queue.
#[derive(Clone, PartialEq, Eq)]
struct Sort {
    profiles: Vec<Profile>,
    serves: Serves,
}

impl Sort {
    fn of(claim: &Claim) -> Sort {
        Sort { profiles: claim.profiles.clone(), serves: claim.serves.clone() }
    }
}

impl Queue {
    fn enter(&mut self, claim: &Claim, id: u64) {
        let sort = Sort::of(claim);
        match self.waiting.iter_mut().find(|(known, _)| *known == sort) {
            Some((_, line)) => line.push_back(id),
            None => self.waiting.push((sort, VecDeque::from([id]))),
        }
    }

    fn leave(&mut self, id: u64) {
        self.waiting.iter_mut().for_each(|(_, line)| line.retain(|other| *other != id));
        self.waiting.retain(|(_, line)| !line.is_empty());
    }
}

struct Waiting {
    claim: Claim,
    woken: oneshot::Sender<Woken>,
}

enum Woken {
    Look,
    /// Its session is gone: it takes nothing any more.
    Leave,
    Given(Box<Handover>),
}

/// Tasks on their way to a caller. If the caller goes away before it accepts them, they go back at
/// once instead of waiting for their leases to run out; but not where the same call may come again:
/// it would be given leases that are released under its hands. Its leases decide then, or the
/// session's next heartbeat, which is told of them. Inference goes back in any case, and so does
/// what was taken while its session ended: whoever ended it gave back what it saw, and nobody asks
/// for the rest.
pub(super) struct Handover {
    tasks: Tasks,
    sessions: Sessions,
    runtime: Handle,
    state: Arc<Mutex<State>>,
    claim: Claim,
    assignments: Vec<Assignment>,
    /// What is still to be accepted.
    handed: Vec<Handed>,
}

#[derive(Clone, Copy)]
struct Handed {
    task: TaskId,
    lease: LeaseId,
    profile: Profile,
}

impl Handover {
    pub(super) fn assignments(&self) -> &[Assignment] {
        &self.assignments
    }

    pub(super) fn accept(mut self) -> Vec<Assignment> {
        self.handed.clear();
        std::mem::take(&mut self.assignments)
    }

    /// Accepts all of it, with what was done so far. A caller that goes away while that is read
    /// has not accepted anything; nor has one that cannot be told.
    pub(super) async fn fill_steps(mut self) -> Result<Vec<Assignment>> {
        let assignments = std::mem::take(&mut self.assignments);
        let filled = self.tasks.fill_steps(assignments).await?;
        self.handed.clear();
        Ok(filled)
    }
}

impl Drop for Handover {
    fn drop(&mut self) {
        let handed = std::mem::take(&mut self.handed);
        if handed.is_empty() {
            return;
        }
        let (tasks, sessions, claim) =
            (self.tasks.clone(), self.sessions.clone(), self.claim.clone());
        let state = Arc::clone(&self.state);
        self.runtime.spawn(async move {
            let goes = |it: &Handed| !claim.may_repeat || it.profile == Profile::Inference;
            let (mut back, kept): (Vec<_>, Vec<_>) = handed.into_iter().partition(goes);
            if !kept.is_empty() {
                match has_ended(&sessions, &claim).await {
                    true => back.extend(kept),
                    false => lock(&state).wake_repeats(&claim),
                }
            }
            if back.is_empty() {
                return;
            }
            give_back(&tasks, &claim, back).await;
            // Others wait for it, and nobody else tells them.
            let mut state = lock(&state);
            claim.queues.iter().for_each(|queue| state.wake(queue, CHAIN));
        });
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the session of a claim has ended. One that goes on later claims anew.
async fn has_ended(sessions: &Sessions, claim: &Claim) -> bool {
    let Ok(id) = claim.session.parse::<Uuid>() else { return false };
    match sessions.show(SessionId(id)).await {
        Ok(found) => found.is_none_or(|session| session.close_reason.is_some()),
        // Its leases decide.
        Err(_) => false,
    }
}

/// A claim's stake in its queues.
struct Interest<'a> {
    dispatcher: &'a Dispatcher,
    queues: &'a [String],
}

impl Drop for Interest<'_> {
    fn drop(&mut self) {
        let mut state = self.dispatcher.lock();
        for name in self.queues {
            let Some(queue) = state.queues.get_mut(name) else { continue };
            queue.interested -= 1;
            if queue.interested == 0 {
                state.queues.remove(name);
            }
        }
    }
}

/// A place in line. Leaving it, by an answer or because nobody waits any more, gives it up.
struct Place<'a> {
    dispatcher: &'a Dispatcher,
    id: u64,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.dispatcher.lock().remove(self.id);
    }
}

impl State {
    fn remove(&mut self, id: u64) -> Option<Waiting> {
        let waiting = self.waiting.remove(&id)?;
        for name in &waiting.claim.queues {
            if let Some(queue) = self.queues.get_mut(name) {
                queue.leave(id);
            }
        }
        Some(waiting)
    }

    fn wake(&mut self, name: &str, count: usize) {
        let Some(queue) = self.queues.get_mut(name) else { return };
        queue.wakes += 1;
        let first = |(_, line): &(Sort, VecDeque<u64>)| line.iter().copied().take(count).collect();
        let first: Vec<Vec<u64>> = queue.waiting.iter().map(first).collect();
        for id in first.into_iter().flatten() {
            if let Some(waiting) = self.remove(id) {
                let _ = waiting.woken.send(Woken::Look);
            }
        }
    }

    /// What a call took is there now: its repeat, which found nothing yet, looks again, whether it
    /// stands in line or is about to.
    fn wake_repeats(&mut self, claim: &Claim) {
        for name in &claim.queues {
            if let Some(queue) = self.queues.get_mut(name) {
                queue.wakes += 1;
            }
        }
        let is_repeat = |waiting: &Waiting| {
            (waiting.claim.claim, &waiting.claim.session) == (claim.claim, &claim.session)
        };
        let repeats = self.waiting.iter().filter(|(_, waiting)| is_repeat(waiting));
        for id in repeats.map(|(id, _)| *id).collect::<Vec<_>>() {
            if let Some(waiting) = self.remove(id) {
                let _ = waiting.woken.send(Woken::Look);
            }
        }
    }
}

impl Dispatcher {
    /// Must be called inside a tokio runtime.
    pub(super) fn new(tasks: Tasks, sessions: Sessions) -> Dispatcher {
        Dispatcher { tasks, sessions, runtime: Handle::current(), state: Arc::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// How many claims wait.
    pub(super) fn waiting(&self) -> usize {
        self.lock().waiting.len()
    }

    /// How many sessions wait, each with one claim or with several.
    pub(super) fn waiting_sessions(&self) -> usize {
        let state = self.lock();
        let sessions = state.waiting.values().map(|waiting| waiting.claim.session.as_str());
        sessions.collect::<HashSet<_>>().len()
    }

    /// A queue may have `count` more tasks. Returns how many of them nobody here was given in the
    /// transaction that submitted them.
    pub(super) fn wake(&self, queue: &str, count: usize) -> usize {
        let mut state = self.lock();
        let Some(known) = state.queues.get_mut(queue) else { return count };
        let done = known.handed_over.min(count);
        known.handed_over -= done;
        state.wake(queue, (count - done).min(CHAIN));
        count - done
    }

    /// Any queue may have something: one of each looks.
    pub(super) fn wake_everything(&self) {
        let mut state = self.lock();
        let names: Vec<String> = state.queues.keys().cloned().collect();
        for name in names {
            // A hand-over whose wake-up never came (its submit was a repetition) must not hide a
            // later one.
            if let Some(queue) = state.queues.get_mut(&name) {
                queue.handed_over = 0;
            }
            state.wake(&name, 1);
        }
    }

    /// Ends the claims of a session that wait here: it is gone, though their connections may not be
    /// known to be. What is given back must not go to them.
    pub(super) fn dismiss(&self, session: SessionId) {
        let session = session.to_string();
        let mut state = self.lock();
        let its = state.waiting.iter().filter(|(_, waiting)| waiting.claim.session == session);
        for id in its.map(|(id, _)| *id).collect::<Vec<_>>() {
            if let Some(waiting) = state.remove(id) {
                let _ = waiting.woken.send(Woken::Leave);
            }
        }
    }

    /// Takes ready tasks; waits for them if there are none, at most for `wait`. Each look is under
    /// the rules of its second, as `engine` knows them.
    pub(super) async fn claim(
        &self,
        engine: &Engine,
        claim: Claim,
        wait: Duration,
    ) -> Result<Handover> {
        let until = Instant::now() + wait;
        let mut phase = engine.inner.phase.subscribe();
        let interest = self.interest(&claim.queues);
        loop {
            let seen = interest.wakes();
            engine.keep_up_with_limits().await;
            let taken = self.take(&claim, None).await?;
            if taken.assignments.len() >= claim.max {
                // There may be more than one claim can take.
                let mut state = self.lock();
                claim.queues.iter().for_each(|queue| state.wake(queue, CHAIN));
            }
            let is_some = !taken.assignments.is_empty();
            if is_some || wait.is_zero() || *phase.borrow() != Phase::Running {
                return Ok(taken);
            }
            let Some((place, woken)) = self.enter(&claim, seen) else { continue };
            match self.wait(place, woken, until, &mut phase).await {
                Some(Woken::Look) => {}
                Some(Woken::Leave) => return Ok(taken),
                Some(Woken::Given(given)) if given.assignments.is_empty() => {}
                Some(Woken::Given(given)) => return Ok(*given),
                None => return Ok(taken),
            }
        }
    }

    /// Asks the database: for these tasks and no others, or for any. On a task of its own: a caller
    /// that goes away meanwhile must not leave behind what it never saw.
    pub(super) async fn take(&self, claim: &Claim, named: Option<Vec<TaskId>>) -> Result<Handover> {
        let (answer, answered) = oneshot::channel();
        let handover = self.handover(claim.clone());
        let (tasks, claim) = (self.tasks.clone(), claim.clone());
        tokio::spawn(async move {
            let taken = match named {
                None => tasks.claim(claim).await,
                Some(named) => tasks.claim_tasks(&claim, named).await,
            };
            let _ = answer.send(taken.map(handover));
        });
        answered.await.unwrap_or_else(|_| {
            let detail = "a claim ended without an answer".into();
            Err(Error::Internal { operation: "claim".into(), detail })
        })
    }

    /// On its way to whoever made this claim.
    fn handover(&self, claim: Claim) -> impl FnOnce(Vec<Assignment>) -> Handover + use<> {
        let (tasks, sessions) = (self.tasks.clone(), self.sessions.clone());
        let (runtime, state) = (self.runtime.clone(), Arc::clone(&self.state));
        move |assignments: Vec<Assignment>| {
            let handed = |a: &Assignment| Handed {
                task: a.task.id,
                lease: a.lease_id,
                profile: a.task.profile,
            };
            let handed = assignments.iter().map(handed).collect();
            Handover { tasks, sessions, runtime, state, claim, assignments, handed }
        }
    }

    fn interest<'a>(&'a self, queues: &'a [String]) -> Interest<'a> {
        let mut state = self.lock();
        for name in queues {
            state.queues.entry(name.clone()).or_default().interested += 1;
        }
        Interest { dispatcher: self, queues }
    }

    /// A place in line, unless something was told since `seen`.
    fn enter(&self, claim: &Claim, seen: u64) -> Option<(Place<'_>, oneshot::Receiver<Woken>)> {
        let mut state = self.lock();
        if wakes(&state, &claim.queues) != seen {
            return None;
        }
        let (sender, receiver) = oneshot::channel();
        let id = state.next;
        state.next += 1;
        for name in &claim.queues {
            state.queues.entry(name.clone()).or_default().enter(claim, id);
        }
        state.waiting.insert(id, Waiting { claim: claim.clone(), woken: sender });
        Some((Place { dispatcher: self, id }, receiver))
    }

    async fn wait(
        &self,
        place: Place<'_>,
        mut woken: oneshot::Receiver<Woken>,
        until: Instant,
        phase: &mut watch::Receiver<Phase>,
    ) -> Option<Woken> {
        tokio::select! {
            biased;
            woken = &mut woken => return woken.ok(),
            _ = phase.wait_for(|phase| *phase != Phase::Running) => {}
            () = tokio::time::sleep_until(until) => {}
        }
        if self.lock().remove(place.id).is_some() {
            return None;
        }
        // A submit has taken this claim along, or somebody just woke it: the answer is on its way.
        woken.await.ok()
    }
}

/// The one who waited is gone; what it was given must not wait for its lease to run out.
async fn give_back(tasks: &Tasks, claim: &Claim, handed: Vec<Handed>) {
    let items: Vec<Finish> = (handed.into_iter())
        .map(|Handed { task, lease, .. }| Finish {
            task,
            lease,
            how: Finishing::Release,
            usage: None,
            actor: claim.session.clone(),
            reason: Some("the worker stopped waiting".into()),
            change: ChangeId(Uuid::now_v7()),
        })
        .collect();
    for outcome in tasks.finish(items).await {
        if let Err(error) = outcome {
            tracing::warn!(%error, "a task was not given back; its lease decides");
        }
    }
}

impl Interest<'_> {
    fn wakes(&self) -> u64 {
        wakes(&self.dispatcher.lock(), self.queues)
    }
}

fn wakes(state: &State, queues: &[String]) -> u64 {
    queues.iter().filter_map(|name| state.queues.get(name)).map(|queue| queue.wakes).sum()
}

impl Idle for Dispatcher {
    fn offer(&self, queue: &str, profile: Profile, pins: &Pins, count: usize) -> Option<Claim> {
        let mut state = self.lock();
        let takes = |sort: &Sort| sort.profiles.contains(&profile) && sort.serves.has(pins);
        let lines = state.queues.get(queue)?.waiting.iter().filter(|(sort, _)| takes(sort));
        // Who waits longest.
        let id = lines.filter_map(|(_, line)| line.front().copied()).min()?;
        // A call whose first try is on its way already is not taken along twice.
        if state.offered.contains_key(&state.waiting.get(&id)?.claim.claim) {
            return None;
        }
        let Waiting { claim, woken } = state.remove(id)?;
        state.offered.insert(claim.claim, woken);
        let max = claim.max.min(count);
        Some(Claim { queues: vec![queue.to_owned()], max, ..claim })
    }

    fn room(&self, queue: &str) {
        self.lock().wake(queue, CHAIN);
    }

    fn deliver(&self, claim: &Claim, assignments: Vec<Assignment>, new: usize) {
        let mut state = self.lock();
        let Some(woken) = state.offered.remove(&claim.claim) else { return };
        if let Some(queue) = claim.queues.first().and_then(|name| state.queues.get_mut(name)) {
            queue.handed_over += new;
        }
        drop(state);
        let handover = self.handover(claim.clone())(assignments);
        let _ = woken.send(Woken::Given(Box::new(handover)));
    }
}
