//! Lifecycles over HTTP beside the same lifecycles in process: 64 connections, batches of 100.

use crate::Result;
use crate::arguments::{Engine, Sizes};
use crate::load::{self, QUEUE, RESULT};
use crate::place::Place;
use crate::server::Server;
use crate::table::{Table, median, met, percent, rate, whole};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use uuid::Uuid;
use windlass::engine::{ClaimRequest, SessionRequest};
use windlass::{Engine as Windlass, Options};
use windlass_domain::id::ChangeId;
use windlass_store::session::Routes;
use windlass_store::task::{Finish, Finishing};

const CONNECTIONS: usize = 64;
const BATCH: usize = 100;
/// Of the rate in process.
const TARGET: f64 = 0.6;

pub async fn run(engine: &Engine, sizes: &Sizes) -> Result<()> {
    let rounds = sizes.http_batches;
    let (mut ours, mut shares, mut processes) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..3 {
        let inside = in_process(engine, rounds).await?;
        let http = over_http(engine, rounds).await?;
        ours.push(http);
        processes.push(inside);
        shares.push(http / inside);
    }
    let share = median(shares);
    let mut table = Table::new(&["over HTTP, tasks/s", "in process, tasks/s", "share", "target"]);
    let target = met(share >= TARGET, "at least 60 %");
    table.row(vec![whole(median(ours)), whole(median(processes)), percent(share), target]);
    table.print("Lifecycles, 64 connections, batches of 100");
    Ok(())
}

async fn in_process(engine: &Engine, rounds: usize) -> Result<f64> {
    let place = Place::create(engine).await?;
    let windlass = Windlass::start(place.open()?.store().clone(), Options::default()).await?;
    load::raise_limits(&windlass).await?;
    let mut callers: JoinSet<Result<()>> = JoinSet::new();
    let started = Instant::now();
    for _ in 0..CONNECTIONS {
        let windlass = windlass.clone();
        callers.spawn(async move {
            let request = SessionRequest {
                name: "bench".into(),
                routes: Routes { queues: vec![QUEUE.into()], ..Routes::default() },
                slots: Some(BATCH as i32),
                ..SessionRequest::default()
            };
            let session = windlass.register(request).await?.id;
            for _ in 0..rounds {
                for outcome in windlass.submit(load::tasks(BATCH, None)?).await {
                    outcome?;
                }
                let mut left = BATCH;
                while left > 0 {
                    let claim = ClaimRequest {
                        max: left,
                        wait: Duration::from_secs(5),
                        start: true,
                        claim: None,
                        tasks: None,
                    };
                    let held = windlass.claim(session, claim).await?;
                    left -= held.len();
                    let finishes = held.iter().map(|held| Finish {
                        task: held.task.id,
                        lease: held.lease_id,
                        how: Finishing::Complete(Some(RESULT.into())),
                        usage: None,
                        actor: "bench".into(),
                        reason: None,
                        change: ChangeId(Uuid::now_v7()),
                    });
                    for outcome in windlass.finish(finishes.collect()).await {
                        outcome?;
                    }
                }
            }
            Ok(())
        });
    }
    while let Some(done) = callers.join_next().await {
        done??;
    }
    let rate = rate(CONNECTIONS * rounds * BATCH, started.elapsed());
    windlass.shutdown(Duration::from_secs(5)).await;
    place.remove().await?;
    Ok(rate)
}

async fn over_http(engine: &Engine, rounds: usize) -> Result<f64> {
    let place = Place::create(engine).await?;
    let server = Server::start(&place.database_url()).await?;
    let mut callers: JoinSet<Result<()>> = JoinSet::new();
    let text = "x".repeat(load::PAYLOAD_BYTES - r#"{"text":""}"#.len());
    let task = json!({ "queue": QUEUE, "payload": { "text": text } });
    let batch = json!({ "tasks": vec![task; BATCH], "atomic": false }).to_string();
    let started = Instant::now();
    for _ in 0..CONNECTIONS {
        let (url, batch) = (server.url.clone(), batch.clone());
        callers.spawn(async move {
            // One connection a client.
            let http = reqwest::Client::builder().pool_max_idle_per_host(1).build()?;
            let post = |path: String, body: String| {
                let request = http.post(format!("{url}{path}")).body(body);
                request.header("content-type", "application/json").send()
            };
            let session = json!({ "name": "bench", "queues": [QUEUE], "slots": BATCH });
            let session = post("/v1/sessions".into(), session.to_string()).await?;
            let session: Value = session.error_for_status()?.json().await?;
            let session = session["id"].as_str().ok_or("no session")?.to_owned();
            for _ in 0..rounds {
                let sent = post("/v1/tasks/batch".into(), batch.clone()).await?;
                sent.error_for_status()?.bytes().await?;
                let mut left = BATCH;
                while left > 0 {
                    let claim = json!({ "max": left, "wait_ms": 5_000 }).to_string();
                    let held = post(format!("/v1/sessions/{session}/claim"), claim).await?;
                    let held: Value = held.error_for_status()?.json().await?;
                    let held = held["assignments"].as_array().ok_or("no assignments")?;
                    left -= held.len();
                    let items: Vec<Value> = (held.iter())
                        .map(|held| {
                            json!({ "task_id": held["task"]["id"], "lease_id": held["lease_id"],
                                    "outcome": "complete", "result": { "ok": true } })
                        })
                        .collect();
                    let finish = json!({ "items": items }).to_string();
                    let done = post(format!("/v1/sessions/{session}/finish"), finish).await?;
                    done.error_for_status()?.bytes().await?;
                }
            }
            Ok(())
        });
    }
    while let Some(done) = callers.join_next().await {
        done??;
    }
    let rate = rate(CONNECTIONS * rounds * BATCH, started.elapsed());
    server.stop().await?;
    place.remove().await?;
    Ok(rate)
}
