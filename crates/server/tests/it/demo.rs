//! Facts about `windlass demo`: what it leaves behind when nobody sees it to its end.

use crate::service::binary;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Lines};
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};
use std::time::{Duration, Instant};

/// A demo with everybody at work.
struct AtWork {
    demo: Child,
    lines: Lines<BufReader<ChildStdout>>,
    /// What stands in the arguments of its processes.
    marks: Vec<String>,
}

fn at_work(folder: &Path, arguments: &[&str]) -> AtWork {
    let mut command = binary();
    command.arg("demo").args(arguments).env("TMPDIR", folder).stdout(Stdio::piped());
    let mut demo = command.spawn().unwrap();
    let mut lines = BufReader::new(demo.stdout.take().unwrap()).lines();
    let mut marks = vec![folder.to_str().unwrap().to_owned()];
    for _ in 0..3 {
        let line = lines.next().unwrap().unwrap();
        // The server's, by which its workers can be told from those of other demos.
        let address = line.split_whitespace().find(|word| word.starts_with("127.0.0.1:"));
        marks.extend(address.map(str::to_owned));
    }
    AtWork { demo, lines, marks }
}

/// Whether there is a process with one of these in its arguments.
fn is_there(marks: &[String]) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let mut commands = processes.filter_map(|p| std::fs::read(p.path().join("cmdline")).ok());
    commands.any(|command| {
        let command = String::from_utf8_lossy(&command);
        marks.iter().any(|mark| command.contains(mark))
    })
}

fn leaves_nothing(folder: &Path, marks: &[String]) {
    assert_eq!(std::fs::read_dir(folder).unwrap().count(), 0, "a file is left");
    // Killed, and gone a moment later.
    let begun = Instant::now();
    while is_there(marks) {
        assert!(begun.elapsed() < Duration::from_secs(10), "a process is left");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Its server and workers used to run on for ever.
#[test]
fn a_demo_that_is_told_to_end_leaves_nothing_behind() {
    for (arguments, signal, code) in [
        (&[][..], Signal::TERM, 143),
        (&[][..], Signal::INT, 130),
        (&["--agent"][..], Signal::TERM, 143),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let AtWork { mut demo, lines: _lines, marks } = at_work(folder.path(), arguments);
        assert!(is_there(&marks));
        kill_process(Pid::from_raw(demo.id().cast_signed()).unwrap(), signal).unwrap();
        assert_eq!(demo.wait().unwrap().code(), Some(code));
        leaves_nothing(folder.path(), &marks);
    }
}

#[test]
fn a_demo_that_nobody_reads_any_more_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let AtWork { mut demo, lines, marks } = at_work(folder.path(), &[]);
    drop(lines);
    assert_eq!(demo.wait().unwrap().code(), Some(0));
    leaves_nothing(folder.path(), &marks);
}
