//! The README's quickstart, line by line as it stands there: a real server, the real command, curl.

use crate::service::{Service, binary};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

const README: &str = include_str!("../../../../README.md");

/// The commands of a section's blocks, each with the lines that continue it.
fn commands(section: &str) -> Vec<String> {
    let begin = README.find(&format!("## {section}\n")).expect("the section");
    let text = &README[begin + 3..];
    let text = &text[..text.find("\n## ").unwrap_or(text.len())];
    let mut commands: Vec<String> = Vec::new();
    for block in text.split("```console\n").skip(1) {
        let block = block.split("```").next().unwrap_or_default();
        for line in block.lines() {
            match (line.strip_prefix("$ "), commands.last_mut()) {
                (Some(command), _) => commands.push(command.to_owned()),
                (None, Some(last)) => *last += &format!("\n{line}"),
                (None, None) => panic!("a block begins with {line}"),
            }
        }
    }
    commands
}

#[test]
fn the_quickstart_does_what_it_says() {
    let mut lines = commands("Start in a minute").into_iter();
    let built = lines.next().unwrap();
    assert!(built.starts_with("cargo build --release"), "{built}");
    assert_eq!(lines.next().as_deref(), Some("windlass serve"));
    // The rest runs beside the server; the last line needs a compiler, and has a test of its own.
    let mut lines: Vec<String> = lines.collect();
    assert_eq!(lines.pop().as_deref(), Some("cargo run --example worker"));
    let folder = tempfile::tempdir().unwrap();
    let service = Service::start(folder.path(), "127.0.0.1:0");
    let address = service.url.trim_start_matches("http://");
    // Somebody else may have the port that the README names.
    let script = lines.join("\n").replace("localhost:7070", address);
    // Nobody waits for the worker; it ends with the script.
    let script = format!("set -eu\ntrap 'kill $!' EXIT\n{script}\n");
    let folder_of_binary = Path::new(binary().get_program()).parent().unwrap().to_owned();
    let path = format!("{}:{}", folder_of_binary.display(), std::env::var("PATH").unwrap());
    let mut shell = Command::new("sh");
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("WINDLASS_") {
            shell.env_remove(name);
        }
    }
    shell.env("PATH", path).env("WINDLASS_SERVER", &service.url).current_dir(folder.path());
    let output = shell.args(["-c", &script]).output().expect("a shell and curl");
    let told = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}\n{told}\n{errors}");
    // The last answer is the list of what was done: both tasks that the commands submitted.
    let done = told.trim_end().lines().last().unwrap_or_default();
    let done = done.find("{\"items\"").map_or(done, |at| &done[at..]);
    let done: Value = serde_json::from_str(done).unwrap_or_else(|e| panic!("{e}: {told}"));
    let results: Vec<&Value> =
        done["items"].as_array().unwrap().iter().map(|task| &task["result"]["sent"]).collect();
    assert!(results.len() >= 2 && results.iter().all(|sent| **sent == true), "{done}");
}
