//! Tokens: issued to a notification or an operator, one that is good for each approver.
//!
//! Invariant: the database knows a token's digest and nothing else of it.
//! Absent: a list of tokens. Whoever lost one gets a new one.

use super::{Approval, Approvals, locked, unknown};
use crate::audit;
use crate::error::{Rejection, Result};
use crate::statement;
use crate::tx::{Call, Tx};
use crate::value::Row;
use serde_json::json;
use uuid::Uuid;
use windlass_domain::approval::token::Token;
use windlass_domain::approval::{Refused, require_open, require_other};
use windlass_domain::id::ApprovalId;
use windlass_domain::refusal::Refusal;
use windlass_domain::time::Timestamp;

statement!(shared ISSUE, "approval/issue");
statement!(shared REVOKE, "approval/revoke");
statement!(shared TOKEN, "approval/token");

/// All of the above.
pub(super) static STATEMENTS: &[&statement::Statement] = &[&ISSUE, &REVOKE, &TOKEN];

/// A token to be issued. It is made before the first try.
#[derive(Clone, Debug)]
pub struct Issue {
    /// For which question.
    pub approval: ApprovalId,
    /// To whom.
    pub approver: String,
    /// How long it is good.
    pub expires_ms: i64,
    /// By whom, as the credential says.
    pub issued_by: String,
    /// What the approver gets.
    pub token: Token,
}

/// A token that was issued.
#[derive(Clone, Debug, PartialEq)]
pub struct Issued {
    /// For which question.
    pub approval: Approval,
    /// To whom.
    pub approver: String,
    /// What the approver gets; it is nowhere else.
    pub token: Token,
    /// Until when it is good.
    pub expires_at: Timestamp,
}

/// What is kept of a token.
pub(super) struct Kept {
    pub(super) approval: ApprovalId,
    pub(super) approver: String,
    pub(super) digest: String,
    expires_at: Timestamp,
    is_spent: bool,
    is_revoked: bool,
}

impl Approvals {
    /// Issues a token to an approver; the one before is good no longer.
    pub async fn issue(&self, issue: Issue) -> Result<Issued, Rejection> {
        let body = move |tx: &mut dyn Tx| {
            let Some(asked) = locked(tx, issue.approval)? else { return Ok(Err(unknown())) };
            issue_for(tx, &asked, &issue)
        };
        Ok(self.tasks.store().write("issue_token", body).await??)
    }
}

/// Issues a token for a question whose task is locked.
pub(super) fn issue_for(
    tx: &mut dyn Tx,
    asked: &Approval,
    issue: &Issue,
) -> Result<Result<Issued, Refusal>> {
    let now = tx.now()?;
    let may = require_open(&asked.ballot(&[]), now)
        .and_then(|()| require_other(&asked.requested_by, &issue.approver))
        // Else whoever asks could answer under another's name.
        .and_then(|()| require_other(&asked.requested_by, &issue.issued_by));
    let (approval, approver) = (asked.id, issue.approver.as_str());
    if let Err(refused) = may {
        let told = json!({ "approval": approval, "approver": approver, "code": refused.code() });
        audit::write(tx, &issue.issued_by, "approval_token_refused", &told)?;
        return Ok(Err(refused.into()));
    }
    let id = issue.token.id();
    let expires_at = now.plus_ms(issue.expires_ms);
    let expires_at = asked.expires_at.map_or(expires_at, |end| end.min(expires_at));
    if find(tx, id)?.is_none() {
        let params = vec![asked.id.0.into(), approver.into(), id.into(), now.into()];
        tx.run(Call::one(&REVOKE, params))?;
        let params = vec![
            id.into(),
            asked.id.0.into(),
            asked.task_id.0.into(),
            approver.into(),
            issue.token.digest().into(),
            issue.issued_by.as_str().into(),
            now.into(),
            expires_at.into(),
        ];
        tx.run(Call::one(&ISSUE, params))?;
        let told = json!({ "approval": approval, "approver": approver });
        audit::write(tx, &issue.issued_by, "approval_token_issued", &told)?;
    }
    Ok(Ok(Issued {
        approval: asked.clone(),
        approver: issue.approver.clone(),
        token: issue.token.clone(),
        expires_at,
    }))
}

pub(super) fn find(tx: &mut dyn Tx, id: Uuid) -> Result<Option<Kept>> {
    let rows = tx.run(Call::one(&TOKEN, vec![id.into()]))?;
    let Some(row) = rows.first() else { return Ok(None) };
    Ok(Some(Kept {
        approval: ApprovalId(row.uuid(0)?),
        approver: row.text(1)?.to_owned(),
        digest: row.text(2)?.to_owned(),
        expires_at: row.maybe(3, Row::time)?.unwrap_or(Timestamp::EPOCH),
        is_spent: !row.is_null(4),
        is_revoked: !row.is_null(5),
    }))
}

/// Whether a token that somebody holds gives a right. One that was replaced is as good as none.
pub(super) fn require_good(
    tx: &mut dyn Tx,
    id: Uuid,
    now: Timestamp,
) -> Result<Result<(), Refused>> {
    Ok(match find(tx, id)? {
        None => Err(Refused::UnknownToken),
        Some(kept) if kept.is_revoked => Err(Refused::TokenRevoked),
        Some(kept) if kept.is_spent => Err(Refused::TokenSpent),
        Some(kept) if kept.expires_at <= now => Err(Refused::TokenExpired),
        Some(_) => Ok(()),
    })
}
