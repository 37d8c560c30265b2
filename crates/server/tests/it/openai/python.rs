//! The stock OpenAI client for Python, unmodified, as its users run it.

use super::setting::Provider;
use super::upstream::Upstream;
use crate::http::facts;
use crate::http::server::{Place, Server, eventually};
use reqwest::Method;
use serde_json::{Value as Json, json};
use std::process::{Command, Output};

facts!(the_stock_client_does_all_of_it);

const KEY: &str = "0123456789abcdef";
/// The page about this face; its program is run as it stands there.
const PAGE: &str = include_str!("../../../../../docs/openai.md");

/// Runs a program with the client; its packages are fetched if they are not there.
async fn python(arguments: Vec<String>, settings: Vec<(&'static str, String)>) -> Output {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/openai-python");
    let run = move || {
        let mut command = Command::new(script);
        command.args(arguments).envs(settings);
        // The client must not go by a proxy, nor by anything else of this machine.
        for name in ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"] {
            command.env_remove(name);
        }
        command.env("NO_PROXY", "127.0.0.1").output().expect("scripts/openai-python runs")
    };
    tokio::task::spawn_blocking(run).await.unwrap()
}

async fn the_stock_client_does_all_of_it(server: Server) {
    // Again with keys, on the same database.
    let place = server.place.clone();
    drop(server);
    let keys = format!("ann:{KEY}");
    let server = Server::start(place, &[("WINDLASS_KEYS", &keys)]).await;
    let call = async |method: Method, path: &str, body: Json| {
        server.send(server.request(method, path).bearer_auth(KEY).json(&body)).await
    };
    let upstream = Upstream::start().await;
    let _provider = Provider::with_key(&server, &upstream, "fast", KEY);
    for pool in ["empty", "full"] {
        let body = json!({ "name": "p", "pools": [pool], "kinds": ["inference"] });
        call(Method::POST, "/v1/sessions", body).await.expect(201);
    }
    let limit = json!({ "max_pending": 0 });
    call(Method::PUT, "/v1/limits/queue/full", limit).await.expect(200);
    eventually("the pool is bound", async || {
        call(Method::GET, "/v1/models/fast", json!({})).await.status == 200
    })
    .await;
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/openai/client.py");
    let settings = vec![("WINDLASS_URL", server.url("")), ("WINDLASS_KEY", KEY.to_owned())];
    let ran = python(vec![program.to_owned()], settings).await;
    let told = String::from_utf8_lossy(&ran.stderr).into_owned();
    let done = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(ran.status.success(), "{done}{told}");
    assert_eq!(done.lines().count(), 12, "{done}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_program_of_the_page_runs_as_it_stands() {
    let server = Server::start(Place::sqlite(), &[]).await;
    let upstream = Upstream::start().await;
    let _provider = Provider::start(&server, &upstream, "fast", &[]);
    super::setting::is_bound(&server, "fast").await;
    let program = PAGE.split("```python\n").nth(1).expect("a program");
    let program = program.split("```").next().unwrap();
    let program = program.replace("http://127.0.0.1:7070", &server.url(""));
    let ran = python(vec!["-c".into(), program], Vec::new()).await;
    let told = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(ran.status.success(), "{told}");
    let done = String::from_utf8_lossy(&ran.stdout).into_owned();
    let expected = "You said hello.\nYou said hello.\ncompleted You said hello.\n";
    assert_eq!(done, expected, "{told}");
}
