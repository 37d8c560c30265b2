//! `windlass doctor` against a real server: what it names, and its exit codes.

use super::message::run;
use super::poison::poisoned;
use super::server::{Place, Server};
use reqwest::Method;
use serde_json::{Value as Json, json};

super::facts!(
    a_fresh_server_is_healthy,
    what_waits_for_nobody_or_for_a_person_is_named,
    a_system_at_its_limits_is_a_problem,
    a_worker_that_is_there_is_enough,
    the_status_says_what_an_acknowledged_task_survives,
);

/// The checks of a server, by their names, and the exit code.
#[track_caller]
fn checks(server: &Server) -> (Option<i32>, Json) {
    let (code, out, error) = run(server, &["doctor", "--json"]);
    (code, serde_json::from_str(&out).unwrap_or_else(|_| panic!("{out} {error}")))
}

#[track_caller]
fn found<'a>(answer: &'a Json, check: &str) -> &'a Json {
    let checks = answer["checks"].as_array().expect("checks");
    checks.iter().find(|one| one["check"] == check).unwrap_or_else(|| panic!("{check}: {answer}"))
}

async fn a_fresh_server_is_healthy(server: Server) {
    let (code, answer) = checks(&server);
    assert_eq!((code, &answer["healthy"]), (Some(0), &json!(true)), "{answer}");
    for check in answer["checks"].as_array().unwrap() {
        // The tests' PostgreSQL has no standby, and that is said.
        let is_alone = check["check"] == "durability" && matches!(server.place, Place::Postgres(_));
        let level = if is_alone { "warning" } else { "ok" };
        assert_eq!(check["level"], level, "{check}");
    }
    let (code, out, _) = run(&server, &["doctor"]);
    assert_eq!(code, Some(0));
    assert!(out.contains("every commit is synced"), "{out}");
    assert_eq!(out.contains("Nothing is wrong."), matches!(server.place, Place::Sqlite(_)));
}

async fn what_waits_for_nobody_or_for_a_person_is_named(server: Server) {
    poisoned(&server, "done").await;
    server.submit("mail").await;
    let inference = json!({ "kind": "inference", "pool": "fast", "payload": {} });
    server.post("/v1/tasks", inference).await.expect(201);
    let pause = json!({ "scope": "queue", "name": "night", "reason": "it is day" });
    server.post("/v1/pauses", pause).await.expect(200);
    let (code, answer) = checks(&server);
    assert_eq!(code, Some(0), "nothing of that is a fault of the server: {answer}");
    for (check, words, advice) in [
        ("workers", "1 ready in queue `mail`", "windlass worker --queue mail -- COMMAND"),
        ("providers", "1 wait in pool `fast`", "windlass provider --pool fast"),
        ("pauses", "queue `night` is paused since", "windlass resume queue night"),
        ("trouble", "poisoned or stuck tasks: 1", "windlass poison list"),
        ("alerts", "alerts that nobody has seen: 1", "windlass alert list --open"),
    ] {
        let found = found(&answer, check);
        assert_eq!(found["level"], "warning", "{found}");
        assert!(found["found"].as_str().unwrap().contains(words), "{found}");
        assert!(found["advice"].as_str().unwrap().contains(advice), "{found}");
    }
    let (_, out, _) = run(&server, &["doctor"]);
    assert!(out.contains("windlass worker --queue mail -- COMMAND"), "{out}");
}

async fn a_worker_that_is_there_is_enough(server: Server) {
    server.submit("mail").await;
    server.worker("mail", 1).await;
    let (_, answer) = checks(&server);
    assert_eq!(found(&answer, "workers")["level"], "ok", "{answer}");
}

async fn a_system_at_its_limits_is_a_problem(server: Server) {
    let few = json!({ "max_pending": 2 });
    let set = server.request(Method::PUT, "/v1/limits/global").json(&few);
    server.send(set).await.expect(200);
    server.submit("mail").await;
    server.submit("mail").await;
    // What is measured is half a second old.
    super::server::eventually("the level is critical", async || {
        server.get("/v1/backpressure").await.expect(200)["level"] == "critical"
    })
    .await;
    let (code, answer) = checks(&server);
    assert_eq!((code, &answer["healthy"]), (Some(1), &json!(false)), "{answer}");
    assert_eq!(found(&answer, "backpressure")["level"], "problem");
}

async fn the_status_says_what_an_acknowledged_task_survives(server: Server) {
    let standby = match server.place {
        Place::Postgres(_) => json!(false),
        _ => json!(null),
    };
    let status = server.get("/v1/status").await.expect(200);
    assert_eq!(status["durability"], json!({ "synced": true, "standby": standby }));
}

#[test]
fn a_server_that_does_not_answer_has_an_exit_code_of_its_own() {
    let command = std::process::Command::new(env!("CARGO_BIN_EXE_windlass"))
        .args(["doctor", "--server", "http://127.0.0.1:9"])
        .output()
        .expect("the binary runs");
    assert_eq!(command.status.code(), Some(69), "{command:?}");
}
