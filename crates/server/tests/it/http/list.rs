//! Lists of tasks and sessions: filters, pages, both orders.

use super::server::{Server, column, text};
use reqwest::Method;
use serde_json::{Value as Json, json};

super::facts!(
    every_filter_shows_what_fits_and_nothing_else,
    filters_work_together,
    pages_show_everything_once_in_both_orders,
    a_page_goes_on_where_it_ended_although_new_tasks_come,
    since_and_until_are_bounds_of_the_creation,
    in_flight_shows_what_is_claimed_or_running,
    sessions_are_listed_in_pages_newest_first,
);

async fn ids(server: &Server, query: &[(&str, &str)]) -> Vec<Json> {
    let request = server.request(Method::GET, "/v1/tasks").query(query);
    column(&server.send(request).await.expect(200)["items"], "id")
}

async fn every_filter_shows_what_fits_and_nothing_else(server: Server) {
    let parent = server.submit("other").await;
    let submits = [
        json!({
            "queue": "jobs", "name": "n", "agent": "a", "venture": "v", "portfolio": "p",
            "stage": "s", "owner": "o", "correlation_id": "c", "tags": {"k": "x:y"},
            "parent_id": parent,
        }),
        json!({ "caller": "me", "callee": "you" }),
        json!({ "pool": "fast" }),
    ];
    let mut made = Vec::new();
    for submit in submits {
        made.push(server.post("/v1/tasks", submit).await.expect(201)["id"].clone());
    }
    for (name, value, which) in [
        ("queue", "jobs", 0),
        ("name", "n", 0),
        ("agent", "a", 0),
        ("venture", "v", 0),
        ("portfolio", "p", 0),
        ("stage", "s", 0),
        ("owner", "o", 0),
        ("correlation_id", "c", 0),
        ("tag", "k:x:y", 0),
        ("parent_id", &parent, 0),
        ("caller", "me", 1),
        ("callee", "you", 1),
        ("kind", "delegation", 1),
        ("kind", "inference", 2),
        ("pool", "fast", 2),
    ] {
        assert_eq!(ids(&server, &[(name, value)]).await, [made[which].clone()], "{name}={value}");
    }
    for (name, value) in
        [("queue", "no"), ("tag", "k:x"), ("status", "completed"), ("replay_of", &parent)]
    {
        assert_eq!(ids(&server, &[(name, value)]).await, [] as [Json; 0], "{name}={value}");
    }
    assert_eq!(ids(&server, &[("status", "pending")]).await.len(), 4);
}

async fn filters_work_together(server: Server) {
    for (queue, agent) in [("a", "x"), ("a", "y"), ("b", "x")] {
        let submit = json!({ "queue": queue, "agent": agent, "tags": {"t": agent} });
        server.post("/v1/tasks", submit).await.expect(201);
    }
    let cancelled = text(&ids(&server, &[("queue", "b")]).await[0]);
    server.post(&format!("/v1/tasks/{cancelled}/cancel"), json!({})).await.expect(200);
    assert_eq!(ids(&server, &[("queue", "a"), ("agent", "x")]).await.len(), 1);
    assert_eq!(ids(&server, &[("queue", "b"), ("agent", "y")]).await.len(), 0);
    assert_eq!(ids(&server, &[("tag", "t:x"), ("status", "cancelled")]).await, [cancelled]);
    assert_eq!(ids(&server, &[("status", "pending,cancelled")]).await.len(), 3);
    assert_eq!(ids(&server, &[("status", "pending"), ("in_flight", "false")]).await.len(), 2);
}

async fn pages_show_everything_once_in_both_orders(server: Server) {
    let tasks = vec![json!({ "queue": "q" }); 25];
    server.post("/v1/tasks/batch", json!({ "tasks": tasks })).await.expect(201);
    let mut orders = Vec::new();
    for order in ["newest", "oldest"] {
        let mut seen = Vec::new();
        let mut path = format!("/v1/tasks?order={order}&limit=7");
        loop {
            let page = server.get(&path).await.expect(200);
            seen.extend(column(&page["items"], "id"));
            let Some(next) = page["next_cursor"].as_str() else { break };
            assert_eq!(page["items"].as_array().unwrap().len(), 7);
            path = format!("/v1/tasks?order={order}&limit=7&cursor={next}");
        }
        orders.push(seen);
    }
    orders[1].reverse();
    assert_eq!(orders[0], orders[1]);
    assert_eq!(orders[0].iter().collect::<std::collections::HashSet<_>>().len(), 25);
    let page = server.get("/v1/tasks?limit=25").await.expect(200);
    assert_eq!(page["next_cursor"], json!(null), "a full last page is the last");
    assert_eq!(page["items"].as_array().unwrap().len(), 25);
}

async fn a_page_goes_on_where_it_ended_although_new_tasks_come(server: Server) {
    let first = server.submit("q").await;
    let second = server.submit("q").await;
    let page = server.get("/v1/tasks?limit=1").await.expect(200);
    assert_eq!(page["items"][0]["id"], second.as_str());
    server.submit("q").await;
    let next = text(&page["next_cursor"]);
    let page = server.get(&format!("/v1/tasks?limit=1&cursor={next}")).await.expect(200);
    assert_eq!(page["items"][0]["id"], first.as_str());
}

async fn since_and_until_are_bounds_of_the_creation(server: Server) {
    let id = server.submit("q").await;
    let at = text(&server.task(&id).await["created_at"]);
    assert_eq!(ids(&server, &[("since", &at)]).await, [id]);
    assert_eq!(ids(&server, &[("until", &at)]).await.len(), 0);
    assert_eq!(ids(&server, &[("since", "2096-01-01T00:00:00Z")]).await.len(), 0);
    let both = [("since", "2020-01-01T00:00:00Z"), ("until", "2096-01-01T01:00:00+01:00")];
    assert_eq!(ids(&server, &both).await.len(), 1);
}

async fn in_flight_shows_what_is_claimed_or_running(server: Server) {
    server.submit("waits").await;
    let id = server.submit("q").await;
    let session = server.worker("q", 1).await;
    server.claim(&session).await;
    for query in [&[("in_flight", "true")][..], &[("in_flight", "true"), ("status", "running")]] {
        assert_eq!(ids(&server, query).await, [id.as_str()]);
    }
    let none = ids(&server, &[("in_flight", "true"), ("status", "completed")]).await;
    assert_eq!(none.len(), 0);
}

async fn sessions_are_listed_in_pages_newest_first(server: Server) {
    let mut made = Vec::new();
    for _ in 0..3 {
        made.push(server.worker("q", 1).await);
    }
    made.reverse();
    server.delete(&format!("/v1/sessions/{}", made[0])).await.expect(204);
    let open = server.get("/v1/sessions").await.expect(200);
    assert_eq!(column(&open["items"], "id"), made[1..]);
    let mut seen = Vec::new();
    let mut path = "/v1/sessions?all=true&limit=1".to_owned();
    loop {
        let page = server.get(&path).await.expect(200);
        seen.extend(column(&page["items"], "id"));
        let Some(next) = page["next_cursor"].as_str() else { break };
        path = format!("/v1/sessions?all=true&limit=1&cursor={next}");
    }
    // Those of one millisecond stand in the order of their ids.
    seen.sort_by_key(|id| made.iter().position(|m| *id == m.as_str()));
    assert_eq!(seen, made);
}
