//! The log of all transitions as server-sent events.

use super::server::{Place, Server, text};
use super::sse::{Event, Events};
use reqwest::Method;
use serde_json::{Value as Json, json};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use uuid::Uuid;
use windlass::domain::id::TaskId;
use windlass::domain::profile::Kind;
use windlass::domain::request::SubmitRequest;
use windlass::domain::validate;
use windlass::store as kept;
use windlass::store::clock::Clock;
use windlass::store::store::Store;
use windlass::store::task::{Position, Tasks};

super::facts!(
    every_transition_is_told_in_order_with_an_id,
    filters_show_what_fits_and_nothing_else,
    events_are_filtered_by_what_their_tasks_are,
    a_reader_resumes_after_the_last_event_by_header_or_parameter,
    the_log_can_be_read_from_the_beginning,
    resuming_again_and_again_under_load_loses_and_repeats_nothing,
    a_place_that_is_none_is_refused,
    a_place_that_the_log_has_not_come_to_is_refused,
    a_place_before_what_was_removed_is_told_so,
);

async fn finished(server: &Server, session: &str) -> String {
    let id = server.submit("q").await;
    let (_, lease) = server.claim(session).await;
    let body = json!({ "lease_id": lease, "result": 1 });
    server.post(&format!("/v1/tasks/{id}/complete"), body).await.expect(200);
    id
}

async fn resumed(server: &Server, after: &str) -> Events {
    Events::of(server.request(Method::GET, "/v1/events").header("Last-Event-ID", after)).await
}

async fn every_transition_is_told_in_order_with_an_id(server: Server) {
    let session = server.worker("q", 1).await;
    let mut events = server.events("/v1/events").await;
    let id = finished(&server, &session).await;
    let mut seen = Vec::new();
    for name in ["submit", "claim", "complete"] {
        let event = events.expect(name).await;
        assert_eq!(event.data["task_id"], id.as_str());
        assert_eq!(event.data["event"], name);
        assert!(event.data.get("lease_id").is_none(), "a read shows no lease");
        seen.push(event.id.expect("every event has an id"));
    }
    assert_eq!(seen.iter().collect::<HashSet<_>>().len(), 3);
    let page = server.get(&format!("/v1/tasks/{id}/history")).await.expect(200);
    assert_eq!(page["items"].as_array().unwrap().len(), 3);
}

async fn filters_show_what_fits_and_nothing_else(server: Server) {
    let session = server.worker("q", 1).await;
    let mut complete = server.events("/v1/events?event=complete,fail").await;
    let mut ended = server.events("/v1/events?to_status=completed").await;
    let first = finished(&server, &session).await;
    let mut one = server.events(&format!("/v1/events?task_id={first}&after=beginning")).await;
    let second = finished(&server, &session).await;
    for events in [&mut complete, &mut ended] {
        for id in [&first, &second] {
            assert_eq!(events.expect("complete").await.data["task_id"], id.as_str());
        }
    }
    for name in ["submit", "claim", "complete"] {
        assert_eq!(one.expect(name).await.data["task_id"], first.as_str());
    }
    assert!(one.is_silent(std::time::Duration::from_millis(300)).await);
}

/// One task that differs from the others in every field, and every filter that finds it alone.
async fn events_are_filtered_by_what_their_tasks_are(server: Server) {
    let parent = server.submit("parents").await;
    let special = json!({
        "queue": "special", "agent": "scout", "venture": "acme", "portfolio": "north",
        "stage": "draft", "owner": "ada", "correlation_id": "order 7", "name": "letter",
        "tags": { "team": "a:b" }, "parent_id": parent,
    });
    let delegated = json!({ "kind": "delegation", "caller": "ada", "callee": "bob" });
    let asked = json!({ "kind": "inference", "pool": "fast" });
    let filters: [(&Json, &[&str]); 3] = [
        (
            &special,
            &[
                "queue=special",
                "agent=scout",
                "venture=acme",
                "portfolio=north",
                "stage=draft",
                "owner=ada",
                "correlation_id=order%207",
                "name=letter",
                "tag=team:a:b",
                "venture=acme&queue=special&event=submit",
            ],
        ),
        (&delegated, &["kind=delegation", "caller=ada", "callee=bob"]),
        (&asked, &["kind=inference", "pool=fast"]),
    ];
    let of_parent = format!("parent_id={parent}");
    // Told as it happens, and read from what happened before.
    let mut streams = Vec::new();
    for (at, query) in filters
        .iter()
        .enumerate()
        .flat_map(|(at, (_, all))| all.iter().map(move |query| (at, (*query).to_owned())))
        .chain([(0, of_parent)])
    {
        streams.push((at, server.events(&format!("/v1/events?{query}")).await, query));
    }
    let mut ids = Vec::new();
    for (body, _) in filters {
        server.submit("other").await;
        ids.push(text(&server.post("/v1/tasks", body.clone()).await.expect(201)["id"]));
    }
    server.submit("other").await;
    for id in &ids {
        server.post(&format!("/v1/tasks/{id}/cancel"), json!({})).await.expect(200);
    }
    for (at, live, query) in &mut streams {
        let mut later = server.events(&format!("/v1/events?{query}&after=beginning")).await;
        for events in [live, &mut later] {
            assert_eq!(events.expect("submit").await.data["task_id"], ids[*at].as_str(), "{query}");
            if !query.contains("event=") {
                let event = events.expect("cancel").await;
                assert_eq!(event.data["task_id"], ids[*at].as_str(), "{query}");
            }
        }
    }
    let path = format!("/v1/tasks/{}/replay", ids[0]);
    let replay = server.post(&path, json!({ "from": "beginning" })).await.expect(201);
    let path = format!("/v1/events?after=beginning&replay_of={}", ids[0]);
    let mut events = server.events(&path).await;
    assert_eq!(events.expect("submit").await.data["task_id"], replay["id"]);
    for (query, pointer) in
        [("kind=chore", "/kind"), ("tag=team", "/tag"), ("colour=red", "/colour")]
    {
        let reply = server.get(&format!("/v1/events?{query}")).await;
        assert_eq!(reply.refused(422, "validation_failed")["errors"][0]["pointer"], pointer);
    }
}

async fn a_reader_resumes_after_the_last_event_by_header_or_parameter(server: Server) {
    let mut events = server.events("/v1/events").await;
    server.submit("q").await;
    let last = events.expect("submit").await.id.unwrap();
    drop(events);
    let missed = server.submit("q").await;
    let mut resumed = resumed(&server, &last).await;
    assert_eq!(resumed.expect("submit").await.data["task_id"], missed.as_str());
    let mut resumed = server.events(&format!("/v1/events?after={last}")).await;
    assert_eq!(resumed.expect("submit").await.data["task_id"], missed.as_str());
    let next = server.submit("q").await;
    assert_eq!(resumed.expect("submit").await.data["task_id"], next.as_str());
}

async fn the_log_can_be_read_from_the_beginning(server: Server) {
    let first = server.submit("q").await;
    let mut events = server.events("/v1/events?after=beginning").await;
    assert_eq!(events.expect("submit").await.data["task_id"], first.as_str());
    let second = server.submit("q").await;
    assert_eq!(events.expect("submit").await.data["task_id"], second.as_str());
}

async fn resuming_again_and_again_under_load_loses_and_repeats_nothing(server: Server) {
    const WRITERS: usize = 8;
    const EACH: usize = 60;
    let mut events = server.events("/v1/events?after=beginning").await;
    let load = futures_util::future::join_all((0..WRITERS).map(|_| async {
        let mut made = Vec::new();
        for _ in 0..EACH / 3 {
            let tasks = vec![json!({ "queue": "q" }); 3];
            let answer = server.post("/v1/tasks/batch", json!({ "tasks": tasks })).await;
            let results = answer.expect(201)["results"].clone();
            made.extend(results.as_array().unwrap().iter().map(|result| text(&result["id"])));
        }
        made
    }));
    let reading = async {
        let mut seen: Vec<Event> = Vec::new();
        while seen.len() < WRITERS * EACH {
            let event = events.expect("submit").await;
            let last = event.id.clone().unwrap();
            seen.push(event);
            if seen.len().is_multiple_of(37) {
                events = resumed(&server, &last).await;
            }
        }
        assert!(events.is_silent(std::time::Duration::from_millis(300)).await, "too much");
        seen
    };
    let (made, seen) = tokio::join!(load, reading);
    let made: HashSet<String> = made.into_iter().flatten().collect();
    let told: Vec<String> = seen.iter().map(|event| text(&event.data["task_id"])).collect();
    assert_eq!(told.len(), told.iter().collect::<HashSet<_>>().len(), "nothing is told twice");
    assert_eq!(told.into_iter().collect::<HashSet<_>>(), made);
    // A second reader sees the same, in the same order.
    let mut again = server.events("/v1/events?after=beginning").await;
    for event in &seen {
        assert_eq!(again.next().await.as_ref(), Some(event));
    }
}

async fn a_place_that_is_none_is_refused(server: Server) {
    for wrong in ["x", "1", "1-", "-1-1", "1--1", "99999999999999999999-1", "1-1-1"] {
        let reply = server.get(&format!("/v1/events?after={wrong}")).await;
        reply.refused(400, "invalid_cursor");
        let request = server.request(Method::GET, "/v1/events").header("Last-Event-ID", wrong);
        server.send(request).await.refused(400, "invalid_cursor");
    }
    for (query, pointer) in
        [("event=nothing", "/event"), ("to_status=done", "/to_status"), ("task_id=7", "/task_id")]
    {
        let reply = server.get(&format!("/v1/events?{query}")).await;
        let problem = reply.refused(422, "validation_failed");
        assert_eq!(problem["errors"][0]["pointer"], pointer);
    }
}

/// Such a reader saw nothing until the log had come there, and never what was between.
async fn a_place_that_the_log_has_not_come_to_is_refused(server: Server) {
    let refused = async |after: &str| {
        let request = server.request(Method::GET, "/v1/events").header("Last-Event-ID", after);
        let by_header = server.send(request).await.refused(400, "invalid_cursor");
        let reply = server.get(&format!("/v1/events?after={after}")).await;
        assert_eq!(reply.refused(400, "invalid_cursor")["detail"], by_header["detail"]);
        text(&by_header["detail"])
    };
    let told = refused("9223372036854775807-1").await;
    assert!(told.contains("there is no event yet") && told.contains("begin without it"), "{told}");
    let mut events = server.events("/v1/events").await;
    server.submit("q").await;
    let last = events.expect("submit").await.id.unwrap();
    let (transaction, seq) = last.split_once('-').unwrap();
    let next = |number: &str| number.parse::<i64>().unwrap() + 1;
    let ahead = match &server.place {
        Place::Postgres(_) => format!("{}-{seq}", next(transaction) + 1_000_000_000),
        _ => format!("{transaction}-{}", next(seq)),
    };
    let told = refused(&ahead).await;
    assert!(told.contains(&format!("the newest event is {last};")), "{told}");
    let mut resumed = resumed(&server, &last).await;
    let id = server.submit("q").await;
    assert_eq!(resumed.expect("submit").await.data["task_id"], id.as_str());
}

/// A database whose retention has removed an old inference; the ids of the event before its last
/// one, and of its last one.
async fn with_a_hole(place: &Place) -> [String; 2] {
    const OLD: i64 = 1_400_000_000_000;
    const WEEK: i64 = 7 * 24 * 60 * 60 * 1_000;
    let ms = Arc::new(AtomicI64::new(OLD));
    let clock = Clock::Fixed(Arc::clone(&ms));
    let store = match place {
        Place::Sqlite(folder) => {
            let options = kept::sqlite::Options { clock, ..kept::sqlite::Options::default() };
            Store::new(kept::sqlite::open(folder.path().join("w.db"), options).unwrap())
        }
        _ => {
            let options = kept::postgres::Options { clock, ..kept::postgres::Options::default() };
            Store::new(kept::postgres::open(&place.url(), options).unwrap())
        }
    };
    let tasks = Tasks::new(store.clone());
    let new = |kind: Kind| {
        let pool = (kind == Kind::Inference).then(|| "fast".to_owned());
        let request = SubmitRequest {
            kind: Some(kind),
            queue: Some("q".into()),
            pool,
            ..SubmitRequest::default()
        };
        validate::new_task(&request, TaskId(Uuid::now_v7()), "", "tester").unwrap()
    };
    let submitted = tasks.submit(vec![new(Kind::Inference)]).await.pop().unwrap().unwrap();
    tasks.cancel(submitted.id, "tester", None).await.unwrap();
    tasks.submit(vec![new(Kind::Job)]).await.pop().unwrap().unwrap();
    let mut log = Vec::new();
    while log.len() < 3 {
        log = tasks.tail(Position::default(), 10).await.unwrap();
        tokio::task::yield_now().await;
    }
    ms.fetch_add(WEEK, Ordering::SeqCst);
    assert_eq!(tasks.remove_expired(None, 10).await.unwrap(), 1);
    store.close();
    [0, 1].map(|at: usize| format!("{}-{}", log[at].0.transaction, log[at].0.seq))
}

async fn a_place_before_what_was_removed_is_told_so(server: Server) {
    let place = server.place.clone();
    drop(server);
    let [before, last] = with_a_hole(&place).await;
    let server = Server::start(place, &[]).await;
    let reply = server.get(&format!("/v1/events?after={before}")).await;
    reply.refused(410, "cursor_expired");
    let request = server.request(Method::GET, "/v1/events").header("Last-Event-ID", &before);
    server.send(request).await.refused(410, "cursor_expired");
    // Who saw the last one missed nothing, and who begins anew sees what there is.
    for after in [&last, "beginning"] {
        let mut events = server.events(&format!("/v1/events?after={after}")).await;
        assert_eq!(events.expect("submit").await.data["to_status"], "pending");
    }
}
