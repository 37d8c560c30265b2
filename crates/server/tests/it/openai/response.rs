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
    let list = call(ann, Method::GET, "/v1/tasks?owner=bob", json!({})).await.expect(200);
    assert_eq!(list["items"].as_array().unwrap().len(), 1, "the owner is the key's name");
}
