//! Telling that somebody is asked: a notice, with a token for each approver who is known.
//!
//! Invariant: written with the question, so it is told if and only if the question is there. Tokens
//! are sealed: receivers see them, readers of notices do not, and they are forgotten with the last
//! try.

use super::token::{Issue, issue_for};
use super::{Approval, internal};
use crate::error::Result;
use crate::notice::{self, NewNotice};
use crate::tx::Tx;
use serde_json::{Value as Json, json};
use uuid::Uuid;
use windlass_domain::approval::token::Token;
use windlass_domain::approval::{MAX_ARGUMENTS_BYTES, TOKEN_MS};
use windlass_domain::notice::Severity;
use windlass_domain::show;

/// What is needed to tell; made before the first try.
#[derive(Clone, Debug)]
pub struct Announce {
    /// The notice's id.
    pub notice: Uuid,
    /// A token for each approver.
    pub tokens: Vec<(String, Token)>,
}

/// Who stands in the audit for tokens that go out with notices.
const ISSUER: &str = "duty:notices";

pub(super) fn announce(tx: &mut dyn Tx, approval: &Approval, told: &Announce) -> Result<()> {
    let mut tokens = Vec::new();
    for (approver, token) in &told.tokens {
        if *approver == approval.requested_by {
            continue;
        }
        let issue = Issue {
            approval: approval.id,
            approver: approver.clone(),
            expires_ms: TOKEN_MS,
            issued_by: ISSUER.to_owned(),
            token: token.clone(),
        };
        let issued = issue_for(tx, approval, &issue)?;
        let issued = issued.map_err(|refusal| internal(&refusal.to_string()))?;
        let (token, expires_at) = (token.reveal(), issued.expires_at);
        tokens.push(json!({ "approver": approver, "token": token, "expires_at": expires_at }));
    }
    let notice = NewNotice {
        id: told.notice,
        kind: "approval",
        // At once: a task waits.
        severity: Severity::Critical,
        subject_id: Some(approval.id.0),
        body: body(approval),
        sealed: (!tokens.is_empty()).then(|| json!({ "tokens": tokens })),
    };
    notice::enqueue(tx, &notice)
}

/// What the approver reads: exactly what will run, and nothing that deceives.
fn body(approval: &Approval) -> Json {
    let mut arguments = show::json(&approval.arguments);
    let is_cut = arguments.len() > MAX_ARGUMENTS_BYTES;
    if is_cut {
        // Escapes are ASCII, so what was cut is no character's middle unless a letter stood there.
        let end = (0..=MAX_ARGUMENTS_BYTES).rev().find(|end| arguments.is_char_boundary(*end));
        arguments.truncate(end.unwrap_or(0));
    }
    json!({
        "approval_id": approval.id,
        "task_id": approval.task_id,
        "kind": approval.kind,
        "gate": show::text(&approval.gate),
        "action": show::text(&approval.action),
        "arguments": arguments,
        "arguments_cut": is_cut,
        "digest": approval.digest,
        "required": approval.required,
        "requested_by": show::text(&approval.requested_by),
        "expires_at": approval.expires_at,
    })
}
