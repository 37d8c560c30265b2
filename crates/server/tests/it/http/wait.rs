//! Waits over HTTP: parked without a worker, woken once, by what came or by the limit.

use super::server::{Place, Server, eventually, text};
use super::step::{on, running};
use serde_json::{Value as Json, json};

super::facts!(
    a_parked_task_is_woken_by_its_signal,
    a_signal_that_came_early_is_not_lost_and_is_taken_once,
    a_signal_by_key_wakes_the_one_that_waits_longest,
    a_sleep_ends_by_itself_and_a_limit_ends_a_wait,
    a_task_waits_for_the_end_of_another,
    parking_again_is_answered_like_the_first_time,
    a_signal_sent_twice_is_one_signal,
    a_signal_to_a_finished_or_unknown_task_is_refused,
);

async fn park(server: &Server, id: &str, lease: &str, extra: Json) -> Json {
    on(server, id, "park", lease, extra).await.expect(200)
}

async fn send(server: &Server, body: Json) -> Json {
    server.post("/v1/signals", body).await.expect(201)
}

async fn a_parked_task_is_woken_by_its_signal(server: Server) {
    let (id, lease, session) = running(&server).await;
    let wait = json!({ "until": {"signal": "go"}, "checkpoint": {"at": 1} });
    let parked = park(&server, &id, &lease, wait.clone()).await;
    assert_eq!((&parked["status"], &parked["id"]), (&json!("waiting"), &json!(id)));
    assert_eq!(parked["wait"]["status"], "parked");
    assert_eq!((&parked["checkpoint"], &parked["claimed_by"]), (&json!({"at": 1}), &json!(null)));
    on(&server, &id, "heartbeat", &lease, json!({})).await.refused(409, "lease_lost");
    let signal = json!({ "name": "go", "task_id": id, "payload": {"by": "ann"} });
    let sent = send(&server, signal).await;
    assert_eq!((&sent["taken_by"], &sent["sent_by"]), (&json!(id), &json!("api")));
    let path = format!("/v1/signals/{}", text(&sent["id"]));
    assert_eq!(server.get(&path).await.expect(200), sent);
    let (taken, lease) = server.claim(&session).await;
    assert_eq!(taken, id);
    // The handler runs again from its beginning, and goes past the wait.
    let woken = park(&server, &id, &lease, wait).await;
    assert_eq!((&woken["status"], &woken["wait"]["status"]), (&json!("running"), &json!("woken")));
    assert_eq!(woken["wait"]["result"]["payload"], json!({"by": "ann"}));
    assert_eq!(woken["wait"]["step_id"], parked["wait"]["step_id"]);
    on(&server, &id, "complete", &lease, json!({})).await.expect(200);
    let events = server.history(&id).await;
    assert_eq!(events[1..], ["claim", "wait", "wake", "claim", "complete"]);
}

async fn a_signal_that_came_early_is_not_lost_and_is_taken_once(server: Server) {
    let (id, lease, _) = running(&server).await;
    let early = send(&server, json!({ "name": "go", "task_id": id, "payload": 1 })).await;
    assert_eq!(early["taken_by"], json!(null));
    let until = json!({ "until": {"signal": "go"} });
    let woken = park(&server, &id, &lease, until.clone()).await;
    assert_eq!((&woken["wait"]["status"], &woken["status"]), (&json!("woken"), &json!("running")));
    assert_eq!(woken["wait"]["result"]["payload"], 1);
    assert_eq!(park(&server, &id, &lease, until).await["wait"], woken["wait"], "the same wait");
    let next = json!({ "until": {"signal": "go"}, "occurrence": 1 });
    assert_eq!(park(&server, &id, &lease, next).await["wait"]["status"], "parked");
}

async fn a_signal_by_key_wakes_the_one_that_waits_longest(server: Server) {
    let until = json!({ "until": {"signal": "paid", "key": "order-7"} });
    let (first, lease, _) = running(&server).await;
    park(&server, &first, &lease, until.clone()).await;
    let (second, lease, _) = running(&server).await;
    park(&server, &second, &lease, until.clone()).await;
    for id in [&first, &second] {
        let sent = send(&server, json!({ "name": "paid", "key": "order-7" })).await;
        assert_eq!(sent["taken_by"], json!(id));
        assert_eq!(server.task(id).await["status"], "pending");
    }
    let kept = send(&server, json!({ "name": "paid", "key": "order-7", "payload": 3 })).await;
    assert_eq!(kept["taken_by"], json!(null));
    let (third, lease, _) = running(&server).await;
    let woken = park(&server, &third, &lease, until).await;
    assert_eq!(woken["wait"]["result"]["payload"], 3);
}

async fn a_sleep_ends_by_itself_and_a_limit_ends_a_wait(server: Server) {
    for (body, how) in [
        (json!({ "until": {"delay_ms": 50} }), "time"),
        (json!({ "until": {"signal": "never"}, "timeout_ms": 50 }), "timeout"),
    ] {
        let (id, lease, session) = running(&server).await;
        park(&server, &id, &lease, body.clone()).await;
        let (taken, lease) = server.claim(&session).await;
        assert_eq!(taken, id);
        let woken = park(&server, &id, &lease, body).await;
        assert_eq!(woken["wait"]["result"]["woken"], how);
    }
    let (id, lease, _) = running(&server).await;
    let past = json!({ "until": {"time": "2020-01-01T00:00:00Z"} });
    assert_eq!(park(&server, &id, &lease, past).await["wait"]["status"], "woken");
}

async fn a_task_waits_for_the_end_of_another(server: Server) {
    let (parent, lease, session) = running(&server).await;
    let (child, child_lease, _) = running(&server).await;
    let until = json!({ "until": {"task": child} });
    assert_eq!(park(&server, &parent, &lease, until.clone()).await["wait"]["status"], "parked");
    let done = json!({ "result": {"sum": 3} });
    on(&server, &child, "complete", &child_lease, done).await.expect(200);
    let (taken, lease) = server.claim(&session).await;
    assert_eq!(taken, parent);
    let came = park(&server, &parent, &lease, until).await["wait"]["result"].clone();
    assert_eq!((&came["status"], &came["result"]), (&json!("completed"), &json!({"sum": 3})));
    assert_eq!((&came["woken"], &came["task_id"]), (&json!("task"), &json!(child)));
}

async fn parking_again_is_answered_like_the_first_time(server: Server) {
    let (id, lease, _) = running(&server).await;
    let body = json!({ "until": {"signal": "go"} });
    let first = park(&server, &id, &lease, body.clone()).await;
    assert_eq!(park(&server, &id, &lease, body.clone()).await, first);
    assert_eq!(server.history(&id).await.iter().filter(|event| *event == "wait").count(), 1);
    let foreign = "11111111-2222-4333-8444-555555555555";
    on(&server, &id, "park", foreign, body.clone()).await.refused(409, "lease_lost");
    server.post(&format!("/v1/tasks/{id}/cancel"), json!({})).await.expect(200);
    on(&server, &id, "park", &lease, body).await.refused(409, "lease_lost");
}

async fn a_signal_sent_twice_is_one_signal(server: Server) {
    let (id, _, _) = running(&server).await;
    let signal = uuid::Uuid::new_v4().to_string();
    let body = json!({ "id": signal, "name": "go", "task_id": id, "payload": {"a": 1} });
    let first = send(&server, body.clone()).await;
    assert_eq!(first["id"], json!(signal));
    let again = server.post("/v1/signals", body).await;
    assert_eq!(again.header("windlass-duplicate"), Some("true"));
    assert_eq!(again.expect(200), first);
    let other = json!({ "id": signal, "name": "go", "task_id": id, "payload": {"a": 2} });
    server.post("/v1/signals", other).await.refused(422, "idempotency_key_reused");
    let unknown = "/v1/signals/11111111-2222-4333-8444-555555555555";
    server.get(unknown).await.refused(404, "not_found");
}

async fn a_signal_to_a_finished_or_unknown_task_is_refused(server: Server) {
    let (id, lease, _) = running(&server).await;
    on(&server, &id, "complete", &lease, json!({})).await.expect(200);
    let late = json!({ "name": "go", "task_id": id });
    server.post("/v1/signals", late).await.refused(409, "task_finished");
    let nobody = json!({ "name": "go", "task_id": "11111111-2222-4333-8444-555555555555" });
    server.post("/v1/signals", nobody).await.refused(404, "not_found");
}

async fn survives(place: Place) {
    let mut server = Server::start(place.clone(), &[]).await;
    let (id, lease, _) = running(&server).await;
    park(&server, &id, &lease, json!({ "until": {"signal": "go"} })).await;
    let (slept, lease, _) = running(&server).await;
    park(&server, &slept, &lease, json!({ "until": {"delay_ms": 500} })).await;
    server.stop();
    let server = Server::start(place, &[]).await;
    assert_eq!(server.task(&id).await["status"], "waiting");
    send(&server, json!({ "name": "go", "task_id": id })).await;
    assert_eq!(server.task(&id).await["status"], "pending");
    eventually("the sleep ends on the server that came after", || async {
        server.task(&slept).await["status"] == "pending"
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_survives_a_restart_on_sqlite() {
    survives(Place::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_survives_a_restart_on_postgres() {
    survives(Place::postgres()).await;
}
