//! Deltas between two nodes on one PostgreSQL: by a call from node to node, and by chunks where
//! they cannot reach each other.

use super::delta::{asked, held, post, provider, watch};
use super::server::{Place, Server, eventually, text};
use super::sse::Events;
use serde_json::{Value as Json, json};
use std::net::TcpListener;
use std::sync::Arc;
use windlass::domain::time::Timestamp;

const KEY: &str = "the key of the cluster";

/// An address that was free a moment ago: a node's URL must be known before it listens.
fn free() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// A node that others reach by an address, or do not reach.
async fn node(place: &Place, listen: &str, key: &str, reached: Option<&str>) -> Server {
    let (key, url) = (key.replace(' ', "-"), reached.map(|at| format!("http://{at}")));
    let mut settings = vec![("WINDLASS_CLUSTER_KEY", key.as_str())];
    settings.extend(url.as_deref().map(|url| ("WINDLASS_ADVERTISE", url)));
    Server::start_on(place.clone(), listen, &settings).await
}

/// Two nodes, each with the URL by which the other reaches it, and a key.
async fn two(keys: [&str; 2], reachable: bool) -> (Server, Server) {
    let place = Place::postgres();
    let mut servers = Vec::new();
    for key in keys {
        let listen = free();
        servers.push(node(&place, &listen, key, reachable.then_some(&listen)).await);
    }
    let b = servers.pop().unwrap();
    (servers.pop().unwrap(), b)
}

/// A way to a server that can be cut off, with everything that is under way on it.
struct Way {
    address: String,
    passing: tokio::task::JoinHandle<()>,
}

impl Way {
    async fn to(server: String) -> Way {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let passing = tokio::spawn(async move {
            let mut open = tokio::task::JoinSet::new();
            while let Ok((mut near, _)) = listener.accept().await {
                let Ok(mut far) = tokio::net::TcpStream::connect(&server).await else { continue };
                open.spawn(async move { tokio::io::copy_bidirectional(&mut near, &mut far).await });
            }
        });
        Way { address, passing }
    }

    fn cut(&self) {
        self.passing.abort();
    }
}

/// The next deltas, which must stand at these offsets of the first attempt and say them.
async fn numbered(events: &mut Events, offsets: std::ops::Range<u64>) {
    for offset in offsets {
        let event = events.expect("delta").await;
        assert_eq!(event.data, json!({ "attempt": 1, "offset": offset, "delta": offset }));
    }
}

fn numbers(offsets: std::ops::Range<u64>) -> Json {
    offsets.collect()
}

async fn completed(server: &Server, id: &str, lease: &str) {
    let body = json!({ "lease_id": lease, "result": "x" });
    server.post(&format!("/v1/tasks/{id}/complete"), body).await.expect(200);
}

fn was_asked(server: &Server) -> bool {
    server.log().iter().any(|line| line.contains("/internal/v1/tasks/{id}/deltas"))
}

/// The log is read by another thread: what it says may come a moment later.
async fn asks(server: &Server) {
    eventually("it was asked", || async { was_asked(server) }).await;
}

/// What a watcher on one node sees of a task whose provider posts to the other.
async fn is_passed_on(a: &Server, b: &Server) {
    let (id, session, lease) = held(a).await;
    let mut early = watch(b, &id).await;
    post(a, &id, &lease, 0, json!(["a", "b"])).await;
    for (index, value) in ["a", "b"].iter().enumerate() {
        let event = early.expect("delta").await;
        assert_eq!(event.data, json!({ "attempt": 1, "offset": index, "delta": value }));
    }
    let mut late = watch(b, &id).await;
    assert_eq!(late.expect("delta").await.data["delta"], "a");
    // The provider is gone; the next one posts to the watchers' own node.
    a.delete(&format!("/v1/sessions/{session}")).await.expect(204);
    assert_eq!(early.expect("reset").await.data["attempt"], 1);
    let session = provider(b).await;
    let (_, lease) = b.claim(&session).await;
    post(b, &id, &lease, 0, json!(["x"])).await;
    assert_eq!(early.expect("delta").await.id.as_deref(), Some("2.0"));
    let body = json!({ "lease_id": lease, "result": "x" });
    a.post(&format!("/v1/tasks/{id}/complete"), body).await.expect(200);
    assert_eq!(early.expect("done").await.data["result"], "x");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watcher_on_one_node_gets_what_is_posted_to_another() {
    let (a, b) = two([KEY, KEY], true).await;
    is_passed_on(&a, &b).await;
    asks(&a).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_advertise_no_url_pass_deltas_on_by_chunks() {
    let (a, b) = two([KEY, KEY], false).await;
    is_passed_on(&a, &b).await;
    assert!(!was_asked(&a));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_with_different_keys_pass_deltas_on_by_chunks() {
    let (a, b) = two([KEY, "another key of a cluster"], true).await;
    is_passed_on(&a, &b).await;
    // It was asked, and refused.
    asks(&a).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_answers_nobody_without_the_clusters_key() {
    let (a, _b) = two([KEY, KEY], true).await;
    let (id, _, lease) = held(&a).await;
    post(&a, &id, &lease, 0, json!(["a"])).await;
    let path = format!("/internal/v1/tasks/{id}/deltas?attempt=1&from=0");
    a.get(&path).await.refused(401, "unauthenticated");
    let wrong = a.request(reqwest::Method::GET, &path).bearer_auth("something-else-entirely");
    a.send(wrong).await.refused(401, "unauthenticated");
    let other = path.replace("attempt=1", "attempt=2");
    let right = a.request(reqwest::Method::GET, &other).bearer_auth(KEY.replace(' ', "-"));
    Events::of(right).await.expect("ended").await;
    let alone = Server::on_sqlite().await;
    alone.get(&path).await.refused(404, "not_found");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_that_goes_on_at_another_node_begins_there_and_readers_do_not_notice() {
    let (a, b) = two([KEY, KEY], true).await;
    let (id, _, lease) = held(&a).await;
    let mut events = watch(&b, &id).await;
    post(&a, &id, &lease, 0, json!(["a", "b"])).await;
    events.expect("delta").await;
    events.expect("delta").await;
    let body = json!({ "lease_id": lease, "offset": 2, "deltas": ["c"] });
    b.post(&format!("/v1/tasks/{id}/deltas"), body).await.refused(409, "delta_gap");
    assert_eq!(post(&b, &id, &lease, 0, json!(["a", "b", "c"])).await, 3);
    let third = events.expect("delta").await;
    assert_eq!((third.id.as_deref(), &third.data["delta"]), (Some("1.2"), &json!("c")));
}

/// A copy had its beginning from the node; chunks begin elsewhere, and it stood between two.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watcher_whose_node_is_cut_off_in_the_middle_goes_on_by_chunks_and_misses_nothing() {
    let place = Place::postgres();
    let listen = free();
    let way = Way::to(listen.clone()).await;
    let a = node(&place, &listen, KEY, Some(&way.address)).await;
    let b = node(&place, "127.0.0.1:0", KEY, None).await;
    let (id, _, lease) = held(&a).await;
    let mut events = watch(&b, &id).await;
    post(&a, &id, &lease, 0, numbers(0..3)).await;
    numbered(&mut events, 0..3).await;
    asks(&a).await;
    way.cut();
    // The first chunk has these, and what is known already.
    post(&a, &id, &lease, 3, numbers(3..5)).await;
    numbered(&mut events, 3..5).await;
    post(&a, &id, &lease, 5, numbers(5..9)).await;
    completed(&a, &id, &lease).await;
    numbered(&mut events, 5..9).await;
    events.expect("done").await;
}

/// Two nodes cut the same text into different chunks, and nobody asked the second for any.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_that_goes_on_elsewhere_is_followed_by_chunks_as_well() {
    let place = Place::postgres();
    let a = node(&place, "127.0.0.1:0", KEY, None).await;
    let b = node(&place, "127.0.0.1:0", KEY, None).await;
    let c = node(&place, "127.0.0.1:0", KEY, None).await;
    let (id, _, lease) = held(&a).await;
    let mut events = watch(&c, &id).await;
    post(&a, &id, &lease, 0, numbers(0..3)).await;
    numbered(&mut events, 0..3).await;
    drop(a);
    post(&b, &id, &lease, 0, numbers(0..6)).await;
    numbered(&mut events, 3..6).await;
    post(&b, &id, &lease, 6, numbers(6..9)).await;
    completed(&b, &id, &lease).await;
    numbered(&mut events, 6..9).await;
    events.expect("done").await;
}

/// It has nothing of the text, and said so at once, hundreds of times a second; and the watcher
/// missed what was posted to it, because it waited for chunks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_started_anew_at_its_address_is_asked_with_pauses_and_followed() {
    let place = Place::postgres();
    let listen = free();
    let a = node(&place, &listen, KEY, Some(&listen)).await;
    let b = node(&place, "127.0.0.1:0", KEY, None).await;
    let (id, _, lease) = held(&a).await;
    post(&a, &id, &lease, 0, numbers(0..3)).await;
    drop(a);
    let a = node(&place, &listen, KEY, Some(&listen)).await;
    let mut events = watch(&b, &id).await;
    let asked = || {
        let log = a.log().into_iter();
        let calls = log.filter(|line| line.contains("/internal/v1/tasks/{id}/deltas"));
        let at = |line: String| {
            let line: Json = serde_json::from_str(&line).unwrap();
            let at: Timestamp = text(&line["timestamp"]).parse().unwrap();
            at.as_ms()
        };
        calls.map(at).collect::<Vec<_>>()
    };
    eventually("it is asked three times", async || asked().len() >= 3).await;
    let times = asked();
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= 500), "{times:?}");
    post(&a, &id, &lease, 0, numbers(0..6)).await;
    numbered(&mut events, 0..6).await;
    completed(&a, &id, &lease).await;
    events.expect("done").await;
}

/// Streams so many texts of 200 deltas from providers on one node to watchers on another.
async fn streams(a: &Arc<Server>, b: &Arc<Server>, count: usize) {
    let mut running = Vec::new();
    for _ in 0..count {
        let id = asked(a).await;
        let mut events = watch(b, &id).await;
        running.push(tokio::spawn(async move {
            let mut seen = Vec::new();
            loop {
                let event = events.next().await.expect("the stream is open");
                match event.name.as_str() {
                    "delta" => {
                        seen.push((event.data["offset"].clone(), event.data["delta"].clone()))
                    }
                    "done" => return seen,
                    other => panic!("{other}"),
                }
            }
        }));
    }
    let body = json!({ "name": "p", "pools": ["fast"], "slots": count });
    let session = text(&a.post("/v1/sessions", body).await.expect(201)["id"]);
    let body = json!({ "max": count, "wait_ms": 10_000 });
    let taken = a.post(&format!("/v1/sessions/{session}/claim"), body).await.expect(200);
    let posts = taken["assignments"].as_array().unwrap().iter().map(|held| {
        let (a, id) = (Arc::clone(a), text(&held["task"]["id"]));
        let lease = text(&held["lease_id"]);
        tokio::spawn(async move {
            for from in (0..200).step_by(5) {
                let deltas: Vec<Json> =
                    (from..from + 5).map(|n| json!(format!("{id} {n}"))).collect();
                post(&a, &id, &lease, from, json!(deltas)).await;
            }
            let body = json!({ "lease_id": lease, "result": 1 });
            a.post(&format!("/v1/tasks/{id}/complete"), body).await.expect(200);
        })
    });
    for posted in posts.collect::<Vec<_>>() {
        posted.await.unwrap();
    }
    for watcher in running {
        let seen = watcher.await.unwrap();
        let indexes: Vec<Json> = (0..200).map(|n| json!(n)).collect();
        assert_eq!(seen.iter().map(|(index, _)| index.clone()).collect::<Vec<_>>(), indexes);
        let id = seen[0].1.as_str().unwrap().split(' ').next().unwrap().to_owned();
        let all = seen.iter().enumerate().all(|(n, (_, value))| *value == format!("{id} {n}"));
        assert!(all, "text of two tasks is mixed");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_streams_between_two_nodes_lose_double_and_reorder_nothing() {
    let (a, b) = two([KEY, KEY], true).await;
    streams(&Arc::new(a), &Arc::new(b), 64).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_by_chunks_lose_double_and_reorder_nothing() {
    let (a, b) = two([KEY, KEY], false).await;
    streams(&Arc::new(a), &Arc::new(b), 16).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_streams_on_one_node_lose_double_and_reorder_nothing() {
    for server in [Server::on_sqlite().await, Server::on_postgres().await] {
        let server = Arc::new(server);
        streams(&server, &server, 64).await;
    }
}
