//! `windlass task why`: what holds a task back, in plain words.

use super::task::{path, text};
use super::{Context, Failure};
use crate::client::{Call, Client, Patience};
use crate::print::{self, Cell, Paint};
use clap::Args;
use serde_json::Value;

#[derive(Args)]
#[command(
    after_help = "Every reason that holds the task back now, the most important first; docs/why.md \
explains each.

Examples:
  windlass task why 01890a5d-ac96-774b-bcce-b302099a8057
  windlass task why 01890a5d-ac96-774b-bcce-b302099a8057 --json | jq -r .reasons[0].code"
)]
pub(super) struct Arguments {
    /// The task's id.
    id: String,
}

pub(super) async fn run(
    arguments: Arguments,
    client: &Client,
    context: &Context,
) -> Result<u8, Failure> {
    let call = Call::get(path(&arguments.id, "/why")?);
    let answer = client.call(&call, Patience::SHORT).await?.body;
    if context.json {
        print::json_line(&answer);
        return Ok(0);
    }
    let reasons = answer["reasons"].as_array().map(Vec::as_slice).unwrap_or_default();
    let row = |reason: &Value| {
        let code = text(&reason["code"]);
        let words = text(&reason["detail"]);
        vec![Cell::painted(code, paint(code)), Cell::whole(words)]
    };
    print::table(&["REASON", "DETAIL"], &reasons.iter().map(row).collect::<Vec<_>>());
    for reason in reasons {
        print_holders(reason);
    }
    Ok(0)
}

/// Who holds the slots of a limit, or of the workers.
fn print_holders(reason: &Value) {
    let holders = reason["holders"].as_array().map(Vec::as_slice).unwrap_or_default();
    if holders.is_empty() {
        return;
    }
    let scope = match text(&reason["code"]) {
        "workers_busy" => format!("the workers of queue {}", text(&reason["queue"])),
        _ => [text(&reason["scope"]), text(&reason["name"])].join(" "),
    };
    print::line("");
    print::line(&format!("slots of {} are held by", print::safe(scope.trim_end())));
    let row = |holder: &Value| {
        vec![
            Cell::new(text(&holder["task_id"])),
            Cell::new(text(&holder["worker"])),
            Cell::new(text(&holder["session"])),
            Cell::new(text(&holder["since"])),
        ]
    };
    let rows: Vec<_> = holders.iter().map(row).collect();
    print::table(&["TASK", "WORKER", "SESSION", "SINCE"], &rows);
}

fn paint(code: &str) -> Paint {
    match code {
        "finished" | "draining" => Paint::Plain,
        "held" | "ready" => Paint::Green,
        "limit_reached" | "no_worker" | "in_doubt" | "paused" => Paint::Red,
        _ => Paint::Yellow,
    }
}
