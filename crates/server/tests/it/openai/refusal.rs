//! What is refused, in OpenAI's shape and with its status codes.

use super::setting::{bind, chat, says, told};
use crate::http::facts;
use crate::http::server::{Place, Server};
use reqwest::Method;
use serde_json::json;

facts!(
    every_bad_request_is_refused_with_its_field,
    an_unknown_model_is_refused_with_what_there_is,
    a_full_queue_says_when_to_come_back,
    what_drains_takes_nothing_in,
);

async fn every_bad_request_is_refused_with_its_field(server: Server) {
    bind(&server, "fast").await;
    let before = server.written().await;
    for (path, body, param) in [
        ("chat/completions", json!({ "model": "fast" }), Some("messages")),
        ("chat/completions", json!({ "model": "fast", "messages": "x" }), Some("messages")),
        ("chat/completions", json!({ "model": "fast", "messages": [] }), Some("messages")),
        ("chat/completions", json!({ "messages": [{ "role": "user" }] }), Some("model")),
        ("chat/completions", json!({ "model": 1, "messages": [{}] }), Some("model")),
        (
            "chat/completions",
            json!({ "model": "fast", "messages": [{}], "stream": 1 }),
            Some("stream"),
        ),
        ("chat/completions", json!([]), None),
        ("embeddings", json!({ "model": "fast" }), Some("input")),
        ("embeddings", json!({ "model": "fast", "input": 1 }), Some("input")),
        ("embeddings", json!({ "input": "x" }), Some("model")),
        ("responses", json!({ "input": "x" }), Some("model")),
        ("responses", json!({ "model": "fast", "input": 1 }), Some("input")),
        ("responses", json!({ "model": "fast", "background": "yes" }), Some("background")),
    ] {
        let reply = server.post(&format!("/v1/{path}"), body.clone()).await;
        let error = told(reply, 400, "validation_failed");
        assert_eq!(error["type"], "invalid_request_error", "{body}");
        assert_eq!(error["param"].as_str(), param, "{body}");
    }
    for body in ["", "{", "{\"model\": \"a\", \"model\": \"b\"}"] {
        let request = server.request(Method::POST, "/v1/chat/completions").body(body);
        let request = request.header("content-type", "application/json");
        told(server.send(request).await, 400, "invalid_json");
    }
    let request = server.request(Method::POST, "/v1/chat/completions").body("x");
    told(server.send(request).await, 415, "unsupported_media_type");
    told(server.get("/v1/chat/completions").await, 405, "method_not_allowed");
    // What OpenAI has and we have not: its clients read the same shape.
    for absent in ["completions", "files/f", "responses/r/input_items", "chat", "models/a/b/c"] {
        told(
            server.get(&format!("/v1/{absent}")).await,
            404,
            match absent {
                "models/a/b/c" => "model_not_found",
                _ => "not_found",
            },
        );
    }
    server.get("/v1/nothing").await.refused(404, "not_found");
    assert_eq!(server.written().await, before);
}

async fn an_unknown_model_is_refused_with_what_there_is(server: Server) {
    let error = told(chat(&server, says("x")).await, 404, "model_not_found");
    assert!(error["message"].as_str().unwrap().contains("windlass provider"));
    bind(&server, "slow").await;
    let error = told(chat(&server, says("x")).await, 404, "model_not_found");
    assert!(error["message"].as_str().unwrap().contains("there are: slow"), "{error}");
}

async fn a_full_queue_says_when_to_come_back(server: Server) {
    bind(&server, "fast").await;
    let limit = server.request(Method::PUT, "/v1/limits/queue/fast");
    server.send(limit.json(&json!({ "max_pending": 0 }))).await.expect(200);
    let reply = chat(&server, says("x")).await;
    let after = reply.header("retry-after").and_then(|after| after.parse::<u32>().ok());
    assert!(after.is_some_and(|after| after > 0), "{reply:?}");
    let error = told(reply, 429, "queue_full");
    assert_eq!(error["type"], "rate_limit_error");
}

async fn what_drains_takes_nothing_in(server: Server) {
    bind(&server, "fast").await;
    let pause = json!({ "scope": "queue", "name": "fast", "mode": "drain" });
    assert!(server.post("/v1/pauses", pause).await.status < 300);
    let reply = chat(&server, says("x")).await;
    assert!(reply.header("retry-after").is_some());
    assert_eq!(told(reply, 503, "draining")["type"], "server_error");
}

#[tokio::test]
async fn a_caller_without_a_valid_key_is_refused_in_the_same_shape() {
    let keys = "ann:operator:0123456789abcdef";
    let server = Server::start(Place::sqlite(), &[("WINDLASS_KEYS", keys)]).await;
    let error = told(server.get("/v1/models").await, 401, "unauthenticated");
    assert_eq!(error["type"], "authentication_error");
    let request = server.request(Method::GET, "/v1/models").bearer_auth("0123456789abcdef");
    assert_eq!(server.send(request).await.status, 200);
}
