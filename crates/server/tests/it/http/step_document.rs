//! docs/steps.md says what happens: its worker in curl runs, and it names every route and code.

use super::page::{Ran, run};
use super::server::{Server, column};
use serde_json::json;

super::facts!(the_worker_in_curl_of_the_page_about_steps_runs);

const PAGE: &str = include_str!("../../../../../docs/steps.md");

async fn the_worker_in_curl_of_the_page_about_steps_runs(server: Server) {
    let Ran { shown, told } = run(PAGE, &server).await;
    let tasks = server.get("/v1/tasks?queue=orders&order=oldest").await.expect(200);
    let first = &tasks["items"][0];
    assert_eq!(first["result"], json!({ "shipped": true }), "{told}");
    assert_eq!(first["attempt"], 3, "its worker came by three times");
    let id = super::server::text(&first["id"]);
    let events = [
        "submit",
        "claim",
        "wait",
        "wake",
        "claim",
        "ask_approval",
        "approve",
        "claim",
        "complete",
    ];
    assert_eq!(server.history(&id).await, events);
    let steps = server.get(&format!("/v1/tasks/{id}/steps")).await.expect(200);
    assert_eq!(column(&steps["items"], "name"), ["fetch", "charge", "wait:signal"]);
    assert_eq!(column(&steps["items"], "status"), ["done", "done", "done"]);
    assert!(shown.contains("wait:signal") && shown.contains("r-1"), "{shown}");
}

#[test]
fn the_page_about_steps_names_every_route_and_code() {
    for name in [
        "POST /v1/tasks/{id}/steps/record",
        "POST /v1/tasks/{id}/steps`",
        "GET /v1/tasks/{id}/steps",
        "POST /v1/steps/{id}/complete",
        "POST /v1/steps/{id}/fail",
        "POST /v1/steps/{id}/resolve",
        "GET /v1/steps",
        "POST /v1/tasks/{id}/park",
        "POST /v1/signals",
        "GET /v1/signals/{id}",
        "POST /v1/tasks/{id}/replay",
        "not_idempotent",
        "in_doubt",
        "step_failed",
        "illegal_step",
        "task_finished",
    ] {
        assert!(PAGE.contains(name), "{name}");
    }
}
