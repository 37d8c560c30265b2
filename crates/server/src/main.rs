//! The binary `windlass`.
//!
//! Absent: no rules here. The command line asks the library and prints what it answers.

mod cli;
mod config;
mod demo;
mod http;
mod interrupt;
mod logging;
mod ordered;
mod print;
mod provider;
mod serve;
mod webhook;
mod worker;

use std::process::ExitCode;
use windlass::client;

fn main() -> ExitCode {
    cli::run()
}
