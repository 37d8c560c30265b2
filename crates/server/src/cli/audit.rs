//! `windlass audit …`: what was done, or tried in vain, that no task's history tells.

use super::argument;
use super::poison::{Listing, Page};
use super::task::{age, text};
use super::{Connection, Context, Failure};
use crate::client::{Call, Client, Patience};
use crate::print::{self, Cell};
use clap::{Args, Subcommand};
use serde_json::Value;
use windlass::domain::time::Timestamp;

/// How many entries are asked for at once.
const PART: usize = 1_000;

#[derive(Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// List the audit, newest first.
    #[command(after_help = "Examples:
  windlass audit list --event step_resolved
  windlass audit list --actor ann --since 1d
  windlass audit list --event message_refused --json | jq '.items[].detail.rule'")]
    List {
        #[command(flatten)]
        which: Which,
        #[command(flatten)]
        page: Page,
    },
    /// Write the audit, oldest first, as JSON lines.
    #[command(after_help = "Examples:
  windlass audit export > audit.jsonl
  windlass audit export --after 4711 >> audit.jsonl")]
    Export {
        #[command(flatten)]
        which: Which,
        /// Only what follows this entry: the seq where an earlier export ended.
        #[arg(long, value_name = "SEQ", default_value_t = 0)]
        after: u64,
    },
}

/// Which entries.
#[derive(Args)]
struct Which {
    /// Only what this one did.
    #[arg(long)]
    actor: Option<String>,
    /// Only this event, such as message_refused or step_resolved.
    #[arg(long)]
    event: Option<String>,
    /// Only what is about this: the id of a message, task or approval, an agent's name, or
    /// scope:name of a limit.
    #[arg(long)]
    subject: Option<String>,
    /// At this time or later; 1h means an hour ago.
    #[arg(long, value_name = "TIME", value_parser = argument::past)]
    since: Option<Timestamp>,
    /// Before this time.
    #[arg(long, value_name = "TIME", value_parser = argument::past)]
    until: Option<Timestamp>,
}

impl Which {
    fn filters(self) -> Vec<(&'static str, Option<String>)> {
        vec![
            ("actor", self.actor),
            ("event", self.event),
            ("subject", self.subject),
            ("since", self.since.map(|time| time.to_string())),
            ("until", self.until.map(|time| time.to_string())),
        ]
    }
}

pub(super) async fn run(arguments: Arguments, context: &Context) -> Result<u8, Failure> {
    let client = context.client(&arguments.connection)?;
    match arguments.action {
        Action::List { which, page } => {
            let listing = Listing {
                path: "/v1/audit",
                filters: which.filters(),
                page,
                headings: &["SEQ", "AGE", "ACTOR", "EVENT", "SUBJECT", "REASON", "DETAIL"],
                row,
                empty: "the audit is empty",
            };
            listing.show(&client, context).await
        }
        Action::Export { which, after } => export(&client, &which.filters(), after).await,
    }
}

async fn export(
    client: &Client,
    filters: &[(&'static str, Option<String>)],
    mut after: u64,
) -> Result<u8, Failure> {
    loop {
        let mut call = Call::get("/v1/audit/export").query("limit", PART).query("after_seq", after);
        for (name, value) in filters {
            if let Some(value) = value {
                call = call.query(name, value);
            }
        }
        let answer = client.call(&call, Patience::SHORT).await?.body;
        let lines: Vec<&str> = text(&answer).lines().collect();
        let last = lines.last().and_then(|line| serde_json::from_str::<Value>(line).ok());
        lines.iter().for_each(|line| print::line(line));
        match last.and_then(|entry| entry["seq"].as_u64()) {
            Some(seq) if lines.len() == PART => after = seq,
            _ => return Ok(0),
        }
    }
}

/// Why something was done, or refused: in somebody's words, or as the rule that said no.
fn reason(detail: &Value) -> &str {
    let rule = text(&detail["rule"]);
    if rule.is_empty() { text(&detail["reason"]) } else { rule }
}

/// The rest of an entry. Of a message it is told who wrote to whom; the whole is in the JSON.
fn detail(detail: &Value) -> String {
    match (text(&detail["from"]), text(&detail["to"]), text(&detail["type"])) {
        (from, to, kind) if !from.is_empty() && !to.is_empty() => format!("{from} to {to}: {kind}"),
        _ => detail.to_string(),
    }
}

fn row(entry: &Value) -> Vec<Cell> {
    vec![
        Cell::new(&entry["seq"].to_string()),
        Cell::new(&age(&entry["at"])),
        Cell::new(text(&entry["actor"])),
        Cell::new(text(&entry["event"])),
        Cell::new(text(&entry["subject"])),
        Cell::new(reason(&entry["detail"])),
        Cell::new(&detail(&entry["detail"])),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Both stood behind the end of a cell that was cut.
    #[test]
    fn a_refused_send_is_shown_with_its_rule_and_its_subject() {
        let id = "01890a5d-ac96-774b-bcce-b302099a8057";
        let entry = json!({
            "seq": 7, "at": "2026-01-31T12:00:00.000Z", "actor": "key:worker",
            "event": "message_refused", "subject": id,
            "detail": {
                "message": id, "from": "scout", "to": "ceo", "type": "note",
                "correlation_id": id, "rule": "other_line",
            },
        });
        let row = row(&entry);
        let shown: Vec<&str> = row.iter().map(Cell::text).collect();
        assert_eq!(shown[3..], ["message_refused", id, "other_line", "scout to ceo: note"]);
    }
}
