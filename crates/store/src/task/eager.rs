//! Eager dispatch: a submit that meets an idle worker hands its task over in the same transaction,
//! one sync instead of two. The history still shows both.
//!
//! Invariant: the worker takes what a claim would have given it: the head of the lane, which is an
//! older task where one waits, and the new one otherwise. Nothing is handed over before COMMIT.

use super::claim::{self, Assignment, Claim};
use super::floor::{ClaimFloor, Lane};
use super::hand_over::{Handed, hand_over};
use super::hot::task_of;
use super::submit::{Submitted, insert, look_up, submitted};
use crate::error::Result;
use crate::group::Outcome;
use crate::statement::Dialect;
use crate::store::Store;
use crate::tx::{Call, Tx};
use std::collections::HashSet;
use std::sync::Arc;
use uuid::Uuid;
use windlass_domain::profile::Profile;
use windlass_domain::task::{NewTask, When};

/// Each further worker is a further statement, which everybody in the batch waits for.
const MOST_WORKERS: usize = 4;

/// Those on this node who wait for work.
pub trait Idle: Send + Sync {
    /// Somebody who would take up to `count` tasks of this lane. They wait for
    /// [`Idle::deliver`] and take nothing else until then.
    fn offer(&self, queue: &str, profile: Profile, count: usize) -> Option<Claim>;

    /// What they got for waiting: nothing, if the submit failed or others were faster.
    fn deliver(&self, claim: &Claim, assignments: Vec<Assignment>);
}

/// Those who wait for these tasks.
fn offers(idle: &dyn Idle, tasks: &[NewTask]) -> Vec<Claim> {
    let mut lanes: Vec<(Lane, usize)> = Vec::new();
    let now = |task: &&NewTask| matches!(task.run_at, When::After(ms) if ms <= 0);
    for task in tasks.iter().filter(|t| t.profile != Profile::Ledger).filter(now) {
        let lane = (task.queue.as_str(), task.profile);
        match lanes.iter_mut().find(|((queue, profile), _)| (queue.as_str(), *profile) == lane) {
            Some((_, count)) => *count += 1,
            None => lanes.push(((task.queue.clone(), task.profile), 1)),
        }
    }
    let mut claims = Vec::new();
    for ((queue, profile), mut count) in lanes {
        while count > 0 && claims.len() < MOST_WORKERS {
            let Some(claim) = idle.offer(&queue, profile, count) else { break };
            count = count.saturating_sub(claim.max);
            claims.push(claim);
        }
    }
    claims
}

/// Submits and hands over. `None`: nobody waits, or the batch must be split; nothing is written.
pub(super) async fn submit(
    store: &Store,
    floor: &Arc<ClaimFloor>,
    tasks: &Arc<Vec<NewTask>>,
    idle: &Arc<dyn Idle>,
) -> Option<Vec<Outcome<Submitted>>> {
    let ids: HashSet<Uuid> = tasks.iter().map(|task| task.id.0).collect();
    if ids.len() < tasks.len() {
        return None;
    }
    let claims = offers(&**idle, tasks);
    if claims.is_empty() {
        return None;
    }
    // Before the claim reads it, so that the new tasks are not below it.
    floor.lower(tasks);
    let lanes: Vec<Lane> = claims.iter().map(|c| (c.queues[0].clone(), c.profiles[0])).collect();
    let begun = floor.begin(&lanes);
    let floors = begun.floors.clone();
    let batch = Batch { tasks: Arc::clone(tasks), claims: claims.clone(), lanes, floors };
    // The workers are told by the thread that has committed, before anybody else is woken.
    let (told, waiting) = (Arc::clone(idle), claims.clone());
    let deliver = move |done: Done| {
        for (claim, assignments) in waiting.iter().zip(done.taken?) {
            told.deliver(claim, assignments);
        }
        Some(done.new)
    };
    let body = move |tx: &mut dyn Tx| batch.run(tx);
    let written = store.run_then(crate::store::Lane::Write, "submit", body, deliver).await;
    drop(begun);
    let new = match written {
        Ok(Some(new)) => new,
        Ok(None) => {
            find_again(store, &claims, &**idle).await;
            HashSet::new()
        }
        Err(_) => {
            // The plain submit meets the same error again, and knows how to split it.
            claims.iter().for_each(|claim| idle.deliver(claim, Vec::new()));
            return None;
        }
    };
    Some(outcomes(store, tasks, &new).await)
}

/// A task that was known may be our own: a try before this one committed, and its answer was lost.
async fn find_again(store: &Store, claims: &[Claim], idle: &dyn Idle) {
    for claim in claims {
        let wanted = claim.clone();
        let body = move |tx: &mut dyn Tx| claim::assignments(&tx.run(claim::assigned(&wanted))?);
        let taken = store.read("claimed_before", body).await;
        // Without an answer the worker learns of it by its next heartbeat.
        idle.deliver(claim, taken.unwrap_or_default());
    }
}

/// Tasks, and those who wait for them.
struct Batch {
    tasks: Arc<Vec<NewTask>>,
    claims: Vec<Claim>,
    lanes: Vec<Lane>,
    floors: Vec<i64>,
}

struct Done {
    /// Which tasks are new.
    new: HashSet<Uuid>,
    /// What each claim took; `None` if that is to be read again.
    taken: Option<Vec<Vec<Assignment>>>,
}

impl Batch {
    fn run(&self, tx: &mut dyn Tx) -> Result<Done> {
        if let ([task], [claim]) = (&self.tasks[..], &self.claims[..]) {
            let handed = hand_over(tx, task, claim, &self.lanes[0], self.floors[0])?;
            return Ok(match handed {
                Handed::New(taken) => {
                    Done { new: HashSet::from([task.id.0]), taken: Some(vec![taken]) }
                }
                Handed::Known => Done { new: HashSet::new(), taken: None },
            });
        }
        let all: Vec<&NewTask> = self.tasks.iter().collect();
        let (inserted, ids) = insert(tx, &all);
        let mut taken = Vec::with_capacity(self.claims.len());
        if tx.dialect() == Dialect::Sqlite {
            let rows = tx.run(inserted)?;
            for (claim, lane) in self.claims.iter().zip(&self.lanes) {
                let lanes = std::slice::from_ref(lane);
                taken.push(claim::take_sqlite(tx, claim, claim.max, lanes, false)?.0);
            }
            return Ok(Done { new: new(&rows, &ids)?, taken: Some(taken) });
        }
        let mut calls: Vec<Call<'_>> = vec![inserted];
        for ((claim, lane), &floor) in self.claims.iter().zip(&self.lanes).zip(&self.floors) {
            calls.extend(claim::calls(tx, claim, claim.max, &[(lane, floor)], false));
        }
        let rows = tx.run_and_commit(calls)?;
        for pair in rows[1..].chunks(2) {
            taken.push(claim::assignments(&pair[1])?);
        }
        Ok(Done { new: new(&rows[0], &ids)?, taken: Some(taken) })
    }
}

fn new(rows: &[crate::value::Row], ids: &[Uuid]) -> Result<HashSet<Uuid>> {
    rows.iter().map(|row| task_of(row, ids)).collect()
}

async fn outcomes(
    store: &Store,
    tasks: &[NewTask],
    new: &HashSet<Uuid>,
) -> Vec<Outcome<Submitted>> {
    let old: Vec<NewTask> = tasks.iter().filter(|t| !new.contains(&t.id.0)).cloned().collect();
    let mut old = match old.is_empty() {
        true => Vec::new().into_iter(),
        false => look_up(store.clone(), old).await.into_iter(),
    };
    let outcome = |task: &NewTask| match new.contains(&task.id.0) {
        true => Some(Ok(submitted(task))),
        false => old.next(),
    };
    tasks.iter().filter_map(outcome).collect()
}
