//! `windlass approval …`: what waits for a person, and the person's answer.
//!
//! Invariant: what is shown is exactly what will run, with everything that could deceive escaped.

use super::poison::{Page, nothing};
use super::task::{age, text};
use super::{Connection, Context, Failure, argument};
use crate::client::{Call, Client, Patience};
use crate::print::{self, Cell, Paint};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use std::io::Read;
use std::time::Duration;

#[derive(Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// List approvals, newest first; those that are open unless told otherwise.
    List(ListArguments),
    /// Show what would be done, its digest, and who said what.
    Show {
        /// The approval's id.
        id: String,
    },
    /// Say yes, by your key or with --token. When enough people have, the task goes on.
    Approve(VoteArguments),
    /// Say no, by your key or with --token. The task fails with APPROVAL_DENIED.
    Deny(VoteArguments),
    /// Issue a token to an approver who has no key; the one before is good no longer.
    Token(TokenArguments),
}

#[derive(Args)]
#[command(after_help = "Examples:
  windlass approval list
  windlass approval list --all-states --task 01890a5d-ac96-774b-bcce-b302099a8057")]
struct ListArguments {
    /// Only approvals that stand so: open, approved, denied, expired or withdrawn.
    #[arg(long, value_name = "STATE", default_value = "open")]
    status: String,
    /// Approvals in any state.
    #[arg(long, conflicts_with = "status")]
    all_states: bool,
    /// Only approvals of this task.
    #[arg(long, value_name = "ID")]
    task: Option<String>,
    /// Only approvals at this gate.
    #[arg(long)]
    gate: Option<String>,
    #[command(flatten)]
    page: Page,
}

#[derive(Args)]
#[command(after_help = "Examples:
  windlass approval approve 01890a5d-ac96-774b-bcce-b302099a8057 --comment 'checked the amount'
  windlass approval deny 01890a5d-ac96-774b-bcce-b302099a8057 --comment 'not on a Friday'
  windlass approval approve --token - < token")]
struct VoteArguments {
    /// The approval's id; left out with --token, which names it by itself.
    #[arg(required_unless_present = "token")]
    id: Option<String>,
    /// In which words; they stay in the task's history.
    #[arg(long)]
    comment: Option<String>,
    /// The digest that `approval show` printed: anything else is refused.
    #[arg(long)]
    digest: Option<String>,
    /// Decide by a token instead of a key; `-` reads it from standard input.
    #[arg(long, conflicts_with = "id")]
    token: Option<String>,
}

#[derive(Args)]
#[command(after_help = "Examples:
  windlass approval token 01890a5d-ac96-774b-bcce-b302099a8057 --approver ann@example.com")]
struct TokenArguments {
    /// The approval's id.
    id: String,
    /// The name under which the decision counts.
    #[arg(long)]
    approver: String,
    /// How long it is good, such as 30m [default: 1d].
    #[arg(long, value_name = "TIME", value_parser = argument::span)]
    expires: Option<Duration>,
}

pub(super) async fn run(arguments: Arguments, context: &Context) -> Result<u8, Failure> {
    let client = context.client(&arguments.connection)?;
    match arguments.action {
        Action::List(arguments) => list(arguments, &client, context).await,
        Action::Show { id } => show(&id, &client, context).await,
        Action::Approve(arguments) => vote(arguments, "approve", &client, context).await,
        Action::Deny(arguments) => vote(arguments, "deny", &client, context).await,
        Action::Token(arguments) => token(arguments, &client, context).await,
    }
}

fn path(id: &str, rest: &str) -> Result<String, Failure> {
    let id = uuid::Uuid::try_parse(id).map_err(|_| {
        Failure::usage(format!("`{}` is no id of an approval", print::safe(id)))
            .hint("`windlass approval list` shows the ids")
    })?;
    Ok(format!("/v1/approvals/{id}{rest}"))
}

async fn list(arguments: ListArguments, client: &Client, context: &Context) -> Result<u8, Failure> {
    let mut call = arguments.page.of(Call::get("/v1/approvals"));
    if !arguments.all_states {
        call = call.query("status", &arguments.status);
    }
    for (name, value) in [("task_id", &arguments.task), ("gate", &arguments.gate)] {
        if let Some(value) = value {
            call = call.query(name, value);
        }
    }
    let answer = client.call(&call, Patience::SHORT).await?.body;
    if context.json {
        print::json_line(&answer);
        return Ok(0);
    }
    let items = answer["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    if items.is_empty() {
        let is_filtered = arguments.task.is_some() || arguments.gate.is_some();
        let empty = "no approvals; --all-states shows those that were decided";
        print::note(nothing(empty, is_filtered, arguments.page.is_later()));
        return Ok(0);
    }
    let rows: Vec<_> = items.iter().map(row).collect();
    let headings = ["ID", "STATUS", "GATE", "ACTION", "ARGUMENTS", "VOICES", "ASKED BY", "AGE"];
    print::table(&headings, &rows);
    arguments.page.note_more(&answer);
    Ok(0)
}

fn paint(status: &str) -> Paint {
    match status {
        "approved" => Paint::Green,
        "open" => Paint::Yellow,
        "denied" | "expired" => Paint::Red,
        _ => Paint::Dim,
    }
}

fn voices(approval: &Value) -> String {
    let count = |name: &str| approval[name].as_i64().unwrap_or_default();
    format!("{} of {}", count("approvals"), count("required"))
}

fn row(approval: &Value) -> Vec<Cell> {
    let status = text(&approval["status"]);
    vec![
        Cell::new(text(&approval["id"])),
        Cell::painted(status, paint(status)),
        Cell::new(text(&approval["gate"])),
        Cell::new(text(&approval["display"]["action"])),
        Cell::new(text(&approval["display"]["arguments"])),
        Cell::new(&voices(approval)),
        Cell::new(text(&approval["requested_by"])),
        Cell::new(&age(&approval["created_at"])),
    ]
}

async fn show(id: &str, client: &Client, context: &Context) -> Result<u8, Failure> {
    let approval = client.call(&Call::get(path(id, "")?), Patience::SHORT).await?.body;
    print_approval(&approval, context);
    Ok(0)
}

fn print_approval(approval: &Value, context: &Context) {
    if context.json {
        return print::json_line(approval);
    }
    let field = |name: &str, value: &str, paint: Paint| {
        if !value.is_empty() {
            let heading = print::painted(&format!("{name:<14}"), Paint::Bold);
            let value = print::painted(&print::safe(value), paint);
            print::line(&format!("{heading}{value}"));
        }
    };
    let plain = |name: &str| field(name, text(&approval[name]), Paint::Plain);
    plain("id");
    let status = text(&approval["status"]);
    field("status", status, paint(status));
    field("voices", &voices(approval), Paint::Plain);
    plain("task_id");
    plain("kind");
    plain("gate");
    field("action", text(&approval["display"]["action"]), Paint::Plain);
    field("arguments", text(&approval["display"]["arguments"]), Paint::Plain);
    plain("digest");
    plain("requested_by");
    plain("created_at");
    plain("expires_at");
    plain("decided_at");
    for vote in approval["votes"].as_array().into_iter().flatten() {
        let comment = match text(&vote["comment"]) {
            "" => String::new(),
            comment => format!(": {comment}"),
        };
        let (at, who) = (text(&vote["at"]), text(&vote["actor"]));
        let (said, via) = (text(&vote["decision"]), text(&vote["via"]));
        field("voice", &format!("{at}  {who}  {said} (by {via}){comment}"), Paint::Plain);
    }
}

async fn vote(
    arguments: VoteArguments,
    decision: &str,
    client: &Client,
    context: &Context,
) -> Result<u8, Failure> {
    let mut body = json!({});
    for (name, value) in [("comment", &arguments.comment), ("digest", &arguments.digest)] {
        if let Some(value) = value {
            body[name] = json!(value);
        }
    }
    let path = match (&arguments.id, &arguments.token) {
        (_, Some(token)) => {
            body["token"] = json!(read_token(token)?);
            body["decision"] = json!(decision);
            "/v1/approvals/decide".to_owned()
        }
        (id, None) => path(id.as_deref().unwrap_or_default(), &format!("/{decision}"))?,
    };
    // Not repeated: a voice that was counted while its answer was lost would look like a second.
    let approval = client.call(&Call::post(path, body), Patience::NONE).await?.body;
    print_approval(&approval, context);
    Ok(0)
}

fn read_token(given: &str) -> Result<String, Failure> {
    if given != "-" {
        return Ok(given.to_owned());
    }
    let mut text = String::new();
    let read = std::io::stdin().lock().take(1_024).read_to_string(&mut text);
    read.map_err(|error| Failure::io(format!("the token cannot be read: {error}")))?;
    Ok(text.trim().to_owned())
}

async fn token(
    arguments: TokenArguments,
    client: &Client,
    context: &Context,
) -> Result<u8, Failure> {
    let mut body = json!({ "approver": arguments.approver });
    if let Some(expires) = arguments.expires {
        body["expires_ms"] = json!(argument::ms(expires));
    }
    let call = Call::post(path(&arguments.id, "/tokens")?, body);
    let answer = client.call(&call, Patience::NONE).await?.body;
    if context.json {
        print::json_line(&answer);
    } else {
        print::line(&print::safe(text(&answer["token"])));
        let until = print::safe(text(&answer["expires_at"])).into_owned();
        print::note(&format!("good for one decision, until {until}; it is shown only here"));
    }
    Ok(0)
}
