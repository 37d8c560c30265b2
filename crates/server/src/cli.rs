//! The command line: what is asked, what is printed, and the exit codes.
//!
//! Invariant: answers go to standard output, everything else to standard error; with `--json` both
//! are JSON. The exit codes are those of [`EXIT_CODES`], and `docs/cli.md` is compared with it.

mod agent;
mod alert;
mod approval;
mod argument;
mod audit;
mod dead_letter;
mod delegation;
mod demo;
mod doctor;
#[cfg(test)]
mod document;
mod events;
mod failure;
mod filter;
mod inform;
mod limit;
mod message;
mod migrate;
mod pause;
mod poison;
mod pool;
mod provider;
mod replay;
mod signal;
mod step;
mod submit;
mod task;
mod venture;
mod wait;
mod why;
mod work;

use crate::client::Client;
use crate::config::source::Source;
use crate::config::{Config, Entry, Flag, LogFormat, Surroundings};
use clap::{Args, CommandFactory, Parser, Subcommand};
pub use failure::Failure;
use std::path::PathBuf;
use std::process::ExitCode;

/// What each exit code means; part of `windlass --help`.
const EXIT_CODES: &str = "Exit codes:
  0   done; for task wait, watch and submit --wait: the task completed
  1   refused or failed, as the message says
  2   the command line is wrong
  3   the task failed
  4   the task was cancelled
  5   the task did not finish in time
  6   the task is poisoned or stuck: a person must look at it
  69  the server or the database cannot be reached
  74  a file or the output cannot be read or written, or the database is damaged
  75  try again later: busy, in use, too many requests
  77  the key is missing, wrong, or may not do this
  78  the configuration is wrong
  128+N  ended at once by signal N; serve and worker by the second one";

/// A durable runtime for AI agents: an acknowledged task is never lost.
#[derive(Parser)]
#[command(
    name = "windlass",
    version,
    after_help = EXIT_CODES,
    max_term_width = 100,
    arg_required_else_help = true
)]
struct Arguments {
    /// Print JSON instead of text, also for errors; streams print one value a line.
    #[arg(long, global = true, help_heading = "Everywhere")]
    json: bool,
    /// Read this configuration file instead of ./windlass.toml [env: WINDLASS_CONFIG].
    #[arg(long, global = true, value_name = "FILE", help_heading = "Everywhere")]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the server.
    #[command(after_help = "Examples:
  windlass serve
  windlass serve --database postgres://app@db/windlass --listen 127.0.0.1:7070")]
    Serve(ServeArguments),
    /// Run a command for each task of a queue.
    Worker(Box<work::Arguments>),
    /// Answer the inference tasks of a pool by any server that speaks OpenAI's API.
    Provider(Box<provider::Arguments>),
    /// Submit, find, follow and cancel tasks.
    Task(task::Arguments),
    /// See what waits for a person, and answer.
    Approval(approval::Arguments),
    /// Decide over steps of which nobody knows whether they ran.
    Step(step::Arguments),
    /// Tell a waiting task what it waits for.
    Signal(signal::Arguments),
    /// Look at the workers' sessions.
    Session(inform::SessionArguments),
    /// What agents tell each other: send, list, take, acknowledge.
    Message(message::Arguments),
    /// Messages that could not be delivered or handled.
    DeadLetter(dead_letter::Arguments),
    /// Look after tasks that ended poisoned or stuck.
    Poison(poison::Arguments),
    /// Create, change and see agents, and who is above whom.
    Agent(Box<agent::Arguments>),
    /// Create, change and see ventures.
    Venture(venture::Arguments),
    /// Create and see portfolios.
    Portfolio(venture::PortfolioArguments),
    /// Delegate work, report on it, and look after it.
    Delegation(Box<delegation::Arguments>),
    /// See and set how much may run and wait at once.
    Limit(limit::Arguments),
    /// See what waits for model providers, and who they are.
    Pool(pool::Arguments),
    /// Stop a queue, an agent, a venture or everything; without any, list what is stopped.
    Pause(pause::Arguments),
    /// Let what was stopped go on.
    Resume(pause::ResumeArguments),
    /// See what somebody should know, and say that you have seen it.
    Alert(alert::Arguments),
    /// See what webhooks were told.
    Notice(alert::NoticeArguments),
    /// See what people decided or tried that no task's history tells.
    Audit(audit::Arguments),
    /// Follow every transition of every task, live.
    Events(events::Arguments),
    /// Bring the database's schema up or down, or show where it stands.
    Migrate(migrate::Arguments),
    /// See it survive: real processes are killed while they work, and nothing is lost.
    Demo(demo::Arguments),
    /// Ask the server how it is.
    Status(inform::StatusArguments),
    /// Find out what is wrong, and what to do about it.
    Doctor(doctor::Arguments),
    /// Show which settings are in force, and where each came from.
    Config(inform::ConfigArguments),
    /// Print the completions of a shell.
    #[command(after_help = "Examples:
  windlass completions bash > ~/.local/share/bash-completion/completions/windlass
  windlass completions zsh > ~/.zfunc/_windlass")]
    Completions {
        /// Which shell.
        shell: clap_complete::Shell,
    },
    /// Print the version of this program.
    Version,
}

/// Which server a command talks to.
#[derive(Args)]
struct Connection {
    /// The server's URL [env: WINDLASS_SERVER] [default: http://127.0.0.1:7070].
    #[arg(long, global = true, value_name = "URL", help_heading = "Everywhere")]
    server: Option<String>,
}

#[derive(Args)]
struct LogArguments {
    /// Which logs are written, such as info or info,windlass=debug [env: WINDLASS_LOG].
    #[arg(long, value_name = "FILTER")]
    log: Option<String>,
    /// How logs are written: auto, human or json [env: WINDLASS_LOG_FORMAT] [default: auto].
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<String>,
}

impl LogArguments {
    fn flags(&self) -> Vec<Option<Flag>> {
        vec![flag("log", &self.log), flag("log_format", &self.log_format)]
    }
}

#[derive(Args)]
struct ServeArguments {
    /// Where to keep everything: sqlite:FILE or postgres://USER@HOST/NAME
    /// [env: WINDLASS_DATABASE] [default: sqlite:windlass.db].
    #[arg(long, value_name = "URL")]
    database: Option<String>,
    /// Where to listen; beyond loopback only with WINDLASS_KEYS
    /// [env: WINDLASS_LISTEN] [default: 127.0.0.1:7070].
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<String>,
    /// The URL by which other nodes reach this one [env: WINDLASS_ADVERTISE].
    #[arg(long, value_name = "URL")]
    advertise: Option<String>,
    /// How long running work may take to end on a signal
    /// [env: WINDLASS_SHUTDOWN_MS] [default: 30000].
    #[arg(long, value_name = "MS")]
    shutdown_ms: Option<String>,
    /// How long of that to answer as before, but not ready, so that load balancers notice
    /// [env: WINDLASS_SHUTDOWN_DELAY_MS] [default: 0].
    #[arg(long, value_name = "MS")]
    shutdown_delay_ms: Option<String>,
    /// How often to look for work that no wake-up told of [env: WINDLASS_POLL_MS] [default: 1000].
    #[arg(long, value_name = "MS")]
    poll_ms: Option<String>,
    /// How long an inference may wait for a provider before it fails
    /// [env: WINDLASS_INFERENCE_PENDING_TIMEOUT] [default: 1h].
    #[arg(long, value_name = "DURATION")]
    inference_pending_timeout: Option<String>,
    /// How long finished inferences are kept [env: WINDLASS_INFERENCE_RETENTION] [default: 7d].
    #[arg(long, value_name = "DURATION")]
    inference_retention: Option<String>,
    /// The most bytes of an inference's request, and of its result
    /// [env: WINDLASS_INFERENCE_MAX_BODY] [default: 1048576].
    #[arg(long, value_name = "BYTES")]
    inference_max_body: Option<String>,
    /// The most bytes of running inferences' texts in this node's memory
    /// [env: WINDLASS_INFERENCE_MEMORY] [default: 268435456].
    #[arg(long, value_name = "BYTES")]
    inference_memory: Option<String>,
    /// Whether this server ends overdue and silent delegations: true or false
    /// [env: WINDLASS_DELEGATION_SWEEPER] [default: true].
    #[arg(long, value_name = "SWITCH")]
    delegation_sweeper: Option<String>,
    /// Whether the end of a delegation is put into its caller's inbox: true or false
    /// [env: WINDLASS_DELEGATION_RESULT_PUSH] [default: true].
    #[arg(long, value_name = "SWITCH")]
    delegation_result_push: Option<String>,
    /// Unsafe: start on a database that acknowledges what it has not synced. A crash of the
    /// machine then loses acknowledged tasks [env: WINDLASS_UNSAFE_DURABILITY].
    #[arg(long)]
    unsafe_durability: bool,
    #[command(flatten)]
    log: LogArguments,
}

impl ServeArguments {
    fn flags(&self) -> Vec<Option<Flag>> {
        let durability = self.unsafe_durability.then(|| "true".to_owned());
        let mut flags = vec![
            flag("database", &self.database),
            flag("listen", &self.listen),
            flag("advertise", &self.advertise),
            flag("shutdown_ms", &self.shutdown_ms),
            flag("shutdown_delay_ms", &self.shutdown_delay_ms),
            flag("poll_ms", &self.poll_ms),
            flag("inference_pending_timeout", &self.inference_pending_timeout),
            flag("inference_retention", &self.inference_retention),
            flag("inference_max_body", &self.inference_max_body),
            flag("inference_memory", &self.inference_memory),
            flag("delegation_sweeper", &self.delegation_sweeper),
            flag("delegation_result_push", &self.delegation_result_push),
            flag("unsafe_durability", &durability),
        ];
        flags.extend(self.log.flags());
        flags
    }
}

fn flag(key: &'static str, value: &Option<String>) -> Option<Flag> {
    value.clone().map(|value| Flag { key, value })
}

/// What every command knows.
struct Context {
    json: bool,
    file: Option<PathBuf>,
}

impl Context {
    /// The configuration, with a command's own flags on top.
    fn config(&self, flags: Vec<Option<Flag>>) -> Result<Config, Failure> {
        let flags: Vec<Flag> = flags.into_iter().flatten().collect();
        let around = Surroundings::of_process(self.file.clone());
        Config::load(&flags, &around).map_err(|error| Failure::configuration(error.to_string()))
    }

    /// A client of the server that the command's flags and the configuration name.
    fn client(&self, connection: &Connection) -> Result<Client, Failure> {
        let config = self.config(vec![flag("server", &connection.server)])?;
        // A command prints answers; it logs only for somebody who asked for it.
        let is_asked =
            |entry: &Entry| entry.setting.key == "log" && entry.source != Source::Default;
        if config.entries.iter().any(is_asked) {
            start_logging(&config, self)?;
        }
        config.client().map_err(Failure::from)
    }
}

/// Says what the parser finds wrong, in the form that was asked for. It did not get as far as to
/// know whether that is JSON.
fn refuse(error: &clap::Error) -> ExitCode {
    let is_json = || std::env::args_os().take_while(|one| one != "--").any(|one| one == "--json");
    let asked = [clap::error::ErrorKind::DisplayHelp, clap::error::ErrorKind::DisplayVersion];
    if asked.contains(&error.kind()) || !is_json() {
        error.exit();
    }
    let told = error.render().to_string();
    let what = told.split("\n\n").next().unwrap_or_default();
    let what = what.strip_prefix("error: ").unwrap_or(what);
    let what = match error.kind() {
        clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => "a command is missing",
        _ => what,
    };
    let what = what.split_whitespace().collect::<Vec<_>>().join(" ");
    let failure = Failure::usage(what).hint("--help shows what there is");
    failure.report(true);
    ExitCode::from(failure.exit)
}

/// Runs the command line of this process.
pub fn run() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return refuse(&error),
    };
    let context = Context { json: arguments.json, file: arguments.config };
    let is_many =
        matches!(arguments.command, Command::Serve(_) | Command::Worker(_) | Command::Provider(_));
    let runtime = if is_many {
        tokio::runtime::Builder::new_multi_thread().enable_all().build()
    } else {
        tokio::runtime::Builder::new_current_thread().enable_all().build()
    };
    let done = match runtime {
        Ok(runtime) => runtime.block_on(dispatch(arguments.command, &context)),
        Err(error) => Err(Failure::io(format!("no runtime could be started: {error}"))),
    };
    match done {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            failure.report(context.json);
            ExitCode::from(failure.exit)
        }
    }
}

async fn dispatch(command: Command, context: &Context) -> Result<u8, Failure> {
    match command {
        Command::Serve(arguments) => serve(arguments, context).await,
        Command::Demo(arguments) => demo::run(arguments, context).await,
        Command::Worker(arguments) => work::run(*arguments, context).await,
        Command::Provider(arguments) => provider::run(*arguments, context).await,
        Command::Task(arguments) => task::run(arguments, context).await,
        Command::Approval(arguments) => approval::run(arguments, context).await,
        Command::Step(arguments) => step::run(arguments, context).await,
        Command::Signal(arguments) => signal::run(arguments, context).await,
        Command::Session(arguments) => inform::sessions(arguments, context).await,
        Command::Message(arguments) => message::run(arguments, context).await,
        Command::DeadLetter(arguments) => dead_letter::run(arguments, context).await,
        Command::Poison(arguments) => poison::run(arguments, context).await,
        Command::Pool(arguments) => pool::run(arguments, context).await,
        Command::Agent(arguments) => agent::run(*arguments, context).await,
        Command::Venture(arguments) => venture::run(arguments, context).await,
        Command::Portfolio(arguments) => venture::run_portfolio(arguments, context).await,
        Command::Delegation(arguments) => delegation::run(*arguments, context).await,
        Command::Limit(arguments) => limit::run(arguments, context).await,
        Command::Pause(arguments) => pause::pause(arguments, context).await,
        Command::Resume(arguments) => pause::resume(arguments, context).await,
        Command::Alert(arguments) => alert::run(arguments, context).await,
        Command::Notice(arguments) => alert::notices(arguments, context).await,
        Command::Audit(arguments) => audit::run(arguments, context).await,
        Command::Events(arguments) => events::run(arguments, context).await,
        Command::Migrate(arguments) => migrate::run(arguments, context).await,
        Command::Status(arguments) => inform::status(arguments, context).await,
        Command::Doctor(arguments) => doctor::run(arguments, context).await,
        Command::Config(arguments) => inform::config(&arguments, context),
        Command::Completions { shell } => {
            let mut text = Vec::new();
            let mut command = Arguments::command();
            clap_complete::generate(shell, &mut command, "windlass", &mut text);
            crate::print::line(String::from_utf8_lossy(&text).trim_end());
            Ok(0)
        }
        Command::Version => {
            let version = env!("CARGO_PKG_VERSION");
            if context.json {
                crate::print::json_line(&serde_json::json!({ "version": version }));
            } else {
                crate::print::line(&format!("windlass {version}"));
            }
            Ok(0)
        }
    }
}

async fn serve(arguments: ServeArguments, context: &Context) -> Result<u8, Failure> {
    let config = context.config(arguments.flags())?;
    config.check_listen().map_err(|told| Failure::new("key_required", told, 78))?;
    start_logging(&config, context)?;
    crate::serve::run(config).await?;
    Ok(0)
}

fn start_logging(config: &Config, context: &Context) -> Result<(), Failure> {
    let format = match config.log_format {
        LogFormat::Auto if context.json => LogFormat::Json,
        format => format,
    };
    crate::logging::start(&config.log, format).map_err(Failure::configuration)?;
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    Ok(())
}
