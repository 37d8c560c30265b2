//! Eager dispatch: a submit that meets an idle worker hands its task over in the same transaction,
//! one sync instead of two. The history still shows both.
//!
//! Invariant: the worker takes what a claim would have given it: an older task whose turn it is,
//! where one waits, and the new one otherwise, within limits. Nothing is handed over before COMMIT.

use super::claim::{self, Assignment, Claim};
use super::hand_over::{self, Handed, hand_over};
use super::hot::task_of;
use super::lane::Lanes;
use super::own;
use super::room::{Lock, Room, is_crowded};
use super::slot;
use super::submit::{Placed, Submitted, admit, by_their_rules, hope, insert, look_up, submitted};
use super::take::{Took, take_after};
use crate::error::Result;
use crate::group::Outcome;
use crate::store::Store;
use crate::tx::Tx;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use uuid::Uuid;
use windlass_domain::limit::{Bound, Limits};
use windlass_domain::pins::Pins;
use windlass_domain::profile::Profile;
use windlass_domain::task::NewTask;

/// Each further worker is a further statement, which everybody in the batch waits for.
const MOST_WORKERS: usize = 4;

/// Those on this node who wait for work.
pub trait Idle: Send + Sync {
    /// Somebody who would take up to `count` tasks of this queue and kind that are pinned to
    /// this. They wait for [`Idle::deliver`] and take nothing else until then.
    fn offer(&self, queue: &str, profile: Profile, pins: &Pins, count: usize) -> Option<Claim>;

    /// A limit that held tasks of this queue back has room again.
    fn room(&self, queue: &str);

    /// What they got for waiting: nothing, if the submit failed or others were faster. So many of
    /// them, `new`, were submitted just now; others had waited before.
    fn deliver(&self, claim: &Claim, assignments: Vec<Assignment>, new: usize);
}

/// Those who wait for these tasks.
fn offers(idle: &dyn Idle, tasks: &[Placed]) -> Vec<Claim> {
    let mut wanted: Vec<((&str, Profile, Pins), usize)> = Vec::new();
    let tasks = tasks.iter().map(|placed| &placed.task);
    for task in tasks.filter(|task| hand_over::is_for_now(task)) {
        let alike = (task.queue.as_str(), task.profile, task.pins());
        match wanted.iter_mut().find(|(known, _)| *known == alike) {
            Some((_, count)) => *count += 1,
            None => wanted.push((alike, 1)),
        }
    }
    let mut claims = Vec::new();
    for ((queue, profile, pins), mut count) in wanted {
        while count > 0 && claims.len() < MOST_WORKERS {
            let Some(claim) = idle.offer(queue, profile, &pins, count) else { break };
            count = count.saturating_sub(claim.max);
            claims.push(claim);
        }
    }
    claims
}

/// Submits and hands over. `None`: nobody waits, or the batch must be split; nothing is written.
pub(super) async fn submit(
    store: &Store,
    lanes: &Arc<Lanes>,
    tasks: &Arc<Vec<Placed>>,
    idle: &Arc<dyn Idle>,
) -> Option<Vec<Outcome<Submitted>>> {
    let ids: HashSet<Uuid> = tasks.iter().map(|placed| placed.task.id.0).collect();
    if ids.len() < tasks.len() {
        return None;
    }
    let claims = offers(&**idle, tasks);
    if claims.is_empty() {
        return None;
    }
    // Before the claim looks, so that it knows of the new tasks.
    lanes.note(tasks.iter().map(|placed| (&placed.task, placed.lane)));
    let batch =
        Batch { tasks: Arc::clone(tasks), claims: claims.clone(), lanes: Arc::clone(lanes) };
    // The workers are told by the thread that has committed, before anybody else is woken.
    let (told, waiting) = (Arc::clone(idle), claims.clone());
    let deliver = move |mut done: Done| {
        let Some(taken) = done.taken() else { return (done.outcomes, false) };
        for (claim, assignments) in waiting.iter().zip(taken) {
            let new = assignments.iter().filter(|a| ids.contains(&a.task.id.0)).count();
            told.deliver(claim, assignments, new);
        }
        (done.outcomes, true)
    };
    let body = move |tx: &mut dyn Tx| batch.run(tx);
    let written = store.run_then(crate::store::Lane::Write, "submit", body, deliver).await;
    let known = match written {
        Ok((known, true)) => known,
        Ok((known, false)) => {
            find_again(store, &claims, &**idle).await;
            known
        }
        Err(error) => {
            if is_crowded(&error) {
                lanes.was_crowded();
            }
            // The plain submit meets the same error again, and knows how to split it.
            claims.iter().for_each(|claim| idle.deliver(claim, Vec::new(), 0));
            return None;
        }
    };
    Some(outcomes(store, tasks, known).await)
}

/// A task that was known may be our own: a try before this one committed, and its answer was lost.
async fn find_again(store: &Store, claims: &[Claim], idle: &dyn Idle) {
    for claim in claims {
        let wanted = claim.clone();
        let body = move |tx: &mut dyn Tx| claim::assignments(&tx.run(claim::assigned(&wanted))?);
        let taken = store.read("claimed_before", body).await;
        // Without an answer the worker learns of it by its next heartbeat.
        let taken = taken.unwrap_or_default();
        let new = taken.len();
        idle.deliver(claim, taken, new);
    }
}

/// Tasks, and those who wait for them.
struct Batch {
    tasks: Arc<Vec<Placed>>,
    claims: Vec<Claim>,
    lanes: Arc<Lanes>,
}

struct Done {
    /// What the tasks are told that are new, or were refused.
    outcomes: HashMap<Uuid, Outcome<Submitted>>,
    taken: Given,
}

/// What the claims got.
enum Given {
    Taken(Box<Took>),
    Each(Vec<Vec<Assignment>>),
    /// Nobody knows: it is to be read again.
    Again,
}

impl Done {
    /// What each claim got; `None` if that is to be read again. Said after the commit.
    fn taken(&mut self) -> Option<Vec<Vec<Assignment>>> {
        match std::mem::replace(&mut self.taken, Given::Again) {
            Given::Again => None,
            Given::Each(assignments) => Some(assignments),
            Given::Taken(took) => {
                Some(took.settle().0.into_iter().map(|taken| taken.assignments).collect())
            }
        }
    }
}

impl Batch {
    fn run(&self, tx: &mut dyn Tx) -> Result<Done> {
        let all: Vec<&Placed> = self.tasks.iter().collect();
        let own = own::find(tx, &all)?;
        if !own.is_empty() {
            // The try before was committed, with all that its claims took.
            return Ok(Done { outcomes: own, taken: Given::Again });
        }
        by_their_rules(tx, &*self.tasks);
        // Both locks at once, where both are needed: it is the same round trip.
        let most = self.claims.iter().map(|claim| claim.max).sum::<usize>().max(all.len());
        let is_typed =
            |limits: Arc<Limits>| self.claims.iter().any(|claim| slot::is_bound(&limits, claim));
        let mut room = match self.lanes.limits().is_some_and(is_typed) {
            true => Room::alone(),
            false => Room::adding(most).hoping(hope(&all)).folding(),
        };
        let bound = |placed: &&Placed| placed.bounds.iter().any(Bound::binds_claims);
        let lock = if all.iter().any(bound) { Lock::Both } else { Lock::Pending };
        let (accepted, mut outcomes) = admit(tx, &all, &mut room, lock)?;
        if let ([placed], [claim]) = (&accepted[..], &self.claims[..])
            && let Some(handed) = hand_over(tx, &self.lanes, placed, claim, &mut room)?
        {
            let taken = match handed {
                Handed::New(taken) => {
                    outcomes.insert(placed.task.id.0, Ok(submitted(&placed.task)));
                    Given::Each(vec![taken])
                }
                Handed::Known => Given::Again,
            };
            return Ok(Done { outcomes, taken });
        }
        if accepted.is_empty() {
            // Each of those who waited is told, or it would wait for ever.
            let taken = Given::Each(vec![Vec::new(); self.claims.len()]);
            return Ok(Done { outcomes, taken });
        }
        // What is looked at on the way to the statements needs the lock.
        room.send_ahead(tx)?;
        let (inserted, ids) = insert(tx, &accepted, &mut room);
        let took = take_after(tx, &self.lanes, &self.claims, vec![inserted], room)?;
        let rows = took.before.first().map(Vec::as_slice).unwrap_or_default();
        let new = rows.iter().map(|row| task_of(row, &ids)).collect::<Result<HashSet<Uuid>>>()?;
        let new = accepted.iter().filter(|placed| new.contains(&placed.task.id.0));
        outcomes.extend(new.map(|placed| (placed.task.id.0, Ok(submitted(&placed.task)))));
        Ok(Done { outcomes, taken: Given::Taken(Box::new(took)) })
    }
}

async fn outcomes(
    store: &Store,
    tasks: &[Placed],
    mut known: HashMap<Uuid, Outcome<Submitted>>,
) -> Vec<Outcome<Submitted>> {
    let tasks = tasks.iter().map(|placed| &placed.task);
    let old: Vec<NewTask> =
        tasks.clone().filter(|t| !known.contains_key(&t.id.0)).cloned().collect();
    let mut old = match old.is_empty() {
        true => Vec::new().into_iter(),
        false => look_up(store.clone(), old).await.into_iter(),
    };
    tasks.filter_map(|task| known.remove(&task.id.0).or_else(|| old.next())).collect()
}
