//! PostgreSQL restarted under load without any farewell; the nodes reconnect by themselves.

use crate::cluster::{Cluster, ClusterOptions};
use crate::scenario::Scenario;
use windlass_checker::harness::Server;

#[tokio::test(flavor = "multi_thread")]
async fn nodes_reconnect_to_a_restarted_postgres_and_nothing_is_lost() {
    let mut scenario = Scenario::new("restart-postgres");
    let settings = "max_connections = 100";
    let start = || Cluster::start(ClusterOptions { settings, ..ClusterOptions::default() });
    let cluster = tokio::task::block_in_place(start);
    let mut first = Server::start(&cluster.url(), scenario.folder.path()).await;
    let mut second = Server::start(&cluster.url(), scenario.folder.path()).await;
    let load = scenario.load(scenario.plan(&[&first, &second])).await;
    while scenario.next_fault(1_500, 3_000).await {
        scenario.note("PostgreSQL is stopped");
        tokio::task::block_in_place(|| {
            cluster.stop("immediate");
            cluster.run();
        });
        scenario.note("PostgreSQL is up again");
    }
    let nodes = &mut [&mut first, &mut second];
    let (summary, _) = scenario.finish(load, nodes, &cluster.url()).await;
    // Not that calls failed: nodes that reconnect quickly hide it well.
    assert!(summary.takeovers > 0, "{summary}");
}
