//! `windlass message …`: what agents tell each other.

use super::argument::{self, ms, span};
use super::poison::{Listing, Page, id};
use super::task::{age, text};
use super::{Connection, Context, Failure};
use crate::client::{Call, Client, Patience};
use crate::print::{self, Cell, Paint};
use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};
use std::time::Duration;
use windlass::domain::time::Timestamp;

#[derive(Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Send a message to an agent.
    #[command(after_help = "Examples:
  windlass message send ceo --type note --payload '{\"text\": \"good morning\"}'
  windlass message send vp-sales --from ceo --type order --priority 5 --ttl 1h")]
    Send(Box<SendArguments>),
    /// List messages, newest first.
    #[command(after_help = "Examples:
  windlass message list --to ceo --status pending
  windlass message list --correlation deal-7 --json")]
    List(ListArguments),
    /// Show one message.
    Show {
        /// The message's id.
        id: String,
    },
    /// Take messages, as a handler does; each comes with its lease.
    #[command(after_help = "Examples:
  windlass message claim --agent ceo --handler me --wait 30s --json")]
    Claim {
        /// Those of this agent; may be given several times.
        #[arg(long, value_name = "NAME", required_unless_present = "pool")]
        agent: Vec<String>,
        /// Those of all agents of a pool, such as ceo_handler.
        #[arg(long, conflicts_with = "agent")]
        pool: Option<String>,
        /// What the messages show as their handler.
        #[arg(long, default_value = "cli")]
        handler: String,
        /// How many at most.
        #[arg(long, default_value_t = 1)]
        max: u32,
        /// How long to wait for the first one, for instance 30s.
        #[arg(long, value_parser = span, default_value = "0s")]
        wait: Duration,
        /// How long to hold them, for instance 5m.
        #[arg(long, value_parser = span)]
        lease: Option<Duration>,
    },
    /// Say that a message is handled.
    Ack {
        /// The message's id.
        id: String,
        /// The lease that its claim gave.
        #[arg(long, value_name = "ID")]
        lease: String,
    },
    /// Hold a message for longer.
    #[command(after_help = "Examples:
  windlass message heartbeat 01890a5d-ac96-774b-bcce-b302099a8057 --lease LEASE --for 5m")]
    Heartbeat {
        /// The message's id.
        id: String,
        /// The lease that its claim gave.
        #[arg(long, value_name = "ID")]
        lease: String,
        /// How long, from now on [default: 1m].
        #[arg(long = "for", value_name = "SPAN", value_parser = span)]
        span: Option<Duration>,
    },
    /// Give a message back: it is tried again after a while.
    #[command(after_help = "Examples:
  windlass message nack 01890a5d-ac96-774b-bcce-b302099a8057 --lease LEASE --retry-after 10m
  windlass message nack 01890a5d-ac96-774b-bcce-b302099a8057 --lease LEASE --reject")]
    Nack {
        /// The message's id.
        id: String,
        /// The lease that its claim gave.
        #[arg(long, value_name = "ID")]
        lease: String,
        /// Why, in words.
        #[arg(long)]
        reason: Option<String>,
        /// Try it again after this span, instead of after the backoff; for instance 10m.
        #[arg(long, value_name = "SPAN", value_parser = span, conflicts_with = "reject")]
        retry_after: Option<Duration>,
        /// Nobody can ever handle it: it becomes a dead letter.
        #[arg(long)]
        reject: bool,
    },
}

#[derive(Args)]
struct SendArguments {
    /// The agent that it is for.
    to: String,
    /// What kind of message, in your own words.
    #[arg(long = "type", value_name = "TYPE")]
    kind: String,
    /// The agent that speaks; you yourself unless given.
    #[arg(long)]
    from: Option<String>,
    /// What it says: JSON, @FILE, or - for standard input.
    #[arg(long, value_name = "JSON")]
    payload: Option<String>,
    /// Take the payload as plain text.
    #[arg(long)]
    text: bool,
    /// Higher first.
    #[arg(long, allow_negative_numbers = true)]
    priority: Option<i32>,
    /// What it belongs to.
    #[arg(long, value_name = "ID")]
    correlation: Option<String>,
    /// The same key by the same sender is the same message.
    #[arg(long)]
    key: Option<String>,
    /// An id of your own: a UUID.
    #[arg(long)]
    id: Option<String>,
    /// How long it is worth delivering, for instance 1h.
    #[arg(long, value_parser = span)]
    ttl: Option<Duration>,
}

#[derive(Args)]
struct ListArguments {
    /// Only those to this agent.
    #[arg(long)]
    to: Option<String>,
    /// Only those of this sender.
    #[arg(long)]
    from: Option<String>,
    /// Only in this state: pending, delivered, acknowledged, dead_lettered, expired.
    #[arg(long)]
    status: Option<String>,
    /// Only of this type.
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,
    /// Only those that belong to this.
    #[arg(long, value_name = "ID")]
    correlation: Option<String>,
    /// Sent at this time or later: 1h means an hour ago.
    #[arg(long, value_name = "TIME", value_parser = argument::past)]
    since: Option<Timestamp>,
    /// Sent before this time.
    #[arg(long, value_name = "TIME", value_parser = argument::past)]
    until: Option<Timestamp>,
    #[command(flatten)]
    page: Page,
}

/// The fields that are given.
fn given(fields: Vec<(&str, Option<Value>)>) -> Value {
    let given = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Value::Object(given.collect::<Map<_, _>>())
}

pub(super) async fn run(arguments: Arguments, context: &Context) -> Result<u8, Failure> {
    let client = context.client(&arguments.connection)?;
    match arguments.action {
        Action::Send(arguments) => send(*arguments, &client, context).await,
        Action::List(list) => {
            let time = |time: Option<Timestamp>| time.map(|time| time.to_string());
            let listing = Listing {
                path: "/v1/messages",
                filters: vec![
                    ("to", list.to),
                    ("from", list.from),
                    ("status", list.status),
                    ("type", list.kind),
                    ("correlation_id", list.correlation),
                    ("since", time(list.since)),
                    ("until", time(list.until)),
                ],
                page: list.page,
                headings: &["MESSAGE", "FROM", "TO", "TYPE", "STATUS", "PRIORITY", "TRIES", "AGE"],
                row,
                empty: "no messages",
            };
            listing.show(&client, context).await
        }
        Action::Show { id: message } => {
            let call = Call::get(format!("/v1/messages/{}", id(&message)?));
            shown(&client.call(&call, Patience::SHORT).await?.body, context)
        }
        Action::Claim { agent, pool, handler, max, wait, lease } => {
            let agents = (!agent.is_empty()).then(|| json!(agent));
            let body = given(vec![
                ("handler", Some(json!(handler))),
                ("agents", agents),
                ("pool", pool.map(Value::from)),
                ("max", Some(json!(max))),
                ("wait_ms", Some(json!(ms(wait)))),
                ("lease_ms", lease.map(|lease| json!(ms(lease)))),
            ]);
            claim(Call::post("/v1/messages/claim", body).patient(wait), &client, context).await
        }
        Action::Ack { id: message, lease } => {
            let body = json!({ "lease_id": id(&lease)? });
            let call = Call::post(format!("/v1/messages/{}/ack", id(&message)?), body);
            shown(&client.call(&call, Patience::SHORT).await?.body, context)
        }
        Action::Heartbeat { id: message, lease, span } => {
            let lease_ms = span.map(|span| json!(ms(span)));
            let body = given(vec![("lease_id", Some(json!(id(&lease)?))), ("lease_ms", lease_ms)]);
            let call = Call::post(format!("/v1/messages/{}/heartbeat", id(&message)?), body);
            let answer = client.call(&call, Patience::SHORT).await?.body;
            if context.json {
                print::json_line(&answer);
            } else {
                field("lease_expires_at", &answer["lease_expires_at"]);
            }
            Ok(0)
        }
        Action::Nack { id: message, lease, reason, retry_after, reject } => {
            let error = reason.map(|text| json!({ "code": "ERROR", "message": text }));
            let lease = Some(json!(id(&lease)?));
            let body = given(vec![
                ("lease_id", lease),
                ("error", error),
                ("retry_after_ms", retry_after.map(|span| json!(ms(span)))),
                ("reject", Some(json!(reject))),
            ]);
            let call = Call::post(format!("/v1/messages/{}/nack", id(&message)?), body);
            shown(&client.call(&call, Patience::SHORT).await?.body, context)
        }
    }
}

async fn send(arguments: SendArguments, client: &Client, context: &Context) -> Result<u8, Failure> {
    let payload = argument::payload(arguments.payload.as_deref(), arguments.text)?;
    // Made here, so that the call may be repeated.
    let own = match &arguments.id {
        Some(text) => id(text)?,
        None => uuid::Uuid::now_v7(),
    };
    let body = given(vec![
        ("id", Some(json!(own))),
        ("to", Some(json!(arguments.to))),
        ("type", Some(json!(arguments.kind))),
        ("from", arguments.from.map(Value::from)),
        ("payload", Some(payload)),
        ("priority", arguments.priority.map(Value::from)),
        ("correlation_id", arguments.correlation.map(Value::from)),
        ("idempotency_key", arguments.key.map(Value::from)),
        ("ttl_ms", arguments.ttl.map(|ttl| json!(ms(ttl)))),
    ]);
    let answer = client.call(&Call::post("/v1/messages", body), Patience::SHORT).await?;
    if answer.header("windlass-duplicate") == Some("true") && !context.json {
        print::note("it was sent already; nothing was added");
    }
    shown(&answer.body, context)
}

async fn claim(call: Call, client: &Client, context: &Context) -> Result<u8, Failure> {
    // A claim is not repeated: what a lost answer took comes back when its lease has run out.
    let answer = client.try_call(&call).await?.body;
    if context.json {
        print::json_line(&answer);
        return Ok(0);
    }
    let deliveries = answer["deliveries"].as_array().map(Vec::as_slice).unwrap_or_default();
    if deliveries.is_empty() {
        print::note("there is nothing to take");
    }
    for delivery in deliveries {
        field("lease_id", &delivery["lease_id"]);
        shown(&delivery["message"], context)?;
    }
    Ok(0)
}

fn row(message: &Value) -> Vec<Cell> {
    vec![
        Cell::new(text(&message["id"])),
        Cell::new(text(&message["from"])),
        Cell::new(text(&message["to"])),
        Cell::new(text(&message["type"])),
        Cell::new(text(&message["status"])),
        Cell::new(&message["priority"].to_string()),
        Cell::new(&message["deliveries"].to_string()),
        Cell::new(&age(&message["created_at"])),
    ]
}

fn field(name: &str, value: &Value) {
    let shown = match value {
        Value::Null => return,
        Value::String(text) => print::safe(text).into_owned(),
        other => other.to_string(),
    };
    let heading = print::painted(&format!("{name:<18}"), Paint::Bold);
    print::line(&format!("{heading}{shown}"));
}

fn shown(message: &Value, context: &Context) -> Result<u8, Failure> {
    if context.json {
        print::json_line(message);
        return Ok(0);
    }
    for name in [
        "id",
        "from",
        "to",
        "type",
        "status",
        "priority",
        "correlation_id",
        "payload",
        "deliveries",
        "handled_by",
        "last_error",
        "redelivery_of",
        "created_at",
        "due_at",
        "expires_at",
        "finished_at",
    ] {
        field(name, &message[name]);
    }
    Ok(0)
}
