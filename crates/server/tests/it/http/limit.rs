//! Limits and pauses over HTTP and on the command line.

use super::server::{Server, column, eventually, text};
use super::step_command::windlass;
use reqwest::Method;
use serde_json::{Value as Json, json};

super::facts!(
    a_limit_is_set_shown_listed_and_removed,
    a_worker_types_limit_is_changed_while_it_works,
    a_full_queue_is_told_with_its_limit_and_when_to_come_back,
    a_dry_run_says_whether_a_task_would_be_taken,
    a_dry_run_by_command_is_told_like_the_submit,
    an_atomic_batch_beyond_a_limit_writes_nothing_and_names_the_task,
    a_batch_that_is_not_atomic_is_taken_as_far_as_there_is_room,
    what_is_paused_waits_and_goes_on_when_it_is_resumed,
    what_drains_refuses_what_is_new_and_knows_what_it_has,
    every_bad_call_about_limits_and_pauses_is_refused_with_its_place,
    limits_and_pauses_are_set_by_commands,
    what_stays_stopped_is_told_by_whoever_resumes,
    an_integer_beyond_64_bits_is_refused_with_what_to_send,
    two_commands_at_once_undo_nothing,
);

async fn put(server: &Server, path: &str, body: Json) -> Json {
    let path = format!("/v1/limits/{path}");
    server.send(server.request(Method::PUT, &path).json(&body)).await.expect(200)
}

async fn a_limit_is_set_shown_listed_and_removed(server: Server) {
    let fresh = server.get("/v1/limits").await.expect(200);
    let types = ["worker_type"; 3];
    let scopes = [&["global", "venture", "stage"][..], &types].concat();
    assert_eq!(column(&fresh["items"], "scope"), scopes);
    assert_eq!(column(&fresh["items"], "max_active"), [200, 10, 20, 5, 1, 10]);
    let pending = column(&fresh["items"], "max_pending");
    assert_eq!(pending[..3], [json!(1_000), json!(50), Json::Null]);
    let body = json!({ "max_active": 3, "rate": { "count": 5, "period_ms": 60_000 } });
    let limit = put(&server, "venture/acme%20one", body).await;
    assert_eq!((&limit["name"], &limit["max_active"]), (&json!("acme one"), &json!(3)));
    assert_eq!(limit["max_pending"], 50, "as in a new rule");
    assert_eq!(limit["rate"], json!({ "count": 5, "period_ms": 60_000 }));
    assert_eq!(limit["updated_by"], "api");
    let body = json!({ "max_active": null, "max_pending": null });
    assert_eq!(put(&server, "queue", body).await["max_active"], Json::Null);
    // What is held stands beside it.
    for (venture, count) in [("acme one", 1), ("bolt", 3), ("core", 2)] {
        for _ in 0..count {
            let task = json!({ "queue": "q", "payload": {}, "venture": venture });
            server.post("/v1/tasks", task).await.expect(201);
        }
    }
    let session = server.worker("q", 10).await;
    let claim = format!("/v1/sessions/{session}/claim");
    server.post(&claim, json!({ "max": 1 })).await.expect(200);
    let global = server.get("/v1/limits/global").await.expect(200);
    assert_eq!((&global["active"], &global["pending"]), (&json!(1), &json!(5)));
    let each = server.get("/v1/limits/venture").await.expect(200);
    let holders = column(&each["held_by"], "name");
    assert!(!holders.contains(&json!("acme one")), "it has a limit of its own: {each}");
    assert!(holders.contains(&json!("bolt")) && holders.contains(&json!("core")), "{each}");
    // In pages, by scope and name.
    let page = server.get("/v1/limits?limit=2").await.expect(200);
    let path = format!("/v1/limits?limit=6&cursor={}", text(&page["next_cursor"]));
    let rest = server.get(&path).await.expect(200);
    let names = |list: &Json| column(&list["items"], "name");
    assert_eq!(column(&page["items"], "scope"), ["global", "venture"]);
    assert_eq!(
        column(&rest["items"], "scope"),
        [&["venture", "stage", "queue"][..], &types].concat()
    );
    assert_eq!(names(&rest)[..3], [json!("acme one"), Json::Null, Json::Null]);
    assert_eq!(rest["next_cursor"], Json::Null);
    // What is held stands beside a limit that goes, as it did while it was there.
    let held = |limit: &Json| (limit["active"].clone(), limit["pending"].clone());
    for path in ["/v1/limits/global", "/v1/limits/venture", "/v1/limits/venture/acme%20one"] {
        let limit = server.get(path).await.expect(200);
        assert_ne!(held(&limit), (json!(0), json!(0)), "{limit}");
        let gone = server.delete(path).await.expect(200);
        assert_eq!(gone, limit, "{path}");
    }
    server.delete("/v1/limits/venture/acme%20one").await.refused(404, "not_found");
    server.get("/v1/limits/venture/acme%20one").await.refused(404, "not_found");
    let audit = server.get("/v1/audit?event=limit_removed").await.expect(200);
    assert_eq!(audit["items"][0]["detail"]["before"]["name"], "acme one");
}

/// How much a worker of a type holds is changed while it works.
async fn a_worker_types_limit_is_changed_while_it_works(server: Server) {
    for _ in 0..5 {
        server.post("/v1/tasks", json!({ "queue": "q" })).await.expect(201);
    }
    let worker = json!({ "name": "w", "queues": ["q"], "worker_type": "crew_executor",
        "slots": 4 });
    let session = server.post("/v1/sessions", worker.clone()).await.expect(201);
    assert_eq!(session["slots"], 1);
    put(&server, "worker_type/crew_executor", json!({ "max_active": 3 })).await;
    let session = server.post("/v1/sessions", worker).await.expect(201);
    assert_eq!(session["slots"], 3);
    let claim = format!("/v1/sessions/{}/claim", text(&session["id"]));
    let held = async || {
        let given = server.post(&claim, json!({ "max": 2 })).await.expect(200);
        given["assignments"].as_array().unwrap().len()
    };
    assert_eq!((held().await, held().await, held().await), (2, 1, 0));
    let limit = server.get("/v1/limits/worker_type/crew_executor").await.expect(200);
    assert_eq!((&limit["active"], &limit["max_active"]), (&json!(3), &json!(3)));
    assert_eq!((&limit["pending"], &limit["max_pending"]), (&json!(0), &Json::Null));
    put(&server, "worker_type/own_type", json!({})).await;
    let limit = server.get("/v1/limits/worker_type/own_type").await.expect(200);
    assert_eq!((&limit["max_active"], &limit["max_pending"]), (&json!(10), &Json::Null));
}

async fn a_full_queue_is_told_with_its_limit_and_when_to_come_back(server: Server) {
    put(&server, "queue/q", json!({ "max_pending": 1 })).await;
    let first = json!({ "queue": "q", "payload": {}, "idempotency_key": "k" });
    server.post("/v1/tasks", first.clone()).await.expect(201);
    let reply = server.post("/v1/tasks", json!({ "queue": "q", "payload": {} })).await;
    let away = reply.header("retry-after").map(str::to_owned);
    assert_eq!(away.as_deref(), Some("5"), "nobody has watched for long");
    let problem = reply.refused(429, "queue_full");
    let limit = json!({ "scope": "queue", "name": "q", "max_pending": 1, "held": 1 });
    assert_eq!(problem["limit"], limit);
    assert!(text(&problem["detail"]).contains("queue `q`"), "{problem}");
    // What was taken before is still answered, and another queue has room.
    server.post("/v1/tasks", first).await.expect(200);
    server.post("/v1/tasks", json!({ "queue": "other", "payload": {} })).await.expect(201);
    assert_eq!(server.written().await.0, 2);
    // What is paused does not move; what moves is told by its pace.
    let away = async || {
        let reply = server.post("/v1/tasks", json!({ "queue": "q", "payload": {} })).await;
        reply.header("retry-after").map(str::to_owned)
    };
    server.post("/v1/pauses", json!({ "scope": "queue", "name": "q" })).await.expect(200);
    assert_eq!(away().await.as_deref(), Some("30"), "it is paused");
    server.delete("/v1/pauses/queue/q").await.expect(200);
    let told = async || server.get("/v1/backpressure").await.expect(200);
    eventually("somebody watches", async || told().await["queue_depth"] == 2).await;
    let session = server.worker("other", 1).await;
    server.claim(&session).await;
    eventually("a pace", async || told().await["drained_per_second"].as_f64() > Some(0.0)).await;
    let by_pace: u8 = away().await.unwrap().parse().unwrap();
    assert!((1..30).contains(&by_pace), "one waits, and one has left: {by_pace}");
}

async fn a_dry_run_says_whether_a_task_would_be_taken(server: Server) {
    put(&server, "global", json!({ "max_pending": 1 })).await;
    let dry = "/v1/tasks?dry_run=true";
    let task = json!({ "queue": "q", "payload": {}, "idempotency_key": "k" });
    assert_eq!(server.post(dry, task.clone()).await.expect(200), json!({ "admitted": true }));
    assert_eq!(server.written().await.0, 0);
    let id = server.post("/v1/tasks", task.clone()).await.expect(201)["id"].clone();
    let known = server.post(dry, task).await.expect(200);
    assert_eq!(known, json!({ "admitted": true, "duplicate_of": id }));
    let other = json!({ "queue": "q", "payload": {} });
    let full = server.post(dry, other.clone()).await.expect(200);
    assert_eq!((&full["admitted"], &full["error"]["code"]), (&json!(false), &json!("queue_full")));
    let limit = json!({ "scope": "global", "name": null, "max_pending": 1, "held": 1 });
    assert_eq!(full["error"]["limit"], limit);
    assert_eq!(full["error"]["status"], 429);
    assert_eq!(full["error"]["retry_after_ms"], 5_000, "nobody has watched for long");
    let pause = json!({ "scope": "queue", "name": "q", "mode": "drain", "reason": "a move" });
    server.post("/v1/pauses", pause).await.expect(200);
    let drained = server.post(dry, other).await.expect(200);
    assert_eq!(drained["error"]["code"], "draining");
    let what = json!({ "scope": "queue", "name": "q", "reason": "a move" });
    assert_eq!(drained["error"]["drained"], what);
    assert_eq!(drained["error"]["retry_after_ms"], 30_000);
    let taken = json!({ "queue": "q", "payload": 2, "idempotency_key": "k" });
    let reused = server.post(dry, taken).await.expect(200);
    assert_eq!(reused["error"]["code"], "idempotency_key_reused");
    assert_eq!(reused["error"].get("retry_after_ms"), None, "trying again does not help");
    server.post(dry, json!({ "queue": "" })).await.refused(422, "validation_failed");
    assert_eq!(server.written().await.0, 1);
}

async fn a_dry_run_by_command_is_told_like_the_submit(server: Server) {
    let submit = |more: &[&str]| {
        let output = windlass(&server, &[&["task", "submit", "--queue", "q"][..], more].concat());
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    put(&server, "queue/q", json!({ "max_pending": 1 })).await;
    let (code, told, _) = submit(&["--dry-run"]);
    assert_eq!((code, told.trim_end()), (Some(0), "it would be admitted"));
    let (_, id, _) = submit(&["--idempotency-key", "k"]);
    let (code, told, _) = submit(&["--idempotency-key", "k", "--dry-run"]);
    assert_eq!((code, told), (Some(0), format!("it exists already: {id}")));
    let refused = submit(&[]);
    assert_eq!(refused.0, Some(75));
    assert!(refused.2.contains("queue `q` has 1 pending"), "{}", refused.2);
    // How long to wait is told, too; that it may differ is the time between the two.
    let apart = |(code, out, told): (Option<i32>, String, String)| {
        let (wait, rest): (Vec<String>, Vec<String>) =
            told.lines().map(str::to_owned).partition(|line| line.starts_with("  retry after: "));
        assert!(wait.len() == 1 && wait[0].ends_with(" s"), "{told}");
        (code, out, rest)
    };
    assert_eq!(apart(submit(&["--dry-run"])), apart(refused));
    let (_, _, wrong) = submit(&["--json"]);
    let wrong: Json = serde_json::from_str(&wrong).unwrap();
    assert!(wrong["retry_after_ms"].as_i64().unwrap() >= 5_000, "{wrong}");
    let (code, told, wrong) = submit(&["--dry-run", "--json"]);
    let told: Json = serde_json::from_str(&told).unwrap();
    assert_eq!((code, &told["admitted"]), (Some(75), &json!(false)));
    let wrong: Json = serde_json::from_str(&wrong).unwrap();
    assert_eq!((&wrong["code"], &wrong["exit_code"]), (&json!("queue_full"), &json!(75)));
    let limit = json!({ "scope": "queue", "name": "q", "max_pending": 1, "held": 1 });
    assert_eq!((&told["error"]["limit"], &wrong["limit"]), (&limit, &limit));
}

fn batch(count: usize, atomic: bool) -> Json {
    let task = |n| json!({ "queue": "q", "payload": n, "venture": "acme" });
    json!({ "tasks": (0..count).map(task).collect::<Vec<_>>(), "atomic": atomic })
}

async fn an_atomic_batch_beyond_a_limit_writes_nothing_and_names_the_task(server: Server) {
    let reply = server.post("/v1/tasks/batch", batch(51, true)).await;
    assert_eq!(reply.header("retry-after"), None, "it never fits");
    let problem = reply.refused(429, "queue_full");
    assert_eq!(column(&problem["errors"], "pointer"), ["/tasks/50"]);
    assert_eq!(problem["limit"]["scope"], "venture");
    assert_eq!(problem["limit"]["max_pending"], 50);
    assert_eq!(problem["limit"]["held"], 0);
    let words = "the batch has 51 tasks of venture `acme` and at most 50 are allowed";
    assert!(text(&problem["detail"]).starts_with(words), "{problem}");
    assert_eq!(server.written().await.0, 0);
    server.post("/v1/tasks/batch", batch(49, true)).await.expect(201);
    let reply = server.post("/v1/tasks/batch", batch(2, true)).await;
    assert!(reply.header("retry-after").is_some(), "there may be room later");
    assert_eq!(reply.refused(429, "queue_full")["limit"]["held"], 49);
    server.post("/v1/tasks/batch", batch(1, true)).await.expect(201);
}

async fn a_batch_that_is_not_atomic_is_taken_as_far_as_there_is_room(server: Server) {
    let answer = server.post("/v1/tasks/batch", batch(53, false)).await.expect(200);
    let results = answer["results"].as_array().unwrap();
    assert_eq!(results.len(), 53);
    for (n, result) in results.iter().enumerate() {
        match n {
            0..50 => assert_eq!(result["status"], "pending", "{n}: {result}"),
            _ => {
                assert_eq!(result["error"]["code"], "queue_full", "{n}: {result}");
                assert_eq!(result["error"]["status"], 429);
                assert_eq!(result["error"]["limit"]["name"], "acme");
                let after = result["error"]["retry_after_ms"].as_i64();
                assert!(after.is_some_and(|ms| (1_000..=60_000).contains(&ms)), "{n}: {result}");
            }
        }
    }
    assert_eq!(server.written().await.0, 50);
}

async fn what_is_paused_waits_and_goes_on_when_it_is_resumed(server: Server) {
    let paused = json!({ "scope": "queue", "name": "q", "reason": "a move" });
    let paused = server.post("/v1/pauses", paused).await.expect(200);
    assert_eq!((&paused["mode"], &paused["by"]), (&json!("pause"), &json!("api")));
    let id = server.submit("q").await;
    let session = server.worker("q", 5).await;
    let claim = format!("/v1/sessions/{session}/claim");
    let none = server.post(&claim, json!({ "max": 1 })).await.expect(200);
    assert_eq!(none["assignments"], json!([]));
    let list = server.get("/v1/pauses").await.expect(200);
    assert_eq!(list, json!({ "items": [paused], "next_cursor": null }));
    if let super::server::Place::Postgres(_) = &server.place {
        // The other node knows within a second, also that it is over.
        let other = Server::start(server.place.clone(), &[]).await;
        let claimed = async || other.post(&claim, json!({ "max": 1 })).await.expect(200);
        assert_eq!(claimed().await["assignments"], json!([]));
        server.delete("/v1/pauses/queue/q").await.expect(200);
        eventually("the other node goes on", async || {
            claimed().await["assignments"][0]["task"]["id"] == json!(id)
        })
        .await;
    } else {
        let gone = server.delete("/v1/pauses/queue/q").await.expect(200);
        assert_eq!(gone["reason"], "a move");
        assert_eq!(server.claim(&session).await.0, id);
    }
    server.delete("/v1/pauses/queue/q").await.refused(404, "not_found");
    assert_eq!(server.get("/v1/pauses").await.expect(200)["items"], json!([]));
}

async fn what_drains_refuses_what_is_new_and_knows_what_it_has(server: Server) {
    let known = json!({ "queue": "q", "payload": {}, "idempotency_key": "k" });
    let id = server.post("/v1/tasks", known.clone()).await.expect(201)["id"].clone();
    server.post("/v1/pauses", json!({ "scope": "global", "mode": "drain" })).await.expect(200);
    let reply = server.post("/v1/tasks", json!({ "queue": "q", "payload": {} })).await;
    assert!(reply.header("retry-after").is_some());
    let problem = reply.refused(503, "draining");
    let what = json!({ "scope": "global", "name": null, "reason": null });
    assert_eq!(problem["drained"], what);
    let answer = server.post("/v1/tasks/batch", batch(2, true)).await;
    let problem = answer.refused(503, "draining");
    assert_eq!(column(&problem["errors"], "pointer"), ["/tasks/0"]);
    assert_eq!(server.post("/v1/tasks", known).await.expect(200)["id"], id);
    // What is there is worked off.
    let session = server.worker("q", 5).await;
    assert_eq!(json!(server.claim(&session).await.0), id);
    server.delete("/v1/pauses/global").await.expect(200);
    server.submit("q").await;
}

async fn every_bad_call_about_limits_and_pauses_is_refused_with_its_place(server: Server) {
    let long = format!("/v1/limits/queue/{}", "x".repeat(256));
    let none = Json::Null;
    for (method, path, body, status, pointer) in [
        ("GET", "/v1/limits/colour", none.clone(), 422, "/scope"),
        ("GET", "/v1/limits/queue", none.clone(), 404, ""),
        ("GET", "/v1/limits/queue/%20q", none.clone(), 422, "/name"),
        ("GET", "/v1/limits/queue/%00", none.clone(), 422, "/name"),
        ("GET", "/v1/limits/global/all", none.clone(), 422, "/name"),
        ("GET", long.as_str(), none.clone(), 422, "/name"),
        ("GET", "/v1/limits/venture/", none.clone(), 422, "/name"),
        ("PATCH", "/v1/limits/venture/", json!({ "max_active": 1 }), 422, "/name"),
        ("PUT", "/v1/limits/colour/", json!({ "max_active": 1 }), 422, "/scope"),
        ("DELETE", "/v1/pauses/queue/", none.clone(), 422, "/name"),
        ("POST", "/v1/pauses", json!({ "scope": "queue", "name": "" }), 422, "/name"),
        ("GET", "/v1/limits?limit=0", none.clone(), 422, "/limit"),
        ("GET", "/v1/limits?cursor=x", none.clone(), 400, ""),
        ("GET", "/v1/limits?cursor=7878", none.clone(), 400, ""),
        ("GET", "/v1/limits?scope=queue", none.clone(), 422, "/scope"),
        ("POST", "/v1/limits/queue", json!({}), 405, ""),
        (
            "POST",
            "/v1/tasks/batch?dry_run=true",
            json!({ "tasks": [{ "queue": "q" }] }),
            422,
            "/dry_run",
        ),
        ("PUT", "/v1/limits/queue", json!({ "max_active": -1 }), 422, "/max_active"),
        ("PUT", "/v1/limits/queue", json!({ "max_active": "5" }), 422, "/max_active"),
        ("PUT", "/v1/limits/queue", json!({ "max_pending": 1e12 }), 422, "/max_pending"),
        ("PUT", "/v1/limits/queue", json!({ "rate": [1, 2] }), 422, "/rate"),
        ("PUT", "/v1/limits/queue", json!({ "rate": { "count": 1 } }), 422, "/rate/period_ms"),
        (
            "PUT",
            "/v1/limits/queue",
            json!({ "rate": { "count": 0, "period_ms": 1 } }),
            422,
            "/rate/count",
        ),
        ("PUT", "/v1/limits/queue", json!({ "scope": "queue" }), 422, "/scope"),
        ("PUT", "/v1/limits/worker_type", json!({ "max_pending": 5 }), 422, "/max_pending"),
        (
            "PUT",
            "/v1/limits/worker_type/crew",
            json!({ "rate": { "count": 1, "period_ms": 1 } }),
            422,
            "/rate",
        ),
        ("POST", "/v1/pauses", json!({ "scope": "worker_type", "name": "w" }), 422, "/scope"),
        ("PUT", "/v1/limits/queue", json!([]), 422, ""),
        ("DELETE", "/v1/limits/queue", none.clone(), 404, ""),
        ("POST", "/v1/pauses", json!({}), 422, "/scope"),
        ("POST", "/v1/pauses", json!({ "scope": "stage", "name": "s" }), 422, "/scope"),
        ("POST", "/v1/pauses", json!({ "scope": "queue" }), 422, "/name"),
        ("POST", "/v1/pauses", json!({ "scope": "global", "name": "x" }), 422, "/name"),
        ("POST", "/v1/pauses", json!({ "scope": "global", "mode": "stop" }), 422, "/mode"),
        (
            "POST",
            "/v1/pauses",
            json!({ "scope": "global", "reason": "x".repeat(1_001) }),
            422,
            "/reason",
        ),
        ("POST", "/v1/pauses", json!({ "scope": "queue", "name": ".." }), 422, "/name"),
        ("PATCH", "/v1/limits/queue", json!({ "max_active": -1 }), 422, "/max_active"),
        ("PATCH", "/v1/limits/worker_type", json!({ "max_pending": 5 }), 422, "/max_pending"),
        ("DELETE", "/v1/pauses/global", none.clone(), 404, ""),
        ("DELETE", "/v1/pauses/stage/s", none.clone(), 422, "/scope"),
        ("DELETE", "/v1/pauses/queue", none.clone(), 422, "/name"),
    ] {
        let mut request = server.request(Method::from_bytes(method.as_bytes()).unwrap(), path);
        if !body.is_null() {
            request = request.json(&body);
        }
        let reply = server.send(request).await;
        assert_eq!(reply.status, status, "{method} {path} {body}: {}", reply.text);
        if status == 422 {
            assert_eq!(reply.body["errors"][0]["pointer"], pointer, "{path}: {}", reply.text);
        }
    }
    assert_eq!(server.get("/v1/limits").await.expect(200)["items"].as_array().unwrap().len(), 6);
    assert_eq!(server.get("/v1/pauses").await.expect(200)["items"], json!([]));
}

async fn limits_and_pauses_are_set_by_commands(server: Server) {
    let run = |arguments: &[&str]| {
        let output = windlass(&server, arguments);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let json = |arguments: &[&str]| -> Json {
        let (code, told, wrong) = run(&[arguments, &["--json"]].concat());
        assert_eq!(code, Some(0), "{arguments:?}: {wrong}");
        serde_json::from_str(&told).unwrap()
    };
    // What is not given stays as it is.
    let set = json(&["limit", "set", "global", "--max-active", "500"]);
    assert_eq!((&set["max_active"], &set["max_pending"]), (&json!(500), &json!(1_000)));
    let set = json(&["limit", "set", "queue", "mail out", "--rate", "100/1m"]);
    // Whoever sets a rate wants no other limit because of it.
    assert_eq!((&set["max_active"], &set["max_pending"]), (&Json::Null, &Json::Null));
    assert_eq!(set["rate"], json!({ "count": 100, "period_ms": 60_000 }));
    let set = json(&["limit", "set", "queue", "mail out", "--max-active", "10"]);
    assert_eq!((&set["max_pending"], &set["rate"]["count"]), (&Json::Null, &json!(100)));
    // Nor is what holds for each one taken from it.
    let set = json(&["limit", "set", "venture", "rated", "--rate", "7/90 s"]);
    assert_eq!((&set["max_active"], &set["max_pending"]), (&json!(10), &json!(50)));
    assert_eq!(set["rate"], json!({ "count": 7, "period_ms": 90_000 }));
    json(&["limit", "remove", "venture", "rated"]);
    // What else a new limit brings is said.
    let (_, _, told) = run(&["limit", "set", "queue", "post", "--max-active", "3"]);
    assert!(told.contains("50 pending tasks at most; `--max-pending none`"), "{told}");
    let (_, _, told) = run(&["limit", "set", "queue", "post", "--max-active", "4"]);
    assert_eq!(told, "", "it is not new any more");
    json(&["limit", "remove", "queue", "post"]);
    let (code, table, _) = run(&["limit", "list"]);
    assert_eq!(code, Some(0));
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let lines: Vec<String> = table.lines().map(words).collect();
    assert!(lines[0].starts_with("SCOPE NAME ACTIVE PENDING RATE"), "{table}");
    assert!(lines.iter().any(|line| line.starts_with("global 0 of 500 0 of 1000")), "{table}");
    assert!(lines.iter().any(|line| line.starts_with("venture * 0 of 10 0 of 50")), "{table}");
    assert!(
        lines.iter().any(|line| line.starts_with("queue mail out 0 of 10 0 100/min")),
        "{table}"
    );
    put(&server, "venture/*", json!({ "max_active": 1 })).await;
    let (_, table, _) = run(&["limit", "list"]);
    let lines: Vec<String> = table.lines().map(words).collect();
    assert!(lines.iter().any(|line| line.starts_with("venture \"*\" 0 of 1")), "{table}");
    assert!(lines.iter().any(|line| line.starts_with("venture * 0 of 10")), "{table}");
    for star in [&["set", "venture", "*", "--max-active", "1"][..], &["remove", "venture", "*"]] {
        let (code, _, told) = run(&[&["limit"], star].concat());
        let words = "leave it out to mean each venture without its own";
        assert!(code == Some(2) && told.contains(words), "{told}");
    }
    server.delete("/v1/limits/venture/*").await.expect(200);
    json(&["limit", "remove", "queue", "mail out"]);
    let (code, _, told) = run(&["limit", "remove", "queue", "mail out"]);
    assert!(code != Some(0) && told.contains("no such limit"), "{told}");
    for wrong in [
        &["limit", "set", "colour"][..],
        &["limit", "set", "queue", "--max-active", "many"],
        &["limit", "set", "queue", "--rate", "100"],
        &["pause", "queue"],
        &["pause", "queue", "q", "--all"],
        &["pause", "--drain"],
        &["resume"],
        &["limit", "set", "queue", ".", "--max-active", "1"],
        &["limit", "remove", "queue", ".."],
        &["resume", "queue", ".."],
        &["resume", "queue", ""],
    ] {
        assert_eq!(run(wrong).0, Some(2), "{wrong:?}");
    }
    // What was wrong is told, and what would be right.
    for (wrong, words) in [
        (&["venture", "", "--max-active", "1"][..], "leave it out to mean each venture"),
        (&["venture", "--max-active", "-1"], "write a number from 0 to"),
        (&["venture", "--max-pending", "9999999999"], "write a number from 0 to"),
        (&["venture", "--rate", "-5/1m"], "write a number and a span"),
        (&["queue", "q", "--rate", "100/moon"], "such as 100/min, or none"),
    ] {
        let (code, _, told) = run(&[&["limit", "set"], wrong].concat());
        assert!(code == Some(2) && told.contains(words), "{wrong:?}: {told}");
        assert!(!told.contains("tip:") && !told.contains("task list"), "{told}");
    }
    let (_, _, told) = run(&["pause"]);
    assert!(told.contains("nothing is paused"), "{told}");
    let paused = json(&["pause", "queue", "q", "--drain", "--reason", "a move"]);
    assert_eq!((&paused["mode"], &paused["reason"]), (&json!("drain"), &json!("a move")));
    let (code, _, told) = run(&["task", "submit", "--queue", "q", "1"]);
    assert!(code != Some(0) && told.contains("draining") && told.contains("a move"), "{told}");
    let (_, table, _) = run(&["pause"]);
    assert!(table.contains("drain") && table.contains("a move"), "{table}");
    assert_eq!(json(&["pause", "--all"])["scope"], "global");
    json(&["resume", "queue", "q"]);
    let (code, _, told) = run(&["resume", "--all"]);
    assert!(code == Some(0) && told.trim().ends_with("everything goes on"), "{told}");
}

/// "everything goes on" was told while a queue was paused.
async fn what_stays_stopped_is_told_by_whoever_resumes(server: Server) {
    let run = |arguments: &[&str]| {
        let output = windlass(&server, arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8_lossy(&output.stderr).trim().to_owned()
    };
    for stop in [&["queue", "q", "--drain"][..], &["venture", "acme"], &["--all"]] {
        run(&[&["pause"], stop].concat());
    }
    let told = run(&["resume", "venture", "acme"]);
    let words = "venture acme is stopped no more by itself, but everything still is (pause): \
                 `windlass resume --all`";
    assert!(told.ends_with(words), "{told}");
    let told = run(&["resume", "--all"]);
    let words = "everything goes on but for what is stopped by name: queue q (drain); `windlass \
                 pause` lists it";
    assert!(told.ends_with(words), "{told}");
    for n in 0..11 {
        let pause = json!({ "scope": "agent", "name": format!("a{n:02}") });
        server.post("/v1/pauses", pause).await.expect(200);
    }
    run(&["pause", "--all"]);
    let told = run(&["resume", "--all"]);
    assert!(told.contains("agent a09 (pause), and 2 more; `windlass pause`"), "{told}");
    let told = run(&["resume", "queue", "q"]);
    assert!(told.ends_with("queue q goes on"), "{told}");
}

/// The advice was to send a string, which no limit takes.
async fn an_integer_beyond_64_bits_is_refused_with_what_to_send(server: Server) {
    let body = |max: &str| format!("{{\"max_active\": {max}}}");
    let set = async |max: &str| {
        let request = server.request(Method::PUT, "/v1/limits/global");
        let request = request.header("content-type", "application/json");
        server.send(request.body(body(max))).await
    };
    let problem = set("99999999999999999999").await.refused(400, "invalid_json");
    let detail = text(&problem["detail"]);
    let words = "send a smaller one, or a string where any value may stand";
    assert!(detail.contains(words), "{detail}");
    assert_eq!(set("\"99999999999999999999\"").await.status, 422);
    set("1000").await.expect(200);
}

async fn two_commands_at_once_undo_nothing(server: Server) {
    for name in ["lu1", "lu2", "lu3"] {
        std::thread::scope(|threads| {
            for (flag, most) in [("--max-active", "5"), ("--max-pending", "7"), ("--rate", "3/1m")]
            {
                let command = ["limit", "set", "venture", name, flag, most];
                let server = &server;
                threads.spawn(move || assert!(windlass(server, &command).status.success()));
            }
        });
        let limit = server.get(&format!("/v1/limits/venture/{name}")).await.expect(200);
        assert_eq!((&limit["max_active"], &limit["max_pending"]), (&json!(5), &json!(7)));
        assert_eq!(limit["rate"], json!({ "count": 3, "period_ms": 60_000 }));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workers_key_neither_sets_nor_sees_limits() {
    let keys = "ann:0123456789abcdef-ann,bot:worker:0123456789abcdef-bot";
    let place = super::server::Place::sqlite();
    let server = Server::start(place, &[("WINDLASS_KEYS", keys)]).await;
    for (method, path) in [
        (Method::GET, "/v1/limits"),
        (Method::PUT, "/v1/limits/global"),
        (Method::DELETE, "/v1/limits/stage"),
        (Method::PUT, "/v1/limits/queue/q"),
        (Method::PATCH, "/v1/limits/global"),
        (Method::PATCH, "/v1/limits/queue/q"),
        (Method::GET, "/v1/pauses"),
        (Method::POST, "/v1/pauses"),
        (Method::DELETE, "/v1/pauses/global"),
    ] {
        let request = server.request(method.clone(), path).bearer_auth("0123456789abcdef-bot");
        server.send(request).await.refused(403, "forbidden");
    }
    let request = server.request(Method::PUT, "/v1/limits/global").json(&json!({}));
    let set = server.send(request.bearer_auth("0123456789abcdef-ann")).await.expect(200);
    assert_eq!(set["updated_by"], "ann");
}
