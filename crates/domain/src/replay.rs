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
use crate::step::{Effect, StepKey, StepState};
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};

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
    /// Its place among the steps of all tasks.
    pub seq: i64,
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
    /// Its place among the steps of all tasks.
    pub seq: i64,
    /// Where it stands.
    pub status: StepState,
    /// What a failed one has done.
    pub effect: Option<Effect>,
}

impl Elsewhere {
    /// Whether anything may have happened to the world.
    pub fn may_have_run(&self) -> bool {
        !had_no_effect(self.status, self.effect)
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

/// Another task of the family of one that wants to begin a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relative {
    /// Which task.
    pub id: TaskId,
    /// Since when it is there.
    pub created_at: Timestamp,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
}

/// Whether a plan of a task that was made at `made_at` may have missed what `relative` began: it
/// was not over then.
pub fn was_open(relative: &Relative, made_at: Timestamp) -> bool {
    relative.finished_at.is_none_or(|at| at > made_at)
}

/// Whether `step` was begun elsewhere since a task was made at `made_at`, so that nobody who
/// permitted that task knew of it. At the very moment counts: rather one question too many.
pub fn came_between(step: &Elsewhere, begun_at: Timestamp, made_at: Timestamp) -> bool {
    step.may_have_run() && begun_at >= made_at
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
}

/// What a replay would do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// Every step of the origin; then what others of its family began that must not run twice.
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
    /// Something would happen twice that the person who agreed was not told of.
    #[error(
        "the replay would by now run steps again that the approval does not name: {}; ask anew",
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
    let mut others: BTreeMap<(i64, StepId), &Elsewhere> = BTreeMap::new();
    let mut last_runs: HashMap<&StepKey, &Elsewhere> = HashMap::new();
    for other in elsewhere.iter().filter(|other| other.may_have_run()) {
        if !last_runs.contains_key(&other.key) {
            others.insert((other.seq, other.id), other);
        }
        last_runs.insert(&other.key, other);
    }
    let own: HashMap<&StepKey, i64> = steps.iter().map(|step| (&step.key, step.seq)).collect();
    let mut planned: Vec<Planned> = Vec::with_capacity(steps.len());
    for (index, step) in steps.iter().enumerate() {
        let since = last_runs.get(&step.key).filter(|run| run.seq > step.seq);
        let fate = fate(step, index < begins_at, since.is_some(), allow_non_idempotent);
        let since = since.filter(|_| fate != Fate::Reused);
        planned.push(line(step.id, &step.key, step.idempotent, fate, since.map(|run| run.task)));
    }
    let fate = if allow_non_idempotent { Fate::Rerun } else { Fate::Refused };
    for other in others.values().filter(|other| !own.contains_key(&other.key)) {
        let run_in = last_runs.get(&other.key).map(|run| run.task);
        planned.push(line(other.id, &other.key, false, fate, run_in));
    }
    let checkpoint = has_checkpoint && *from == ReplayFrom::LastCheckpoint;
    Ok(Plan { steps: planned, checkpoint })
}

fn line(
    id: StepId,
    key: &StepKey,
    idempotent: bool,
    fate: Fate,
    run_in: Option<TaskId>,
) -> Planned {
    Planned { id, name: key.name.clone(), occurrence: key.occurrence, idempotent, fate, run_in }
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

    /// Refuses a plan that runs other steps again than a person has agreed to.
    pub fn stay_within(&self, agreed: &[StepId]) -> Result<(), Refused> {
        let steps = told(self.runs_again().filter(|step| !agreed.contains(&step.id)));
        if steps.is_empty() { Ok(()) } else { Err(Refused::NotAgreed { steps }) }
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

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn key(name: &str) -> StepKey {
        StepKey::new(name, &serde_json::Value::Null, 0)
    }

    fn plan(state: State, from: &ReplayFrom, steps: &[Past], allow: bool) -> Result<Plan, Refused> {
        let origin = Origin { state, has_checkpoint: true, steps, elsewhere: &[] };
        super::plan(&origin, from, allow)
    }

    fn past(n: u128, name: &str, idempotent: bool, status: StepState) -> Past {
        Past {
            id: StepId(Uuid::from_u128(n)),
            key: key(name),
            seq: n as i64,
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

    fn elsewhere(n: u128, name: &str, status: StepState) -> Elsewhere {
        Elsewhere {
            id: StepId(Uuid::from_u128(n)),
            task: TaskId(Uuid::from_u128(1_000 + n)),
            key: key(name),
            seq: n as i64,
            status,
            effect: None,
        }
    }

    fn beside(
        steps: &[Past],
        elsewhere: &[Elsewhere],
        from: &ReplayFrom,
        allow: bool,
    ) -> Result<Plan, Refused> {
        let origin = Origin { state: State::Failed, has_checkpoint: false, steps, elsewhere };
        super::plan(&origin, from, allow)
    }

    #[test]
    fn a_permission_is_good_for_one_further_run() {
        let last = ReplayFrom::LastCheckpoint;
        let no_effect =
            Past { effect: Some(Effect::None), ..past(5, "charge", false, StepState::Failed) };
        for own in [past(5, "charge", false, StepState::Allowed), no_effect] {
            let own = [own];
            for status in [
                StepState::Begun,
                StepState::Done,
                StepState::Failed,
                StepState::InDoubt,
                StepState::Allowed,
                StepState::Rejected,
            ] {
                let earlier = [elsewhere(4, "charge", status)];
                let before = beside(&own, &earlier, &last, false).unwrap();
                assert_eq!(fates(&before), [Fate::Rerun], "what was permitted since: {status}");
                let later = [elsewhere(6, "charge", status), elsewhere(7, "mail", status)];
                let after = beside(&own, &later[..1], &last, false).unwrap();
                assert_eq!(fates(&after), [Fate::Refused], "{status}");
                assert_eq!(after.steps[0].run_in, Some(later[0].task));
                let refused = after.permit().unwrap_err().to_string();
                assert!(refused.contains(&format!("charge (run in task {}", later[0].task)));
                let allowed = beside(&own, &later, &last, true).unwrap();
                assert_eq!(fates(&allowed), [Fate::Rerun, Fate::Rerun], "allowed again");
            }
            let vain = Elsewhere {
                effect: Some(Effect::None),
                ..elsewhere(6, "charge", StepState::Failed)
            };
            let after = beside(&own, &[vain], &last, false).unwrap();
            assert_eq!(fates(&after), [Fate::Rerun], "nothing has happened there");
        }
    }

    #[test]
    fn what_only_another_of_the_family_ran_is_part_of_the_plan() {
        let own = [past(1, "read", true, StepState::Done)];
        let others = [
            elsewhere(5, "charge", StepState::Done),
            elsewhere(6, "mail", StepState::Begun),
            elsewhere(7, "charge", StepState::Done),
        ];
        let last = ReplayFrom::LastCheckpoint;
        let planned = beside(&own, &others, &last, false).unwrap();
        let lines: Vec<_> = planned.steps.iter().map(|s| (s.name.as_str(), s.run_in)).collect();
        let (fifth, seventh) = (Some(others[1].task), Some(others[2].task));
        assert_eq!(lines, [("read", None), ("charge", seventh), ("mail", fifth)]);
        assert_eq!(fates(&planned), [Fate::Reused, Fate::Refused, Fate::Refused]);
        assert_eq!(planned.permit().unwrap_err().code(), "not_idempotent");
        let allowed = beside(&own, &others, &last, true).unwrap();
        let again: Vec<_> = allowed.runs_again().map(|step| step.id).collect();
        assert_eq!(again, [others[0].id, others[1].id]);
        assert!(allowed.stay_within(&again).is_ok());
        let refused = allowed.stay_within(&again[..1]).unwrap_err().to_string();
        assert!(refused.contains("mail") && !refused.contains("charge"), "{refused}");
        let done = [past(1, "charge", false, StepState::Done)];
        let reused = beside(&done, &others[..1], &last, false).unwrap();
        assert_eq!(fates(&reused), [Fate::Reused], "what does not run, runs no second time");
    }

    #[test]
    fn a_plan_takes_a_checkpoint_along_only_if_there_is_one() {
        for (has_checkpoint, from, wanted) in [
            (true, ReplayFrom::LastCheckpoint, true),
            (false, ReplayFrom::LastCheckpoint, false),
            (true, ReplayFrom::Beginning, false),
        ] {
            let origin =
                Origin { state: State::Failed, has_checkpoint, steps: &[], elsewhere: &[] };
            assert_eq!(super::plan(&origin, &from, false).unwrap().checkpoint, wanted);
        }
    }

    #[test]
    fn only_what_was_begun_since_comes_between() {
        let at = Timestamp::from_ms;
        let relative =
            |finished_at| Relative { id: TaskId(Uuid::nil()), created_at: at(0), finished_at };
        assert!(was_open(&relative(None), at(5)) && was_open(&relative(Some(at(6))), at(5)));
        assert!(!was_open(&relative(Some(at(5))), at(5)));
        let begun = elsewhere(1, "charge", StepState::Begun);
        let vain = Elsewhere { effect: Some(Effect::None), ..elsewhere(1, "a", StepState::Failed) };
        assert!(came_between(&begun, at(5), at(5)) && !came_between(&begun, at(4), at(5)));
        assert!(!came_between(&vain, at(6), at(5)));
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
