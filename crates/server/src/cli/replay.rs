//! `windlass task replay`.
//!
//! Invariant: a replay carries the new task's id from the first try on, so that it can be repeated
//! when the answer is lost, and makes one task.

use super::task::{path, text};
use super::{Context, Failure};
use crate::client::{Call, Client, Patience};
use crate::print::{self, Cell, Paint};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};

#[derive(Args)]
#[command(after_help = "Examples:
  windlass task replay 01890a5d-ac96-774b-bcce-b302099a8057 --dry-run
  windlass task replay 01890a5d-ac96-774b-bcce-b302099a8057 --step charge --allow-non-idempotent
  windlass task replay 01890a5d-ac96-774b-bcce-b302099a8057 --from beginning")]
pub(super) struct Arguments {
    /// The finished task's id.
    id: String,
    #[command(flatten)]
    how: How,
    /// Only print what would be done with each step.
    #[arg(long)]
    dry_run: bool,
}

/// How a task is replayed.
#[derive(Args)]
pub(super) struct How {
    /// Where the new task begins [default: last-checkpoint, or step with --step].
    #[arg(long, value_enum)]
    from: Option<Point>,
    /// Begin with the first step of this name; what was done before is taken along.
    #[arg(long, value_name = "NAME")]
    step: Option<String>,
    /// Let steps run again that must not run twice.
    #[arg(long)]
    allow_non_idempotent: bool,
    /// Ask a person first in any case.
    #[arg(long)]
    require_approval: bool,
    /// The new task's id, any UUID; the same id again is the same replay.
    #[arg(long, value_name = "ID")]
    new_id: Option<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Point {
    /// With nothing done.
    Beginning,
    /// With everything that is done, and the checkpoint.
    LastCheckpoint,
    /// With what was done before --step.
    Step,
}

pub(super) async fn run(
    arguments: Arguments,
    client: &Client,
    context: &Context,
) -> Result<u8, Failure> {
    let mut body = arguments.how.body();
    if arguments.dry_run {
        body["dry_run"] = json!(true);
    }
    let call = Call::post(path(&arguments.id, "/replay")?, body);
    let answer = client.call(&call, Patience::SHORT).await?;
    let is_duplicate = answer.header("windlass-duplicate") == Some("true");
    let answer = answer.body;
    if context.json {
        print::json_line(&answer);
    } else if arguments.dry_run {
        print_plan(&answer);
    } else if answer["approval"].is_object() {
        print_approval(&answer["approval"]);
    } else {
        if is_duplicate {
            print::note("it was replayed before; nothing was added");
        }
        print::line(&print::safe(text(&answer["id"])));
    }
    Ok(0)
}

impl How {
    /// What the server is asked for.
    pub fn body(&self) -> Value {
        let from = match (self.from, &self.step) {
            (Some(Point::Beginning), _) => "beginning",
            (Some(Point::LastCheckpoint), _) | (None, None) => "last_checkpoint",
            (Some(Point::Step), _) | (None, Some(_)) => "step",
        };
        let id = self.new_id.clone().unwrap_or_else(|| uuid::Uuid::now_v7().to_string());
        let mut body = json!({ "from": from, "id": id });
        if let Some(step) = &self.step {
            body["step"] = json!(step);
        }
        for (name, wanted) in [
            ("allow_non_idempotent", self.allow_non_idempotent),
            ("require_approval", self.require_approval),
        ] {
            if wanted {
                body[name] = json!(true);
            }
        }
        body
    }

    /// Whether anything was asked for.
    pub fn is_given(&self) -> bool {
        let has_flag = self.allow_non_idempotent || self.require_approval;
        has_flag || self.from.is_some() || self.step.is_some() || self.new_id.is_some()
    }
}

/// Prints the question that a replay waits for.
pub(super) fn print_approval(approval: &Value) {
    let id = print::safe(text(&approval["id"])).into_owned();
    print::line(&id);
    let new = print::safe(text(&approval["request"]["id"])).into_owned();
    print::note(&format!(
        "a person must agree first: `windlass approval approve {id}`; then the new task is {new}"
    ));
}

fn print_plan(plan: &Value) {
    let steps = plan["steps"].as_array().map(Vec::as_slice).unwrap_or_default();
    if steps.is_empty() {
        print::note("the task has no steps: the replay would do everything anew");
    } else {
        let row = |step: &Value| {
            let fate = text(&step["fate"]);
            let paint = match fate {
                "reused" => Paint::Green,
                "refused" => Paint::Red,
                _ => Paint::Yellow,
            };
            let occurrence = step["occurrence"].as_i64().unwrap_or_default().to_string();
            vec![
                Cell::new(text(&step["name"])),
                Cell::new(&occurrence),
                Cell::painted(fate, paint),
                Cell::new(text(&step["id"])),
                Cell::new(text(&step["run_in"])),
            ]
        };
        print::table(
            &["STEP", "OCCURRENCE", "FATE", "ID", "RUN IN"],
            &steps.iter().map(row).collect::<Vec<_>>(),
        );
    }
    if plan["checkpoint"] == true {
        print::note("the checkpoint would be taken along");
    }
    if plan["permitted"] == false {
        print::note(
            "it would be refused: steps must not run twice; begin later, or add \
             --allow-non-idempotent",
        );
    }
    if plan["needs_approval"] == true {
        print::note("a person would have to agree first");
    }
}
