//! `windlass step …` and `windlass task steps`: what tasks have done, and a person's decision over
//! what is in doubt.

use super::poison::Page;
use super::task::{age, text};
use super::{Connection, Context, Failure, argument, task};
use crate::client::{Call, Client, Patience};
use crate::print::{self, Cell, Paint};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

#[derive(Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// List the steps of a task, or with --in-doubt those of all tasks that wait for a person's
    /// decision, oldest first.
    List(ListArguments),
    /// Decide over a step in doubt; its task goes on, or its replays see it.
    Resolve(ResolveArguments),
}

#[derive(Args)]
#[command(
    after_help = "A step is in doubt when it must not run twice, was begun, and nobody knows \
whether it ran.
Look where its effect would be, then decide with `windlass step resolve`.

Examples:
  windlass step list 01890a5d-ac96-774b-bcce-b302099a8057
  windlass step list --in-doubt
  windlass step list --in-doubt --json | jq '.items[] | {id, name, inputs}'"
)]
struct ListArguments {
    /// The task's id, as in `windlass task steps`.
    #[arg(value_name = "TASK", conflicts_with = "in_doubt")]
    task: Option<String>,
    /// Steps that wait for a person; the only ones that are listed across tasks.
    #[arg(long)]
    in_doubt: bool,
    #[command(flatten)]
    page: Page,
}

#[derive(Args)]
#[command(after_help = "Examples:
  windlass task steps 01890a5d-ac96-774b-bcce-b302099a8057
  windlass task steps 01890a5d-ac96-774b-bcce-b302099a8057 --json | jq '.items[].result'")]
pub(super) struct OfTaskArguments {
    /// The task's id.
    id: String,
    #[command(flatten)]
    page: Page,
}

#[derive(Args)]
#[command(after_help = "Examples:
  windlass step resolve 5b2f…-… --record-result '{\"paid\": true}' --reason 'the bank shows it'
  windlass step resolve 5b2f…-… --allow-rerun --reason 'the bank shows nothing'
  windlass step resolve 5b2f…-… --fail")]
struct ResolveArguments {
    /// The step's id.
    id: String,
    #[command(flatten)]
    decision: Decision,
    /// Why, for the history.
    #[arg(long)]
    reason: Option<String>,
}

#[derive(Args)]
#[group(required = true, multiple = false)]
struct Decision {
    /// It has run, and this came of it: JSON, @FILE, or - for standard input.
    #[arg(long, value_name = "JSON")]
    record_result: Option<String>,
    /// It has not run, or may run twice.
    #[arg(long)]
    allow_rerun: bool,
    /// It has failed for good; the worker is told so.
    #[arg(long)]
    fail: bool,
}

pub(super) async fn run(arguments: Arguments, context: &Context) -> Result<u8, Failure> {
    let client = context.client(&arguments.connection)?;
    match arguments.action {
        Action::List(ListArguments { task: Some(id), page, .. }) => {
            of_task(OfTaskArguments { id, page }, &client, context).await
        }
        Action::List(ListArguments { in_doubt: true, page, .. }) => {
            let call = Call::get("/v1/steps").query("status", "in_doubt");
            list(call, page, Shown::OfAllTasks, &client, context).await
        }
        Action::List(_) => {
            let failure = Failure::usage("steps of which task?".to_owned());
            Err(failure.hint(
                "`windlass step list TASK` lists a task's steps, `windlass step list --in-doubt` \
                 what waits for a person in any task",
            ))
        }
        Action::Resolve(arguments) => resolve(arguments, &client, context).await,
    }
}

pub(super) async fn of_task(
    arguments: OfTaskArguments,
    client: &Client,
    context: &Context,
) -> Result<u8, Failure> {
    let call = Call::get(task::path(&arguments.id, "/steps")?);
    list(call, arguments.page, Shown::OfOneTask, client, context).await
}

/// Whose steps are listed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shown {
    OfOneTask,
    /// What is in doubt; each names its task.
    OfAllTasks,
}

async fn list(
    call: Call,
    page: Page,
    shown: Shown,
    client: &Client,
    context: &Context,
) -> Result<u8, Failure> {
    let answer = client.call(&page.of(call), Patience::SHORT).await?.body;
    if context.json {
        print::json_line(&answer);
        return Ok(0);
    }
    let items = answer["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    if items.is_empty() {
        print::note(match shown {
            Shown::OfOneTask => "the task has no steps",
            Shown::OfAllTasks => "no step is in doubt",
        });
        return Ok(0);
    }
    let mut headings = vec!["ID", "STATUS", "NAME", "TYPE", "ATTEMPT", "AGE", "INPUTS", "RESULT"];
    let mut rows: Vec<Vec<Cell>> = items.iter().map(row).collect();
    if shown == Shown::OfAllTasks {
        headings.insert(1, "TASK");
        for (row, step) in rows.iter_mut().zip(items) {
            row.insert(1, Cell::new(text(&step["task_id"])));
        }
    }
    print::table(&headings, &rows);
    page.note_more(&answer);
    Ok(0)
}

fn paint(status: &str) -> Paint {
    match status {
        "done" => Paint::Green,
        "begun" | "allowed" => Paint::Blue,
        "waiting" | "in_doubt" => Paint::Yellow,
        _ => Paint::Red,
    }
}

fn row(step: &Value) -> Vec<Cell> {
    let status = text(&step["status"]);
    let name = match step["occurrence"].as_i64() {
        None | Some(0) => text(&step["name"]).to_owned(),
        Some(n) => format!("{} #{n}", text(&step["name"])),
    };
    let short = |value: &Value| if value.is_null() { String::new() } else { print::json(value) };
    let outcome = match text(&step["error"]["code"]) {
        "" if !step["expired_at"].is_null() => "(expired)".to_owned(),
        "" => short(&step["result"]),
        code => format!("{code}: {}", text(&step["error"]["message"])),
    };
    vec![
        Cell::new(text(&step["id"])),
        Cell::painted(status, paint(status)),
        Cell::new(&name),
        Cell::new(text(&step["type"])),
        Cell::new(&step["attempt"].as_i64().map_or(String::new(), |n| n.to_string())),
        Cell::new(&age(&step["created_at"])),
        Cell::new(&short(&step["inputs"])),
        Cell::new(&outcome),
    ]
}

async fn resolve(
    arguments: ResolveArguments,
    client: &Client,
    context: &Context,
) -> Result<u8, Failure> {
    let id = uuid::Uuid::try_parse(&arguments.id).map_err(|_| {
        Failure::usage(format!("`{}` is no id of a step", print::safe(&arguments.id)))
            .hint("`windlass step list --in-doubt` shows those that wait for a decision")
    })?;
    let Decision { record_result, allow_rerun, .. } = &arguments.decision;
    let mut body = match record_result {
        Some(given) => {
            let result = argument::result(given)?;
            json!({ "action": "record_result", "result": result })
        }
        None if *allow_rerun => json!({ "action": "allow_rerun" }),
        None => json!({ "action": "fail" }),
    };
    if let Some(reason) = &arguments.reason {
        body["reason"] = json!(reason);
    }
    // The same decision again changes nothing, so a lost answer is no reason to stop.
    let call = Call::post(format!("/v1/steps/{id}/resolve"), body);
    let step = client.call(&call, Patience::SHORT).await?.body;
    if context.json {
        print::json_line(&step);
    } else {
        let status = text(&step["status"]);
        let shown = print::painted(&print::safe(status), paint(status));
        print::line(&format!("{}  {shown}", print::safe(text(&step["id"]))));
    }
    Ok(0)
}
