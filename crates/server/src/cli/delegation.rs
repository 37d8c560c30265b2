//! `windlass delegation …`: work that one agent hands to another.

use super::poison::{Listing, Page, id};
use super::task::{age, text};
use super::{Connection, Context, Failure, argument};
use crate::client::{Call, Patience};
use crate::print::{self, Cell, Paint};
use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};
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
    /// Delegate work; the same id or key again is a no-op.
    #[command(after_help = "Examples:
  windlass delegation create --caller ada --callee bob '{\"task\": \"write the report\"}'
  windlass delegation create --caller ada --callee bob --ledger --text 'write the report'")]
    Create(Box<Create>),
    /// List delegations, newest first.
    List(List),
    /// Show a delegation.
    Show {
        /// The delegation's id.
        id: String,
    },
    /// Report where a delegation stands that runs elsewhere.
    #[command(after_help = "Examples:
  windlass delegation status 01890a5d-ac96-774b-bcce-b302099a8057 running
  windlass delegation status 01890a5d-ac96-774b-bcce-b302099a8057 completed --result '{\"n\": 1}'")]
    Status(Report),
    /// Say that a delegation that runs elsewhere is alive.
    Beat {
        /// The delegation's id.
        id: String,
    },
    /// End overdue and silent delegations now, as the server does by itself.
    Sweep,
}

#[derive(Args)]
struct Create {
    /// The agent who delegates.
    #[arg(long)]
    caller: String,
    /// The agent to whom it is delegated.
    #[arg(long)]
    callee: String,
    /// What is to be done: JSON, @FILE, or - for standard input; null when left out.
    payload: Option<String>,
    /// Take the payload as plain text: it becomes a JSON string.
    #[arg(long)]
    text: bool,
    /// The caller runs it elsewhere and only reports; no worker takes it.
    #[arg(long)]
    ledger: bool,
    /// What people call it.
    #[arg(long)]
    name: Option<String>,
    /// The delegation's id, any UUID; the same id again is the same delegation.
    #[arg(long)]
    id: Option<String>,
    /// The same key of the same caller again is the same delegation.
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Must be finished within this span [default: 6h].
    #[arg(long, value_name = "SPAN", value_parser = argument::span)]
    deadline: Option<Duration>,
    /// What runs through all logs of one piece of work.
    #[arg(long, value_name = "ID")]
    correlation_id: Option<String>,
}

#[derive(Args)]
struct List {
    /// Of these states, with commas between.
    #[arg(long)]
    status: Option<String>,
    /// Of this caller.
    #[arg(long)]
    caller: Option<String>,
    /// To this callee.
    #[arg(long)]
    callee: Option<String>,
    /// Only those that are claimed or running.
    #[arg(long)]
    in_flight: bool,
    #[command(flatten)]
    page: Page,
}

#[derive(Args)]
struct Report {
    /// The delegation's id.
    id: String,
    /// pending, claimed, running, completed, failed or stuck.
    status: String,
    /// The result, with completed: JSON, @FILE, or - for standard input.
    #[arg(long, value_name = "JSON")]
    result: Option<String>,
    /// What kind of error, with failed or stuck.
    #[arg(long, value_name = "CODE")]
    error: Option<String>,
    /// What went wrong, in words.
    #[arg(long, value_name = "TEXT", requires = "error")]
    message: Option<String>,
    /// Who runs it.
    #[arg(long, value_name = "NAME")]
    holder: Option<String>,
}

fn object(fields: impl IntoIterator<Item = (&'static str, Option<Value>)>) -> Value {
    let given = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Value::Object(given.collect::<Map<_, _>>())
}

impl Create {
    fn body(self) -> Result<Value, Failure> {
        // Whoever gives neither may still repeat the call: its id is made here.
        let made = || Some(uuid::Uuid::now_v7().to_string());
        let id = self.id.or_else(|| made().filter(|_| self.idempotency_key.is_none()));
        Ok(object([
            ("caller", Some(self.caller.into())),
            ("callee", Some(self.callee.into())),
            ("payload", Some(argument::payload(self.payload.as_deref(), self.text)?)),
            ("mode", self.ledger.then(|| "ledger".into())),
            ("name", self.name.map(Value::from)),
            ("id", id.map(Value::from)),
            ("idempotency_key", self.idempotency_key.map(Value::from)),
            ("deadline_ms", self.deadline.map(|span| json!(argument::ms(span)))),
            ("correlation_id", self.correlation_id.map(Value::from)),
        ]))
    }
}

pub(super) async fn run(arguments: Arguments, context: &Context) -> Result<u8, Failure> {
    let client = context.client(&arguments.connection)?;
    let call = match arguments.action {
        Action::Create(create) => Call::post("/v1/delegations", create.body()?),
        Action::Show { id: given } => Call::get(format!("/v1/delegations/{}", id(&given)?)),
        Action::Status(report) => {
            let error = report
                .error
                .map(|code| json!({ "code": code, "message": report.message.unwrap_or_default() }));
            let result = report.result.map(|text| argument::result(&text));
            let body = object([
                ("status", Some(report.status.into())),
                ("result", result.transpose()?),
                ("error", error),
                ("holder", report.holder.map(Value::from)),
            ]);
            Call::post(format!("/v1/delegations/{}/status", id(&report.id)?), body)
        }
        Action::Beat { id: given } => {
            Call::post(format!("/v1/delegations/{}/heartbeat", id(&given)?), json!({}))
        }
        Action::Sweep => Call::post("/v1/delegations/sweep", json!({})),
        Action::List(list) => {
            let listing = Listing {
                path: "/v1/delegations",
                filters: vec![
                    ("status", list.status),
                    ("caller", list.caller),
                    ("callee", list.callee),
                    ("in_flight", list.in_flight.then(|| "true".into())),
                ],
                page: list.page,
                headings: &["ID", "STATUS", "CALLER", "CALLEE", "MODE", "AGE", "WHAT"],
                row,
                empty: "no delegations; make one with `windlass delegation create`",
            };
            return listing.show(&client, context).await;
        }
    };
    let answer = client.call(&call, Patience::SHORT).await?.body;
    if context.json {
        print::json_line(&answer);
        return Ok(0);
    }
    if answer["duplicate"] == true {
        let differs = answer["payload_differs"] == true;
        let more = if differs { ", and it says something else" } else { "" };
        print::note(&format!("it existed already{more}; nothing was added"));
    }
    let Some(fields) = answer.as_object() else { return Ok(0) };
    for (name, value) in fields {
        let shown = match value {
            Value::Null => continue,
            Value::Object(map) if map.is_empty() => continue,
            // The whole follows the preview with `--json`.
            _ if name == "payload" || name == "result" => continue,
            Value::String(text) => print::safe(text).into_owned(),
            other => print::json(other),
        };
        let heading = print::painted(&format!("{name:<18}"), Paint::Bold);
        print::line(&format!("{heading}{shown}"));
    }
    Ok(0)
}

fn row(delegation: &Value) -> Vec<Cell> {
    let what: String = text(&delegation["payload_preview"]).chars().take(40).collect();
    vec![
        Cell::new(text(&delegation["id"])),
        Cell::status(text(&delegation["status"])),
        Cell::new(text(&delegation["caller"])),
        Cell::new(text(&delegation["callee"])),
        Cell::new(text(&delegation["mode"])),
        Cell::new(&age(&delegation["created_at"])),
        Cell::new(&what),
    ]
}
