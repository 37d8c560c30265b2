//! The pure model: snapshots in a map, moved by `decide`, and on top of it the few rules that are
//! the repositories' own: which tasks a claim takes, what a repeated submit or finish is told.

use super::step::*;
use std::collections::BTreeMap;
use windlass_domain::command::Command;
use windlass_domain::decide::{Decision, decide};
use windlass_domain::id::{LeaseId, TaskId};
use windlass_domain::profile::Profile;
use windlass_domain::refusal::Refusal;
use windlass_domain::snapshot::Snapshot;
use windlass_domain::state::{Event, State};
use windlass_domain::task::NewTask;
use windlass_domain::time::Timestamp;
use windlass_domain::usage::Usage;

/// A planted mistake, to show that the comparison finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    None,
    /// A release is not counted.
    UncountedRelease,
    /// A holder whose lease was taken may still complete.
    LateFinish,
    /// A claim looks at the time alone, not at the priority.
    BlindToPriority,
}

/// One line of a task's history.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub event: Event,
    pub from: Option<State>,
    pub to: State,
    pub actor: String,
    pub lease: Option<LeaseId>,
    pub metadata: Option<serde_json::Value>,
    pub at: Timestamp,
}

/// A task with what the rules do not look at.
#[derive(Clone, Debug, PartialEq)]
pub struct Known {
    pub snapshot: Snapshot,
    pub checkpoint: Option<String>,
    pub progress: Option<String>,
    pub history: Vec<Entry>,
}

pub struct Oracle {
    pub now: Timestamp,
    pub mutant: Mutant,
    pub tasks: BTreeMap<TaskId, Known>,
    pub(super) specs: BTreeMap<TaskId, NewTask>,
}

impl Oracle {
    pub fn new(now: Timestamp, mutant: Mutant) -> Oracle {
        Oracle { now, mutant, tasks: BTreeMap::new(), specs: BTreeMap::new() }
    }

    /// Does it and says what the caller is told: a line for each item.
    pub fn apply(&mut self, step: &Step) -> Vec<String> {
        match step {
            Step::Pass { ms } => {
                self.now = self.now.plus_ms(*ms);
                Vec::new()
            }
            Step::Submit(items) => self.submit(items),
            Step::Claim(take) => self.claim(take),
            Step::Start(items) => items
                .iter()
                .map(|i| {
                    let command = Command::Start { lease_id: lease_id(i.lease) };
                    told(self.ask(task_id(i.task), &command, ACTOR))
                })
                .collect(),
            Step::Beat(items) => items.iter().map(|i| self.beat(i)).collect(),
            Step::Finish(items) => self.finish(items),
            Step::Ask { task, what } => {
                vec![told(self.ask(task_id(*task), &what.command(lease_id), ACTOR))]
            }
            Step::Sweep(sweep) => self.sweep(*sweep),
        }
    }

    /// Decides one command; a finishing call that was carried out before is answered likewise.
    pub fn ask(&mut self, id: TaskId, command: &Command, actor: &str) -> Result<State, Refusal> {
        let now = self.now;
        let (mutant, Some(known)) = (self.mutant, self.tasks.get_mut(&id)) else {
            return Err(Refusal::UnknownTask);
        };
        let mut task = known.snapshot.clone();
        if let (Mutant::LateFinish, Command::Complete { lease_id, .. }) = (mutant, command)
            && task.status.is_held()
        {
            task.lease_id = Some(*lease_id);
        }
        match decide(&task, command, now) {
            Ok(Decision::Nothing) => Ok(task.status),
            Ok(Decision::Touch(after)) => {
                known.snapshot = *after;
                Ok(task.status)
            }
            Ok(Decision::Change(change)) => {
                known.history.push(Entry {
                    event: change.event,
                    from: Some(change.from),
                    to: change.after.status,
                    actor: actor.to_owned(),
                    lease: change.lease_id,
                    metadata: change.metadata,
                    at: now,
                });
                known.snapshot = change.after;
                if mutant == Mutant::UncountedRelease && change.event == Event::Release {
                    known.snapshot.release_count -= 1;
                }
                Ok(known.snapshot.status)
            }
            Err(refusal) => repeated(known, command, refusal),
        }
    }

    fn beat(&mut self, item: &BeatOf) -> String {
        let (id, lease) = (task_id(item.hold.task), lease_id(item.hold.lease));
        let command = Command::Heartbeat { lease_id: lease, lease_ms: item.lease_ms };
        let outcome = self.ask(id, &command, ACTOR);
        let Some(known) = self.tasks.get_mut(&id) else { return told(outcome) };
        // What was computed before the lease ran out hurts nobody until somebody else has it.
        if known.snapshot.lease_id == Some(lease) {
            known.checkpoint = item.checkpoint.map(json).or(known.checkpoint.take());
            known.progress = item.progress.map(json).or(known.progress.take());
        }
        match outcome {
            Ok(_) => format!("until {:?}", known.snapshot.lease_expires_at),
            refused => told(refused),
        }
    }

    fn finish(&mut self, items: &[End]) -> Vec<String> {
        let one = |item: &End| {
            let command = item.how.command(lease_id(item.hold.lease));
            told(self.ask(task_id(item.hold.task), &command, ACTOR))
        };
        items.iter().map(one).collect()
    }

    fn sweep(&mut self, sweep: Sweep) -> Vec<String> {
        let now = self.now;
        let (name, command) = match sweep {
            Sweep::Leases => ("expire_leases", Command::LoseLease),
            Sweep::Deadlines => ("expire_deadlines", Command::ExceedDeadline),
            Sweep::Pending => ("time_out_pending", Command::TimeOutPending { limit_ms: None }),
            Sweep::Session(n) => ("lose_session", Command::LoseSession { session: session(n) }),
        };
        let found = |task: &Snapshot| match sweep {
            Sweep::Leases => task.lease_expires_at.is_some_and(|at| at <= now),
            Sweep::Deadlines => {
                !task.status.is_terminal() && task.deadline_at.is_some_and(|at| at <= now)
            }
            Sweep::Pending => {
                let limit_ms = task.profile.rules().pending_ms;
                let stale = limit_ms.is_some_and(|ms| task.entered_at <= now.plus_ms(-ms));
                task.status == State::Pending && stale
            }
            Sweep::Session(n) => {
                task.status.is_held() && task.claimed_by.as_deref() == Some(&session(n))
            }
        };
        let ids: Vec<TaskId> =
            self.tasks.values().map(|k| &k.snapshot).filter(|t| found(t)).map(|t| t.id).collect();
        let mut lines = vec![format!("scanned {}", ids.len())];
        for id in ids {
            let before = self.tasks[&id].history.len();
            let outcome = self.ask(id, &command, &format!("duty:{name}"));
            if self.tasks[&id].history.len() > before {
                lines.push(format!("{id} {}", told(outcome)));
            }
        }
        lines
    }

    /// Tasks whose time has come are ready; the first step of every claim.
    pub(super) fn ripen(&mut self) {
        let now = self.now;
        for task in self.tasks.values_mut().map(|known| &mut known.snapshot) {
            let waits = !task.ready && task.status.is_claimable();
            if waits && task.profile != Profile::Ledger && task.run_at <= now {
                (task.ready, task.updated_at) = (true, now);
            }
        }
    }
}

/// A line that says where the task stands, or which rule said no.
pub fn told(outcome: Result<State, Refusal>) -> String {
    match outcome {
        Ok(state) => state.to_string(),
        Err(refusal) => format!("refused: {}", refusal.code()),
    }
}

/// The same finishing call again is answered like the first: the history knows the lease.
fn repeated(known: &Known, command: &Command, refusal: Refusal) -> Result<State, Refusal> {
    let lease = match command {
        Command::Complete { lease_id, .. }
        | Command::Fail { lease_id, .. }
        | Command::Release { lease_id } => Some(*lease_id),
        _ => None,
    };
    let ended = |e: &&Entry| {
        lease.is_some()
            && e.lease == lease
            && e.from.is_some_and(State::is_held)
            && e.event != Event::Start
    };
    let (Refusal::LeaseLost { .. }, Some(end)) = (&refusal, known.history.iter().rfind(ended))
    else {
        return Err(refusal);
    };
    if end.metadata.as_ref().is_some_and(|m| m["session_lost"] == true) {
        return Err(refusal);
    }
    let told = |usage: &Option<Usage>| {
        end.metadata.as_ref().and_then(|m| m.get("usage")).cloned()
            == usage.as_ref().map(|usage| serde_json::to_value(usage).unwrap_or_default())
    };
    let same = match (command, end.event) {
        (Command::Complete { result, usage, .. }, Event::Complete) => {
            *result == known.snapshot.result && told(usage)
        }
        (Command::Fail { error, usage, .. }, Event::Fail) if told(usage) => {
            let first = end.metadata.as_ref().map(|m| &m["error"]);
            first == Some(&serde_json::to_value(error).unwrap_or_default())
        }
        (Command::Release { .. }, Event::Release | Event::ReleaseTooOften) => true,
        (_, Event::Complete | Event::Fail | Event::Release | Event::Wait) => false,
        _ => return Err(refusal),
    };
    if same { Ok(end.to) } else { Err(Refusal::AlreadyFinished { event: end.event }) }
}
