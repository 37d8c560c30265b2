//! Agents over HTTP and on the command line: what their tasks take over, on every node.

use super::server::{Server, column, eventually, text};
use reqwest::Method;
use serde_json::{Value as Json, json};

super::facts!(
    a_task_takes_over_what_it_leaves_out_and_keeps_it,
    the_same_submit_is_the_same_whatever_the_policy_says_meanwhile,
    every_bad_call_about_agents_is_refused_with_its_place,
);

async fn put(server: &Server, name: &str, policy: Json) -> Json {
    let path = format!("/v1/agents/{name}");
    let body = json!({ "retry_policy": policy });
    server.send(server.request(Method::PUT, &path).json(&body)).await.expect(200)
}

async fn retries(server: &Server, extra: Json) -> Json {
    let mut body = json!({ "queue": "q", "payload": {}, "agent": "scout" });
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    server.post("/v1/tasks", body).await.expect(201)["max_retries"].clone()
}

async fn a_task_takes_over_what_it_leaves_out_and_keeps_it(server: Server) {
    assert_eq!(retries(&server, json!({})).await, 3);
    let policy = json!({ "max_retries": 0, "backoff": { "base_ms": 5 }, "on_exhausted": "failed" });
    let agent = put(&server, "scout", policy).await;
    assert_eq!(agent["retry_policy"]["max_retries"], 0);
    // On this node at once, on the others within a second.
    assert_eq!(retries(&server, json!({})).await, 0);
    assert_eq!(retries(&server, json!({ "max_retries": 2 })).await, 2);
    if let super::server::Place::Postgres(_) = &server.place {
        let other = Server::start(server.place.clone(), &[]).await;
        assert_eq!(retries(&other, json!({})).await, 0);
        put(&server, "scout", json!({ "max_retries": 9 })).await;
        eventually("the other node knows", async || retries(&other, json!({})).await == 9).await;
        put(&server, "scout", json!({ "max_retries": 0, "on_exhausted": "failed" })).await;
    }
    // It ends where its agent said when it was submitted, not where it says now.
    let body = json!({ "queue": "one", "payload": {}, "agent": "scout" });
    let tasks = json!({ "tasks": [body, { "queue": "two", "payload": {} }] });
    let results = server.post("/v1/tasks/batch", tasks).await.expect(201)["results"].clone();
    put(&server, "scout", json!({ "max_retries": 7, "on_exhausted": "poisoned" })).await;
    let session = server.worker("one", 1).await;
    let (id, lease) = server.claim(&session).await;
    assert_eq!(json!(id), results[0]["id"]);
    let body = json!({ "lease_id": lease, "error": { "code": "TIMEOUT", "message": "no" } });
    let ended = server.post(&format!("/v1/tasks/{id}/fail"), body).await.expect(200);
    assert_eq!((&ended["status"], &ended["max_retries"]), (&json!("failed"), &json!(0)));
    let plain = server.task(&text(&results[1]["id"])).await;
    assert_eq!(plain["max_retries"], 3);
    put(&server, "crew%20two", json!({})).await;
    let list = server.get("/v1/agents?limit=1").await.expect(200);
    assert_eq!(column(&list["items"], "name"), [json!("crew two")]);
    let path = format!("/v1/agents?cursor={}", text(&list["next_cursor"]));
    let rest = server.get(&path).await.expect(200);
    assert_eq!(column(&rest["items"], "name"), [json!("scout")]);
    assert_eq!(rest["next_cursor"], Json::Null);
    assert_eq!(server.get("/v1/agents/scout").await.expect(200), rest["items"][0]);
}

async fn the_same_submit_is_the_same_whatever_the_policy_says_meanwhile(server: Server) {
    put(&server, "scout", json!({ "max_retries": 1 })).await;
    let body = json!({ "payload": {}, "agent": "scout", "idempotency_key": "k" });
    let first = server.post("/v1/tasks", body.clone()).await.expect(201);
    put(&server, "scout", json!({ "max_retries": 2 })).await;
    let again = server.post("/v1/tasks", body).await.expect(200);
    assert_eq!((&again["id"], &again["max_retries"]), (&first["id"], &json!(1)));
}

async fn every_bad_call_about_agents_is_refused_with_its_place(server: Server) {
    let long = format!("/v1/agents/{}", "x".repeat(256));
    let policy = |policy: Json| json!({ "retry_policy": policy });
    for (method, path, body, status, pointer) in [
        ("GET", "/v1/agents/nobody", Json::Null, 404, ""),
        ("GET", "/v1/agents/%20scout", Json::Null, 422, "/name"),
        ("GET", "/v1/agents/%00", Json::Null, 422, "/name"),
        ("GET", long.as_str(), Json::Null, 422, "/name"),
        ("GET", "/v1/agents?limit=0", Json::Null, 422, "/limit"),
        ("GET", "/v1/agents?cursor=x", Json::Null, 400, ""),
        ("GET", "/v1/agents?cursor=", Json::Null, 400, ""),
        ("GET", "/v1/agents?colour=red", Json::Null, 422, "/colour"),
        ("GET", "/v1/agents?role=", Json::Null, 422, "/role"),
        ("POST", "/v1/agents/scout", json!({}), 405, ""),
        ("PUT", "/v1/agents/a%0Ab", json!({}), 422, "/name"),
        ("PUT", "/v1/agents/scout", json!({ "colour": "red" }), 422, "/colour"),
        ("PUT", "/v1/agents/scout", json!({ "parent": "nobody" }), 422, "/parent"),
        ("PUT", "/v1/agents/scout", json!({ "parent": "scout" }), 422, "/parent"),
        ("PATCH", "/v1/agents/scout", json!({ "venture": "nothing" }), 422, "/venture"),
        ("POST", "/v1/agents", json!({ "name": "a", "role": "" }), 422, "/role"),
        ("POST", "/v1/agents", json!({}), 422, "/name"),
        ("POST", "/v1/agents", json!({ "name": ".." }), 422, "/name"),
        ("POST", "/v1/agents/nobody/archive", Json::Null, 404, ""),
        ("PUT", "/v1/agents/scout", policy(json!(3)), 422, "/retry_policy"),
        ("PUT", "/v1/agents/scout", policy(json!({ "retries": 3 })), 422, "/retry_policy/retries"),
        (
            "PUT",
            "/v1/agents/scout",
            policy(json!({ "max_retries": 101 })),
            422,
            "/retry_policy/max_retries",
        ),
        // serde alone would take a list as the fields in their order.
        ("PUT", "/v1/agents/scout", policy(json!([null, null])), 422, "/retry_policy"),
        (
            "PUT",
            "/v1/agents/scout",
            policy(json!({ "backoff": [1] })),
            422,
            "/retry_policy/backoff",
        ),
        (
            "PUT",
            "/v1/agents/scout",
            policy(json!({ "on_exhausted": "lost" })),
            422,
            "/retry_policy/on_exhausted",
        ),
        (
            "PUT",
            "/v1/agents/scout",
            policy(json!({ "backoff": { "base_ms": -1 } })),
            422,
            "/retry_policy/backoff/base_ms",
        ),
        (
            "PUT",
            "/v1/agents/scout",
            policy(json!({ "backoff": { "on_exhausted": "failed" } })),
            422,
            "/retry_policy/backoff/on_exhausted",
        ),
    ] {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let mut request = server.request(method, path);
        if !body.is_null() {
            request = request.json(&body);
        }
        let reply = server.send(request).await;
        assert_eq!(reply.status, status, "{path} {body}: {}", reply.text);
        if status == 422 {
            assert_eq!(reply.body["errors"][0]["pointer"], pointer, "{path}: {}", reply.text);
        }
    }
    assert_eq!(server.get("/v1/agents").await.expect(200)["items"], json!([]));
}
