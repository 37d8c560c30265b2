//! Who on this node waits for messages, and who is told when there are some.
//!
//! A claim first asks the database, and waits if nothing has been told since it asked. A send takes
//! waiting claims along: whichever of them takes the receiver's messages gets the head of its inbox
//! in the send's own transaction, so that a handler begins after one commit.
//!
//! Invariant: a wake-up is never lost between asking and waiting, nor while a claim is offered:
//! wake-ups are counted.
//! Absent: truth. Whoever is woken looks.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;
use windlass_domain::message::{self, Failure};
use windlass_store::error::{Error, Rejection, Result};
use windlass_store::message::{Claim, Delivery, Ending, Messages, Whose};

use super::shutdown::Phase;

pub(super) struct Post {
    messages: Messages,
    runtime: Handle,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    wakes: u64,
    next: u64,
    /// Who waits longest is first.
    waiting: VecDeque<Waiting>,
}

pub(super) struct Waiting {
    id: u64,
    claim: Claim,
    woken: oneshot::Sender<Woken>,
}

enum Woken {
    Look,
    Given(Box<Handover>),
}

/// Claims that a send takes along, and what had been told by then.
pub(super) struct Offered {
    waiting: Vec<Waiting>,
    seen: u64,
}

impl Offered {
    pub(super) fn none() -> Offered {
        Offered { waiting: Vec::new(), seen: 0 }
    }

    pub(super) fn claims(&self) -> Vec<Claim> {
        self.waiting.iter().map(|waiting| waiting.claim.clone()).collect()
    }
}

/// Messages on their way to a caller. If the caller goes away before it accepts them, they go back
/// at once instead of waiting for their leases to run out.
struct Handover {
    messages: Messages,
    runtime: Handle,
    deliveries: Vec<Delivery>,
}

impl Handover {
    fn accept(mut self) -> Vec<Delivery> {
        std::mem::take(&mut self.deliveries)
    }
}

impl Drop for Handover {
    fn drop(&mut self) {
        for delivery in std::mem::take(&mut self.deliveries) {
            let messages = self.messages.clone();
            self.runtime.spawn(async move {
                let error = Some("the handler stopped waiting".to_owned());
                let ending = Ending::Return { failure: Failure::LeaseLost, error };
                let id = delivery.message.id;
                if let Err(error) = messages.end(id, delivery.lease, ending).await {
                    let correlation_id = &delivery.message.correlation_id;
                    tracing::warn!(
                        message_id = %id,
                        correlation_id,
                        %error,
                        "not given back; its lease decides"
                    );
                }
            });
        }
    }
}

/// A place in line. Leaving it, by an answer or because nobody waits any more, gives it up.
struct Place<'a> {
    post: &'a Post,
    id: u64,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.post.lock().waiting.retain(|waiting| waiting.id != self.id);
    }
}

impl Post {
    /// Must be called inside a tokio runtime.
    pub(super) fn new(messages: Messages) -> Post {
        Post { messages, runtime: Handle::current(), state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many wait.
    pub(super) fn waiting(&self) -> usize {
        self.lock().waiting.len()
    }

    /// Some inbox may have something: of those who wait for the same, one looks.
    pub(super) fn wake(&self) {
        let mut state = self.lock();
        state.wakes += 1;
        let mut told: Vec<Whose> = Vec::new();
        let mut index = 0;
        while index < state.waiting.len() {
            if told.contains(&state.waiting[index].claim.from) {
                index += 1;
                continue;
            }
            if let Some(waiting) = state.waiting.remove(index) {
                told.push(waiting.claim.from);
                let _ = waiting.woken.send(Woken::Look);
            }
        }
    }

    /// Of those who wait and may take this agent's messages, one of each sort.
    pub(super) fn offer(&self, agent: &str) -> Offered {
        let mut state = self.lock();
        let mut chosen: Vec<Waiting> = Vec::new();
        let mut index = 0;
        while index < state.waiting.len() {
            let from = &state.waiting[index].claim.from;
            let may_take = match from {
                Whose::Pool(_) => true,
                Whose::Agents(names) => names.iter().any(|name| name == agent),
            };
            if !may_take || chosen.iter().any(|other| other.claim.from == *from) {
                index += 1;
                continue;
            }
            chosen.extend(state.waiting.remove(index));
        }
        Offered { waiting: chosen, seen: state.wakes }
    }

    /// Gives one of the offered claims what it got; the others wait on where they stood.
    pub(super) fn settle(&self, offered: Offered, given: Option<(usize, Delivery)>) {
        let mut state = self.lock();
        let missed = state.wakes != offered.seen;
        let (index, delivery) = given.unzip();
        let mut delivery = delivery;
        for (at, waiting) in offered.waiting.into_iter().enumerate().rev() {
            match delivery.take_if(|_| index == Some(at)) {
                Some(delivery) => {
                    let (messages, runtime) = (self.messages.clone(), self.runtime.clone());
                    let handover = Handover { messages, runtime, deliveries: vec![delivery] };
                    let _ = waiting.woken.send(Woken::Given(Box::new(handover)));
                }
                None if missed => drop(waiting.woken.send(Woken::Look)),
                // Whoever went away meanwhile is not put back.
                None if waiting.woken.is_closed() => {}
                None => state.waiting.push_front(waiting),
            }
        }
    }

    /// Takes messages; waits for them if there are none, at most for `wait`.
    pub(super) async fn claim(
        &self,
        claim: Claim,
        wait: Duration,
        mut phase: watch::Receiver<Phase>,
    ) -> Result<Vec<Delivery>, Rejection> {
        let until = Instant::now() + wait;
        let mut is_first = true;
        loop {
            let seen = self.lock().wakes;
            let taken = self.take(&claim).await?;
            if taken.len() >= claim.leases.len() {
                // There may be more than one claim can take.
                self.wake();
            }
            // Whoever waits for what never comes is told so, as soon as nothing was found.
            if taken.is_empty() && std::mem::take(&mut is_first) {
                let nobody = self.messages.nobody_of(&claim.from).await?;
                message::readers(matches!(claim.from, Whose::Pool(_)), &nobody)?;
            }
            if !taken.is_empty() || wait.is_zero() || *phase.borrow() != Phase::Running {
                return Ok(taken);
            }
            let Some((place, woken)) = self.enter(&claim, seen) else { continue };
            match self.wait(place, woken, until, &mut phase).await {
                Some(Woken::Look) => {}
                Some(Woken::Given(given)) => return Ok(given.accept()),
                None => return Ok(Vec::new()),
            }
        }
    }

    /// Asks the database. On a task of its own: a caller that goes away meanwhile must not leave
    /// behind what it never saw.
    async fn take(&self, claim: &Claim) -> Result<Vec<Delivery>> {
        let (answer, answered) = oneshot::channel();
        let (messages, claim, runtime) =
            (self.messages.clone(), claim.clone(), self.runtime.clone());
        tokio::spawn(async move {
            let taken = messages.claim(claim).await;
            let handover = |deliveries| Handover { messages, runtime, deliveries };
            let _ = answer.send(taken.map(handover));
        });
        let taken = answered.await.unwrap_or_else(|_| {
            let detail = "a claim ended without an answer".into();
            Err(Error::Internal { operation: "message_claim".into(), detail })
        });
        taken.map(Handover::accept)
    }

    /// A place in line, unless something was told since `seen`.
    fn enter(&self, claim: &Claim, seen: u64) -> Option<(Place<'_>, oneshot::Receiver<Woken>)> {
        let mut state = self.lock();
        if state.wakes != seen {
            return None;
        }
        let (sender, receiver) = oneshot::channel();
        let id = state.next;
        state.next += 1;
        state.waiting.push_back(Waiting { id, claim: claim.clone(), woken: sender });
        Some((Place { post: self, id }, receiver))
    }

    /// Whether it stood in line.
    fn leave(&self, id: u64) -> bool {
        let mut state = self.lock();
        let before = state.waiting.len();
        state.waiting.retain(|waiting| waiting.id != id);
        state.waiting.len() < before
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
        if self.leave(place.id) {
            return None;
        }
        // A send has taken this claim along, or somebody just woke it: the answer is on its way. A
        // send that puts it back leaves it to the next wake-up, which comes within a second.
        woken.await.ok()
    }
}
