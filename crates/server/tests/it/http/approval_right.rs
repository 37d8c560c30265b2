//! Who may decide, where the server has keys: a worker's key cannot, nor can whoever asked.

use super::server::{Place, Reply, Server, text};
use reqwest::Method;
use serde_json::{Value as Json, json};

const WORKER: &str = "worker-key-0123456789";
const BOTH: &str = "both-key-0123456789ab";
const ANN: &str = "ann-key-0123456789abc";

async fn with_keys(place: Place) -> Server {
    let keys = format!("bot:worker:{WORKER},both:{BOTH},ann:operator:{ANN}");
    Server::start(place, &[("WINDLASS_KEYS", &keys)]).await
}

async fn call(server: &Server, key: &str, method: Method, path: &str, body: Json) -> Reply {
    let mut request = server.request(method.clone(), path);
    if !key.is_empty() {
        request = request.header("authorization", format!("Bearer {key}"));
    }
    if method == Method::POST {
        request = request.json(&body);
    }
    server.send(request).await
}

async fn post(server: &Server, key: &str, path: &str, body: Json) -> Reply {
    call(server, key, Method::POST, path, body).await
}

/// A task that waits for an approval that the owner of `key` asked for: task and approval.
async fn parked(server: &Server, key: &str) -> (String, String) {
    let queue = uuid::Uuid::new_v4().to_string();
    let task = json!({ "queue": queue, "payload": {} });
    let task = text(&post(server, key, "/v1/tasks", task).await.expect(201)["id"]);
    let session = json!({ "name": "w", "queues": [queue] });
    let session = text(&post(server, key, "/v1/sessions", session).await.expect(201)["id"]);
    let path = format!("/v1/sessions/{session}/claim");
    let claimed = post(server, key, &path, json!({ "max": 1 })).await.expect(200);
    let lease = &claimed["assignments"][0]["lease_id"];
    let body = json!({ "lease_id": lease, "gate": "g", "action": "a", "arguments": [] });
    let asked = post(server, key, &format!("/v1/tasks/{task}/approvals"), body).await.expect(200);
    (task, text(&asked["approval"]["id"]))
}

async fn rights(server: Server) {
    let (task, approval) = parked(&server, WORKER).await;
    let path = |rest: &str| format!("/v1/approvals/{approval}{rest}");
    for (method, route) in [
        (Method::POST, path("/approve")),
        (Method::POST, path("/deny")),
        (Method::POST, path("/tokens")),
        (Method::GET, "/v1/audit".to_owned()),
    ] {
        let reply = call(&server, WORKER, method.clone(), &route, json!({ "approver": "x" })).await;
        reply.refused(403, "forbidden");
        call(&server, "", method, &route, json!({})).await.refused(401, "unauthenticated");
    }
    let task_path = format!("/v1/tasks/{task}");
    let shown = call(&server, WORKER, Method::GET, &task_path, json!(null)).await.expect(200);
    assert_eq!(shown["status"], "waiting_for_approval");
    // A worker may see what it asked, and wait.
    let seen = call(&server, WORKER, Method::GET, &path(""), json!(null)).await.expect(200);
    assert_eq!((&seen["requested_by"], &seen["status"]), (&json!("bot"), &json!("open")));
    let approved = post(&server, ANN, &path("/approve"), json!({})).await.expect(200);
    assert_eq!(approved["votes"][0]["actor"], "ann", "who the credential says");
    let audit = call(&server, ANN, Method::GET, "/v1/audit?event=forbidden", json!(null)).await;
    let audit = audit.expect(200);
    assert_eq!(audit["items"].as_array().unwrap().len(), 4);
    assert_eq!(audit["items"][0]["actor"], "bot");
    // About which approval it was: nobody has to look for it.
    let about = format!("/v1/audit?event=forbidden&subject={approval}");
    let about = call(&server, ANN, Method::GET, &about, json!(null)).await.expect(200);
    assert_eq!(about["items"].as_array().unwrap().len(), 3);
    let entry = &about["items"][2];
    assert_eq!(entry["detail"]["approval"], json!(approval));
    assert_eq!(entry["detail"]["route"], "POST /v1/approvals/{id}/approve");
}

/// A route that was renamed must not become open to workers without a word; one that is new and an
/// operator's is added here.
const OPERATORS_ONLY: &[&str] = &[
    "delete /v1/limits/{scope}",
    "delete /v1/limits/{scope}/{name}",
    "delete /v1/pauses/{scope}",
    "delete /v1/pauses/{scope}/{name}",
    "get /v1/audit",
    "get /v1/audit/export",
    "get /v1/limits",
    "get /v1/limits/{scope}",
    "get /v1/limits/{scope}/{name}",
    "get /v1/pauses",
    "patch /v1/agents/{name}",
    "patch /v1/limits/{scope}",
    "patch /v1/limits/{scope}/{name}",
    "post /v1/agents",
    "post /v1/agents/{name}/archive",
    "post /v1/agents/{name}/restore",
    "post /v1/alerts/{id}/acknowledge",
    "post /v1/approvals/{id}/approve",
    "post /v1/approvals/{id}/deny",
    "post /v1/approvals/{id}/tokens",
    "post /v1/dead-letters/{id}/abandon",
    "post /v1/dead-letters/{id}/assign",
    "post /v1/dead-letters/{id}/investigate",
    "post /v1/dead-letters/{id}/note",
    "post /v1/dead-letters/{id}/redeliver",
    "post /v1/dead-letters/{id}/resolve",
    "post /v1/delegations/sweep",
    "post /v1/pauses",
    "post /v1/poison/{id}/abandon",
    "post /v1/poison/{id}/assign",
    "post /v1/poison/{id}/investigate",
    "post /v1/poison/{id}/note",
    "post /v1/poison/{id}/resolve",
    "post /v1/portfolios",
    "post /v1/portfolios/{name}/archive",
    "post /v1/portfolios/{name}/restore",
    "post /v1/steps/{id}/resolve",
    "post /v1/tasks/{id}/replay",
    "post /v1/ventures",
    "post /v1/ventures/{name}/archive",
    "post /v1/ventures/{name}/restore",
    "put /v1/agents/{name}",
    "put /v1/limits/{scope}",
    "put /v1/limits/{scope}/{name}",
    "put /v1/ventures/{name}",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_route_refuses_workers_exactly_where_the_document_says_so() {
    let server = with_keys(Place::sqlite()).await;
    let document = server.get("/openapi.json").await.expect(200);
    let mut told = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let forbidden = operation["responses"]["403"]["description"].as_str().unwrap_or("");
            let is_told = forbidden.contains("`forbidden`");
            if is_told {
                told.push(format!("{method} {path}"));
            }
            if path.ends_with("/stream") || path == "/v1/events" {
                continue;
            }
            let somewhere = path.replace("{id}", "00000000-0000-4000-8000-000000000000");
            let method = method.to_uppercase().parse().unwrap();
            let reply = call(&server, WORKER, method, &somewhere, json!({})).await;
            assert_eq!(reply.body["code"] == "forbidden", is_told, "{path}: {}", reply.text);
        }
    }
    told.sort();
    assert_eq!(told, OPERATORS_ONLY);
}

async fn requester(server: Server) {
    let (_, approval) = parked(&server, BOTH).await;
    let path = |rest: &str| format!("/v1/approvals/{approval}{rest}");
    post(&server, BOTH, &path("/approve"), json!({})).await.refused(403, "self_approval");
    // Nor under another's name.
    let body = json!({ "approver": "ann" });
    post(&server, BOTH, &path("/tokens"), body.clone()).await.refused(403, "self_approval");
    let own = json!({ "approver": "both" });
    post(&server, ANN, &path("/tokens"), own).await.refused(403, "self_approval");
    let body = json!({ "approver": "bob" });
    let issued = post(&server, ANN, &path("/tokens"), body).await.expect(201);
    // The token is all that is needed.
    let body = json!({ "token": issued["token"], "decision": "approve" });
    let decided = post(&server, "", "/v1/approvals/decide", body).await.expect(200);
    assert_eq!(
        (&decided["status"], &decided["votes"][0]["actor"]),
        (&json!("approved"), &json!("bob"))
    );
    let audit = call(&server, ANN, Method::GET, "/v1/audit?limit=100", json!(null)).await;
    let codes = audit.expect(200)["items"]
        .as_array()
        .unwrap()
        .iter()
        .fold(0, |n, entry| n + usize::from(entry["detail"]["code"] == "self_approval"));
    assert_eq!(codes, 3);
}

mod sqlite {
    use super::super::server::Place;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_workers_key_cannot_decide_or_issue_tokens() {
        super::rights(super::with_keys(Place::sqlite()).await).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn who_asked_cannot_approve_under_any_name() {
        super::requester(super::with_keys(Place::sqlite()).await).await;
    }
}

mod postgres {
    use super::super::server::Place;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_workers_key_cannot_decide_or_issue_tokens() {
        super::rights(super::with_keys(Place::postgres()).await).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn who_asked_cannot_approve_under_any_name() {
        super::requester(super::with_keys(Place::postgres()).await).await;
    }
}
