//! Approval gates: what is asked, who may answer, and what follows from a voice.
//!
//! Invariant: a decision is about one digest of action and arguments, one voice an actor counts,
//! and whoever asked does not approve it. The first denial decides; so does the last approval that
//! was needed, and nothing after it.
//! Absent: who somebody is. The credential says it, and the server knows credentials.

pub mod token;

use crate::json;
use crate::refusal::Refusal;
use crate::show;
use crate::state::named;
use crate::time::Timestamp;
use crate::validate::{self, Errors, MAX_DELAY_MS, MAX_NAME_BYTES, MAX_REASON_CHARS};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The largest arguments, in bytes of canonical JSON: a person has to read them.
pub const MAX_ARGUMENTS_BYTES: usize = 64 * 1024;
/// The most approvals that a gate may ask for.
pub const MAX_REQUIRED: i64 = 100;
/// The most repetitions of one question that a task may count.
pub const MAX_OCCURRENCE: i64 = 1_000_000;
/// How long a token is good unless somebody says otherwise: a day.
pub const TOKEN_MS: i64 = 24 * 60 * 60 * 1_000;
/// How long a request to replay a task stands: as long as a token of it.
pub const REQUEST_MS: i64 = TOKEN_MS;
/// The gate of requests to replay a task.
pub const REPLAY_GATE: &str = "replay";

named! {
    /// Where a question stands.
    Status {
        /// Nobody has decided yet.
        Open = "open",
        /// Enough people said yes.
        Approved = "approved",
        /// Somebody said no.
        Denied = "denied",
        /// Nobody decided in time.
        Expired = "expired",
        /// The task went another way: cancelled, or its deadline passed. Or what was asked for
        /// cannot be done any more.
        Withdrawn = "withdrawn",
    }
}

named! {
    /// What waits for the answer.
    Kind {
        /// A task that parked at a gate.
        Gate = "gate",
        /// A request to replay a finished task.
        Replay = "replay",
    }
}

named! {
    /// What an approver says.
    Choice {
        /// Yes.
        Approve = "approve",
        /// No.
        Deny = "deny",
    }
}

/// What a worker asks, as it came.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QuestionRequest {
    /// At which gate.
    pub gate: String,
    /// What would be done.
    pub action: String,
    /// With what.
    pub arguments: Value,
    /// How long the question stands; for ever if `None`.
    pub expires_ms: Option<i64>,
    /// How many people must say yes; one if `None`.
    pub approvers: Option<i64>,
    /// Which repetition of the same question this is; the first is 0.
    pub occurrence: Option<i64>,
}

/// A question that may be kept.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// At which gate.
    pub gate: String,
    /// What would be done.
    pub action: String,
    /// Canonical JSON text: exactly what will run.
    pub arguments: String,
    /// Of action and arguments.
    pub digest: String,
    /// Which repetition.
    pub occurrence: i64,
    /// How many people must say yes.
    pub required: i64,
    /// Who asks; not among those who may approve.
    pub requested_by: String,
    /// How long the question stands.
    pub expires_ms: Option<i64>,
}

/// The digest of what would be done. It is the same for equal arguments, however they were written.
pub fn digest(action: &str, arguments: &Value) -> String {
    json::digest(&json!({ "action": action, "arguments": arguments }))
}

impl QuestionRequest {
    /// The question, if it can be kept and read by a person.
    pub fn validate(&self, requested_by: &str) -> validate::Result<Question> {
        let mut errors = Errors::default();
        errors.name("/gate", &self.gate, MAX_NAME_BYTES);
        errors.name("/action", &self.action, MAX_NAME_BYTES);
        let arguments = errors.json("/arguments", &self.arguments, MAX_ARGUMENTS_BYTES);
        if let Some(ms) = self.expires_ms {
            errors.range("/expires_ms", ms, 1, MAX_DELAY_MS);
        }
        let required = self.approvers.unwrap_or(1);
        errors.range("/approvers", required, 1, MAX_REQUIRED);
        let occurrence = self.occurrence.unwrap_or(0);
        errors.range("/occurrence", occurrence, 0, MAX_OCCURRENCE);
        errors.into_result()?;
        Ok(Question {
            gate: self.gate.clone(),
            action: self.action.clone(),
            digest: digest(&self.action, &self.arguments),
            arguments,
            occurrence,
            required,
            requested_by: requested_by.to_owned(),
            expires_ms: self.expires_ms,
        })
    }
}

/// The words of an approver.
pub fn comment(text: &str) -> validate::Result<()> {
    let mut errors = Errors::default();
    if text.chars().count() > MAX_REASON_CHARS {
        let detail = format!("has more than {MAX_REASON_CHARS} characters; say less");
        errors.add("/comment", "too_long", detail);
    } else {
        errors.text("/comment", text, 4 * MAX_REASON_CHARS);
    }
    errors.into_result()
}

/// Whom a token is for, and how long it is good.
pub fn token_request(approver: &str, expires_ms: Option<i64>) -> validate::Result<i64> {
    let mut errors = Errors::default();
    errors.name("/approver", approver, MAX_NAME_BYTES);
    if errors.is_empty() && approver.chars().any(show::is_deceptive) {
        let detail = "holds a character that cannot be seen: two approvers would look like one";
        errors.add("/approver", "bad_character", detail);
    }
    let expires_ms = expires_ms.unwrap_or(TOKEN_MS);
    errors.range("/expires_ms", expires_ms, 1, MAX_DELAY_MS);
    errors.into_result().map(|()| expires_ms)
}

/// Who decided, for the history; never with a token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Everybody whose voice decided.
    pub approvers: Vec<String>,
    /// The words of the last of them.
    pub comment: Option<String>,
}

/// A question as the rule sees it.
#[derive(Clone, Copy, Debug)]
pub struct Ballot<'a> {
    /// Where it stands.
    pub status: Status,
    /// What would be done.
    pub digest: &'a str,
    /// How many must say yes.
    pub required: i64,
    /// Who asked.
    pub requested_by: &'a str,
    /// Until when it stands.
    pub expires_at: Option<Timestamp>,
    /// Who said what so far.
    pub voices: &'a [(String, Choice)],
}

/// One voice.
#[derive(Clone, Copy, Debug)]
pub struct Voice<'a> {
    /// Who, as the credential says.
    pub actor: &'a str,
    /// What.
    pub choice: Choice,
    /// The digest of what the person was shown, if told.
    pub digest: Option<&'a str>,
}

/// What follows from a voice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It counts; more are needed.
    Counted,
    /// It was the last that was needed.
    Approved,
    /// One denial is enough.
    Denied,
}

/// Why a voice does not count, or a token gives no right to one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// No such question.
    #[error("there is no such approval")]
    UnknownApproval,
    /// No such token.
    #[error("the token is not valid; ask for a new one")]
    UnknownToken,
    /// The token was replaced by a newer one. Whoever brings it is told what a guess is told.
    #[error("the token is not valid; ask for a new one")]
    TokenRevoked,
    /// The token was used.
    #[error("the token was used before; a token is good for one decision")]
    TokenSpent,
    /// The token's time is over.
    #[error("the token has expired; ask for a new one")]
    TokenExpired,
    /// Somebody was faster.
    #[error("the approval is {0} already; nothing changed")]
    AlreadyDecided(Status),
    /// The task went another way.
    #[error(
        "the approval was withdrawn: its task was cancelled, overdue, or moved away by hand, or \
         what it asks for cannot be done any more"
    )]
    Withdrawn,
    /// The question's time is over.
    #[error("the approval has expired; a task that waited for it fails")]
    Expired,
    /// The approver saw something else.
    #[error("the digest is not that of this approval: read again what it would do, then decide")]
    DigestMismatch,
    /// Whoever asks does not approve.
    #[error("`{0}` asked for this approval, so somebody else must approve it")]
    SelfApproval(String),
    /// One voice an actor.
    #[error("`{0}` has decided on this approval before; one voice counts once")]
    AlreadyVoted(String),
}

impl Refused {
    /// The stable code that clients rely on; documented in docs/errors.md.
    pub const fn code(&self) -> &'static str {
        match self {
            Refused::UnknownApproval | Refused::UnknownToken | Refused::TokenRevoked => "not_found",
            Refused::TokenSpent | Refused::AlreadyDecided(_) => "already_decided",
            Refused::TokenExpired | Refused::Expired => "expired",
            Refused::Withdrawn => "approval_withdrawn",
            Refused::DigestMismatch => "digest_mismatch",
            Refused::SelfApproval(_) => "self_approval",
            Refused::AlreadyVoted(_) => "already_voted",
        }
    }
}

/// Whether a question can still be answered.
pub fn require_open(ballot: &Ballot<'_>, now: Timestamp) -> Result<(), Refused> {
    match ballot.status {
        Status::Open if ballot.expires_at.is_some_and(|at| at <= now) => Err(Refused::Expired),
        Status::Open => Ok(()),
        Status::Expired => Err(Refused::Expired),
        Status::Withdrawn => Err(Refused::Withdrawn),
        decided @ (Status::Approved | Status::Denied) => Err(Refused::AlreadyDecided(decided)),
    }
}

/// Whether a request that was refused when it was to be carried out can never be: the new task's id
/// was taken, the trouble that it was to resolve is closed, or more would run twice by now than the
/// question names. Such a request is withdrawn; steps that must not run again can still be decided
/// over, so a request that they stop stays open.
pub const fn is_void(refusal: &Refusal) -> bool {
    matches!(
        refusal,
        Refusal::IdempotencyKeyReused { .. }
            | Refusal::IllegalStep { .. }
            | Refusal::Unknown { .. }
            | Refusal::UnknownTask
            | Refusal::Replay(crate::replay::Refused::NotAgreed { .. })
    )
}

/// Whether somebody may have, or give out, a right to approve what `requested_by` asked.
pub fn require_other(requested_by: &str, actor: &str) -> Result<(), Refused> {
    if requested_by == actor { Err(Refused::SelfApproval(actor.to_owned())) } else { Ok(()) }
}

/// What a voice does to a question.
pub fn count(ballot: &Ballot<'_>, voice: &Voice<'_>, now: Timestamp) -> Result<Verdict, Refused> {
    require_open(ballot, now)?;
    if voice.digest.is_some_and(|digest| !digest.eq_ignore_ascii_case(ballot.digest)) {
        return Err(Refused::DigestMismatch);
    }
    if ballot.voices.iter().any(|(actor, _)| actor == voice.actor) {
        return Err(Refused::AlreadyVoted(voice.actor.to_owned()));
    }
    if voice.choice == Choice::Deny {
        return Ok(Verdict::Denied);
    }
    require_other(ballot.requested_by, voice.actor)?;
    let so_far = ballot.voices.iter().filter(|(_, choice)| *choice == Choice::Approve).count();
    Ok(if so_far as i64 + 1 >= ballot.required { Verdict::Approved } else { Verdict::Counted })
}

impl From<Refused> for Refusal {
    fn from(refused: Refused) -> Refusal {
        Refusal::Approval(refused)
    }
}

#[cfg(test)]
mod tests;
