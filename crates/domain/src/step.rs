//! Steps: what a task has done so far, so that a crash costs nothing.
//!
//! A step that may run twice is recorded when it is done, in one commit; beginning it writes
//! nothing. A step that must not run twice writes its intent first: an intent without a result,
//! found by another attempt, is in doubt, and only a person knows better.
//!
//! Invariant: a done step's result never changes. What may follow what stands in `STEPS`.
//! Absent: waits are steps too (a sleep is done when it is over), but `wait` knows them.

use crate::id::{LeaseId, StepId, TaskId};
use crate::refusal::Refusal;
use crate::state::named;
use crate::validate::{self, Errors};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use uuid::Uuid;

/// The largest number of one step's repetitions.
pub const MAX_OCCURRENCE: i32 = 1_000_000;
/// The kind of a step that says none.
pub const DEFAULT_KIND: &str = "step";
/// Names that begin so are those of waits.
pub const WAIT_PREFIX: &str = "wait:";
/// Results are cleared so long after their task has finished.
pub const RESULT_RETENTION_MS: i64 = 7 * 24 * 60 * 60 * 1_000;

named! {
    /// Where a step stands.
    StepState {
        /// Its intent is written, and nobody knows yet what became of it.
        Begun = "begun",
        /// Waits for a time, a signal or a task.
        Waiting = "waiting",
        /// Its result is known and never changes.
        Done = "done",
        /// It ended with an error.
        Failed = "failed",
        /// It was begun, and whoever began it is gone: a person must decide.
        InDoubt = "in_doubt",
        /// A person allowed it to run again.
        Allowed = "allowed",
        /// A person decided that it has failed for good.
        Rejected = "rejected",
    }
}

named! {
    /// What moves a step.
    StepEvent {
        /// An attempt is about to run it.
        Begin = "begin",
        /// Its effect has happened, and this is the result.
        Complete = "complete",
        /// It ended with an error.
        Fail = "fail",
        /// Another attempt found the intent.
        Doubt = "doubt",
        /// What it waited for has come.
        Wake = "wake",
        /// A person tells the result.
        RecordResult = "record_result",
        /// A person allows it to run again.
        AllowRerun = "allow_rerun",
        /// A person fails it.
        Reject = "fail_step",
    }
}

named! {
    /// What a failed step has done to the world.
    Effect {
        /// Nothing: it may run again.
        None = "none",
        /// Nobody knows.
        Unknown = "unknown",
    }
}

/// The machine of a step. A failed step begins again only if it had no effect; see [`begin`].
pub const STEPS: &[(StepState, StepEvent, StepState)] = &[
    (StepState::Begun, StepEvent::Complete, StepState::Done),
    (StepState::Begun, StepEvent::Fail, StepState::Failed),
    (StepState::Begun, StepEvent::Doubt, StepState::InDoubt),
    (StepState::Failed, StepEvent::Begin, StepState::Begun),
    (StepState::Failed, StepEvent::Doubt, StepState::InDoubt),
    (StepState::Waiting, StepEvent::Wake, StepState::Done),
    (StepState::InDoubt, StepEvent::RecordResult, StepState::Done),
    (StepState::InDoubt, StepEvent::AllowRerun, StepState::Allowed),
    (StepState::InDoubt, StepEvent::Reject, StepState::Rejected),
    (StepState::Allowed, StepEvent::Begin, StepState::Begun),
];

/// Where an event leads, if it may happen.
pub fn after(from: StepState, event: StepEvent) -> Option<StepState> {
    STEPS.iter().find(|(f, e, _)| *f == from && *e == event).map(|(_, _, to)| *to)
}

/// What identifies a step within its task.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StepKey {
    /// What the step is called.
    pub name: String,
    /// Hex SHA-256 of the canonical inputs.
    pub inputs_hash: String,
    /// Which repetition of the same name and inputs within an attempt, from 0.
    pub occurrence: i32,
}

impl StepKey {
    /// The key of a step with these inputs.
    pub fn new(name: impl Into<String>, inputs: &Value, occurrence: i32) -> StepKey {
        StepKey { name: name.into(), inputs_hash: crate::json::digest(inputs), occurrence }
    }

    /// The step's id in a task: the same key of another task is another step.
    pub fn id(&self, task: TaskId) -> StepId {
        let mut hash = Sha256::new();
        hash.update(task.0.as_bytes());
        hash.update((self.name.len() as u64).to_be_bytes());
        hash.update(self.name.as_bytes());
        hash.update(self.inputs_hash.as_bytes());
        hash.update(self.occurrence.to_be_bytes());
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hash.finalize()[..16]);
        // Version 8: made by a rule of our own.
        bytes[6] = bytes[6] & 0x0f | 0x80;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        StepId(Uuid::from_bytes(bytes))
    }
}

/// Where the last run of a step stands among the runs of all steps. Each begin of a step that must
/// not run twice takes the next number of a run; the making of a task has one as well, so that they
/// tell what came first, whatever the clocks say. Steps that were begun before there were numbers
/// come first, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Which run.
    pub run: Option<i64>,
    /// The step's place among the steps of all tasks.
    pub seq: i64,
}

/// What a rule must know of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepSnapshot {
    /// Which step.
    pub id: StepId,
    /// Where it stands.
    pub status: StepState,
    /// Under which lease it was begun or recorded.
    pub lease_id: Option<LeaseId>,
    /// Which run of it began last; see [`Place`].
    pub run: Option<i64>,
    /// What a failed one has done.
    pub effect: Option<Effect>,
    /// Canonical JSON.
    pub result: Option<String>,
    /// How a failed one went wrong: canonical JSON.
    pub error: Option<String>,
    /// The digest of the checkpoint that its holder told with the end.
    pub checkpoint: Option<String>,
}

/// How a step ended, as its holder tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// With a result: canonical JSON, and the digest of the checkpoint that came with it.
    Result(String, Option<String>),
    /// With an error: canonical JSON, and what it has done all the same.
    Error(String, Effect),
}

impl Told {
    fn event(&self) -> StepEvent {
        match self {
            Told::Result(..) => StepEvent::Complete,
            Told::Error(..) => StepEvent::Fail,
        }
    }

    /// Whether the step ended in this very way.
    fn is(&self, step: &StepSnapshot) -> bool {
        match (step.status, self) {
            (StepState::Done, Told::Result(result, checkpoint)) => {
                (step.result.as_ref(), &step.checkpoint) == (Some(result), checkpoint)
            }
            (StepState::Failed, Told::Error(error, effect)) => {
                (step.error.as_ref(), step.effect) == (Some(error), Some(*effect))
            }
            _ => false,
        }
    }
}

/// What follows when an attempt wants to run a step that must not run twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// The intent is written: run it.
    Run,
    /// This very lease has written the intent: the same answer as the first time.
    RunAgain,
    /// It has run: take its result.
    Done,
    /// A person failed it: it never runs again.
    Rejected,
    /// Nobody knows whether it has run: the task waits for a person.
    Doubt,
}

/// Decides whether a step that must not run twice may run.
pub fn begin(step: Option<&StepSnapshot>, lease: LeaseId) -> Result<Begin, Refusal> {
    let Some(step) = step else { return Ok(Begin::Run) };
    match step.status {
        StepState::Done => Ok(Begin::Done),
        StepState::Rejected => Ok(Begin::Rejected),
        StepState::Allowed => Ok(Begin::Run),
        StepState::Begun if step.lease_id == Some(lease) => Ok(Begin::RunAgain),
        StepState::Failed if step.effect == Some(Effect::None) => Ok(Begin::Run),
        StepState::Begun | StepState::Failed | StepState::InDoubt => Ok(Begin::Doubt),
        StepState::Waiting => Err(refused(step, StepEvent::Begin)),
    }
}

/// Where a step stands for a person. What an ended task left begun, or failed with an effect that
/// nobody knows, is in doubt: no attempt will come by and find it.
pub fn left(step: &StepSnapshot, task_has_ended: bool) -> StepState {
    let had_no_effect = step.effect == Some(Effect::None);
    match after(step.status, StepEvent::Doubt) {
        Some(doubt) if task_has_ended && !had_no_effect => doubt,
        _ => step.status,
    }
}

/// What follows when the holder tells how a step ended: `true` if it is written, `false` if it was
/// told before. Whoever ended it once does not end it otherwise. With the number of a run, only
/// that run is ended: a late call about an earlier one says nothing about the next.
pub fn end(
    step: &StepSnapshot,
    told: &Told,
    lease: LeaseId,
    run: Option<i64>,
) -> Result<bool, Refusal> {
    if step.lease_id != Some(lease) {
        return Err(refused(step, told.event()));
    }
    if run.is_some() && run != step.run {
        return Err(Refusal::RunEnded { step: step.id });
    }
    if told.is(step) {
        return Ok(false);
    }
    match (after(step.status, told.event()), step.status) {
        (Some(_), _) => Ok(true),
        (None, StepState::Done | StepState::Failed) => {
            Err(Refusal::StepEnded { step: step.id, state: step.status })
        }
        (None, _) => Err(refused(step, told.event())),
    }
}

/// A person decides over a step in doubt: where it leads, or `None` if the same was decided before.
pub fn resolve(
    step: &StepSnapshot,
    event: StepEvent,
    result: Option<&str>,
) -> Result<Option<StepState>, Refusal> {
    let decided = after(StepState::InDoubt, event);
    if decided == Some(step.status) && step.result.as_deref() == result {
        return Ok(None);
    }
    after(step.status, event).map(Some).ok_or_else(|| refused(step, event))
}

fn refused(step: &StepSnapshot, event: StepEvent) -> Refusal {
    Refusal::StepState { step: step.id, state: step.status, event }
}

/// What a request says of a step, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct StepInput<'a> {
    /// What the step is called.
    pub name: &'a str,
    /// What kind of step.
    pub kind: Option<&'a str>,
    /// What it works on.
    pub inputs: Option<&'a Value>,
    /// Which repetition.
    pub occurrence: Option<i32>,
}

/// A step that may be stored.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckedStep {
    /// What identifies it.
    pub key: StepKey,
    /// What kind of step.
    pub kind: String,
    /// Canonical JSON.
    pub inputs: String,
}

/// Checks what a request says of a step.
pub fn check(input: &StepInput<'_>) -> validate::Result<CheckedStep> {
    let mut errors = Errors::default();
    errors.name("/name", input.name, validate::MAX_NAME_BYTES);
    if input.name.starts_with(WAIT_PREFIX) {
        let detail = format!("names that begin with `{WAIT_PREFIX}` are those of waits");
        errors.add("/name", "reserved", detail);
    }
    let kind = input.kind.unwrap_or(DEFAULT_KIND);
    errors.name("/type", kind, validate::MAX_WORKER_BYTES);
    let inputs = errors.json("/inputs", input.inputs.unwrap_or(&Value::Null), INPUT_BYTES);
    let occurrence = input.occurrence.unwrap_or(0);
    errors.range("/occurrence", occurrence.into(), 0, MAX_OCCURRENCE.into());
    errors.into_result()?;
    let key = StepKey::new(input.name, input.inputs.unwrap_or(&Value::Null), occurrence);
    Ok(CheckedStep { key, kind: kind.to_owned(), inputs })
}

/// The largest inputs.
const INPUT_BYTES: usize = validate::MAX_JSON_BYTES;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn step(status: StepState, lease: u128) -> StepSnapshot {
        StepSnapshot {
            id: StepId(Uuid::nil()),
            status,
            lease_id: Some(LeaseId(Uuid::from_u128(lease))),
            run: Some(2),
            effect: None,
            result: None,
            error: None,
            checkpoint: None,
        }
    }

    #[test]
    fn a_key_tells_tasks_names_inputs_and_repetitions_apart() {
        let task = TaskId(Uuid::from_u128(1));
        let key = StepKey::new("charge", &json!({"a": 1, "b": 2}), 0);
        let same = StepKey::new("charge", &json!({"b": 2, "a": 1}), 0);
        assert_eq!(key.id(task), same.id(task));
        let others = [
            StepKey::new("charge", &json!({"a": 1}), 0).id(task),
            StepKey::new("charge", &json!({"a": 1, "b": 2}), 1).id(task),
            StepKey::new("refund", &json!({"a": 1, "b": 2}), 0).id(task),
            key.id(TaskId(Uuid::from_u128(2))),
        ];
        assert!(others.iter().all(|other| *other != key.id(task)));
    }

    #[test]
    fn an_intent_of_another_lease_is_in_doubt() {
        let mine = LeaseId(Uuid::from_u128(7));
        assert_eq!(begin(None, mine), Ok(Begin::Run));
        assert_eq!(begin(Some(&step(StepState::Begun, 7)), mine), Ok(Begin::RunAgain));
        assert_eq!(begin(Some(&step(StepState::Begun, 8)), mine), Ok(Begin::Doubt));
        assert_eq!(begin(Some(&step(StepState::InDoubt, 8)), mine), Ok(Begin::Doubt));
        assert_eq!(begin(Some(&step(StepState::Done, 8)), mine), Ok(Begin::Done));
        assert_eq!(begin(Some(&step(StepState::Allowed, 8)), mine), Ok(Begin::Run));
        assert_eq!(begin(Some(&step(StepState::Rejected, 8)), mine), Ok(Begin::Rejected));
    }

    #[test]
    fn a_failed_step_runs_again_only_without_effect() {
        let mine = LeaseId(Uuid::from_u128(7));
        for (effect, follows) in [
            (Some(Effect::None), Begin::Run),
            (Some(Effect::Unknown), Begin::Doubt),
            (None, Begin::Doubt),
        ] {
            let failed = StepSnapshot { effect, ..step(StepState::Failed, 7) };
            assert_eq!(begin(Some(&failed), mine), Ok(follows));
        }
    }

    #[test]
    fn an_end_is_told_once_and_may_be_repeated() {
        let (mine, other) = (LeaseId(Uuid::from_u128(7)), LeaseId(Uuid::from_u128(8)));
        let result = |text: &str| Told::Result(text.into(), Some("c".into()));
        let error = |text: &str, effect| Told::Error(text.into(), effect);
        let begun = step(StepState::Begun, 7);
        let done = StepSnapshot {
            result: Some("1".into()),
            checkpoint: Some("c".into()),
            ..step(StepState::Done, 7)
        };
        let failed = StepSnapshot {
            error: Some("1".into()),
            effect: Some(Effect::Unknown),
            ..step(StepState::Failed, 7)
        };
        for (step, same) in [(&done, result("1")), (&failed, error("1", Effect::Unknown))] {
            assert_eq!(end(&begun, &same, mine, None), Ok(true));
            assert_eq!(end(step, &same, mine, None), Ok(false));
            assert_eq!(end(&begun, &same, other, None).unwrap_err().code(), "illegal_step");
            assert_eq!(end(step, &same, other, None).unwrap_err().code(), "illegal_step");
        }
        let others = [
            result("2"),
            Told::Result("1".into(), Some("d".into())),
            Told::Result("1".into(), None),
            error("1", Effect::None),
            error("2", Effect::Unknown),
        ];
        for told in others {
            for step in [&done, &failed] {
                assert_eq!(end(step, &told, mine, None).unwrap_err().code(), "already_finished");
            }
        }
        let doubted = step(StepState::InDoubt, 7);
        assert_eq!(end(&doubted, &result("1"), mine, None).unwrap_err().code(), "illegal_step");
    }

    #[test]
    fn a_late_call_about_an_earlier_run_ends_nothing() {
        let mine = LeaseId(Uuid::from_u128(7));
        let told = Told::Error("1".into(), Effect::None);
        let begun = step(StepState::Begun, 7);
        assert_eq!(end(&begun, &told, mine, Some(2)), Ok(true));
        assert_eq!(end(&begun, &told, mine, Some(1)).unwrap_err().code(), "already_finished");
        let failed = StepSnapshot {
            error: Some("1".into()),
            effect: Some(Effect::None),
            ..step(StepState::Failed, 7)
        };
        assert_eq!(end(&failed, &told, mine, Some(2)), Ok(false));
        assert_eq!(end(&failed, &told, mine, Some(1)).unwrap_err().code(), "already_finished");
    }

    #[test]
    fn only_a_step_in_doubt_is_a_persons_to_decide() {
        for &state in StepState::ALL {
            for event in [StepEvent::RecordResult, StepEvent::AllowRerun, StepEvent::Reject] {
                let result = (event == StepEvent::RecordResult).then_some("1");
                let decided = resolve(&step(state, 1), event, result);
                let is_again = Some(state) == after(StepState::InDoubt, event) && result.is_none();
                let may = state == StepState::InDoubt || is_again;
                assert_eq!(decided.is_ok(), may, "{state} {event}");
            }
        }
    }

    #[test]
    fn what_an_ended_task_left_without_a_known_effect_is_in_doubt() {
        for &state in StepState::ALL {
            for effect in [None, Some(Effect::Unknown), Some(Effect::None)] {
                let left_so = StepSnapshot { effect, ..step(state, 1) };
                assert_eq!(left(&left_so, false), state);
                let open = matches!(state, StepState::Begun | StepState::Failed);
                let doubted = open && effect != Some(Effect::None);
                let wanted = if doubted { StepState::InDoubt } else { state };
                assert_eq!(left(&left_so, true), wanted, "{state} {effect:?}");
            }
        }
    }

    #[test]
    fn the_same_decision_again_changes_nothing() {
        let done = StepSnapshot { result: Some("1".into()), ..step(StepState::Done, 1) };
        assert_eq!(resolve(&done, StepEvent::RecordResult, Some("1")), Ok(None));
        assert!(resolve(&done, StepEvent::RecordResult, Some("2")).is_err());
        assert_eq!(resolve(&step(StepState::Allowed, 1), StepEvent::AllowRerun, None), Ok(None));
        assert!(resolve(&step(StepState::Allowed, 1), StepEvent::Reject, None).is_err());
    }

    #[test]
    fn names_of_waits_are_refused() {
        let input =
            StepInput { name: "wait:sleep", kind: None, inputs: None, occurrence: Some(-1) };
        let Err(Refusal::Invalid(errors)) = check(&input) else { panic!() };
        let found: Vec<_> = errors.iter().map(|e| (e.pointer.as_str(), e.code)).collect();
        assert_eq!(found, [("/name", "reserved"), ("/occurrence", "out_of_range")]);
    }
}
