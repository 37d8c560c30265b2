//! `windlass pause` and `windlass resume`: stopping a queue, an agent, a venture or everything.

use super::limit::path;
use super::poison::{Listing, Page};
use super::task::{age, text};
use super::{Connection, Context, Failure};
use crate::client::{Call, Client, Patience};
use crate::print::{self, Cell, Paint};
use clap::Args;
use serde_json::{Value, json};

#[derive(Args)]
#[command(after_help = "Examples:
  windlass pause queue mail --reason 'the mail server moves'
  windlass pause venture acme
  windlass pause --all --drain
  windlass pause")]
pub(super) struct Arguments {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    target: Target,
    /// Take nothing in instead, and hand out what is there.
    #[arg(long)]
    drain: bool,
    /// Why, for those who wait.
    #[arg(long)]
    reason: Option<String>,
    #[command(flatten)]
    page: Page,
}

#[derive(Args)]
#[command(after_help = "What was stopped by name stays so after `--all`, and the answer names it.

Examples:
  windlass resume queue mail
  windlass resume --all")]
pub(super) struct ResumeArguments {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    target: Target,
}

/// What is stopped.
#[derive(Args)]
struct Target {
    /// What kind of thing.
    #[arg(value_parser = ["queue", "agent", "venture"], requires = "name")]
    scope: Option<String>,
    /// Which one.
    name: Option<String>,
    /// Everything.
    #[arg(long, conflicts_with = "scope")]
    all: bool,
}

impl Target {
    fn place(&self) -> Option<(&str, Option<&str>)> {
        match &self.scope {
            Some(scope) => Some((scope, self.name.as_deref())),
            None => self.all.then_some(("global", None)),
        }
    }
}

const LIST: &str = "/v1/pauses";

pub(super) async fn pause(arguments: Arguments, context: &Context) -> Result<u8, Failure> {
    let client = context.client(&arguments.connection)?;
    let Some((scope, name)) = arguments.target.place() else {
        if arguments.drain || arguments.reason.is_some() {
            let told = "say what: a queue, an agent, a venture, or --all";
            return Err(Failure::usage(told));
        }
        let listing = Listing {
            path: LIST,
            filters: Vec::new(),
            page: arguments.page,
            headings: &["SCOPE", "NAME", "MODE", "SINCE", "BY", "REASON"],
            row,
            empty: "nothing is paused; `windlass pause queue NAME` pauses a queue",
        };
        return listing.show(&client, context).await;
    };
    let mode = if arguments.drain { "drain" } else { "pause" };
    let body = json!({ "scope": scope, "name": name, "mode": mode, "reason": arguments.reason });
    let paused = client.call(&Call::post(LIST, body), Patience::SHORT).await?.body;
    if context.json {
        print::json_line(&paused);
    } else {
        print::note(&format!("{}: {}", shown(&paused), means(mode)));
    }
    Ok(0)
}

pub(super) async fn resume(arguments: ResumeArguments, context: &Context) -> Result<u8, Failure> {
    let client = context.client(&arguments.connection)?;
    let Some((scope, name)) = arguments.target.place() else {
        let told = "say what: a queue, an agent, a venture, or --all; `windlass pause` lists it";
        return Err(Failure::usage(told));
    };
    let call = Call::delete(path(LIST, scope, name)?);
    let gone = client.call(&call, Patience::SHORT).await?.body;
    if context.json {
        print::json_line(&gone);
    } else {
        print::note(&format!("{} {}", shown(&gone), goes_on(&client, scope).await));
    }
    Ok(0)
}

/// How many of those are named that stay stopped.
const MOST_NAMED: usize = 10;

/// What becomes of something of this scope that is stopped no more: others may be, by name or all.
async fn goes_on(client: &Client, scope: &str) -> String {
    // It is done by now: whoever cannot be told the rest is told where to read it.
    let list = Call::get(format!("{LIST}?limit=1000"));
    let Ok(listed) = client.call(&list, Patience::SHORT).await else {
        return "is stopped no more; `windlass pause` lists what else is".to_owned();
    };
    let items = listed.body["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    let told = |pause: &Value| format!("{} ({})", shown(pause), text(&pause["mode"]));
    if scope != "global" {
        let all = items.iter().find(|pause| pause["scope"] == "global");
        return match all.map(|all| text(&all["mode"])) {
            None => "goes on".to_owned(),
            Some(mode) => format!(
                "is stopped no more by itself, but everything still is ({mode}): `windlass resume \
                 --all`"
            ),
        };
    }
    let mut named: Vec<String> = items.iter().take(MOST_NAMED).map(told).collect();
    let more = items.len() - named.len();
    if named.is_empty() {
        return "goes on".to_owned();
    }
    if more > 0 || !listed.body["next_cursor"].is_null() {
        let at_least = if listed.body["next_cursor"].is_null() { "" } else { "at least " };
        named.push(format!("and {at_least}{more} more"));
    }
    let named = named.join(", ");
    format!("goes on but for what is stopped by name: {named}; `windlass pause` lists it")
}

fn means(mode: &str) -> &'static str {
    match mode {
        "drain" => "nothing new is taken in, what is there is handed out",
        _ => "nothing is handed out, what is submitted waits",
    }
}

fn shown(pause: &Value) -> String {
    match pause["name"].as_str() {
        Some(name) => format!("{} {}", text(&pause["scope"]), print::safe(name)),
        None => "everything".to_owned(),
    }
}

fn row(pause: &Value) -> Vec<Cell> {
    vec![
        Cell::new(text(&pause["scope"])),
        Cell::new(text(&pause["name"])),
        Cell::painted(text(&pause["mode"]), Paint::Yellow),
        Cell::new(&age(&pause["since"])),
        Cell::new(text(&pause["by"])),
        Cell::new(text(&pause["reason"])),
    ]
}
