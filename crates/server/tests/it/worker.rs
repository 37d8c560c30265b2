//! Facts about the command worker: the real binary, real child processes, a server that keeps to
//! the contract and misbehaves when it is told to.

use crate::fake::{self, Fake};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A running worker; it ends with the test, and its children with it.
struct Worker {
    child: Child,
}

impl Worker {
    fn start(fake: &Fake, options: &[&str], script: &str) -> Worker {
        Worker::start_in(fake, options, script, &[])
    }

    fn start_in(fake: &Fake, options: &[&str], script: &str, more: &[(&str, &str)]) -> Worker {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
        command.args(["worker", "--queue", "q", "--server", &fake.url]).args(options);
        command.args(["--", "sh", "-c", script]).envs(more.iter().copied());
        command.stdin(Stdio::null()).stdout(Stdio::null());
        if std::env::var_os("WINDLASS_TEST_LOG").is_none() {
            command.stderr(Stdio::null());
        }
        Worker { child: command.spawn().expect("the binary runs") }
    }

    fn signal(&self, signal: Signal) {
        let _ = kill_process(pid(self.child.id()), signal);
    }

    fn ended(&mut self) -> ExitStatus {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(begun.elapsed() < Duration::from_secs(20), "the worker does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // The second signal ends a worker at once, with all its children.
        let begun = Instant::now();
        while self.child.try_wait().is_ok_and(|status| status.is_none()) {
            if begun.elapsed() > Duration::from_secs(5) {
                let _ = self.child.kill();
            }
            self.signal(Signal::TERM);
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn pid(id: u32) -> Pid {
    Pid::from_raw(i32::try_from(id).unwrap()).unwrap()
}

/// Waits until a file has a whole line, and gives it.
fn line_of(path: &Path) -> String {
    let begun = Instant::now();
    loop {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        if let Some(line) = text.strip_suffix('\n') {
            return line.to_owned();
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{} stays empty", path.display());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether a process runs; one that is dead but not collected does not.
fn is_alive(id: &str) -> bool {
    let is_there = test_kill_process(pid(id.parse().unwrap())).is_ok();
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    let state = stat.rsplit(") ").next().unwrap_or_default();
    is_there && !state.starts_with('Z')
}

fn until_dead(id: &str, within: Duration) {
    let begun = Instant::now();
    while is_alive(id) {
        assert!(begun.elapsed() < within, "process {id} is still alive");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_command_reads_the_task_and_its_output_is_the_result() {
    let fake = Fake::start();
    let id = fake.submit(json!({
        "payload": { "to": "anna" }, "name": "letter", "checkpoint": { "step": 2 },
    }));
    let script = r#"printf '{"stdin": %s, "env": "%s"}' "$(cat)" "$(env | base64 -w0)""#;
    let _worker = Worker::start_in(&fake, &[], script, &[("WINDLASS_KEY", "a-secret-key-of-ours")]);
    let item = fake.finished(&id);
    assert_eq!(item["outcome"], "complete");
    let input = &item["result"]["stdin"];
    assert_eq!((&input["payload"]["to"], &input["attempt"]), (&json!("anna"), &json!(1)));
    assert_eq!((&input["id"], &input["steps"]), (&json!(id), &json!([])));
    assert_eq!(input["checkpoint"], json!({ "step": 2 }));
    assert!(!input.to_string().contains(item["lease_id"].as_str().unwrap()));
    let env = item["result"]["env"].as_str().unwrap().to_owned();
    let decoded = Command::new("sh")
        .args(["-c", "printf %s \"$1\" | base64 -d", "-", &env])
        .output()
        .unwrap();
    let env = String::from_utf8(decoded.stdout).unwrap();
    for line in [
        &format!("WINDLASS_TASK_ID={id}"),
        "WINDLASS_QUEUE=q",
        "WINDLASS_KIND=job",
        "WINDLASS_ATTEMPT=1",
        "WINDLASS_TASK_NAME=letter",
        "WINDLASS_CORRELATION_ID=corr-1",
        "WINDLASS_CHECKPOINT={\"step\":2}",
    ] {
        assert!(env.lines().any(|found| found == line), "{line} is not in\n{env}");
    }
    assert!(!env.contains("a-secret-key"), "the worker's key reached the command");
    let lease = format!("WINDLASS_LEASE_ID={}", item["lease_id"].as_str().unwrap());
    assert!(env.lines().any(|found| found == lease), "the command can call for its own task");
}

#[test]
fn each_end_of_a_command_has_its_outcome() {
    let fake = Fake::start();
    let cases = [
        ("exit 0", "complete", Value::Null),
        ("echo '[1]'; exit 0", "complete", Value::Null),
        ("echo oops >&2; exit 1", "fail", json!("EXIT_1")),
        ("exit 64", "fail", json!("INVALID_INPUT")),
        ("exit 65", "fail", json!("INVALID_INPUT")),
        ("exit 69", "fail", json!("SERVICE_UNAVAILABLE")),
        ("exit 75", "fail", json!("SERVICE_UNAVAILABLE")),
        ("exit 77", "fail", json!("PERMISSION_DENIED")),
        ("kill -9 $$", "fail", json!("SIGNAL_9")),
        ("echo not json", "fail", json!("INVALID_OUTPUT")),
        ("echo '{\"error\": {\"code\": \"RATE_LIMITED\"}}'; exit 1", "fail", json!("RATE_LIMITED")),
    ];
    let ids = cases.iter().map(|(script, ..)| fake.submit(json!({ "name": script })));
    let ids: Vec<_> = ids.collect();
    let _worker = Worker::start(&fake, &["--slots", "3"], r#"eval "$WINDLASS_TASK_NAME""#);
    for ((script, outcome, code), id) in cases.iter().zip(ids) {
        let item = fake.finished(&id);
        assert_eq!(item["outcome"], *outcome, "{script}: {item}");
        assert_eq!(item["error"]["code"], *code, "{script}: {item}");
        if script.contains("oops") {
            let told = item["error"]["message"].as_str().unwrap();
            assert_eq!(told, "the command ended with exit code 1: oops");
            assert_eq!(item["error"]["detail"]["stderr"], "oops\n");
        }
    }
}

#[test]
fn a_cancelled_task_is_killed_with_its_grandchildren() {
    let fake = Fake::start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("grandchild");
    let script = format!("(sleep 1000 & echo $! > {}; wait) & wait", file.display());
    let id = fake.submit(json!({}));
    let next = fake.submit(json!({ "name": "next" }));
    let script = format!("[ -n \"$WINDLASS_TASK_NAME\" ] || {{ {script}; }}");
    let _worker = Worker::start(&fake, &[], &script);
    let grandchild = line_of(&file);
    assert!(is_alive(&grandchild));
    fake.world().cancelled.insert(id.clone());
    until_dead(&grandchild, Duration::from_secs(4));
    // The slot is free again, and nobody is told of an end that nobody wants to hear of.
    fake.finished(&next);
    assert!(fake.world().finished.iter().all(|item| item["task_id"] != id.as_str()));
}

/// Runs a task and cancels it by the stream alone: the heartbeats renew its lease all the while.
fn killed_by_the_stream(fake: &Fake) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    let id = fake.submit(json!({}));
    let _worker = Worker::start(fake, &[], &format!("echo $$ > {}; sleep 1000", file.display()));
    let child = line_of(&file);
    let lease = fake.world().held[&id].clone();
    let other = json!({ "task_id": id, "lease_id": uuid::Uuid::now_v7() });
    let mine = json!({ "task_id": id, "lease_id": lease });
    let beats = fake.world().beats.len();
    fake.world().told.push(format!("event: lost\ndata: {other}\n\n"));
    fake.until("beats go on", |world| (world.beats.len() > beats + 2).then_some(()));
    assert!(is_alive(&child), "another lease was meant");
    fake.world().told.push(format!("event: cancel\ndata: {mine}\n\n"));
    until_dead(&child, Duration::from_secs(20));
    assert!(fake.world().finished.is_empty(), "nobody is told of the end");
    let asks_for_no_work = |path: &String| path.ends_with("/stream?assign=false");
    assert!(fake.world().requests.iter().any(|(_, path, _)| asks_for_no_work(path)));
}

#[test]
fn a_cancel_is_learned_from_the_stream() {
    killed_by_the_stream(&Fake::start());
}

#[test]
fn a_stream_that_breaks_is_opened_again() {
    let fake = Fake::start();
    fake.world().break_bound = 3;
    killed_by_the_stream(&fake);
    assert_eq!(fake.world().bound, 4);
}

#[test]
fn a_worker_works_on_without_a_stream() {
    let fake = Fake::start();
    fake.world().refuse_bound = true;
    let first = fake.submit(json!({}));
    let _worker = Worker::start(&fake, &[], "true");
    fake.finished(&first);
    fake.until("it asks again", |world| {
        let asked = world.requests.iter().filter(|(_, path, _)| path.contains("/stream"));
        (asked.count() > 2).then_some(())
    });
    let second = fake.submit(json!({}));
    fake.finished(&second);
    assert_eq!(fake.world().sessions.len(), 1, "the session is not blamed");
}

#[test]
fn a_worker_of_inference_has_no_stream_to_lose() {
    let fake = Fake::start();
    let id = fake.submit(json!({}));
    let _worker = Worker::start(&fake, &["--kind", "inference"], "true");
    fake.finished(&id);
    fake.until("beats", |world| (world.beats.len() > 3).then_some(()));
    assert_eq!(fake.world().bound, 0);
}

#[test]
fn a_command_whose_lease_is_lost_is_killed_even_if_it_ignores_the_polite_signal() {
    let fake = Fake::start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    let id = fake.submit(json!({}));
    let script = format!("trap '' TERM; echo $$ > {}; sleep 1000 & wait; wait", file.display());
    let _worker = Worker::start(&fake, &[], &script);
    let child = line_of(&file);
    fake.world().held.remove(&id);
    until_dead(&child, Duration::from_secs(9));
}

#[test]
fn a_command_that_takes_too_long_fails_as_a_timeout() {
    let fake = Fake::start();
    let id = fake.submit(json!({}));
    let _worker = Worker::start(&fake, &["--timeout", "200ms"], "echo started >&2; sleep 1000");
    let item = fake.finished(&id);
    assert_eq!(item["error"]["code"], "TIMEOUT");
    let told = item["error"]["message"].as_str().unwrap();
    assert_eq!(told, "the command took longer than 200 ms: started");
}

#[test]
fn output_beyond_the_bound_is_a_clear_failure() {
    let fake = Fake::start();
    let endless = fake.submit(json!({ "name": "yes" }));
    let large = fake.submit(json!({ "name": "head -c 1048577 /dev/zero | tr '\\0' 7" }));
    let most = fake.submit(json!({
        "name": "printf '\"'; head -c 1048574 /dev/zero | tr '\\0' x; printf '\"'",
    }));
    let _worker = Worker::start(&fake, &["--slots", "3"], r#"eval "$WINDLASS_TASK_NAME""#);
    for id in [endless, large] {
        let item = fake.finished(&id);
        assert_eq!(item["error"]["code"], "OUTPUT_TOO_LARGE");
        assert!(item["error"]["message"].as_str().unwrap().contains("1048576 bytes"), "{item}");
    }
    let item = fake.finished(&most);
    assert_eq!(item["result"].as_str().map(str::len), Some(1_048_574));
}

#[test]
fn only_the_end_of_standard_error_is_kept() {
    let fake = Fake::start();
    let id = fake.submit(json!({}));
    let script = "head -c 300000 /dev/zero | tr '\\0' x >&2; echo >&2; echo last >&2; exit 3";
    let _worker = Worker::start_in(&fake, &[], script, &[("WINDLASS_LOG", "error")]);
    let item = fake.finished(&id);
    let kept = item["error"]["detail"]["stderr"].as_str().unwrap();
    assert_eq!(kept.len(), 64 * 1024);
    assert!(kept.ends_with("x\nlast\n"));
}

#[test]
fn what_a_command_leaves_behind_neither_holds_its_task_nor_outlives_it() {
    let fake = Fake::start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("left");
    let id = fake.submit(json!({}));
    let script = format!("sleep 1000 & echo $! > {}; echo 7", file.display());
    let _worker = Worker::start(&fake, &[], &script);
    let item = fake.finished(&id);
    assert_eq!(item["result"], 7);
    until_dead(&line_of(&file), Duration::from_secs(2));
}

#[test]
fn heartbeats_name_every_lease_in_one_call_while_commands_run() {
    let fake = Fake::start();
    let ids: Vec<_> = (0..3).map(|_| fake.submit(json!({}))).collect();
    let _worker = Worker::start(&fake, &["--slots", "3"], "sleep 1000");
    fake.until("three beats with three leases", |world| {
        let is_full = |beat: &&Value| {
            let named = |id: &String| {
                let mut leases = beat.as_array().into_iter().flatten();
                leases.any(|lease| {
                    lease["task_id"] == id.as_str() && lease["lease_id"] == world.held[id].as_str()
                })
            };
            ids.iter().all(|id| world.held.contains_key(id) && named(id))
        };
        (world.beats.iter().filter(is_full).count() >= 3).then_some(())
    });
}

#[test]
fn no_more_tasks_run_than_there_are_slots() {
    let fake = Fake::start();
    let folder = tempfile::tempdir().unwrap();
    let ids: Vec<_> = (0..6).map(|_| fake.submit(json!({}))).collect();
    let place = folder.path().display();
    let script = format!("touch {place}/$$; ls {place} | wc -l; sleep 0.1; rm {place}/$$");
    let _worker = Worker::start(&fake, &["--slots", "2"], &script);
    for id in ids {
        let item = fake.finished(&id);
        assert!(item["result"].as_i64().unwrap() <= 2, "{item}");
    }
    assert!(fake.world().claimed.iter().all(|claim| claim["max"].as_i64().unwrap() <= 2));
}

#[test]
fn a_lost_claim_answer_is_repeated_by_its_claim_id() {
    let fake = Fake::start();
    fake.world().lose_claims = 1;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("runs");
    let id = fake.submit(json!({}));
    let script = format!("echo run >> {}", file.display());
    let _worker = Worker::start(&fake, &[], &script);
    fake.finished(&id);
    let claims = fake.until("the second claim", |world| {
        (world.claimed.len() > 1).then(|| world.claimed.clone())
    });
    assert_eq!(claims[0], claims[1]);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "run\n");
}

#[test]
fn an_assignment_that_only_a_heartbeat_tells_of_is_executed() {
    let fake = Fake::start();
    let id = fake.put(json!({}));
    fake::assign(&mut fake.world(), &id);
    let _worker = Worker::start(&fake, &[], "echo 1");
    assert_eq!(fake.finished(&id)["outcome"], "complete");
}

#[test]
fn an_assignment_for_which_there_is_no_slot_is_released() {
    let fake = Fake::start();
    fake.submit(json!({}));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    let script = format!("echo $$ > {}; sleep 1000", file.display());
    let _worker = Worker::start(&fake, &[], &script);
    line_of(&file);
    let stray = fake.put(json!({}));
    fake::assign(&mut fake.world(), &stray);
    assert_eq!(fake.finished(&stray)["outcome"], "release");
}

#[test]
fn a_finishing_call_is_repeated_until_it_is_answered() {
    let fake = Fake::start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("go");
    let id = fake.submit(json!({}));
    let script = format!("while [ ! -e {} ]; do sleep 0.02; done; echo '\"done\"'", file.display());
    let _worker = Worker::start(&fake, &[], &script);
    fake.until("the start", |world| world.held.get(&id).map(|_| ()));
    fake.world().busy = 8;
    std::fs::write(&file, "").unwrap();
    assert_eq!(fake.finished(&id)["result"], "done");
    assert_eq!(fake.world().busy, 0);
}

#[test]
fn a_result_that_the_server_refuses_becomes_a_failure_that_says_so() {
    let fake = Fake::start();
    fake.world().refuse_results = true;
    let id = fake.submit(json!({}));
    let _worker = Worker::start(&fake, &[], "echo 1");
    let item = fake.finished(&id);
    assert_eq!(item["error"]["code"], "INVALID_OUTPUT");
    assert!(item["error"]["message"].as_str().unwrap().contains("/result is too long"));
}

#[test]
fn a_forgotten_session_is_registered_again_and_running_work_goes_on() {
    let fake = Fake::start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("go");
    let id = fake.submit(json!({}));
    let script = format!("while [ ! -e {} ]; do sleep 0.02; done; echo 1", file.display());
    let _worker = Worker::start(&fake, &[], &script);
    fake.until("the start", |world| world.held.get(&id).map(|_| ()));
    let first = std::mem::take(&mut fake.world().sessions);
    fake.until("another session", |world| world.sessions.first().cloned());
    assert_ne!(first, fake.world().sessions);
    std::fs::write(&file, "").unwrap();
    assert_eq!(fake.finished(&id)["result"], 1);
}

#[test]
fn a_worker_waits_for_a_server_that_is_not_there_yet() {
    let fake = Fake::start();
    let address = fake.url.trim_start_matches("http://").parse().unwrap();
    let url = fake.url.clone();
    let worker = Worker::start(&fake, &[], "echo 1");
    drop(fake);
    let fake = Fake::start_at(address);
    assert_eq!(fake.url, url);
    let id = fake.submit(json!({}));
    assert_eq!(fake.finished(&id)["outcome"], "complete");
    drop(worker);
}

#[test]
fn a_signal_lets_running_work_finish_and_closes_the_session() {
    let fake = Fake::start();
    let folder = tempfile::tempdir().unwrap();
    let (file, begun) = (folder.path().join("go"), folder.path().join("pid"));
    let id = fake.submit(json!({}));
    let script = format!(
        "echo $$ > {}; while [ ! -e {} ]; do sleep 0.02; done; echo 1",
        begun.display(),
        file.display()
    );
    let mut worker = Worker::start(&fake, &[], &script);
    line_of(&begun);
    worker.signal(Signal::TERM);
    let later = fake.submit(json!({}));
    let beats = fake.world().beats.len();
    fake.until("more beats while draining", |world| (world.beats.len() > beats + 3).then_some(()));
    std::fs::write(&file, "").unwrap();
    assert_eq!(fake.finished(&id)["outcome"], "complete");
    assert_eq!(worker.ended().code(), Some(0));
    assert!(fake.world().sessions.is_empty(), "the session was not closed");
    let world = fake.world();
    let is_taken = world
        .finished
        .iter()
        .any(|item| item["outcome"] != "release" && item["task_id"] == later.as_str());
    assert!(!is_taken, "work was begun after the signal");
}

#[test]
fn a_signal_while_nothing_runs_ends_a_waiting_claim_at_once() {
    let fake = Fake::start();
    let mut worker = Worker::start(&fake, &[], "echo 1");
    fake.until("a claim", |world| world.claimed.first().cloned());
    let begun = Instant::now();
    worker.signal(Signal::TERM);
    assert_eq!(worker.ended().code(), Some(0));
    assert!(begun.elapsed() < Duration::from_secs(5), "it waited for the claim to end");
    assert!(fake.world().sessions.is_empty(), "the session was not closed");
}

#[test]
fn work_that_outlasts_the_grace_is_killed_and_released() {
    let fake = Fake::start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    let id = fake.submit(json!({}));
    let script = format!("echo $$ > {}; sleep 1000", file.display());
    let mut worker = Worker::start(&fake, &["--grace", "100ms"], &script);
    let child = line_of(&file);
    worker.signal(Signal::INT);
    assert_eq!(worker.ended().code(), Some(0));
    assert!(!is_alive(&child));
    assert_eq!(fake.finished(&id)["outcome"], "release");
}

#[test]
fn a_second_signal_ends_everything_at_once() {
    let fake = Fake::start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    fake.submit(json!({}));
    let script = format!("trap '' TERM; echo $$ > {}; sleep 1000 & wait; wait", file.display());
    let mut worker = Worker::start(&fake, &[], &script);
    let child = line_of(&file);
    worker.signal(Signal::TERM);
    let beats = fake.world().beats.len();
    fake.until("the drain", |world| (world.beats.len() > beats + 1).then_some(()));
    worker.signal(Signal::TERM);
    assert_eq!(worker.ended().code(), Some(143));
    until_dead(&child, Duration::from_secs(2));
}

#[test]
fn a_worker_that_the_server_refuses_says_why_and_ends() {
    let fake = Fake::start();
    fake.world().key = Some("the-right-key-of-all".into());
    let mut worker =
        Worker::start_in(&fake, &[], "echo 1", &[("WINDLASS_KEY", "the-wrong-key-of-all")]);
    assert_eq!(worker.ended().code(), Some(77));
    let fake = Fake::start();
    fake.world().key = Some("the-right-key-of-all".into());
    let id = fake.submit(json!({}));
    let _worker =
        Worker::start_in(&fake, &[], "echo 1", &[("WINDLASS_KEY", "the-right-key-of-all")]);
    fake.finished(&id);
}

#[test]
fn log_lines_of_a_task_without_a_correlation_id_have_none() {
    let fake = Fake::start();
    let tasks = [json!({ "correlation_id": null }), json!({ "correlation_id": "order-7" })];
    let ids = tasks.map(|task| fake.submit(task));
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    command.args(["worker", "--queue", "q", "--server", &fake.url, "--log-format", "json"]);
    command.args(["--", "true"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut worker = Worker { child: command.spawn().expect("the binary runs") };
    ids.iter().for_each(|id| drop(fake.finished(id)));
    worker.signal(Signal::TERM);
    let lines = std::io::read_to_string(worker.child.stderr.take().unwrap()).unwrap();
    assert!(worker.ended().success(), "{lines}");
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for (id, expected) in ids.iter().zip([None, Some("order-7")]) {
        let of_task = lines.iter().filter(|line| line["task_id"] == id.as_str());
        let told: Vec<_> =
            of_task.map(|line| (line["message"].as_str(), line.get("correlation_id"))).collect();
        let expected = expected.map(|id| json!(id));
        let words = ["started", "completed"];
        assert_eq!(told, words.map(|word| (Some(word), expected.as_ref())), "{lines:?}");
    }
}

#[test]
fn text_output_becomes_a_string() {
    let fake = Fake::start();
    let id = fake.submit(json!({}));
    let _worker = Worker::start(&fake, &["--output", "text"], "echo plain { text");
    assert_eq!(fake.finished(&id)["result"], "plain { text");
}

#[test]
fn a_command_that_is_not_there_is_refused_before_anything_is_claimed() {
    let output = Command::new(env!("CARGO_BIN_EXE_windlass"))
        .args(["worker", "--queue", "q", "--", "no-such-program"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(78));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no-such-program"));
}
