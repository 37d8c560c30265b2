//! The model's state: tasks in memory, moved by the domain's `decide`.
//!
//! Invariant: every change writes one row of history. What a mutant gets wrong is said where it
//! departs from that path, and nowhere else.

use super::Mutant;
use crate::dump::{Dump, Moved, TaskRow};
use crate::log::Ending;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use uuid::Uuid;
use windlass_domain::command::Command;
use windlass_domain::decide::{Decision, decide};
use windlass_domain::failure::TaskError;
use windlass_domain::id::{ClaimId, LeaseId, TaskId};
use windlass_domain::json::canonical;
use windlass_domain::refusal::Refusal;
use windlass_domain::request::SubmitRequest;
use windlass_domain::snapshot::Snapshot;
use windlass_domain::state::{Event, State};
use windlass_domain::time::Timestamp;
use windlass_domain::validate::new_task;
use windlass_store::clock::Clock;

#[derive(Clone)]
struct Entry {
    snapshot: Snapshot,
    payload: Value,
}

/// Everything that the server knows.
#[derive(Clone, Default)]
pub(super) struct World {
    tasks: BTreeMap<Uuid, Entry>,
    history: Vec<Moved>,
    /// The lease that each session asked for.
    sessions: BTreeMap<Uuid, i64>,
    /// How each lease ended its attempt.
    finished: BTreeMap<Uuid, (Ending, Value, State)>,
}

/// How a worker wants to end an attempt.
pub(super) struct Finish {
    pub task: Uuid,
    pub lease: Uuid,
    pub ending: Ending,
    pub content: Value,
    pub retry_after_ms: Option<i64>,
}

fn now() -> Timestamp {
    Clock::System.now()
}

impl World {
    pub fn register(&mut self, session: Uuid, lease_ms: i64) {
        self.sessions.insert(session, lease_ms);
    }

    pub fn has_session(&self, session: Uuid) -> bool {
        self.sessions.contains_key(&session)
    }

    /// Whether it existed before.
    pub fn submit(&mut self, request: &SubmitRequest) -> Result<bool, Refusal> {
        let id = request.id.unwrap_or(TaskId(Uuid::now_v7()));
        if self.tasks.contains_key(&id.0) {
            return Ok(true);
        }
        let new = new_task(request, id, "", "model")?;
        let snapshot = Snapshot::submitted(&new, now());
        self.history.push(Moved {
            task: id.0,
            seq: self.history.len() as i64 + 1,
            from: None,
            event: Event::Submit,
            to: State::Pending,
            lease: None,
            at_ms: snapshot.created_at.as_ms(),
        });
        self.tasks.insert(id.0, Entry { snapshot, payload: request.payload.clone() });
        Ok(false)
    }

    pub fn show(&self, task: Uuid) -> Option<Value> {
        let Entry { snapshot, payload } = self.tasks.get(&task)?;
        let result = snapshot.result.as_deref().map(parse);
        Some(json!({
            "id": task, "status": snapshot.status, "payload": payload, "result": result,
            "attempt": snapshot.attempt,
        }))
    }

    pub fn has_ended(&self, task: Uuid) -> bool {
        self.tasks.get(&task).is_none_or(|entry| entry.snapshot.status.is_terminal())
    }

    /// The same claim again gives the same assignments again.
    pub fn claim(
        &mut self,
        session: Uuid,
        claim: Uuid,
        max: usize,
        start: bool,
        mutant: Mutant,
    ) -> Vec<Value> {
        let at = now();
        let lease_ms = self.sessions.get(&session).copied();
        let is_ready =
            |entry: &Entry| entry.snapshot.status.is_claimable() && entry.snapshot.run_at <= at;
        let has_given = self.tasks.values().any(|e| e.snapshot.claim_id == Some(ClaimId(claim)));
        let mut ready: Vec<(i64, Uuid)> = self
            .tasks
            .iter()
            .filter(|(_, entry)| !has_given && is_ready(entry))
            .map(|(id, entry)| (entry.snapshot.order_key, *id))
            .collect();
        ready.sort_unstable();
        for (_, task) in ready.into_iter().take(max) {
            let lease = match mutant {
                Mutant::ReusedLease => task,
                _ => Uuid::now_v7(),
            };
            let command = Command::Claim {
                session: session.to_string(),
                lease_id: LeaseId(lease),
                claim_id: ClaimId(claim),
                lease_ms,
                start,
            };
            let _ = self.apply(task, &command, None, mutant);
        }
        let is_given = |entry: &&Entry| {
            entry.snapshot.claim_id == Some(ClaimId(claim)) && entry.snapshot.status.is_held()
        };
        self.tasks.values().filter(is_given).filter_map(|e| self.assignment(e)).collect()
    }

    fn assignment(&self, entry: &Entry) -> Option<Value> {
        let Snapshot { id, lease_id, attempt, lease_expires_at, .. } = &entry.snapshot;
        let lease = (*lease_id)?;
        Some(json!({
            "task": self.show(id.0), "lease_id": lease, "attempt": attempt,
            "lease_expires_at": lease_expires_at, "steps": [],
        }))
    }

    pub fn heartbeat(&mut self, session: Uuid, named: &[(Uuid, Uuid)], mutant: Mutant) -> Value {
        let lease_ms = self.sessions.get(&session).copied();
        let (mut renewed, mut lost) = (Vec::new(), Vec::new());
        for (task, lease) in named {
            let command = Command::Heartbeat { lease_id: LeaseId(*lease), lease_ms };
            let command = match mutant {
                Mutant::BeatWithoutLease => as_holder(command, self.holder(*task)),
                _ => guard(mutant, command, self.holder(*task)),
            };
            match self.apply(*task, &command, Some(*lease), mutant) {
                Ok(snapshot) => renewed.push(json!({
                    "task_id": task, "lease_id": lease,
                    "lease_expires_at": snapshot.lease_expires_at,
                })),
                Err(_) => lost.push(json!({ "task_id": task, "lease_id": lease })),
            }
        }
        let holder = session.to_string();
        let is_unnamed = |entry: &&Entry| {
            let held = entry.snapshot.status.is_held();
            held && entry.snapshot.claimed_by.as_deref() == Some(&holder)
                && !named.iter().any(|(task, _)| *task == entry.snapshot.id.0)
        };
        let unnamed: Vec<Value> =
            self.tasks.values().filter(is_unnamed).filter_map(|e| self.assignment(e)).collect();
        json!({ "renewed": renewed, "cancelled": [], "lost": lost, "unnamed": unnamed })
    }

    pub fn finish(&mut self, finish: Finish, mutant: Mutant) -> Result<State, Refusal> {
        let Finish { task, lease, ending, content, retry_after_ms } = finish;
        if let Some((before, said, state)) = self.finished.get(&lease) {
            let event = self.history.last().map_or(Event::Complete, |row| row.event);
            let is_same = *before == ending && *said == content;
            return if is_same { Ok(*state) } else { Err(Refusal::AlreadyFinished { event }) };
        }
        let lease_id = LeaseId(lease);
        let command = match ending {
            Ending::Complete => {
                Command::Complete { lease_id, result: Some(canonical(&content)), usage: None }
            }
            Ending::Release => Command::Release { lease_id },
            Ending::Fail => {
                let error = TaskError::new("SERVICE_UNAVAILABLE", "on purpose");
                Command::Fail { lease_id, error, retry_after_ms, chance: 0.0, usage: None }
            }
        };
        if mutant == Mutant::NoAttemptCap && ending == Ending::Fail {
            self.forget_retries(task);
        }
        let holder = self.holder(task);
        let command = guard(mutant, command, holder);
        let state = match self.apply(task, &command, Some(lease), mutant) {
            Ok(snapshot) => snapshot.status,
            // Without a guard the last word wins, even over a finished task.
            Err(_) if mutant == Mutant::NoLeaseGuard && ending == Ending::Complete => {
                let entry = self.tasks.get_mut(&task).ok_or(Refusal::UnknownTask)?;
                entry.snapshot.result = Some(canonical(&content));
                State::Completed
            }
            Err(refusal) => return Err(refusal),
        };
        self.finished.insert(lease, (ending, content, state));
        Ok(state)
    }

    /// Takes what ran out.
    pub fn sweep(&mut self, mutant: Mutant) {
        let at = now();
        let is_lost = |entry: &Entry| {
            let expiry = entry.snapshot.lease_expires_at;
            entry.snapshot.status.is_held() && expiry.is_some_and(|expiry| expiry <= at)
        };
        let lost: Vec<Uuid> =
            self.tasks.iter().filter(|(_, e)| is_lost(e)).map(|(id, _)| *id).collect();
        for task in lost {
            if mutant == Mutant::NoAttemptCap {
                self.forget_retries(task);
            }
            let _ = self.apply(task, &Command::LoseLease, None, mutant);
        }
    }

    fn forget_retries(&mut self, task: Uuid) {
        if let Some(entry) = self.tasks.get_mut(&task) {
            entry.snapshot.retry_count = 0;
        }
    }

    fn holder(&self, task: Uuid) -> Option<LeaseId> {
        self.tasks.get(&task).and_then(|entry| entry.snapshot.lease_id)
    }

    fn apply(
        &mut self,
        task: Uuid,
        command: &Command,
        shown: Option<Uuid>,
        mutant: Mutant,
    ) -> Result<Snapshot, Refusal> {
        let entry = self.tasks.get_mut(&task).ok_or(Refusal::UnknownTask)?;
        match decide(&entry.snapshot, command, now())? {
            Decision::Nothing => {}
            Decision::Touch(after) => entry.snapshot = *after,
            Decision::Change(mut change) => {
                let is_retry = change.after.status == State::Retry;
                if mutant == Mutant::SweepAgainstMachine
                    && *command == Command::LoseLease
                    && is_retry
                {
                    change.after.status = State::Pending;
                }
                entry.snapshot = change.after;
                // Starts are rare where every worker starts what it claims at once.
                let forgets = matches!(change.event, Event::Start | Event::LoseLease);
                if mutant != Mutant::ForgottenHistory || !forgets {
                    self.history.push(Moved {
                        task,
                        seq: self.history.len() as i64 + 1,
                        from: Some(change.from),
                        event: change.event,
                        to: entry.snapshot.status,
                        lease: shown.or(change.lease_id.map(|lease| lease.0)),
                        at_ms: entry.snapshot.updated_at.as_ms(),
                    });
                }
            }
        }
        Ok(entry.snapshot.clone())
    }

    pub fn dump(&self) -> Dump {
        let row = |entry: &Entry| TaskRow {
            id: entry.snapshot.id.0,
            profile: entry.snapshot.profile,
            status: entry.snapshot.status,
            payload: entry.payload.clone(),
            result: entry.snapshot.result.as_deref().map(parse),
            attempt: entry.snapshot.attempt,
            retry_count: entry.snapshot.retry_count,
            max_retries: entry.snapshot.max_retries,
            release_count: entry.snapshot.release_count,
        };
        let tasks = self.tasks.iter().map(|(id, entry)| (*id, row(entry))).collect();
        Dump { tasks, history: self.history.clone() }
    }
}

/// The command as the rules see it: a mutant without a guard lets everybody be the holder.
fn guard(mutant: Mutant, command: Command, holder: Option<LeaseId>) -> Command {
    if mutant == Mutant::NoLeaseGuard { as_holder(command, holder) } else { command }
}

/// The command as the holder would have sent it.
fn as_holder(mut command: Command, holder: Option<LeaseId>) -> Command {
    if let Some(holder) = holder {
        match &mut command {
            Command::Heartbeat { lease_id, .. }
            | Command::Complete { lease_id, .. }
            | Command::Fail { lease_id, .. }
            | Command::Release { lease_id } => *lease_id = holder,
            _ => {}
        }
    }
    command
}

fn parse(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or(Value::Null)
}
