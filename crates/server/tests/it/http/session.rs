//! Sessions: register, claim, heartbeat, finish, close, and the end of those that fall silent.

use super::server::{Server, column, eventually, text};
use serde_json::{Value as Json, json};
use std::time::{Duration, Instant};

super::facts!(
    a_worker_registers_and_is_shown,
    the_same_id_again_is_the_same_session,
    a_session_needs_a_queue_or_a_pool,
    slots_are_clamped_by_the_workers_type,
    a_claim_takes_the_most_urgent_and_the_oldest_first,
    a_claim_takes_at_most_its_max_and_the_sessions_slots,
    a_long_poll_wakes_at_once_when_a_task_comes,
    a_long_poll_ends_empty_when_its_time_is_up,
    a_claim_with_the_same_id_returns_what_it_gave,
    a_claim_takes_only_the_sessions_kinds_and_queues,
    a_claim_by_ids_takes_those_and_no_others,
    a_heartbeat_tells_what_is_renewed_cancelled_lost_and_unnamed,
    two_leases_of_one_task_are_told_apart,
    a_heartbeat_renews_only_what_it_names,
    a_finish_of_many_gives_each_its_outcome_in_order,
    closing_gives_back_what_the_session_held,
    a_closed_session_is_told_to_register_again,
    an_unknown_session_is_404,
    a_silent_session_expires_and_a_beating_one_lives_on,
);

async fn claim(server: &Server, session: &str, body: Json) -> Vec<Json> {
    let answer = server.post(&format!("/v1/sessions/{session}/claim"), body).await.expect(200);
    answer["assignments"].as_array().unwrap().clone()
}

async fn a_worker_registers_and_is_shown(server: Server) {
    let body = json!({
        "name": "crew-1", "worker_type": "crew_executor", "queues": ["a", "b"], "pools": ["p"],
        "models": ["m"], "kinds": ["job", "inference"], "slots": 1, "lease_ms": 5_000,
    });
    let session = server.post("/v1/sessions", body.clone()).await.expect(201);
    for (field, value) in body.as_object().unwrap() {
        assert_eq!(&session[field], value, "{field}");
    }
    assert_eq!(session["closed_at"], json!(null));
    let path = format!("/v1/sessions/{}", text(&session["id"]));
    assert_eq!(server.get(&path).await.expect(200), session);
}

async fn the_same_id_again_is_the_same_session(server: Server) {
    let id = "11111111-2222-4333-8444-555555555555";
    let register = |queue: &str| json!({ "name": "w", "id": id, "queues": [queue] });
    server.post("/v1/sessions", register("a")).await.expect(201);
    let again = server.post("/v1/sessions", register("b")).await.expect(201);
    assert_eq!((&again["id"], &again["queues"]), (&json!(id), &json!(["b"])));
    assert_eq!(server.written().await.1, 1);
}

async fn a_session_needs_a_queue_or_a_pool(server: Server) {
    let reply = server.post("/v1/sessions", json!({ "name": "w" })).await;
    let problem = reply.refused(422, "validation_failed");
    assert_eq!(problem["errors"][0]["pointer"], "/queues");
    server.post("/v1/sessions", json!({ "name": "w", "pools": ["p"] })).await.expect(201);
}

async fn slots_are_clamped_by_the_workers_type(server: Server) {
    for (kind, asked, given) in
        [("ceo_handler", 100, 5), ("vp_handler", 100, 10), ("crew_executor", 2, 1)]
    {
        let body = json!({ "name": "w", "queues": ["q"], "worker_type": kind, "slots": asked });
        assert_eq!(server.post("/v1/sessions", body).await.expect(201)["slots"], given, "{kind}");
    }
}

async fn a_claim_takes_the_most_urgent_and_the_oldest_first(server: Server) {
    for (payload, priority) in [(1, 0), (2, 5), (3, 0), (4, 5)] {
        let submit = json!({ "queue": "q", "payload": payload, "priority": priority });
        server.post("/v1/tasks", submit).await.expect(201);
    }
    let session = server.worker("q", 4).await;
    let mut order = Vec::new();
    for _ in 0..4 {
        order.push(claim(&server, &session, json!({})).await[0]["task"]["payload"].clone());
    }
    assert_eq!(order, [2, 4, 1, 3]);
}

async fn a_claim_takes_at_most_its_max_and_the_sessions_slots(server: Server) {
    for _ in 0..5 {
        server.submit("q").await;
    }
    let session = server.worker("q", 3).await;
    assert_eq!(claim(&server, &session, json!({ "max": 2 })).await.len(), 2);
    let many = server.worker("q", 2).await;
    assert_eq!(claim(&server, &many, json!({ "max": 100 })).await.len(), 2);
}

async fn a_long_poll_wakes_at_once_when_a_task_comes(server: Server) {
    let session = server.worker("q", 1).await;
    for start in [true, false] {
        let body = json!({ "max": 1, "wait_ms": 20_000, "start": start });
        let submit = async {
            eventually("the worker waits", || async {
                server.get("/v1/status").await.expect(200)["idle_workers"] == 1
            })
            .await;
            let submitted = Instant::now();
            (server.submit("q").await, submitted)
        };
        let waiting = async { (claim(&server, &session, body).await, Instant::now()) };
        let ((taken, woken), (id, submitted)) = tokio::join!(waiting, submit);
        assert_eq!(taken[0]["task"]["id"], id.as_str());
        let status = if start { "running" } else { "claimed" };
        assert_eq!(taken[0]["task"]["status"], status);
        assert_eq!(taken[0]["attempt"], 1);
        // Polling alone would need up to a second; the machine may be busy, so take the best.
        assert!(woken - submitted < Duration::from_secs(5));
        let body = json!({ "lease_id": taken[0]["lease_id"] });
        server.post(&format!("/v1/tasks/{id}/complete"), body).await.expect(200);
    }
}

async fn a_long_poll_ends_empty_when_its_time_is_up(server: Server) {
    let session = server.worker("q", 1).await;
    let started = Instant::now();
    assert!(claim(&server, &session, json!({ "wait_ms": 300 })).await.is_empty());
    assert!(started.elapsed() >= Duration::from_millis(300));
    assert!(claim(&server, &session, json!({})).await.is_empty());
}

async fn a_claim_with_the_same_id_returns_what_it_gave(server: Server) {
    for _ in 0..3 {
        server.submit("q").await;
    }
    let session = server.worker("q", 3).await;
    let body = json!({ "max": 2, "claim_id": "11111111-2222-4333-8444-555555555555" });
    let first = claim(&server, &session, body.clone()).await;
    let again = claim(&server, &session, body).await;
    let leases = |taken: &[Json]| column(&json!(taken), "lease_id");
    assert_eq!(leases(&first), leases(&again));
    assert_eq!(first.len(), 2);
    assert_eq!(claim(&server, &session, json!({ "max": 2 })).await.len(), 1);
}

async fn a_claim_takes_only_the_sessions_kinds_and_queues(server: Server) {
    server.submit("other").await;
    let delegation = json!({ "caller": "a", "callee": "q" });
    server.post("/v1/tasks", delegation).await.expect(201);
    let job = server.submit("q").await;
    let register = |kinds: Json| json!({ "name": "w", "queues": ["q"], "kinds": kinds });
    let session = server.post("/v1/sessions", register(json!(["job"]))).await.expect(201);
    let session = text(&session["id"]);
    let taken = claim(&server, &session, json!({})).await;
    assert_eq!(taken[0]["task"]["id"], job.as_str());
    assert!(claim(&server, &session, json!({})).await.is_empty());
}

async fn a_claim_by_ids_takes_those_and_no_others(server: Server) {
    let (_, wanted) = (server.submit("q").await, server.submit("q").await);
    let foreign = server.submit("other").await;
    let session = server.worker("q", 3).await;
    let body = json!({ "max": 3, "task_ids": [wanted, foreign], "wait_ms": 60_000 });
    let taken = claim(&server, &session, body.clone()).await;
    assert_eq!(taken.len(), 1);
    assert_eq!(taken[0]["task"]["id"], wanted.as_str());
    assert!(claim(&server, &session, body).await.is_empty(), "nobody waits for named tasks");
    // Whoever computes which tasks to take may find none: that is not "any".
    let none = json!({ "max": 3, "task_ids": [], "wait_ms": 60_000 });
    assert!(claim(&server, &session, none).await.is_empty());
    let many = vec![wanted; 1_001];
    let path = format!("/v1/sessions/{session}/claim");
    let reply = server.post(&path, json!({ "task_ids": many })).await;
    let problem = reply.refused(422, "validation_failed");
    assert_eq!(problem["errors"][0]["pointer"], "/task_ids");
}

async fn a_heartbeat_tells_what_is_renewed_cancelled_lost_and_unnamed(server: Server) {
    let session = server.worker("q", 4).await;
    let mut held = Vec::new();
    for _ in 0..4 {
        server.submit("q").await;
        held.push(server.claim(&session).await);
    }
    server.post(&format!("/v1/tasks/{}/cancel", held[1].0), json!({})).await.expect(200);
    let done = json!({ "lease_id": held[2].1 });
    server.post(&format!("/v1/tasks/{}/release", held[2].0), done).await.expect(200);
    let lease = |(task, lease): &(String, String)| json!({ "task_id": task, "lease_id": lease });
    let unknown = "11111111-2222-4333-8444-555555555555";
    let leases = json!([
        lease(&held[0]), lease(&held[1]), lease(&held[2]),
        { "task_id": unknown, "lease_id": unknown },
    ]);
    let path = format!("/v1/sessions/{session}/heartbeat");
    let answer = server.post(&path, json!({ "leases": leases })).await.expect(200);
    let renewed = answer["renewed"].as_array().unwrap();
    assert_eq!(renewed.len(), 1);
    assert!(renewed[0]["lease_expires_at"].is_string());
    assert_eq!(renewed[0]["task_id"], held[0].0.as_str());
    assert_eq!(renewed[0]["lease_id"], held[0].1.as_str());
    assert_eq!(answer["cancelled"], json!([lease(&held[1])]));
    assert_eq!(answer["lost"], json!([lease(&held[2]), leases[3]]));
    assert_eq!(answer["unnamed"][0]["task"]["id"], held[3].0.as_str());
    assert_eq!(answer["unnamed"][0]["lease_id"], held[3].1.as_str());
    assert_eq!(answer["unnamed"].as_array().unwrap().len(), 1);
}

async fn two_leases_of_one_task_are_told_apart(server: Server) {
    let session = server.worker("q", 2).await;
    let id = server.submit("q").await;
    let (_, older) = server.claim(&session).await;
    let path = format!("/v1/tasks/{id}/release");
    server.post(&path, json!({ "lease_id": older })).await.expect(200);
    let (_, newer) = server.claim(&session).await;
    let leases = [&older, &newer].map(|lease| json!({ "task_id": id, "lease_id": lease }));
    let path = format!("/v1/sessions/{session}/heartbeat");
    let answer = server.post(&path, json!({ "leases": leases })).await.expect(200);
    assert_eq!(column(&answer["renewed"], "lease_id"), [newer]);
    assert_eq!(answer["lost"], json!([leases[0]]));
}

async fn a_heartbeat_renews_only_what_it_names(server: Server) {
    let session = server.worker("q", 2).await;
    let (mut held, mut before) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        server.submit("q").await;
        let (task, lease) = server.claim(&session).await;
        before.push(text(&server.task(&task).await["lease_expires_at"]));
        held.push((task, lease));
    }
    let path = format!("/v1/sessions/{session}");
    let expires = text(&server.get(&path).await.expect(200)["expires_at"]);
    let leases = json!([{
        "task_id": held[0].0, "lease_id": held[0].1, "checkpoint": {"at": 3}, "progress": 0.3,
    }]);
    let beat = json!({ "leases": leases });
    // Within a millisecond of the claim a beat gives nothing new.
    eventually("lease and session are renewed", || async {
        server.post(&format!("{path}/heartbeat"), beat.clone()).await.expect(200);
        let renewed = text(&server.task(&held[0].0).await["lease_expires_at"]) > before[0];
        renewed && text(&server.get(&path).await.expect(200)["expires_at"]) > expires
    })
    .await;
    let (first, second) = (server.task(&held[0].0).await, server.task(&held[1].0).await);
    assert_eq!(first["checkpoint"], json!({"at": 3}));
    assert_eq!(text(&second["lease_expires_at"]), before[1]);
}

async fn a_finish_of_many_gives_each_its_outcome_in_order(server: Server) {
    let session = server.worker("q", 5).await;
    let mut held = Vec::new();
    for _ in 0..5 {
        server.submit("q").await;
        held.push(server.claim(&session).await);
    }
    let item = |n: usize, extra: Json| {
        let mut item = extra;
        item["task_id"] = json!(held[n].0);
        item["lease_id"] = json!(held[n].1);
        item
    };
    let unknown = "11111111-2222-4333-8444-555555555555";
    let items = json!([
        item(0, json!({ "outcome": "complete", "result": {"n": 0} })),
        item(1, json!({ "outcome": "fail", "error": {"code": "INVALID_INPUT", "message": "m"} })),
        item(2, json!({ "outcome": "release" })),
        item(3, json!({ "outcome": "fail" })),
        { "task_id": held[4].0, "lease_id": unknown, "outcome": "complete" },
        { "task_id": unknown, "lease_id": unknown, "outcome": "complete" },
        item(3, json!({ "outcome": "complete", "error": {"code": "X", "message": ""} })),
    ]);
    let path = format!("/v1/sessions/{session}/finish");
    let answer = server.post(&path, json!({ "items": items })).await.expect(200);
    let results = &answer["results"];
    assert_eq!(results[0]["status"], "completed");
    assert_eq!(results[1]["status"], "failed");
    assert_eq!(results[2]["status"], "pending");
    assert_eq!(results[3]["error"]["code"], "validation_failed");
    assert_eq!(results[3]["error"]["errors"][0]["pointer"], "/items/3/error");
    assert_eq!(results[4]["error"]["code"], "lease_lost");
    assert_eq!(results[5]["error"]["code"], "not_found");
    assert_eq!(results[6]["error"]["errors"][0]["code"], "conflict");
    assert_eq!(results[0]["task_id"], held[0].0.as_str());
    let again = server.post(&path, json!({ "items": [items[0]] })).await.expect(200);
    assert_eq!(again["results"][0]["status"], "completed");
}

async fn closing_gives_back_what_the_session_held(server: Server) {
    let session = server.worker("q", 2).await;
    let mut held = Vec::new();
    for start in [true, false] {
        server.submit("q").await;
        let taken = claim(&server, &session, json!({ "start": start })).await;
        held.push(text(&taken[0]["task"]["id"]));
    }
    let reply = server.delete(&format!("/v1/sessions/{session}")).await;
    assert_eq!((reply.status, reply.text.as_str()), (204, ""));
    for id in &held {
        let task = server.task(id).await;
        assert_eq!((&task["status"], &task["claimed_by"]), (&json!("pending"), &json!(null)));
    }
    server.delete(&format!("/v1/sessions/{session}")).await.expect(204);
    let shown = server.get(&format!("/v1/sessions/{session}")).await.expect(200);
    assert_eq!(shown["close_reason"], "closed");
}

async fn a_closed_session_is_told_to_register_again(server: Server) {
    let session = server.worker("q", 1).await;
    server.delete(&format!("/v1/sessions/{session}")).await.expect(204);
    for call in ["claim", "heartbeat"] {
        let reply = server.post(&format!("/v1/sessions/{session}/{call}"), json!({})).await;
        let problem = reply.refused(409, "session_closed");
        assert!(text(&problem["detail"]).contains("register again"), "{problem}");
    }
    let stream = server.get(&format!("/v1/sessions/{session}/stream")).await;
    stream.refused(409, "session_closed");
    let body = json!({ "name": "w", "id": session, "queues": ["q"] });
    server.post("/v1/sessions", body).await.expect(201);
    assert!(claim(&server, &session, json!({})).await.is_empty());
}

async fn an_unknown_session_is_404(server: Server) {
    let path = "/v1/sessions/11111111-2222-4333-8444-555555555555";
    server.get(path).await.refused(404, "session_not_found");
    server.delete(path).await.refused(404, "session_not_found");
    server.get(&format!("{path}/stream")).await.refused(404, "session_not_found");
    for call in ["claim", "heartbeat"] {
        let reply = server.post(&format!("{path}/{call}"), json!({})).await;
        reply.refused(404, "session_not_found");
    }
}

async fn a_silent_session_expires_and_a_beating_one_lives_on(server: Server) {
    let (silent, beating) = (server.worker("q", 1).await, server.worker("q", 1).await);
    let waiting = server.worker("none", 1).await;
    let id = server.submit("q").await;
    assert_eq!(claim(&server, &silent, json!({ "start": false })).await.len(), 1);
    let beat = async {
        eventually("the silent session expires", || async {
            let path = format!("/v1/sessions/{beating}/heartbeat");
            server.post(&path, json!({})).await.expect(200);
            let shown = server.get(&format!("/v1/sessions/{silent}")).await.expect(200);
            shown["closed_at"].is_string()
        })
        .await;
    };
    let wait = claim(&server, &waiting, json!({ "wait_ms": 18_000 }));
    let ((), taken) = tokio::join!(beat, wait);
    assert!(taken.is_empty());
    for alive in [beating, waiting] {
        let shown = server.get(&format!("/v1/sessions/{alive}")).await.expect(200);
        assert_eq!(shown["closed_at"], json!(null), "a beat or a wait keeps a session alive");
    }
    let reply = server.post(&format!("/v1/sessions/{silent}/heartbeat"), json!({})).await;
    reply.refused(409, "session_closed");
    // For a job the lease decides, not the session.
    assert_eq!(server.task(&id).await["status"], "claimed");
}
