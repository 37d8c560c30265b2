//! A worker of the load as a process of its own, so that it can be killed and stopped.
//!
//! Its only argument is its plan as JSON; its log and its ledger lie in the plan's folder, named
//! after it. It works until it is ended.

use std::sync::Arc;
use tokio::sync::watch;
use windlass_checker::ledger::Ledger;
use windlass_checker::load::{Phase, WorkerPlan, work};
use windlass_checker::log::Log;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let plan = std::env::args().nth(1).expect("the worker's plan, as JSON");
    let plan: WorkerPlan = serde_json::from_str(&plan).expect("the worker's plan, as JSON");
    let file = |ending: &str| plan.folder.join(format!("{}.{ending}", plan.name));
    let log = Log::create(&file("log")).expect("the log can be written");
    let ledger = Ledger::create(&file("ledger"), &plan.name).expect("the ledger can be written");
    let (_over, phase) = watch::channel(Phase::Load);
    work(plan, Arc::new(log), Arc::new(ledger), phase).await;
}
