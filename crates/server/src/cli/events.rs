//! `windlass events`: the live tail of the event log.

use super::filter::Filter;
use super::{Connection, Context, Failure, task};
use crate::client::stream::Stream;
use crate::client::{Call, Patience};
use crate::print::{self, Paint};
use clap::Args;
use serde_json::{Value, json};

#[derive(Args)]
#[command(
    after_help = "A broken connection is opened again behind the last event: nothing is lost \
and nothing comes
twice. With --json each event is a line {id, event, data}.

Examples:
  windlass events
  windlass events --venture acme --queue mail
  windlass events --status failed --status poisoned --json | jq .data.task_id"
)]
pub(super) struct Arguments {
    #[command(flatten)]
    connection: Connection,
    /// Only events of this task.
    #[arg(long, value_name = "ID")]
    task: Option<String>,
    /// Only these events, such as submit, claim or complete; may be repeated.
    #[arg(long, value_name = "EVENT")]
    event: Vec<String>,
    /// Only events that lead to this state; may be repeated.
    #[arg(long, value_name = "STATE")]
    status: Vec<String>,
    #[command(flatten)]
    filter: Filter,
    /// Begin behind this event, whose id --json prints, or with `beginning` [default: now].
    #[arg(long, value_name = "EVENT_ID")]
    since: Option<String>,
    /// End after this many events.
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
}

pub(super) async fn run(arguments: Arguments, context: &Context) -> Result<u8, Failure> {
    let client = context.client(&arguments.connection)?;
    let mut call = Call::get("/v1/events");
    for (name, value) in [
        ("task_id", &arguments.task),
        ("event", &listed(&arguments.event)),
        ("to_status", &listed(&arguments.status)),
    ] {
        if let Some(value) = value {
            call = call.query(name, value);
        }
    }
    let call = arguments.filter.onto(call);
    let mut stream = Stream::new(&client, call, arguments.since, Patience::ENDLESS);
    // The first try fails at once: a person who misspelt the server must not wait.
    stream.open().await?;
    let mut left = arguments.limit;
    while left != Some(0) {
        let event = stream.next().await?;
        let data = serde_json::from_str(&event.data).unwrap_or(Value::String(event.data));
        if context.json {
            print::json_line(&json!({ "id": event.id, "event": event.name, "data": data }));
        } else {
            print::line(&line(&data));
        }
        left = left.map(|left| left - 1);
    }
    Ok(0)
}

fn listed(names: &[String]) -> Option<String> {
    (!names.is_empty()).then(|| names.join(","))
}

fn line(data: &Value) -> String {
    let id = print::painted(&print::safe(task::text(&data["task_id"])), Paint::Dim);
    format!("{id}  {}", super::wait::transition(data))
}
