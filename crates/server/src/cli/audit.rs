//! `windlass audit list`: what people decided or tried that no task's history tells.

use super::poison::{Listing, Page};
use super::task::{age, text};
use super::{Connection, Context, Failure};
use crate::print::Cell;
use clap::{Args, Subcommand};
use serde_json::Value;

#[derive(Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// List the audit, newest first: decisions over steps, refused decisions, tokens, refused keys.
    #[command(after_help = "Examples:
  windlass audit list --event step_resolved
  windlass audit list --event approval_refused --json | jq '.items[].detail'")]
    List {
        /// Only this event, such as step_resolved or approval_refused.
        #[arg(long)]
        event: Option<String>,
        #[command(flatten)]
        page: Page,
    },
}

pub(super) async fn run(arguments: Arguments, context: &Context) -> Result<u8, Failure> {
    let client = context.client(&arguments.connection)?;
    let Action::List { event, page } = arguments.action;
    let listing = Listing {
        path: "/v1/audit",
        filters: vec![("event", event)],
        page,
        headings: &["SEQ", "AGE", "ACTOR", "EVENT", "REASON", "DETAIL"],
        row,
        empty: "the audit has no such entry",
    };
    listing.show(&client, context).await
}

fn row(entry: &Value) -> Vec<Cell> {
    vec![
        Cell::new(&entry["seq"].to_string()),
        Cell::new(&age(&entry["at"])),
        Cell::new(text(&entry["actor"])),
        Cell::new(text(&entry["event"])),
        Cell::new(text(&entry["detail"]["reason"])),
        Cell::new(&entry["detail"].to_string()),
    ]
}
