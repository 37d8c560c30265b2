//! Deciding: a voice is counted, and what follows from it is done in the same transaction.
//!
//! Invariant: a refusal is audited in the transaction that refuses. Enough voices decide exactly
//! once, however many come at once, because votes of one task stand in line behind its lock.

use super::{Approval, Approvals, OnApproved, internal, locked, unknown, votes};
use crate::audit;
use crate::error::{Rejection, Result};
use crate::statement;
use crate::task::{self, Ask};
use crate::tx::{Call, Tx};
use serde_json::json;
use uuid::Uuid;
use windlass_domain::approval::token::Token;
use windlass_domain::approval::{
    Answer, Choice, Kind, Refused, Status, Verdict, Voice, count, is_void,
};
use windlass_domain::command::Command;
use windlass_domain::id::{ApprovalId, ChangeId};
use windlass_domain::refusal::Refusal;
use windlass_domain::state::State;

statement!(shared VOTE, "approval/vote");
statement!(shared CLOSE, "approval/close");
statement!(shared SPEND, "approval/spend");

/// All of the above.
pub(super) static STATEMENTS: &[&statement::Statement] = &[&VOTE, &CLOSE, &SPEND];

/// By which right somebody decides.
#[derive(Clone, Debug)]
pub enum Right {
    /// An operator's key.
    Key {
        /// About which question.
        approval: ApprovalId,
        /// Who, as the credential says.
        actor: String,
    },
    /// A token: it names the question and the approver.
    Token(Token),
    /// A text that is no token at all.
    NoToken,
}

/// Somebody decides. Ids are made before the first try.
#[derive(Clone, Debug)]
pub struct Deciding {
    /// By which right.
    pub right: Right,
    /// Yes or no.
    pub choice: Choice,
    /// In which words.
    pub comment: Option<String>,
    /// The digest of what the person was shown, if told.
    pub digest: Option<String>,
    /// The id of the voice.
    pub vote: Uuid,
    /// The id of the history row, should the task move.
    pub change: ChangeId,
    /// Whether a token that nobody knows is written into the audit.
    pub audit_unknown: bool,
    /// Whether the refusal of a token that is known is; what a key is refused always is.
    pub audit_known: bool,
}

/// What came of a voice.
#[derive(Clone, Debug, PartialEq)]
pub struct Decided {
    /// The question as it stands now.
    pub approval: Approval,
    /// Where the task stands, if this voice moved it.
    pub moved: Option<State>,
    /// The queue in which the task can be claimed again.
    pub queue: Option<String>,
}

/// A voice that may be heard: whose it is, and by which token.
struct Heard {
    approval: ApprovalId,
    actor: String,
    token: Option<Uuid>,
}

impl Approvals {
    /// Counts a voice and does what follows.
    pub async fn decide(&self, deciding: Deciding) -> Result<Decided, Rejection> {
        let hook = self.on_approved.get().cloned();
        let body = move |tx: &mut dyn Tx| {
            let (voice, refused) = match hear(tx, &deciding.right)? {
                Ok(heard) => {
                    let actor = heard.actor.clone();
                    match decide(tx, &deciding, heard, hook.as_deref())? {
                        Ok(decided) => return Ok(Ok(decided)),
                        Err(refusal) => (actor, refusal),
                    }
                }
                Err((actor, refused)) => (actor, refused.into()),
            };
            let is_audited = match &deciding.right {
                Right::Key { .. } => true,
                _ if refused == Refused::UnknownToken.into() => deciding.audit_unknown,
                _ => deciding.audit_known,
            };
            if is_audited {
                record(tx, &deciding, &voice, &refused)?;
            }
            Ok(Err(refused))
        };
        let (decided, queued) = self.tasks.store().write("decide_approval", body).await??;
        self.tasks.stand_in_line(queued);
        Ok(decided)
    }
}

/// Whose voice it is. A token is found by its id and compared as a whole, also when there is none:
/// how long it takes tells nothing.
fn hear(tx: &mut dyn Tx, right: &Right) -> Result<Result<Heard, (String, Refused)>> {
    let nobody = || "unknown".to_owned();
    let token = match right {
        Right::Key { approval, actor } => {
            let (approval, actor) = (*approval, actor.clone());
            return Ok(Ok(Heard { approval, actor, token: None }));
        }
        Right::NoToken => return Ok(Err((nobody(), Refused::UnknownToken))),
        Right::Token(token) => token,
    };
    let found = super::token::find(tx, token.id())?;
    let kept = found.as_ref().map_or("", |found| found.digest.as_str());
    let is_right = token.is(kept);
    let Some(found) = found.filter(|_| is_right) else {
        return Ok(Err((nobody(), Refused::UnknownToken)));
    };
    Ok(Ok(Heard { approval: found.approval, actor: found.approver, token: Some(token.id()) }))
}

type Done = (Decided, Vec<task::Queued>);

fn decide(
    tx: &mut dyn Tx,
    deciding: &Deciding,
    heard: Heard,
    hook: Option<&OnApproved>,
) -> Result<Result<Done, Refusal>> {
    let Some(asked) = locked(tx, heard.approval)? else { return Ok(Err(unknown())) };
    let said = votes(tx, asked.id)?;
    if said.iter().any(|vote| vote.vote_id == deciding.vote) {
        // An earlier try of this very call was committed, but its answer was lost.
        let decided = Decided { approval: asked, moved: None, queue: None };
        return Ok(Ok((decided, Vec::new())));
    }
    let now = tx.now()?;
    // Under the lock: two decisions by one token come one after the other.
    if let Some(id) = heard.token
        && let Err(refused) = super::token::require_good(tx, id, now)?
    {
        return Ok(Err(refused.into()));
    }
    let voices: Vec<_> = said.iter().map(|vote| (vote.actor.clone(), vote.choice)).collect();
    let voice =
        Voice { actor: &heard.actor, choice: deciding.choice, digest: deciding.digest.as_deref() };
    let verdict = match count(&asked.ballot(&voices), &voice, now) {
        Ok(verdict) => verdict,
        Err(refused) => return Ok(Err(refused.into())),
    };
    if asked.kind == Kind::Replay && verdict == Verdict::Approved {
        let hook = hook.ok_or_else(|| internal("nobody carries out approved requests"))?;
        if let Err(refusal) = hook(tx, &asked)? {
            if is_void(&refusal) {
                close(tx, &asked, Status::Withdrawn)?;
            }
            return Ok(Err(refusal));
        }
    }
    let via = if heard.token.is_some() { "token" } else { "key" };
    let params = vec![
        asked.id.0.into(),
        asked.task_id.0.into(),
        heard.actor.as_str().into(),
        deciding.choice.as_str().into(),
        deciding.comment.clone().into(),
        via.into(),
        deciding.vote.into(),
        now.into(),
    ];
    tx.run(Call::one(&VOTE, params))?;
    let told = json!({ "approval": asked.id, "choice": deciding.choice, "via": via });
    audit::write(tx, &heard.actor, "approval_voted", &told)?;
    if let Some(id) = heard.token {
        tx.run(Call::one(&SPEND, vec![id.into(), now.into()]))?;
    }
    let mut approvers: Vec<String> = match deciding.choice {
        Choice::Approve => said.into_iter().map(|vote| vote.actor).collect(),
        Choice::Deny => Vec::new(),
    };
    approvers.push(heard.actor.clone());
    let answer = Answer { approvers, comment: deciding.comment.clone() };
    follow(tx, deciding, &asked, verdict, answer)
}

/// What follows from a voice that counts.
fn follow(
    tx: &mut dyn Tx,
    deciding: &Deciding,
    asked: &Approval,
    verdict: Verdict,
    answer: Answer,
) -> Result<Result<Done, Refusal>> {
    let actor = answer.approvers.last().cloned().unwrap_or_default();
    let status = match verdict {
        Verdict::Counted => None,
        Verdict::Approved => Some((Status::Approved, Command::Approve(answer))),
        Verdict::Denied => Some((Status::Denied, Command::Deny(answer))),
    };
    let (mut moved, mut queued) = (None, Vec::new());
    match status {
        None => {}
        Some((status, _)) if asked.kind == Kind::Replay => {
            close(tx, asked, status)?;
            if status == Status::Approved {
                queued = super::replay::made(tx, asked)?;
            }
        }
        Some((_, command)) => {
            let ask = Ask { change: deciding.change, ..Ask::new(asked.task_id, command, actor) };
            let carried = task::carry_out(tx, &ask)?;
            // The approval was open under the lock, so its task waits for it.
            let state = carried.outcome.map_err(|refusal| internal(&refusal.to_string()))?;
            (moved, queued) = (Some(state), carried.queued);
        }
    }
    let approval = super::find(tx, &super::SHOW, asked.id)?;
    let approval = approval.ok_or_else(|| internal("an approval that was decided is gone"))?;
    let queue = queued.first().map(|back| back.queue.clone());
    Ok(Ok((Decided { approval, moved, queue }, queued)))
}

fn close(tx: &mut dyn Tx, asked: &Approval, status: Status) -> Result<()> {
    let now = tx.now()?;
    let params = vec![asked.id.0.into(), status.as_str().into(), now.into()];
    tx.run(Call::one(&CLOSE, params)).map(drop)
}

/// Who tried what in vain; never with a token.
fn record(tx: &mut dyn Tx, deciding: &Deciding, actor: &str, refusal: &Refusal) -> Result<()> {
    let (via, approval) = match &deciding.right {
        Right::Key { approval, .. } => ("key", Some(*approval)),
        Right::Token(token) => {
            ("token", super::token::find(tx, token.id())?.map(|found| found.approval))
        }
        Right::NoToken => ("token", None),
    };
    // What is not told to whoever brings it: that it was a good one once.
    let reason = match *refusal == Refused::TokenRevoked.into() {
        true => "the token was replaced by a newer one".to_owned(),
        false => refusal.to_string(),
    };
    let detail = json!({
        "approval": approval,
        "choice": deciding.choice,
        "code": refusal.code(),
        "reason": reason,
        "via": via,
    });
    audit::write(tx, actor, "approval_refused", &detail)
}
