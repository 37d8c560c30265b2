//! `windlass limit …`: how much may run and wait at once.

use super::argument::{ms, span};
use super::poison::{Listing, Page};
use super::task::{age, text};
use super::{Connection, Context, Failure};
use crate::client::{Call, Error, Patience};
use crate::print::{self, Cell, Paint};
use clap::{Args, Subcommand};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use windlass::domain::limit::{MAX_LIMIT, Rate};
use windlass::domain::validate;

#[derive(Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// List the limits with what is held of them. A star means each one of the scope that has no
    /// limit of its own; what is shown then is the most that one of them holds.
    #[command(after_help = "Examples:
  windlass limit list
  windlass limit list --json | jq '.items[] | select(.scope == \"venture\") | .held_by'")]
    List {
        #[command(flatten)]
        page: Page,
    },
    /// Set a limit, while everything runs: it holds on every node within a second. What is not
    /// given stays as it is. A new limit allows 10 active and 50 pending tasks unless it says
    /// otherwise; one that names only a rate limits nothing else than before.
    #[command(after_help = "Examples:
  windlass limit set global --max-active 500 --max-pending 10000
  windlass limit set venture --max-active 20
  windlass limit set venture acme --max-active 50 --max-pending none
  windlass limit set queue mail --rate 100/min
  windlass limit set worker_type vp_handler --max-active 20")]
    Set {
        #[command(flatten)]
        target: Target,
        /// The most claimed and running tasks, or none for no limit. 0 lets nothing begin.
        #[arg(long, value_name = "N", value_parser = maximum, allow_negative_numbers = true)]
        max_active: Option<Value>,
        /// The most pending tasks, those in retry included, or none for no limit.
        #[arg(long, value_name = "N", value_parser = maximum, allow_negative_numbers = true)]
        max_pending: Option<Value>,
        /// The most tasks handed out in a period, such as 100/min, or none for no limit.
        #[arg(long, value_name = "N/SPAN", value_parser = rate, allow_hyphen_values = true)]
        rate: Option<Value>,
    },
    /// Remove a limit. One that was removed from a venture gives way to that of each venture.
    #[command(after_help = "Examples:
  windlass limit remove venture acme
  windlass limit remove stage")]
    Remove {
        #[command(flatten)]
        target: Target,
    },
}

const SCOPES: [&str; 7] =
    ["global", "portfolio", "venture", "stage", "agent", "queue", "worker_type"];

/// What a limit is for.
#[derive(Args)]
struct Target {
    /// What it counts over.
    #[arg(value_parser = SCOPES)]
    scope: String,
    /// Which one; each one of the scope unless given.
    name: Option<String>,
}

impl Target {
    /// Its address. A star is how `limit list` shows each one, so nobody means one of that name.
    fn path(&self) -> Result<String, Failure> {
        let scope = &self.scope;
        if self.name.as_deref() == Some("*") {
            let refused = Failure::usage(format!("`*` would be a {scope} of that name"));
            return Err(refused.hint(format!(
                "leave it out to mean each {scope} without its own; one that is called `*` is \
                 `/v1/limits/{scope}/*` of the HTTP API"
            )));
        }
        path(LIST, scope, self.name.as_deref())
    }
}

fn maximum(text: &str) -> Result<Value, String> {
    match text {
        "none" => Ok(Value::Null),
        number => number
            .parse::<i64>()
            .ok()
            .filter(|n| (0..=MAX_LIMIT).contains(n))
            .map(|n| json!(n))
            .ok_or_else(|| format!("write a number from 0 to {MAX_LIMIT}, or none for no limit")),
    }
}

fn rate(text: &str) -> Result<Value, String> {
    if text == "none" {
        return Ok(Value::Null);
    }
    let told = || "write a number and a span, such as 100/min, or none for no limit".to_owned();
    let (count, period) = text.split_once('/').ok_or_else(told)?;
    let count: u32 = count.parse().map_err(|_| told())?;
    // As rates are shown: `100/min` is `100/1min`, and `100/90 s` is `100/90s`.
    let period = match period.starts_with(|c: char| c.is_ascii_alphabetic()) {
        true => format!("1{period}"),
        false => period.replacen(' ', "", 1),
    };
    let period = span(&period).map_err(|_| told())?;
    Ok(json!({ "count": count, "period_ms": ms(period) }))
}

/// The address of what has a scope and perhaps a name.
pub(super) fn path(list: &str, scope: &str, name: Option<&str>) -> Result<String, Failure> {
    let Some(name) = name else { return Ok(format!("{list}/{scope}")) };
    if name.is_empty() {
        let refused = Failure::usage("the name must not be empty");
        return Err(match list == LIST {
            true => refused.hint(format!("leave it out to mean each {scope} without its own")),
            false => refused,
        });
    }
    if !validate::has_address(name) {
        return Err(Failure::usage(format!("the name {}", validate::NO_ADDRESS)));
    }
    let encoded: String = form_urlencoded::byte_serialize(name.as_bytes()).collect();
    // A `+` is a space in a query only.
    Ok(format!("{list}/{scope}/{}", encoded.replace('+', "%20")))
}

const LIST: &str = "/v1/limits";
const HEADINGS: &[&str] = &["SCOPE", "NAME", "ACTIVE", "PENDING", "RATE", "CHANGED", "BY"];

pub(super) async fn run(arguments: Arguments, context: &Context) -> Result<u8, Failure> {
    let client = context.client(&arguments.connection)?;
    match arguments.action {
        Action::List { page } => {
            let listing = Listing {
                path: LIST,
                filters: Vec::new(),
                page,
                headings: HEADINGS,
                row,
                empty: "no limits; set one with `windlass limit set global --max-active 200`",
            };
            listing.show(&client, context).await
        }
        Action::Set { target, max_active, max_pending, rate } => {
            let path = target.path()?;
            let given = [("max_active", max_active), ("max_pending", max_pending), ("rate", rate)];
            let given = given.into_iter().filter_map(|(name, v)| Some((name.to_owned(), v?)));
            let given: Map<String, Value> = given.collect();
            let before = client.call(&Call::get(path.clone()), Patience::SHORT).await;
            let is_new = matches!(&before, Err(Error::Problem(told)) if told.status == 404);
            let call = Call::patch(path, Value::Object(given.clone()));
            let set = client.call(&call, Patience::SHORT).await?.body;
            if is_new && !context.json {
                tell_defaults(&given, &set);
            }
            show(&set, context)
        }
        Action::Remove { target } => {
            let path = target.path()?;
            let gone = client.call(&Call::delete(path), Patience::SHORT).await?.body;
            if context.json {
                print::json_line(&gone);
            } else {
                print::note("removed");
            }
            Ok(0)
        }
    }
}

/// Tells what a new limit allows although nobody asked for it, and how to do without.
fn tell_defaults(given: &Map<String, Value>, set: &Value) {
    let figures =
        [("max_active", "active", "--max-active"), ("max_pending", "pending", "--max-pending")];
    let unsaid = figures.into_iter().filter(|(name, ..)| !given.contains_key(*name));
    let unsaid = unsaid.filter_map(|(name, what, flag)| Some((set[name].as_i64()?, what, flag)));
    let (most, flags): (Vec<String>, Vec<String>) =
        unsaid.map(|(most, what, flag)| (format!("{most} {what}"), format!("{flag} none"))).unzip();
    if !most.is_empty() {
        let (most, flags) = (most.join(" and "), flags.join(" "));
        print::note(&format!(
            "a new limit: it also allows {most} tasks at most; `{flags}` undoes it"
        ));
    }
}

fn show(limit: &Value, context: &Context) -> Result<u8, Failure> {
    if context.json {
        print::json_line(limit);
        return Ok(0);
    }
    print::table(HEADINGS, &[row(limit)]);
    Ok(0)
}

fn row(limit: &Value) -> Vec<Cell> {
    let name = match (&limit["name"], text(&limit["scope"])) {
        // A star stands for each one; whoever is called so is quoted.
        (Value::String(name), _) if name == "*" => "\"*\"",
        (Value::String(name), _) => name.as_str(),
        (_, "global") => "",
        _ => "*",
    };
    let rate = Option::<Rate>::deserialize(&limit["rate"]).ok().flatten();
    let rate = rate.map_or_else(String::new, |rate| rate.to_string());
    vec![
        Cell::new(text(&limit["scope"])),
        Cell::new(name),
        used(&limit["active"], &limit["max_active"]),
        used(&limit["pending"], &limit["max_pending"]),
        Cell::new(&rate),
        Cell::new(&age(&limit["updated_at"])),
        Cell::new(text(&limit["updated_by"])),
    ]
}

/// How much of a limit is used: in red when all of it is.
fn used(held: &Value, max: &Value) -> Cell {
    let held = held.as_i64().unwrap_or_default();
    match max.as_i64() {
        Some(max) if held >= max => Cell::painted(&format!("{held} of {max}"), Paint::Red),
        Some(max) => Cell::new(&format!("{held} of {max}")),
        None => Cell::new(&format!("{held}")),
    }
}
