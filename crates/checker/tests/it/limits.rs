//! Limits under faults: nodes are killed and workers fall silent while a hundred ventures with
//! fifty tasks each want to run, and somebody who is none of them counts what is active, all the
//! time.

use crate::cluster::TestDatabase;
use crate::scenario::Scenario;
use serde_json::{Value, json};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::task::{JoinHandle, JoinSet};
use uuid::Uuid;
use windlass::client::{Call, Client, Patience};
use windlass_checker::harness::Server;
use windlass_checker::seed::Seed;

const VENTURES: usize = 100;
const TASKS_EACH: usize = 50;
const STAGES: usize = 12;
const WORKERS: usize = 12;
/// What a worker takes at once: all together want more than all may have.
const SLOTS: usize = 25;
/// Short, so that what a silent worker held is taken over while the run lasts.
const LEASE_MS: i64 = 1_500;
/// The limits of a fresh installation.
const MOST: [usize; 3] = [200, 10, 20];

#[tokio::test(flavor = "multi_thread")]
async fn three_nodes_that_are_killed_never_exceed_a_limit_on_postgresql() {
    let database = TestDatabase::create();
    let url = database.url();
    let sql = url.clone();
    watched("limits-postgres", &url, 3, move |text| {
        Command::new("psql")
            .args(["-X", "-q", "-A", "-t", "-F", "|", "-d", &sql, "-c", text])
            .output()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed_never_exceeds_a_limit_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("limits.db");
    let url = format!("sqlite:{}", file.display());
    watched("limits-sqlite", &url, 1, move |text| {
        Command::new("sqlite3").args(["-cmd", ".timeout 10000"]).arg(&file).arg(text).output()
    })
    .await;
}

/// Runs SQL as a person would.
type Ask = dyn Fn(&str) -> std::io::Result<std::process::Output> + Send + Sync;

fn ask(database: &Ask, sql: &str) -> String {
    let output = database(sql).expect("psql and sqlite3 are installed");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{sql}: {told}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

async fn watched(
    name: &'static str,
    url: &str,
    count: usize,
    database: impl Fn(&str) -> std::io::Result<std::process::Output> + Send + Sync + 'static,
) {
    let database: Arc<Ask> = Arc::new(database);
    let mut scenario = Scenario::new(name);
    let mut nodes = vec![Server::start(url, scenario.folder.path()).await];
    // The active limits are those of a fresh installation; all tasks are to wait at once.
    ask(&*database, "UPDATE limit_rule SET max_pending = NULL");
    nodes[0].stop().await;
    nodes[0].run().await;
    while nodes.len() < count {
        nodes.push(Server::start(url, scenario.folder.path()).await);
    }
    let urls: Vec<String> = nodes.iter().map(Server::url).collect();
    for venture in 0..VENTURES {
        submit(&urls, venture, Patience::LONG).await.expect("a batch is taken");
    }
    let (stop, watch) = begin_watch(Arc::clone(&database));
    let seed = Seed::new(scenario.seed);
    let mut workers = JoinSet::new();
    for worker in 0..WORKERS {
        let (stop, urls) = (Arc::clone(&stop), urls.clone());
        workers.spawn(work(worker, urls, seed.of(&format!("worker {worker}")), stop));
    }
    workers.spawn(refill(urls, Arc::clone(&stop), Arc::clone(&database)));
    scenario.begin();
    let mut killed = 0;
    while scenario.next_fault(800, 2_000).await {
        let node = &mut nodes[killed % count];
        scenario.note(&format!("{} is killed", node.url()));
        node.kill();
        killed += 1;
        scenario.pause(100, 800).await;
        node.run().await;
    }
    stop.store(true, Ordering::SeqCst);
    while workers.join_next().await.is_some() {}
    let seen = watch.await.expect("the watch ends");
    let done = ask(&*database, "SELECT count(*) FROM task WHERE status = 'completed'");
    let (samples, most) = (seen.samples, seen.most);
    println!("{name}: {killed} kills, {samples} samples, most active {most:?}, {done} completed");
    assert!(seen.broken.is_empty(), "limits {MOST:?} were exceeded: {:?}", seen.broken);
    // Otherwise the run says nothing.
    assert!(most[0] > MOST[0] / 2 && done != "0", "{most:?} at most, {done} completed");
    scenario.folder.forget();
}

async fn submit(
    urls: &[String],
    venture: usize,
    patience: Patience,
) -> Result<(), windlass::client::Error> {
    let task = |n: usize| {
        json!({
            "queue": "limits", "payload": n, "venture": format!("venture {}", venture % VENTURES),
            "stage": format!("stage {}", (venture + n) % STAGES),
        })
    };
    let tasks: Vec<Value> = (0..TASKS_EACH).map(task).collect();
    let client = Client::new(&urls[venture % urls.len()], None)?;
    let call = Call::post("/v1/tasks/batch", json!({ "tasks": tasks }));
    client.call(&call, patience).await.map(drop)
}

/// Keeps everybody waiting for the limits however long the run is: what was done comes again.
async fn refill(urls: Vec<String>, stop: Arc<AtomicBool>, database: Arc<Ask>) {
    let mut venture = 0;
    while !stop.load(Ordering::SeqCst) {
        let waiting = tokio::task::block_in_place(|| ask(&*database, WAITING));
        let waiting: usize = waiting.parse().expect("a count");
        for _ in 0..(VENTURES * TASKS_EACH).saturating_sub(waiting) / TASKS_EACH {
            let _ = submit(&urls, venture, Patience::NONE).await;
            venture += 1;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

const WAITING: &str = "SELECT count(*) FROM task WHERE status IN ('pending', 'retry')";

/// Claims and finishes until it is told to stop; now and then it forgets what it holds, as if it
/// had been killed. A node that is gone is left for the next.
async fn work(worker: usize, urls: Vec<String>, mut chance: Seed, stop: Arc<AtomicBool>) {
    let mut lives = 0;
    while !stop.load(Ordering::SeqCst) {
        lives += 1;
        let url = &urls[(worker + lives) % urls.len()];
        let Ok(client) = Client::new(url, None) else { continue };
        let _ = live(&client, &format!("worker {worker}"), &mut chance, &stop).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn live(
    client: &Client,
    name: &str,
    chance: &mut Seed,
    stop: &AtomicBool,
) -> Result<(), windlass::client::Error> {
    let session = json!({
        "name": name, "queues": ["limits"], "slots": SLOTS, "lease_ms": LEASE_MS,
    });
    let call = Call::post("/v1/sessions", session);
    let session = client.call(&call, Patience::NONE).await?.body;
    let session = session["id"].as_str().unwrap_or_default().to_owned();
    while !stop.load(Ordering::SeqCst) {
        let body = json!({ "max": SLOTS, "wait_ms": 200, "claim_id": Uuid::now_v7() });
        let call = Call::post(format!("/v1/sessions/{session}/claim"), body);
        let claimed = client.call(&call, Patience::NONE).await?.body;
        let held = claimed["assignments"].as_array().cloned().unwrap_or_default();
        tokio::time::sleep(Duration::from_millis(20 + chance.below(200))).await;
        if chance.below(20) == 0 {
            return Ok(());
        }
        let item = |assignment: &Value| {
            json!({
                "task_id": assignment["task"]["id"], "lease_id": assignment["lease_id"],
                "outcome": "complete",
            })
        };
        if !held.is_empty() {
            let items: Vec<Value> = held.iter().map(item).collect();
            let path = format!("/v1/sessions/{session}/finish");
            client.call(&Call::post(&path, json!({ "items": items })), Patience::NONE).await?;
        }
    }
    Ok(())
}

/// What the watch saw.
#[derive(Default)]
struct Seen {
    samples: usize,
    /// The most that were active at once: in all, of a venture, of a stage.
    most: [usize; 3],
    broken: Vec<[usize; 3]>,
}

/// One statement is one moment: what it counts was active at the same time.
const ACTIVE: &str = "
    WITH active AS (
        SELECT venture, stage FROM task WHERE status IN ('claimed', 'running'))
    SELECT (SELECT count(*) FROM active),
        (SELECT coalesce(max(n), 0) FROM (SELECT count(*) AS n FROM active GROUP BY venture) v),
        (SELECT coalesce(max(n), 0) FROM (SELECT count(*) AS n FROM active GROUP BY stage) s)";

fn begin_watch(database: Arc<Ask>) -> (Arc<AtomicBool>, JoinHandle<Seen>) {
    let stop = Arc::new(AtomicBool::new(false));
    let until = Arc::clone(&stop);
    let watch = tokio::task::spawn_blocking(move || {
        let mut seen = Seen::default();
        while !until.load(Ordering::SeqCst) {
            let text = ask(&*database, ACTIVE);
            let counts: Vec<usize> = text.split('|').filter_map(|n| n.parse().ok()).collect();
            let Ok(counts) = <[usize; 3]>::try_from(counts) else { panic!("{text}") };
            seen.samples += 1;
            for (most, count) in seen.most.iter_mut().zip(counts) {
                *most = count.max(*most);
            }
            if counts.iter().zip(MOST).any(|(count, most)| *count > most) {
                seen.broken.push(counts);
            }
        }
        seen
    });
    (stop, watch)
}
