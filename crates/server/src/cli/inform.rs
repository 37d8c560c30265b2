//! `windlass status`, `windlass session list` and `windlass config`: what is there.

use super::poison::Page;
use super::task::{age, text};
use super::{Connection, Context, Failure};
use crate::client::{Call, Patience};
use crate::print::{self, Cell, Paint};
use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

#[derive(Args)]
#[command(
    after_help = "Exit codes: 0 the server is ready, 75 it answers but is not ready, 69 nobody \
    answers."
)]
pub(super) struct StatusArguments {
    #[command(flatten)]
    connection: Connection,
}

#[derive(Args)]
pub(super) struct SessionArguments {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    action: SessionAction,
}

#[derive(Subcommand)]
enum SessionAction {
    /// List the sessions that are alive.
    List {
        #[command(flatten)]
        page: Page,
    },
}

#[derive(Args)]
#[command(
    after_help = "Flags beat the environment, the environment beats the file, the file beats \
the defaults.
Passwords and keys are masked."
)]
pub(super) struct ConfigArguments {}

pub(super) async fn sessions(
    arguments: SessionArguments,
    context: &Context,
) -> Result<u8, Failure> {
    let client = context.client(&arguments.connection)?;
    let SessionAction::List { page } = arguments.action;
    let call = page.of(Call::get("/v1/sessions"));
    let answer = client.call(&call, Patience::SHORT).await?.body;
    if context.json {
        print::json_line(&answer);
        return Ok(0);
    }
    let items = answer["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    if items.is_empty() {
        print::note("no sessions; start a worker with `windlass worker --queue QUEUE -- COMMAND`");
        return Ok(0);
    }
    let rows: Vec<_> = items.iter().map(session_row).collect();
    print::table(&["ID", "NAME", "TYPE", "QUEUES", "SLOTS", "AGE", "EXPIRES"], &rows);
    page.note_more(&answer);
    Ok(0)
}

fn session_row(session: &Value) -> Vec<Cell> {
    let queues: Vec<&str> = session["queues"].as_array().into_iter().flatten().map(text).collect();
    vec![
        Cell::new(text(&session["id"])),
        Cell::new(text(&session["name"])),
        Cell::new(text(&session["worker_type"])),
        Cell::new(&queues.join(",")),
        Cell::new(&session["slots"].as_i64().map_or(String::new(), |slots| slots.to_string())),
        Cell::new(&age(&session["created_at"])),
        Cell::new(text(&session["expires_at"])),
    ]
}

pub(super) async fn status(arguments: StatusArguments, context: &Context) -> Result<u8, Failure> {
    let client = context.client(&arguments.connection)?;
    let alive = client.call(&Call::get("/healthz"), Patience::SHORT).await?;
    drop(alive);
    let ready = client.call(&Call::get("/readyz"), Patience::NONE).await;
    let mut found = Map::new();
    found.insert("server".into(), json!(client.server()));
    found.insert("ready".into(), json!(ready.is_ok()));
    if let Err(error) = &ready {
        found.insert("not_ready_because".into(), json!(error.to_string()));
    } else {
        let ask = async |path: &str| client.call(&Call::get(path), Patience::SHORT).await;
        found.insert("status".into(), ask("/v1/status").await?.body);
        match ask("/v1/backpressure").await {
            Ok(answer) => drop(found.insert("backpressure".into(), answer.body)),
            // A server of an older version does not tell.
            Err(error) if error.status() == Some(404) => {}
            Err(error) => return Err(error.into()),
        }
        found.insert("nodes".into(), ask("/v1/nodes?limit=1000").await?.body["items"].clone());
    }
    let found = Value::Object(found);
    if context.json {
        print::json_line(&found);
    } else {
        print_status(&found);
    }
    Ok(if ready.is_ok() { 0 } else { 75 })
}

fn print_status(found: &Value) {
    let show = |name: &str, value: &str, paint: Paint| {
        let heading = print::painted(&format!("{name:<14}"), Paint::Bold);
        print::line(&format!("{heading}{}", print::painted(&print::safe(value), paint)));
    };
    show("server", text(&found["server"]), Paint::Plain);
    if found["ready"] == false {
        show("ready", "no", Paint::Red);
        show("because", text(&found["not_ready_because"]), Paint::Plain);
        return;
    }
    show("ready", "yes", Paint::Green);
    let status = &found["status"];
    for name in ["version", "database", "node", "schema", "idle_workers", "open_waits"] {
        match &status[name] {
            Value::Null => {}
            Value::String(text) => show(name, text, Paint::Plain),
            other => show(name, &other.to_string(), Paint::Plain),
        }
    }
    if let Some(nodes) = found["nodes"].as_array() {
        show("nodes", &nodes.len().to_string(), Paint::Plain);
    }
    if let Some(pressure) = found.get("backpressure") {
        let paint = match text(&pressure["level"]) {
            "normal" => Paint::Green,
            "elevated" => Paint::Yellow,
            _ => Paint::Red,
        };
        show("backpressure", &pressure_words(pressure), paint);
        for advice in pressure["recommendations"].as_array().into_iter().flatten() {
            show("", text(advice), Paint::Plain);
        }
    }
    let counts = status["tasks"].as_object().into_iter().flatten();
    let counts: Vec<_> = counts.filter(|(_, count)| **count != 0).collect();
    if !counts.is_empty() {
        print::line("");
        let row = |(state, count): &(&String, &Value)| {
            vec![Cell::status(state), Cell::new(&count.to_string())]
        };
        print::table(&["STATUS", "TASKS"], &counts.iter().map(row).collect::<Vec<_>>());
    }
    let queues = status["queues"].as_array().map(Vec::as_slice).unwrap_or_default();
    if !queues.is_empty() {
        print::line("");
        let row = |queue: &Value| {
            let ready = queue["ready"].to_string();
            vec![
                Cell::new(text(&queue["queue"])),
                Cell::new(text(&queue["kind"])),
                Cell::new(&ready),
            ]
        };
        print::table(&["QUEUE", "KIND", "READY"], &queues.iter().map(row).collect::<Vec<_>>());
    }
}

/// How hard the system is pressed, in one line.
fn pressure_words(pressure: &Value) -> String {
    let of = |held: &str, most: &str| {
        let held = pressure[held].as_i64().unwrap_or_default();
        match pressure[most].as_i64() {
            Some(most) => format!("{held} of {most}"),
            None => held.to_string(),
        }
    };
    let wait = match pressure["estimated_wait_ms"].as_i64() {
        Some(ms) => format!("a new task waits about {}", print::span(ms)),
        None => "nothing moves".to_owned(),
    };
    let (active, pending) = (of("active", "max_active"), of("queue_depth", "max_pending"));
    format!("{}: {active} active, {pending} pending, {wait}", text(&pressure["level"]))
}

pub(super) fn config(_: &ConfigArguments, context: &Context) -> Result<u8, Failure> {
    let config = context.config(Vec::new())?;
    if context.json {
        let mut found = Map::new();
        for entry in &config.entries {
            let source = entry.source.to_string();
            let value = json!({
                "value": entry.shown,
                "source": source,
                "variable": entry.setting.variable(),
                "help": entry.setting.help,
            });
            found.insert(entry.setting.key.to_owned(), value);
        }
        print::json_line(&json!({ "settings": found, "warnings": config.warnings }));
        return Ok(0);
    }
    let rows: Vec<_> = config
        .entries
        .iter()
        .map(|entry| {
            let unset = Cell::painted("(not set)", Paint::Dim);
            vec![
                Cell::new(entry.setting.key),
                entry.shown.as_deref().map_or(unset, Cell::new),
                Cell::new(&entry.source.to_string()),
                Cell::new(&entry.setting.variable()),
            ]
        })
        .collect();
    print::table(&["SETTING", "VALUE", "FROM", "VARIABLE"], &rows);
    for warning in &config.warnings {
        print::note(&format!("warning: {warning}"));
    }
    Ok(0)
}
