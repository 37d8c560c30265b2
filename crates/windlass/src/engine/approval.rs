//! Approvals: the store's operations, and whoever must be told.
//!
//! Invariant: ids, tokens and their chance are made here, before the first try. A token leaves this
//! node in an answer to an operator or in a sealed notice, and nowhere else.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use uuid::Uuid;
use windlass_domain::approval::token::Token;
use windlass_domain::approval::{self, Choice, QuestionRequest, Refused};
use windlass_domain::id::{ApprovalId, ChangeId, LeaseId, TaskId};
use windlass_domain::refusal::Refusal;
use windlass_store::approval::{Announce, Asked, Asking, Decided, Deciding, Issue, Issued, Right};
use windlass_store::error::Rejection;
use windlass_store::store::Wake;

use super::held::Gone;
use super::{Engine, Result};

/// A worker asks for an approval.
#[derive(Clone, Debug)]
pub struct ApprovalRequest {
    /// The task that would wait.
    pub task: TaskId,
    /// The holder's lease.
    pub lease: LeaseId,
    /// What is asked.
    pub question: QuestionRequest,
    /// Canonical JSON; `None` keeps the last.
    pub checkpoint: Option<String>,
    /// Who asks, and so cannot approve; the holder's session if `None`.
    pub requester: Option<String>,
    /// Who stands in the history.
    pub actor: String,
}

/// By which right somebody decides.
#[derive(Clone, Debug)]
pub enum By {
    /// An operator, about this approval.
    Operator {
        /// About which approval.
        approval: ApprovalId,
        /// Who, as the credential says.
        actor: String,
    },
    /// Whoever has this text.
    Token(String),
}

/// Somebody decides.
#[derive(Clone, Debug)]
pub struct DecisionRequest {
    /// By which right.
    pub by: By,
    /// Yes or no.
    pub choice: Choice,
    /// In which words.
    pub comment: Option<String>,
    /// The digest of what the person was shown, if told.
    pub digest: Option<String>,
}

/// How often tokens that nobody knows are written into the audit: somebody who tries millions must
/// not fill the disk.
const AUDIT_EVERY: Duration = Duration::from_secs(1);
/// So often in that time the refusals of one token that was issued are, whatever else is tried.
const AUDITS_OF_A_TOKEN: u32 = 10;
/// From so many tokens on, those that were not tried lately are forgotten.
const MANY_TOKENS: usize = 1_000;

/// When refused tokens were last audited: all unknown ones together, and each that was issued.
#[derive(Default)]
pub(super) struct WrongTokens {
    unknown: Mutex<Option<Instant>>,
    issued: Mutex<HashMap<Uuid, (Instant, u32)>>,
}

impl WrongTokens {
    fn is_due(&self) -> bool {
        let last = self.unknown.lock().unwrap_or_else(PoisonError::into_inner);
        last.is_none_or(|at| at.elapsed() >= AUDIT_EVERY)
    }

    fn was_audited(&self) {
        *self.unknown.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    fn is_due_of(&self, token: Uuid) -> bool {
        let issued = self.issued.lock().unwrap_or_else(PoisonError::into_inner);
        let lately = issued.get(&token).filter(|(since, _)| since.elapsed() < AUDIT_EVERY);
        lately.is_none_or(|(_, audits)| *audits < AUDITS_OF_A_TOKEN)
    }

    fn was_audited_of(&self, token: Uuid) {
        let mut issued = self.issued.lock().unwrap_or_else(PoisonError::into_inner);
        if issued.len() >= MANY_TOKENS {
            issued.retain(|_, (since, _)| since.elapsed() < AUDIT_EVERY);
        }
        let (since, audits) = issued.entry(token).or_insert_with(|| (Instant::now(), 0));
        if since.elapsed() >= AUDIT_EVERY {
            (*since, *audits) = (Instant::now(), 0);
        }
        *audits += 1;
    }
}

fn is_unknown_token(rejection: &Rejection) -> bool {
    let unknown = Refusal::from(Refused::UnknownToken);
    matches!(rejection, Rejection::Refused(refusal) if *refusal == unknown)
}

fn new_token() -> Token {
    Token::new(Uuid::now_v7(), [Uuid::new_v4(), Uuid::new_v4(), Uuid::new_v4()])
}

impl Engine {
    /// Parks a task on a question, or answers that the same was approved before: then the holder
    /// goes on. Asking again while nobody has decided is answered like the first time.
    pub async fn ask_approval(&self, request: ApprovalRequest) -> Result<Asked> {
        let requester = request.requester.unwrap_or_default();
        let asking = Asking {
            id: ApprovalId(Uuid::now_v7()),
            task: request.task,
            lease: request.lease,
            question: request.question.validate(&requester)?,
            checkpoint: request.checkpoint,
            actor: request.actor,
            change: ChangeId(Uuid::now_v7()),
            announce: Some(self.announcement()),
        };
        let asked = self.inner.approvals.ask(asking).await?;
        if asked.parked {
            self.inner.held.remove(request.task, Some(request.lease.digest()), Gone::Finished);
            self.tell_event();
        }
        Ok(asked)
    }

    /// What tells of a new approval, with a token for each of this node's approvers.
    pub fn announcement(&self) -> Announce {
        let approvers = self.inner.options.approvers.iter();
        let tokens = approvers.map(|approver| (approver.clone(), new_token())).collect();
        Announce { notice: Uuid::now_v7(), tokens }
    }

    /// Counts a voice; enough of them wake the task, one denial fails it.
    pub async fn decide_approval(&self, request: DecisionRequest) -> Result<Decided> {
        if let Some(comment) = &request.comment {
            approval::comment(comment)?;
        }
        let right = match request.by {
            By::Operator { approval, actor } => Right::Key { approval, actor },
            By::Token(text) => Token::parse(&text).map_or(Right::NoToken, Right::Token),
        };
        let wrong_tokens = &self.inner.wrong_tokens;
        let token = if let Right::Token(token) = &right { Some(token.id()) } else { None };
        let audit_unknown = wrong_tokens.is_due();
        let audit_known = token.is_none_or(|token| wrong_tokens.is_due_of(token));
        let deciding = Deciding {
            right,
            choice: request.choice,
            comment: request.comment,
            digest: request.digest,
            vote: Uuid::now_v7(),
            change: ChangeId(Uuid::now_v7()),
            audit_unknown,
            audit_known,
        };
        let decided = self.inner.approvals.decide(deciding).await;
        if let Err(Rejection::Refused(_)) = &decided {
            let is_unknown = decided.as_ref().is_err_and(is_unknown_token);
            match token {
                _ if is_unknown && audit_unknown => wrong_tokens.was_audited(),
                Some(token) if !is_unknown && audit_known => wrong_tokens.was_audited_of(token),
                _ => {}
            }
        }
        let decided = decided?;
        if let Some(queue) = &decided.queue {
            self.inner.dispatcher.wake(queue, 1);
            self.inner.store.tell(Wake::Ready(queue.clone()));
        } else if decided.approval.request.is_some() {
            // What was asked for may have begun, in a queue that nobody named.
            self.came_back();
        }
        if decided.moved.is_some_and(|state| state.is_terminal()) {
            self.inner.ended(decided.approval.task_id);
        }
        self.tell_event();
        Ok(decided)
    }

    /// Issues a token to an approver; the one before is good no longer.
    pub async fn issue_token(
        &self,
        approval: ApprovalId,
        approver: &str,
        expires_ms: Option<i64>,
        issued_by: &str,
    ) -> Result<Issued> {
        let issue = Issue {
            approval,
            approver: approver.to_owned(),
            expires_ms: approval::token_request(approver, expires_ms)?,
            issued_by: issued_by.to_owned(),
            token: new_token(),
        };
        Ok(self.inner.approvals.issue(issue).await?)
    }
}
