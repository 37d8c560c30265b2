//! Responses: in the background, waited for, streamed, cancelled, and nobody else's.

use super::reading::{Reading, Said};
use super::setting::{bind, fast, open, told};
use crate::http::facts;
use crate::http::server::{Place, Reply, Server, eventually, text};
use reqwest::Method;
use serde_json::{Value as Json, json};

facts!(
    a_response_in_the_background_is_queued_and_completed,
    a_response_is_waited_for_whether_the_upstream_has_them_or_not,
    the_events_of_a_response_keep_their_numbers,
    a_response_that_is_cancelled_stays_so,
    a_response_that_failed_says_why,
    a_stream_is_resumed_in_the_middle_and_after_the_end,
    a_stream_of_a_lost_attempt_is_not_resumed_with_the_text_of_another,
    a_number_that_no_event_has_is_refused,
    a_streamed_response_in_the_background_is_told_before_anybody_takes_it,
    a_response_that_has_ended_is_deleted_and_gone_for_good,
);

async fn ask(server: &Server, more: Json) -> Reply {
    let mut body = json!({ "model": "fast", "input": "hello" });
    for (name, value) in more.as_object().unwrap() {
        body[name.as_str()] = value.clone();
    }
    server.post("/v1/responses", body).await
}

fn said(response: &Json) -> &Json {
    &response["output"][0]["content"][0]["text"]
}

async fn show(server: &Server, id: &str) -> Json {
    server.get(&format!("/v1/responses/{id}")).await.expect(200)
}

async fn a_response_in_the_background_is_queued_and_completed(server: Server) {
    let (upstream, mut provider) = fast(&server).await;
    provider.interrupt();
    assert!(provider.ended().success());
    let asked = ask(&server, json!({ "background": true, "metadata": { "a": "b" } })).await;
    let queued = asked.expect(200);
    let id = text(&queued["id"]);
    assert!(id.starts_with("resp_"));
    assert_eq!((&queued["status"], &queued["object"]), (&json!("queued"), &json!("response")));
    assert_eq!((&queued["background"], &queued["output"]), (&json!(true), &json!([])));
    assert_eq!(queued["metadata"], json!({ "a": "b" }));
    assert_eq!(show(&server, &id).await, queued);
    let _provider = super::setting::Provider::start(&server, &upstream, "fast", &[]);
    eventually("it is completed", async || show(&server, &id).await["status"] == "completed").await;
    let response = show(&server, &id).await;
    assert_eq!((&response["id"], said(&response)), (&json!(id), &json!("You said hello.")));
    assert_eq!(response["usage"]["input_tokens"], 3);
}

async fn a_response_is_waited_for_whether_the_upstream_has_them_or_not(server: Server) {
    let (upstream, _provider) = fast(&server).await;
    upstream.speak_responses();
    let native = ask(&server, json!({ "temperature": 0.5 })).await.expect(200);
    assert_eq!((said(&native), &native["native"]), (&json!("You said hello."), &json!(true)));
    assert!(text(&native["id"]).starts_with("resp_0"), "ours, not the upstream's: {native}");
    assert_eq!(upstream.asked("responses")[0]["temperature"], 0.5);
    assert!(upstream.asked("chat").is_empty());
    // The upstream knows what came before by its own name.
    ask(&server, json!({ "previous_response_id": native["id"] })).await.expect(200);
    assert_eq!(upstream.asked("responses")[1]["previous_response_id"], "resp_upstream");
}

async fn the_events_of_a_response_keep_their_numbers(server: Server) {
    let (upstream, _provider) = fast(&server).await;
    for is_native in [false, true] {
        if is_native {
            upstream.speak_responses();
        }
        let body = json!({ "model": "fast", "input": "hello", "stream": true });
        let response = open(&server, "/v1/responses", body).await;
        let task = response.headers()["windlass-task"].to_str().unwrap().to_owned();
        let mut reading = Reading::of(response);
        assert_eq!(reading.next().await, Some(Said::Comment("queued".into())));
        let events: Vec<(String, Json)> = reading
            .rest()
            .await
            .into_iter()
            .map(|said| match said {
                Said::Event(name, data) => (name, data),
                other => panic!("{other:?}"),
            })
            .collect();
        for (number, (name, data)) in events.iter().enumerate() {
            assert_eq!((&data["type"], &data["sequence_number"]), (&json!(name), &json!(number)));
        }
        let (name, last) = events.last().unwrap();
        assert_eq!((name.as_str(), &events[0].0[..]), ("response.completed", "response.created"));
        assert_eq!(last["response"]["id"], format!("resp_{task}"));
        assert_eq!(said(&last["response"]), "You said hello.");
        let deltas = events.iter().filter(|(name, _)| name == "response.output_text.delta");
        let deltas: String = deltas.map(|(_, data)| text(&data["delta"])).collect();
        assert_eq!(deltas, "You said hello.");
    }
}

async fn a_response_that_is_cancelled_stays_so(server: Server) {
    bind(&server, "fast").await;
    let id = text(&ask(&server, json!({ "background": true })).await.expect(200)["id"]);
    let cancel = format!("/v1/responses/{id}/cancel");
    for _ in 0..2 {
        let response = server.post(&cancel, json!({})).await.expect(200);
        assert_eq!((&response["id"], &response["status"]), (&json!(id), &json!("cancelled")));
    }
    assert_eq!(show(&server, &id).await["status"], "cancelled");
    for unknown in ["x", "resp_x", "resp_019d0000-0000-7000-8000-000000000000"] {
        told(server.get(&format!("/v1/responses/{unknown}")).await, 404, "not_found");
        let path = format!("/v1/responses/{unknown}/cancel");
        told(server.post(&path, json!({})).await, 404, "not_found");
    }
}

async fn a_response_that_has_ended_is_deleted_and_gone_for_good(server: Server) {
    bind(&server, "fast").await;
    let id = text(&ask(&server, json!({ "background": true })).await.expect(200)["id"]);
    let path = format!("/v1/responses/{id}");
    let error = told(server.delete(&path).await, 400, "response_not_ended");
    assert!(text(&error["message"]).contains("cancel it first"), "{error}");
    server.post(&format!("{path}/cancel"), json!({})).await.expect(200);
    let gone = server.delete(&path).await.expect(200);
    assert_eq!(gone, json!({ "id": id, "object": "response", "deleted": true }));
    told(server.delete(&path).await, 404, "not_found");
    told(server.get(&path).await, 404, "not_found");
    told(server.get(&format!("{path}?stream=true")).await, 404, "not_found");
    told(server.post(&format!("{path}/cancel"), json!({})).await, 404, "not_found");
    let next = json!({ "previous_response_id": id });
    told(ask(&server, next).await, 404, "not_found");
    // What has ended never changes: the task is there until its retention is over.
    let task = id.strip_prefix("resp_").unwrap();
    assert_eq!(server.task(task).await["status"], "cancelled");
    for unknown in ["x", "resp_x", "resp_019d0000-0000-7000-8000-000000000000"] {
        told(server.delete(&format!("/v1/responses/{unknown}")).await, 404, "not_found");
    }
}

/// The numbers and types of the events up to one of this type.
async fn numbered(reading: &mut Reading, last: &str) -> Vec<(u64, String)> {
    let mut events = Vec::new();
    loop {
        match reading.next().await {
            Some(Said::Event(name, data)) => {
                assert_eq!(data["type"], name.as_str());
                events.push((data["sequence_number"].as_u64().unwrap(), name.clone()));
                if name == last {
                    return events;
                }
            }
            Some(Said::Comment(_)) => {}
            other => panic!("{other:?} after {events:?}"),
        }
    }
}

/// A streamed response in the background, and its task.
async fn background(server: &Server) -> (String, Reading) {
    let body = json!({ "model": "fast", "input": "x", "background": true, "stream": true });
    let response = open(server, "/v1/responses", body).await;
    let task = response.headers()["windlass-task"].to_str().unwrap().to_owned();
    (task, Reading::of(response))
}

/// Posts events of a response, numbered as an upstream numbers them.
async fn post(server: &Server, (task, lease): (&str, &str), from: u64, kinds: &[&str]) {
    let event = |(index, kind): (usize, &&str)| {
        let number = from + index as u64;
        json!({ "type": kind, "sequence_number": number, "response": {} })
    };
    let deltas: Vec<Json> = kinds.iter().enumerate().map(event).collect();
    let body = json!({ "lease_id": lease, "offset": from, "deltas": deltas });
    server.post(&format!("/v1/tasks/{task}/deltas"), body).await.expect(202);
}

/// Reads on after an event.
async fn again(server: &Server, task: &str, after: u64) -> Reading {
    let path = format!("/v1/responses/resp_{task}?stream=true&starting_after={after}");
    let sent = server.request(Method::GET, &path).send().await.unwrap();
    assert_eq!(sent.status(), 200);
    Reading::of(sent)
}

fn numbers(events: &[(u64, String)]) -> Vec<u64> {
    events.iter().map(|(number, _)| *number).collect()
}

async fn a_stream_is_resumed_in_the_middle_and_after_the_end(server: Server) {
    let session = bind(&server, "fast").await;
    let (task, mut reading) = background(&server).await;
    let (held, lease) = server.claim(&session).await;
    assert_eq!(held, task);
    let ours = (task.as_str(), lease.as_str());
    post(&server, ours, 0, &["response.created", "response.in_progress", "x.one"]).await;
    let seen = numbered(&mut reading, "x.one").await;
    // The upstream's beginning has a number, and is not told a second time.
    assert_eq!(numbers(&seen), [0, 1, 3, 4], "{seen:?}");
    // Its connection breaks; the response goes on, because it is in the background.
    drop(reading);
    post(&server, ours, 3, &["x.two"]).await;
    let mut reading = again(&server, &task, 4).await;
    assert_eq!(numbered(&mut reading, "x.two").await, [(5, "x.two".to_owned())]);
    let mut early = again(&server, &task, 0).await;
    assert_eq!(numbers(&numbered(&mut early, "x.two").await), [1, 3, 4, 5]);
    post(&server, ours, 4, &["x.three"]).await;
    let result = json!({ "object": "response", "status": "completed", "output": [] });
    let done = json!({ "lease_id": lease, "result": result });
    server.post(&format!("/v1/tasks/{task}/complete"), done).await.expect(200);
    let end = [(6, "x.three".to_owned()), (7, "response.completed".to_owned())];
    for reading in [&mut reading, &mut early] {
        assert_eq!(numbered(reading, "response.completed").await, end);
        assert_eq!(reading.next().await, None);
    }
    // The deltas are gone by now; who knows of the beginning is told the end alone.
    let mut late = again(&server, &task, 6).await;
    assert_eq!(numbered(&mut late, "response.completed").await, end[1..]);
    assert_eq!(late.next().await, None);
}

async fn a_stream_of_a_lost_attempt_is_not_resumed_with_the_text_of_another(server: Server) {
    let session = bind(&server, "fast").await;
    let (task, mut reading) = background(&server).await;
    let (_, lease) = server.claim(&session).await;
    let kinds = ["response.created", "x.one", "x.two", "x.three"];
    post(&server, (&task, &lease), 0, &kinds).await;
    let seen = numbered(&mut reading, "x.two").await;
    drop(reading);
    let released = json!({ "task_id": task, "lease_id": lease, "outcome": "release" });
    let path = format!("/v1/sessions/{session}/finish");
    server.post(&path, json!({ "items": [released] })).await.expect(200);
    let lost = async |after: u64| {
        let mut reading = again(&server, &task, after).await;
        let Some(Said::Event(name, data)) = reading.word().await else { panic!("no event") };
        assert_eq!((name.as_str(), &data["code"]), ("error", &json!("provider_lost")), "{data}");
        assert!(data["sequence_number"].as_u64() > Some(after));
        assert_eq!(reading.next().await, None);
    };
    let last = seen.last().unwrap().0;
    lost(last).await;
    let (_, lease) = server.claim(&session).await;
    post(&server, (&task, &lease), 0, &kinds).await;
    lost(last).await;
    // Who had read nothing of the answer goes on with the attempt that there is.
    let mut fresh = again(&server, &task, 1).await;
    let second = numbers(&numbered(&mut fresh, "x.three").await);
    assert!(second.iter().all(|number| *number > last), "{second:?}");
    let mut on = again(&server, &task, second[1]).await;
    assert_eq!(numbers(&numbered(&mut on, "x.three").await), second[2..]);
    let result = json!({ "object": "response", "status": "completed", "output": [] });
    let done = json!({ "lease_id": lease, "result": result });
    server.post(&format!("/v1/tasks/{task}/complete"), done).await.expect(200);
    lost(last).await;
    let ended = numbered(&mut fresh, "response.completed").await;
    assert_eq!(numbers(&ended), [second[2] + 1]);
    let mut late = again(&server, &task, second[2]).await;
    assert_eq!(numbered(&mut late, "response.completed").await, ended);
}

async fn a_number_that_no_event_has_is_refused(server: Server) {
    bind(&server, "fast").await;
    let (task, _reading) = background(&server).await;
    for number in [u64::MAX, 1 << 63, 1 << 53, 1 << 32] {
        let path = format!("/v1/responses/resp_{task}?stream=true&starting_after={number}");
        let error = told(server.get(&path).await, 400, "validation_failed");
        assert_eq!(error["param"], "starting_after", "{number}");
    }
}

async fn a_streamed_response_in_the_background_is_told_before_anybody_takes_it(server: Server) {
    bind(&server, "fast").await;
    let (task, mut reading) = background(&server).await;
    for (number, kind) in ["response.created", "response.queued"].into_iter().enumerate() {
        let Some(Said::Event(name, data)) = reading.word().await else { panic!("no event") };
        assert_eq!((name.as_str(), &data["sequence_number"]), (kind, &json!(number)));
        let response = &data["response"];
        assert_eq!(response["id"], format!("resp_{task}"));
        assert_eq!(
            (&response["status"], &response["background"]),
            (&json!("queued"), &json!(true))
        );
    }
    assert_eq!(server.task(&task).await["status"], "pending");
}

async fn a_response_that_failed_says_why(server: Server) {
    let (_upstream, _provider) = fast(&server).await;
    let body = json!({ "previous_response_id": "resp_1", "background": true });
    let id = text(&ask(&server, body).await.expect(200)["id"]);
    eventually("it failed", async || show(&server, &id).await["status"] == "failed").await;
    let error = show(&server, &id).await["error"].clone();
    assert!(text(&error["message"]).contains("previous_response_id"), "{error}");
    let reply = ask(&server, json!({ "previous_response_id": "resp_1" })).await;
    assert_eq!(reply.status, 400, "{}", reply.text);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_response_of_another_key_does_not_exist() {
    let (ann, bob) = ("0123456789abcdef", "fedcba9876543210");
    let keys = format!("ann:{ann},bob:worker:{bob}");
    let server = Server::start(Place::sqlite(), &[("WINDLASS_KEYS", &keys)]).await;
    let call = async |key: &str, method: Method, path: &str, body: Json| {
        server.send(server.request(method, path).bearer_auth(key).json(&body)).await
    };
    let pool = json!({ "name": "p", "pools": ["fast"], "kinds": ["inference"] });
    call(bob, Method::POST, "/v1/sessions", pool).await.expect(201);
    let body = json!({ "model": "fast", "input": "x", "background": true });
    let response = call(bob, Method::POST, "/v1/responses", body).await.expect(200);
    let path = format!("/v1/responses/{}", text(&response["id"]));
    call(bob, Method::GET, &path, json!({})).await.expect(200);
    told(call(ann, Method::GET, &path, json!({})).await, 404, "not_found");
    told(call(ann, Method::POST, &format!("{path}/cancel"), json!({})).await, 404, "not_found");
    told(call(ann, Method::DELETE, &path, json!({})).await, 404, "not_found");
    let list = call(ann, Method::GET, "/v1/tasks?owner=bob", json!({})).await.expect(200);
    assert_eq!(list["items"].as_array().unwrap().len(), 1, "the owner is the key's name");
}
