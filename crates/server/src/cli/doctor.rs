//! `windlass doctor`: what is wrong here, and what to do about it.
//!
//! Invariant: it only asks. Each check says what it found, also where nothing is wrong, so that
//! silence is never taken for health; [`Level`] decides the exit code and nothing else does.
//! Absent: rules of its own. It reads what other commands show, and names the one to go on with.

use super::task::text;
use super::{Connection, Context, Failure};
use crate::client::{Call, Client, Patience};
use crate::print::{self, Cell, Paint};
use clap::Args;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Args)]
#[command(after_help = "It asks the server and changes nothing.

Exit codes: 0 nothing is wrong, though something may deserve a look; 1 something is wrong;
69 nobody answers.")]
pub(super) struct Arguments {
    #[command(flatten)]
    connection: Connection,
}

/// How much a finding matters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
enum Level {
    Ok,
    Warning,
    Problem,
}

impl Level {
    fn cell(self) -> Cell {
        match self {
            Level::Ok => Cell::painted("ok", Paint::Green),
            Level::Warning => Cell::painted("warning", Paint::Yellow),
            Level::Problem => Cell::painted("problem", Paint::Red),
        }
    }
}

/// What one check found.
#[derive(Serialize)]
struct Finding {
    check: &'static str,
    level: Level,
    found: String,
    /// What to do, where there is something to do.
    advice: Option<String>,
}

fn ok(check: &'static str, found: impl Into<String>) -> Finding {
    Finding { check, level: Level::Ok, found: found.into(), advice: None }
}

fn warning(check: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Finding {
    let (found, advice) = (found.into(), Some(advice.into()));
    Finding { check, level: Level::Warning, found, advice }
}

fn problem(check: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Finding {
    Finding { level: Level::Problem, ..warning(check, found, advice) }
}

pub(super) async fn run(arguments: Arguments, context: &Context) -> Result<u8, Failure> {
    let client = context.client(&arguments.connection)?;
    client.call(&Call::get("/healthz"), Patience::SHORT).await?;
    let mut findings = vec![ok("server", format!("{} answers", client.server()))];
    findings.extend(settings(context)?);
    match client.call(&Call::get("/readyz"), Patience::NONE).await {
        Ok(_) => findings.extend(look(&client).await?),
        Err(error) => findings.push(problem(
            "readiness",
            format!("it is not ready: {error}"),
            "its log says more; a node that is told to end, or whose database is away, is not",
        )),
    }
    let worst = findings.iter().map(|finding| finding.level).max().unwrap_or(Level::Ok);
    if context.json {
        print::json_line(&json!({ "healthy": worst < Level::Problem, "checks": findings }));
    } else {
        show(&findings);
    }
    Ok(u8::from(worst == Level::Problem))
}

fn show(findings: &[Finding]) {
    let row = |finding: &Finding| {
        vec![Cell::new(finding.check), finding.level.cell(), Cell::whole(&finding.found)]
    };
    print::table(&["CHECK", "", "FOUND"], &findings.iter().map(row).collect::<Vec<_>>());
    let advised: Vec<_> = findings.iter().filter(|finding| finding.advice.is_some()).collect();
    if advised.is_empty() {
        print::line("\nNothing is wrong.");
        return;
    }
    print::line("");
    for finding in advised {
        let heading = print::painted(finding.check, Paint::Bold);
        let advice = finding.advice.as_deref().unwrap_or_default();
        print::line(&format!("{heading}: {}", print::safe(advice)));
    }
}

/// What this program was told that it does not understand.
fn settings(context: &Context) -> Result<Vec<Finding>, Failure> {
    let advice = "`windlass config` shows every setting and where it came from";
    let warnings = context.config(Vec::new())?.warnings;
    Ok(warnings.into_iter().map(|told| warning("settings", told, advice)).collect())
}

/// Everything that a server tells which is ready.
async fn look(client: &Client) -> Result<Vec<Finding>, Failure> {
    let status = client.call(&Call::get("/v1/status"), Patience::SHORT).await?.body;
    let nodes = all(client, Call::get("/v1/nodes")).await?;
    let sessions = all(client, Call::get("/v1/sessions")).await?;
    let pools = all(client, Call::get("/v1/pools")).await?;
    let pauses = all(client, Call::get("/v1/pauses")).await?;
    let pressure = client.call(&Call::get("/v1/backpressure"), Patience::SHORT).await?.body;
    let mut findings = vec![ok("readiness", "the database answers, and the node takes work")];
    findings.push(version(&status, &nodes));
    findings.push(durability(&status));
    findings.extend(wake_ups(&status, &nodes));
    findings.extend(workers(&status, &sessions, &pools));
    findings.extend(pauses.iter().map(pause));
    findings.push(backpressure(&pressure));
    findings.extend(people(client).await?);
    Ok(findings)
}

/// A list as a whole.
async fn all(client: &Client, call: Call) -> Result<Vec<Value>, Failure> {
    let (mut items, mut cursor) = (Vec::new(), None::<String>);
    loop {
        let mut page = call.clone().query("limit", 1_000);
        if let Some(cursor) = &cursor {
            page = page.query("cursor", cursor);
        }
        let mut answer = client.call(&page, Patience::SHORT).await?.body;
        if let Value::Array(more) = answer["items"].take() {
            items.extend(more);
        }
        match answer["next_cursor"].as_str() {
            Some(next) => cursor = Some(next.to_owned()),
            None => return Ok(items),
        }
    }
}

fn version(status: &Value, nodes: &[Value]) -> Finding {
    let (ours, theirs) = (env!("CARGO_PKG_VERSION"), text(&status["version"]));
    let others: BTreeSet<&str> = nodes.iter().map(|node| text(&node["version"])).collect();
    let schema = status["schema"].as_i64().unwrap_or_default();
    let found = format!("{theirs} with schema {schema}; nodes: {}", nodes.len());
    if others.len() > 1 {
        let list = others.into_iter().collect::<Vec<_>>().join(", ");
        let advice = "bring all nodes to one version; during an upgrade this is as it should be";
        return warning("version", format!("nodes run {list}"), advice);
    }
    if ours != theirs {
        let advice = format!("this command is {ours}: use the one that came with the server");
        return warning("version", found, advice);
    }
    ok("version", found)
}

fn durability(status: &Value) -> Finding {
    let durability = &status["durability"];
    if durability["synced"] == false {
        let found = "commits are acknowledged before they are synced";
        let advice = "a crash of the machine loses acknowledged tasks: start the server without \
            --unsafe-durability, on a database with fsync, full_page_writes and \
            synchronous_commit on";
        return problem("durability", found, advice);
    }
    match durability["standby"].as_bool() {
        Some(false) => warning(
            "durability",
            "every commit is synced, on one machine",
            "if that machine is lost, so is what it acknowledged last: set \
             synchronous_standby_names in PostgreSQL, or back it up by its log",
        ),
        Some(true) => ok("durability", "every commit is synced, and waits for a standby"),
        None => ok("durability", "every commit is synced"),
    }
}

/// Nodes of one database should hear each other.
fn wake_ups(status: &Value, nodes: &[Value]) -> Option<Finding> {
    if status["database"] != "postgres" {
        return None;
    }
    if status["hears_other_nodes"] == true {
        return Some(ok("wake-ups", "what other nodes tell arrives"));
    }
    let found = "this node hears nobody and only polls";
    let advice = "behind a transaction pooler that is so: give the nodes a direct connection";
    Some(if nodes.len() > 1 { warning("wake-ups", found, advice) } else { ok("wake-ups", found) })
}

/// What is ready and has nobody who could take it.
fn workers(status: &Value, sessions: &[Value], pools: &[Value]) -> Vec<Finding> {
    let lists = sessions.iter().filter_map(|session| session["queues"].as_array());
    let served: BTreeSet<&str> = lists.flatten().map(text).collect();
    let lines = status["queues"].as_array().into_iter().flatten();
    let mut left: BTreeMap<&str, i64> = BTreeMap::new();
    for line in lines.filter(|line| line["kind"] != "inference") {
        let queue = text(&line["queue"]);
        if !served.contains(queue) {
            *left.entry(queue).or_default() += line["ready"].as_i64().unwrap_or_default();
        }
    }
    let mut findings: Vec<Finding> = left
        .into_iter()
        .map(|(queue, ready)| {
            let found = format!("{ready} ready in queue `{queue}`, and no worker is there");
            let advice = format!("start one: windlass worker --queue {queue} -- COMMAND");
            warning("workers", found, advice)
        })
        .collect();
    let alone = |pool: &&Value| pool["depth"] != 0 && pool["slots"] == 0;
    findings.extend(pools.iter().filter(alone).map(|pool| {
        let (name, depth) = (text(&pool["name"]), &pool["depth"]);
        let found = format!("{depth} wait in pool `{name}`, and no provider is there");
        let advice = format!("start one: windlass provider --pool {name} --upstream URL");
        warning("providers", found, advice)
    }));
    if findings.is_empty() {
        let found = format!("nothing ready waits for nobody; sessions: {}", sessions.len());
        findings.push(ok("workers", found));
    }
    findings
}

fn pause(pause: &Value) -> Finding {
    let scope = text(&pause["scope"]);
    let place = match pause["name"].as_str() {
        Some(name) => format!("{scope} `{name}`"),
        None => "everything".to_owned(),
    };
    let how = if pause["mode"] == "drain" { "takes nothing in" } else { "is paused" };
    let why = pause["reason"].as_str().map(|why| format!(": {why}")).unwrap_or_default();
    let found = format!("{place} {how} since {}{why}", text(&pause["since"]));
    let target = match pause["name"].as_str() {
        Some(name) => format!("{scope} {name}"),
        None => "--all".to_owned(),
    };
    warning("pauses", found, format!("let it go on: windlass resume {target}"))
}

fn backpressure(pressure: &Value) -> Finding {
    let level = text(&pressure["level"]);
    let active = format!("{} active", pressure["active"]);
    let found = format!("{level}: {active}, {} pending", pressure["queue_depth"]);
    let advice = pressure["recommendations"].as_array().into_iter().flatten().map(text);
    let advice = advice.collect::<Vec<_>>().join("; ");
    match level {
        "normal" => ok("backpressure", found),
        "elevated" => warning("backpressure", found, advice),
        _ => problem("backpressure", found, advice),
    }
}

/// What waits for a person.
async fn people(client: &Client) -> Result<Vec<Finding>, Failure> {
    let lists = [
        ("trouble", Call::get("/v1/poison"), "poisoned or stuck tasks", "windlass poison list"),
        (
            "dead letters",
            Call::get("/v1/dead-letters"),
            "messages that were given up",
            "windlass dead-letter list",
        ),
        (
            "alerts",
            Call::get("/v1/alerts").query("acknowledged", false),
            "alerts that nobody has seen",
            "windlass alert list --open",
        ),
        (
            "approvals",
            Call::get("/v1/approvals").query("status", "open"),
            "questions that wait for an answer",
            "windlass approval list",
        ),
        (
            "steps",
            Call::get("/v1/steps").query("status", "in_doubt"),
            "steps of which nobody knows whether they ran",
            "windlass step list --in-doubt",
        ),
    ];
    let mut findings = Vec::new();
    for (check, call, what, command) in lists {
        // One page tells enough: how many there are beyond it matters to nobody.
        let answer = client.call(&call.query("limit", 1_000), Patience::SHORT).await?.body;
        let count = answer["items"].as_array().map_or(0, Vec::len);
        let more = if answer["next_cursor"].is_string() { "more than " } else { "" };
        findings.push(match count {
            0 => ok(check, "nothing waits for a person"),
            _ => warning(check, format!("{what}: {more}{count}"), format!("see {command}")),
        });
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_that_are_not_synced_are_a_problem() {
        let told = |synced: bool, standby: Value| {
            durability(&json!({ "durability": { "synced": synced, "standby": standby } })).level
        };
        assert!(told(false, json!(true)) == Level::Problem);
        assert!(told(true, json!(false)) == Level::Warning);
        assert!(told(true, json!(true)) == Level::Ok && told(true, json!(null)) == Level::Ok);
    }

    #[test]
    fn nodes_of_two_versions_deserve_a_look() {
        let status = json!({ "version": env!("CARGO_PKG_VERSION"), "schema": 65 });
        let node = |version: &str| json!({ "version": version });
        let same = env!("CARGO_PKG_VERSION");
        assert!(version(&status, &[node(same), node(same)]).level == Level::Ok);
        let mixed = version(&status, &[node(same), node("0.0.1")]);
        assert!(mixed.level == Level::Warning && mixed.found.contains("0.0.1"));
        let newer = json!({ "version": "99.0.0", "schema": 99 });
        assert!(version(&newer, &[]).level == Level::Warning);
    }

    #[test]
    fn several_nodes_that_only_poll_deserve_a_look() {
        let status = json!({ "database": "postgres", "hears_other_nodes": false });
        let node = json!({ "version": "1" });
        let level = |nodes: &[Value]| wake_ups(&status, nodes).map(|found| found.level);
        assert!(level(std::slice::from_ref(&node)) == Some(Level::Ok));
        assert!(level(&[node.clone(), node]) == Some(Level::Warning));
        assert!(wake_ups(&json!({ "database": "sqlite" }), &[]).is_none());
    }
}
