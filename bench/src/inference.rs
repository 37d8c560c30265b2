//! Inference over HTTP on loopback: how soon the first delta comes, what each delta is delayed by,
//! and whether everybody is answered when a provider dies.
//!
//! Invariant: the upstream is instant and in this process, so what is measured is the queue and the
//! two hops around it; the provider is the real `windlass provider`, or a session of our own.

mod reader;
mod upstream;

use crate::Result;
use crate::arguments::{Engine, Sizes};
use crate::load;
use crate::place::Place;
use crate::reference;
use crate::server::{Provider, Server};
use crate::table::{Table, met, quantile, times};
use reader::{Read, ask};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use upstream::{Pace, Upstream};

const POOL: &str = "fast";
/// Between two requests, and between two commits.
const IDLE: Duration = Duration::from_millis(20);
/// The key that the nodes of a cluster share; nobody else reaches them.
const CLUSTER_KEY: &str = "bench-cluster-key";

pub async fn run(engine: &Engine, sizes: &Sizes) -> Result<()> {
    first_delta(engine, sizes).await?;
    every_delta(engine, sizes).await?;
    waiters(engine, sizes).await
}

async fn post(http: &reqwest::Client, url: String, body: &Value) -> Result<Value> {
    Ok(http.post(url).json(body).send().await?.error_for_status()?.json().await?)
}

/// Idle: from the request to its first delta, less what the same takes at the upstream itself,
/// beside one synced commit: what the queue adds. And beside the least that a durable queue can
/// add: the rows of a hand-over, written by hand, and the hop to its provider, which is one more
/// exchange like the one with the upstream.
async fn first_delta(engine: &Engine, sizes: &Sizes) -> Result<()> {
    let place = Place::create(engine).await?;
    let server = Server::start(&place.database_url()).await?;
    let http = reqwest::Client::new();
    let mut commits = Vec::new();
    let mut direct = Vec::new();
    let beside = Place::create(engine).await?;
    let (floor, mut least) = (beside.kept(1).await?, Vec::new());
    let mut rows = Vec::new();
    for name in ["a session of our own", "`windlass provider`"] {
        let pool = if name.starts_with('a') { "own" } else { POOL };
        let upstream = Upstream::start(Pace::AtOnce).await?;
        let mut provider = None;
        let mut answering = JoinSet::new();
        if pool == "own" {
            answering.spawn(answer_all(http.clone(), server.url.clone(), pool));
        } else {
            provider = Some(Provider::start(&server.url, pool, &upstream.url(), 4)?);
        }
        reader::is_bound(&server.url, pool).await?;
        let mut spent = Vec::new();
        for round in 0..sizes.inferences.div_ceil(10) {
            for _ in 0..10 {
                // The claim of the last one's successor waits by then.
                tokio::time::sleep(IDLE).await;
                let through = time_to_delta(&http, &server.url, pool).await?;
                // As idle as before, in the same moment.
                tokio::time::sleep(IDLE).await;
                let at_upstream = time_to_delta(&http, &upstream.root(), pool).await?;
                if round > 0 || sizes.inferences < 20 {
                    spent.push(through);
                    direct.push(at_upstream);
                }
            }
            commits.extend(reference::commit_times(engine, 10, IDLE).await?);
            for task in load::tasks(10, None)? {
                tokio::time::sleep(IDLE).await;
                let asked = Instant::now();
                floor.hand_over(&task).await?;
                least.push(asked.elapsed());
            }
        }
        rows.push((name, spent));
        drop(provider);
    }
    server.stop().await?;
    place.remove().await?;
    floor.close();
    beside.remove().await?;
    let (commit, direct) = (quantile(&mut commits, 0.5), quantile(&mut direct, 0.5));
    let mut table = Table::new(&[
        "idle, over HTTP, instant upstream",
        "p50 µs",
        "p99 µs",
        "the upstream itself p50 µs",
        "one synced commit p50 µs",
        "what the queue adds, in commits",
        "target",
    ]);
    let least = quantile(&mut least, 0.5);
    table.row(vec![
        "its rows by hand, and one more exchange".into(),
        format!("{:.0}", least + 2.0 * direct),
        String::new(),
        format!("{direct:.0}"),
        format!("{commit:.0}"),
        times((least + direct) / commit),
        String::new(),
    ]);
    for (name, mut spent) in rows {
        let (p50, p99) = (quantile(&mut spent, 0.5), quantile(&mut spent, 0.99));
        let ratio = (p50 - direct) / commit;
        table.row(vec![
            name.into(),
            format!("{p50:.0}"),
            format!("{p99:.0}"),
            format!("{direct:.0}"),
            format!("{commit:.0}"),
            times(ratio),
            met(ratio <= 3.0, "at most 3x"),
        ]);
    }
    table.print("Time to the first delta");
    Ok(())
}

/// From a request until its first delta is there.
async fn time_to_delta(http: &reqwest::Client, url: &str, pool: &str) -> Result<Duration> {
    let asked = Instant::now();
    let mut read = ask(http, url, pool, 1).await?;
    read.next().await?.ok_or("the stream ended before its first delta")?;
    let spent = asked.elapsed();
    read.rest().await?;
    Ok(spent)
}

/// A provider of our own: claims, posts one delta, finishes.
async fn answer_all(http: reqwest::Client, server: String, pool: &'static str) -> Result<()> {
    let session = json!({ "name": "bench", "pools": [pool], "slots": 4 });
    let session = post(&http, format!("{server}/v1/sessions"), &session).await?;
    let session = session["id"].as_str().ok_or("no session")?.to_owned();
    loop {
        let claim = json!({ "max": 1, "wait_ms": 20_000 });
        let taken = post(&http, format!("{server}/v1/sessions/{session}/claim"), &claim).await?;
        for held in taken["assignments"].as_array().into_iter().flatten() {
            let (task, lease) = (&held["task"]["id"], &held["lease_id"]);
            let id = task.as_str().unwrap_or_default();
            let delta = upstream::chunk("0", None);
            let deltas = json!({ "lease_id": lease, "offset": 0, "delta": delta });
            post(&http, format!("{server}/v1/tasks/{id}/deltas"), &deltas).await?;
            let whole = json!({ "choices": [{ "message": { "content": "0" } }] });
            let done = json!({ "task_id": task, "lease_id": lease, "outcome": "complete",
                "result": whole });
            let finish = json!({ "items": [done] });
            post(&http, format!("{server}/v1/sessions/{session}/finish"), &finish).await?;
        }
    }
}

/// What came of many streams at once.
#[derive(Default)]
struct Streamed {
    delays: Vec<Duration>,
    lost: usize,
    doubled: usize,
    unordered: usize,
}

/// Reads so many streams at once to their ends.
async fn stream_all(url: &str, upstream: &Upstream, sizes: &Sizes) -> Result<Streamed> {
    let (streams, deltas) = sizes.streams;
    let http = reqwest::Client::new();
    let mut running: JoinSet<Result<Read>> = JoinSet::new();
    for _ in 0..streams {
        let (http, url, began) = (http.clone(), url.to_owned(), upstream.began);
        running.spawn(async move {
            let mut read = ask(&http, &url, POOL, deltas).await?;
            read.all(began).await?;
            Ok(read)
        });
    }
    let mut streamed = Streamed::default();
    while let Some(read) = running.join_next().await {
        let read = read??;
        streamed.lost += read.lost(deltas);
        streamed.doubled += read.doubled();
        streamed.unordered += read.unordered();
        streamed.delays.extend(read.delays);
    }
    Ok(streamed)
}

/// Many streams at once: what each delta is delayed by, and whether all of them come. Beside it
/// the same streams from the upstream itself: what this machine delays them by with nothing
/// between.
async fn every_delta(engine: &Engine, sizes: &Sizes) -> Result<()> {
    let mut table = Table::new(&[
        "streams x deltas",
        "nodes between",
        "p50 ms",
        "p99 ms",
        "target for p99",
        "lost",
        "doubled",
        "out of order",
    ]);
    let (streams, deltas) = sizes.streams;
    let mut row = |nodes: usize, mut streamed: Streamed| {
        let p50 = quantile(&mut streamed.delays, 0.5) / 1e3;
        let p99 = quantile(&mut streamed.delays, 0.99) / 1e3;
        let Streamed { lost, doubled, unordered, .. } = streamed;
        table.row(vec![
            format!("{streams} x {deltas}"),
            nodes.to_string(),
            format!("{p50:.2}"),
            format!("{p99:.2}"),
            if nodes == 0 { "–".into() } else { met(p99 < 20.0, "under 20 ms") },
            lost.to_string(),
            doubled.to_string(),
            unordered.to_string(),
        ]);
    };
    let pace = Pace::Every(Duration::from_millis(10));
    let upstream = Upstream::start(pace).await?;
    row(0, stream_all(upstream.url().trim_end_matches("/v1"), &upstream, sizes).await?);
    let nodes = if matches!(engine, Engine::Postgres { .. }) { 2 } else { 1 };
    for nodes in 1..=nodes {
        let place = Place::create(engine).await?;
        let first = Server::start_node(&place.database_url(), CLUSTER_KEY).await?;
        let second = match nodes {
            1 => None,
            _ => Some(Server::start_node(&place.database_url(), CLUSTER_KEY).await?),
        };
        let upstream = Upstream::start(pace).await?;
        let provider = Provider::start(&first.url, POOL, &upstream.url(), streams)?;
        // Whoever reads is where the deltas are not.
        let server = second.as_ref().unwrap_or(&first);
        reader::is_bound(&server.url, POOL).await?;
        let streamed = stream_all(&server.url, &upstream, sizes).await?;
        drop(provider);
        drop(first);
        drop(second);
        place.remove().await?;
        row(nodes, streamed);
    }
    table.print("Delay of each delta, every 10 ms a stream, through `windlass provider`");
    Ok(())
}

/// Somebody waits for each task; the provider that holds some is killed, and another one binds.
async fn waiters(engine: &Engine, sizes: &Sizes) -> Result<()> {
    let place = Place::create(engine).await?;
    let server = Server::start(&place.database_url()).await?;
    let http = reqwest::Client::new();
    let silent = Upstream::start(Pace::Never).await?;
    let dying = Provider::start(&server.url, POOL, &silent.url(), 64)?;
    reader::is_bound(&server.url, POOL).await?;
    let payload = json!({ "endpoint": "chat.completions", "body": reader::body(POOL, 1) });
    let task = json!({ "kind": "inference", "pool": POOL, "payload": payload });
    let mut ids = Vec::new();
    for batch in (0..sizes.waiters).collect::<Vec<_>>().chunks(500) {
        let tasks = json!({ "tasks": vec![task.clone(); batch.len()] });
        let made = post(&http, format!("{}/v1/tasks/batch", server.url), &tasks).await?;
        let made = made["results"].as_array().ok_or("no results")?;
        ids.extend(made.iter().filter_map(|made| Some(made["id"].as_str()?.to_owned())));
    }
    let mut running: JoinSet<Result<bool>> = JoinSet::new();
    for id in ids.clone() {
        let (http, url) = (http.clone(), server.url.clone());
        running.spawn(async move {
            let path = format!("{url}/v1/tasks/{id}/wait?timeout_ms=300000");
            let task: Value = http.get(path).send().await?.error_for_status()?.json().await?;
            Ok(task["status"] == "completed" && task["id"] == id.as_str())
        });
    }
    reader::until_waited(&server.url, sizes.waiters).await?;
    drop(dying);
    let killed = Instant::now();
    let upstream = Upstream::start(Pace::AtOnce).await?;
    let _living = Provider::start(&server.url, POOL, &upstream.url(), 64)?;
    let mut answered = 0;
    while let Some(done) = running.join_next().await {
        answered += usize::from(done??);
    }
    let took = killed.elapsed();
    let mut twice = 0;
    for id in &ids {
        let path = format!("{}/v1/tasks/{id}/history?limit=100", server.url);
        let history: Value = http.get(path).send().await?.error_for_status()?.json().await?;
        let rows = history["items"].as_array().into_iter().flatten();
        twice += usize::from(rows.filter(|row| row["event"] == "complete").count() != 1);
    }
    server.stop().await?;
    place.remove().await?;
    let mut table = Table::new(&["waiters", "answered", "not exactly once", "s", "target"]);
    let all = answered == sizes.waiters && twice == 0;
    table.row(vec![
        sizes.waiters.to_string(),
        answered.to_string(),
        twice.to_string(),
        format!("{:.1}", took.as_secs_f64()),
        met(all, "all, each once"),
    ]);
    table.print("Waiters whose provider is killed while another binds");
    Ok(())
}
