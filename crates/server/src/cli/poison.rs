//! `windlass poison …`: tasks that need a person.

use super::task::{age, text};
use super::{Connection, Context, Failure, replay};
use crate::client::{Call, Client, Patience};
use crate::print::{self, Cell, Paint};
use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

#[derive(Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// List tasks that ended poisoned or stuck, oldest first.
    List(ListArguments),
    /// Show one of them: its failures, and what was done about it.
    Show {
        /// The task's id.
        id: String,
    },
    /// Say whose it is.
    Assign {
        /// The task's id.
        id: String,
        /// Who.
        assignee: String,
        /// What there is to say.
        #[arg(long)]
        note: Option<String>,
    },
    /// Take it up.
    Investigate {
        /// The task's id.
        id: String,
        /// What there is to say.
        #[arg(long)]
        note: Option<String>,
    },
    /// Append a note; also to what is closed.
    Note {
        /// The task's id.
        id: String,
        /// What there is to say.
        note: String,
    },
    /// Close it: done. What nobody took up is taken up on the way.
    #[command(after_help = "Examples:
  windlass poison resolve 01890a5d-ac96-774b-bcce-b302099a8057 --note 'the prompt was wrong'")]
    Resolve {
        /// The task's id.
        id: String,
        /// The task that did the work after all.
        #[arg(long, value_name = "ID")]
        by_task: Option<String>,
        /// Replay the task now; the new task is the one that resolves it.
        #[arg(long, conflicts_with = "by_task")]
        replay: bool,
        #[command(flatten)]
        how: replay::How,
        /// What there is to say.
        #[arg(long)]
        note: Option<String>,
    },
    /// Close it: nothing will be done.
    Abandon {
        /// The task's id.
        id: String,
        /// What there is to say.
        #[arg(long)]
        note: Option<String>,
    },
}

#[derive(Args)]
#[command(after_help = "Examples:
  windlass poison list
  windlass poison list --status resolved,abandoned --queue mail --json")]
struct ListArguments {
    /// Only in these states: pending, investigating, resolved, abandoned. The open ones unless
    /// given.
    #[arg(long, value_name = "STATES")]
    status: Option<String>,
    /// Only those of this person.
    #[arg(long)]
    assignee: Option<String>,
    /// Only tasks of this queue.
    #[arg(long)]
    queue: Option<String>,
    /// Only tasks of this agent.
    #[arg(long)]
    agent: Option<String>,
    #[command(flatten)]
    page: Page,
}

/// Which page of a list.
#[derive(Args)]
pub(super) struct Page {
    /// How many at most.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
    /// Go on behind an earlier page.
    #[arg(long)]
    cursor: Option<String>,
    /// In which order: asc or desc; of what has a time also oldest or newest first.
    #[arg(long)]
    order: Option<String>,
}

impl Page {
    /// The call that asks for this page.
    pub(super) fn of(&self, mut call: Call) -> Call {
        call = call.query("limit", self.limit);
        for (name, value) in [("cursor", &self.cursor), ("order", &self.order)] {
            if let Some(value) = value {
                call = call.query(name, value);
            }
        }
        call
    }

    /// Whether it goes on behind another one.
    pub(super) fn is_later(&self) -> bool {
        self.cursor.is_some()
    }

    /// Says how to see the next one, if there is one.
    pub(super) fn note_more(&self, answer: &Value) {
        if let Some(cursor) = answer["next_cursor"].as_str() {
            print::note(&more(cursor, self.order.as_deref()));
        }
    }
}

/// How to see the page behind this cursor: it goes on in its own order only.
pub(super) fn more(cursor: &str, order: Option<&str>) -> String {
    let order = order.map_or(String::new(), |order| format!("--order {} ", print::safe(order)));
    format!("more with {order}--cursor {}", print::safe(cursor))
}

/// A list of the server: one page as a table, or as it came with `--json`.
pub(super) struct Listing<'a> {
    pub path: &'static str,
    pub filters: Vec<(&'static str, Option<String>)>,
    pub page: Page,
    pub headings: &'a [&'a str],
    pub row: fn(&Value) -> Vec<Cell>,
    pub empty: &'static str,
}

impl Listing<'_> {
    pub async fn show(self, client: &Client, context: &Context) -> Result<u8, Failure> {
        let mut call = self.page.of(Call::get(self.path));
        // What is archived comes in addition, and whether alerts are seen is no property of theirs.
        let narrows = |(name, value): &(&str, Option<String>)| {
            !["archived", "acknowledged"].contains(name) && value.is_some()
        };
        let is_filtered = self.filters.iter().any(narrows);
        for (name, value) in self.filters {
            if let Some(value) = value {
                call = call.query(name, value);
            }
        }
        let answer = client.call(&call, Patience::SHORT).await?.body;
        if context.json {
            print::json_line(&answer);
            return Ok(0);
        }
        let items = answer["items"].as_array().map(Vec::as_slice).unwrap_or_default();
        if items.is_empty() {
            print::note(nothing(self.empty, is_filtered, self.page.is_later()));
            return Ok(0);
        }
        print::table(self.headings, &items.iter().map(self.row).collect::<Vec<_>>());
        self.page.note_more(&answer);
        Ok(0)
    }
}

/// What an empty list says: what is left out by filters may be there all the same.
pub(super) fn nothing(empty: &'static str, is_filtered: bool, is_later: bool) -> &'static str {
    match (is_filtered, is_later) {
        (_, true) => "that was all",
        (true, false) => "nothing matches these filters; leave one out to see more",
        (false, false) => empty,
    }
}

/// An id goes into a path, so it must be one.
pub(super) fn id(text: &str) -> Result<uuid::Uuid, Failure> {
    uuid::Uuid::try_parse(text).map_err(|_| {
        Failure::usage(format!("`{}` is no id", print::safe(text)))
            .hint("an id looks like 01890a5d-ac96-774b-bcce-b302099a8057")
    })
}

pub(super) async fn run(arguments: Arguments, context: &Context) -> Result<u8, Failure> {
    let client = context.client(&arguments.connection)?;
    let (task, verb, fields) = match arguments.action {
        Action::List(arguments) => {
            let listing = Listing {
                path: "/v1/poison",
                filters: vec![
                    ("status", arguments.status),
                    ("assignee", arguments.assignee),
                    ("queue", arguments.queue),
                    ("agent", arguments.agent),
                ],
                page: arguments.page,
                headings: &[
                    "TASK", "ENDED", "STATUS", "ASSIGNEE", "QUEUE", "FAILURES", "AGE", "ERROR",
                ],
                row,
                empty: "nothing needs a person",
            };
            return listing.show(&client, context).await;
        }
        Action::Show { id: task } => {
            let call = Call::get(format!("/v1/poison/{}", id(&task)?));
            let entry = client.call(&call, Patience::SHORT).await?.body;
            return Ok(print_entry(&entry, context));
        }
        Action::Assign { id, assignee, note } => {
            (id, "assign", vec![("assignee", Some(assignee)), ("note", note)])
        }
        Action::Investigate { id, note } => (id, "investigate", vec![("note", note)]),
        Action::Note { id, note } => (id, "note", vec![("note", Some(note))]),
        Action::Resolve { id, by_task, note, replay, how } => {
            if how.is_given() && !replay {
                return Err(Failure::usage("how to replay is given without --replay"));
            }
            let replay = replay.then(|| how.body());
            let fields = [("resolved_by_task", by_task.map(Value::from))];
            let fields = fields.into_iter().chain([("note", note.map(Value::from))]);
            let fields = fields.chain([("replay", replay)]).filter_map(|(k, v)| Some((k, v?)));
            let body = fields.map(|(name, value)| (name.to_owned(), value)).collect::<Map<_, _>>();
            return act(&id, "resolve", Value::Object(body), &client, context).await;
        }
        Action::Abandon { id, note } => (id, "abandon", vec![("note", note)]),
    };
    let given =
        fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), json!(value?))));
    let body = Value::Object(given.collect::<Map<_, _>>());
    act(&task, verb, body, &client, context).await
}

async fn act(
    task: &str,
    verb: &str,
    body: Value,
    client: &Client,
    context: &Context,
) -> Result<u8, Failure> {
    let call = Call::post(format!("/v1/poison/{}/{verb}", id(task)?), body);
    let entry = client.call(&call, Patience::SHORT).await?.body;
    if entry["approval"].is_object() && !context.json {
        replay::print_approval(&entry["approval"]);
        return Ok(0);
    }
    Ok(print_entry(&entry, context))
}

fn row(entry: &Value) -> Vec<Cell> {
    let error = format!("{}: {}", text(&entry["error"]["code"]), text(&entry["error"]["message"]));
    vec![
        Cell::new(text(&entry["task_id"])),
        Cell::status(text(&entry["task_status"])),
        Cell::new(text(&entry["status"])),
        Cell::new(text(&entry["assignee"])),
        Cell::new(text(&entry["queue"])),
        Cell::new(&entry["failure_count"].as_i64().map_or(String::new(), |n| n.to_string())),
        Cell::new(&age(&entry["entered_at"])),
        Cell::painted(&error, Paint::Red),
    ]
}

fn print_entry(entry: &Value, context: &Context) -> u8 {
    if context.json {
        print::json_line(entry);
        return 0;
    }
    for name in [
        "task_id",
        "task_status",
        "status",
        "assignee",
        "queue",
        "agent",
        "failure_count",
        "entered_at",
        "closed_at",
        "resolved_by_task",
    ] {
        let shown = match &entry[name] {
            Value::Null => continue,
            Value::String(text) => print::safe(text).into_owned(),
            other => other.to_string(),
        };
        let heading = print::painted(&format!("{name:<18}"), Paint::Bold);
        print::line(&format!("{heading}{shown}"));
    }
    let list = |name: &str| entry[name].as_array().cloned().unwrap_or_default();
    let failures = list("failures");
    if !failures.is_empty() {
        print::line(&print::painted("failures", Paint::Bold));
    }
    for failure in &failures {
        let error = &failure["error"];
        let (code, message) = (text(&error["code"]), text(&error["message"]));
        let told = format!("  {}  {code}: {message}", text(&failure["at"]));
        print::line(&print::safe(&told));
    }
    let notes = list("notes");
    if !notes.is_empty() {
        print::line(&print::painted("notes", Paint::Bold));
    }
    for note in &notes {
        let (author, event) = (text(&note["author"]), text(&note["event"]));
        let to = match text(&note["assignee"]) {
            "" => String::new(),
            assignee => format!("  (assignee {assignee})"),
        };
        let said = text(&note["note"]);
        let told = format!("  {}  {author} {event}  {said}{to}", text(&note["at"]));
        print::line(print::safe(&told).trim_end());
    }
    0
}
