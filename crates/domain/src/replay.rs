//! Replay: a finished task once more, as a new task.
//!
//! The plan says of every step of the origin whether the new task takes its result along or runs
//! it again. What must not be done twice is refused by name, unless it is allowed explicitly.
//! A permission is good for one further run: what another task of the family (the task that was
//! submitted, its replays, and theirs) has begun since asks for another one.
//!
//! Invariant: planning changes nothing; a dry run and the replay itself use the same plan.

use crate::id::{StepId, TaskId};
use crate::state::{State, named};
use crate::step::{Effect, Place, StepKey, StepState};
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, HashSet};

#[cfg(test)]
mod tests;

/// How many replays a family may have before the next one needs an approval: those of the task that
/// was submitted, replays of its replays included.
pub const DEFAULT_APPROVAL_THRESHOLD: i64 = 1;
/// So many replays of a family are counted, and so many generations of it, and not more: a higher
/// threshold asks nobody.
pub const MAX_COUNTED: i64 = 10_000;

/// Where a replay begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplayFrom {
    /// With nothing done.
    Beginning,
    /// With everything that is done.
    LastCheckpoint,
    /// With what was done before the first step of this name.
    Step(String),
}

/// A step of the origin, in the order in which they were begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Past {
    /// Which step.
    pub id: StepId,
    /// What identifies it.
    pub key: StepKey,
    /// The place of its last run.
    pub place: Place,
    /// When it was begun for the first time.
    pub begun_at: Timestamp,
    /// Whether it may run twice.
    pub idempotent: bool,
    /// Where it stands.
    pub status: StepState,
    /// What a failed one has done.
    pub effect: Option<Effect>,
    /// Whether its result was cleared since.
    pub expired: bool,
}

/// A step that must not run twice, as another task of the origin's family began it itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elsewhere {
    /// Which step.
    pub id: StepId,
    /// Of which task.
    pub task: TaskId,
    /// What identifies it.
    pub key: StepKey,
    /// The place of its last run.
    pub place: Place,
    /// Where it stands.
    pub status: StepState,
    /// What a failed one has done.
    pub effect: Option<Effect>,
    /// When its last run ended.
    pub ended_at: Option<Timestamp>,
}

impl Elsewhere {
    /// Whether anything may have happened to the world.
    pub fn may_have_run(&self) -> bool {
        !had_no_effect(self.status, self.effect)
    }

    /// Whether its last run began after that of a step of the origin. Of two that were begun before
    /// runs had numbers nobody knows how often: unless it was over by then, it did.
    fn ran_after(&self, own: &Past) -> bool {
        let was_over = || self.ended_at.is_some_and(|at| at < own.begun_at);
        match (self.place.run, own.place.run) {
            (None, None) => self.place > own.place || !was_over(),
            _ => self.place > own.place,
        }
    }
}

/// What is to be repeated.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// Where the task stands.
    pub state: State,
    /// Whether it has left a checkpoint.
    pub has_checkpoint: bool,
    /// Its steps.
    pub steps: &'a [Past],
    /// What others of its family began, in the order of their places.
    pub elsewhere: &'a [Elsewhere],
}

/// When a task of a family was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Made {
    /// Its number among those of runs; `None` if nobody knows it any more.
    pub run: Option<i64>,
    /// The time, for steps that were begun before runs had numbers.
    pub at: Timestamp,
}

/// Whether `step` was begun elsewhere since a task was made, so that nobody who permitted that task
/// knew of it. At the very moment counts: rather one question too many. Of one that was begun
/// before runs had numbers nobody knows how often, so it must have been over by then.
pub fn came_between(step: &Elsewhere, made: Made) -> bool {
    let is_later = match step.place.run {
        Some(run) => made.run.is_none_or(|made| run >= made),
        None => step.ended_at.is_none_or(|at| at >= made.at),
    };
    step.may_have_run() && is_later
}

named! {
    /// What becomes of a step in the new task.
    Fate {
        /// What became of it is taken along, its result or a person's word that it has failed;
        /// it does not run.
        Reused = "reused",
        /// It runs again.
        Rerun = "rerun",
        /// Its result would be taken along, but was cleared: it runs again.
        Expired = "expired",
        /// It must not run again unless that is allowed.
        Refused = "refused",
    }
}

/// One line of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Planned {
    /// Which step of the origin; or of `run_in`, if the origin has none of the kind.
    pub id: StepId,
    /// What it is called.
    pub name: String,
    /// Which repetition.
    pub occurrence: i32,
    /// Whether it may run twice.
    pub idempotent: bool,
    /// What becomes of it.
    pub fate: Fate,
    /// The other task of the family that began it last, since the origin did: what was permitted
    /// for the origin's step is used up.
    pub run_in: Option<TaskId>,
    /// The number of its last run in the family, of one that must not run twice.
    #[serde(skip)]
    pub last_run: Option<i64>,
}

/// What a replay would do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// Every step of the origin; then what others of its family began that must not run twice.
    pub steps: Vec<Planned>,
    /// Whether the origin's checkpoint is taken along.
    pub checkpoint: bool,
}

/// What a person who agrees to a replay was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// The steps that run again and must not run twice.
    pub steps: Vec<StepId>,
    /// The highest number of their runs; `None` if the question is older than such numbers.
    pub last_run: Option<i64>,
}

/// Why there is no replay.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Only what has ended can be replayed.
    #[error("the task is {state}; only a finished task can be replayed, so cancel it first")]
    NotFinished {
        /// Where it stands.
        state: State,
    },
    /// The origin has no step of this name.
    #[error("the task has no step named `{name}`; its steps are: {}", known.join(", "))]
    NoSuchStep {
        /// What was asked for.
        name: String,
        /// What there is.
        known: Vec<String>,
    },
    /// Something would happen twice.
    #[error(
        "the replay would run steps again that must not run twice: {}; replay from a later point, \
         decide over those in doubt first, or allow it explicitly (`allow_non_idempotent`)",
        steps.join(", ")
    )]
    NotIdempotent {
        /// Their names.
        steps: Vec<String>,
    },
    /// Something would happen twice that the person who agreed was not told of.
    #[error(
        "the replay would by now run more again than the approval says: {}; ask anew",
        steps.join(", ")
    )]
    NotAgreed {
        /// Their names.
        steps: Vec<String>,
    },
}

impl Refused {
    /// The stable code that clients rely on; documented in docs/errors.md.
    pub const fn code(&self) -> &'static str {
        match self {
            Refused::NotFinished { .. } => "not_finished",
            Refused::NoSuchStep { .. } => "no_such_step",
            Refused::NotIdempotent { .. } | Refused::NotAgreed { .. } => "not_idempotent",
        }
    }
}

/// Plans a replay. Steps that may not run again are marked, not refused: see [`Plan::permit`].
pub fn plan(
    origin: &Origin<'_>,
    from: &ReplayFrom,
    allow_non_idempotent: bool,
) -> Result<Plan, Refused> {
    let &Origin { state, has_checkpoint, steps, elsewhere } = origin;
    if !state.is_terminal() {
        return Err(Refused::NotFinished { state });
    }
    let begins_at = match from {
        ReplayFrom::Beginning => 0,
        ReplayFrom::LastCheckpoint => steps.len(),
        ReplayFrom::Step(name) => position(name, steps)?,
    };
    let mut others: BTreeMap<(Place, StepId), &Elsewhere> = BTreeMap::new();
    // In the order of their places; of steps without numbers an earlier one may have run last.
    let mut runs: HashMap<&StepKey, Vec<&Elsewhere>> = HashMap::new();
    for other in elsewhere.iter().filter(|other| other.may_have_run()) {
        let of_key = runs.entry(&other.key).or_default();
        if of_key.is_empty() {
            others.insert((other.place, other.id), other);
        }
        of_key.push(other);
    }
    let own: HashSet<&StepKey> = steps.iter().map(|step| &step.key).collect();
    let mut planned: Vec<Planned> = Vec::with_capacity(steps.len());
    for (index, step) in steps.iter().enumerate() {
        let of_key = runs.get(&step.key).into_iter().flatten();
        let since = of_key.rev().find(|run| run.ran_after(step));
        let fate = fate(step, index < begins_at, since.is_some(), allow_non_idempotent);
        let since = since.filter(|_| fate != Fate::Reused);
        let own = line(step.id, &step.key, step.idempotent, fate);
        planned.push(Planned { last_run: step.place.run, ..own }.with(since.copied()));
    }
    let fate = if allow_non_idempotent { Fate::Rerun } else { Fate::Refused };
    for other in others.values().filter(|other| !own.contains(&other.key)) {
        let last = runs.get(&other.key).and_then(|of_key| of_key.last()).copied();
        planned.push(line(other.id, &other.key, false, fate).with(last));
    }
    let checkpoint = has_checkpoint && *from == ReplayFrom::LastCheckpoint;
    Ok(Plan { steps: planned, checkpoint })
}

fn line(id: StepId, key: &StepKey, idempotent: bool, fate: Fate) -> Planned {
    let (name, occurrence) = (key.name.clone(), key.occurrence);
    Planned { id, name, occurrence, idempotent, fate, run_in: None, last_run: None }
}

fn position(name: &str, steps: &[Past]) -> Result<usize, Refused> {
    let found = steps.iter().position(|step| step.key.name == name);
    found.ok_or_else(|| {
        let mut known: Vec<String> = Vec::new();
        for step in steps {
            if !known.contains(&step.key.name) {
                known.push(step.key.name.clone());
            }
        }
        Refused::NoSuchStep { name: name.to_owned(), known }
    })
}

fn had_no_effect(status: StepState, effect: Option<Effect>) -> bool {
    status == StepState::Failed && effect == Some(Effect::None)
}

fn fate(step: &Past, is_before: bool, has_run_since: bool, allow: bool) -> Fate {
    let is_done = step.status == StepState::Done;
    let is_known = is_done && !step.expired || step.status == StepState::Rejected;
    if is_before && is_known {
        return Fate::Reused;
    }
    // A failure without effect, a wait, and what a person allowed can be done again: once.
    let harmless = step.idempotent
        || step.status == StepState::Allowed
        || had_no_effect(step.status, step.effect);
    match (harmless && !has_run_since || allow, is_before && is_done) {
        (false, _) => Fate::Refused,
        (true, true) => Fate::Expired,
        (true, false) => Fate::Rerun,
    }
}

impl Planned {
    /// With its last run in another task.
    fn with(self, run: Option<&Elsewhere>) -> Planned {
        let last_run = self.last_run.max(run.and_then(|run| run.place.run));
        Planned { run_in: run.map(|run| run.task), last_run, ..self }
    }

    /// As a refusal names it.
    fn told(&self) -> String {
        match self.run_in {
            Some(task) => format!("{} (run in task {task} since)", self.name),
            None => self.name.clone(),
        }
    }
}

impl Plan {
    /// Refuses a plan with steps that must not run again.
    pub fn permit(&self) -> Result<(), Refused> {
        let steps = told(self.steps.iter().filter(|step| step.fate == Fate::Refused));
        if steps.is_empty() { Ok(()) } else { Err(Refused::NotIdempotent { steps }) }
    }

    /// Refuses a plan that runs more again than a person has agreed to: another step, or one that
    /// has run once more since.
    pub fn stay_within(&self, agreed: &Agreed) -> Result<(), Refused> {
        let is_agreed = |step: &Planned| {
            agreed.steps.contains(&step.id)
                && agreed.last_run.is_none_or(|known| step.last_run.is_none_or(|run| run <= known))
        };
        let steps = told(self.runs_again().filter(|step| !is_agreed(step)));
        if steps.is_empty() { Ok(()) } else { Err(Refused::NotAgreed { steps }) }
    }

    /// What a person is asked to agree to.
    pub fn agreed(&self) -> Agreed {
        let last_run = self.runs_again().filter_map(|step| step.last_run).max();
        let steps = self.runs_again().map(|step| step.id).collect();
        Agreed { steps, last_run: Some(last_run.unwrap_or(0)) }
    }

    /// The steps whose results are taken along.
    pub fn reused(&self) -> impl Iterator<Item = StepId> {
        self.steps.iter().filter(|step| step.fate == Fate::Reused).map(|step| step.id)
    }

    /// The steps that must not run twice, and will run all the same.
    pub fn runs_again(&self) -> impl Iterator<Item = &Planned> {
        let runs = |step: &&Planned| matches!(step.fate, Fate::Rerun | Fate::Expired);
        self.steps.iter().filter(|step| !step.idempotent).filter(runs)
    }
}

fn told<'a>(planned: impl Iterator<Item = &'a Planned>) -> Vec<String> {
    let mut steps: Vec<String> = Vec::new();
    for told in planned.map(Planned::told) {
        if !steps.contains(&told) {
            steps.push(told);
        }
    }
    steps
}

/// Whether a person must agree first; `earlier_replays` are those of the whole family.
pub fn needs_approval(earlier_replays: i64, threshold: i64, is_required: bool) -> bool {
    is_required || earlier_replays >= threshold
}
