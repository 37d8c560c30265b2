//! `windlass task …`: find, show and cancel; submitting and waiting have files of their own.

use super::filter::Filter;
use super::poison::{more, nothing};
use super::{Connection, Context, Failure, argument, replay, step, submit, wait, why};
use crate::client::{Call, Client, Patience};
use crate::print::{self, Cell, Paint};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use windlass::domain::time::Timestamp;
use windlass::store::clock::Clock;

#[derive(Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Submit a task.
    Submit(Box<submit::Arguments>),
    /// List tasks, newest first.
    List(Box<ListArguments>),
    /// Show one task.
    Show(ShowArguments),
    /// Say why a task does not run.
    Why(why::Arguments),
    /// List what a task has done so far, oldest first.
    Steps(step::OfTaskArguments),
    /// Wait until a task is finished; the exit code tells how it ended.
    Wait(wait::WaitArguments),
    /// Show every transition of a task, live, until it is finished.
    Watch(wait::WatchArguments),
    /// Do a finished task once more, as a new task that takes done steps along.
    Replay(replay::Arguments),
    /// Cancel tasks. Running work learns of it by its stream or its next heartbeat.
    Cancel(CancelArguments),
}

#[derive(Args)]
#[command(after_help = "Examples:
  windlass task list --queue mail --status failed --since 1h
  windlass task list --tag team:billing --all --json | jq .id")]
struct ListArguments {
    /// Only tasks in this state; may be repeated.
    #[arg(long, value_name = "STATE")]
    status: Vec<String>,
    /// Only tasks that a worker holds: claimed or running.
    #[arg(long)]
    in_flight: bool,
    #[command(flatten)]
    filter: Filter,
    /// Only tasks submitted at or after this time; 1h means an hour ago.
    #[arg(long, value_name = "TIME", value_parser = argument::past)]
    since: Option<Timestamp>,
    /// Only tasks submitted before this time.
    #[arg(long, value_name = "TIME", value_parser = argument::past)]
    until: Option<Timestamp>,
    /// How many tasks at most.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
    /// Go on behind an earlier page.
    #[arg(long)]
    cursor: Option<String>,
    /// In which order: newest or oldest first; desc and asc say the same.
    #[arg(long)]
    order: Option<String>,
    /// Show all pages. With --json one task a line.
    #[arg(long)]
    all: bool,
}

#[derive(Args)]
#[command(after_help = "Examples:
  windlass task show 01890a5d-ac96-774b-bcce-b302099a8057 --history
  windlass task show 01890a5d-ac96-774b-bcce-b302099a8057 --json | jq .result")]
struct ShowArguments {
    /// The task's id.
    id: String,
    /// Add every transition.
    #[arg(long)]
    history: bool,
    /// Add every failure.
    #[arg(long)]
    failures: bool,
}

#[derive(Args)]
#[command(after_help = "Examples:
  windlass task cancel 01890a5d-ac96-774b-bcce-b302099a8057 --reason 'no longer needed'")]
struct CancelArguments {
    /// The tasks' ids.
    #[arg(required = true)]
    id: Vec<String>,
    /// Why, for the history.
    #[arg(long)]
    reason: Option<String>,
}

pub(super) async fn run(arguments: Arguments, context: &Context) -> Result<u8, Failure> {
    let client = context.client(&arguments.connection)?;
    match arguments.action {
        Action::Submit(arguments) => submit::run(*arguments, &client, context).await,
        Action::List(arguments) => list(*arguments, &client, context).await,
        Action::Show(arguments) => show(arguments, &client, context).await,
        Action::Why(arguments) => why::run(arguments, &client, context).await,
        Action::Steps(arguments) => step::of_task(arguments, &client, context).await,
        Action::Wait(arguments) => wait::wait(arguments, &client, context).await,
        Action::Watch(arguments) => wait::watch(arguments, &client, context).await,
        Action::Replay(arguments) => replay::run(arguments, &client, context).await,
        Action::Cancel(arguments) => cancel(arguments, &client, context).await,
    }
}

/// The path of a task. An id goes into a path, so it must be one.
pub(super) fn path(id: &str, rest: &str) -> Result<String, Failure> {
    let id = uuid::Uuid::try_parse(id).map_err(|_| {
        let given = print::safe(id);
        Failure::usage(format!("`{given}` is no id of a task"))
            .hint("an id looks like 01890a5d-ac96-774b-bcce-b302099a8057")
    })?;
    Ok(format!("/v1/tasks/{id}{rest}"))
}

async fn list(arguments: ListArguments, client: &Client, context: &Context) -> Result<u8, Failure> {
    let mut call = Call::get("/v1/tasks");
    let mut is_filtered =
        !arguments.status.is_empty() || arguments.in_flight || !arguments.filter.is_empty();
    let is_later = arguments.cursor.is_some();
    if !arguments.status.is_empty() {
        call = call.query("status", arguments.status.join(","));
    }
    if arguments.in_flight {
        call = call.query("in_flight", true);
    }
    call = arguments.filter.onto(call);
    for (name, value) in [
        ("since", &arguments.since.map(|time| time.to_string())),
        ("until", &arguments.until.map(|time| time.to_string())),
    ] {
        if let Some(value) = value {
            call = call.query(name, value);
            is_filtered = true;
        }
    }
    let limit = if arguments.all { 1_000 } else { arguments.limit };
    let mut call = call.query("limit", limit);
    if let Some(order) = &arguments.order {
        call = call.query("order", order);
    }
    let mut cursor = arguments.cursor;
    let mut rows = Vec::new();
    loop {
        let page = match &cursor {
            Some(cursor) => call.clone().query("cursor", cursor),
            None => call.clone(),
        };
        let answer = client.call(&page, Patience::SHORT).await?.body;
        let items = answer["items"].as_array().map(Vec::as_slice).unwrap_or_default();
        match (context.json, arguments.all) {
            (true, false) => print::json_line(&answer),
            (true, true) => items.iter().for_each(print::json_line),
            (false, _) => rows.extend(items.iter().map(row)),
        }
        cursor = answer["next_cursor"].as_str().map(str::to_owned);
        if !arguments.all || cursor.is_none() {
            break;
        }
    }
    if !context.json {
        let more = cursor.map(|cursor| more(&cursor, arguments.order.as_deref()));
        print_list(&rows, more.as_deref(), nothing(EMPTY, is_filtered, is_later));
    }
    Ok(0)
}

const EMPTY: &str = "no tasks; submit one with `windlass task submit --queue QUEUE '{\"a\": 1}'`";

fn print_list(rows: &[Vec<Cell>], more: Option<&str>, nothing: &str) {
    if rows.is_empty() {
        print::note(nothing);
        return;
    }
    print::table(&["ID", "STATUS", "QUEUE", "NAME", "ATTEMPT", "AGE", "ERROR"], rows);
    if let Some(more) = more {
        print::note(&format!("{more} or --all"));
    }
}

fn row(task: &Value) -> Vec<Cell> {
    let error = match text(&task["error"]["code"]) {
        "" => String::new(),
        code => format!("{code}: {}", text(&task["error"]["message"])),
    };
    vec![
        Cell::new(text(&task["id"])),
        Cell::status(text(&task["status"])),
        Cell::new(text(&task["queue"])),
        Cell::new(text(&task["name"])),
        Cell::new(&task["attempt"].as_i64().map_or(String::new(), |n| n.to_string())),
        Cell::new(&age(&task["created_at"])),
        Cell::painted(&error, Paint::Red),
    ]
}

/// The text of a field; empty if it is null or missing.
pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// How long ago a time was.
pub(super) fn age(time: &Value) -> String {
    let time: Option<Timestamp> = text(time).parse().ok();
    time.map_or(String::new(), |time| print::span(Clock::System.now().since_ms(time).max(0)))
}

async fn show(arguments: ShowArguments, client: &Client, context: &Context) -> Result<u8, Failure> {
    let get = async |rest: &str| -> Result<Value, Failure> {
        let path = path(&arguments.id, rest)?;
        Ok(client.call(&Call::get(path), Patience::SHORT).await?.body)
    };
    let mut task = get("").await?;
    for (wanted, name) in [(arguments.history, "history"), (arguments.failures, "failures")] {
        if wanted {
            let answer = get(&format!("/{name}?limit=1000")).await?;
            task[name] = answer["items"].clone();
        }
    }
    if context.json {
        print::json_line(&task);
    } else {
        print_task(&task);
    }
    Ok(0)
}

/// Fields that are shown at the end, as JSON of their own.
const LARGE: [&str; 7] =
    ["payload", "checkpoint", "progress", "result", "error", "history", "failures"];

/// Prints a task for people: what is set, and large values below.
pub(super) fn print_task(task: &Value) {
    let Some(fields) = task.as_object() else { return };
    let first = ["id", "status", "waiting_for", "kind", "queue", "name"];
    let rest = fields.keys().map(String::as_str).filter(|name| !first.contains(name));
    for name in first.into_iter().chain(rest) {
        let value = &task[name];
        let is_empty = value.as_object().is_some_and(serde_json::Map::is_empty);
        if value.is_null() || is_empty || LARGE.contains(&name) {
            continue;
        }
        let shown = match value {
            waiting if name == "waiting_for" => waiting_for(waiting),
            Value::String(text) => print::safe(text).into_owned(),
            other => print::json(other),
        };
        let paint = if name == "status" { Paint::of_status(&shown) } else { Paint::Plain };
        let heading = print::painted(&format!("{name:<18}"), Paint::Bold);
        print::line(&format!("{heading}{}", print::painted(&shown, paint)));
    }
    for name in LARGE {
        match &task[name] {
            Value::Null => {}
            Value::Array(rows) if name == "history" => {
                print::line(&print::painted("history", Paint::Bold));
                rows.iter().for_each(|row| print::line(&wait::transition(row)));
            }
            value => {
                print::line(&print::painted(name, Paint::Bold));
                print::line(&print::json_pretty(value));
            }
        }
    }
}

/// What a task waits for, in words, with what a person needs to let it go on.
fn waiting_for(waiting: &Value) -> String {
    let field = |name: &str| print::safe(text(&waiting[name])).into_owned();
    let what = match text(&waiting["kind"]) {
        "time" => format!("the time {}", field("until")),
        "signal" if waiting["key"].is_null() => format!("the signal `{}`", field("name")),
        "signal" => format!("the signal `{}` with key `{}`", field("name"), field("key")),
        "task" => format!("the end of task {}", field("task_id")),
        "approval" => format!("approval {}", field("approval_id")),
        "person" => format!("a person's decision over step {} in doubt", field("step_id")),
        _ => return print::json(waiting),
    };
    match &waiting["until"] {
        Value::String(until) if waiting["kind"] != "time" => {
            format!("{what}, until {}", print::safe(until))
        }
        _ => what,
    }
}

async fn cancel(
    arguments: CancelArguments,
    client: &Client,
    context: &Context,
) -> Result<u8, Failure> {
    for id in &arguments.id {
        let mut body = json!({});
        if let Some(reason) = &arguments.reason {
            body["reason"] = json!(reason);
        }
        let call = Call::post(path(id, "/cancel")?, body);
        let task = client.call(&call, Patience::SHORT).await?.body;
        if context.json {
            print::json_line(&task);
        } else {
            let status = text(&task["status"]);
            let shown = print::painted(&print::safe(status), Paint::of_status(status));
            print::line(&format!("{}  {shown}", print::safe(text(&task["id"]))));
        }
    }
    Ok(0)
}
