//! Rust handlers against a server: the same code as in process, its calls over HTTP.

use super::facts;
use super::server::Server;
use reqwest::Method;
use serde_json::{Value as Json, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use windlass::domain::usage::Usage;
use windlass::remote::Remote;
use windlass::sdk::{Ctx, Failure, Handlers, NewChild, Steps};
use windlass::worker::{Worker, WorkerOptions};

facts!(
    a_retried_handler_goes_past_what_is_done,
    a_handler_waits_for_a_time_a_signal_and_a_child,
    a_step_that_must_not_run_twice_runs_once,
    a_checkpoint_and_progress_reach_the_server,
    a_long_past_is_read_to_its_end,
    a_big_past_is_read_to_its_end,
    a_step_or_a_wait_inside_a_step_is_refused,
    a_failure_that_the_api_would_refuse_is_told_all_the_same,
    the_demo_of_an_agent_does_everything_once,
);

async fn run(server: &Server, handlers: Handlers) -> Worker {
    let remote = Remote::new(&server.url(""), None).unwrap();
    let options = WorkerOptions { lease_ms: Some(2_000), ..WorkerOptions::queue("sdk", "q", 4) };
    remote.run(options, handlers).await.unwrap()
}

async fn post(server: &Server, path: &str, body: Json) -> Json {
    let sent = server.request(Method::POST, path).json(&body).send().await.unwrap();
    let status = sent.status();
    let body: Json = sent.json().await.unwrap();
    assert!(status.is_success(), "{path}: {body}");
    body
}

async fn get(server: &Server, path: &str) -> Json {
    server.request(Method::GET, path).send().await.unwrap().json().await.unwrap()
}

async fn submit(server: &Server, name: &str, payload: Json) -> String {
    let backoff = json!({ "base_ms": 1, "max_ms": 1 });
    let body = json!({ "queue": "q", "name": name, "payload": payload, "backoff": backoff });
    post(server, "/v1/tasks", body).await["id"].as_str().unwrap().to_owned()
}

async fn ended(server: &Server, id: &str) -> Json {
    let task = get(server, &format!("/v1/tasks/{id}/wait?timeout_ms=60000")).await;
    assert!(!task["finished_at"].is_null(), "{task:#}");
    task
}

async fn a_retried_handler_goes_past_what_is_done(server: Server) {
    let ran = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&ran);
    let handler = move |ctx: Ctx, n: usize| {
        let ran = Arc::clone(&counted);
        async move {
            let mut sum = 0;
            for step in 0..3 {
                let work = || async { Ok(n + ran.fetch_add(1, Ordering::SeqCst)) };
                sum += ctx.step("add", work).inputs(&step).await?;
            }
            if ctx.task().attempt == 1 {
                return Err(Failure::new("TIMEOUT", "again"));
            }
            Ok(sum)
        }
    };
    let _worker = run(&server, Handlers::new().on("t", handler)).await;
    let id = submit(&server, "t", json!(10)).await;
    assert_eq!(ended(&server, &id).await["result"], 33);
    assert_eq!(ran.load(Ordering::SeqCst), 3);
}

async fn a_handler_waits_for_a_time_a_signal_and_a_child(server: Server) {
    let parent = |ctx: Ctx, (): ()| async move {
        ctx.sleep(Duration::from_millis(50)).await?;
        let n: i64 = ctx.wait_signal("number").await?;
        let late = ctx.wait_signal::<i64>("other").within(Duration::from_millis(50)).await?;
        let child = ctx.spawn::<i64>(NewChild::queue("q").name("child"), &n).await?;
        Ok((child.result().await?, late))
    };
    let child = |_: Ctx, n: i64| async move { Ok(n + 1) };
    let handlers = Handlers::new().on("parent", parent).on("child", child);
    let _worker = run(&server, handlers).await;
    let id = submit(&server, "parent", json!(null)).await;
    let signal = json!({ "name": "number", "task_id": id, "payload": 41 });
    post(&server, "/v1/signals", signal).await;
    assert_eq!(ended(&server, &id).await["result"], json!([42, null]));
}

async fn a_step_that_must_not_run_twice_runs_once(server: Server) {
    let ran = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&ran);
    let handler = move |ctx: Ctx, (): ()| {
        let ran = Arc::clone(&counted);
        async move {
            let charge = || async { Ok(ran.fetch_add(1, Ordering::SeqCst)) };
            let first: usize = ctx.step("charge", charge).once().await?;
            let broken = || async { Err::<(), _>(Failure::new("BROKEN", "who knows")) };
            let _ = first;
            ctx.step("mail", broken).once().await
        }
    };
    let _worker = run(&server, Handlers::new().on("t", handler)).await;
    let id = submit(&server, "t", json!(null)).await;
    // Its effect is unknown, so the next attempt finds it in doubt.
    let step = loop {
        let steps = get(&server, "/v1/steps?status=in_doubt").await;
        if let Some(step) = steps["items"].as_array().and_then(|items| items.first()) {
            break step["id"].as_str().unwrap().to_owned();
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    post(&server, &format!("/v1/steps/{step}/resolve"), json!({ "action": "fail" })).await;
    let task = ended(&server, &id).await;
    assert_eq!(
        (&task["status"], &task["error"]["code"]),
        (&json!("failed"), &json!("STEP_REJECTED"))
    );
    assert_eq!(ran.load(Ordering::SeqCst), 1);
}

async fn a_checkpoint_and_progress_reach_the_server(server: Server) {
    let handler = |ctx: Ctx, (): ()| async move {
        if let Some(page) = ctx.last_checkpoint::<i64>()? {
            return Ok(page);
        }
        ctx.checkpoint(&7).await?;
        ctx.progress(&json!({ "done": "half" })).await?;
        Err(Failure::new("TIMEOUT", "again"))
    };
    let _worker = run(&server, Handlers::new().on("t", handler)).await;
    let id = submit(&server, "t", json!(null)).await;
    let task = ended(&server, &id).await;
    assert_eq!((&task["result"], &task["progress"]), (&json!(7), &json!({ "done": "half" })));
}

/// A handler of so many steps, each with a result of so many bytes, whose first attempt fails
/// after all of them; and how often they ran.
async fn run_past(server: &Server, steps: usize, bytes: usize) -> usize {
    let ran = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&ran);
    let handler = move |ctx: Ctx, (): ()| {
        let ran = Arc::clone(&counted);
        async move {
            for n in 0..steps {
                let work = || async {
                    ran.fetch_add(1, Ordering::SeqCst);
                    Ok("x".repeat(bytes))
                };
                ctx.step("n", work).inputs(&n).await?;
            }
            if ctx.task().attempt == 1 {
                return Err(Failure::new("TIMEOUT", "again"));
            }
            Ok(())
        }
    };
    let _worker = run(server, Handlers::new().on("t", handler)).await;
    let id = submit(server, "t", json!(null)).await;
    assert_eq!(ended(server, &id).await["status"], "completed");
    ran.load(Ordering::SeqCst)
}

async fn a_long_past_is_read_to_its_end(server: Server) {
    assert_eq!(run_past(&server, 230, 1).await, 230);
}

async fn a_big_past_is_read_to_its_end(server: Server) {
    assert_eq!(run_past(&server, 12, 900_000).await, 12);
}

async fn a_step_or_a_wait_inside_a_step_is_refused(server: Server) {
    let step = |ctx: Ctx, (): ()| async move {
        let inner = || async { Ok(1) };
        ctx.step("outer", || async { ctx.step("inner", inner).await }).await
    };
    let wait = |ctx: Ctx, (): ()| async move {
        let outer = |ctx: Ctx, _| async move {
            ctx.sleep(Duration::from_secs(3_600)).await?;
            Ok(json!({}))
        };
        ctx.run_steps(json!({}), &Steps::new().then("outer", outer)).await
    };
    let _worker = run(&server, Handlers::new().on("step", step).on("wait", wait)).await;
    for (name, inner) in [("step", "step `inner`"), ("wait", "a wait for a time")] {
        let id = submit(&server, name, json!(null)).await;
        let error = ended(&server, &id).await["error"].clone();
        assert_eq!(error["code"], "INSIDE_STEP", "{error}");
        assert!(error["message"].as_str().unwrap().starts_with(inner), "{error}");
    }
}

/// Its end was refused and forgotten, and the lease ran out.
async fn a_failure_that_the_api_would_refuse_is_told_all_the_same(server: Server) {
    let handler = async |ctx: Ctx, (): ()| {
        let others = [("a\nb".to_owned(), 1)].into();
        ctx.add_usage(&Usage { others, ..Usage::default() });
        let failure = Failure::new("no way", "x\0".repeat(100_000));
        Err::<(), _>(failure.detail(json!("\0")).retry_after(Duration::MAX))
    };
    let _worker = run(&server, Handlers::new().on("t", handler)).await;
    let body = json!({ "queue": "q", "name": "t", "payload": null, "max_retries": 0 });
    let id = post(&server, "/v1/tasks", body).await["id"].as_str().unwrap().to_owned();
    let task = ended(&server, &id).await;
    assert_eq!(task["error"]["code"], "no_way", "{}", task["error"]["message"]);
}

/// It brings its own server; once on each is enough to see it twice.
async fn the_demo_of_an_agent_does_everything_once(_server: Server) {
    let demo = tokio::process::Command::new(env!("CARGO_BIN_EXE_windlass"))
        .args(["demo", "--agent", "--json"])
        .output();
    let output = demo.await.unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{told}");
    let summary: Json = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(summary["status"], "completed");
    assert!(summary["effects"].as_object().unwrap().values().all(|n| *n == 1), "{summary}");
}
