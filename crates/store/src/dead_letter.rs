//! Dead letters: messages that could not be delivered or handled.
//!
//! Invariant: one is entered in the transaction in which its message ends, with a copy of it, and
//! somebody is alerted.

use crate::alert::{self, NewAlert};
use crate::error::Result;
use crate::statement;
use crate::tx::{Call, Tx};
use crate::value::Value;
use crate::{audit, statement::Statement};
use serde_json::{Value as Json, json};
use windlass_domain::id::MessageId;
use windlass_domain::message::Reason;
use windlass_domain::notice::Severity;

statement!(shared ENTER, "dead_letter/enter");

/// All of the above.
pub(crate) static STATEMENTS: &[&Statement] = &[&ENTER];

/// The longest detail that is kept, in characters.
const MAX_DETAIL_CHARS: usize = 4_000;

/// A message that is given up.
pub(crate) struct Letter<'a> {
    pub message: MessageId,
    pub original: Json,
    pub from: &'a str,
    pub to: &'a str,
    pub kind: &'a str,
    pub correlation_id: Option<&'a str>,
    pub reason: Reason,
    pub detail: &'a str,
    pub deliveries: i32,
    /// Who gave it up.
    pub actor: &'a str,
}

/// Enters a dead letter; the audit tells of it and an alert is raised.
pub(crate) fn enter(tx: &mut dyn Tx, letter: &Letter<'_>) -> Result<()> {
    let now = tx.now()?;
    let detail: String =
        letter.detail.chars().filter(|c| *c != '\0').take(MAX_DETAIL_CHARS).collect();
    let params = vec![
        letter.message.0.into(),
        Value::Json(windlass_domain::json::canonical(&letter.original)),
        letter.from.into(),
        letter.to.into(),
        letter.kind.into(),
        letter.correlation_id.into(),
        letter.reason.as_str().into(),
        detail.as_str().into(),
        letter.deliveries.into(),
        now.into(),
    ];
    tx.run(Call::one(&ENTER, params))?;
    let told = json!({
        "message": letter.message, "from": letter.from, "to": letter.to, "type": letter.kind,
        "correlation_id": letter.correlation_id, "reason": letter.reason, "detail": detail,
    });
    audit::write(tx, letter.actor, "message_dead_lettered", &told)?;
    let message = format!(
        "message {} from {} to {} is a dead letter: {}: {detail}",
        letter.message, letter.from, letter.to, letter.reason
    );
    let alert = NewAlert {
        id: letter.message.0,
        kind: "dead_letter",
        severity: Severity::Warning,
        task: None,
        message,
    };
    alert::raise(tx, &alert)
}
