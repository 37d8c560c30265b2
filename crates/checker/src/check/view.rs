//! The run, sorted by task: what every check looks things up in.

use super::{Invariant, Run, Violation};
use crate::dump::{Moved, TaskRow};
use crate::ledger::Effect;
use crate::log::{Answer, Call, Ending, Handed, Held, Operation, Renewed};
use std::collections::BTreeMap;
use std::fmt::Display;
use uuid::Uuid;
use windlass_domain::state::{Event, State};

/// The time in which one lease held a task, by the history.
pub(super) struct Tenure<'a> {
    pub lease: Option<Uuid>,
    pub begin: &'a Moved,
    pub end: Option<&'a Moved>,
}

/// An accepted end of an attempt.
pub(super) struct Finished<'a> {
    pub call: &'a Call,
    pub held: Held,
    pub ending: Ending,
    pub content: &'a serde_json::Value,
    pub status: State,
}

/// Everything about one task.
#[derive(Default)]
pub(super) struct Thread<'a> {
    pub id: Uuid,
    pub row: Option<&'a TaskRow>,
    pub history: Vec<&'a Moved>,
    pub tenures: Vec<Tenure<'a>>,
    /// Acknowledged submits.
    pub submits: Vec<&'a Call>,
    /// Every time it was handed out.
    pub handed: Vec<(&'a Call, &'a Handed)>,
    /// Every accepted heartbeat.
    pub renewed: Vec<(&'a Call, &'a Renewed)>,
    /// Every accepted end of an attempt.
    pub finished: Vec<Finished<'a>>,
    /// Every read.
    pub shown: Vec<(&'a Call, State, Option<&'a serde_json::Value>)>,
    pub effects: Vec<&'a Effect>,
}

impl Thread<'_> {
    pub fn tenure(&self, lease: Uuid) -> Option<&Tenure<'_>> {
        self.tenures.iter().find(|tenure| tenure.lease == Some(lease))
    }

    pub fn violation(
        &self,
        invariant: Invariant,
        what: impl Into<String>,
        evidence: &[&dyn Display],
    ) -> Violation {
        let evidence = evidence.iter().map(ToString::to_string).collect();
        Violation { invariant, task: self.id, what: what.into(), evidence }
    }

    /// The same, with the task's whole history as evidence.
    pub fn violation_by_history(
        &self,
        invariant: Invariant,
        what: impl Into<String>,
        evidence: &[&dyn Display],
    ) -> Violation {
        let mut lines = evidence.to_vec();
        lines.extend(self.row.iter().map(|row| row as &dyn Display));
        lines.extend(self.history.iter().map(|row| row as &dyn Display));
        self.violation(invariant, what, &lines)
    }
}

/// The run by task.
pub(super) struct View<'a> {
    pub threads: BTreeMap<Uuid, Thread<'a>>,
}

impl<'a> View<'a> {
    pub fn of(run: &'a Run) -> View<'a> {
        let mut view = View { threads: BTreeMap::new() };
        for (id, row) in &run.dump.tasks {
            view.thread(*id).row = Some(row);
        }
        for row in &run.dump.history {
            view.thread(row.task).history.push(row);
        }
        for effect in &run.effects {
            view.thread(effect.held.task).effects.push(effect);
        }
        for call in &run.calls {
            view.sort_in(call);
        }
        for thread in view.threads.values_mut() {
            thread.history.sort_by_key(|row| row.seq);
            thread.tenures = tenures(&thread.history);
        }
        view
    }

    fn thread(&mut self, task: Uuid) -> &mut Thread<'a> {
        self.threads.entry(task).or_insert_with(|| Thread { id: task, ..Thread::default() })
    }

    fn sort_in(&mut self, call: &'a Call) {
        for handed in call.handed() {
            self.thread(handed.held.task).handed.push((call, handed));
        }
        match (&call.operation, call.answer()) {
            (Operation::Submit { task, .. }, Some(_)) => self.thread(*task).submits.push(call),
            (_, Some(Answer::Beaten { renewed, .. })) => {
                for renewed in renewed {
                    self.thread(renewed.held.task).renewed.push((call, renewed));
                }
            }
            (Operation::Finish { held, ending, content, .. }, Some(Answer::Finished(status))) => {
                let (held, ending, status) = (*held, *ending, *status);
                let finished = Finished { call, held, ending, content, status };
                self.thread(held.task).finished.push(finished);
            }
            (Operation::Show { task }, Some(Answer::Shown { status, result })) => {
                self.thread(*task).shown.push((call, *status, result.as_ref()));
            }
            _ => {}
        }
    }
}

fn tenures<'a>(history: &[&'a Moved]) -> Vec<Tenure<'a>> {
    let mut tenures: Vec<Tenure<'a>> = Vec::new();
    for row in history.iter().copied() {
        let is_claim = row.event == Event::Claim;
        if (is_claim || !row.to.is_held())
            && let Some(open) = tenures.last_mut().filter(|tenure| tenure.end.is_none())
        {
            open.end = Some(row);
        }
        if is_claim {
            tenures.push(Tenure { lease: row.lease, begin: row, end: None });
        }
    }
    tenures
}
