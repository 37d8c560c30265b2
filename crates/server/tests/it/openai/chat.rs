//! Chat completions and embeddings through a pool.

use super::reading::{Reading, Said, chunks, text};
use super::setting::{Provider, bind, chat, fast, fast_with, open, says, streams, told};
use super::upstream::{COUNTED, MODEL};
use crate::http::facts;
use crate::http::server::{Place, Server, column, eventually, text as string};
use reqwest::Method;
use serde_json::{Value as Json, json};

facts!(
    a_chat_is_answered_through_its_pool,
    a_streamed_chat_has_one_id_and_ends_with_done,
    tokens_are_counted_in_the_stream_for_who_asks,
    tokens_are_counted_also_for_who_does_not_want_to_know,
    tool_calls_are_passed_on_whole_and_in_pieces,
    embeddings_are_passed_on,
    the_fields_of_a_request_reach_the_upstream_in_their_order,
    a_model_is_a_pool_or_a_providers_model_or_both,
    a_pool_whose_provider_is_away_queues,
    a_node_that_stops_leaves_the_tasks_of_its_callers_to_others,
    a_caller_that_goes_away_cancels_its_task_unless_it_has_a_key,
    the_same_key_gives_the_same_answer_and_another_body_is_refused,
    an_attempt_that_is_lost_before_its_first_piece_is_not_told,
    an_attempt_that_is_lost_after_a_piece_ends_the_stream_with_an_error,
    a_result_without_deltas_is_streamed_as_chunks,
    usage_that_only_the_provider_told_is_in_the_answer,
    many_streams_at_once_lose_double_and_reorder_nothing,
);

async fn a_chat_is_answered_through_its_pool(server: Server) {
    let (upstream, _provider) = fast(&server).await;
    let mut body = says("hello");
    body["seed"] = json!(7);
    body["future_field"] = json!({ "deep": [1] });
    let reply = chat(&server, body).await;
    let task = reply.header("windlass-task").expect("the task is named").to_owned();
    let answer = reply.expect(200);
    assert_eq!(answer["id"], format!("chatcmpl-{task}"));
    assert_eq!(answer["choices"][0]["message"]["content"], "You said hello.");
    assert_eq!((&answer["seed_was"], &answer["usage"]["total_tokens"]), (&json!(7), &json!(7)));
    let asked = &upstream.asked("chat")[0];
    assert_eq!((&asked["model"], &asked["future_field"]), (&json!(MODEL), &json!({ "deep": [1] })));
    let task = server.task(&task).await;
    assert_eq!((&task["kind"], &task["status"]), (&json!("inference"), &json!("completed")));
    assert_eq!((&task["pool"], &task["model"]), (&json!("fast"), &Json::Null));
    assert_eq!(task["usage"]["total_tokens"], 7);
    let pool = server.get("/v1/pools/fast").await.expect(200);
    assert_eq!(pool["tokens_last_minute"], 7, "the provider told it");
    assert_eq!(task["payload"]["endpoint"], "chat.completions");
    let kept: Json = serde_json::from_str(task["payload"]["body"].as_str().unwrap()).unwrap();
    assert_eq!(kept["model"], "fast", "as the client sent it");
}

async fn a_streamed_chat_has_one_id_and_ends_with_done(server: Server) {
    let (_upstream, _provider) = fast(&server).await;
    let response = open(&server, "/v1/chat/completions", streams("hello")).await;
    let task = response.headers()["windlass-task"].to_str().unwrap().to_owned();
    let mut reading = Reading::of(response);
    assert_eq!(reading.next().await, Some(Said::Comment("queued".into())));
    let said = reading.rest().await;
    assert_eq!(said.last(), Some(&Said::Done));
    let chunks = chunks(&said);
    assert_eq!(text(&chunks), "You said hello.");
    assert!(chunks.iter().all(|chunk| chunk["id"] == format!("chatcmpl-{task}")));
    assert!(chunks.iter().all(|chunk| chunk["choices"] != json!([])), "usage was not asked for");
    assert_eq!(chunks.last().unwrap()["choices"][0]["finish_reason"], "stop");
    let task = server.task(&task).await;
    let message = &task["result"]["choices"][0]["message"];
    assert_eq!(message, &json!({ "role": "assistant", "content": "You said hello." }));
    assert_eq!(task["result"]["usage"]["total_tokens"], 7, "counted all the same");
    assert!(task["stream_started_at"].is_string());
}

async fn tokens_are_counted_in_the_stream_for_who_asks(server: Server) {
    let (_upstream, _provider) = fast(&server).await;
    let mut body = streams("hello");
    body["stream_options"] = json!({ "include_usage": true });
    let response = open(&server, "/v1/chat/completions", body).await;
    let said = Reading::of(response).rest().await;
    let last = chunks(&said).pop().unwrap();
    assert_eq!((&last["choices"], &last["usage"]["total_tokens"]), (&json!([]), &json!(7)));
}

async fn tokens_are_counted_also_for_who_does_not_want_to_know(server: Server) {
    let (_upstream, _provider) = fast(&server).await;
    for options in
        [json!({ "include_usage": false }), json!({ "include_usage": null }), json!(null)]
    {
        let mut body = streams("hello");
        body["stream_options"] = options.clone();
        let response = open(&server, "/v1/chat/completions", body).await;
        let task = response.headers()["windlass-task"].to_str().unwrap().to_owned();
        let said = Reading::of(response).rest().await;
        assert_eq!(text(&chunks(&said)), "You said hello.");
        let is_usage = |chunk: &Json| chunk["choices"] == json!([]);
        assert!(!chunks(&said).iter().any(is_usage), "{options}: {said:?}");
        assert_eq!(server.task(&task).await["usage"]["total_tokens"], 7, "{options}");
    }
}

async fn tool_calls_are_passed_on_whole_and_in_pieces(server: Server) {
    let (upstream, _provider) = fast(&server).await;
    let tool = json!({ "type": "function", "function": { "name": "weather" } });
    let mut body = says("use a tool");
    body["tools"] = json!([tool]);
    let answer = chat(&server, body.clone()).await.expect(200);
    assert_eq!(upstream.asked("chat")[0]["tools"], body["tools"]);
    let call = answer["choices"][0]["message"]["tool_calls"][0].clone();
    assert_eq!(call["function"]["arguments"], "{\"city\":\"Rome\"}");
    body["stream"] = json!(true);
    let response = open(&server, "/v1/chat/completions", body).await;
    let task = response.headers()["windlass-task"].to_str().unwrap().to_owned();
    let said = Reading::of(response).rest().await;
    let parts: String = chunks(&said)
        .iter()
        .filter_map(|c| {
            let call = &c["choices"][0]["delta"]["tool_calls"][0];
            call["function"]["arguments"].as_str().map(str::to_owned)
        })
        .collect();
    assert_eq!(parts, "{\"city\":\"Rome\"}");
    let kept = server.task(&task).await;
    assert_eq!(kept["result"]["choices"][0]["message"]["tool_calls"][0], call);
}

async fn embeddings_are_passed_on(server: Server) {
    let (upstream, _provider) = fast(&server).await;
    let body = json!({ "model": "fast", "input": ["a"], "dimensions": 2 });
    let answer = server.post("/v1/embeddings", body).await.expect(200);
    assert_eq!(answer["data"][0]["embedding"], json!([0.25, -0.5]));
    assert_eq!(answer["usage"]["prompt_tokens"], 2);
    let asked = &upstream.asked("embeddings")[0];
    assert_eq!((&asked["model"], &asked["dimensions"]), (&json!(MODEL), &json!(2)));
}

async fn a_model_is_a_pool_or_a_providers_model_or_both(server: Server) {
    let (_upstream, _provider) = fast(&server).await;
    let list = server.get("/v1/models").await.expect(200);
    assert_eq!(list["object"], "list");
    assert_eq!(column(&list["data"], "id"), ["fast", MODEL]);
    let pinned = format!("fast/{MODEL}");
    for name in ["fast", MODEL, &pinned, &pinned.replace('/', "%2F")] {
        let model = server.get(&format!("/v1/models/{name}")).await.expect(200);
        assert_eq!(model["object"], "model");
        assert!(model["created"].as_i64().is_some_and(|created| created > 1_700_000_000));
    }
    // Names of models have slashes themselves.
    let body = json!({ "name": "p", "pools": ["deep/er"], "models": ["org/big"] });
    server.post("/v1/sessions", body).await.expect(201);
    for name in ["org/big", "deep/er", "deep/er/org/big"] {
        let model = server.get(&format!("/v1/models/{name}")).await.expect(200);
        assert_eq!(model["id"], name);
    }
    for name in [MODEL, &pinned] {
        let mut body = says("hello");
        body["model"] = json!(name);
        let reply = chat(&server, body).await;
        let task = server.task(reply.header("windlass-task").unwrap()).await;
        reply.expect(200);
        assert_eq!((&task["pool"], &task["model"]), (&json!("fast"), &json!(MODEL)), "{name}");
        assert_eq!(task["queue"], "fast");
    }
    let pools = server.get("/v1/pools").await.expect(200);
    assert_eq!(column(&pools["items"], "name"), ["deep/er", "fast"]);
    let error = told(server.get("/v1/models/slow").await, 404, "model_not_found");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("`slow`") && message.contains("fast, org/big, tiny"), "{message}");
}

async fn a_pool_whose_provider_is_away_queues(server: Server) {
    let (upstream, mut provider) = fast(&server).await;
    provider.interrupt();
    assert!(provider.ended().success());
    let response = open(&server, "/v1/chat/completions", streams("hello")).await;
    let mut reading = Reading::of(response);
    for _ in 0..2 {
        assert_eq!(reading.next().await, Some(Said::Comment("queued".into())));
    }
    let _provider = Provider::start(&server, &upstream, "fast", &[]);
    assert_eq!(text(&chunks(&reading.rest().await)), "You said hello.");
}

async fn a_node_that_stops_leaves_the_tasks_of_its_callers_to_others(mut server: Server) {
    bind(&server, "slow").await;
    let mut body = streams("hello");
    body["model"] = json!("slow");
    let response = open(&server, "/v1/chat/completions", body).await;
    let id = response.headers()["windlass-task"].to_str().unwrap().to_owned();
    let mut reading = Reading::of(response);
    assert_eq!(reading.next().await, Some(Said::Comment("queued".into())));
    let place = server.place.clone();
    tokio::task::spawn_blocking(move || server.stop()).await.unwrap();
    let again = Server::start(place, &[]).await;
    assert_eq!(again.task(&id).await["status"], "pending");
}

/// A schema whose fields are in an order of their own.
const SCHEMA: &str = r#"{"type":"object","properties":{"zip":{},"city":{},"area":{"b":1,"a":2}}}"#;

/// Sends a body as it is.
async fn send(server: &Server, path: &str, body: String) {
    let request = server.request(Method::POST, path).header("content-type", "application/json");
    let sent = request.body(body).send().await.unwrap();
    assert_eq!(sent.status(), 200);
    sent.bytes().await.unwrap();
}

async fn the_fields_of_a_request_reach_the_upstream_in_their_order(server: Server) {
    let (upstream, _provider) = fast(&server).await;
    let tool = format!(
        r#"[{{"type":"function","function":{{"strict":true,"name":"f","parameters":{SCHEMA}}}}}]"#
    );
    let messages = r#"[{"role":"user","content":"hello"}]"#;
    let body = |model: &str, stream: &str| {
        let fields = format!(r#""tools":{tool},"model":"{model}","#);
        format!(r#"{{"zeta":1,{fields}{stream}"messages":{messages},"alpha":[2.5,{{"y":1,"x":2}}]"#)
    };
    send(&server, "/v1/chat/completions", body("fast", "") + "}").await;
    send(&server, "/v1/chat/completions", body("fast", r#""stream":true,"#) + "}").await;
    let whole = body(MODEL, "") + "}";
    let streamed =
        body(MODEL, r#""stream":true,"#) + r#","stream_options":{"include_usage":true}}"#;
    assert_eq!(upstream.texts(), [whole, streamed]);
    // Translated to a chat, too.
    let tool = format!(r#"[{{"type":"function","name":"f","parameters":{SCHEMA}}}]"#);
    let body = format!(r#"{{"tools":{tool},"model":"fast","input":"hello"}}"#);
    send(&server, "/v1/responses", body).await;
    let text = upstream.texts().pop().unwrap();
    assert!(text.contains(&format!(r#""parameters":{SCHEMA}"#)), "{text}");
}

/// The task whose request names this user; null if there is none.
async fn of_user(server: &Server, name: &str) -> Json {
    let list = server.get("/v1/tasks?kind=inference").await.expect(200);
    let items = list["items"].as_array().unwrap().clone();
    let user = json!(name).to_string();
    let own = |task: &Json| task["payload"]["body"].as_str().unwrap().contains(&user);
    items.into_iter().find(own).unwrap_or_default()
}

async fn a_caller_that_goes_away_cancels_its_task_unless_it_has_a_key(server: Server) {
    bind(&server, "slow").await;
    let mut body = streams("hello");
    body["model"] = json!("slow");
    let mut tasks = Vec::new();
    for key in [None, Some("k-1")] {
        for is_streamed in [true, false] {
            body["stream"] = json!(is_streamed);
            let name = format!("{key:?} {is_streamed}");
            body["user"] = json!(name);
            let mut request = server.request(Method::POST, "/v1/chat/completions").json(&body);
            if let Some(key) = key {
                request = request.header("idempotency-key", format!("{key}-{is_streamed}"));
            }
            let waiting = tokio::spawn(async move {
                let response = request.send().await;
                std::future::pending::<()>().await;
                drop(response);
            });
            eventually("the task is there", || async {
                of_user(&server, &name).await["status"] == "pending"
            })
            .await;
            let found = of_user(&server, &name).await;
            waiting.abort();
            tasks.push((string(&found["id"]), key.is_some()));
        }
    }
    for (id, _) in tasks.iter().filter(|(_, has_key)| !has_key) {
        eventually("it is cancelled", async || server.task(id).await["status"] == "cancelled")
            .await;
    }
    for (id, _) in tasks.iter().filter(|(_, has_key)| *has_key) {
        assert_eq!(server.task(id).await["status"], "pending");
    }
}

async fn the_same_key_gives_the_same_answer_and_another_body_is_refused(server: Server) {
    let (upstream, _provider) = fast(&server).await;
    let ask = async |words: &str| {
        let request = server.request(Method::POST, "/v1/chat/completions");
        server.send(request.header("idempotency-key", "once").json(&says(words))).await
    };
    let first = ask("hello").await.expect(200);
    assert_eq!(ask("hello").await.expect(200), first);
    assert_eq!(upstream.asked("chat").len(), 1);
    told(ask("goodbye").await, 409, "idempotency_key_reused");
}

/// A chunk with some text.
fn piece(text: &str) -> Json {
    let choice = json!({ "index": 0, "delta": { "content": text }, "finish_reason": null });
    json!({ "id": "u", "object": "chat.completion.chunk", "choices": [choice] })
}

/// A whole answer.
fn whole(text: &str) -> Json {
    let message = json!({ "role": "assistant", "content": text });
    let choice = json!({ "index": 0, "message": message, "finish_reason": "stop" });
    json!({ "id": "u", "object": "chat.completion", "model": "m", "choices": [choice] })
}

/// Finishes a task under its lease.
async fn finish(server: &Server, session: &str, item: Json) {
    let path = format!("/v1/sessions/{session}/finish");
    let done = server.post(&path, json!({ "items": [item] })).await.expect(200);
    assert!(done["results"][0]["error"].is_null(), "{done}");
}

async fn an_attempt_that_is_lost_before_its_first_piece_is_not_told(server: Server) {
    let session = bind(&server, "fast").await;
    let response = open(&server, "/v1/chat/completions", streams("hello")).await;
    let (task, lease) = server.claim(&session).await;
    let released = json!({ "task_id": task, "lease_id": lease, "outcome": "release" });
    finish(&server, &session, released).await;
    let (task, lease) = server.claim(&session).await;
    let done = json!({
        "task_id": task, "lease_id": lease, "outcome": "complete", "result": whole("hi"),
    });
    finish(&server, &session, done).await;
    let said = Reading::of(response).rest().await;
    assert_eq!(text(&chunks(&said)), "hi");
    assert_eq!(said.last(), Some(&Said::Done));
}

async fn an_attempt_that_is_lost_after_a_piece_ends_the_stream_with_an_error(server: Server) {
    let session = bind(&server, "fast").await;
    let response = open(&server, "/v1/chat/completions", streams("hello")).await;
    let (task, lease) = server.claim(&session).await;
    let deltas = json!({ "lease_id": lease, "offset": 0, "deltas": [piece("half")] });
    server.post(&format!("/v1/tasks/{task}/deltas"), deltas).await.expect(202);
    let mut reading = Reading::of(response);
    let Some(Said::Data(first)) = reading.word().await else { panic!("no chunk") };
    assert_eq!(first["choices"][0]["delta"]["content"], "half");
    let released = json!({ "task_id": task, "lease_id": lease, "outcome": "release" });
    finish(&server, &session, released).await;
    let said = reading.rest().await;
    let [Said::Data(error)] = said.as_slice() else { panic!("{said:?}") };
    assert_eq!(error["error"]["code"], "provider_lost");
    eventually("nobody waits for it", async || server.task(&task).await["status"] == "cancelled")
        .await;
}

async fn a_result_without_deltas_is_streamed_as_chunks(server: Server) {
    let session = bind(&server, "fast").await;
    let response = open(&server, "/v1/chat/completions", streams("hello")).await;
    let (task, lease) = server.claim(&session).await;
    let done = json!({
        "task_id": task, "lease_id": lease, "outcome": "complete", "result": whole("all of it"),
    });
    finish(&server, &session, done).await;
    let said = Reading::of(response).rest().await;
    let chunks = chunks(&said);
    assert_eq!((text(&chunks).as_str(), chunks.len()), ("all of it", 2));
    assert_eq!(chunks[1]["choices"][0]["finish_reason"], "stop");
    assert_eq!(said.last(), Some(&Said::Done));
}

async fn usage_that_only_the_provider_told_is_in_the_answer(server: Server) {
    let session = bind(&server, "fast").await;
    for (path, body, expected) in [
        (
            "/v1/chat/completions",
            says("x"),
            json!({ "prompt_tokens": 3, "completion_tokens": 4,
            "total_tokens": 7 }),
        ),
        (
            "/v1/embeddings",
            json!({ "model": "fast", "input": "x" }),
            json!({ "prompt_tokens": 3, "total_tokens": 7 }),
        ),
        (
            "/v1/responses",
            json!({ "model": "fast", "input": "x" }),
            json!({ "input_tokens": 3,
            "input_tokens_details": { "cached_tokens": 2 }, "output_tokens": 4,
            "output_tokens_details": { "reasoning_tokens": 0 }, "total_tokens": 7 }),
        ),
    ] {
        let answering = async {
            let (task, lease) = server.claim(&session).await;
            let usage = json!({ "prompt_tokens": 3, "completion_tokens": 4, "cached_tokens": 2 });
            let done = json!({ "task_id": task, "lease_id": lease, "outcome": "complete",
                "result": { "object": "x" }, "usage": usage });
            finish(&server, &session, done).await;
        };
        let (reply, ()) = tokio::join!(server.post(path, body), answering);
        assert_eq!(reply.expect(200)["usage"], expected, "{path}");
    }
}

async fn many_streams_at_once_lose_double_and_reorder_nothing(server: Server) {
    let (_upstream, _provider) = fast_with(&server, &["--slots", "32"]).await;
    let expected: String = (0..COUNTED).map(|n| format!("{n} ")).collect();
    let one = async || {
        let response = open(&server, "/v1/chat/completions", streams("count")).await;
        let said = Reading::of(response).rest().await;
        assert_eq!(said.last(), Some(&Said::Done));
        text(&chunks(&said))
    };
    let all = futures_util::future::join_all((0..64).map(|_| one())).await;
    assert!(all.iter().all(|text| *text == expected), "{all:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_reaches_a_client_of_another_node() {
    let place = Place::postgres();
    let near = Server::start(place.clone(), &[]).await;
    let far = Server::start(place, &[]).await;
    let (_upstream, _provider) = fast(&near).await;
    for words in ["hello", "count"] {
        let response = open(&far, "/v1/chat/completions", streams(words)).await;
        let said = Reading::of(response).rest().await;
        assert_eq!(said.last(), Some(&Said::Done), "{said:?}");
        let expected: String = match words {
            "count" => (0..COUNTED).map(|n| format!("{n} ")).collect(),
            words => format!("You said {words}."),
        };
        assert_eq!(text(&chunks(&said)), expected);
        let whole = chat(&far, says(words)).await.expect(200);
        assert_eq!(whole["object"], "chat.completion");
    }
}
