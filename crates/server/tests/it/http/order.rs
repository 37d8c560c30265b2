//! Every list, page by page, in both orders: one is the reverse of the other, nothing is missing.
//!
//! Invariant: the table names every call of the document that takes a cursor, so a new list is
//! either shown here or stops this test.

use super::server::{Place, Server, column, text};
use super::{approval, message, step};
use reqwest::Method;
use serde_json::{Value as Json, json};
use std::collections::BTreeSet;
use std::process::Command;

super::facts!(
    every_list_is_walked_in_both_orders,
    a_cursor_goes_on_in_its_own_order_only,
    an_unknown_order_is_refused_with_those_that_there_are,
    cursors_of_the_usual_order_are_what_they_were,
    the_command_line_lists_in_both_orders,
);

/// Along what a list is walked, and which way unless told otherwise.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Usual {
    Newest,
    Oldest,
    Name,
}

/// A list: its place in the document, what is asked for, what tells its items apart.
struct Row {
    operation: &'static str,
    path: String,
    key: &'static [&'static str],
    usual: Usual,
}

impl Row {
    fn order(&self) -> &'static str {
        if self.usual == Usual::Newest { "desc" } else { "asc" }
    }

    fn with(&self, query: &str) -> String {
        let sign = if self.path.contains('?') { '&' } else { '?' };
        format!("{}{sign}{query}", self.path)
    }
}

/// What was made, as far as paths name it.
struct Made {
    failed: String,
    stepped: String,
    asked: String,
    poisoned: String,
}

fn table(made: &Made) -> Vec<Row> {
    use Usual::{Name, Newest, Oldest};
    let Made { failed, stepped, asked, poisoned } = made;
    let (history, failures) = (format!("{failed}/history"), format!("{failed}/failures"));
    let mut rows = Vec::new();
    let mut add = |operation, queries: &[&str], key, usual| {
        for query in queries {
            let path = format!("{operation}{query}");
            rows.push(Row { operation, path, key, usual });
        }
    };
    add("/v1/tasks", &["", "?status=poisoned,waiting"], &["id"], Newest);
    add("/v1/delegations", &[""], &["id"], Newest);
    add("/v1/sessions", &["?all=true"], &["id"], Newest);
    let of_task = format!("?task_id={asked}");
    add("/v1/approvals", &["", "?status=approved", &of_task], &["id"], Newest);
    let of_task = format!("?task={poisoned}");
    add(
        "/v1/alerts",
        &["?type=poison_task", "?type=poison_task&acknowledged=false", &of_task],
        &["id"],
        Newest,
    );
    add("/v1/notices", &["?kind=alert"], &["id"], Newest);
    add(
        "/v1/messages",
        &["", "?to=ceo", "?from=vp", "?correlation_id=deal", "?status=pending"],
        &["id"],
        Newest,
    );
    add("/v1/audit", &["", "?actor=api", "?event=message_sent", "?subject=ceo"], &["seq"], Newest);
    let states = "?status=pending,investigating,resolved";
    add("/v1/dead-letters", &["", states], &["message_id"], Oldest);
    add("/v1/poison", &["", states], &["task_id"], Oldest);
    add("/v1/nodes", &[""], &["id"], Oldest);
    add("/v1/steps", &["?status=in_doubt"], &["id"], Oldest);
    add("/v1/agents", &["", "?archived=true"], &["name"], Name);
    add("/v1/ventures", &["", "?portfolio=p1"], &["name"], Name);
    add("/v1/portfolios", &[""], &["name"], Name);
    add("/v1/pools", &[""], &["name"], Name);
    add("/v1/limits", &[""], &["scope", "name"], Name);
    add("/v1/pauses", &[""], &["scope", "name"], Name);
    for (operation, rest) in [
        ("/v1/tasks/{id}/history", &history),
        ("/v1/tasks/{id}/failures", &failures),
        ("/v1/tasks/{id}/steps", &format!("{stepped}/steps")),
    ] {
        let path = format!("/v1/tasks/{rest}");
        let key: &[&str] = &["seq"];
        rows.push(Row { operation, path, key, usual: Oldest });
    }
    rows
}

async fn put(server: &Server, path: &str, body: Json) {
    server.send(server.request(Method::PUT, path).json(&body)).await.expect(200);
}

async fn fail(server: &Server, queue: &str, max_retries: i64, times: usize) -> String {
    let backoff = json!({ "base_ms": 0, "max_ms": 0 });
    let body = json!({ "queue": queue, "backoff": backoff, "max_retries": max_retries });
    let id = text(&server.post("/v1/tasks", body).await.expect(201)["id"]);
    let session = server.worker(queue, 1).await;
    for _ in 0..times {
        let (_, lease) = server.claim(&session).await;
        let error = json!({ "code": "TIMEOUT", "message": "no answer" });
        let body = json!({ "lease_id": lease, "error": error });
        server.post(&format!("/v1/tasks/{id}/fail"), body).await.expect(200);
    }
    id
}

/// One task that asked three times, each time with another gate, and was let go on.
async fn asked_thrice(server: &Server) -> String {
    let (task, mut lease) = approval::running(server).await;
    let queue = text(&server.task(&task).await["queue"]);
    for gate in ["one", "two", "three"] {
        let question = json!({
            "lease_id": lease, "gate": gate, "action": "pay", "arguments": { "amount": 1 },
        });
        let answer = approval::ask(server, &task, question).await.expect(200);
        let path = format!("/v1/approvals/{}/approve", text(&answer["approval"]["id"]));
        server.post(&path, json!({})).await.expect(200);
        let session = server.worker(&queue, 1).await;
        lease = server.claim(&session).await.1;
    }
    task
}

async fn messages(server: &Server) {
    message::company(server).await;
    for n in 0..6 {
        let to = if n < 3 { "crew" } else { "ceo" };
        let body = json!({
            "from": "vp", "to": to, "type": "note", "payload": n, "correlation_id": "deal",
        });
        server.post("/v1/messages", body).await.expect(201);
    }
    for _ in 0..3 {
        let body = json!({ "handler": "me", "agents": ["crew"], "wait_ms": 5_000 });
        let taken = server.post("/v1/messages/claim", body).await.expect(200);
        let delivery = &taken["deliveries"][0];
        let path = format!("/v1/messages/{}/nack", text(&delivery["message"]["id"]));
        let body = json!({ "lease_id": delivery["lease_id"], "reject": true });
        server.post(&path, body).await.expect(200);
    }
    for role in ["one", "two", "three"] {
        let path = "/v1/agents/ceo";
        let body = json!({ "worker_type": role });
        server.send(server.request(Method::PATCH, path).json(&body)).await.expect(200);
    }
}

/// Nodes that stay alive, and more alerts about one task: what no call makes three of.
fn by_hand(server: &Server, poisoned: &str) {
    let mut script = String::new();
    for n in 1..=3 {
        let id = format!("00000000-0000-4000-8000-00000000000{n}");
        let (time, later) = match &server.place {
            Place::Sqlite(_) => ("1767225600000", "4102444800000"),
            _ => ("timestamptz '2026-01-01Z'", "timestamptz '2100-01-01Z'"),
        };
        // All at the same time: the ids tell which comes first.
        script.push_str(&format!(
            "INSERT INTO node (id, version, started_at, expires_at)
             VALUES ('{id}', 'x', {time}, {later});
             INSERT INTO alert (id, type, severity, task_id, message, created_at)
             VALUES ('{id}', 'by_hand', 'info', '{poisoned}', 'x', {time});\n",
        ));
    }
    match &server.place {
        Place::Postgres(database) => drop(database.sql(&script)),
        Place::Sqlite(folder) => {
            let mut command = Command::new("sqlite3");
            command.args(["-batch", "-cmd", ".timeout 10000"]).arg(folder.path().join("w.db"));
            let ran = command.arg(&script).output().expect("sqlite3 is installed");
            assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        }
        Place::Elsewhere(_) => panic!("a place of its own"),
    }
}

/// At least three of everything that is listed.
async fn fill(server: &Server) -> Made {
    let mut poisoned = String::new();
    for queue in ["x", "y", "z"] {
        poisoned = fail(server, queue, 0, 1).await;
    }
    let failed = fail(server, "failing", 5, 3).await;
    let (stepped, lease, _) = step::running(server).await;
    for name in ["a", "b", "c"] {
        let body = json!({ "name": name, "result": name });
        step::on(server, &stepped, "steps/record", &lease, body).await.expect(200);
        step::in_doubt(server).await;
        let body = json!({ "caller": "ada", "callee": "bob", "payload": name });
        server.post("/v1/delegations", body).await.expect(201);
        server.post("/v1/portfolios", json!({ "name": format!("p-{name}") })).await.expect(201);
        let pool = json!({ "kind": "inference", "pool": format!("pool-{name}"), "payload": {} });
        server.post("/v1/tasks", pool).await.expect(201);
        put(server, &format!("/v1/limits/queue/l-{name}"), json!({ "max_active": 5 })).await;
        let pause = json!({ "scope": "queue", "name": format!("l-{name}") });
        server.post("/v1/pauses", pause).await.expect(200);
    }
    put(server, "/v1/limits/global", json!({ "max_active": 1_000 })).await;
    put(server, "/v1/limits/agent/a", json!({ "max_active": 5 })).await;
    server.post("/v1/portfolios", json!({ "name": "p1" })).await.expect(201);
    // Names are compared byte by byte, on both databases.
    for name in ["b", "B", "é", "\u{10ffff}", "a b"] {
        let body = json!({ "name": name, "portfolio": "p1" });
        server.post("/v1/ventures", body).await.expect(201);
    }
    let asked = asked_thrice(server).await;
    messages(server).await;
    by_hand(server, &poisoned);
    Made { failed, stepped, asked, poisoned }
}

/// What tells the items of all pages apart, in the order in which they came.
async fn walk(server: &Server, row: &Row, order: &str, limit: usize) -> Vec<Json> {
    let first = row.with(&format!("limit={limit}{order}"));
    let (mut seen, mut path) = (Vec::new(), first.clone());
    loop {
        let page = server.get(&path).await.expect(200);
        let items = page["items"].as_array().unwrap();
        let key = |item: &Json| row.key.iter().map(|field| item[*field].clone()).collect();
        seen.extend(items.iter().map(key));
        let Some(next) = page["next_cursor"].as_str() else { return seen };
        assert_eq!(items.len(), limit, "{path}");
        assert!(seen.len() < 500, "{path} has no end");
        path = format!("{first}&cursor={next}");
    }
}

async fn every_list_is_walked_in_both_orders(server: Server) {
    let made = fill(&server).await;
    let table = table(&made);
    let document = server.get("/openapi.json").await.expect(200);
    let takes_cursor = |(path, item): (&String, &Json)| {
        let parameters = item["get"]["parameters"].as_array()?;
        parameters.iter().any(|one| one["name"] == "cursor").then(|| path.clone())
    };
    let paths = document["paths"].as_object().unwrap();
    let listed: BTreeSet<String> = paths.iter().filter_map(takes_cursor).collect();
    let shown: BTreeSet<String> = table.iter().map(|row| row.operation.to_owned()).collect();
    assert_eq!(shown, listed, "every list is shown here");
    for row in &table {
        let path = &row.path;
        let mut usual = walk(&server, row, "", 1_000).await;
        assert!(usual.len() >= 3, "{path} has only {usual:?}");
        let distinct: BTreeSet<String> = usual.iter().map(Json::to_string).collect();
        assert_eq!(distinct.len(), usual.len(), "{path} repeats");
        for limit in [1, 2] {
            assert_eq!(walk(&server, row, "", limit).await, usual, "{path} by {limit}");
        }
        if row.order() == "desc" {
            usual.reverse();
        }
        let (up, mut down) = (usual.clone(), usual);
        down.reverse();
        let words: &[(&str, &Vec<Json>)] = match row.usual {
            Usual::Name => &[("asc", &up), ("desc", &down)],
            _ => &[("asc", &up), ("desc", &down), ("oldest", &up), ("newest", &down)],
        };
        for (word, wanted) in words {
            for limit in [1, 2, 1_000] {
                let order = format!("&order={word}");
                let seen = walk(&server, row, &order, limit).await;
                assert_eq!(seen, **wanted, "{path} {word} by {limit}");
            }
        }
    }
}

async fn a_cursor_goes_on_in_its_own_order_only(server: Server) {
    let made = fill(&server).await;
    for row in table(&made) {
        for (order, other) in [("asc", "desc"), ("desc", "asc")] {
            let page = server.get(&row.with(&format!("limit=1&order={order}"))).await.expect(200);
            let next = text(&page["next_cursor"]);
            let path = row.with(&format!("limit=1&order={other}&cursor={next}"));
            let refused = server.get(&path).await.refused(400, "invalid_cursor");
            let told = text(&refused["detail"]);
            assert!(told.contains(&format!("ask with `order={order}`")), "{path}: {told}");
            // Without a word the usual order counts.
            let bare = server.get(&row.with(&format!("limit=1&cursor={next}"))).await;
            match order == row.order() {
                true => drop(bare.expect(200)),
                false => drop(bare.refused(400, "invalid_cursor")),
            }
        }
    }
}

async fn an_unknown_order_is_refused_with_those_that_there_are(server: Server) {
    let (id, none) = (server.submit("q").await, String::new());
    let made = Made { failed: id.clone(), stepped: id.clone(), asked: id, poisoned: none };
    for row in table(&made).iter().filter(|row| !row.path.contains("task=")) {
        let (wrong, words) = match row.usual {
            Usual::Name => ("newest", "must be one of asc, desc"),
            _ => ("up", "must be one of newest, oldest, desc, asc"),
        };
        let path = row.with(&format!("order={wrong}"));
        let problem = server.get(&path).await.refused(422, "validation_failed");
        let error = &problem["errors"][0];
        assert_eq!(error["pointer"], "/order", "{path}");
        assert_eq!(error["code"], "unknown_value", "{path}");
        assert_eq!(error["detail"], words, "{path}");
    }
}

/// A worker goes on behind the `seq` of the last step that it was given; docs/steps.md says so.
async fn cursors_of_the_usual_order_are_what_they_were(server: Server) {
    let (id, lease, _) = step::running(&server).await;
    for name in ["a", "b", "c"] {
        let body = json!({ "name": name, "result": name });
        step::on(&server, &id, "steps/record", &lease, body).await.expect(200);
    }
    let steps = server.get(&format!("/v1/tasks/{id}/steps")).await.expect(200);
    let seq = &steps["items"][0]["seq"];
    for order in ["", "&order=asc", "&order=oldest"] {
        let path = format!("/v1/tasks/{id}/steps?cursor={seq}{order}");
        let rest = server.get(&path).await.expect(200);
        assert_eq!(column(&rest["items"], "name"), ["b", "c"]);
    }
}

async fn the_command_line_lists_in_both_orders(server: Server) {
    for name in ["a", "b", "c"] {
        server.submit("q").await;
        server.worker("q", 1).await;
        let body = json!({ "name": name, "role": "crew" });
        server.post("/v1/agents", body).await.expect(201);
    }
    let told = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
        let url = server.url("");
        let ran = command.args(arguments).args(["--server", &url]).output().unwrap();
        let errors = String::from_utf8(ran.stderr).unwrap();
        (ran.status.success(), String::from_utf8(ran.stdout).unwrap(), errors)
    };
    let listed = |arguments: &[&str], key: &str| {
        let (is_good, output, errors) = told(&[arguments, &["--json"]].concat());
        assert!(is_good, "{errors}");
        column(&serde_json::from_str::<Json>(&output).unwrap()["items"], key)
    };
    for (command, key, words) in [
        (["task", "list"], "id", ["newest", "oldest"]),
        (["session", "list"], "id", ["desc", "asc"]),
        (["agent", "list"], "name", ["asc", "desc"]),
    ] {
        let in_order = |word| listed(&[&command[..], &["--order", word]].concat(), key);
        let usual = listed(&command, key);
        assert_eq!(usual.len(), 3);
        assert_eq!(in_order(words[0]), usual, "{command:?}");
        let mut other = in_order(words[1]);
        other.reverse();
        assert_eq!(other, usual, "{command:?}");
        // What is printed for the next page goes on in the same order.
        let first = [&command[..], &["--order", words[1], "--limit", "2"]].concat();
        let (_, _, note) = told(&first);
        let (_, more) = note.split_once("more with ").expect("a next page");
        let more: Vec<&str> = more.split_whitespace().take(4).collect();
        assert_eq!(more[..2], ["--order", words[1]]);
        let rest = listed(&[&command[..], &more].concat(), key);
        assert_eq!(rest, usual[..1], "{command:?}");
    }
    let (is_good, _, errors) = told(&["agent", "list", "--order", "newest"]);
    assert!(!is_good && errors.contains("must be one of asc, desc"), "{errors}");
}
