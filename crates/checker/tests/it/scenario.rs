//! What every scenario does the same way: a folder, a seed, a load, and the end.

use std::fs::File;
use std::io::Write;
use std::time::{Duration, Instant};
use windlass_checker::check::Run;
use windlass_checker::dump::Dump;
use windlass_checker::harness::{Folder, SETTLE, Server, Summary, judge, load_time};
use windlass_checker::load::{Load, Plan};
use windlass_checker::log::now_ms;
use windlass_checker::seed::Seed;

/// A scenario under way.
pub struct Scenario {
    name: &'static str,
    pub folder: Folder,
    pub seed: u64,
    pub chance: Seed,
    end: Instant,
    faults: usize,
}

/// A run with fewer would say little.
const FEWEST_FAULTS: usize = 2;

impl Scenario {
    pub fn new(name: &'static str) -> Scenario {
        let seed = Seed::from_environment();
        let chance = Seed::new(seed).of("fault");
        let folder = Folder::create(name);
        Scenario { name, folder, seed, chance, end: Instant::now(), faults: 0 }
    }

    pub fn plan(&self, nodes: &[&Server]) -> Plan {
        let nodes = nodes.iter().map(|node| node.url()).collect();
        Plan::new(nodes, self.folder.path().to_owned(), self.seed)
    }

    /// Starts the load; the time of the faults begins.
    pub async fn load(&mut self, plan: Plan) -> Load {
        self.begin();
        Load::start(plan).expect("the load starts")
    }

    /// The time of the faults begins.
    pub fn begin(&mut self) {
        self.end = Instant::now() + load_time();
    }

    /// Notes a fault beside the clients' logs, with the time that they use.
    pub fn note(&self, what: &str) {
        let path = self.folder.path().join("faults.output");
        let file = File::options().create(true).append(true).open(path);
        let noted = file.and_then(|mut file| writeln!(file, "{} {what}", now_ms()));
        noted.expect("the folder is writable");
    }

    /// Waits for the next fault; `false` when the load's time is over. On a slow machine the load
    /// goes on until there were [`FEWEST_FAULTS`].
    pub async fn next_fault(&mut self, from_ms: u64, to_ms: u64) -> bool {
        self.pause(from_ms, to_ms).await;
        let is_on = Instant::now() < self.end || self.faults < FEWEST_FAULTS;
        self.faults += usize::from(is_on);
        is_on
    }

    /// Lets a random time pass.
    pub async fn pause(&mut self, from_ms: u64, to_ms: u64) {
        let ms = from_ms + self.chance.below(to_ms - from_ms);
        tokio::time::sleep(Duration::from_millis(ms)).await;
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
