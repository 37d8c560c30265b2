//! `windlass demo`: what it is for, in half a minute, with real processes that are really killed.

use super::{Context, Failure};
use crate::demo::{self, Options};
use clap::Args;

#[derive(Args)]
#[command(
    after_help = "It needs nothing and leaves nothing behind: a server on a free port of this \
machine with a
temporary SQLite file, and four workers. Two workers and then the server itself are killed with
SIGKILL while they work."
)]
pub(super) struct Arguments {
    /// How many tasks.
    #[arg(long, default_value_t = 150, value_parser = clap::value_parser!(u16).range(1..=1000))]
    tasks: u16,
}

pub(super) async fn run(arguments: Arguments, context: &Context) -> Result<u8, Failure> {
    let tasks = usize::from(arguments.tasks);
    let summary = demo::run(Options { tasks, quiet: context.json }).await.map_err(|told| {
        Failure::new("demo_failed", told, 1).hint("the demo needs /bin/sh and a free port")
    })?;
    if context.json {
        crate::print::json_line(&summary.to_json());
    } else {
        summary.lines().iter().for_each(|line| crate::print::line(line));
    }
    Ok(if summary.holds() { 0 } else { 1 })
}
