//! Random crashes between any two instructions of the step protocol.
//!
//! A worker is a list of instructions: claim, run, record, begin, complete, finish. It may die
//! before or after any of them, lose the answer of any call and repeat it, or come back when
//! others have taken its task. Whatever happens, a recorded result never changes, and a step that
//! must not run twice runs once, and once more for each time a person allowed it.

use crate::world::*;
use serde_json::json;
use std::collections::HashMap;
use windlass_domain::id::StepId;
use windlass_domain::state::State;
use windlass_domain::step::{CheckedStep, StepInput, StepState, check};
use windlass_store::error::Rejection;
use windlass_store::group::Outcome;
use windlass_store::statement::Dialect;
use windlass_store::step::Steps;
use windlass_store::task::{
    Assignment, BeginStep, Begun, Finishing, Holder, RecordStep, Resolution, StepEnd,
};

conformance!(crashes_change_no_result_and_repeat_nothing_that_must_not_be);

/// Their names, and whether they may run twice.
const STEPS: [(&str, bool); 5] =
    [("read", true), ("charge", false), ("write", true), ("mail", false), ("close", true)];
/// How many stories one run tells; `WINDLASS_CRASH_SEEDS` says otherwise.
const SEEDS: u64 = 12;
const ATTEMPTS: usize = 60;

/// A small generator, so that a seed tells the whole story.
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
    runs: HashMap<&'static str, usize>,
    allowed: HashMap<&'static str, usize>,
    results: HashMap<String, serde_json::Value>,
    crashes: usize,
    doubts: usize,
}

impl Seen {
    fn runs(&mut self, name: &'static str) {
        *self.runs.entry(name).or_default() += 1;
    }

    /// A result, once seen, is the same for ever.
    fn result(&mut self, seed: u64, name: &str, result: &serde_json::Value) {
        let first = self.results.entry(name.to_owned()).or_insert_with(|| result.clone());
        assert_eq!(first, result, "seed {seed}: the result of `{name}` has changed");
    }
}

fn step(name: &str) -> CheckedStep {
    check(&StepInput { name, kind: None, inputs: None, occurrence: None }).unwrap()
}

/// One story under way.
struct Story<'a> {
    world: &'a World,
    seed: u64,
    chance: Chance,
    seen: Seen,
    /// Attempts that died, with the step they stood at; they may come back.
    dead: Vec<(Assignment, Option<StepId>)>,
}

/// The attempt is over: the worker died, the task is parked, or it has ended.
struct Over;

impl Story<'_> {
    fn crash(&mut self) -> Result<(), Over> {
        if self.chance.one_in(7) {
            self.seen.crashes += 1;
            return Err(Over);
        }
        Ok(())
    }

    /// The answer may be lost: then the same call is made again.
    fn loses_the_answer(&mut self) -> bool {
        self.chance.one_in(6)
    }

    async fn attempt(&mut self, held: &Assignment, at: &mut Option<StepId>) -> Result<(), Over> {
        for (name, idempotent) in STEPS {
            self.crash()?;
            self.haunt().await;
            match idempotent {
                true => self.repeatable(held, name).await?,
                false => self.once(held, name, at).await?,
            }
        }
        self.crash()?;
        let ended = self.world.finish(held, complete()).await;
        assert!(ended.is_ok(), "seed {}: {ended:?}", self.seed);
        Ok(())
    }

    async fn repeatable(&mut self, held: &Assignment, name: &'static str) -> Result<(), Over> {
        let steps = Steps::new(self.world.store.clone());
        let known = steps.show(held.task.id, step(name).key.id(held.task.id)).await.unwrap();
        if let Some(known) = known.filter(|step| step.status == StepState::Done) {
            self.seen.result(self.seed, name, &known.result.unwrap());
            return Ok(());
        }
        self.seen.runs(name);
        let result = json!({ "by": held.attempt, "chance": self.chance.below(1_000_000) });
        self.crash()?;
        let item = RecordStep {
            holder: Holder::new(held.task.id, held.lease_id, "w"),
            step: step(name),
            result: result.to_string(),
            checkpoint: None,
        };
        let tries = if self.loses_the_answer() { 2 } else { 1 };
        for _ in 0..tries {
            let recorded = self.world.tasks.record_steps(vec![item.clone()]).await.pop().unwrap();
            let kept = recorded.unwrap().earlier.unwrap_or_else(|| result.clone());
            self.seen.result(self.seed, name, &kept);
        }
        self.crash()
    }

    async fn once(
        &mut self,
        held: &Assignment,
        name: &'static str,
        at: &mut Option<StepId>,
    ) -> Result<(), Over> {
        let holder = Holder::new(held.task.id, held.lease_id, "w");
        let item = BeginStep { holder, step: step(name) };
        if self.loses_the_answer() {
            let _ = self.world.tasks.begin_step(item.clone()).await;
        }
        let id = match self.world.tasks.begin_step(item).await {
            Ok(Begun::New(id)) => id,
            Ok(Begun::Ended(step)) => {
                assert_eq!(step.status, StepState::Done, "nobody rejects in this story");
                self.seen.result(self.seed, name, &step.result.unwrap());
                return Ok(());
            }
            Err(Rejection::Refused(refusal)) if refusal.code() == "in_doubt" => {
                self.seen.doubts += 1;
                return Err(Over);
            }
            Err(other) => panic!("seed {}: {other:?}", self.seed),
        };
        *at = Some(id);
        self.crash()?;
        self.seen.runs(name);
        self.crash()?;
        let result = json!({ "by": held.attempt, "run": self.seen.runs[name] });
        let tries = if self.loses_the_answer() { 2 } else { 1 };
        for _ in 0..tries {
            let told = self.end(held, id, &result).await;
            assert!(told.is_ok(), "seed {}: {told:?}", self.seed);
        }
        *at = None;
        self.seen.result(self.seed, name, &result);
        self.crash()
    }

    async fn end(&self, held: &Assignment, id: StepId, result: &serde_json::Value) -> Outcome<()> {
        let end = StepEnd::Complete { result: result.to_string(), checkpoint: None };
        let ended = self.world.tasks.end_step(id, held.lease_id, "w".into(), end).await;
        ended.map(drop)
    }

    /// Somebody who died long ago comes back, and everything it says is refused.
    async fn haunt(&mut self) {
        if self.dead.is_empty() || !self.chance.one_in(4) {
            return;
        }
        let which = self.chance.below(self.dead.len() as u64) as usize;
        let (held, at) = self.dead[which].clone();
        let ghost = json!("a ghost's");
        if let Some(id) = at {
            assert!(self.end(&held, id, &ghost).await.is_err(), "seed {}", self.seed);
        }
        let item = RecordStep {
            holder: Holder::new(held.task.id, held.lease_id, "w"),
            step: step("ghost"),
            result: ghost.to_string(),
            checkpoint: None,
        };
        let recorded = self.world.tasks.record_steps(vec![item]).await.pop().unwrap();
        assert_eq!(refused(recorded), "lease_lost", "seed {}", self.seed);
        let late = self.world.finish(&held, Finishing::Complete(None)).await;
        assert!(late.is_err(), "seed {}: {late:?}", self.seed);
    }

    /// A person looks at the step in doubt.
    async fn person(&mut self) {
        let doubts = Steps::new(self.world.store.clone()).in_doubt(0, 10).await.unwrap();
        let doubt = doubts.first().expect("a parked task waits for a person");
        let (name, _) = *STEPS.iter().find(|(name, _)| *name == doubt.name).unwrap();
        let has_run = self.seen.runs.get(name).copied().unwrap_or_default() > 0;
        let resolution = match has_run && self.chance.one_in(2) {
            true => Resolution::RecordResult(json!("seen by a person").to_string()),
            false => {
                *self.seen.allowed.entry(name).or_default() += 1;
                Resolution::AllowRerun
            }
        };
        if let Resolution::RecordResult(_) = &resolution {
            self.seen.result(self.seed, name, &json!("seen by a person"));
        }
        let resolved = self.world.tasks.resolve_step(doubt.id, resolution, "olga".into(), None);
        resolved.await.unwrap();
    }

    async fn tell(mut self) -> Seen {
        let id = self.world.submit(task(|r| r.max_retries = Some(100))).await;
        for _ in 0..ATTEMPTS {
            match self.world.status(id).await {
                State::Waiting => self.person().await,
                state if state.is_terminal() => break,
                _ => {}
            }
            let mut claim = claim_of("w", &["q"], 1);
            claim.start = true;
            let Some(held) = self.world.tasks.claim(claim).await.unwrap().pop() else { continue };
            let mut at = None;
            if self.attempt(&held, &mut at).await.is_err() {
                self.dead.push((held, at));
                self.world.pass_ms(60_000);
                self.world.tasks.expire_leases(10).await.unwrap();
            }
        }
        assert_eq!(self.world.status(id).await, State::Completed, "seed {}", self.seed);
        for (name, idempotent) in STEPS {
            let runs = self.seen.runs.get(name).copied().unwrap_or_default();
            let most = 1 + self.seen.allowed.get(name).copied().unwrap_or_default();
            assert!(idempotent || runs <= most, "seed {}: `{name}` ran {runs} times", self.seed);
        }
        self.seen
    }
}

async fn crashes_change_no_result_and_repeat_nothing_that_must_not_be(dialect: Dialect) {
    let seeds = std::env::var("WINDLASS_CRASH_SEEDS").map_or(SEEDS, |text| text.parse().unwrap());
    let (mut crashes, mut doubts) = (0, 0);
    let world = World::new(dialect).await;
    for seed in 1..=seeds {
        let chance = Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let story = Story { world: &world, seed, chance, seen: Seen::default(), dead: Vec::new() };
        let seen = story.tell().await;
        crashes += seen.crashes;
        doubts += seen.doubts;
    }
    // A run without them would show nothing.
    assert!(crashes as u64 >= seeds && doubts as u64 >= seeds / 4, "{crashes} {doubts}");
}
