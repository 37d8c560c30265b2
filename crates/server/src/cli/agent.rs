//! `windlass agent …`: who works, for whom and how, and who is above whom.

use super::poison::{Listing, Page};
use super::task::{age, text};
use super::{Connection, Context, Failure, argument};
use crate::client::{Call, Client, Patience};
use crate::print::{self, Cell, Paint};
use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Create an agent; one that is there and says something else is left alone.
    #[command(after_help = "Examples:
  windlass agent create ada --role ceo
  windlass agent create crew-1 --role crew --parent ada --venture acme --grant-agent bob")]
    Create {
        /// The agent's name.
        name: String,
        #[command(flatten)]
        said: Said,
    },
    /// Change what is given; an agent that is not there is created, and that is said.
    #[command(after_help = "Examples:
  windlass agent set scout --max-retries 5 --backoff '{\"base_ms\": 2000}' --on-exhausted failed
  windlass agent set scout --parent ada --unset venture")]
    Set {
        /// The agent's name.
        name: String,
        #[command(flatten)]
        said: Said,
        /// What is to be as if it had never been set, such as venture; may be repeated.
        #[arg(long, value_name = "FIELD")]
        unset: Vec<String>,
    },
    /// Show an agent.
    Show {
        /// The agent's name.
        name: String,
    },
    /// List agents, by name.
    List {
        #[command(flatten)]
        which: Which,
        #[command(flatten)]
        page: Page,
    },
    /// Show who is above whom.
    Tree {
        /// Only this agent and those below it.
        name: Option<String>,
        /// With those that are archived.
        #[arg(long)]
        archived: bool,
    },
    /// Archive an agent; what it did stays.
    Archive {
        /// The agent's name.
        name: String,
    },
    /// Bring an archived agent back.
    Restore {
        /// The agent's name.
        name: String,
    },
}

/// What is said about an agent.
#[derive(Args)]
struct Said {
    /// ceo, vp, crew, or whatever the company calls it.
    #[arg(long)]
    role: Option<String>,
    /// The agent above it.
    #[arg(long, value_name = "AGENT")]
    parent: Option<String>,
    /// What it works for; its tasks take it over.
    #[arg(long)]
    venture: Option<String>,
    /// Likewise; left out when its venture has one.
    #[arg(long)]
    portfolio: Option<String>,
    /// Where its tasks go [default: the queue called like its role, or like itself].
    #[arg(long)]
    queue: Option<String>,
    /// Which kind of worker carries them out [default: by its role].
    #[arg(long, value_name = "TYPE")]
    worker_type: Option<String>,
    /// How: JSON such as {"type": "command", "command": ["./crew"]}.
    #[arg(long, value_name = "JSON")]
    executor: Option<String>,
    /// An agent that it may speak to beyond its own line; may be repeated.
    #[arg(long, value_name = "AGENT")]
    grant_agent: Vec<String>,
    /// A venture whose agents it may speak to; may be repeated.
    #[arg(long, value_name = "VENTURE")]
    grant_venture: Vec<String>,
    /// How often a task is retried.
    #[arg(long, value_name = "N")]
    max_retries: Option<u32>,
    /// How long to wait, and which errors are retried, as JSON.
    #[arg(long, value_name = "JSON")]
    backoff: Option<String>,
    /// Where a task ends whose retries are used up: poisoned or failed.
    #[arg(long, value_name = "STATE")]
    on_exhausted: Option<String>,
}

/// Which agents.
#[derive(Args)]
struct Which {
    /// Of this role.
    #[arg(long)]
    role: Option<String>,
    /// Right below this agent.
    #[arg(long, value_name = "AGENT")]
    parent: Option<String>,
    /// Of this venture.
    #[arg(long)]
    venture: Option<String>,
    /// Of this portfolio.
    #[arg(long)]
    portfolio: Option<String>,
    /// With those that are archived.
    #[arg(long)]
    archived: bool,
}

/// A name as a part of a path.
pub(super) fn segment(name: &str) -> String {
    let encoded: String = form_urlencoded::byte_serialize(name.as_bytes()).collect();
    // A `+` is a space in a query only.
    encoded.replace('+', "%20")
}

fn path(name: &str) -> String {
    format!("/v1/agents/{}", segment(name))
}

fn object(fields: impl IntoIterator<Item = (&'static str, Option<Value>)>) -> Map<String, Value> {
    fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

impl Said {
    fn body(self) -> Result<Map<String, Value>, Failure> {
        let word = |text: Option<String>| text.map(Value::from);
        let policy = object([
            ("max_retries", self.max_retries.map(|n| json!(n))),
            ("backoff", argument::json("--backoff", self.backoff.as_deref())?),
            ("on_exhausted", word(self.on_exhausted)),
        ]);
        let grants = |names: Vec<String>| (!names.is_empty()).then(|| json!(names));
        let authority = object([
            ("agents", grants(self.grant_agent)),
            ("ventures", grants(self.grant_venture)),
        ]);
        let whole = |map: Map<String, Value>| (!map.is_empty()).then_some(Value::Object(map));
        Ok(object([
            ("role", word(self.role)),
            ("parent", word(self.parent)),
            ("venture", word(self.venture)),
            ("portfolio", word(self.portfolio)),
            ("queue", word(self.queue)),
            ("worker_type", word(self.worker_type)),
            ("executor", argument::json("--executor", self.executor.as_deref())?),
            ("authority", whole(authority)),
            ("retry_policy", whole(policy)),
        ]))
    }
}

pub(super) async fn run(arguments: Arguments, context: &Context) -> Result<u8, Failure> {
    let client = context.client(&arguments.connection)?;
    let call = match arguments.action {
        Action::Create { name, said } => {
            let mut body = said.body()?;
            body.insert("name".into(), name.into());
            Call::post("/v1/agents", Value::Object(body))
        }
        Action::Set { name, said, unset } => {
            let mut body = said.body()?;
            body.extend(unset.into_iter().map(|field| (field, Value::Null)));
            Call::patch(path(&name), Value::Object(body))
        }
        Action::Show { name } => Call::get(path(&name)),
        Action::Archive { name } => Call::post(format!("{}/archive", path(&name)), json!({})),
        Action::Restore { name } => Call::post(format!("{}/restore", path(&name)), json!({})),
        Action::Tree { name, archived } => return tree(&client, context, name, archived).await,
        Action::List { which, page } => {
            let listing = Listing {
                path: "/v1/agents",
                filters: vec![
                    ("role", which.role),
                    ("parent", which.parent),
                    ("venture", which.venture),
                    ("portfolio", which.portfolio),
                    ("archived", which.archived.then(|| "true".into())),
                ],
                page,
                headings: &["NAME", "ROLE", "PARENT", "VENTURE", "QUEUE", "RETRIES", "CHANGED"],
                row,
                empty: "no agents; create one with `windlass agent create NAME --role crew`",
            };
            return listing.show(&client, context).await;
        }
    };
    let answer = client.call(&call, Patience::SHORT).await?;
    let agent = &answer.body;
    if context.json {
        print::json_line(agent);
        return Ok(0);
    }
    // A name with a slip in it makes an agent that nobody meant.
    if let Some(change) = answer.header("windlass-change") {
        let done = match change {
            "created" => "created a new agent",
            "unchanged" => "nothing changed of the agent",
            _ => "changed the agent",
        };
        print::note(&format!("{done} `{}`", print::safe(text(&agent["name"]))));
    }
    let policy = &agent["retry_policy"];
    for (name, value) in [
        ("name", &agent["name"]),
        ("role", &agent["role"]),
        ("parent", &agent["parent"]),
        ("venture", &agent["venture"]),
        ("portfolio", &agent["portfolio"]),
        ("queue", &agent["queue"]),
        ("worker_type", &agent["worker_type"]),
        ("executor", &agent["executor"]),
        ("may_tell", &agent["authority"]["agents"]),
        ("may_tell_of", &agent["authority"]["ventures"]),
        ("max_retries", &policy["max_retries"]),
        ("on_exhausted", &policy["on_exhausted"]),
        ("backoff", &policy["backoff"]),
        ("updated_at", &agent["updated_at"]),
        ("archived_at", &agent["archived_at"]),
        ("unreadable", &agent["unreadable"]),
    ] {
        let shown = match value {
            Value::Null => continue,
            Value::Array(items) if items.is_empty() => continue,
            Value::String(text) => print::safe(text).into_owned(),
            other => print::json(other),
        };
        let heading = print::painted(&format!("{name:<14}"), Paint::Bold);
        print::line(&format!("{heading}{shown}"));
    }
    Ok(0)
}

fn row(agent: &Value) -> Vec<Cell> {
    let policy = &agent["retry_policy"];
    vec![
        Cell::new(text(&agent["name"])),
        Cell::new(text(&agent["role"])),
        Cell::new(text(&agent["parent"])),
        Cell::new(text(&agent["venture"])),
        Cell::new(text(&agent["queue"])),
        Cell::new(&policy["max_retries"].as_i64().map_or(String::new(), |n| n.to_string())),
        Cell::new(&age(&agent["updated_at"])),
    ]
}

/// Every agent, page by page.
async fn all(client: &Client, archived: bool) -> Result<Vec<Value>, Failure> {
    let mut agents = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let mut call = Call::get("/v1/agents").query("limit", 1_000).query("archived", archived);
        if let Some(cursor) = &cursor {
            call = call.query("cursor", cursor);
        }
        let page = client.call(&call, Patience::SHORT).await?.body;
        agents.extend(page["items"].as_array().cloned().unwrap_or_default());
        match page["next_cursor"].as_str() {
            Some(next) => cursor = Some(next.to_owned()),
            None => return Ok(agents),
        }
    }
}

async fn tree(
    client: &Client,
    context: &Context,
    root: Option<String>,
    archived: bool,
) -> Result<u8, Failure> {
    let agents = all(client, archived).await?;
    let lines = grow(&agents, root.as_deref());
    if context.json {
        let items: Vec<Value> =
            lines.iter().map(|line| json!({ "name": line.name, "depth": line.depth })).collect();
        print::json_line(&json!({ "items": items }));
        return Ok(0);
    }
    if let (true, Some(root)) = (lines.is_empty(), &root) {
        let told = format!("there is no agent `{}`", print::safe(root));
        let hint = "`windlass agent list` shows all agents";
        return Err(Failure::new("not_found", told, 1).hint(hint));
    }
    if lines.is_empty() {
        print::note("no agents; create one with `windlass agent create NAME --role ceo`");
    }
    for line in lines {
        print::line(&format!("{}{}", line.branch, print::safe(&line.shown)));
    }
    Ok(0)
}

struct Line {
    name: String,
    depth: usize,
    branch: String,
    shown: String,
}

/// The agents as a tree. One whose parent is not among them stands at the top.
fn grow(agents: &[Value], root: Option<&str>) -> Vec<Line> {
    let names: BTreeSet<&str> = agents.iter().map(|agent| text(&agent["name"])).collect();
    let mut below: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for agent in agents {
        let parent = text(&agent["parent"]);
        let parent = if names.contains(parent) { parent } else { "" };
        below.entry(parent).or_default().push(agent);
    }
    let mut lines = Vec::new();
    match root {
        Some(root) => {
            if let Some(agent) = agents.iter().find(|agent| text(&agent["name"]) == root) {
                climb(agent, &below, (String::new(), String::new()), 0, &mut lines);
            }
        }
        None => {
            for agent in below.get("").into_iter().flatten() {
                climb(agent, &below, (String::new(), String::new()), 0, &mut lines);
            }
        }
    }
    lines
}

fn climb(
    agent: &Value,
    below: &BTreeMap<&str, Vec<&Value>>,
    (branch, indent): (String, String),
    depth: usize,
    lines: &mut Vec<Line>,
) {
    let name = text(&agent["name"]);
    let words = ["role", "venture"].map(|field| text(&agent[field]));
    let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
    let mut shown = name.to_owned();
    if !words.is_empty() {
        shown.push_str(&format!(" ({})", words.join(", ")));
    }
    if !agent["archived_at"].is_null() {
        shown.push_str(" [archived]");
    }
    lines.push(Line { name: name.to_owned(), depth, branch, shown });
    let children = below.get(name).map(Vec::as_slice).unwrap_or_default();
    for (i, child) in children.iter().enumerate() {
        let is_last = i + 1 == children.len();
        let (fork, rail) = if is_last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        let next = (format!("{indent}{fork}"), format!("{indent}{rail}"));
        climb(child, below, next, depth + 1, lines);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_company_grows_from_its_ceo() {
        let agent = |name: &str, role: &str, parent: Option<&str>| {
            let archived_at = Value::Null;
            json!({ "name": name, "role": role, "parent": parent, "archived_at": archived_at })
        };
        let agents = [
            agent("ada", "ceo", None),
            agent("bob", "vp", Some("ada")),
            agent("cid", "vp", Some("ada")),
            agent("dot", "crew", Some("bob")),
            agent("eve", "crew", Some("gone")),
        ];
        let shown = |root: Option<&str>| -> Vec<String> {
            grow(&agents, root).iter().map(|l| format!("{}{}", l.branch, l.shown)).collect()
        };
        let whole = ["ada (ceo)", "├─ bob (vp)", "│  └─ dot (crew)", "└─ cid (vp)", "eve (crew)"];
        assert_eq!(shown(None), whole);
        assert_eq!(shown(Some("bob")), ["bob (vp)", "└─ dot (crew)"]);
        assert!(shown(Some("nobody")).is_empty());
    }
}
