//! `windlass task submit`.
//!
//! Invariant: a submit carries an id or an idempotency key from the first try on, so that it can
//! be repeated when the answer is lost, and makes one task.

use super::{Context, Failure, argument, task, wait};
use crate::client::problem::Problem;
use crate::client::{Call, Client, Error, Patience};
use crate::print;
use clap::Args;
use serde_json::{Map, Value, json};
use std::time::Duration;
use windlass::domain::time::Timestamp;

#[derive(Args)]
#[command(after_help = "Examples:
  windlass task submit --queue mail '{\"to\": \"anna\"}'
  windlass task submit --queue mail @letter.json --tag team:billing --priority 5 --delay 10s
  echo '{\"to\": \"anna\"}' | windlass task submit --queue mail - --wait --timeout 5m")]
pub(super) struct Arguments {
    /// The queue; may be left out when --agent, --callee or --pool gives it.
    #[arg(long, short)]
    queue: Option<String>,
    /// The payload: JSON, @FILE, or - for standard input; null when left out.
    payload: Option<String>,
    /// Take the payload as plain text: it becomes a JSON string.
    #[arg(long)]
    text: bool,
    /// What people call it.
    #[arg(long)]
    name: Option<String>,
    /// job, delegation or inference [default: job].
    #[arg(long)]
    kind: Option<String>,
    /// A tag; may be repeated.
    #[arg(long, value_name = "KEY:VALUE", value_parser = argument::tag)]
    tag: Vec<(String, String)>,
    /// Higher first; from -32768 to 32767 [default: 0].
    #[arg(long, allow_negative_numbers = true)]
    priority: Option<i64>,
    /// Not before this span has passed.
    #[arg(long, value_name = "SPAN", value_parser = argument::span, conflicts_with = "run_at")]
    delay: Option<Duration>,
    /// Not before this time (RFC 3339).
    #[arg(long, value_name = "TIME")]
    run_at: Option<Timestamp>,
    /// Must be finished within this span.
    #[arg(long, value_name = "SPAN", value_parser = argument::span)]
    deadline: Option<Duration>,
    /// How often it is tried again after a failure [default: by kind; 3 for jobs].
    #[arg(long, value_name = "N")]
    max_retries: Option<u32>,
    /// How long to wait before each, and which errors are worth it, as JSON [default: the agent's].
    #[arg(long, value_name = "JSON")]
    backoff: Option<String>,
    /// The task's id, any UUID; the same id again is the same task.
    #[arg(long)]
    id: Option<String>,
    /// The same key again is the same task.
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// The agent whose task it is.
    #[arg(long)]
    agent: Option<String>,
    /// The venture whose task it is.
    #[arg(long)]
    venture: Option<String>,
    /// The portfolio to which it belongs.
    #[arg(long)]
    portfolio: Option<String>,
    /// The stage of the work that it is part of.
    #[arg(long)]
    stage: Option<String>,
    /// The agent who delegates.
    #[arg(long)]
    caller: Option<String>,
    /// The agent to whom it is delegated.
    #[arg(long)]
    callee: Option<String>,
    /// The pool of providers, for an inference.
    #[arg(long)]
    pool: Option<String>,
    /// Only a provider of this model, for an inference.
    #[arg(long, requires = "pool")]
    model: Option<String>,
    /// Only a provider of this tier, for an inference.
    #[arg(long, requires = "pool")]
    tier: Option<String>,
    /// Only this very llm, for an inference.
    #[arg(long, requires = "pool")]
    llm: Option<String>,
    /// For whom it is.
    #[arg(long)]
    owner: Option<String>,
    /// The task that submits this one.
    #[arg(long, value_name = "ID")]
    parent: Option<String>,
    /// What runs through all logs of one piece of work.
    #[arg(long, value_name = "ID")]
    correlation_id: Option<String>,
    /// Only ask whether it would be admitted; the exit code is that of the submit.
    #[arg(long, conflicts_with = "wait")]
    dry_run: bool,
    /// Wait until it is finished; the exit code tells how it ended.
    #[arg(long)]
    wait: bool,
    /// How long to wait at most [default: without end].
    #[arg(long, value_name = "SPAN", value_parser = argument::span, requires = "wait")]
    timeout: Option<Duration>,
}

pub(super) async fn run(
    arguments: Arguments,
    client: &Client,
    context: &Context,
) -> Result<u8, Failure> {
    let body = body(&arguments)?;
    let mut call = Call::post("/v1/tasks", body);
    if arguments.dry_run {
        call = call.query("dry_run", true);
    }
    let answer = client.call(&call, Patience::SHORT).await?;
    let is_duplicate = answer.header("windlass-duplicate") == Some("true");
    let submitted = answer.body;
    if arguments.dry_run {
        return tell_admission(&submitted, context);
    }
    if is_duplicate && !context.json {
        print::note("it existed already; nothing was added");
    }
    if arguments.wait {
        if !context.json {
            print::note(&format!("submitted {}", print::safe(task::text(&submitted["id"]))));
        }
        return wait::until_finished(submitted, arguments.timeout, client, context).await;
    }
    if context.json {
        print::json_line(&submitted);
    } else {
        print::line(&print::safe(task::text(&submitted["id"])));
    }
    Ok(0)
}

/// What a dry run found. A refusal is told like that of the submit itself, so that a script decides
/// by the same exit code.
fn tell_admission(told: &Value, context: &Context) -> Result<u8, Failure> {
    if context.json {
        print::json_line(told);
    }
    if told["admitted"] != true {
        let status = told["error"]["status"].as_u64().and_then(|status| status.try_into().ok());
        let refusal = Problem::read(status.unwrap_or_default(), told.get("error"), None);
        return Err(match refusal {
            Some(refusal) => Error::Problem(Box::new(refusal)).into(),
            None => Failure::new("unexpected_answer", "the server does not say why not", 69),
        });
    }
    if !context.json {
        match told["duplicate_of"].as_str() {
            Some(id) => print::line(&format!("it exists already: {}", print::safe(id))),
            None => print::line("it would be admitted"),
        }
    }
    Ok(0)
}

fn body(arguments: &Arguments) -> Result<Value, Failure> {
    let mut body = Map::new();
    let mut set = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            body.insert(name.to_owned(), value);
        }
    };
    let id = match (&arguments.id, &arguments.idempotency_key) {
        (Some(id), _) => Some(id.clone()),
        (None, Some(_)) => None,
        (None, None) => Some(uuid::Uuid::now_v7().to_string()),
    };
    let text = |value: &Option<String>| value.clone().map(Value::String);
    set("id", id.map(Value::String));
    set("queue", text(&arguments.queue));
    set("payload", Some(argument::payload(arguments.payload.as_deref(), arguments.text)?));
    set("name", text(&arguments.name));
    set("kind", text(&arguments.kind));
    set("idempotency_key", text(&arguments.idempotency_key));
    set("agent", text(&arguments.agent));
    set("venture", text(&arguments.venture));
    set("portfolio", text(&arguments.portfolio));
    set("stage", text(&arguments.stage));
    set("caller", text(&arguments.caller));
    set("callee", text(&arguments.callee));
    set("pool", text(&arguments.pool));
    set("model", text(&arguments.model));
    set("tier", text(&arguments.tier));
    set("llm", text(&arguments.llm));
    set("owner", text(&arguments.owner));
    set("parent_id", text(&arguments.parent));
    set("correlation_id", text(&arguments.correlation_id));
    set("priority", arguments.priority.map(|priority| json!(priority)));
    set("delay_ms", arguments.delay.map(|delay| json!(argument::ms(delay))));
    set("run_at", arguments.run_at.map(|time| json!(time.to_string())));
    set("deadline_ms", arguments.deadline.map(|deadline| json!(argument::ms(deadline))));
    set("max_retries", arguments.max_retries.map(|retries| json!(retries)));
    set("backoff", argument::json("--backoff", arguments.backoff.as_deref())?);
    if !arguments.tag.is_empty() {
        let mut tags = Map::new();
        for (key, value) in &arguments.tag {
            if tags.insert(key.clone(), json!(value)).is_some() {
                return Err(Failure::usage(format!("the tag `{key}` is given twice")));
            }
        }
        set("tags", Some(Value::Object(tags)));
    }
    Ok(Value::Object(body))
}
