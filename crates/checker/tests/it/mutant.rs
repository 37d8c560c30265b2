//! The checker is tested, too: it passes a server that keeps its promises and catches each one
//! that breaks a single promise, under the same load.

use std::collections::BTreeSet;
use std::time::Duration;
use windlass_checker::check::{Invariant, check};
use windlass_checker::harness::{Folder, Summary, gather, judge};
use windlass_checker::load::{Load, Plan};
use windlass_checker::model::{Model, Mutant};
use windlass_checker::seed::Seed;

/// Puts a short load with short leases on a model that crashes now and then.
async fn run(mutant: Mutant, settle: Duration) -> (Folder, u64, Model) {
    let folder = Folder::create("model");
    let seed = Seed::from_environment();
    let mut model = Model::start(mutant).expect("a model starts");
    let mut plan = Plan::new(vec![model.url()], folder.path().to_owned(), seed);
    plan.lease_ms = 1_000;
    let load = Load::start(plan).expect("the load starts");
    let mut chance = Seed::new(seed).of("crash");
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(700 + chance.below(600))).await;
        tokio::task::block_in_place(|| model.crash()).expect("a model starts again");
    }
    load.settle(settle).await;
    (folder, seed, model)
}

/// How many loads may pass before a mutant has to be caught: what it does wrong is met by chance.
const LOADS: usize = 4;

/// A run with this mutant breaks all of these, and the checker says so.
async fn is_caught(mutant: Mutant, wanted: &[Invariant]) {
    let mut told = BTreeSet::new();
    for _ in 0..LOADS {
        told.extend(found(mutant).await);
        if wanted.iter().all(|invariant| told.contains(invariant)) {
            return;
        }
    }
    panic!("{mutant:?} breaks {wanted:?}, and the checker found {told:?}");
}

/// What the checker finds in a run with this mutant.
async fn found(mutant: Mutant) -> BTreeSet<Invariant> {
    let (folder, seed, model) = run(mutant, Duration::from_secs(6)).await;
    let run = gather(folder.path(), model.dump()).expect("the run's own logs can be read");
    println!("{mutant:?}, seed {seed}: {}", Summary::of(&run));
    let violations = check(&run);
    for violation in violations.iter().take(3) {
        println!("{violation}");
    }
    folder.forget();
    violations.iter().map(|violation| violation.invariant).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_keeps_its_promises_passes() {
    let (folder, seed, model) = run(Mutant::None, Duration::from_secs(20)).await;
    let (summary, _) = judge("honest model", seed, folder, model.dump());
    assert!(summary.takeovers > 0 && summary.fenced > 0 && summary.unknown_calls > 0, "{summary}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_a_lease_guard_is_caught() {
    is_caught(Mutant::NoLeaseGuard, &[Invariant::Lease, Invariant::OneResult]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_reuses_lease_ids_is_caught() {
    is_caught(Mutant::ReusedLease, &[Invariant::Lease]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_acknowledges_before_it_commits_is_caught() {
    is_caught(Mutant::AcknowledgedBeforeCommit, &[Invariant::Acknowledged]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_an_attempt_cap_is_caught() {
    is_caught(Mutant::NoAttemptCap, &[Invariant::Cap]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_renews_for_a_zombie_is_caught() {
    is_caught(Mutant::BeatWithoutLease, &[Invariant::Lease, Invariant::Beats]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_against_the_machine_is_caught() {
    is_caught(Mutant::SweepAgainstMachine, &[Invariant::Machine]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transition_without_history_is_caught() {
    is_caught(Mutant::ForgottenHistory, &[Invariant::Chain]).await;
}
