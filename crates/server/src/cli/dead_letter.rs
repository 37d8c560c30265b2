//! `windlass dead-letter …`: messages that could not be delivered or handled.

use super::poison::{Listing, Page, id};
use super::task::{age, text};
use super::{Connection, Context, Failure};
use crate::client::{Call, Patience};
use crate::print::{self, Cell, Paint};
use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

#[derive(Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// List dead letters, oldest first.
    #[command(after_help = "Examples:
  windlass dead-letter list
  windlass dead-letter list --reason delivery_limit --to ceo --json")]
    List {
        /// Only in these states: pending, investigating, resolved, abandoned. The open ones unless
        /// given.
        #[arg(long, value_name = "STATES")]
        status: Option<String>,
        /// Only those of this person.
        #[arg(long)]
        assignee: Option<String>,
        /// Only those to this agent.
        #[arg(long)]
        to: Option<String>,
        /// Only those of this sender.
        #[arg(long)]
        from: Option<String>,
        /// Only for this reason: unknown_agent, archived_agent, delivery_limit, rejected, invalid.
        #[arg(long)]
        reason: Option<String>,
        #[command(flatten)]
        page: Page,
    },
    /// Show one: the message as it was, and what was done about it.
    Show {
        /// The message's id.
        id: String,
    },
    /// Deliver it again, as a new message, and close it.
    #[command(after_help = "Examples:
  windlass dead-letter redeliver 01890a5d-ac96-774b-bcce-b302099a8057 --to vp-sales")]
    Redeliver {
        /// The message's id.
        id: String,
        /// To another agent than before.
        #[arg(long, value_name = "AGENT")]
        to: Option<String>,
        /// What there is to say.
        #[arg(long)]
        note: Option<String>,
    },
    /// Say whose it is.
    Assign {
        /// The message's id.
        id: String,
        /// Who.
        assignee: String,
        /// What there is to say.
        #[arg(long)]
        note: Option<String>,
    },
    /// Take it up.
    Investigate {
        /// The message's id.
        id: String,
        /// What there is to say.
        #[arg(long)]
        note: Option<String>,
    },
    /// Append a note; also to what is closed.
    Note {
        /// The message's id.
        id: String,
        /// What there is to say.
        note: String,
    },
    /// Close it: done. What nobody took up is taken up on the way.
    Resolve {
        /// The message's id.
        id: String,
        /// What there is to say.
        #[arg(long)]
        note: Option<String>,
    },
    /// Close it: nothing will be done.
    Abandon {
        /// The message's id.
        id: String,
        /// What there is to say.
        #[arg(long)]
        note: Option<String>,
    },
}

pub(super) async fn run(arguments: Arguments, context: &Context) -> Result<u8, Failure> {
    let client = context.client(&arguments.connection)?;
    let (message, verb, fields) = match arguments.action {
        Action::List { status, assignee, to, from, reason, page } => {
            let listing = Listing {
                path: "/v1/dead-letters",
                filters: vec![
                    ("status", status),
                    ("assignee", assignee),
                    ("to", to),
                    ("from", from),
                    ("reason", reason),
                ],
                page,
                headings: &["MESSAGE", "FROM", "TO", "STATUS", "ASSIGNEE", "AGE", "REASON"],
                row,
                empty: "no dead letters",
            };
            return listing.show(&client, context).await;
        }
        Action::Show { id: message } => {
            let call = Call::get(format!("/v1/dead-letters/{}", id(&message)?));
            let letter = client.call(&call, Patience::SHORT).await?.body;
            return Ok(print_letter(&letter, context));
        }
        Action::Redeliver { id, to, note } => (id, "redeliver", vec![("to", to), ("note", note)]),
        Action::Assign { id, assignee, note } => {
            (id, "assign", vec![("assignee", Some(assignee)), ("note", note)])
        }
        Action::Investigate { id, note } => (id, "investigate", vec![("note", note)]),
        Action::Note { id, note } => (id, "note", vec![("note", Some(note))]),
        Action::Resolve { id, note } => (id, "resolve", vec![("note", note)]),
        Action::Abandon { id, note } => (id, "abandon", vec![("note", note)]),
    };
    let given =
        fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), json!(value?))));
    let body = Value::Object(given.collect::<Map<_, _>>());
    let call = Call::post(format!("/v1/dead-letters/{}/{verb}", id(&message)?), body);
    let answer = client.call(&call, Patience::SHORT).await?.body;
    if verb == "redeliver" && !context.json {
        let (new, to) = (text(&answer["id"]), text(&answer["to"]));
        print::line(&print::safe(&format!("sent to {to} again as message {new}")));
        return Ok(0);
    }
    Ok(print_letter(&answer, context))
}

fn row(letter: &Value) -> Vec<Cell> {
    let reason = format!("{}: {}", text(&letter["reason"]), text(&letter["detail"]));
    vec![
        Cell::new(text(&letter["message_id"])),
        Cell::new(text(&letter["from"])),
        Cell::new(text(&letter["to"])),
        Cell::new(text(&letter["status"])),
        Cell::new(text(&letter["assignee"])),
        Cell::new(&age(&letter["entered_at"])),
        Cell::painted(&reason, Paint::Red),
    ]
}

fn print_letter(letter: &Value, context: &Context) -> u8 {
    if context.json {
        print::json_line(letter);
        return 0;
    }
    for name in [
        "message_id",
        "from",
        "to",
        "type",
        "correlation_id",
        "reason",
        "detail",
        "deliveries",
        "status",
        "assignee",
        "entered_at",
        "closed_at",
        "resolved_by_message",
        "original",
    ] {
        let shown = match &letter[name] {
            Value::Null => continue,
            Value::String(text) => print::safe(text).into_owned(),
            other => other.to_string(),
        };
        let heading = print::painted(&format!("{name:<21}"), Paint::Bold);
        print::line(&format!("{heading}{shown}"));
    }
    let notes = letter["notes"].as_array().cloned().unwrap_or_default();
    if !notes.is_empty() {
        print::line(&print::painted("notes", Paint::Bold));
    }
    for note in &notes {
        let (author, event) = (text(&note["author"]), text(&note["event"]));
        let told = format!("  {}  {author} {event}  {}", text(&note["at"]), text(&note["note"]));
        print::line(print::safe(&told).trim_end());
    }
    0
}
