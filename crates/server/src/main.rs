//! The binary `windlass`.
//!
//! Absent: no rules here. The command line asks the library and prints what it answers.

mod cli;
mod http;
mod serve;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run()
}
