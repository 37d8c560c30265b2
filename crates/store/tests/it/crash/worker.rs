//! A worker of the story, one instruction at a time: what it would do next, doing it, and what
//! follows from the answer. It knows what it was answered and nothing else; above all it does not
//! know whether its lease still holds.

use super::{Chance, STEPS, Seen};
use crate::world::*;
use serde_json::{Value, json};
use windlass_domain::failure::TaskError;
use windlass_domain::id::StepId;
use windlass_domain::state::State;
use windlass_domain::step::{CheckedStep, Effect, StepInput, StepState, check};
use windlass_store::error::Rejection;
use windlass_store::group::Outcome;
use windlass_store::step::{Step, Steps};
use windlass_store::task::{Assignment, BeginStep, Begun, Holder, RecordStep, Recorded, StepEnd};

/// The number of a run.
type Run = Option<i64>;

/// Where it stands within a step.
#[derive(Clone, Debug)]
enum Stand {
    /// At its beginning.
    Before,
    /// It was not done before, so it may run.
    MayRun,
    /// Its intent is written, so it may run.
    Intended(StepId, Run),
    /// It ran, and this came of it.
    Ran(Value),
    /// How it ended is to be told.
    Ending(StepId, Run, StepEnd),
}

/// One call, or one deed in the world outside.
#[derive(Clone, Debug)]
enum Instruction {
    Look,
    Act,
    Record(RecordStep),
    Begin(BeginStep),
    End(StepId, Run, StepEnd),
    Beat(String),
    Finish,
}

/// What came of it.
enum Answer {
    Known(Option<Box<Step>>),
    Acted,
    Recorded(Outcome<Recorded>),
    Begun(Outcome<Begun>),
    Ended(Outcome<()>),
    Beaten(Outcome<()>),
    Finished(Outcome<State>),
}

/// The worker does nothing more: it died, its task is parked, or it has ended.
#[derive(Debug)]
pub struct Gone;

pub struct Worker {
    pub held: Assignment,
    at: usize,
    stand: Stand,
    next: Instruction,
    /// A failure that it told: a copy of that call may be on its way still.
    told: Option<(StepId, Run, StepEnd)>,
}

fn step(name: &str) -> CheckedStep {
    check(&StepInput { name, kind: None, inputs: None, occurrence: None }).unwrap()
}

impl Worker {
    pub fn new(held: Assignment) -> Worker {
        Worker { held, at: 0, stand: Stand::Before, next: Instruction::Look, told: None }
    }

    fn name(&self) -> &'static str {
        STEPS[self.at].0
    }

    fn holder(&self) -> Holder {
        Holder::new(self.held.task.id, self.held.lease_id, "w")
    }

    /// With which step it came, and in whose attempt.
    fn checkpoint(&self, step: Option<&str>) -> String {
        json!({ "step": step, "attempt": self.held.attempt }).to_string()
    }

    /// Chooses what it does next.
    pub fn choose(&mut self, chance: &mut Chance) {
        if chance.one_in(6) {
            self.next = Instruction::Beat(self.checkpoint(None));
            return;
        }
        let Some((name, idempotent)) = STEPS.get(self.at).copied() else {
            self.next = Instruction::Finish;
            return;
        };
        let checkpoint = chance.one_in(2).then(|| self.checkpoint(Some(name)));
        self.next = match (&self.stand, idempotent) {
            (Stand::Before, true) => Instruction::Look,
            (Stand::Before, false) => {
                Instruction::Begin(BeginStep { holder: self.holder(), step: step(name) })
            }
            (Stand::MayRun | Stand::Intended(..), _) => Instruction::Act,
            (Stand::Ran(result), _) => Instruction::Record(RecordStep {
                holder: self.holder(),
                step: step(name),
                result: result.to_string(),
                checkpoint,
            }),
            (Stand::Ending(id, run, StepEnd::Complete { result, .. }), _) => {
                let end = StepEnd::Complete { result: result.clone(), checkpoint };
                Instruction::End(*id, *run, end)
            }
            (Stand::Ending(id, run, end), _) => Instruction::End(*id, *run, end.clone()),
        };
    }

    /// Does it, and says how often if the answer was lost.
    pub async fn act(&self, world: &World, times: usize) -> Answers {
        let mut answers = Vec::new();
        for _ in 0..times {
            answers.push(self.act_once(world).await);
        }
        Answers(answers)
    }

    async fn act_once(&self, world: &World) -> Answer {
        match &self.next {
            Instruction::Look => {
                let id = step(self.name()).key.id(self.held.task.id);
                let known = Steps::new(world.store.clone()).show(self.held.task.id, id).await;
                Answer::Known(known.unwrap().map(Box::new))
            }
            Instruction::Act => Answer::Acted,
            Instruction::Record(item) => {
                let recorded = world.tasks.record_steps(vec![item.clone()]).await;
                Answer::Recorded(recorded.into_iter().next().unwrap())
            }
            Instruction::Begin(item) => Answer::Begun(world.tasks.begin_step(item.clone()).await),
            Instruction::End(id, run, end) => {
                Answer::Ended(self.tell_end(world, *id, *run, end.clone()).await)
            }
            Instruction::Beat(checkpoint) => {
                let beaten = world.tell(&self.held, Some(checkpoint), None).await;
                Answer::Beaten(beaten.map(drop))
            }
            Instruction::Finish => Answer::Finished(world.finish(&self.held, complete()).await),
        }
    }

    async fn tell_end(&self, world: &World, id: StepId, run: Run, end: StepEnd) -> Outcome<()> {
        let lease = self.held.lease_id;
        world.tasks.end_step(id, lease, run, "w".into(), end).await.map(drop)
    }

    /// A copy of an earlier call comes late, when the step has begun again: it ends nothing.
    pub async fn repeat_late(&self, world: &World, seen: &mut Seen) {
        let Stand::Intended(id, run) = self.stand else { return };
        let Some((_, earlier, end)) = self.told.clone().filter(|told| told.0 == id) else { return };
        assert_ne!(earlier, run, "seed {}", seen.seed);
        let code = refused(self.tell_end(world, id, earlier, end).await);
        assert!(["already_finished", "lease_lost"].contains(&code), "seed {}: {code}", seen.seed);
        seen.late += 1;
    }

    /// What follows. A lost answer was the first of two: only the last one is known to the worker.
    pub fn follow(
        &mut self,
        answers: Answers,
        chance: &mut Chance,
        seen: &mut Seen,
    ) -> Result<(), Gone> {
        let answer = answers.0.into_iter().next_back().expect("it was done at least once");
        match answer {
            Answer::Known(known) => {
                let known = known.filter(|step| step.status == StepState::Done);
                self.stand = Stand::MayRun;
                if let Some(step) = known {
                    seen.result(&step.name, &step.result.unwrap());
                    self.go_on();
                }
                Ok(())
            }
            Answer::Acted => {
                self.run(chance, seen);
                Ok(())
            }
            Answer::Recorded(Ok(recorded)) => {
                let Stand::Ran(own) = &self.stand else { panic!("{:?}", self.stand) };
                seen.result(self.name(), recorded.earlier.as_ref().unwrap_or(own));
                self.go_on();
                Ok(())
            }
            Answer::Begun(Ok(Begun::New(id, run))) => {
                self.stand = Stand::Intended(id, run);
                Ok(())
            }
            Answer::Begun(Ok(Begun::Ended(step))) => {
                match step.status {
                    StepState::Done => seen.result(&step.name, &step.result.unwrap()),
                    StepState::Rejected => seen.rejections += 1,
                    other => panic!("seed {}: ended as {other}", seen.seed),
                }
                self.go_on();
                Ok(())
            }
            Answer::Ended(Ok(())) => {
                match std::mem::replace(&mut self.stand, Stand::Before) {
                    Stand::Ending(_, _, StepEnd::Complete { result, .. }) => {
                        seen.result(self.name(), &serde_json::from_str(&result).unwrap());
                        self.go_on();
                    }
                    // It failed: whether it may run again is asked anew.
                    Stand::Ending(id, run, end) => {
                        self.told = Some((id, run, end));
                        seen.failures += 1;
                    }
                    other => panic!("seed {}: {other:?}", seen.seed),
                }
                Ok(())
            }
            Answer::Beaten(Ok(())) => Ok(()),
            Answer::Finished(Ok(state)) => {
                assert_eq!(state, State::Completed, "seed {}", seen.seed);
                Err(Gone)
            }
            Answer::Recorded(Err(rejection))
            | Answer::Begun(Err(rejection))
            | Answer::Ended(Err(rejection))
            | Answer::Beaten(Err(rejection))
            | Answer::Finished(Err(rejection)) => self.refused(&rejection, chance, seen),
        }
    }

    fn go_on(&mut self) {
        self.at += 1;
        self.stand = Stand::Before;
    }

    /// Does what the step is about, in the world outside.
    fn run(&mut self, chance: &mut Chance, seen: &mut Seen) {
        let name = self.name();
        let Stand::Intended(id, run) = self.stand else {
            seen.ran(name);
            self.stand = Stand::Ran(json!({ "by": self.held.attempt, "n": chance.below(1 << 20) }));
            return;
        };
        let fails = |effect| StepEnd::Fail { error: TaskError::new("BROKEN", "it broke"), effect };
        let end = match chance.below(8) {
            // It saw in time that it cannot.
            0..=2 => fails(Effect::None),
            // It broke, and only the world knows whether before or after.
            3 | 4 => {
                if chance.one_in(2) {
                    seen.ran(name);
                }
                fails(Effect::Unknown)
            }
            _ => {
                let result = json!({ "by": self.held.attempt, "run": seen.ran(name) });
                StepEnd::Complete { result: result.to_string(), checkpoint: None }
            }
        };
        self.stand = Stand::Ending(id, run, end);
    }

    /// Somebody else has the task, or a person must look. Some workers do not listen and go on with
    /// the next step; what was refused to them they did not do.
    fn refused(
        &mut self,
        rejection: &Rejection,
        chance: &mut Chance,
        seen: &mut Seen,
    ) -> Result<(), Gone> {
        let Rejection::Refused(refusal) = rejection else {
            panic!("seed {}: {rejection:?}", seen.seed)
        };
        match refusal.code() {
            "in_doubt" => {
                seen.doubts += 1;
                Err(Gone)
            }
            "lease_lost" => {
                seen.lost += 1;
                if chance.one_in(3) || matches!(self.next, Instruction::Finish) {
                    return Err(Gone);
                }
                if !matches!(self.next, Instruction::Beat(_)) {
                    self.go_on();
                }
                Ok(())
            }
            other => panic!("seed {}: {other} to {:?}", seen.seed, self.next),
        }
    }

    /// Whoever ended a step tells it once more, but otherwise.
    pub async fn contradict(&self, world: &World, seen: &Seen) {
        let Instruction::End(id, run, told) = &self.next else { return };
        let other = match told {
            StepEnd::Complete { .. } => {
                StepEnd::Complete { result: "\"otherwise\"".into(), checkpoint: None }
            }
            StepEnd::Fail { error, effect: Effect::None } => {
                StepEnd::Fail { error: error.clone(), effect: Effect::Unknown }
            }
            StepEnd::Fail { error, .. } => {
                StepEnd::Fail { error: error.clone(), effect: Effect::None }
            }
        };
        let code = refused(self.tell_end(world, *id, *run, other).await);
        assert_eq!(code, "already_finished", "seed {}", seen.seed);
    }
}

/// What a worker was answered, each time that it asked.
pub struct Answers(Vec<Answer>);

impl Answers {
    /// Whether a step was ended just now, or was before by the same words.
    pub fn has_ended_a_step(&self) -> bool {
        matches!(self.0.last(), Some(Answer::Ended(Ok(()))))
    }
}
