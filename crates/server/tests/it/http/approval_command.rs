//! `windlass approval …` against a real server: what a person sees, and decides.

use super::approval::{ask, running};
use super::server::{Server, text};
use serde_json::{Value as Json, json};
use std::io::Write;
use std::process::{Command, Output, Stdio};

super::facts!(
    a_person_sees_exactly_what_would_run_and_approves_it,
    a_person_denies_by_a_token_from_standard_input,
    mistakes_are_told_with_their_exit_codes,
);

fn run(server: &Server, arguments: &[&str], input: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    command.arg("approval").args(arguments).env("WINDLASS_SERVER", server.url(""));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary runs");
    let mut stdin = child.stdin.take().unwrap();
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    child.wait_with_output().unwrap()
}

#[track_caller]
fn ok(server: &Server, arguments: &[&str], input: &str) -> String {
    let output = run(server, arguments, input);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

async fn parked(server: &Server, arguments: Json, approvers: i64) -> (String, Json) {
    let (task, lease) = running(server).await;
    let body = json!({
        "lease_id": lease, "gate": "pay", "action": "transfer", "arguments": arguments,
        "approvers": approvers, "expires_ms": 3_600_000,
    });
    (task.clone(), ask(server, &task, body).await.expect(200)["approval"].clone())
}

async fn a_person_sees_exactly_what_would_run_and_approves_it(server: Server) {
    let nasty = json!({ "to": "\u{202e}eve", "note": "\u{1b}[2J" });
    let (task, approval) = parked(&server, nasty, 1).await;
    let id = text(&approval["id"]);
    let list = ok(&server, &["list"], "");
    assert!(list.contains(&id) && list.contains("transfer"), "{list}");
    let shown = ok(&server, &["show", &id], "");
    let arguments = r#"arguments     {"note":"\u001b[2J","to":"\u202eeve"}"#;
    for line in ["action        transfer", arguments, "voices        0 of 1"] {
        assert!(shown.contains(line), "{shown}");
    }
    let digest = text(&approval["digest"]);
    assert!(shown.contains(&digest) && shown.contains("expires_at"), "{shown}");
    let flags = ["approve", &id, "--digest", &digest, "--comment", "checked", "--json"];
    let decided: Json = serde_json::from_str(&ok(&server, &flags, "")).unwrap();
    assert_eq!(
        (&decided["status"], &decided["votes"][0]["comment"]),
        (&json!("approved"), &json!("checked"))
    );
    assert_eq!(server.task(&task).await["status"], "pending");
    assert_eq!(ok(&server, &["list"], ""), "");
    let all = ok(&server, &["list", "--all-states", "--task", &task], "");
    assert!(all.contains("approved"), "{all}");
    let shown = ok(&server, &["show", &id], "");
    assert!(shown.contains("api  approve (by key): checked"), "{shown}");
}

async fn a_person_denies_by_a_token_from_standard_input(server: Server) {
    let (task, approval) = parked(&server, json!(1), 1).await;
    let id = text(&approval["id"]);
    let token = ok(&server, &["token", &id, "--approver", "ann", "--expires", "10m"], "");
    assert!(token.starts_with("wla_"), "{token}");
    let denied = ok(&server, &["deny", "--token", "-", "--comment", "no"], &token);
    assert!(denied.contains("status        denied"), "{denied}");
    assert_eq!(server.task(&task).await["error"]["message"], "approval denied: no");
}

async fn mistakes_are_told_with_their_exit_codes(server: Server) {
    let (_, approval) = parked(&server, json!(1), 2).await;
    let id = text(&approval["id"]);
    let wrong = "0".repeat(64);
    ok(&server, &["approve", &id], "");
    for (arguments, code, exit) in [
        (vec!["show", "nonsense"], "no id of an approval", 2),
        (vec!["approve"], "required", 2),
        (vec!["list", "--status", "maybe"], "unknown_value", 1),
        (vec!["show", "00000000-0000-4000-8000-000000000000"], "not_found", 1),
        (vec!["approve", &id], "already_voted", 1),
        (vec!["approve", &id, "--digest", &wrong], "digest_mismatch", 1),
        (vec!["approve", "--token", "wla_wrong"], "not_found", 1),
        (vec!["token", &id, "--approver", "\u{202e}"], "bad_character", 1),
    ] {
        let output = run(&server, &arguments, "");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(exit), "{arguments:?}: {told}");
        assert!(told.contains(code), "{arguments:?}: {told}");
    }
}
