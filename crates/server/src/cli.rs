//! The command line: what is asked, what is printed, and the exit codes.
//!
//! Exit codes: 0 done; 1 failed; 2 wrong usage; 69 the database cannot be reached; 74 it is
//! damaged or its disk is full; 75 try again later; 78 the configuration is wrong.

mod migrate;

use clap::{Parser, Subcommand};
use std::process::ExitCode;
use windlass::store::error::Error;

/// A durable runtime for AI agents.
#[derive(Parser)]
#[command(name = "windlass", version, propagate_version = true)]
struct Arguments {
    /// Print JSON instead of text, also for errors.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Bring the database's schema up or down, or show where it stands.
    Migrate(migrate::Arguments),
}

/// Runs the command line of this process.
pub fn run() -> ExitCode {
    let arguments = Arguments::parse();
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("windlass: no runtime could be started: {error}");
            return ExitCode::from(1);
        }
    };
    let done = match arguments.command {
        Command::Migrate(migrate) => runtime.block_on(migrate::run(migrate, arguments.json)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report(&error, arguments.json);
            ExitCode::from(exit_code(&error))
        }
    }
}

fn report(error: &Error, json: bool) {
    if json {
        eprintln!("{}", serde_json::json!({ "code": error.code(), "detail": error.to_string() }));
    } else {
        eprintln!("windlass: {error} [{}]", error.code());
    }
}

fn exit_code(error: &Error) -> u8 {
    match error {
        Error::Unavailable(_) => 69,
        Error::Corrupt(_) | Error::StorageFull(_) => 74,
        Error::Busy(_) | Error::Timeout(_) | Error::InUse(_) => 75,
        Error::Configuration(_)
        | Error::Foreign(_)
        | Error::NewerSchema { .. }
        | Error::OlderSchema { .. } => 78,
        Error::Constraint { .. }
        | Error::Data(_)
        | Error::OutcomeUnknown(_)
        | Error::Internal { .. } => 1,
    }
}
