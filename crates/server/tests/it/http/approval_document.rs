//! docs/approvals.md says what happens: its examples run, and it names every route and code.

use super::page::{Ran, run};
use super::server::Server;
use serde_json::json;

super::facts!(the_examples_of_the_page_about_approvals_run);

const PAGE: &str = include_str!("../../../../../docs/approvals.md");

async fn the_examples_of_the_page_about_approvals_run(server: Server) {
    let Ran { shown, told } = run(PAGE, &server).await;
    let page = server.get("/v1/tasks?queue=refunds&status=completed").await.expect(200);
    assert_eq!(page["items"][0]["result"], json!({ "refunded": true }), "{told}");
    let denied = server.get("/v1/approvals?status=denied").await.expect(200);
    assert_eq!(denied["items"].as_array().unwrap().len(), 1, "{told}");
    assert!(shown.contains("action        refund"), "{shown}");
}

#[test]
fn the_page_about_approvals_names_every_route_and_code() {
    for name in [
        "POST /v1/tasks/{id}/approvals",
        "GET /v1/approvals",
        "POST /v1/approvals/{id}/approve",
        "POST /v1/approvals/{id}/deny",
        "POST /v1/approvals/{id}/tokens",
        "POST /v1/approvals/decide",
        "GET /v1/audit",
        "already_decided",
        "already_voted",
        "approval_withdrawn",
        "digest_mismatch",
        "self_approval",
        "forbidden",
        "APPROVAL_DENIED",
        "APPROVAL_EXPIRED",
    ] {
        assert!(PAGE.contains(name), "{name}");
    }
}
