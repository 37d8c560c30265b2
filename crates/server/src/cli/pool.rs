//! `windlass pool …`: what waits for providers, and who they are.

use super::poison::{Listing, Page};
use super::task::{age, text};
use super::{Connection, Context, Failure};
use crate::client::{Call, Patience};
use crate::print::{self, Cell, Paint};
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
    /// List pools, by name.
    List {
        #[command(flatten)]
        page: Page,
    },
    /// Show a pool and its providers.
    Show {
        /// The pool's name.
        name: String,
    },
}

pub(super) async fn run(arguments: Arguments, context: &Context) -> Result<u8, Failure> {
    let client = context.client(&arguments.connection)?;
    let name = match arguments.action {
        Action::List { page } => {
            let listing = Listing {
                path: "/v1/pools",
                filters: Vec::new(),
                page,
                headings: &[
                    "NAME",
                    "WAITING",
                    "OLDEST",
                    "RUNNING",
                    "SLOTS",
                    "PROVIDERS",
                    "A MINUTE",
                    "TOKENS",
                ],
                row,
                empty: "no pools; a provider makes one by its session's `pools`",
            };
            return listing.show(&client, context).await;
        }
        Action::Show { name } => name,
    };
    let encoded: String = form_urlencoded::byte_serialize(name.as_bytes()).collect();
    // A `+` is a space in a query only.
    let path = format!("/v1/pools/{}", encoded.replace('+', "%20"));
    let asked = client.call(&Call::get(path), Patience::SHORT).await;
    let pool = asked.map_err(unknown)?.body;
    if context.json {
        print::json_line(&pool);
        return Ok(0);
    }
    for (name, shown) in [
        ("name", print::safe(text(&pool["name"])).into_owned()),
        ("waiting", number(&pool["depth"])),
        ("oldest", age(&pool["oldest_waiting_at"])),
        ("running", number(&pool["running"])),
        ("slots", number(&pool["slots"])),
        ("a minute", number(&pool["finished_last_minute"])),
        ("tokens a minute", number(&pool["tokens_last_minute"])),
    ] {
        print::line(&format!("{}{shown}", print::painted(&format!("{name:<17}"), Paint::Bold)));
    }
    let providers = pool["providers"].as_array().map(Vec::as_slice).unwrap_or_default();
    if providers.is_empty() {
        print::line("nobody takes from it");
        return Ok(0);
    }
    let rows: Vec<Vec<Cell>> = providers.iter().map(provider).collect();
    let headings = ["PROVIDER", "SESSION", "HELD", "SLOTS", "MODELS", "TIERS", "LLMS", "NODE"];
    print::table(&headings, &rows);
    Ok(0)
}

/// A pool that nobody knows is looked for in the list.
fn unknown(error: crate::client::Error) -> Failure {
    let is_unknown = error.code() == Some("not_found");
    let failure = Failure::from(error);
    match is_unknown {
        true => failure.hint("`windlass pool list` shows the pools that there are"),
        false => failure,
    }
}

fn number(value: &Value) -> String {
    value.as_i64().unwrap_or_default().to_string()
}

fn row(pool: &Value) -> Vec<Cell> {
    let providers = pool["providers"].as_array().map_or(0, Vec::len);
    vec![
        Cell::new(text(&pool["name"])),
        Cell::new(&number(&pool["depth"])),
        Cell::new(&age(&pool["oldest_waiting_at"])),
        Cell::new(&number(&pool["running"])),
        Cell::new(&number(&pool["slots"])),
        Cell::new(&providers.to_string()),
        Cell::new(&number(&pool["finished_last_minute"])),
        Cell::new(&number(&pool["tokens_last_minute"])),
    ]
}

fn provider(provider: &Value) -> Vec<Cell> {
    vec![
        Cell::new(text(&provider["name"])),
        Cell::new(text(&provider["session_id"])),
        Cell::new(&number(&provider["held"])),
        Cell::new(&number(&provider["slots"])),
        Cell::new(&names(&provider["models"])),
        Cell::new(&names(&provider["tiers"])),
        Cell::new(&names(&provider["llms"])),
        Cell::new(provider["node"].as_str().unwrap_or("-")),
    ]
}

/// Names with commas between; a dash for none.
fn names(list: &Value) -> String {
    let names: Vec<&str> =
        list.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if names.is_empty() { "-".into() } else { names.join(",") }
}
