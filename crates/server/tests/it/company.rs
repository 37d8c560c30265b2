//! The example of a small company, run as a user would: fourteen processes and a server, and one of
//! them is killed.

use crate::http::server::{Place, Server};
use serde_json::{Value as Json, json};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// Builds the example, which is nothing when it was built before, and says where it is.
fn example() -> PathBuf {
    let mut cargo = Command::new(env!("CARGO"));
    // As a part of the workspace, like `scripts/test` does: a package alone has dependencies with
    // fewer features and would build most of them anew.
    cargo.args(["build", "--quiet", "--workspace", "--example", "company"]);
    // What cargo tells a test about its package would be news to build scripts: ring and all that
    // stands on it would be built anew, here and by the next build outside.
    let told = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(told)) {
        cargo.env_remove(name);
    }
    let built = cargo.status();
    assert!(built.expect("cargo runs").success());
    let test = std::env::current_exe().expect("the test has a path");
    let folder = test.parent().and_then(|deps| deps.parent()).expect("a target folder");
    folder.join("examples/company")
}

async fn everything_finishes(place: Place) {
    let program = example();
    let server = Server::start(place, &[]).await;
    let url = server.url("");
    let run = move || Command::new(program).env("WINDLASS_SERVER", url).output();
    // Only so that one that hangs is seen.
    let output = tokio::time::timeout(Duration::from_secs(600), tokio::task::spawn_blocking(run));
    let output = output.await.expect("it hangs").unwrap().unwrap();
    let (out, error) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}\n{error}");
    let told: Json = out.lines().last().and_then(|line| serde_json::from_str(line).ok()).unwrap();
    for (field, wanted) in [
        ("orders", json!(2)),
        ("work", json!(10)),
        ("reports", json!(10)),
        ("done", json!(2)),
        ("delegations", json!(2)),
        ("completed", json!(2)),
        ("killed", json!(true)),
        ("deliveries_of_the_victim", json!(2)),
    ] {
        assert_eq!(told[field], wanted, "{field}: {told}");
    }
    let letters = server.get("/v1/dead-letters").await.expect(200);
    assert_eq!(letters["items"], json!([]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_small_company_finishes_on_sqlite() {
    everything_finishes(Place::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_small_company_finishes_on_postgres() {
    everything_finishes(Place::postgres()).await;
}
