//! The model's waiting line: who gets in (submit) and who is taken out (claim).

use super::oracle::{Entry, Known, Mutant, Oracle};
use super::step::*;
use std::collections::HashSet;
use windlass_domain::command::Command;
use windlass_domain::id::TaskId;
use windlass_domain::order::run_at_of;
use windlass_domain::profile::{Kind, Profile};
use windlass_domain::snapshot::Snapshot;
use windlass_domain::state::{Event, State};
use windlass_domain::task::NewTask;

impl Oracle {
    /// New tasks are written in the order of their keys; the others are looked up afterwards.
    pub(super) fn submit(&mut self, items: &[New]) -> Vec<String> {
        let tasks: Vec<NewTask> = items.iter().map(|item| item.task(self.now)).collect();
        let mut seen = HashSet::new();
        let mut order: Vec<usize> =
            (0..tasks.len()).filter(|&i| seen.insert(tasks[i].id)).collect();
        let place = |t: &NewTask| (t.idempotency_scope.clone(), t.idempotency_key.clone(), t.id);
        order.sort_by_key(|&i| place(&tasks[i]));
        let mut answers = vec![None; tasks.len()];
        for index in order {
            if self.existing(&tasks[index]).is_none() {
                self.insert(&tasks[index]);
                answers[index] = Some("new".to_owned());
            }
        }
        let answer = |(task, answer): (&NewTask, Option<String>)| {
            answer.unwrap_or_else(|| self.duplicate(task))
        };
        tasks.iter().zip(answers).map(answer).collect()
    }

    fn insert(&mut self, task: &NewTask) {
        let entry = Entry {
            event: Event::Submit,
            from: None,
            to: State::Pending,
            actor: task.actor.clone(),
            lease: None,
            metadata: None,
            at: self.now,
        };
        let snapshot = Snapshot::submitted(task, self.now);
        let known = Known { snapshot, checkpoint: None, progress: None, history: vec![entry] };
        self.tasks.insert(task.id, known);
        self.specs.insert(task.id, task.clone());
    }

    /// What a submit repeats; the key decides when both the id and the key are known.
    fn existing(&self, task: &NewTask) -> Option<&NewTask> {
        let scoped = |t: &&NewTask| {
            t.idempotency_key.is_some()
                && t.idempotency_key == task.idempotency_key
                && t.idempotency_scope == task.idempotency_scope
        };
        self.specs.values().find(scoped).or_else(|| self.specs.get(&task.id))
    }

    fn duplicate(&self, task: &NewTask) -> String {
        let Some(first) = self.existing(task) else { return "nothing".into() };
        let same = first.request_digest == task.request_digest;
        if !same && task.profile.kind() != Kind::Delegation {
            return "refused: idempotency_key_reused".into();
        }
        let status = self.tasks[&first.id].snapshot.status;
        format!("duplicate of {} ({status}), differs: {}", first.id, !same)
    }

    pub(super) fn claim(&mut self, take: &Take) -> Vec<String> {
        if take.max == 0 {
            return Vec::new();
        }
        self.ripen();
        // A call that was made before is told what it got then.
        let repeated = !self.assigned(take).is_empty();
        let picked = if repeated { Vec::new() } else { self.line(take) };
        self.give(take, &picked)
    }

    /// What a claim takes: lane by lane, in the order of its queues and profiles.
    fn line(&self, take: &Take) -> Vec<TaskId> {
        let mut picked = Vec::new();
        for &number in &take.queues {
            for &profile in &take.profiles {
                let mut lane = self.lane(&queue(number), profile);
                lane.retain(|id| !picked.contains(id));
                lane.truncate(take.max - picked.len());
                picked.extend(lane);
            }
        }
        picked
    }

    /// The lane's ready tasks, first one first.
    fn lane(&self, queue: &str, profile: Profile) -> Vec<TaskId> {
        let ready = |t: &&Snapshot| t.ready && t.queue == queue && t.profile == profile;
        let mut lane: Vec<&Snapshot> =
            self.tasks.values().map(|k| &k.snapshot).filter(ready).collect();
        lane.sort_by_key(|t| match self.mutant {
            Mutant::BlindToPriority => (run_at_of(t.order_key).as_ms(), t.id),
            _ => (t.order_key, t.id),
        });
        lane.into_iter().map(|t| t.id).collect()
    }

    /// Gives these tasks to the claim's session and says what it holds by this claim.
    fn give(&mut self, take: &Take, picked: &[TaskId]) -> Vec<String> {
        for &id in picked {
            let attempt = self.tasks[&id].snapshot.attempt + 1;
            let command = Command::Claim {
                session: session(take.session),
                lease_id: lease_of(id, attempt),
                claim_id: claim_id(take.claim),
                lease_ms: take.lease_ms,
                start: take.start,
            };
            let claimed = self.ask(id, &command, &session(take.session));
            assert!(claimed.is_ok(), "the line holds a task that cannot be claimed: {claimed:?}");
        }
        self.assigned(take).into_iter().map(|t| assignment(t.id, t.status, t)).collect()
    }

    fn assigned(&self, take: &Take) -> Vec<&Snapshot> {
        let mine = |t: &&Snapshot| {
            t.status.is_held()
                && t.claim_id == Some(claim_id(take.claim))
                && t.claimed_by.as_deref() == Some(&session(take.session))
        };
        let mut held: Vec<&Snapshot> =
            self.tasks.values().map(|k| &k.snapshot).filter(mine).collect();
        held.sort_by_key(|t| (t.order_key, t.id));
        held
    }
}

fn assignment(id: TaskId, status: State, task: &Snapshot) -> String {
    assigned_line(id, status, task.attempt, task.lease_expires_at)
}

/// One assignment in the answer of a claim.
pub fn assigned_line(
    id: TaskId,
    status: State,
    attempt: i32,
    until: Option<windlass_domain::time::Timestamp>,
) -> String {
    format!("{id} {status} attempt {attempt} until {until:?}")
}
