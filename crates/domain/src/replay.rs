//! Replay: a finished task once more, as a new task.
//!
//! The plan says of every step of the origin whether the new task takes its result along or runs
//! it again. What must not be done twice is refused by name, unless it is allowed explicitly.
//!
//! Invariant: planning changes nothing; a dry run and the replay itself use the same plan.

use crate::id::StepId;
use crate::state::{State, named};
use crate::step::{Effect, StepState};
use serde::{Deserialize, Serialize};

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
    /// What it is called.
    pub name: String,
    /// Which repetition.
    pub occurrence: i32,
    /// Whether it may run twice.
    pub idempotent: bool,
    /// Where it stands.
    pub status: StepState,
    /// What a failed one has done.
    pub effect: Option<Effect>,
    /// Whether its result was cleared since.
    pub expired: bool,
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
    /// Which step of the origin.
    pub id: StepId,
    /// What it is called.
    pub name: String,
    /// Which repetition.
    pub occurrence: i32,
    /// What becomes of it.
    pub fate: Fate,
}

/// What a replay would do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// Every step of the origin.
    pub steps: Vec<Planned>,
    /// Whether the origin's checkpoint is taken along.
    pub checkpoint: bool,
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
}

impl Refused {
    /// The stable code that clients rely on; documented in docs/errors.md.
    pub const fn code(&self) -> &'static str {
        match self {
            Refused::NotFinished { .. } => "not_finished",
            Refused::NoSuchStep { .. } => "no_such_step",
            Refused::NotIdempotent { .. } => "not_idempotent",
        }
    }
}

/// Plans a replay. Steps that may not run again are marked, not refused: see [`Plan::permit`].
pub fn plan(
    state: State,
    from: &ReplayFrom,
    steps: &[Past],
    allow_non_idempotent: bool,
) -> Result<Plan, Refused> {
    if !state.is_terminal() {
        return Err(Refused::NotFinished { state });
    }
    let begins_at = match from {
        ReplayFrom::Beginning => 0,
        ReplayFrom::LastCheckpoint => steps.len(),
        ReplayFrom::Step(name) => position(name, steps)?,
    };
    let planned = steps.iter().enumerate().map(|(index, step)| Planned {
        id: step.id,
        name: step.name.clone(),
        occurrence: step.occurrence,
        fate: fate(step, index < begins_at, allow_non_idempotent),
    });
    Ok(Plan { steps: planned.collect(), checkpoint: *from == ReplayFrom::LastCheckpoint })
}

fn position(name: &str, steps: &[Past]) -> Result<usize, Refused> {
    let found = steps.iter().position(|step| step.name == name);
    found.ok_or_else(|| {
        let mut known: Vec<String> = Vec::new();
        for step in steps {
            if !known.contains(&step.name) {
                known.push(step.name.clone());
            }
        }
        Refused::NoSuchStep { name: name.to_owned(), known }
    })
}

fn fate(step: &Past, is_before: bool, allow: bool) -> Fate {
    let is_done = step.status == StepState::Done;
    let is_known = is_done && !step.expired || step.status == StepState::Rejected;
    if is_before && is_known {
        return Fate::Reused;
    }
    // A failure without effect, a wait, and what a person allowed can be done again.
    let harmless = step.idempotent
        || step.status == StepState::Allowed
        || (step.status == StepState::Failed && step.effect == Some(Effect::None));
    match (harmless || allow, is_before && is_done) {
        (false, _) => Fate::Refused,
        (true, true) => Fate::Expired,
        (true, false) => Fate::Rerun,
    }
}

impl Plan {
    /// Refuses a plan with steps that must not run again.
    pub fn permit(&self) -> Result<(), Refused> {
        let mut steps: Vec<String> = Vec::new();
        for step in self.steps.iter().filter(|step| step.fate == Fate::Refused) {
            if !steps.contains(&step.name) {
                steps.push(step.name.clone());
            }
        }
        if steps.is_empty() { Ok(()) } else { Err(Refused::NotIdempotent { steps }) }
    }

    /// The steps whose results are taken along.
    pub fn reused(&self) -> impl Iterator<Item = StepId> {
        self.steps.iter().filter(|step| step.fate == Fate::Reused).map(|step| step.id)
    }
}

/// Whether a person must agree first; `earlier_replays` are those of the whole family.
pub fn needs_approval(earlier_replays: i64, threshold: i64, is_required: bool) -> bool {
    is_required || earlier_replays >= threshold
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn past(n: u128, name: &str, idempotent: bool, status: StepState) -> Past {
        Past {
            id: StepId(Uuid::from_u128(n)),
            name: name.into(),
            occurrence: 0,
            idempotent,
            status,
            effect: None,
            expired: false,
        }
    }

    fn four() -> Vec<Past> {
        vec![
            past(1, "read", true, StepState::Done),
            past(2, "charge", false, StepState::Done),
            past(3, "write", true, StepState::Done),
            past(4, "mail", false, StepState::Begun),
        ]
    }

    fn fates(plan: &Plan) -> Vec<Fate> {
        plan.steps.iter().map(|step| step.fate).collect()
    }

    #[test]
    fn a_replay_takes_along_what_was_done_before_its_beginning() {
        use Fate::{Refused, Rerun, Reused};
        for (from, allow, wanted) in [
            (ReplayFrom::Beginning, false, [Rerun, Refused, Rerun, Refused]),
            (ReplayFrom::Beginning, true, [Rerun, Rerun, Rerun, Rerun]),
            (ReplayFrom::LastCheckpoint, false, [Reused, Reused, Reused, Refused]),
            (ReplayFrom::Step("write".into()), false, [Reused, Reused, Rerun, Refused]),
            (ReplayFrom::Step("charge".into()), true, [Reused, Rerun, Rerun, Rerun]),
        ] {
            let plan = plan(State::Failed, &from, &four(), allow).unwrap();
            assert_eq!(fates(&plan), wanted, "{from:?} {allow}");
            assert_eq!(plan.checkpoint, from == ReplayFrom::LastCheckpoint);
        }
    }

    #[test]
    fn what_must_not_run_twice_is_named() {
        let plan = plan(State::Poisoned, &ReplayFrom::Beginning, &four(), false).unwrap();
        let refused = plan.permit().unwrap_err();
        assert_eq!(refused.code(), "not_idempotent");
        assert!(refused.to_string().contains("charge, mail"), "{refused}");
    }

    #[test]
    fn a_cleared_result_is_not_taken_along() {
        let mut steps = four();
        steps[0].expired = true;
        steps[1].expired = true;
        let plan = plan(State::Failed, &ReplayFrom::LastCheckpoint, &steps, false).unwrap();
        assert_eq!(fates(&plan)[..2], [Fate::Expired, Fate::Refused]);
    }

    #[test]
    fn a_failure_without_effect_may_run_again() {
        let failed = Past { effect: Some(Effect::None), ..past(1, "a", false, StepState::Failed) };
        let plan = plan(State::Failed, &ReplayFrom::LastCheckpoint, &[failed], false).unwrap();
        assert_eq!(fates(&plan), [Fate::Rerun]);
    }

    #[test]
    fn a_persons_decision_is_part_of_the_plan() {
        for (status, before, after) in [
            (StepState::InDoubt, Fate::Refused, Fate::Refused),
            (StepState::Done, Fate::Reused, Fate::Refused),
            (StepState::Allowed, Fate::Rerun, Fate::Rerun),
            (StepState::Rejected, Fate::Reused, Fate::Refused),
        ] {
            let steps = [past(1, "charge", false, status)];
            for (from, wanted) in
                [(ReplayFrom::LastCheckpoint, before), (ReplayFrom::Beginning, after)]
            {
                let plan = plan(State::Failed, &from, &steps, false).unwrap();
                assert_eq!(fates(&plan), [wanted], "{status} {from:?}");
            }
        }
    }

    #[test]
    fn only_a_finished_task_is_replayed_and_only_from_a_step_it_has() {
        let running = plan(State::Running, &ReplayFrom::Beginning, &[], false).unwrap_err();
        assert_eq!(running.code(), "not_finished");
        let from = ReplayFrom::Step("nope".into());
        let unknown = plan(State::Failed, &from, &four(), false).unwrap_err();
        assert!(unknown.to_string().contains("read, charge, write, mail"), "{unknown}");
    }

    #[test]
    fn the_second_replay_needs_an_approval() {
        assert!(!needs_approval(0, DEFAULT_APPROVAL_THRESHOLD, false));
        assert!(needs_approval(1, DEFAULT_APPROVAL_THRESHOLD, false));
        assert!(needs_approval(0, DEFAULT_APPROVAL_THRESHOLD, true));
    }
}
