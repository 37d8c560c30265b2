//! kill -9 of the embedded server under load, and its restart on the same file.

use crate::scenario::Scenario;
use windlass_checker::harness::Server;

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_embedded_server_loses_nothing_that_it_acknowledged() {
    let mut scenario = Scenario::new("kill-embedded");
    let database = format!("sqlite:{}", scenario.folder.path().join("windlass.db").display());
    let mut server = Server::start(&database, scenario.folder.path()).await;
    let load = scenario.load(scenario.plan(&[&server])).await;
    while scenario.next_fault(1_000, 3_000).await {
        scenario.note("the server is killed");
        server.kill();
        server.run().await;
        scenario.note("the server is up again");
    }
    let (summary, _) = scenario.finish(load, &mut [&mut server], &database).await;
    assert!(summary.takeovers > 0 && summary.unknown_calls > 0, "{summary}");
}
