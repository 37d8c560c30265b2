//! A Rust worker whose way to the server breaks at the worst moment.

use super::facts;
use super::server::Server;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use windlass::remote::Remote;
use windlass::sdk::{Ctx, Failure, Handlers};
use windlass::worker::WorkerOptions;

facts!(
    what_a_claim_took_whose_answer_was_lost_is_run,
    a_past_that_cannot_be_read_for_a_while_costs_no_attempt,
    what_a_worker_was_given_and_never_learnt_of_goes_back,
);

/// Longer than a client tries one call again.
const CUT: Duration = Duration::from_millis(1_500);

/// The server's address on a way that loses the first thing with this text in it, a question or an
/// answer, and lets nobody through for a while then.
async fn broken_way(server: &Server, text: &'static str) -> (String, Arc<AtomicBool>) {
    let target = server.url("").trim_start_matches("http://").to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (lost, is_cut) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let has_lost = Arc::clone(&lost);
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            if is_cut.load(Ordering::SeqCst) {
                continue;
            }
            let (target, lost, is_cut) = (target.clone(), Arc::clone(&lost), Arc::clone(&is_cut));
            tokio::spawn(async move {
                let far = TcpStream::connect(&target).await.unwrap();
                if pass(near, far, text, &lost).await.is_none() {
                    is_cut.store(true, Ordering::SeqCst);
                    tokio::time::sleep(CUT).await;
                    is_cut.store(false, Ordering::SeqCst);
                }
            });
        }
    });
    (url, has_lost)
}

/// Passes everything on until one side leaves; `None` if what has the text in it was lost.
async fn pass(
    mut near: TcpStream,
    mut far: TcpStream,
    text: &str,
    lost: &AtomicBool,
) -> Option<()> {
    let (mut asked, mut told) = (vec![0; 65_536], vec![0; 65_536]);
    let is_lost = |bytes: &[u8]| {
        String::from_utf8_lossy(bytes).contains(text) && !lost.swap(true, Ordering::SeqCst)
    };
    loop {
        tokio::select! {
            read = near.read(&mut asked) => match read {
                Ok(count) if count > 0 => {
                    if is_lost(&asked[..count]) {
                        return None;
                    }
                    far.write_all(&asked[..count]).await.ok()?;
                }
                _ => return Some(()),
            },
            read = far.read(&mut told) => match read {
                Ok(count) if count > 0 => {
                    if is_lost(&told[..count]) {
                        return None;
                    }
                    if near.write_all(&told[..count]).await.is_err() {
                        return Some(());
                    }
                }
                _ => return Some(()),
            },
        }
    }
}

/// The next claim had another id, so nobody ran what the lost one had taken, and its lease ran out.
async fn what_a_claim_took_whose_answer_was_lost_is_run(server: Server) {
    let (url, has_lost) = broken_way(&server, "\"lease_id\":").await;
    // It outlasts the test: only the answer itself can bring the task.
    let lease_ms = Some(600_000);
    let options = WorkerOptions { lease_ms, ..WorkerOptions::queue("sdk", "q", 4) };
    let handlers = Handlers::new().on("greet", async |_: Ctx, name: String| Ok(name));
    let worker = Remote::new(&url, None).unwrap().run(options, handlers).await.unwrap();
    let body = json!({ "queue": "q", "name": "greet", "payload": "ada", "max_retries": 0 });
    let task = server.post("/v1/tasks", body).await.expect(201);
    let path = format!("/v1/tasks/{}/wait?timeout_ms=20000", task["id"].as_str().unwrap());
    let task = server.get(&path).await.expect(200);
    assert!(has_lost.load(Ordering::SeqCst), "no answer was lost");
    assert_eq!((&task["status"], &task["attempt"]), (&"completed".into(), &1.into()), "{task:#}");
    worker.stop().await;
}

/// The rest of a long past was asked for a few times only; then the attempt had failed.
async fn a_past_that_cannot_be_read_for_a_while_costs_no_attempt(server: Server) {
    let (url, has_lost) = broken_way(&server, "/steps?").await;
    let handler = async |ctx: Ctx, (): ()| {
        let mut length = 0;
        for n in 0..2 {
            // More than an assignment carries.
            let page = || async { Ok("x".repeat(900_000)) };
            length += ctx.step("page", page).inputs(&n).await?.len();
        }
        match ctx.task().attempt {
            1 => Err(Failure::new("TIMEOUT", "again")),
            _ => Ok(length),
        }
    };
    let handlers = Handlers::new().on("read", handler);
    let options = WorkerOptions::queue("sdk", "q", 4);
    let worker = Remote::new(&url, None).unwrap().run(options, handlers).await.unwrap();
    let body = json!({ "queue": "q", "name": "read", "payload": null, "max_retries": 1,
        "backoff": { "base_ms": 1, "max_ms": 1 } });
    let task = server.post("/v1/tasks", body).await.expect(201);
    let path = format!("/v1/tasks/{}/wait?timeout_ms=20000", task["id"].as_str().unwrap());
    let task = server.get(&path).await.expect(200);
    assert!(has_lost.load(Ordering::SeqCst), "nothing was lost");
    let found = (&task["status"], &task["attempt"], &task["result"]);
    assert_eq!(found, (&"completed".into(), &2.into(), &1_800_000.into()), "{}", task["error"]);
    worker.stop().await;
}

/// A claim that was ended by a stop may have taken something. Its lease ran out, at the price of a
/// retry.
async fn what_a_worker_was_given_and_never_learnt_of_goes_back(server: Server) {
    let go_on = Arc::new(Notify::new());
    let waits = Arc::clone(&go_on);
    let handler = move |_: Ctx, first: bool| {
        let waits = Arc::clone(&waits);
        async move {
            if first {
                waits.notified().await;
            }
            Ok(())
        }
    };
    let options = WorkerOptions { lease_ms: Some(1_000), ..WorkerOptions::queue("sdk", "q", 1) };
    let remote = Remote::new(&server.url(""), None).unwrap();
    let worker = remote.run(options, Handlers::new().otherwise(handler)).await.unwrap();
    let submit = async |first: bool| {
        let body = json!({ "queue": "q", "payload": first });
        server.post("/v1/tasks", body).await.expect(201)["id"].as_str().unwrap().to_owned()
    };
    let first = submit(true).await;
    while server.get(&format!("/v1/tasks/{first}")).await.expect(200)["status"] != "running" {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // The leases of this session outlast the test, and its only slot is taken.
    let session = worker.session();
    let again = json!({ "id": session, "name": "sdk", "queues": ["q"], "slots": 1,
        "lease_ms": 600_000 });
    server.post("/v1/sessions", again).await;
    let second = submit(false).await;
    let claimed = server.post(&format!("/v1/sessions/{session}/claim"), json!({ "max": 1 })).await;
    assert_eq!(claimed.expect(200)["assignments"][0]["task"]["id"], second.as_str());
    let path = format!("/v1/tasks/{second}");
    while server.get(&path).await.expect(200)["status"] != "pending" {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    go_on.notify_one();
    for id in [first, second] {
        let path = format!("/v1/tasks/{id}/wait?timeout_ms=20000");
        let task = server.get(&path).await.expect(200);
        let found = (&task["status"], &task["retry_count"]);
        assert_eq!(found, (&"completed".into(), &0.into()), "{task:#}");
    }
    worker.stop().await;
}
