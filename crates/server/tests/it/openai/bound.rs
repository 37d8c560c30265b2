//! How large requests and answers may be.

use super::setting::{chat, says, told};
use crate::http::facts;
use crate::http::server::{Server, text};
use serde_json::json;

facts!(a_request_or_result_beyond_the_setting_is_refused_with_what_to_change);

async fn a_request_or_result_beyond_the_setting_is_refused_with_what_to_change(server: Server) {
    // Again with a smaller bound, on the same database.
    let place = server.place.clone();
    drop(server);
    let server = Server::start(place, &[("WINDLASS_INFERENCE_MAX_BODY", "2048")]).await;
    let session = super::setting::bind(&server, "fast").await;
    for path in ["/v1/chat/completions", "/v1/embeddings", "/v1/responses"] {
        let large = "x".repeat(3_000);
        let mut body = says(&large);
        body["input"] = json!(large);
        let error = told(server.post(path, body).await, 413, "payload_too_large");
        let message = text(&error["message"]);
        assert!(message.contains("--inference-max-body"), "{message}");
        assert_eq!(error["type"], "invalid_request_error");
    }
    let task = json!({ "kind": "inference", "pool": "fast", "payload": "x".repeat(3_000) });
    let told = server.post("/v1/tasks", task).await.refused(422, "validation_failed");
    assert_eq!(told["errors"][0]["pointer"], "/payload");
    // A job is not an inference.
    let job = json!({ "queue": "q", "payload": "x".repeat(3_000) });
    server.post("/v1/tasks", job).await.expect(201);
    let answering = async {
        let (task, lease) = server.claim(&session).await;
        let item = json!({ "task_id": task, "lease_id": lease, "outcome": "complete",
            "result": { "text": "x".repeat(3_000) } });
        let path = format!("/v1/sessions/{session}/finish");
        let answer = server.post(&path, json!({ "items": [item] })).await.expect(200);
        let error = answer["results"][0]["error"].clone();
        assert_eq!(error["code"], "validation_failed");
        assert!(text(&error["detail"]).contains("`inference_max_body`"), "{error}");
        let failed = json!({ "task_id": task, "lease_id": lease, "outcome": "fail",
            "error": { "code": "INVALID_OUTPUT", "message": "too large" } });
        server.post(&path, json!({ "items": [failed] })).await.expect(200);
    };
    let (reply, ()) = tokio::join!(chat(&server, says("hello")), answering);
    assert_eq!(reply.status, 502, "{}", reply.text);
}
