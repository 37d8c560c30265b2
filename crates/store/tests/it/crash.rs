//! Random crashes between any two instructions of the step protocol, with several workers at once.
//!
//! A worker is a list of instructions: claim, look, run, record, begin, complete, fail, beat,
//! finish. It may die before or after any of them, lose the answer of any call and repeat it, and
//! lose its lease at any moment without noticing: then it goes on beside whoever has the task now,
//! and some of their calls come at the same moment. Steps fail, with and without effect; people
//! decide over those in doubt. Whatever happens, a recorded result never changes, a checkpoint is
//! never that of an older attempt, and a step that must not run twice runs once, and once more for
//! each time a person allowed it.

mod worker;

use crate::world::*;
use serde_json::{Value, json};
use std::collections::HashMap;
use windlass_domain::id::TaskId;
use windlass_domain::state::State;
use windlass_domain::step::StepState;
use windlass_store::statement::Dialect;
use windlass_store::step::Steps;
use windlass_store::task::Resolution;
use worker::Worker;

conformance!(crashes_change_no_result_and_repeat_nothing_that_must_not_be);

/// Their names, and whether they may run twice.
const STEPS: [(&str, bool); 5] =
    [("read", true), ("charge", false), ("write", true), ("mail", false), ("close", true)];
/// How many stories one run tells; `WINDLASS_CRASH_SEEDS` says otherwise.
const SEEDS: u64 = 12;
/// More than any story needs.
const INSTRUCTIONS: usize = 3_000;
/// How many workers may think at once that they hold the task.
const CROWD: usize = 3;

/// A small generator, so that a seed tells the whole story, but for which of two calls at the same
/// moment came first.
struct Chance(u64);

impl Chance {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// What the world saw.
#[derive(Default)]
struct Seen {
    seed: u64,
    runs: HashMap<&'static str, usize>,
    allowed: HashMap<&'static str, usize>,
    results: HashMap<String, Value>,
    checkpoint: Option<Value>,
    crashes: usize,
    doubts: usize,
    failures: usize,
    rejections: usize,
    /// Calls that were refused to whoever had lost the task.
    lost: usize,
    /// Instructions that two workers carried out at the same moment.
    clashes: usize,
    /// Copies of calls that came when the step had begun again.
    late: usize,
    checkpoints: usize,
}

impl Seen {
    /// It ran in the world outside; how often by now.
    fn ran(&mut self, name: &'static str) -> usize {
        let runs = self.runs.entry(name).or_default();
        *runs += 1;
        *runs
    }

    /// A result, once seen, is the same for ever.
    fn result(&mut self, name: &str, result: &Value) {
        let first = self.results.entry(name.to_owned()).or_insert_with(|| result.clone());
        assert_eq!(first, result, "seed {}: the result of `{name}` has changed", self.seed);
    }

    /// A checkpoint comes with its step, and none of an older attempt takes the place of a newer.
    fn checkpoint(&mut self, now: Option<Value>, done: &[String]) {
        if now == self.checkpoint {
            return;
        }
        let told = now.clone().expect("a checkpoint stays");
        let attempt = |of: &Value| of["attempt"].as_i64().unwrap();
        let before = self.checkpoint.as_ref().map_or(0, attempt);
        assert!(attempt(&told) >= before, "seed {}: {told} after attempt {before}", self.seed);
        if let Some(step) = told["step"].as_str() {
            assert!(done.iter().any(|name| name == step), "seed {}: {told}", self.seed);
        }
        self.checkpoints += 1;
        self.checkpoint = now;
    }

    fn count(map: &HashMap<&'static str, usize>, name: &str) -> usize {
        map.get(name).copied().unwrap_or_default()
    }

    /// What must not run twice has not, but for a person's word.
    fn nothing_ran_too_often(&self) {
        for (name, _) in STEPS.iter().filter(|(_, idempotent)| !idempotent) {
            let (runs, most) =
                (Seen::count(&self.runs, name), 1 + Seen::count(&self.allowed, name));
            assert!(runs <= most, "seed {}: `{name}` ran {runs} times, not {most}", self.seed);
        }
    }
}

/// One story under way.
struct Story<'a> {
    world: &'a World,
    task: TaskId,
    chance: Chance,
    seen: Seen,
    /// The one that has the task, and those that had it and did not notice.
    workers: Vec<Worker>,
}

impl Story<'_> {
    /// Everything that is written is as it was, or new.
    async fn look(&mut self) {
        let steps = Steps::new(self.world.store.clone()).list(self.task, 0, 100).await.unwrap();
        let done: Vec<_> = steps.into_iter().filter(|s| s.status == StepState::Done).collect();
        for step in &done {
            self.seen.result(&step.name, step.result.as_ref().unwrap());
        }
        let names: Vec<String> = done.into_iter().map(|step| step.name).collect();
        let checkpoint = self.world.show(self.task).await.checkpoint;
        self.seen.checkpoint(checkpoint, &names);
        self.seen.nothing_ran_too_often();
    }

    /// The lease runs out. Whoever had it may be dead, or may go on.
    async fn lose_lease(&mut self) {
        self.world.pass_ms(60_000);
        self.world.tasks.expire_leases(10).await.unwrap();
    }

    async fn claim(&mut self) {
        let mut claim = claim_of("w", &["q"], 1);
        claim.start = true;
        if let Some(held) = self.world.tasks.claim(claim).await.unwrap().pop() {
            assert_eq!(held.task.id, self.task);
            self.workers.push(Worker::new(held));
        }
        while self.workers.len() > CROWD {
            self.workers.remove(0);
        }
    }

    /// Somebody dies.
    fn crash(&mut self) {
        if !self.workers.is_empty() {
            let which = self.chance.below(self.workers.len() as u64) as usize;
            self.workers.remove(which);
            self.seen.crashes += 1;
        }
    }

    /// One worker does its next instruction, or two do theirs at the same moment.
    async fn work(&mut self) {
        if self.workers.is_empty() {
            return;
        }
        let first = self.chance.below(self.workers.len() as u64) as usize;
        let mut worker = self.workers.remove(first);
        worker.choose(&mut self.chance);
        // The answer may be lost: then the same call is made again.
        let times = if self.chance.one_in(6) { 2 } else { 1 };
        if self.workers.is_empty() || !self.chance.one_in(3) {
            worker.repeat_late(self.world, &mut self.seen).await;
            let answers = worker.act(self.world, times).await;
            let contradicts = answers.has_ended_a_step() && self.chance.one_in(3);
            if contradicts {
                worker.contradict(self.world, &self.seen).await;
            }
            if worker.follow(answers, &mut self.chance, &mut self.seen).is_ok() {
                self.workers.push(worker);
            }
            return;
        }
        let mut other = self.workers.remove(0);
        other.choose(&mut self.chance);
        worker.repeat_late(self.world, &mut self.seen).await;
        let (answers, others) =
            tokio::join!(worker.act(self.world, times), other.act(self.world, 1));
        self.seen.clashes += 1;
        for (mut one, answers) in [(worker, answers), (other, others)] {
            if one.follow(answers, &mut self.chance, &mut self.seen).is_ok() {
                self.workers.push(one);
            }
        }
    }

    /// A person looks at the step in doubt, and at the world outside.
    async fn person(&mut self) {
        let doubts = Steps::new(self.world.store.clone()).in_doubt(0, 10).await.unwrap();
        let doubt = doubts.iter().find(|step| step.task_id == self.task);
        let doubt = doubt.expect("a parked task waits for a person");
        let (name, _) = *STEPS.iter().find(|(name, _)| *name == doubt.name).unwrap();
        let has_run = Seen::count(&self.seen.runs, name) > 0;
        let resolution = match self.chance.below(6) {
            0 => Resolution::Fail,
            1..4 if has_run => Resolution::RecordResult(json!("seen by a person").to_string()),
            _ => {
                *self.seen.allowed.entry(name).or_default() += 1;
                Resolution::AllowRerun
            }
        };
        let resolved = self.world.tasks.resolve_step(doubt.id, resolution, "olga".into(), None);
        resolved.await.unwrap();
    }

    async fn tell(mut self) -> Seen {
        for _ in 0..INSTRUCTIONS {
            let state = self.world.status(self.task).await;
            if state.is_terminal() {
                break;
            }
            match self.chance.below(14) {
                0 => self.lose_lease().await,
                1 => self.crash(),
                2..5 if state == State::Waiting => self.person().await,
                2..7 if state.is_claimable() => self.claim().await,
                _ => self.work().await,
            }
            self.look().await;
        }
        assert_eq!(self.world.status(self.task).await, State::Completed, "seed {}", self.seen.seed);
        // Those who have not noticed go on until they do.
        while !self.workers.is_empty() {
            self.work().await;
            self.look().await;
        }
        self.seen
    }
}

async fn crashes_change_no_result_and_repeat_nothing_that_must_not_be(dialect: Dialect) {
    let seeds = std::env::var("WINDLASS_CRASH_SEEDS").map_or(SEEDS, |text| text.parse().unwrap());
    let world = World::new(dialect).await;
    let mut counts = [0; 7];
    for seed in 1..=seeds {
        let chance = Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let task = world.submit(task(|r| r.max_retries = Some(100))).await;
        let seen = Seen { seed, ..Seen::default() };
        let story = Story { world: &world, task, chance, seen, workers: Vec::new() };
        let seen = story.tell().await;
        let Seen { crashes, doubts, failures, lost, clashes, late, checkpoints, .. } = seen;
        let counted = [crashes, doubts, failures, lost, clashes, late, checkpoints];
        counts.iter_mut().zip(counted).for_each(|(sum, n)| *sum += n);
    }
    // A run without them would show nothing.
    assert!(counts.iter().all(|&count| count as u64 >= seeds / 4), "{counts:?}");
}
