//! Facts about the commands that talk to a server.

use crate::fake::Fake;
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    command.args(arguments).stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("WINDLASS_") {
            command.env_remove(name);
        }
    }
    command
}

fn run(fake: &Fake, arguments: &[&str]) -> Output {
    command(arguments).env("WINDLASS_SERVER", &fake.url).output().expect("the binary runs")
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn told(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn json_of(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(bytes)))
}

#[test]
fn submit_sends_what_was_asked_for_and_prints_the_id() {
    let fake = Fake::start();
    let output = run(
        &fake,
        &[
            "task",
            "submit",
            "--queue",
            "mail",
            "{\"to\": \"anna\"}",
            "--tag",
            "team:billing",
            "--tag",
            "url:http://x",
            "--priority",
            "-5",
            "--delay",
            "10s",
            "--deadline",
            "1h",
            "--name",
            "letter",
            "--max-retries",
            "2",
            "--backoff",
            "{\"base_ms\": 5, \"on_exhausted\": \"failed\"}",
            "--correlation-id",
            "c",
        ],
    );
    assert!(output.status.success(), "{}", told(&output));
    let (_, path, body) = fake.world().requests[0].clone();
    assert_eq!(path, "/v1/tasks");
    assert_eq!(out(&output).trim(), body["id"].as_str().unwrap());
    let expected = json!({
        "id": body["id"], "queue": "mail", "payload": { "to": "anna" }, "name": "letter",
        "tags": { "team": "billing", "url": "http://x" }, "priority": -5, "delay_ms": 10_000,
        "deadline_ms": 3_600_000, "max_retries": 2, "correlation_id": "c",
        "backoff": { "base_ms": 5, "on_exhausted": "failed" },
    });
    assert_eq!(body, expected);
}

#[test]
fn a_submit_that_is_repeated_makes_one_task() {
    let fake = Fake::start();
    fake.world().busy = 2;
    let output = run(&fake, &["task", "submit", "-q", "mail", "1"]);
    assert!(output.status.success(), "{}", told(&output));
    let world = fake.world();
    let bodies: Vec<_> = world.requests.iter().map(|(_, _, body)| body).collect();
    assert_eq!(bodies.len(), 3);
    assert!(bodies.iter().all(|body| body["id"] == bodies[0]["id"]));
    assert_eq!(world.tasks.len(), 1);
}

#[test]
fn a_payload_comes_from_the_argument_a_file_or_standard_input() {
    let fake = Fake::start();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("letter.json"), "{\"a\": [1]}\n").unwrap();
    let submit = |payload: &[&str], input: &str| {
        let mut child = command(&["task", "submit", "-q", "q", "--server", &fake.url])
            .args(payload)
            .current_dir(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success());
        fake.world().requests.last().unwrap().2["payload"].clone()
    };
    assert_eq!(submit(&["@letter.json"], ""), json!({ "a": [1] }));
    assert_eq!(submit(&["-"], "[true]"), json!([true]));
    assert_eq!(submit(&["-", "--text"], "two\nlines"), json!("two\nlines"));
    assert_eq!(submit(&[], "not read"), Value::Null);
    let output = run(&fake, &["task", "submit", "-q", "q", "{oops}"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(told(&output).contains("line 1, column 2"), "{}", told(&output));
}

#[test]
fn the_exit_code_of_a_wait_tells_how_the_task_ended() {
    let fake = Fake::start();
    for (status, exit) in
        [("completed", 0), ("failed", 3), ("cancelled", 4), ("poisoned", 6), ("stuck", 6)]
    {
        let error = json!({ "code": "EXIT_1", "message": "broke" });
        let error = if exit == 3 { error } else { Value::Null };
        let id = fake.put(json!({ "status": status, "result": { "a": 1 }, "error": error }));
        let output = run(&fake, &["task", "wait", &id]);
        assert_eq!(output.status.code(), Some(exit), "{status}: {}", told(&output));
        match exit {
            0 => assert_eq!(json_of(&output.stdout), json!({ "a": 1 })),
            3 => assert_eq!(out(&output).trim(), "failed: broke [EXIT_1]"),
            _ => assert_eq!(out(&output).trim(), status),
        }
        let output = run(&fake, &["--json", "task", "wait", &id]);
        assert_eq!(json_of(&output.stdout)["status"], status);
    }
    let id = fake.put(json!({ "status": "running" }));
    let output = run(&fake, &["task", "wait", &id, "--timeout", "50ms"]);
    assert_eq!(output.status.code(), Some(5));
    assert!(told(&output).contains("it is running"), "{}", told(&output));
}

#[test]
fn submit_with_wait_prints_the_result() {
    let fake = Fake::start();
    let id = fake.put(json!({ "status": "completed", "result": 42 }));
    let output = run(&fake, &["task", "submit", "-q", "q", "--id", &id, "--wait"]);
    assert_eq!((out(&output).trim(), output.status.code()), ("42", Some(0)));
    assert!(told(&output).contains("it existed already"), "{}", told(&output));
}

#[test]
fn watch_prints_every_transition_once_until_the_end() {
    let fake = Fake::start();
    let id = fake.put(json!({ "status": "running" }));
    let row = |seq: i64, from: Value, to: &str, event: &str| {
        json!({
            "task_id": id, "seq": seq, "from_status": from, "to_status": to, "event": event,
            "actor": "worker", "reason": null, "metadata": {}, "at": "2026-01-31T12:00:00.000Z",
        })
    };
    fake.world().history = vec![
        row(1, Value::Null, "pending", "submit"),
        row(2, json!("pending"), "running", "claim"),
    ];
    let mut child = command(&["task", "watch", &id, "--server", &fake.url])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    fake.until("a look at the task", |world| {
        let path = format!("/v1/tasks/{id}");
        world.requests.iter().any(|(_, asked, _)| *asked == path).then_some(())
    });
    {
        let mut world = fake.world();
        world.history.push(row(3, json!("running"), "completed", "complete"));
        let task = world.tasks.get_mut(&id).unwrap();
        task["status"] = json!("completed");
        task["result"] = json!("done");
    }
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let mut text = String::new();
    std::io::Read::read_to_string(&mut child.stdout.take().unwrap(), &mut text).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 4, "{text}");
    assert!(lines[0].contains("– → pending") && lines[2].contains("running → completed"), "{text}");
    assert_eq!(lines[3], "\"done\"");
}

#[test]
fn a_list_is_a_table_whose_text_cannot_deceive() {
    let fake = Fake::start();
    let output = run(&fake, &["task", "list"]);
    assert!(out(&output).is_empty() && told(&output).contains("windlass task submit"));
    fake.put(json!({ "name": "evil\u{1b}[2J\u{202e}txt", "queue": "mail", "status": "failed",
        "error": { "code": "EXIT_1", "message": "line\nbreak" } }));
    let output = run(&fake, &["task", "list", "--status", "failed", "--status", "retry"]);
    let text = out(&output);
    assert_eq!(text.lines().count(), 2, "{text}");
    assert!(text.starts_with("ID "), "{text}");
    assert!(!text.contains(['\u{1b}', '\u{202e}']), "{text:?}");
    assert!(text.contains("evil\\u{1b}[2J\\u{202e}txt") && text.contains("line\\nbreak"), "{text}");
    let asked = fake.world().requests.last().unwrap().1.clone();
    assert!(asked.contains("status=failed%2Cretry") && asked.contains("limit=50"), "{asked}");
    let list = json_of(&run(&fake, &["task", "list", "--json"]).stdout);
    assert_eq!(list["items"][0]["name"], "evil\u{1b}[2J\u{202e}txt");
}

#[test]
fn show_prints_what_is_set_and_cancel_the_new_state() {
    let fake = Fake::start();
    let id = fake.put(json!({ "payload": { "to": "anna" }, "status": "running" }));
    let text = out(&run(&fake, &["task", "show", &id]));
    assert!(text.contains("status            running"), "{text}");
    assert!(text.contains("\"to\": \"anna\"") && !text.contains("result"), "{text}");
    let output = run(&fake, &["task", "cancel", &id, "--reason", "enough"]);
    assert_eq!(out(&output).trim(), format!("{id}  cancelled"));
    assert_eq!(fake.world().requests.last().unwrap().2, json!({ "reason": "enough" }));
    let output = run(&fake, &["task", "show", "../sessions"]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_refusal_is_printed_with_every_wrong_field_and_advice() {
    let fake = Fake::start();
    let body = json!({
        "type": "about:blank", "title": "Unprocessable", "status": 422,
        "code": "validation_failed", "detail": "two fields are wrong",
        "errors": [
            { "pointer": "/queue", "code": "required", "detail": "must not be empty" },
            { "pointer": "/tags", "code": "too_long", "detail": "has 65 entries" },
        ],
    });
    fake.world().problem = Some((422, body));
    let output = run(&fake, &["task", "submit", "-q", "q"]);
    assert_eq!(output.status.code(), Some(1));
    let expected = "windlass: two fields are wrong [validation_failed]\n  \
        /queue: must not be empty [required]\n  /tags: has 65 entries [too_long]\n";
    assert_eq!(told(&output), expected);
    let error = json_of(&run(&fake, &["--json", "task", "submit", "-q", "q"]).stderr);
    assert_eq!(error["errors"][1]["pointer"], "/tags");
    assert_eq!(error["exit_code"], 1);
}

#[test]
fn each_refusal_has_its_exit_code_and_advice() {
    let fake = Fake::start();
    for (status, code, exit, words) in [
        (401, "unauthenticated", 77, "WINDLASS_KEY"),
        (403, "forbidden", 77, "may do this"),
        (404, "not_found", 1, "task list"),
        (429, "queue_full", 75, "more workers"),
        (507, "storage_full", 74, "storage_full"),
    ] {
        let body = json!({ "status": status, "code": code, "detail": "no" });
        fake.world().problem = Some((status, body));
        let output = run(&fake, &["task", "list"]);
        assert_eq!(output.status.code(), Some(exit), "{code}");
        assert!(told(&output).contains(words), "{}", told(&output));
    }
}

#[test]
fn an_absent_server_is_told_with_what_to_do() {
    // A port that was free a moment ago may be another test's by now; nobody listens on this one.
    let url = "http://127.0.0.1:1";
    for arguments in [&["task", "list"][..], &["status"], &["events"], &["session", "list"]] {
        let output = command(arguments).args(["--server", url]).output().unwrap();
        assert_eq!(output.status.code(), Some(69), "{arguments:?}");
        let told = told(&output);
        assert!(told.contains("windlass serve") && told.contains("[unreachable]"), "{told}");
    }
}

#[test]
fn something_that_is_no_windlass_is_told_as_such() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            let mut request = [0; 4096];
            let _ = std::io::Read::read(&mut connection, &mut request);
            let page = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\n<htm>";
            let _ = connection.write_all(page.as_bytes());
        }
    });
    let output = command(&["task", "list", "--server", &url]).output().unwrap();
    assert_eq!(output.status.code(), Some(69));
    assert!(told(&output).contains("no Windlass server"), "{}", told(&output));
}

#[test]
fn the_key_is_sent_and_never_printed() {
    let fake = Fake::start();
    fake.world().key = Some("a-secret-key-of-ours".into());
    let mut list = command(&["task", "list", "--server", &fake.url]);
    let output = list.env("WINDLASS_KEY", "a-secret-key-of-ours").output().unwrap();
    assert!(output.status.success(), "{}", told(&output));
    let output = command(&["config"]).env("WINDLASS_KEY", "a-secret-key-of-ours").output().unwrap();
    assert!(out(&output).contains("***") && !out(&output).contains("a-secret"));
}

#[test]
fn events_go_on_behind_the_last_one_when_the_connection_breaks() {
    let fake = Fake::start();
    let event = |id: i64| {
        let data = json!({
            "task_id": "t", "queue": "q", "from_status": "pending", "to_status": "running",
            "event": "claim", "at": "2026-01-31T12:00:00.000Z", "seq": id,
        });
        format!("id: {id}\nevent: claim\ndata: {data}\n\n")
    };
    // The second connection breaks in the middle of an event.
    let cut = format!("{}id: 3\ndata: {{", event(2));
    fake.world().streams =
        [format!(": hello\n\n{}", event(1)), cut, format!("{}{}", event(3), event(4))].into();
    let output = run(&fake, &["--json", "events", "--status", "running", "--limit", "4"]);
    assert!(output.status.success(), "{}", told(&output));
    let seen: Vec<Value> =
        out(&output).lines().map(|line| json_of(line.as_bytes())["data"]["seq"].clone()).collect();
    assert_eq!(seen, [1, 2, 3, 4]);
    let world = fake.world();
    let resumed: Vec<_> =
        world.headers.iter().map(|headers| headers.get("last-event-id")).collect();
    assert_eq!(resumed, [None, Some(&"1".parse().unwrap()), Some(&"2".parse().unwrap())]);
    assert!(world.requests[0].1.contains("to_status=running"));
}

#[test]
fn status_asks_the_server_and_tells_whether_it_is_ready() {
    let fake = Fake::start();
    let output = run(&fake, &["status"]);
    assert!(output.status.success(), "{}", told(&output));
    assert!(out(&output).contains("ready         yes"), "{}", out(&output));
    assert!(out(&output).contains("failed  3") && !out(&output).contains("pending"));
    let status = json_of(&run(&fake, &["--json", "status"]).stdout);
    assert_eq!(status["ready"], true);
}

fn windlass_in(folder: &Path, arguments: &[&str]) -> Output {
    command(arguments).current_dir(folder).output().unwrap()
}

#[test]
fn config_tells_where_each_value_came_from() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("windlass.toml"), "\nlisten = \"127.0.0.1:9\"\n").unwrap();
    let text = out(&windlass_in(folder.path(), &["config"]));
    assert!(text.contains("127.0.0.1:9") && text.contains("windlass.toml, line 2"), "{text}");
    let json = json_of(&windlass_in(folder.path(), &["config", "--json"]).stdout);
    assert_eq!(json["settings"]["listen"]["source"], "windlass.toml, line 2");
    assert_eq!(json["settings"]["poll_ms"]["source"], "default");
    std::fs::write(folder.path().join("windlass.toml"), "lissen = \"x\"\n").unwrap();
    let output = windlass_in(folder.path(), &["config"]);
    assert_eq!(output.status.code(), Some(78));
    assert!(told(&output).contains("line 1: unknown key `lissen`; did you mean `listen`?"));
}

#[test]
fn a_server_beyond_loopback_needs_keys() {
    let folder = tempfile::tempdir().unwrap();
    let output = windlass_in(folder.path(), &["serve", "--listen", "0.0.0.0:0"]);
    assert_eq!(output.status.code(), Some(78));
    assert!(told(&output).contains("[key_required]"), "{}", told(&output));
    assert!(!folder.path().join("windlass.db").exists());
}

#[test]
fn version_and_completions_are_printed() {
    let folder = tempfile::tempdir().unwrap();
    let version = env!("CARGO_PKG_VERSION");
    for arguments in [&["version"][..], &["--version"]] {
        assert_eq!(out(&windlass_in(folder.path(), arguments)), format!("windlass {version}\n"));
    }
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let text = out(&windlass_in(folder.path(), &["completions", shell]));
        assert!(text.contains("windlass"), "{shell}");
    }
}

#[test]
fn a_reader_that_goes_away_ends_the_program_quietly() {
    let fake = Fake::start();
    for _ in 0..500 {
        fake.put(json!({ "payload": "x".repeat(2_000), "status": "pending" }));
    }
    let binary = env!("CARGO_BIN_EXE_windlass");
    let script = format!("{binary} task list --all --json --server {} | head -n 1", fake.url);
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    assert_eq!(out(&output).lines().count(), 1);
    assert_eq!(told(&output), "");
}
