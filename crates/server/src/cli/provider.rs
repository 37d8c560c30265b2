//! `windlass provider`.

use super::{Connection, Context, Failure, LogArguments, argument, flag, start_logging, work};
use crate::provider::{Timeouts, Upstream};
use crate::worker::{self, Options};
use clap::Args;
use std::time::Duration;

#[derive(Args)]
#[command(after_help = "Clients find the pool at <server>/v1: any OpenAI client, with the pool's \
name, or the model's, as `model`.
While the upstream does not answer `GET /models`, nothing new is taken; tasks wait in their pool.

Examples:
  windlass provider --pool fast --upstream http://127.0.0.1:11434/v1 --model llama3.2 --slots 4
  windlass provider --pool deep --upstream https://api.example.com/v1 --model big-1 \\
    --upstream-key-env EXAMPLE_KEY --first-byte-timeout 10m")]
pub(super) struct Arguments {
    #[command(flatten)]
    connection: Connection,
    /// A pool to answer for; may be repeated.
    #[arg(long, required = true, value_name = "NAME")]
    pool: Vec<String>,
    /// The server to forward to, as OpenAI clients name it: its URL with the /v1.
    #[arg(long, value_name = "URL")]
    upstream: String,
    /// The model to ask the upstream for, whatever name the client used.
    #[arg(long, value_name = "NAME")]
    model: String,
    /// A tier to serve; may be repeated. A task that is pinned to a tier goes to nobody else.
    #[arg(long, value_name = "NAME")]
    tier: Vec<String>,
    /// What tasks call this very llm that are pinned to it; may be repeated.
    #[arg(long, value_name = "NAME")]
    llm: Vec<String>,
    /// How many tasks to forward at once.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    slots: u16,
    /// The variable that holds the upstream's key [default: no key is sent].
    #[arg(long, value_name = "VARIABLE")]
    upstream_key_env: Option<String>,
    /// What people call this provider [default: the host's name and the process id].
    #[arg(long)]
    name: Option<String>,
    /// How long the upstream may take to accept a connection.
    #[arg(long, value_name = "SPAN", default_value = "10s", value_parser = argument::span)]
    connect_timeout: Duration,
    /// How long it may take to begin its answer.
    #[arg(long, value_name = "SPAN", default_value = "5m", value_parser = argument::span)]
    first_byte_timeout: Duration,
    /// How long it may be silent in the middle of its answer.
    #[arg(long, value_name = "SPAN", default_value = "1m", value_parser = argument::span)]
    idle_timeout: Duration,
    /// How long all of it may take, waiting for a busy upstream included.
    #[arg(long, value_name = "SPAN", default_value = "30m", value_parser = argument::span)]
    timeout: Duration,
    /// The longest pause that an upstream that answers 429 or 503 may ask for; it is asked five
    /// times in all.
    #[arg(long, value_name = "SPAN", default_value = "1m", value_parser = argument::span)]
    max_retry_after: Duration,
    /// How often to ask whether the upstream is there.
    #[arg(long, value_name = "SPAN", default_value = "10s", value_parser = argument::span)]
    health_interval: Duration,
    /// How long running calls may take to end on a signal; then their tasks are given back.
    #[arg(long, value_name = "SPAN", default_value = "30s", value_parser = argument::span)]
    grace: Duration,
    #[command(flatten)]
    log: LogArguments,
}

pub(super) async fn run(arguments: Arguments, context: &Context) -> Result<u8, Failure> {
    let mut flags = vec![flag("server", &arguments.connection.server)];
    flags.extend(arguments.log.flags());
    let config = context.config(flags)?;
    start_logging(&config, context)?;
    let key = arguments.upstream_key_env.as_deref().map(key).transpose()?;
    let timeouts = Timeouts {
        connect: arguments.connect_timeout,
        first_byte: arguments.first_byte_timeout,
        idle: arguments.idle_timeout,
        total: arguments.timeout,
        retry_after: arguments.max_retry_after,
    };
    let client = config.client()?;
    let (base, model) = (&arguments.upstream, &arguments.model);
    let upstream = Upstream::new(client.clone(), base, key.as_deref(), model, timeouts);
    let upstream = upstream.map_err(|told| Failure::new("configuration", told, 78))?;
    let options = Options {
        name: arguments.name.unwrap_or_else(work::default_name),
        queues: Vec::new(),
        pools: arguments.pool,
        models: vec![arguments.model.clone()],
        llms: arguments.llm,
        tiers: arguments.tier,
        kinds: vec!["inference".into()],
        slots: usize::from(arguments.slots),
        lease_ms: None,
        grace: arguments.grace,
        is_present: true,
    };
    let every = arguments.health_interval.max(Duration::from_millis(100));
    tokio::select! {
        done = worker::run(client, options, upstream.clone()) => done?,
        () = upstream.watch_health(every) => {}
    }
    Ok(0)
}

/// The key, which never stands on a command line: everybody on the machine could read it.
fn key(variable: &str) -> Result<String, Failure> {
    let value = std::env::var(variable).unwrap_or_default();
    if value.trim().is_empty() {
        let told = format!("the variable `{variable}` holds no key");
        return Err(Failure::new("configuration", told, 78)
            .hint("export it, or leave --upstream-key-env out if the upstream needs no key"));
    }
    Ok(value.trim().to_owned())
}
