//! Usage: told with the end of an attempt, shown by its task, and summed by its pool.

use super::delta::{asked, held};
use super::server::{Server, text};
use serde_json::{Value as Json, json};

super::facts!(
    usage_is_told_with_every_kind_of_end_and_shown,
    bad_usage_is_refused_with_every_misfit_and_nothing_ends,
);

async fn finish(server: &Server, session: &str, item: Json) -> Json {
    let path = format!("/v1/sessions/{session}/finish");
    server.post(&path, json!({ "items": [item] })).await.expect(200)["results"][0].clone()
}

async fn usage_is_told_with_every_kind_of_end_and_shown(server: Server) {
    let shown = |total: u64| {
        json!({ "prompt_tokens": total - 1, "completion_tokens": 1,
        "total_tokens": total, "images": 3 })
    };
    let told = |total: u64| json!({ "input_tokens": total - 1, "output_tokens": 1, "images": 3 });
    let (id, session, lease) = held(&server).await;
    let item = json!({ "task_id": id, "lease_id": lease, "outcome": "complete", "result": "a",
        "usage": told(5) });
    assert_eq!(finish(&server, &session, item).await["status"], "completed");
    assert_eq!(server.task(&id).await["usage"], shown(5));
    for (action, more, usage) in [
        ("complete", json!({ "result": { "usage": { "total_tokens": 9 } } }), told(6)),
        ("fail", json!({ "error": { "code": "INVALID_INPUT" } }), told(7)),
    ] {
        let id = asked(&server).await;
        let (_, lease) = server.claim(&session).await;
        let mut body = json!({ "lease_id": lease, "usage": usage });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let task = server.post(&format!("/v1/tasks/{id}/{action}"), body).await.expect(200);
        let total = if action == "complete" { 6 } else { 7 };
        assert_eq!(task["usage"], shown(total), "what was told counts, not what the result says");
    }
    // A job may tell it, too; who tells nothing has what its result says, or nothing.
    let worker = server.worker("q", 4).await;
    for (body, expected) in [
        (json!({ "usage": { "total_tokens": 2 } }), json!(2)),
        (json!({ "result": { "usage": { "total_tokens": 4 } } }), json!(4)),
        (json!({}), Json::Null),
    ] {
        server.submit("q").await;
        let (id, lease) = server.claim(&worker).await;
        let mut body = body;
        body["lease_id"] = json!(lease);
        let task = server.post(&format!("/v1/tasks/{id}/complete"), body).await.expect(200);
        assert_eq!(task["usage"]["total_tokens"], expected);
    }
    let pool = server.get("/v1/pools/fast").await.expect(200);
    assert_eq!(pool["tokens_last_minute"], 5 + 6 + 7);
}

async fn bad_usage_is_refused_with_every_misfit_and_nothing_ends(server: Server) {
    let (id, session, lease) = held(&server).await;
    let bad = json!({ "total_tokens": -1, "images": 1.5, "prompt_tokens": 1, "input_tokens": 1 });
    let item = |outcome: &str, usage: Json| {
        let mut item = json!({ "task_id": id, "lease_id": lease, "outcome": outcome });
        item["usage"] = usage;
        item
    };
    let result = finish(&server, &session, item("complete", bad.clone())).await;
    assert_eq!(
        (&result["error"]["code"], &result["error"]["status"]),
        (&json!("validation_failed"), &json!(422))
    );
    let detail = text(&result["error"]["detail"]);
    assert!(detail.contains("total_tokens"), "{detail}");
    let released = finish(&server, &session, item("release", json!({ "total_tokens": 1 }))).await;
    assert_eq!(released["error"]["code"], "validation_failed");
    let body = json!({ "lease_id": lease, "usage": bad });
    let told = server.post(&format!("/v1/tasks/{id}/complete"), body).await;
    let told = told.refused(422, "validation_failed");
    let pointers: Vec<String> =
        told["errors"].as_array().unwrap().iter().map(|e| text(&e["pointer"])).collect();
    assert_eq!(pointers, ["/usage/images", "/usage/total_tokens", "/usage/input_tokens"]);
    for wrong in [json!([1]), json!("many"), json!(7)] {
        let body = json!({ "lease_id": lease, "usage": wrong });
        server
            .post(&format!("/v1/tasks/{id}/complete"), body)
            .await
            .refused(422, "validation_failed");
    }
    assert_eq!(server.task(&id).await["status"], "running");
}
