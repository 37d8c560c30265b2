//! Pools over HTTP and on the command line; what somebody asked, listed.

use super::delta::{asked, held, provider};
use super::server::{Server, column, text};
use serde_json::json;
use std::process::Command;

super::facts!(
    a_pool_shows_what_waits_and_who_takes_it,
    pools_are_listed_by_name_in_pages,
    inference_is_listed_by_owner_and_by_agent,
    the_command_line_shows_pools,
    the_command_line_lists_tasks_by_owner_and_by_pool,
);

async fn a_pool_shows_what_waits_and_who_takes_it(server: Server) {
    let (id, session, lease) = held(&server).await;
    asked(&server).await;
    let oldest = asked(&server).await;
    let pool = server.get("/v1/pools/fast").await.expect(200);
    assert_eq!(
        (&pool["depth"], &pool["running"], &pool["slots"]),
        (&json!(2), &json!(1), &json!(4))
    );
    let provider = &pool["providers"][0];
    assert_eq!((&provider["session_id"], &provider["held"]), (&json!(session), &json!(1)));
    assert!(text(&pool["oldest_waiting_at"]) <= text(&server.task(&oldest).await["created_at"]));
    assert_eq!(pool["finished_last_minute"], 0);
    let body = json!({ "lease_id": lease, "result": 1 });
    server.post(&format!("/v1/tasks/{id}/complete"), body).await.expect(200);
    server.delete(&format!("/v1/sessions/{session}")).await.expect(204);
    let pool = server.get("/v1/pools/fast").await.expect(200);
    assert_eq!((&pool["finished_last_minute"], &pool["running"]), (&json!(1), &json!(0)));
    assert_eq!(pool["providers"], json!([]));
    server.get("/v1/pools/none").await.refused(404, "not_found");
}

async fn pools_are_listed_by_name_in_pages(server: Server) {
    provider(&server).await;
    let body = json!({ "kind": "inference", "pool": "deep", "payload": {} });
    server.post("/v1/tasks", body).await.expect(201);
    server.submit("a queue is no pool").await;
    let first = server.get("/v1/pools?limit=1").await.expect(200);
    assert_eq!(column(&first["items"], "name"), ["deep"]);
    let next = format!("/v1/pools?limit=1&cursor={}", text(&first["next_cursor"]));
    let second = server.get(&next).await.expect(200);
    assert_eq!(column(&second["items"], "name"), ["fast"]);
    assert!(second["next_cursor"].is_null());
}

async fn inference_is_listed_by_owner_and_by_agent(server: Server) {
    let mut ids = Vec::new();
    for (owner, agent) in [("ann", Some("scout")), ("ann", None), ("bob", Some("scout"))] {
        let body = json!({ "kind": "inference", "pool": "fast", "payload": {}, "owner": owner,
            "agent": agent });
        ids.push(json!(text(&server.post("/v1/tasks", body).await.expect(201)["id"])));
    }
    let job = json!({ "queue": "q", "payload": {}, "owner": "ann", "agent": "scout" });
    server.post("/v1/tasks", job).await.expect(201);
    for (query, wanted) in [
        ("owner=ann", vec![&ids[1], &ids[0]]),
        ("agent=scout", vec![&ids[2], &ids[0]]),
        ("owner=ann&agent=scout", vec![&ids[0]]),
        ("pool=fast", vec![&ids[2], &ids[1], &ids[0]]),
    ] {
        let page = server.get(&format!("/v1/tasks?kind=inference&{query}")).await.expect(200);
        assert_eq!(column(&page["items"], "id").iter().collect::<Vec<_>>(), wanted, "{query}");
    }
}

async fn the_command_line_shows_pools(server: Server) {
    held(&server).await;
    let body = json!({ "name": "q", "pools": ["fast"], "models": ["m-1", "m-2"], "tiers": ["gold"],
        "llms": ["ours"] });
    server.post("/v1/sessions", body).await.expect(201);
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
        command.args(arguments).args(["--server", &server.url("")]);
        let done = command.output().unwrap();
        assert!(done.status.success(), "{done:?}");
        String::from_utf8(done.stdout).unwrap()
    };
    let list = run(&["pool", "list"]);
    assert!(list.contains("WAITING") && list.contains("fast"), "{list}");
    let one = run(&["pool", "show", "fast"]);
    assert!(one.contains("running") && one.contains("PROVIDER"), "{one}");
    let shown: serde_json::Value =
        serde_json::from_str(&run(&["pool", "show", "fast", "--json"])).unwrap();
    assert_eq!(shown["running"], 1);
    for words in ["m-1,m-2", "gold", "ours", "NODE"] {
        assert!(one.contains(words), "{words}: {one}");
    }
    assert!(one.contains("tokens a minute  0"), "{one}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    let unknown = command.args(["pool", "show", "nope", "--server", &server.url("")]).output();
    let told = String::from_utf8(unknown.unwrap().stderr).unwrap();
    assert!(told.contains("windlass pool list"), "{told}");
}

async fn the_command_line_lists_tasks_by_owner_and_by_pool(server: Server) {
    let mut ids = Vec::new();
    for (owner, pool) in [("ann", "fast"), ("ann", "deep"), ("bob", "fast")] {
        let body = json!({ "kind": "inference", "pool": pool, "payload": {}, "owner": owner });
        ids.push(text(&server.post("/v1/tasks", body).await.expect(201)["id"]));
    }
    for (filter, wanted) in [(["--owner", "ann"], [1, 0]), (["--pool", "fast"], [2, 0])] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
        command.args(["task", "list", "--all", "--json", "--server", &server.url("")]);
        let done = command.args(filter).output().unwrap();
        assert!(done.status.success(), "{done:?}");
        let lines = String::from_utf8(done.stdout).unwrap();
        let read = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap();
        let listed: Vec<String> = lines.lines().map(|line| text(&read(line)["id"])).collect();
        assert_eq!(listed, wanted.map(|index| ids[index].clone()), "{filter:?}");
    }
}
