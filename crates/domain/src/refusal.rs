//! A rule says no. Each refusal has a stable code and says what to do.

use crate::approval::Refused;
use crate::id::StepId;
use crate::limit::{Draining, QueueFull};
use crate::state::{Event, State};
use crate::step::{StepEvent, StepState};

/// One field that is not as it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// Where, as a JSON pointer such as `/tags/team`.
    pub pointer: String,
    /// What kind of mistake, such as `too_long`.
    pub code: &'static str,
    /// What is wrong and what would be right.
    pub detail: String,
}

/// Why a command changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The lease is not, or no longer, the one that holds the task.
    #[error("the lease no longer holds this task (it is {state}); stop working on it")]
    LeaseLost {
        /// Where the task stands now.
        state: State,
    },
    /// The lease is not, or no longer, the one that holds the message.
    #[error("the lease no longer holds this message (it is {status}); stop working on it")]
    MessageLost {
        /// Where the message stands now.
        status: crate::message::Status,
    },
    /// This lease has already ended the delivery otherwise.
    #[error("this lease already ended the delivery otherwise (the message is {status})")]
    DeliveryEnded {
        /// Where the message stands now.
        status: crate::message::Status,
    },
    /// The sender may not write to the receiver.
    #[error("{from} may not write to {to} ({}): {}", rule.as_str(), rule.words())]
    NotPermitted {
        /// Who wanted to write.
        from: String,
        /// To whom.
        to: String,
        /// The rule that refused it.
        rule: crate::message::authority::Rule,
    },
    /// This lease has already ended the task's attempt with another outcome.
    #[error("this lease already finished the task with another outcome ({event}); nothing changed")]
    AlreadyFinished {
        /// How it ended the attempt.
        event: Event,
    },
    /// The machine has no such transition.
    #[error("a task that is {state} cannot {event}; it can: {}", list(allowed))]
    IllegalTransition {
        /// Where the task stands now.
        state: State,
        /// What was asked.
        event: Event,
        /// What could be asked instead.
        allowed: Vec<Event>,
    },
    /// A workflow has no such step.
    #[error("{what} that is {status} cannot {event}; it can: {}", allowed.join(", "))]
    IllegalStep {
        /// What has the workflow, such as `trouble`.
        what: &'static str,
        /// Where it stands now.
        status: &'static str,
        /// What was asked.
        event: &'static str,
        /// What could be asked instead.
        allowed: Vec<&'static str>,
    },
    /// A pending limit is reached.
    #[error(transparent)]
    QueueFull(#[from] QueueFull),
    /// Nothing new is taken in.
    #[error(transparent)]
    Draining(#[from] Draining),
    /// There is no such thing.
    #[error("there is no such {what}")]
    Unknown {
        /// What was looked for, such as `alert`.
        what: &'static str,
    },
    /// It is there already, and says something else.
    #[error(
        "the {what} of this name is there already and says something else; change it, or use \
         another name"
    )]
    AlreadyExists {
        /// What was to be made, such as `agent`.
        what: &'static str,
    },
    /// The task's time has not come.
    #[error("the task is not due yet")]
    NotDue,
    /// There is no such task.
    #[error("there is no such task")]
    UnknownTask,
    /// The idempotency key or id was used before, for another request.
    #[error(
        "{what} was used before with another request; use a new one, or repeat the old request"
    )]
    IdempotencyKeyReused {
        /// `the idempotency key` or `the id`.
        what: &'static str,
    },
    /// Nobody knows whether a step that must not run twice has run.
    #[error(
        "step {step} was begun and its outcome is unknown; the task waits until a person records \
         the result, allows the step to run again, or fails it"
    )]
    InDoubt {
        /// Which step.
        step: StepId,
    },
    /// The step does not stand where the request needs it.
    #[error("step {step} is {state}, so it cannot {event}")]
    StepState {
        /// Which step.
        step: StepId,
        /// Where it stands.
        state: StepState,
        /// What was asked.
        event: StepEvent,
    },
    /// This lease has already ended the step with another outcome.
    #[error("this lease already ended step {step} otherwise (it is {state}); nothing changed")]
    StepEnded {
        /// Which step.
        step: StepId,
        /// Where it stands.
        state: StepState,
    },
    /// The run of the step that the call speaks of has ended, and another one has begun since.
    #[error("that run of step {step} has ended, and another one has begun since; nothing changed")]
    RunEnded {
        /// Which step.
        step: StepId,
    },
    /// A person decided that the step has failed.
    #[error(
        "a person decided that step {step} has failed; it never runs, so go on without it or fail \
         the task"
    )]
    StepFailed {
        /// Which step.
        step: StepId,
    },
    /// There is no such step.
    #[error("there is no such step")]
    UnknownStep,
    /// Deltas are missing before those that were posted.
    #[error("delta {expected} is expected next, not {from}; post again from {expected} on")]
    DeltaGap {
        /// The next index.
        expected: u64,
        /// The first one that came.
        from: u64,
    },
    /// An attempt's text has reached its bound.
    #[error(
        "the deltas of this attempt have more than {} MiB; finish with the whole, or fail",
        crate::delta::MAX_TEXT_BYTES >> 20
    )]
    TextTooLarge,
    /// The texts of all running attempts of this node have reached their bound.
    #[error(
        "the running texts of this node have {most} bytes together, which is all they may \
         (`inference_memory`); post no more deltas of this attempt, and finish with the whole"
    )]
    TextsTooLarge {
        /// The bound.
        most: usize,
    },
    /// A finished task takes no signals.
    #[error("the task is {state}; nobody will wait for this signal")]
    TaskFinished {
        /// How it ended.
        state: State,
    },
    /// The replay would do something that must not be done twice, or cannot be done.
    #[error("{0}")]
    Replay(#[from] crate::replay::Refused),
    /// Nobody can read what would have to be repeated.
    #[error(
        "nobody can read what {what} says, so it cannot be delivered again; it stays as it is: \
         send a new message, and abandon it"
    )]
    Unreadable {
        /// What holds it, such as `the dead letter`.
        what: &'static str,
    },
    /// A voice does not count.
    #[error(transparent)]
    Approval(Refused),
    /// Fields are missing or out of bounds.
    #[error("{}", invalid(.0.iter().map(|field| (&*field.pointer, &*field.detail))))]
    Invalid(Vec<FieldError>),
}

fn list(events: &[Event]) -> String {
    let names: Vec<_> = events.iter().map(|e| e.as_str()).collect();
    if names.is_empty() { "nothing, it is finished".into() } else { names.join(", ") }
}

/// How many fields a sentence names; whoever is told all of them has the list.
const TOLD_FIELDS: usize = 10;

/// What is wrong with a request, in words: of each field its pointer and its detail.
pub fn invalid<'a>(fields: impl ExactSizeIterator<Item = (&'a str, &'a str)>) -> String {
    let more = fields.len().saturating_sub(TOLD_FIELDS);
    let told = fields.take(TOLD_FIELDS).map(|(pointer, detail)| match pointer {
        "" => detail.to_owned(),
        pointer => format!("{pointer} {detail}"),
    });
    let told = told.chain((more > 0).then(|| format!("and {more} more")));
    format!("the request is not valid: {}", told.collect::<Vec<_>>().join("; "))
}

impl Refusal {
    /// The stable code that clients rely on; documented in docs/errors.md.
    pub const fn code(&self) -> &'static str {
        match self {
            Refusal::LeaseLost { .. } | Refusal::MessageLost { .. } => "lease_lost",
            Refusal::AlreadyFinished { .. }
            | Refusal::StepEnded { .. }
            | Refusal::RunEnded { .. }
            | Refusal::DeliveryEnded { .. } => "already_finished",
            Refusal::NotPermitted { .. } => "not_permitted",
            Refusal::IllegalTransition { .. } | Refusal::IllegalStep { .. } => "illegal_transition",
            Refusal::NotDue => "not_due",
            Refusal::Unreadable { .. } => "unreadable",
            Refusal::UnknownTask | Refusal::Unknown { .. } => "not_found",
            Refusal::AlreadyExists { .. } => "already_exists",
            Refusal::IdempotencyKeyReused { .. } => "idempotency_key_reused",
            Refusal::InDoubt { .. } => "in_doubt",
            Refusal::StepState { .. } => "illegal_step",
            Refusal::StepFailed { .. } => "step_failed",
            Refusal::UnknownStep => "not_found",
            Refusal::DeltaGap { .. } => "delta_gap",
            Refusal::TextTooLarge | Refusal::TextsTooLarge { .. } => "too_large",
            Refusal::TaskFinished { .. } => "task_finished",
            Refusal::Replay(refused) => refused.code(),
            Refusal::Approval(refused) => refused.code(),
            Refusal::Invalid(_) => "validation_failed",
            Refusal::QueueFull(full) => full.code(),
            Refusal::Draining(draining) => draining.code(),
        }
    }
}
