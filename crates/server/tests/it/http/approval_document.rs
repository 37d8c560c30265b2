//! docs/approvals.md says what happens: its examples run, and it names every route and code.

use super::server::Server;
use serde_json::json;

super::facts!(the_examples_of_the_page_about_approvals_run);

const PAGE: &str = include_str!("../../../../../docs/approvals.md");

async fn the_examples_of_the_page_about_approvals_run(server: Server) {
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
    let page = server.get("/v1/tasks?queue=refunds&status=completed").await.expect(200);
    assert_eq!(page["items"][0]["result"], json!({ "refunded": true }), "{told}");
    let denied = server.get("/v1/approvals?status=denied").await.expect(200);
    assert_eq!(denied["items"].as_array().unwrap().len(), 1, "{told}");
    let shown = String::from_utf8_lossy(&ran.stdout).into_owned();
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
