//! What every scenario does the same way: a folder, a seed, a load, and the end.

use std::time::{Duration, Instant};
use windlass_checker::check::Run;
use windlass_checker::dump::Dump;
use windlass_checker::harness::{Folder, SETTLE, Server, Summary, judge, load_time};
use windlass_checker::load::{Load, Plan};
use windlass_checker::seed::Seed;

/// A scenario under way.
pub struct Scenario {
    name: &'static str,
    pub folder: Folder,
    pub seed: u64,
    pub chance: Seed,
    end: Instant,
}

impl Scenario {
    pub fn new(name: &'static str) -> Scenario {
        let seed = Seed::from_environment();
        let chance = Seed::new(seed).of("fault");
        Scenario { name, folder: Folder::create(name), seed, chance, end: Instant::now() }
    }

    pub fn plan(&self, nodes: &[&Server]) -> Plan {
        let nodes = nodes.iter().map(|node| node.url()).collect();
        Plan::new(nodes, self.folder.path().to_owned(), self.seed)
    }

    /// Starts the load; the time of the faults begins.
    pub async fn load(&mut self, plan: Plan) -> Load {
        self.end = Instant::now() + load_time();
        Load::start(plan).expect("the load starts")
    }

    /// Waits for the next fault; `false` when the load's time is over.
    pub async fn next_fault(&mut self, from_ms: u64, to_ms: u64) -> bool {
        let pause = Duration::from_millis(from_ms + self.chance.below(to_ms - from_ms));
        tokio::time::sleep(pause.min(self.end.saturating_duration_since(Instant::now()))).await;
        Instant::now() < self.end
    }

    /// The quiet phase, the end of the nodes, the dump, the verdict.
    pub async fn finish(
        self,
        load: Load,
        nodes: &mut [&mut Server],
        database: &str,
    ) -> (Summary, Run) {
        let left = load.settle(SETTLE).await;
        for node in nodes {
            node.stop().await;
        }
        let dump = Dump::of_url(database).await.expect("the database can be read");
        if left > 0 {
            println!("{}: {left} tasks had not ended after {SETTLE:?}", self.name);
        }
        judge(self.name, self.seed, self.folder, dump)
    }
}
