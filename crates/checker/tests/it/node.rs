//! kill -9 of one of two nodes on PostgreSQL under load, together with the workers beside it.

use crate::cluster::TestDatabase;
use crate::scenario::Scenario;
use windlass_checker::harness::{Server, WorkerProcess};
use windlass_checker::load::Plan;

const WORKER: &str = env!("CARGO_BIN_EXE_windlass-load-worker");
/// Beyond the lease: the dead node may have had the duty to sweep, which another one takes two
/// seconds later, with its next round; the rest is for a machine that is busy with the load.
const TAKEOVER_MS: i64 = 5_000;

/// A worker that knows only one node, as if it ran on the same machine.
fn worker_beside(plan: &Plan, node: &Server) -> WorkerProcess {
    let mut own = plan.worker(&format!("beside-{}", uuid::Uuid::new_v4().simple()));
    own.nodes = vec![node.url()];
    WorkerProcess::start(WORKER, &own)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_nodes_tasks_are_taken_over_and_nothing_is_lost() {
    let mut scenario = Scenario::new("kill-node");
    let database = TestDatabase::create();
    let mut first = Server::start(&database.url(), scenario.folder.path()).await;
    let mut second = Server::start(&database.url(), scenario.folder.path()).await;
    let plan = scenario.plan(&[&first, &second]);
    let mut beside = [&first, &second].map(|node| worker_beside(&plan, node));
    let load = scenario.load(plan.clone()).await;
    let mut kills = 0;
    while scenario.next_fault(1_500, 3_000).await {
        let (node, worker) = match kills % 2 {
            0 => (&mut first, &mut beside[0]),
            _ => (&mut second, &mut beside[1]),
        };
        scenario.note(&format!("{} is killed", node.url()));
        node.kill();
        worker.kill();
        kills += 1;
        // The other node is alone for a while.
        scenario.pause(500, 1_500).await;
        node.run().await;
        scenario.note(&format!("{} is up again", node.url()));
        *worker = worker_beside(&plan, node);
    }
    let nodes = &mut [&mut first, &mut second];
    let (summary, _) = scenario.finish(load, nodes, &database.url()).await;
    drop(beside);
    assert!(summary.takeovers > 0 && summary.unknown_calls > 0, "{summary}");
    assert!(summary.slowest_takeover_ms <= plan.lease_ms + TAKEOVER_MS, "{summary}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_are_restarted_in_turn_lose_nothing() {
    let mut scenario = Scenario::new("rolling-restart");
    let database = TestDatabase::create();
    let mut first = Server::start(&database.url(), scenario.folder.path()).await;
    let mut second = Server::start(&database.url(), scenario.folder.path()).await;
    let load = scenario.load(scenario.plan(&[&first, &second])).await;
    while scenario.next_fault(1_000, 2_000).await {
        scenario.note(&format!("{} is asked to stop", first.url()));
        first.stop().await;
        scenario.note("it has stopped");
        first.run().await;
        scenario.note("it is up again");
        std::mem::swap(&mut first, &mut second);
    }
    let nodes = &mut [&mut first, &mut second];
    let (summary, _) = scenario.finish(load, nodes, &database.url()).await;
    assert!(summary.takeovers > 0, "{summary}");
}
