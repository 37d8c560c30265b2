//! docs/steps.md says what happens: its worker in curl runs, and it names every route and code.

use super::server::{Server, column};
use serde_json::json;

super::facts!(the_worker_in_curl_of_the_page_about_steps_runs);

const PAGE: &str = include_str!("../../../../../docs/steps.md");

async fn the_worker_in_curl_of_the_page_about_steps_runs(server: Server) {
    let mut script = "set -eu -o pipefail\n".to_owned();
    for block in PAGE.split("```sh\n").skip(1) {
        script.push_str(block.split("```").next().unwrap());
    }
    let script = script.replace("http://127.0.0.1:7070", &server.url(""));
    let folder = tempfile::tempdir().unwrap();
    let binary = std::path::Path::new(env!("CARGO_BIN_EXE_windlass")).parent().unwrap().to_owned();
    let url = server.url("");
    let ran = tokio::task::spawn_blocking(move || {
        let mut shell = std::process::Command::new("bash");
        let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap());
        shell.env("PATH", path).env("WINDLASS_SERVER", url);
        shell.args(["-x", "-c", &script]).current_dir(folder.path()).output().unwrap()
    });
    let ran = ran.await.unwrap();
    let told = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(ran.status.success(), "{told}");
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
    let shown = String::from_utf8_lossy(&ran.stdout).into_owned();
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
