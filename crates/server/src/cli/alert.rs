//! `windlass alert …` and `windlass notice …`: what somebody should know, and who was told.

use super::poison::{Listing, Page, id};
use super::task::{age, text};
use super::{Connection, Context, Failure};
use crate::client::{Call, Patience};
use crate::print::{self, Cell, Paint};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

#[derive(Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// List alerts, newest first.
    #[command(after_help = "Examples:
  windlass alert list --open
  windlass alert list --severity critical --json | jq .items[].message")]
    List {
        /// Only those that nobody has acknowledged.
        #[arg(long, conflicts_with = "acknowledged")]
        open: bool,
        /// Only those that somebody has acknowledged.
        #[arg(long)]
        acknowledged: bool,
        /// Only of this severity: critical, warning or info.
        #[arg(long)]
        severity: Option<String>,
        /// Only of this type, such as poison_task.
        #[arg(long = "type", value_name = "TYPE")]
        kind: Option<String>,
        /// Only about this task.
        #[arg(long, value_name = "ID")]
        task: Option<String>,
        #[command(flatten)]
        page: Page,
    },
    /// Acknowledge alerts: somebody has seen them.
    Ack {
        /// The alerts' ids.
        #[arg(required = true)]
        id: Vec<String>,
    },
}

pub(super) async fn run(arguments: Arguments, context: &Context) -> Result<u8, Failure> {
    let client = context.client(&arguments.connection)?;
    match arguments.action {
        Action::List { open, acknowledged, severity, kind, task, page } => {
            let seen = (open || acknowledged).then(|| acknowledged.to_string());
            let listing = Listing {
                path: "/v1/alerts",
                filters: vec![
                    ("acknowledged", seen),
                    ("severity", severity),
                    ("type", kind),
                    ("task", task),
                ],
                page,
                headings: &["ID", "SEVERITY", "TYPE", "AGE", "SEEN BY", "MESSAGE"],
                row,
                empty: "no alerts",
            };
            listing.show(&client, context).await
        }
        Action::Ack { id: ids } => {
            for text in &ids {
                let call = Call::post(format!("/v1/alerts/{}/acknowledge", id(text)?), json!({}));
                let alert = client.call(&call, Patience::SHORT).await?.body;
                if context.json {
                    print::json_line(&alert);
                } else {
                    let by = super::task::text(&alert["acknowledged_by"]);
                    print::line(&print::safe(&format!("{text}  acknowledged by {by}")));
                }
            }
            Ok(0)
        }
    }
}

fn severity(value: &Value) -> Cell {
    let paint = match text(value) {
        "critical" => Paint::Red,
        _ => Paint::Plain,
    };
    Cell::painted(text(value), paint)
}

fn row(alert: &Value) -> Vec<Cell> {
    vec![
        Cell::new(text(&alert["id"])),
        severity(&alert["severity"]),
        Cell::new(text(&alert["type"])),
        Cell::new(&age(&alert["created_at"])),
        Cell::new(text(&alert["acknowledged_by"])),
        Cell::new(text(&alert["message"])),
    ]
}

#[derive(Args)]
pub(super) struct NoticeArguments {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    action: NoticeAction,
}

#[derive(Subcommand)]
enum NoticeAction {
    /// List what webhooks were told or are still to be told, newest first.
    #[command(after_help = "Examples:
  windlass notice list --state given_up")]
    List {
        /// Only in this state: waiting, delivered or given_up.
        #[arg(long)]
        state: Option<String>,
        /// Only of this severity: critical, warning or info.
        #[arg(long)]
        severity: Option<String>,
        /// Only of this kind, such as alert.
        #[arg(long)]
        kind: Option<String>,
        #[command(flatten)]
        page: Page,
    },
}

pub(super) async fn notices(arguments: NoticeArguments, context: &Context) -> Result<u8, Failure> {
    let client = context.client(&arguments.connection)?;
    let NoticeAction::List { state, severity, kind, page } = arguments.action;
    let listing = Listing {
        path: "/v1/notices",
        filters: vec![("state", state), ("severity", severity), ("kind", kind)],
        page,
        headings: &["ID", "KIND", "SEVERITY", "STATE", "TRIES", "AGE", "ERROR"],
        row: notice_row,
        empty: "no notices",
    };
    listing.show(&client, context).await
}

fn notice_row(notice: &Value) -> Vec<Cell> {
    vec![
        Cell::new(text(&notice["id"])),
        Cell::new(text(&notice["kind"])),
        severity(&notice["severity"]),
        Cell::new(text(&notice["state"])),
        Cell::new(&notice["tries"].as_i64().map_or(String::new(), |n| n.to_string())),
        Cell::new(&age(&notice["created_at"])),
        Cell::painted(text(&notice["last_error"]), Paint::Red),
    ]
}
