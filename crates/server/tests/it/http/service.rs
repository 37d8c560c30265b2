//! The server itself: health, readiness, metrics, version, keys, logs.

use super::cluster::{Cluster, ClusterOptions};
use super::server::{Place, Server, eventually, text};
use reqwest::Method;
use serde_json::{Value as Json, json};

super::facts!(
    a_server_says_that_it_lives_that_it_is_ready_and_what_it_is,
    metrics_count_requests_tasks_and_queues,
    the_status_tells_how_things_stand,
    every_request_is_one_log_line_with_its_id_and_the_tasks_correlation_id,
    a_call_whose_answer_does_not_show_its_task_is_logged_with_the_correlation_id_too,
    without_a_valid_key_only_health_and_the_document_are_shown,
    every_answer_forbids_sniffing_and_caching,
);

async fn a_server_says_that_it_lives_that_it_is_ready_and_what_it_is(server: Server) {
    assert_eq!(server.get("/healthz").await.text, "ok\n");
    assert_eq!(server.get("/readyz").await.text, "ready\n");
    let version = server.get("/v1/version").await.expect(200);
    assert_eq!(version["name"], "windlass");
    assert_eq!(version["version"], env!("CARGO_PKG_VERSION"));
    assert!(version["schema"].as_i64().unwrap() > 0);
    let database = if matches!(server.place, Place::Postgres(_)) { "postgres" } else { "sqlite" };
    assert_eq!(version["database"], database);
    let nodes = server.get("/v1/nodes").await.expect(200);
    assert_eq!(nodes["items"][0]["id"], version["node"]);
}

async fn metrics_count_requests_tasks_and_queues(server: Server) {
    server.submit("q").await;
    server.get("/v1/tasks/not-an-id").await;
    let reply = server.get("/metrics").await;
    assert!(reply.header("content-type").unwrap().starts_with("application/openmetrics-text"));
    for line in [
        r#"windlass_http_requests_total{method="POST",route="/v1/tasks",status="201"} 1"#,
        r#"windlass_http_requests_total{method="GET",route="/v1/tasks/{id}",status="400"} 1"#,
        r#"windlass_tasks{status="pending"} 1"#,
        r#"windlass_queue_ready{queue="q",kind="job"} 1"#,
        "windlass_idle_workers 0",
        "# EOF",
    ] {
        assert!(reply.text.lines().any(|found| found == line), "{line}: {}", reply.text);
    }
    assert!(reply.text.contains("windlass_http_request_seconds_bucket"));
}

async fn the_status_tells_how_things_stand(server: Server) {
    server.submit("a").await;
    server.submit("b").await;
    let session = server.worker("a", 1).await;
    server.claim(&session).await;
    let status = server.get("/v1/status").await.expect(200);
    assert_eq!((&status["tasks"]["pending"], &status["tasks"]["running"]), (&json!(1), &json!(1)));
    assert_eq!(status["queues"], json!([{ "queue": "b", "kind": "job", "ready": 1 }]));
}

/// The log lines of requests, as JSON.
async fn requests(server: &Server) -> Vec<Json> {
    let log = server.log();
    let lines = log.iter().map(|line| serde_json::from_str::<Json>(line).expect("JSON lines"));
    lines.filter(|line| line["message"] == "request").collect()
}

async fn every_request_is_one_log_line_with_its_id_and_the_tasks_correlation_id(server: Server) {
    let submit = json!({ "queue": "q", "correlation_id": "order-7", "payload": "hush-hush" });
    let request = server.request(Method::POST, "/v1/tasks").header("X-Request-Id", "my-id.1");
    let request = request.header("Authorization", "Bearer sesame-sesame-sesame");
    let reply = server.send(request.json(&submit)).await;
    assert_eq!(reply.header("x-request-id"), Some("my-id.1"));
    let id = text(&reply.expect(201)["id"]);
    let batch = json!({ "tasks": [
        { "queue": "q", "correlation_id": "one" }, { "queue": "q" },
        { "queue": "q", "correlation_id": "two" }, { "queue": "q", "correlation_id": "one" },
    ]});
    server.post("/v1/tasks/batch", batch).await.expect(201);
    server.get(&format!("/v1/tasks/{id}?key=sesame-sesame")).await;
    let wild = server.request(Method::GET, "/healthz").header("X-Request-Id", "a b\"c");
    let reply = server.send(wild).await;
    assert_eq!(reply.header("x-request-id").map(str::len), Some(36), "a wild id is replaced");
    eventually("four lines", || async { requests(&server).await.len() == 4 }).await;
    let lines = requests(&server).await;
    assert_eq!(lines[0]["request_id"], "my-id.1");
    assert_eq!(lines[0]["correlation_id"], "order-7");
    assert_eq!((&lines[0]["route"], &lines[0]["status"]), (&json!("/v1/tasks"), &json!(201)));
    assert_eq!(lines[1]["correlation_id"], "one,two", "a batch tells those of its tasks");
    let log = server.log().join("\n");
    assert!(!log.contains("hush-hush") && !log.contains("sesame"), "no secrets in logs: {log}");
}

/// What a worker says of a task is most of what is said of it.
async fn a_call_whose_answer_does_not_show_its_task_is_logged_with_the_correlation_id_too(
    server: Server,
) {
    let submit = json!({ "queue": "q", "correlation_id": "order-8" });
    server.post("/v1/tasks", submit).await.expect(201);
    server.submit("q").await;
    let session = server.worker("q", 2).await;
    let (task, lease) = server.claim(&session).await;
    let (plain, _) = server.claim(&session).await;
    let held = json!({ "task_id": task, "lease_id": lease });
    let of_task = |action: &str| format!("/v1/tasks/{task}/{action}");
    let of_session = |action: &str| format!("/v1/sessions/{session}/{action}");
    let step = json!({ "lease_id": lease, "name": "a", "result": 1 });
    server.post(&of_task("steps/record"), step).await.expect(200);
    let step = json!({ "lease_id": lease, "name": "b", "idempotent": false });
    let begun = server.post(&of_task("steps"), step).await.expect(200);
    let end = json!({ "lease_id": lease, "result": 2 });
    let step = format!("/v1/steps/{}/complete", text(&begun["id"]));
    server.post(&step, end).await.expect(200);
    server.post(&of_session("heartbeat"), json!({ "leases": [held] })).await.expect(200);
    let mut item = held.clone();
    item["outcome"] = json!("complete");
    server.post(&of_session("finish"), json!({ "items": [item] })).await.expect(200);
    server.post(&of_task("start"), json!({ "lease_id": lease })).await.refused(409, "lease_lost");
    server.get(&of_task("history")).await.expect(200);
    server.get(&format!("/v1/tasks/{plain}/history")).await.expect(200);
    let about = async || -> Vec<Json> { requests(&server).await.split_off(5) };
    eventually("eight lines", || async { about().await.len() == 8 }).await;
    let mut lines = about().await;
    assert_eq!(lines.pop().unwrap().get("correlation_id"), None, "that task has none");
    for line in lines {
        assert_eq!(line["correlation_id"], "order-8", "{line}");
    }
}

async fn without_a_valid_key_only_health_and_the_document_are_shown(server: Server) {
    let keys = "ops:0123456789abcdef,bot:fedcba9876543210";
    let place = match &server.place {
        Place::Postgres(_) => Place::postgres(),
        _ => Place::sqlite(),
    };
    let server = Server::start(place, &[("WINDLASS_KEYS", keys)]).await;
    for path in ["/healthz", "/readyz", "/openapi.json", "/docs"] {
        assert_eq!(server.get(path).await.status, 200, "{path}");
    }
    let mut refusals = Vec::new();
    for path in ["/v1/tasks", "/v1/version", "/metrics", "/v1/events", "/no/such/path"] {
        for key in ["", "Bearer nobody", "Basic 0123456789abcdef", "Bearer ", "Bearer 0123456789"] {
            let request = server.request(Method::GET, path).header("Authorization", key);
            let reply = server.send(request).await;
            assert_eq!(reply.header("www-authenticate"), Some("Bearer"));
            let mut problem = reply.refused(401, "unauthenticated");
            problem["request_id"] = json!(null);
            refusals.push(problem);
        }
    }
    refusals.dedup();
    assert_eq!(refusals.len(), 1, "who is refused learns nothing");
    let post = server.post("/v1/tasks", json!({ "queue": "q" })).await;
    post.refused(401, "unauthenticated");
    let with = |key: &str, body: Json| {
        let request = server.request(Method::POST, "/v1/tasks").bearer_auth(key);
        server.send(request.json(&body))
    };
    let body = json!({ "queue": "q", "idempotency_key": "k", "payload": 1 });
    let task = with("0123456789abcdef", body).await.expect(201);
    // Keys of idempotency live in the scope of the credential.
    let body = json!({ "queue": "q", "idempotency_key": "k", "payload": 2 });
    let other = with("fedcba9876543210", body).await.expect(201);
    assert_ne!(task["id"], other["id"]);
    let path = format!("/v1/tasks/{}/history", text(&other["id"]));
    let request = server.request(Method::GET, &path).bearer_auth("fedcba9876543210");
    assert_eq!(server.send(request).await.expect(200)["items"][0]["actor"], "bot");
    let lower = server.request(Method::GET, "/v1/tasks");
    let lower = lower.header("Authorization", "bearer fedcba9876543210");
    assert_eq!(server.send(lower).await.status, 200, "the scheme's case does not matter");
    assert!(!server.log().join("\n").contains("fedcba9876543210"));
}

async fn every_answer_forbids_sniffing_and_caching(server: Server) {
    for path in ["/v1/tasks", "/v1/tasks/x", "/nothing", "/healthz", "/docs", "/openapi.json"] {
        let reply = server.get(path).await;
        assert_eq!(reply.header("x-content-type-options"), Some("nosniff"), "{path}");
        assert_eq!(reply.header("cache-control"), Some("no-store"), "{path}");
    }
    assert!(server.get("/docs").await.header("content-security-policy").is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_whose_database_is_away_lives_is_not_ready_and_comes_back() {
    let cluster = Cluster::start(ClusterOptions::default());
    let server = Server::start(Place::Elsewhere(cluster.url()), &[]).await;
    let id = server.submit("q").await;
    // One that says nothing is as good as none, and nobody waits for its statements to time out.
    cluster.pause();
    server.get("/readyz").await.refused(503, "unavailable");
    cluster.resume();
    eventually("the server is ready", || async { server.get("/readyz").await.status == 200 }).await;
    cluster.stop("immediate");
    assert_eq!(server.get("/healthz").await.status, 200);
    for path in ["/readyz", "/v1/tasks"] {
        let reply = server.get(path).await;
        assert_eq!(reply.header("retry-after"), Some("1"), "{reply:?}");
        let problem = reply.refused(503, "unavailable");
        let words = problem.to_string();
        assert!(!words.contains("127.0.0.1") && !words.contains("windlass@"), "{words}");
    }
    let reply = server.post("/v1/tasks", json!({ "queue": "q" })).await;
    assert!([503, 504].contains(&reply.status), "{reply:?}");
    assert_eq!(server.get("/metrics").await.status, 200, "what the node knows is still told");
    cluster.run();
    eventually("the server is ready again", || async { server.get("/readyz").await.status == 200 })
        .await;
    assert_eq!(server.task(&id).await["status"], "pending");
}
