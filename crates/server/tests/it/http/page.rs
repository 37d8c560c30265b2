//! A page of the docs as a script: its examples run in their order, against a real server.

use super::server::Server;

/// What the examples of a page have printed.
pub struct Ran {
    /// On standard output.
    pub shown: String,
    /// On standard error, with each command.
    pub told: String,
}

/// Runs all blocks in `sh` of a page as one script; each command must succeed.
pub async fn run(page: &str, server: &Server) -> Ran {
    let mut script = "set -eu -o pipefail\n".to_owned();
    for block in page.split("```sh\n").skip(1) {
        script.push_str(block.split("```").next().unwrap());
    }
    let script = script.replace("http://127.0.0.1:7070", &server.url(""));
    let folder = tempfile::tempdir().unwrap();
    let binary = std::path::Path::new(env!("CARGO_BIN_EXE_windlass")).parent().unwrap();
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap());
    let mut shell = tokio::process::Command::new("bash");
    shell.env("PATH", path).env("WINDLASS_SERVER", server.url(""));
    shell.args(["-x", "-c", &script]).current_dir(folder.path());
    let output = shell.output().await.unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let ran = Ran { shown: text(&output.stdout), told: text(&output.stderr) };
    assert!(output.status.success(), "{}", ran.told);
    ran
}
