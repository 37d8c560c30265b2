//! `windlass step`, `windlass signal` and `windlass task steps` against a real server; and a
//! command worker whose command works with steps and waits.

use super::server::{Server, eventually, text};
use super::step::{in_doubt, on, running};
use serde_json::{Value as Json, json};
use std::process::{Child, Command, Output, Stdio};

super::facts!(
    a_person_sees_what_is_in_doubt_and_decides,
    a_person_sends_a_signal,
    mistakes_are_told_with_their_exit_codes,
    a_command_records_steps_parks_and_goes_on,
);

pub fn windlass(server: &Server, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    command.args(arguments).env("WINDLASS_SERVER", server.url("")).stdin(Stdio::null());
    command.output().expect("the binary runs")
}

#[track_caller]
pub fn ok(server: &Server, arguments: &[&str]) -> String {
    let output = windlass(server, arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
pub fn told(server: &Server, arguments: &[&str], exit: i32) -> String {
    let output = windlass(server, arguments);
    assert_eq!(output.status.code(), Some(exit), "{arguments:?}: {output:?}");
    String::from_utf8(output.stderr).unwrap()
}

async fn a_person_sees_what_is_in_doubt_and_decides(server: Server) {
    let (task, step, _) = in_doubt(&server).await;
    let listed = ok(&server, &["step", "list", "--in-doubt"]);
    assert!(listed.contains(&step) && listed.contains(&task), "{listed}");
    assert!(listed.contains("{\"order\":7}"), "{listed}");
    let result = "{\"paid\": true}";
    let flags = ["step", "resolve", &step, "--record-result", result, "--reason", "seen", "--json"];
    let decided: Json = serde_json::from_str(&ok(&server, &flags)).unwrap();
    assert_eq!((&decided["status"], &decided["result"]), (&json!("done"), &json!({"paid": true})));
    assert_eq!(server.task(&task).await["status"], "pending");
    let steps = ok(&server, &["task", "steps", &task]);
    assert!(steps.contains("charge") && steps.contains("{\"paid\":true}"), "{steps}");
    let of_task = ok(&server, &["task", "steps", &task, "--json"]);
    assert_eq!(ok(&server, &["step", "list", &task, "--json"]), of_task);
    let (_, step, _) = in_doubt(&server).await;
    assert!(ok(&server, &["step", "resolve", &step, "--allow-rerun"]).contains("allowed"));
    let (_, step, _) = in_doubt(&server).await;
    assert!(ok(&server, &["step", "resolve", &step, "--fail"]).contains("rejected"));
    let none = windlass(&server, &["step", "list", "--in-doubt"]);
    assert!(String::from_utf8_lossy(&none.stderr).contains("no step is in doubt"), "{none:?}");
}

async fn a_person_sends_a_signal(server: Server) {
    let (task, lease, _) = running(&server).await;
    on(&server, &task, "park", &lease, json!({ "until": {"signal": "go"} })).await.expect(200);
    let sent = ok(&server, &["signal", "send", "go", "--task", &task, "--payload", "{\"n\": 1}"]);
    assert!(sent.contains(&format!("taken by {task}")), "{sent}");
    assert_eq!(server.task(&task).await["status"], "pending");
    let flags = ["signal", "send", "paid", "--key", "order-7", "--json"];
    let kept: Json = serde_json::from_str(&ok(&server, &flags)).unwrap();
    assert_eq!((&kept["key"], &kept["taken_by"]), (&json!("order-7"), &json!(null)));
    let shown = ok(&server, &["signal", "show", &text(&kept["id"])]);
    assert!(shown.contains("kept until a task waits"), "{shown}");
}

async fn mistakes_are_told_with_their_exit_codes(server: Server) {
    let (task, lease, _) = running(&server).await;
    let body = json!({ "name": "charge", "idempotent": false });
    let begun = on(&server, &task, "steps", &lease, body).await.expect(200);
    let step = text(&begun["id"]);
    let id = "11111111-2222-4333-8444-555555555555";
    for (arguments, exit, words) in [
        (vec!["step", "resolve", &step, "--allow-rerun"], 1, "illegal_step"),
        (vec!["step", "resolve", id, "--fail"], 1, "not_found"),
        (vec!["step", "resolve", "x", "--fail"], 2, "is no id of a step"),
        (vec!["step", "resolve", &step], 2, "--allow-rerun"),
        (vec!["step", "resolve", &step, "--fail", "--allow-rerun"], 2, "cannot be used with"),
        (vec!["step", "resolve", &step, "--record-result", "{a}"], 2, "line 1, column 2"),
        (vec!["step", "list"], 2, "windlass step list TASK"),
        (vec!["step", "list"], 2, "--in-doubt"),
        (vec!["step", "list", id], 1, "not_found"),
        (vec!["step", "list", id, "--in-doubt"], 2, "cannot be used with"),
        (vec!["signal", "send", "go"], 2, "--task"),
        (vec!["signal", "send", "go", "--task", "x"], 2, "is no id of a task"),
        (vec!["signal", "send", "go", "--task", id], 1, "not_found"),
        (vec!["signal", "send", "go", "--task", id, "--key", "k"], 2, "cannot be used with"),
        (vec!["task", "steps", id], 1, "not_found"),
    ] {
        let said = told(&server, &arguments, exit);
        assert!(said.contains(words), "{arguments:?}: {said}");
    }
}

/// A worker that ends with the test.
struct Worker(Child);

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Records a step unless it is in the input, parks until a signal comes, then answers with both.
const AGENT: &str = r#"
input=$(cat)
post() {
  curl -sf "$WINDLASS_SERVER/v1/$1" -H 'content-type: application/json' -d "$2"
}
lease="\"lease_id\": \"$WINDLASS_LEASE_ID\""
case $input in
  *'"name":"look"'*) ;;
  *) post tasks/$WINDLASS_TASK_ID/steps/record \
       "{$lease, \"name\": \"look\", \"result\": \"seen\", \"checkpoint\": {\"at\": 1}}" >&2 ;;
esac
waited=$(post tasks/$WINDLASS_TASK_ID/park "{$lease, \"until\": {\"signal\": \"go\"}}")
case $waited in *'"status":"parked"'*) echo 'parked; good-bye' >&2; exit 7 ;; esac
printf '{"checkpoint": %s, "attempt": %s}' "$WINDLASS_CHECKPOINT" "$WINDLASS_ATTEMPT"
"#;

async fn a_command_records_steps_parks_and_goes_on(server: Server) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    command.args(["worker", "--queue", "agents", "--", "sh", "-c", AGENT]);
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let told = std::fs::File::create(&log).unwrap();
    command.env("WINDLASS_SERVER", server.url("")).stdin(Stdio::null()).stderr(told);
    let _worker = Worker(command.spawn().unwrap());
    let read = || std::fs::read_to_string(&log).unwrap();
    let id = server.submit("agents").await;
    eventually("the command parks its task", || async {
        server.task(&id).await["status"] == "waiting"
    })
    .await;
    // Its command ends with an error after that, which is no failure of the task.
    eventually("the worker says that the task waits", || async {
        read().contains("the task waits; what its command said is not needed")
    })
    .await;
    assert!(!read().contains("failed"), "{}", read());
    ok(&server, &["signal", "send", "go", "--task", &id]);
    let done = server.get(&format!("/v1/tasks/{id}/wait?timeout_ms=60000")).await.expect(200);
    assert_eq!(done["status"], "completed", "{done}");
    assert_eq!(done["result"], json!({ "checkpoint": {"at": 1}, "attempt": 2 }));
    eventually("the worker says what came of it", || async { read().contains("completed") }).await;
    // Its exit code after parking was no failure.
    let failures = server.get(&format!("/v1/tasks/{id}/failures")).await.expect(200);
    assert_eq!((&failures["items"], &done["retry_count"]), (&json!([]), &json!(0)));
    let events = ["submit", "claim", "wait", "wake", "claim", "complete"];
    assert_eq!(server.history(&id).await, events);
}
