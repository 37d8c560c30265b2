//! `windlass task wait` and `windlass task watch`.
//!
//! Invariant: the exit code tells how the task ended. The server's history is the truth; events
//! only say when to look again.

use super::{Context, Failure, argument, task};
use crate::client::stream::Stream;
use crate::client::{Call, Client, Patience};
use crate::print::{self, Paint};
use clap::Args;
use serde_json::Value;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// How long one request waits at the server.
const LEG: Duration = Duration::from_secs(30);
/// How often `watch` looks without having been told to.
const LOOK: Duration = Duration::from_secs(2);

#[derive(Args)]
#[command(after_help = "Exit codes: 0 completed, 3 failed, 4 cancelled, 5 not finished in time,
6 poisoned or stuck.

Examples:
  windlass task wait 01890a5d-ac96-774b-bcce-b302099a8057 --timeout 5m && echo done")]
pub(super) struct WaitArguments {
    /// The task's id.
    id: String,
    /// How long to wait at most [default: without end].
    #[arg(long, value_name = "SPAN", value_parser = argument::span)]
    timeout: Option<Duration>,
}

#[derive(Args)]
#[command(after_help = "Exit codes: as with task wait. With --json each transition is a line, \
then the task.

Examples:
  windlass task watch 01890a5d-ac96-774b-bcce-b302099a8057")]
pub(super) struct WatchArguments {
    /// The task's id.
    id: String,
    /// How long to watch at most [default: without end].
    #[arg(long, value_name = "SPAN", value_parser = argument::span)]
    timeout: Option<Duration>,
}

/// The exit code of a task's state; none while it is not finished.
fn exit_of(status: &str) -> Option<u8> {
    match status {
        "completed" => Some(0),
        "failed" => Some(3),
        "cancelled" => Some(4),
        "poisoned" | "stuck" => Some(6),
        _ => None,
    }
}

/// The exit code of a wait that ended too early.
const TIMED_OUT: u8 = 5;

pub(super) async fn wait(
    arguments: WaitArguments,
    client: &Client,
    context: &Context,
) -> Result<u8, Failure> {
    let path = task::path(&arguments.id, "")?;
    let task = client.call(&Call::get(path), Patience::SHORT).await?.body;
    until_finished(task, arguments.timeout, client, context).await
}

/// Waits for a task, prints how it ended, and gives the exit code.
pub(super) async fn until_finished(
    mut task: Value,
    timeout: Option<Duration>,
    client: &Client,
    context: &Context,
) -> Result<u8, Failure> {
    let begun = Instant::now();
    let path = task::path(task::text(&task["id"]), "/wait")?;
    let mut shown = String::new();
    loop {
        let status = task::text(&task["status"]).to_owned();
        if let Some(exit) = exit_of(&status) {
            finish_line();
            print_end(&task, context);
            return Ok(exit);
        }
        let left = timeout.map(|timeout| timeout.saturating_sub(begun.elapsed()));
        if left.is_some_and(|left| left.is_zero()) {
            finish_line();
            return Ok(give_up(&task, context));
        }
        progress(&mut shown, &status, begun.elapsed(), context);
        // A person at a terminal sees the state change; nobody else needs it.
        let leg = if shown.is_empty() { LEG } else { LOOK };
        let leg = left.map_or(leg, |left| left.min(leg));
        let call = Call::get(&path).query("timeout_ms", argument::ms(leg).max(1)).patient(leg);
        task = client.call(&call, Patience::LONG).await?.body;
    }
}

/// Shows on a terminal that something is going on.
fn progress(shown: &mut String, status: &str, waited: Duration, context: &Context) {
    if context.json || !std::io::stderr().is_terminal() {
        return;
    }
    let waited = print::span(i64::try_from(waited.as_millis()).unwrap_or(i64::MAX));
    *shown = format!("{} … {waited}", print::safe(status));
    eprint!("\r\x1b[K{shown}");
}

fn finish_line() {
    if std::io::stderr().is_terminal() {
        eprint!("\r\x1b[K");
    }
}

fn print_end(task: &Value, context: &Context) {
    if context.json {
        print::json_line(task);
        return;
    }
    let status = task::text(&task["status"]);
    match status {
        "completed" => print::line(&print::json_pretty(&task["result"])),
        _ => {
            let code = print::safe(task::text(&task["error"]["code"])).into_owned();
            let message = print::safe_lines(task::text(&task["error"]["message"]));
            let mut told = print::painted(&print::safe(status), Paint::of_status(status));
            if !code.is_empty() {
                told = format!("{told}: {message} [{code}]");
            }
            print::line(&told);
        }
    }
}

fn give_up(task: &Value, context: &Context) -> u8 {
    if context.json {
        print::json_line(task);
    } else {
        let status = print::safe(task::text(&task["status"])).into_owned();
        print::note(&format!("not finished in time: it is {status}"));
    }
    TIMED_OUT
}

pub(super) async fn watch(
    arguments: WatchArguments,
    client: &Client,
    context: &Context,
) -> Result<u8, Failure> {
    let begun = Instant::now();
    let id = task::path(&arguments.id, "")?.trim_start_matches("/v1/tasks/").to_owned();
    // Open the stream before the first look: a transition between the two would otherwise be
    // seen only by the next look.
    let call = Call::get("/v1/events").query("task_id", &id);
    let mut stream = Some(Stream::new(client, call, None, Patience::LONG));
    if let Some(opened) = &mut stream
        && opened.open().await.is_err()
    {
        stream = None;
    }
    let mut seen = -1;
    loop {
        show_new(&id, &mut seen, client, context).await?;
        let path = task::path(&id, "")?;
        let task = client.call(&Call::get(path), Patience::LONG).await?.body;
        if let Some(exit) = exit_of(task::text(&task["status"])) {
            // It may have moved between the two reads.
            show_new(&id, &mut seen, client, context).await?;
            print_end(&task, context);
            return Ok(exit);
        }
        let left = arguments.timeout.map(|timeout| timeout.saturating_sub(begun.elapsed()));
        if left.is_some_and(|left| left.is_zero()) {
            return Ok(give_up(&task, context));
        }
        let pause = left.map_or(LOOK, |left| left.min(LOOK));
        match &mut stream {
            Some(opened) => {
                if let Ok(Err(_)) = tokio::time::timeout(pause, opened.next()).await {
                    stream = None;
                }
            }
            None => tokio::time::sleep(pause).await,
        }
    }
}

/// Prints the transitions behind the last one that was printed.
async fn show_new(
    id: &str,
    seen: &mut i64,
    client: &Client,
    context: &Context,
) -> Result<(), Failure> {
    let call = Call::get(task::path(id, "/history")?).query("limit", 1_000);
    let mut cursor: Option<String> = None;
    loop {
        let page = match &cursor {
            Some(cursor) => call.clone().query("cursor", cursor),
            None => call.clone(),
        };
        let answer = client.call(&page, Patience::LONG).await?.body;
        for row in answer["items"].as_array().into_iter().flatten() {
            let seq = row["seq"].as_i64().unwrap_or(i64::MAX);
            if seq > *seen {
                *seen = seq;
                if context.json {
                    print::json_line(row);
                } else {
                    print::line(&transition(row));
                }
            }
        }
        cursor = answer["next_cursor"].as_str().map(str::to_owned);
        if cursor.is_none() {
            return Ok(());
        }
    }
}

/// One transition as a line: when, from where, to where, by whom and why.
pub(super) fn transition(row: &Value) -> String {
    let from = match task::text(&row["from_status"]) {
        "" => "–",
        from => from,
    };
    let to = task::text(&row["to_status"]);
    let paint = Paint::of_status(to);
    let to = print::painted(&format!("{:<12}", print::safe(to)), paint);
    let mut line = format!("{}  {:>20} → {to}", task::text(&row["at"]), print::safe(from));
    line.push_str(&format!("  {}", print::safe(task::text(&row["event"]))));
    for (name, prefix) in [("actor", "by "), ("reason", "")] {
        let value = task::text(&row[name]);
        if !value.is_empty() {
            line.push_str(&format!("  {prefix}{}", print::cut(&print::safe(value), 100)));
        }
    }
    if let Some(code) = row["metadata"]["code"].as_str() {
        let message = task::text(&row["metadata"]["message"]);
        let told = print::cut(&print::safe(&format!("{code}: {message}")), 200);
        line.push_str(&format!("  {}", print::painted(&told, Paint::Red)));
    }
    line.trim_end().to_owned()
}
