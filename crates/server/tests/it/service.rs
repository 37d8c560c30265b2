//! Facts about everything together: `windlass serve`, `windlass worker` and the commands.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead, BufReader, Lines};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::time::{Duration, Instant};

pub fn binary() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("WINDLASS_") {
            command.env_remove(name);
        }
    }
    command.stdin(Stdio::null());
    command
}

/// A process that ends with the test.
struct Running(Child);

impl Running {
    fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let id = Pid::from_raw(i32::try_from(self.0.id()).unwrap()).unwrap();
        let begun = Instant::now();
        while self.0.try_wait().is_ok_and(|status| status.is_none()) {
            if begun.elapsed() > Duration::from_secs(5) {
                let _ = self.0.kill();
            }
            let _ = kill_process(id, Signal::TERM);
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

pub struct Service {
    pub url: String,
    process: Running,
}

impl Service {
    pub fn start(folder: &Path, listen: &str) -> Service {
        let (service, lines) = Service::start_read(folder, listen);
        // Read on, so that the server does not stop at a full pipe.
        std::thread::spawn(move || lines.for_each(drop));
        service
    }

    /// A server, and the rest of its log.
    fn start_read(folder: &Path, listen: &str) -> (Service, Lines<BufReader<ChildStderr>>) {
        let mut child = binary()
            .args(["serve", "--listen", listen, "--log-format", "json", "--log", "info"])
            .current_dir(folder)
            .stderr(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut told = String::new();
        let address = loop {
            let Some(Ok(line)) = lines.next() else { panic!("the server ended: {told}") };
            told.push_str(&line);
            let event: Value = serde_json::from_str(&line).unwrap_or_default();
            if let Some(address) = event["address"].as_str() {
                break address.to_owned();
            }
        };
        (Service { url: format!("http://{address}"), process: Running(child) }, lines)
    }

    fn run(&self, arguments: &[&str]) -> Output {
        binary().args(arguments).env("WINDLASS_SERVER", &self.url).output().unwrap()
    }

    /// What a command prints; it must succeed.
    fn out(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{arguments:?}: {told}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    fn worker(&self, options: &[&str], script: &str) -> Running {
        let mut command = binary();
        command.args(["worker", "--queue", "q", "--server", &self.url]).args(options);
        command.args(["--", "sh", "-c", script]).stdout(Stdio::null());
        if std::env::var_os("WINDLASS_TEST_LOG").is_none() {
            command.stderr(Stdio::null());
        }
        Running(command.spawn().unwrap())
    }

    fn task(&self, id: &str) -> Value {
        serde_json::from_str(&self.out(&["--json", "task", "show", id])).unwrap()
    }

    #[track_caller]
    fn until(&self, what: &str, mut look: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !look() {
            assert!(begun.elapsed() < Duration::from_secs(20), "not seen: {what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

const ANY_PORT: &str = "127.0.0.1:0";

#[test]
fn a_task_goes_from_submit_through_a_command_to_its_result() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::start(folder.path(), ANY_PORT);
    let _worker = service.worker(&["--name", "anna's"], r#"printf '{"got": %s}' "$(cat)""#);
    let submit = ["task", "submit", "-q", "q", "{\"to\": \"anna\"}", "--wait", "--timeout", "20s"];
    let result: Value = serde_json::from_str(&service.out(&submit)).unwrap();
    assert_eq!(result["got"]["payload"]["to"], "anna");
    assert_eq!(result["got"]["attempt"], 1);
    let list = service.out(&["task", "list", "--status", "completed"]);
    assert_eq!(list.lines().count(), 2, "{list}");
    let id = result["got"]["id"].as_str().unwrap();
    let show = service.out(&["task", "show", id, "--history", "--failures"]);
    assert!(show.contains("pending → running"), "{show}");
    let watch = service.out(&["task", "watch", id]);
    assert!(watch.contains("– → pending") && watch.contains("running → completed"), "{watch}");
    assert!(service.out(&["session", "list"]).contains("anna's"));
    let status = service.out(&["status"]);
    assert!(status.contains("completed  1") && status.contains("sqlite"), "{status}");
    let events = service.out(&["--json", "events", "--since", "beginning", "--limit", "2"]);
    let events: Vec<Value> =
        events.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&events[0]["event"], &events[1]["event"]), (&"submit".into(), &"claim".into()));
    let after = events[0]["id"].as_str().unwrap();
    let next = service.out(&["--json", "events", "--since", after, "--limit", "1"]);
    assert_eq!(serde_json::from_str::<Value>(&next).unwrap()["id"], events[1]["id"]);
}

#[test]
fn an_exit_code_decides_what_follows() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::start(folder.path(), ANY_PORT);
    let _worker = service.worker(&["--slots", "2"], r#"echo why >&2; exit "$WINDLASS_TASK_NAME""#);
    let submit = |name: &str, more: &[&str]| {
        let mut arguments = vec!["task", "submit", "-q", "q", "--wait", "--timeout", "20s"];
        arguments.extend(["--name", name]);
        arguments.extend(more);
        service.run(&arguments)
    };
    let refused = submit("65", &[]);
    assert_eq!(refused.status.code(), Some(3));
    let told = String::from_utf8(refused.stdout).unwrap();
    assert!(told.starts_with("failed: ") && told.contains("why [INVALID_INPUT]"), "{told}");
    assert_eq!(submit("1", &["--max-retries", "0"]).status.code(), Some(6));
    let list = service.out(&["--json", "task", "list", "--status", "poisoned"]);
    let list: Value = serde_json::from_str(&list).unwrap();
    assert_eq!(list["items"][0]["error"]["code"], "EXIT_1");
    assert_eq!(list["items"][0]["error"]["detail"]["stderr"], "why\n");
}

#[test]
fn cancelling_ends_the_command() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::start(folder.path(), ANY_PORT);
    let file = folder.path().join("pid");
    let script = format!("echo $$ > {}; sleep 1000", file.display());
    let _worker = service.worker(&["--lease", "1s"], &script);
    let id = service.out(&["task", "submit", "-q", "q"]);
    service.until("the start", || {
        std::fs::read_to_string(&file).is_ok_and(|text| text.ends_with('\n'))
    });
    let child = std::fs::read_to_string(&file).unwrap();
    let is_alive = || Path::new(&format!("/proc/{}", child.trim())).exists();
    assert!(is_alive());
    assert!(service.out(&["task", "cancel", &id]).ends_with("cancelled"));
    service.until("the end of the command", || !is_alive());
    assert_eq!(service.run(&["task", "wait", &id]).status.code(), Some(4));
}

#[test]
fn a_result_survives_the_death_of_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let mut service = Service::start(folder.path(), ANY_PORT);
    let address = service.url.trim_start_matches("http://").to_owned();
    let file = folder.path().join("go");
    let ended = folder.path().join("ended");
    let (go, end) = (file.display(), ended.display());
    let script = format!("while [ ! -e {go} ]; do sleep 0.02; done; echo 7; : > {end}");
    let _worker = service.worker(&[], &script);
    let id = service.out(&["task", "submit", "-q", "q"]);
    service.until("the start", || service.task(&id)["status"] == "running");
    service.process.kill();
    // The command ends while nobody listens.
    std::fs::write(&file, "").unwrap();
    service.until("the end of the command", || ended.exists());
    let service = Service::start(folder.path(), &address);
    assert_eq!(service.out(&["task", "wait", &id, "--timeout", "20s"]), "7");
    let task = service.task(&id);
    assert_eq!((&task["attempt"], &task["retry_count"]), (&1.into(), &0.into()));
    // The worker goes on, with its old session or a new one.
    assert_eq!(service.out(&["task", "submit", "-q", "q", "--wait", "--timeout", "20s"]), "7");
}

#[test]
fn a_worker_that_is_told_to_end_gives_its_task_back() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::start(folder.path(), ANY_PORT);
    let mut worker = service.worker(&["--grace", "50ms"], "sleep 1000");
    let id = service.out(&["task", "submit", "-q", "q"]);
    service.until("the start", || service.task(&id)["status"] == "running");
    let process = Pid::from_raw(i32::try_from(worker.0.id()).unwrap()).unwrap();
    kill_process(process, Signal::TERM).unwrap();
    assert_eq!(worker.0.wait().unwrap().code(), Some(0));
    let task = service.task(&id);
    assert_eq!(task["status"], "pending");
    assert_eq!(task["release_count"], 1);
    let _worker = service.worker(&[], "echo 1");
    assert_eq!(service.out(&["task", "wait", &id, "--timeout", "20s"]), "1");
}

#[test]
fn a_refusal_of_the_server_names_each_wrong_field() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::start(folder.path(), ANY_PORT);
    let output = service.run(&["task", "submit", "-q", "", "--priority", "99999", "--id", "x"]);
    assert_eq!(output.status.code(), Some(1));
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("[validation_failed]") && told.contains("  /"), "{told}");
    let missing = service.run(&["task", "show", "01890a5d-ac96-774b-bcce-b302099a8057"]);
    assert!(String::from_utf8_lossy(&missing.stderr).contains("[not_found]"));
}

#[test]
fn a_server_whose_log_nobody_reads_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let (mut service, log) = Service::start_read(folder.path(), ANY_PORT);
    // As of `windlass serve 2>&1 | head`. Each request writes a line.
    drop(log);
    for _ in 0..3 {
        service.out(&["task", "submit", "-q", "q"]);
    }
    assert!(service.process.0.try_wait().unwrap().is_none(), "it ended");
}

#[test]
fn a_server_that_cannot_listen_changes_no_schema() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::start(folder.path(), ANY_PORT);
    let address = service.url.trim_start_matches("http://");
    let other = ["--database", "sqlite:other.db"];
    let run = |arguments: &[&str]| {
        let mut command = binary();
        command.args(arguments).args(other).current_dir(folder.path()).output().unwrap()
    };
    let refused = run(&["serve", "--listen", address]);
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(78), "{told}");
    assert!(told.contains("cannot listen on") && told.contains("choose another port"), "{told}");
    let status = run(&["migrate", "status"]);
    let told = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(told.contains("missing: run `windlass migrate up`"), "{told}");
}
