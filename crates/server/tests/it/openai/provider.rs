//! `windlass provider` in front of an upstream that is busy, slow, ill or broken.

use super::reading::{Reading, Said, chunks, text};
use super::setting::{Provider, chat, fast_with, is_bound, open, says, somewhere, streams, told};
use super::upstream::Upstream;
use crate::http::facts;
use crate::http::server::{Place, Server, eventually};
use serde_json::json;
use std::process::Command;

facts!(
    a_provider_killed_in_the_middle_of_a_stream_is_noticed_before_its_session_ends,
    a_provider_that_hangs_loses_what_it_holds_although_its_stream_is_open,
    a_provider_binds_again_when_its_server_is_back,
);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_upstream_is_asked_again_and_only_a_few_times() {
    let (server, upstream, _provider) = somewhere(&[]).await;
    let answer = chat(&server, says("busy once")).await.expect(200);
    assert_eq!(answer["choices"][0]["message"]["content"], "You said busy once.");
    assert_eq!(upstream.asked("chat").len(), 2);
    let error = told(chat(&server, says("always busy")).await, 429, "rate_limit_exceeded");
    assert_eq!(error["message"], "slow down", "the upstream's own words");
    assert_eq!(upstream.asked("chat").len(), 2 + 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upstreams_refusal_is_passed_on_and_kept() {
    let (server, _upstream, _provider) = somewhere(&[]).await;
    let reply = chat(&server, says("too long")).await;
    let task = reply.header("windlass-task").unwrap().to_owned();
    told(reply, 400, "context_length_exceeded");
    let error = server.task(&task).await["error"].clone();
    assert_eq!(error["code"], "INVALID_INPUT");
    assert_eq!(error["message"], "the upstream answered 400: too many tokens");
    assert_eq!(error["detail"]["upstream"]["status"], 400);
    let response = open(&server, "/v1/chat/completions", streams("too long")).await;
    let said = Reading::of(response).rest().await;
    let [Said::Data(error)] = said.as_slice() else { panic!("{said:?}") };
    assert_eq!(error["error"]["code"], "context_length_exceeded");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_breaks_after_a_piece_fails_and_before_it_goes_back() {
    let (server, upstream, _provider) = somewhere(&[]).await;
    let response = open(&server, "/v1/chat/completions", streams("break")).await;
    let task = response.headers()["windlass-task"].to_str().unwrap().to_owned();
    let said = Reading::of(response).rest().await;
    let mut seen = chunks(&said);
    let error = seen.pop().unwrap();
    assert_eq!(error["error"]["code"], "upstream_broken", "{said:?}");
    assert_eq!(text(&seen), "You said ");
    assert!(!said.contains(&Said::Done));
    assert_eq!(server.task(&task).await["error"]["code"], "UPSTREAM_BROKEN");
    let response = open(&server, "/v1/chat/completions", streams("break at first")).await;
    let task = response.headers()["windlass-task"].to_str().unwrap().to_owned();
    let said = Reading::of(response).rest().await;
    assert_eq!(text(&chunks(&said)), "You said break at first.");
    assert_eq!(said.last(), Some(&Said::Done));
    let history = server.history(&task).await;
    assert!(history.iter().any(|event| event == "release"), "{history:?}");
    assert_eq!(upstream.asked("chat").len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upstream_that_does_not_begin_in_time_fails_the_task() {
    let (server, _upstream, _provider) = somewhere(&["--first-byte-timeout", "300ms"]).await;
    let error = told(chat(&server, says("never")).await, 504, "timeout");
    assert!(error["message"].as_str().unwrap().contains("300 ms"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upstream_that_falls_silent_fails_the_task() {
    let (server, _upstream, _provider) = somewhere(&["--idle-timeout", "300ms"]).await;
    let response = open(&server, "/v1/chat/completions", streams("stall")).await;
    let said = Reading::of(response).rest().await;
    let mut seen = chunks(&said);
    assert_eq!(seen.pop().unwrap()["error"]["code"], "timeout", "{said:?}");
    assert_eq!(text(&seen), "You said ");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_cannot_be_read_is_asked_for_once_and_makes_nobody_ill() {
    let (server, upstream, provider) = somewhere(&["--idle-timeout", "300ms"]).await;
    for (count, (words, status, code)) in [
        ("huge", 502, "upstream_unexpected"),
        ("half", 502, "upstream_broken"),
        ("half and silence", 504, "timeout"),
    ]
    .into_iter()
    .enumerate()
    {
        let reply = chat(&server, says(words)).await;
        let task = reply.header("windlass-task").unwrap().to_owned();
        told(reply, status, code);
        let task = server.task(&task).await;
        assert_eq!((&task["attempt"], &task["release_count"]), (&json!(1), &json!(0)), "{words}");
        assert_eq!(upstream.asked("chat").len(), count + 1, "{words}");
    }
    assert!(!provider.has_said("does not answer"));
}

/// An end that the server refuses was forgotten by the provider and not by the server, which gave
/// it the task again with the next heartbeat: the upstream was asked the same for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_end_that_the_server_does_not_take_is_told_in_other_words_and_not_tried_again() {
    let (server, upstream, _provider) = somewhere(&[]).await;
    for (count, (words, status, code, told_as)) in [
        ("large", 502, "invalid_output", "INVALID_OUTPUT"),
        ("nul refused", 422, "odd", "INVALID_INPUT"),
        ("deep refused", 400, "invalid_input", "INVALID_INPUT"),
    ]
    .into_iter()
    .enumerate()
    {
        let reply = chat(&server, says(words)).await;
        let task = reply.header("windlass-task").unwrap().to_owned();
        told(reply, status, code);
        let task = server.task(&task).await;
        assert_eq!((&task["status"], &task["attempt"]), (&json!("failed"), &json!(1)), "{words}");
        assert_eq!(task["error"]["code"], told_as, "{words}");
        assert_eq!(upstream.asked("chat").len(), count + 1, "{words}");
    }
}

/// What was paid for was thrown away for one character that no database keeps.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_nul_in_an_answer_does_not_cost_the_answer() {
    let (server, _upstream, _provider) = somewhere(&[]).await;
    let answer = chat(&server, says("nul")).await.expect(200);
    assert_eq!(answer["choices"][0]["message"]["content"], "a\u{fffd}b");
    let response = open(&server, "/v1/chat/completions", streams("nul")).await;
    let said = Reading::of(response).rest().await;
    assert_eq!(text(&chunks(&said)), "a\u{fffd}b");
    assert_eq!(said.last(), Some(&Said::Done));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_takes_what_is_pinned_to_its_llm_and_its_tier() {
    let (server, _upstream, _provider) =
        somewhere(&["--llm", "gpu-1", "--tier", "batch", "--tier", "urgent"]).await;
    let ask = async |pins: &[&str]| {
        let payload = json!({ "endpoint": "chat.completions", "body": says("hello") });
        let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
        command.args(["task", "submit", "--server", &server.url(""), "--pool", "fast"]);
        command.args(["--owner", "ann", "--wait", "--timeout", "1s", "--json"]).args(pins);
        let ran = command.arg(payload.to_string()).output().unwrap();
        ran.status.success()
    };
    for taken in [&["--llm", "gpu-1"][..], &["--tier", "urgent"], &["--tier", "batch"], &[]] {
        assert!(ask(taken).await, "{taken:?}");
    }
    assert!(ask(&["--model", "tiny", "--llm", "gpu-1", "--tier", "batch"]).await);
    for left in [["--llm", "gpu-2"], ["--tier", "slow"], ["--model", "other"]] {
        assert!(!ask(&left).await, "{left:?}");
    }
    let pool = server.get("/v1/pools/fast").await.expect(200);
    assert_eq!(pool["depth"], 3);
    assert_eq!(pool["providers"][0]["tiers"], json!(["batch", "urgent"]));
    assert_eq!(pool["providers"][0]["llms"], json!(["gpu-1"]));
    let listed = server.get("/v1/tasks?kind=inference&owner=ann").await.expect(200);
    assert_eq!(listed["items"].as_array().unwrap().len(), 8);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_upstream_says_of_our_key_is_for_operators_only() {
    let (server, _upstream, provider) = somewhere(&[]).await;
    let reply = chat(&server, says("denied")).await;
    let task = reply.header("windlass-task").unwrap().to_owned();
    let error = told(reply, 502, "upstream_denied");
    assert!(!error.to_string().contains("sk-secret"), "{error}");
    let kept = server.task(&task).await["error"].clone();
    assert_eq!(kept["message"], "the upstream answered 403: it refuses the provider's key");
    let said = &kept["detail"]["upstream"]["body"]["error"]["message"];
    assert_eq!(said, "the key sk-secret may not");
    assert!(provider.has_said("sk-secret"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_address_of_the_upstream_is_told_at_once_and_by_each_failure() {
    let server = Server::start(Place::sqlite(), &[]).await;
    let upstream = Upstream::start().await.misplaced();
    let provider = Provider::start(&server, &upstream, "fast", &[]);
    is_bound(&server, "fast").await;
    eventually("it is told", async || provider.has_said("is --upstream right")).await;
    let error = told(chat(&server, says("hello")).await, 502, "upstream_unexpected");
    let asked = format!("{}/chat/completions", upstream.url());
    assert!(error["message"].as_str().unwrap().contains(&asked), "{error}");
    let body = json!({ "model": "fast", "input": "hello" });
    told(server.post("/v1/responses", body).await, 502, "upstream_unexpected");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_taken_while_the_upstream_is_ill() {
    let server = Server::start(Place::sqlite(), &[]).await;
    let upstream = Upstream::start().await;
    upstream.fall_ill(true);
    let provider = Provider::start(&server, &upstream, "fast", &[]);
    is_bound(&server, "fast").await;
    eventually("the illness is told", async || provider.has_said("is ill")).await;
    let body = json!({ "model": "fast", "input": "hello", "background": true });
    let queued = server.post("/v1/responses", body).await.expect(200);
    let path = format!("/v1/responses/{}", queued["id"].as_str().unwrap());
    let before = upstream.checks();
    eventually("it is asked again", async || upstream.checks() > before + 2).await;
    assert_eq!(server.get(&path).await.expect(200)["status"], "queued");
    upstream.fall_ill(false);
    eventually("it is taken", async || {
        server.get(&path).await.expect(200)["status"] == "completed"
    })
    .await;
    assert!(provider.has_said("taking work"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upstream_that_is_gone_gives_the_task_back_and_it_waits() {
    let server = Server::start(Place::sqlite(), &[]).await;
    let (upstream, provider) = fast_with(&server, &[]).await;
    // Somebody who listens no more: the next provider is told to ask there.
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let nobody = upstream.at(closed.local_addr().unwrap());
    drop(closed);
    drop(provider);
    let lonely = Provider::start(&server, &nobody, "fast", &[]);
    eventually("it is told", async || lonely.has_said("is ill")).await;
    let response = open(&server, "/v1/chat/completions", streams("hello")).await;
    let mut reading = Reading::of(response);
    assert_eq!(reading.next().await, Some(Said::Comment("queued".into())));
    let _provider = Provider::start(&server, &upstream, "fast", &[]);
    assert_eq!(text(&chunks(&reading.rest().await)), "You said hello.");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_that_is_told_to_end_finishes_what_it_holds() {
    let (server, upstream, mut provider) = somewhere(&[]).await;
    let waiting = chat(&server, says("hold"));
    let ending = async {
        eventually("it is held", async || upstream.asked("chat").len() == 1).await;
        provider.interrupt();
        eventually("it ends", async || provider.has_said("waiting up to")).await;
        upstream.released.add_permits(1);
        provider.ended()
    };
    let (reply, status) = tokio::join!(waiting, ending);
    let answer = reply.expect(200);
    assert_eq!(answer["choices"][0]["message"]["content"], "You said hold.");
    assert!(status.success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_that_may_not_wait_gives_back_what_it_holds() {
    let (server, upstream, mut provider) = somewhere(&["--grace", "0s"]).await;
    let response = open(&server, "/v1/chat/completions", streams("hold")).await;
    eventually("it is held", async || upstream.asked("chat").len() == 1).await;
    provider.interrupt();
    assert!(provider.ended().success());
    let _other = Provider::start(&server, &upstream, "fast", &[]);
    upstream.released.add_permits(2);
    assert_eq!(text(&chunks(&Reading::of(response).rest().await)), "You said hold.");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_that_is_killed_is_replaced_and_nobody_notices() {
    let (server, upstream, mut provider) = somewhere(&[]).await;
    let response = open(&server, "/v1/chat/completions", streams("hold")).await;
    let task = response.headers()["windlass-task"].to_str().unwrap().to_owned();
    eventually("it is held", async || upstream.asked("chat").len() == 1).await;
    provider.kill();
    let _other = Provider::start(&server, &upstream, "fast", &[]);
    // One for the call of the dead, too, if it is not noticed yet.
    upstream.released.add_permits(2);
    assert_eq!(text(&chunks(&Reading::of(response).rest().await)), "You said hold.");
    assert_eq!(server.task(&task).await["attempt"], 2);
}

/// An inference that streams, asked for as a task; the same words as for a chat.
async fn asked(server: &Server, words: &str) -> String {
    let payload = json!({ "endpoint": "chat.completions", "body": streams(words) });
    let body = json!({ "kind": "inference", "pool": "fast", "payload": payload });
    server.post("/v1/tasks", body).await.expect(201)["id"].as_str().unwrap().to_owned()
}

async fn bound_sessions(server: &Server) -> Vec<String> {
    let all = server.get("/v1/sessions").await.expect(200)["items"].as_array().unwrap().clone();
    let bound = all.iter().filter(|session| session["node"].is_string());
    bound.map(|session| session["id"].as_str().unwrap().to_owned()).collect()
}

async fn a_provider_killed_in_the_middle_of_a_stream_is_noticed_before_its_session_ends(
    server: Server,
) {
    let (silent, healthy) = (Upstream::start().await, Upstream::start().await);
    let mut first = Provider::start(&server, &silent, "fast", &[]);
    eventually("it is bound", async || first.has_said("bound its stream")).await;
    let holder = bound_sessions(&server).await.pop().unwrap();
    let task = asked(&server, "stall once").await;
    let mut events = server.events(&format!("/v1/tasks/{task}/stream")).await;
    assert_eq!(events.expect("delta").await.data["attempt"], 1);
    assert_eq!(events.expect("delta").await.data["attempt"], 1);
    // The other one is there, and its upstream does not stall.
    healthy.hear();
    let second = Provider::start(&server, &healthy, "fast", &[]);
    eventually("it is bound", async || second.has_said("bound its stream")).await;
    first.kill();
    assert_eq!(events.expect("reset").await.data, json!({ "attempt": 1 }));
    // Not because its session ended: that is still open when the text is.
    let session = server.get(&format!("/v1/sessions/{holder}")).await.expect(200);
    assert!(session["closed_at"].is_null() && session["node"].is_null(), "{session}");
    let mut words = String::new();
    let done = loop {
        let event = events.next().await.expect("the end comes first");
        if event.name == "done" {
            break event.data;
        }
        assert_eq!((event.name.as_str(), &event.data["attempt"]), ("delta", &json!(2)));
        words += event.data["delta"]["choices"][0]["delta"]["content"].as_str().unwrap_or("");
    };
    assert_eq!((words.as_str(), &done["attempt"]), ("You said stall once.", &json!(2)));
    assert_eq!(done["release_count"], 1);
}

/// It kept its task for ten minutes, because its connection was taken for it.
async fn a_provider_that_hangs_loses_what_it_holds_although_its_stream_is_open(server: Server) {
    let (silent, healthy) = (Upstream::start().await, Upstream::start().await);
    // With all slots taken no claim of its own waits at the server and speaks for it.
    let first = Provider::start(&server, &silent, "fast", &["--slots", "1"]);
    eventually("it is bound", async || first.has_said("bound its stream")).await;
    let task = asked(&server, "hold").await;
    eventually("it is held", async || silent.asked("chat").len() == 1).await;
    first.hang();
    let _second = Provider::start(&server, &healthy, "fast", &[]);
    healthy.released.add_permits(1);
    // Long before the lease runs out.
    let ended = async || server.task(&task).await["status"] == "completed";
    eventually("another one has answered", ended).await;
    let task = server.task(&task).await;
    assert_eq!((&task["attempt"], &task["release_count"]), (&json!(2), &json!(1)));
}

async fn a_provider_binds_again_when_its_server_is_back(server: Server) {
    let upstream = Upstream::start().await;
    let provider = Provider::start(&server, &upstream, "fast", &[]);
    eventually("it is bound", async || provider.has_said("bound its stream")).await;
    let (place, address) = (server.place.clone(), server.address.to_string());
    drop(server);
    eventually("it is told", async || provider.has_said("nothing is taken until it is")).await;
    let server = Server::start_on(place, &address, &[]).await;
    let answer = chat(&server, says("hello")).await.expect(200);
    assert_eq!(answer["choices"][0]["message"]["content"], "You said hello.");
    assert_eq!(bound_sessions(&server).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_call_is_dropped_at_once() {
    let (server, upstream, provider) = somewhere(&[]).await;
    let is_told_by_the_stream = || provider.has_said("no longer ours");
    // The first heartbeat of a call may be under way just then, and be told before the stream is.
    for calls in 1..=5 {
        let task = asked(&server, "hold").await;
        eventually("it is held", async || upstream.asked("chat").len() == calls).await;
        server.post(&format!("/v1/tasks/{task}/cancel"), json!({})).await.expect(200);
        let beaten = || provider.said("the task is cancelled") == calls;
        let is_told = async || is_told_by_the_stream() || beaten();
        eventually("it is told", is_told).await;
        if is_told_by_the_stream() {
            return;
        }
    }
    panic!("five heartbeats were faster than the stream");
}

#[test]
fn a_provider_without_its_upstreams_key_does_not_start() {
    for (more, words) in [
        (&["--upstream-key-env", "NO_SUCH_KEY"][..], "NO_SUCH_KEY"),
        (&[][..], "such as http://localhost:8000/v1"),
    ] {
        let upstream = if more.is_empty() { "ftp://x" } else { "http://127.0.0.1:9/v1" };
        let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
        command.args(["provider", "--pool", "p", "--upstream", upstream, "--model", "m"]);
        let ran = command.args(more).output().unwrap();
        assert_eq!(ran.status.code(), Some(78));
        let told = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert!(told.contains(words), "{told}");
    }
}
