//! A new approval is told to a webhook, with a token for each approver that the settings name.

use super::approval::{ask, running};
use super::server::{Place, Server, text};
use axum::Router;
use axum::body::Bytes;
use axum::routing::post;
use serde_json::{Value as Json, json};
use std::time::Duration;
use tokio::sync::mpsc;

async fn told(place: Place) {
    let (sent, mut received) = mpsc::unbounded_channel::<Json>();
    let take = move |body: Bytes| async move {
        let _ = sent.send(serde_json::from_slice(&body).unwrap());
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let hook = format!("http://{}/hook", listener.local_addr().unwrap());
    let router = Router::new().route("/hook", post(take));
    tokio::spawn(async move { axum::serve(listener, router).await });
    let settings = [
        ("WINDLASS_WEBHOOK_URL", hook.as_str()),
        ("WINDLASS_WEBHOOK_ALLOW", "127.0.0.1"),
        ("WINDLASS_WEBHOOK_SECRET", "a-secret-of-the-test"),
        ("WINDLASS_APPROVERS", "ann@example.com, bob@example.com"),
    ];
    let server = Server::start(place, &settings).await;
    let (task, lease) = running(&server).await;
    let body = json!({
        "lease_id": lease, "gate": "pay", "action": "transfer",
        "arguments": { "to": "\u{202e}eve" },
    });
    let asked = ask(&server, &task, body).await;
    assert!(!asked.text.contains("wla_"), "the worker sees no token");
    let approval = asked.expect(200)["approval"].clone();
    let parcel = tokio::time::timeout(Duration::from_secs(30), received.recv()).await;
    let parcel = parcel.expect("a notice within its time").expect("a notice");
    let notice = &parcel["notices"][0];
    assert_eq!((&notice["kind"], &notice["subject_id"]), (&json!("approval"), &approval["id"]));
    let body = &notice["body"];
    assert_eq!(body["arguments"], r#"{"to":"\u202eeve"}"#);
    assert_eq!(body["digest"], approval["digest"]);
    let tokens = body["tokens"].as_array().unwrap();
    assert_eq!(tokens.len(), 2);
    assert_eq!(tokens[0]["approver"], "ann@example.com");
    let decision = json!({
        "token": tokens[0]["token"], "decision": "approve", "digest": body["digest"],
    });
    let decided = server.post("/v1/approvals/decide", decision).await.expect(200);
    assert_eq!(decided["status"], "approved");
    assert_eq!(decided["votes"][0]["actor"], "ann@example.com");
    let late = json!({ "token": tokens[1]["token"], "decision": "deny" });
    server.post("/v1/approvals/decide", late).await.refused(409, "already_decided");
    let secret = text(&tokens[0]["token"])[36..].to_owned();
    assert!(!server.log().join("\n").contains(&secret), "the log knows no token");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_approval_is_told_with_tokens_on_sqlite() {
    told(Place::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_approval_is_told_with_tokens_on_postgres() {
    told(Place::postgres()).await;
}
