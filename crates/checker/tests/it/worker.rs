//! A worker that stands still for longer than its lease and then goes on as if nothing had been.

use crate::scenario::Scenario;
use windlass_checker::harness::{Server, WorkerProcess};
use windlass_checker::log::Outcome;

const WORKER: &str = env!("CARGO_BIN_EXE_windlass-load-worker");

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_stood_still_beyond_its_lease_is_fenced() {
    let mut scenario = Scenario::new("stop-worker");
    let database = format!("sqlite:{}", scenario.folder.path().join("windlass.db").display());
    let mut server = Server::start(&database, scenario.folder.path()).await;
    let mut plan = scenario.plan(&[&server]);
    // Most of the work goes to the workers that will stand still.
    plan.workers = 1;
    let zombies = ["zombie-0", "zombie-1", "zombie-2"]
        .map(|name| WorkerProcess::start(WORKER, &plan.worker(name)));
    let lease_ms = plan.lease_ms.unsigned_abs();
    let load = scenario.load(plan).await;
    let mut stops = 0;
    while scenario.next_fault(500, 1_000).await {
        let zombie = &zombies[stops % zombies.len()];
        scenario.note(&format!("{} stands still", stops % zombies.len()));
        zombie.pause();
        scenario.pause(lease_ms + 1_000, lease_ms + 2_500).await;
        zombie.resume();
        scenario.note("it goes on");
        stops += 1;
    }
    let (summary, run) = scenario.finish(load, &mut [&mut server], &database).await;
    let is_fenced =
        |outcome: &Outcome| matches!(outcome, Outcome::Failed { code, .. } if code == "lease_lost");
    let fenced = run.calls.iter().filter(|c| c.client.starts_with("zombie")).map(|c| &c.outcome);
    let fenced = fenced.filter(|outcome| is_fenced(outcome)).count();
    assert!(fenced > 0, "the workers that stood still were never fenced: {summary}");
}
