//! `windlass signal …`: telling waiting tasks something.
//!
//! Invariant: a signal carries an id from the first try on, so that it can be repeated when the
//! answer is lost, and is one signal.

use super::task::{path, text};
use super::{Connection, Context, Failure, argument};
use crate::client::{Call, Client, Patience};
use crate::print;
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
    /// Send a signal to a task, or to whoever waits with a key; one that comes early is kept.
    Send(SendArguments),
    /// Show a signal, and which task took it.
    Show {
        /// The signal's id.
        id: String,
    },
}

#[derive(Args)]
#[command(after_help = "Examples:
  windlass signal send paid --task 01890a5d-ac96-774b-bcce-b302099a8057 --payload '{\"eur\": 7}'
  windlass signal send paid --key order-7")]
struct SendArguments {
    /// What the signal is called.
    name: String,
    #[command(flatten)]
    target: Target,
    /// What it carries: JSON, @FILE, or - for standard input; null when left out.
    #[arg(long, value_name = "JSON")]
    payload: Option<String>,
    /// Take the payload as plain text: it becomes a JSON string.
    #[arg(long, requires = "payload")]
    text: bool,
    /// The signal's id, any UUID; the same id again is the same signal.
    #[arg(long)]
    id: Option<String>,
}

#[derive(Args)]
#[group(required = true, multiple = false)]
struct Target {
    /// The task that it is for.
    #[arg(long, value_name = "ID")]
    task: Option<String>,
    /// For the task that has waited longest with this key, or the first that will.
    #[arg(long)]
    key: Option<String>,
}

pub(super) async fn run(arguments: Arguments, context: &Context) -> Result<u8, Failure> {
    let client = context.client(&arguments.connection)?;
    match arguments.action {
        Action::Send(arguments) => send(arguments, &client, context).await,
        Action::Show { id } => {
            let id = uuid::Uuid::try_parse(&id).map_err(|_| {
                Failure::usage(format!("`{}` is no id of a signal", print::safe(&id)))
            })?;
            let call = Call::get(format!("/v1/signals/{id}"));
            print_signal(&client.call(&call, Patience::SHORT).await?.body, context);
            Ok(0)
        }
    }
}

async fn send(arguments: SendArguments, client: &Client, context: &Context) -> Result<u8, Failure> {
    let payload = argument::payload(arguments.payload.as_deref(), arguments.text)?;
    let id = arguments.id.unwrap_or_else(|| uuid::Uuid::now_v7().to_string());
    let mut body = json!({ "id": id, "name": arguments.name, "payload": payload });
    match (&arguments.target.task, &arguments.target.key) {
        (Some(task), _) => {
            // Only to refuse early what is no id.
            path(task, "")?;
            body["task_id"] = json!(task);
        }
        (None, key) => body["key"] = json!(key),
    }
    let answer = client.call(&Call::post("/v1/signals", body), Patience::SHORT).await?;
    if answer.header("windlass-duplicate") == Some("true") && !context.json {
        print::note("it was sent before; nothing was added");
    }
    print_signal(&answer.body, context);
    Ok(0)
}

fn print_signal(signal: &Value, context: &Context) {
    if context.json {
        return print::json_line(signal);
    }
    let id = print::safe(text(&signal["id"])).into_owned();
    match text(&signal["taken_by"]) {
        "" => print::line(&format!("{id}  kept until a task waits for it")),
        task => print::line(&format!("{id}  taken by {}", print::safe(task))),
    }
}
