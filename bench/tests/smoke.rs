//! Every part of the benchmark runs, at its smallest size, on both databases.

use std::process::Command;

fn smoke(engine: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_store-bench"))
        .args(["--smoke", "--engine", engine])
        .output()
        .expect("the benchmark starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn every_part_runs_on_sqlite() {
    let report = smoke("sqlite");
    for title in ["Physical references", "Hot operations", "Group commit", "Cost of a claim"] {
        assert!(report.contains(title), "{title} is missing:\n{report}");
    }
    for title in ["Bytes on disk", "Time to the first delta", "Delay of each delta", "Waiters"] {
        assert!(report.contains(title), "{title} is missing:\n{report}");
    }
}

#[test]
fn every_part_runs_on_postgres() {
    let report = smoke("postgres");
    for title in [
        "Hot operations",
        "Cost of a claim",
        "Drain under a snapshot",
        "Bytes on disk",
        "Time to the first delta",
        "Delay of each delta",
        "Waiters",
    ] {
        assert!(report.contains(title), "{title} is missing:\n{report}");
    }
}
