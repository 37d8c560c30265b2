//! `windlass worker`.

use super::{Connection, Context, Failure, LogArguments, argument, flag, start_logging};
use crate::worker::child::Recipe;
use crate::worker::command::Commands;
use crate::worker::outcome::Output;
use crate::worker::{self, Options};
use clap::{Args, ValueEnum};
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

#[derive(Args)]
#[command(after_help = "The command reads the task as JSON from standard input and prints its \
result as JSON. Exit codes: 0
completes the task; 64, 65, 66 fail it as INVALID_INPUT; 69, 75 as SERVICE_UNAVAILABLE; 77 as
PERMISSION_DENIED; 124 as TIMEOUT; any other N as EXIT_N; a signal N as SIGNAL_N.

Examples:
  windlass worker --queue mail -- python agent.py
  windlass worker --queue mail --slots 4 --timeout 5m --env-pass 'OPENAI_*' -- ./agent --fast")]
pub(super) struct Arguments {
    #[command(flatten)]
    connection: Connection,
    /// A queue to take tasks from; may be repeated.
    #[arg(long, short, required = true)]
    queue: Vec<String>,
    /// Take only tasks of this kind: job, delegation or inference; may be repeated.
    #[arg(long)]
    kind: Vec<String>,
    /// How many tasks to run at once.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    slots: u16,
    /// What people call this worker [default: the host's name and the process id].
    #[arg(long)]
    name: Option<String>,
    /// End a command that takes longer, and fail its task as TIMEOUT [default: without end].
    #[arg(long, value_name = "SPAN", value_parser = argument::span)]
    timeout: Option<Duration>,
    /// How long a lease lasts without a heartbeat [default: the server's, 60s for jobs].
    #[arg(long, value_name = "SPAN", value_parser = argument::span)]
    lease: Option<Duration>,
    /// How long running commands may take to end on a signal; then they are killed and their
    /// tasks given back.
    #[arg(long, value_name = "SPAN", default_value = "30s", value_parser = argument::span)]
    grace: Duration,
    /// What the command prints.
    #[arg(long, value_enum, default_value_t = Format::Json)]
    output: Format,
    /// Let the command see this variable: a name, PREFIX*, or *; may be repeated. PATH, HOME and
    /// the like always pass; keys of Windlass only by their full name.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    env_pass: Vec<String>,
    #[command(flatten)]
    log: LogArguments,
    /// The command and its arguments, after --. It is run without a shell.
    #[arg(required = true, last = true)]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    /// One JSON value; nothing means null.
    Json,
    /// Text, which becomes a JSON string.
    Text,
}

pub(super) async fn run(arguments: Arguments, context: &Context) -> Result<u8, Failure> {
    let mut flags = vec![flag("server", &arguments.connection.server)];
    flags.extend(arguments.log.flags());
    let config = context.config(flags)?;
    start_logging(&config, context)?;
    find(&arguments.command[0])?;
    let options = Options {
        name: arguments.name.unwrap_or_else(default_name),
        queues: arguments.queue,
        kinds: arguments.kind,
        slots: usize::from(arguments.slots),
        lease_ms: arguments.lease.map(argument::ms),
        pools: Vec::new(),
        models: Vec::new(),
        llms: Vec::new(),
        tiers: Vec::new(),
        grace: arguments.grace,
        is_present: false,
    };
    let recipe = Recipe {
        command: arguments.command,
        timeout: arguments.timeout,
        output: match arguments.output {
            Format::Json => Output::Json,
            Format::Text => Output::Text,
        },
    };
    let client = config.client()?;
    let server = client.server().to_owned();
    let commands = Commands { recipe, env_pass: arguments.env_pass, server };
    worker::run(client, options, Arc::new(commands)).await?;
    Ok(0)
}

/// Refuses a command that is not there: every task would fail.
fn find(program: &OsString) -> Result<(), Failure> {
    let path = Path::new(program);
    let is_found = if path.components().count() > 1 {
        path.is_file()
    } else {
        let folders = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&folders).any(|folder| folder.join(path).is_file())
    };
    if is_found {
        return Ok(());
    }
    let shown = program.to_string_lossy();
    let shown = crate::print::safe(&shown);
    Err(Failure::new("configuration", format!("there is no command `{shown}`"), 78)
        .hint("give a path, or the name of a program on the PATH; pipes need sh -c '…'"))
}

pub(super) fn default_name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname")
        .ok()
        .or_else(|| std::env::var("HOSTNAME").ok())
        .unwrap_or_default();
    let host: String = host.trim().chars().filter(char::is_ascii_graphic).take(60).collect();
    let host = if host.is_empty() { "worker".to_owned() } else { host };
    format!("{host}-{}", std::process::id())
}
