//! `windlass demo`: what it is for, in half a minute, with real processes that are really killed.

use super::{Context, Failure};
use crate::demo::{self, Ended, Options};
use clap::Args;

#[derive(Args)]
#[command(
    after_help = "It needs nothing and leaves nothing behind: a server on a free port of this \
machine with a
temporary SQLite file, and four workers. Two workers and then the server itself are killed with
SIGKILL while they work. With --agent it is one agent with six steps and a question to a person: its
worker is killed after the second step, the server while the question is open."
)]
pub(super) struct Arguments {
    /// How many tasks.
    #[arg(long, default_value_t = 150, value_parser = clap::value_parser!(u16).range(1..=1000))]
    tasks: u16,
    /// Show an agent instead: steps, a gate, a crash and a resume.
    #[arg(long, conflicts_with = "tasks")]
    agent: bool,
    /// The agent itself, for the demo's own use.
    #[arg(long, hide = true, value_name = "URL", requires_all = ["agent", "effects"])]
    work_for: Option<String>,
    #[arg(long, hide = true, value_name = "FILE")]
    effects: Option<std::path::PathBuf>,
}

pub(super) async fn run(arguments: Arguments, context: &Context) -> Result<u8, Failure> {
    let failed =
        |told| Failure::new("demo_failed", told, 1).hint("the demo needs /bin/sh and a free port");
    if let (Some(server), Some(effects)) = (arguments.work_for, arguments.effects) {
        demo::agent::work(&server, effects).await.map_err(failed)?;
        return Ok(0);
    }
    let tasks = usize::from(arguments.tasks);
    let played = match arguments.agent {
        true => demo::agent::run(context.json).await.map(|summary| {
            show(context, &summary.to_json(), &summary.lines());
            summary.holds()
        }),
        false => demo::run(Options { tasks, quiet: context.json }).await.map(|summary| {
            show(context, &summary.to_json(), &summary.lines());
            summary.holds()
        }),
    };
    match played {
        Ok(holds) => Ok(if holds { 0 } else { 1 }),
        Err(Ended::Early(code)) => Ok(code),
        Err(Ended::Failed(told)) => Err(failed(told)),
    }
}

fn show(context: &Context, json: &serde_json::Value, lines: &[String]) {
    if context.json {
        crate::print::json_line(json);
    } else {
        lines.iter().for_each(|line| crate::print::line(line));
    }
}
