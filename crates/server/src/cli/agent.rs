//! `windlass agent …`: how the tasks of an agent are retried.

use super::poison::{Listing, Page};
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
    /// Set how the tasks of an agent are retried; what is left out is unset.
    #[command(after_help = "Examples:
  windlass agent set scout --max-retries 5 --backoff '{\"base_ms\": 2000}' --on-exhausted failed")]
    Set {
        /// The agent's name.
        name: String,
        /// How often a task is retried.
        #[arg(long, value_name = "N")]
        max_retries: Option<u32>,
        /// How long to wait, and which errors are retried, as JSON.
        #[arg(long, value_name = "JSON")]
        backoff: Option<String>,
        /// Where a task ends whose retries are used up: poisoned or failed.
        #[arg(long, value_name = "STATE")]
        on_exhausted: Option<String>,
    },
    /// Show an agent.
    Show {
        /// The agent's name.
        name: String,
    },
    /// List agents, by name.
    List {
        #[command(flatten)]
        page: Page,
    },
}

fn path(name: &str) -> String {
    let encoded: String = form_urlencoded::byte_serialize(name.as_bytes()).collect();
    // A `+` is a space in a query only.
    format!("/v1/agents/{}", encoded.replace('+', "%20"))
}

pub(super) async fn run(arguments: Arguments, context: &Context) -> Result<u8, Failure> {
    let client = context.client(&arguments.connection)?;
    let call = match arguments.action {
        Action::Set { name, max_retries, backoff, on_exhausted } => {
            let backoff = backoff.map(|text| serde_json::from_str::<Value>(&text)).transpose();
            let backoff = backoff
                .map_err(|error| Failure::usage(format!("--backoff is no JSON: {error}")))?;
            let fields = [
                ("max_retries", max_retries.map(|n| json!(n))),
                ("backoff", backoff),
                ("on_exhausted", on_exhausted.map(|text| json!(text))),
            ];
            let given = fields.into_iter().filter_map(|(name, v)| Some((name.to_owned(), v?)));
            let policy = Value::Object(given.collect::<Map<_, _>>());
            Call::put(path(&name), json!({ "retry_policy": policy }))
        }
        Action::Show { name } => Call::get(path(&name)),
        Action::List { page } => {
            let listing = Listing {
                path: "/v1/agents",
                filters: Vec::new(),
                page,
                headings: &["NAME", "RETRIES", "ON EXHAUSTED", "BACKOFF", "CHANGED"],
                row,
                empty: "no agents; set one with `windlass agent set NAME --max-retries 5`",
            };
            return listing.show(&client, context).await;
        }
    };
    let agent = client.call(&call, Patience::SHORT).await?.body;
    if context.json {
        print::json_line(&agent);
        return Ok(0);
    }
    let policy = &agent["retry_policy"];
    for (name, value) in [
        ("name", &agent["name"]),
        ("max_retries", &policy["max_retries"]),
        ("on_exhausted", &policy["on_exhausted"]),
        ("backoff", &policy["backoff"]),
        ("updated_at", &agent["updated_at"]),
    ] {
        let shown = match value {
            Value::Null => continue,
            Value::String(text) => print::safe(text).into_owned(),
            other => print::json(other),
        };
        let heading = print::painted(&format!("{name:<14}"), Paint::Bold);
        print::line(&format!("{heading}{shown}"));
    }
    Ok(0)
}

fn row(agent: &Value) -> Vec<Cell> {
    let policy = &agent["retry_policy"];
    let backoff =
        if policy["backoff"].is_null() { String::new() } else { policy["backoff"].to_string() };
    vec![
        Cell::new(text(&agent["name"])),
        Cell::new(&policy["max_retries"].as_i64().map_or(String::new(), |n| n.to_string())),
        Cell::new(text(&policy["on_exhausted"])),
        Cell::new(&backoff),
        Cell::new(&age(&agent["updated_at"])),
    ]
}
