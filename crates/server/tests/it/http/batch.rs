//! Many tasks in one request: all or none, or each for itself.

use super::server::{Server, column, text};
use reqwest::Method;
use serde_json::{Value as Json, json};

super::facts!(
    an_atomic_batch_is_taken_as_a_whole,
    an_atomic_batch_with_one_bad_task_writes_nothing_and_names_all_that_is_wrong,
    an_atomic_batch_that_meets_a_used_key_writes_nothing_and_names_the_task,
    a_batch_that_is_not_atomic_gives_each_task_its_own_outcome,
    a_repeated_batch_is_the_same_tasks,
    the_header_idempotency_key_of_a_batch_is_for_each_of_its_tasks,
    a_batch_of_a_thousand_is_taken_and_one_more_is_refused,
    an_empty_batch_does_nothing,
);

async fn an_atomic_batch_is_taken_as_a_whole(server: Server) {
    let tasks: Vec<Json> = (0..3).map(|n| json!({ "queue": "q", "payload": n })).collect();
    let answer = server.post("/v1/tasks/batch", json!({ "tasks": tasks })).await.expect(201);
    let results = answer["results"].as_array().unwrap();
    assert_eq!(results.len(), 3);
    for (n, result) in results.iter().enumerate() {
        assert_eq!((&result["status"], &result["duplicate"]), (&json!("pending"), &json!(false)));
        let task = server.task(result["id"].as_str().unwrap()).await;
        assert_eq!(task["payload"], n, "results stand in order");
    }
}

async fn an_atomic_batch_with_one_bad_task_writes_nothing_and_names_all_that_is_wrong(
    server: Server,
) {
    let tasks = json!([
        { "queue": "q" }, { "queue": "" }, { "queue": "q", "tags": {"a": "b\u{0}"} },
        { "queue": "q", "colour": "red" }, { "queue": 7 }, "task",
    ]);
    let body = json!({ "tasks": tasks });
    // NUL is refused by the JSON contract already.
    server.post("/v1/tasks/batch", body.clone()).await.refused(400, "invalid_json");
    let mut body = body;
    body["tasks"][2] = json!({ "queue": "q", "tags": {"a": "b\n"} });
    let problem = server.post("/v1/tasks/batch", body).await.refused(422, "validation_failed");
    let pointers = column(&problem["errors"], "pointer");
    let expected = ["/tasks/1/queue", "/tasks/2/tags/a", "/tasks/3/colour", "/tasks/4/queue"];
    assert_eq!(pointers[..4], expected);
    assert_eq!(pointers[4], "/tasks/5");
    let detail = text(&problem["detail"]);
    assert!(expected.iter().all(|pointer| detail.contains(pointer)), "{detail}");
    assert!(detail.contains("/tasks/5 must be an object"), "{detail}");
    let many = json!({ "tasks": vec![json!({ "queue": "" }); 1_000] });
    let problem = server.post("/v1/tasks/batch", many).await.refused(422, "validation_failed");
    assert_eq!(problem["errors"].as_array().unwrap().len(), 1_000);
    let detail = text(&problem["detail"]);
    assert!(detail.ends_with("/tasks/9/queue must not be empty; and 990 more"), "{detail}");
    let list = server.post("/v1/tasks", json!([])).await.refused(422, "validation_failed");
    assert_eq!(list["detail"], "the request is not valid: must be an object with named fields");
    assert_eq!(server.written().await.0, 0);
}

async fn an_atomic_batch_that_meets_a_used_key_writes_nothing_and_names_the_task(server: Server) {
    let used = json!({ "queue": "q", "idempotency_key": "k", "payload": 1 });
    server.post("/v1/tasks", used).await.expect(201);
    let tasks = json!([
        { "queue": "q" }, { "queue": "q", "idempotency_key": "k", "payload": 2 },
    ]);
    let reply = server.post("/v1/tasks/batch", json!({ "tasks": tasks, "atomic": true })).await;
    let problem = reply.refused(422, "idempotency_key_reused");
    assert_eq!(column(&problem["errors"], "pointer"), ["/tasks/1"]);
    assert_eq!(column(&problem["errors"], "code"), ["idempotency_key_reused"]);
    assert_eq!(server.written().await.0, 1);
}

async fn a_batch_that_is_not_atomic_gives_each_task_its_own_outcome(server: Server) {
    let used = json!({ "queue": "q", "idempotency_key": "k", "payload": 1 });
    server.post("/v1/tasks", used.clone()).await.expect(201);
    let tasks = json!([
        { "queue": "q" }, { "queue": "" }, used,
        { "queue": "q", "idempotency_key": "k", "payload": 2 }, 7, { "queue": "q" },
    ]);
    let reply = server.post("/v1/tasks/batch", json!({ "tasks": tasks, "atomic": false })).await;
    let results = reply.expect(200)["results"].clone();
    assert_eq!(results[0]["duplicate"], false);
    assert_eq!(results[1]["error"]["code"], "validation_failed");
    assert_eq!(results[1]["error"]["status"], 422);
    assert_eq!(results[1]["error"]["errors"][0]["pointer"], "/tasks/1/queue");
    assert_eq!(results[2]["duplicate"], true);
    assert_eq!(results[3]["error"]["code"], "idempotency_key_reused");
    assert_eq!(results[4]["error"]["errors"][0]["pointer"], "/tasks/4");
    assert_eq!(results[5]["status"], "pending");
    assert!(results[5].get("error").is_none() && results[1].get("id").is_none());
    assert_eq!(server.written().await.0, 3);
}

async fn a_repeated_batch_is_the_same_tasks(server: Server) {
    let keyed = |n: i32| json!({ "queue": "q", "idempotency_key": n.to_string() });
    let body = json!({ "tasks": [keyed(1), keyed(2)] });
    let first = server.post("/v1/tasks/batch", body.clone()).await.expect(201);
    let again = server.post("/v1/tasks/batch", body).await.expect(201);
    assert_eq!(column(&first["results"], "id"), column(&again["results"], "id"));
    assert_eq!(column(&again["results"], "duplicate"), [json!(true), json!(true)]);
}

/// It was read by nobody, and a batch that was sent again made its tasks twice.
async fn the_header_idempotency_key_of_a_batch_is_for_each_of_its_tasks(server: Server) {
    let send = |key: &'static str, body: &Json| {
        let request = server.request(Method::POST, "/v1/tasks/batch").json(body);
        server.send(request.header("Idempotency-Key", key))
    };
    for (atomic, status) in [(true, 201), (false, 200)] {
        let key = if atomic { "all" } else { "each" };
        let own = json!({ "queue": "q", "idempotency_key": format!("own-{key}") });
        let tasks = json!([{ "queue": "q", "payload": 1 }, own, { "queue": "q", "payload": 1 }]);
        let body = json!({ "tasks": tasks, "atomic": atomic });
        let first = send(key, &body).await.expect(status);
        let again = send(key, &body).await.expect(status);
        let ids = column(&first["results"], "id");
        assert!(ids[0] != ids[2], "one key makes one task of each place: {first}");
        assert_eq!(ids, column(&again["results"], "id"));
        assert_eq!(column(&again["results"], "duplicate"), vec![json!(true); 3]);
        let keys = [json!(format!("{key}/0")), json!(format!("own-{key}"))];
        for (id, key) in ids.iter().zip(keys) {
            assert_eq!(server.task(id.as_str().unwrap()).await["idempotency_key"], key);
        }
    }
    let other = json!({ "tasks": [{ "queue": "q", "payload": 2 }] });
    let problem = send("all", &other).await.refused(422, "idempotency_key_reused");
    assert_eq!(problem["errors"][0]["pointer"], "/tasks/0");
    for key in ["", "é"] {
        let problem = send(key, &other).await.refused(422, "validation_failed");
        assert_eq!(problem["errors"][0]["pointer"], "/idempotency_key");
    }
    assert_eq!(server.written().await.0, 6);
}

async fn a_batch_of_a_thousand_is_taken_and_one_more_is_refused(server: Server) {
    let batch = |size: usize| json!({ "tasks": vec![json!({ "queue": "q" }); size] });
    let reply = server.post("/v1/tasks/batch", batch(1_001)).await;
    let problem = reply.refused(422, "validation_failed");
    assert_eq!(problem["errors"][0]["pointer"], "/tasks");
    assert_eq!(problem["errors"][0]["code"], "too_long");
    assert_eq!(server.written().await.0, 0);
    let answer = server.post("/v1/tasks/batch", batch(1_000)).await.expect(201);
    assert_eq!(answer["results"].as_array().unwrap().len(), 1_000);
    assert_eq!(server.written().await.0, 1_000);
}

async fn an_empty_batch_does_nothing(server: Server) {
    for atomic in [true, false] {
        let body = json!({ "tasks": [], "atomic": atomic });
        let reply = server.post("/v1/tasks/batch", body).await;
        assert_eq!(reply.expect(if atomic { 201 } else { 200 }), json!({ "results": [] }));
    }
}
