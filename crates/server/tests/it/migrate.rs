//! The command line as a person uses it: the real binary, real databases.

use std::path::Path;
use std::process::{Command, Output};

fn windlass(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_windlass"))
        .args(arguments)
        .current_dir(folder)
        .env_remove("WINDLASS_DATABASE")
        .output()
        .expect("the binary runs")
}

fn told(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn migrate_goes_up_tells_where_it_stands_and_goes_down() {
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        let output = windlass(folder.path(), arguments);
        assert!(output.status.success(), "{}", told(&output.stderr));
        told(&output.stdout)
    };
    let status = run(&["migrate", "status"]);
    assert!(status.starts_with("there is no database yet: windlass.db is not there"), "{status}");
    assert!(status.contains("missing: run `windlass migrate up`"), "{status}");
    let status: serde_json::Value =
        serde_json::from_str(&run(&["--json", "migrate", "status"])).unwrap();
    assert_eq!((&status["applied"], &status["missing"][0]), (&serde_json::json!([]), &1.into()));
    let refused = windlass(folder.path(), &["migrate", "down", "--to", "0", "--yes"]);
    assert_eq!(refused.status.code(), Some(78));
    assert!(told(&refused.stderr).contains("there is no database yet"));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "asking makes nothing");
    assert!(run(&["migrate", "up"]).starts_with("applied 1\n"));
    assert!(run(&["migrate", "up"]).contains("nothing to do"));
    assert!(run(&["migrate", "status"]).contains("task"));
    let status: serde_json::Value =
        serde_json::from_str(&run(&["--json", "migrate", "status"])).unwrap();
    assert_eq!(status["applied"][0]["version"], 1);
    assert!(run(&["migrate", "down", "--to", "0", "--yes"]).ends_with("removed 1\n"));
    assert!(folder.path().join("windlass.db").exists());
}

#[test]
fn going_down_needs_a_yes() {
    let folder = tempfile::tempdir().unwrap();
    let output = windlass(folder.path(), &["migrate", "down", "--to", "0"]);
    assert_eq!(output.status.code(), Some(78));
    assert!(told(&output.stderr).contains("--yes"));
}

#[test]
fn each_kind_of_trouble_has_its_exit_code_and_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("notes.txt"), "not a database, but a text\n".repeat(50))
        .unwrap();
    for (database, code, words) in [
        ("mysql://root:secret@x/y", 78, "sqlite:windlass.db"),
        ("sqlite:notes.txt", 78, "notes.txt"),
        ("sqlite:missing/windlass.db", 78, "missing"),
        ("postgres://nobody@127.0.0.1:1/none", 69, "cannot be reached"),
    ] {
        let output = windlass(folder.path(), &["migrate", "status", "--database", database]);
        let words_told = told(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{database}: {words_told}");
        assert!(words_told.contains(words), "{database}: {words_told}");
        assert!(!words_told.contains("secret"), "{words_told}");
    }
    let output = windlass(folder.path(), &["migrate"]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn errors_are_json_when_json_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let output = windlass(folder.path(), &["--json", "migrate", "up", "--database", "x:"]);
    let error: serde_json::Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!(error["code"], "configuration");
    // Also what the parser refuses, which was text.
    for (arguments, words) in [
        (&["migrate", "sideways", "--json"][..], "unrecognized subcommand 'sideways'"),
        (&["--json", "migrate"], "a command is missing"),
        (&["--json", "task", "show"], "required arguments were not provided: <ID>"),
        (&["task", "list", "--limit", "x", "--json"], "invalid value 'x'"),
    ] {
        let output = windlass(folder.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let error: serde_json::Value = serde_json::from_slice(&output.stderr).unwrap();
        let detail = error["detail"].as_str().unwrap();
        assert_eq!((&error["code"], &error["exit_code"]), (&"usage".into(), &2.into()));
        assert!(detail.contains(words), "{detail}");
    }
    let output = windlass(folder.path(), &["worker", "--slots", "0", "--", "true", "--json"]);
    assert!(told(&output.stderr).starts_with("error: "), "the command's own argument");
}
