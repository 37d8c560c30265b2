//! Random commands that make sense often enough: a shadow of the model tells who holds what.

use super::oracle::{Mutant, Oracle};
use super::random::Random;
use super::step::*;
use windlass_domain::profile::Profile;
use windlass_domain::state::State;
use windlass_domain::time::Timestamp;

/// Codes of every class: retried, final, poison, unknown.
const CODES: &[&str] =
    &["TIMEOUT", "RATE_LIMITED", "INVALID_INPUT", "POISON_TASK", "ODD", "BUDGET_EXCEEDED"];
const QUEUES: usize = 3;
const SESSIONS: usize = 4;
/// Past this many tasks old ones are no longer named: what is finished bores.
const RECENT: usize = 60;

pub struct Generator {
    random: Random,
    shadow: Oracle,
    tasks: usize,
    claims: usize,
    last: Vec<Step>,
    submitted: Vec<New>,
}

/// Steps for at least so many commands.
pub fn steps(seed: u64, commands: usize, now: Timestamp) -> Vec<Step> {
    let mut generator = Generator {
        random: Random::new(seed),
        shadow: Oracle::new(now, Mutant::None),
        tasks: 0,
        claims: 0,
        last: Vec::new(),
        submitted: Vec::new(),
    };
    let (mut steps, mut count) = (Vec::new(), 0);
    while count < commands {
        let step = generator.step();
        generator.shadow.apply(&step);
        count += step.commands();
        generator.last.push(step.clone());
        if generator.last.len() > 8 {
            generator.last.remove(0);
        }
        steps.push(step);
    }
    steps
}

impl Generator {
    fn step(&mut self) -> Step {
        let repeat = self.random.percent(4) && !self.last.is_empty();
        if repeat {
            return self.random.pick(&self.last).clone();
        }
        match self.random.below(100) {
            0..14 => Step::Submit(self.items(4, Self::new_task)),
            14..34 => Step::Claim(self.take()),
            34..42 => Step::Start(self.items(4, Self::hold)),
            42..54 => Step::Beat(self.items(4, Self::beat)),
            54..74 => Step::Finish(self.items(4, Self::end)),
            74..84 => self.ask(),
            84..91 => Step::Sweep(self.sweep()),
            _ => Step::Pass { ms: self.pause() },
        }
    }

    fn items<T>(&mut self, max: usize, make: fn(&mut Self) -> T) -> Vec<T> {
        let count = 1 + self.random.below(max);
        (0..count).map(|_| make(self)).collect()
    }

    fn pause(&mut self) -> i64 {
        match self.random.below(10) {
            0..4 => self.random.between(1, 2_000),
            4..7 => self.random.between(2_000, 60_000),
            7..9 => self.random.between(60_000, 15 * 60_000),
            _ => self.random.between(15 * 60_000, 2 * 3_600_000),
        }
    }

    fn new_task(&mut self) -> New {
        if self.random.percent(12) && !self.submitted.is_empty() {
            let mut again = self.random.pick(&self.submitted).clone();
            if self.random.percent(40) {
                again.payload += 1;
            }
            if self.random.percent(30) {
                again.task = self.tasks;
                self.tasks += 1;
            }
            return again;
        }
        let new = self.fresh_task();
        self.tasks += 1;
        self.submitted.push(new.clone());
        if self.submitted.len() > RECENT {
            self.submitted.remove(0);
        }
        new
    }

    fn fresh_task(&mut self) -> New {
        let profiles = [Profile::Job, Profile::Job, Profile::Delegation, Profile::Inference];
        let random = &mut self.random;
        let profile = if random.percent(10) { Profile::Ledger } else { *random.pick(&profiles) };
        let at_ms = random.maybe(15, |r| r.between(-5_000, 60_000));
        New {
            task: self.tasks,
            profile,
            queue: random.below(QUEUES),
            priority: *random.pick(&[0, 0, 0, 1, 5, -3, 32_767, -32_768]),
            at_ms,
            delay_ms: random.maybe(if at_ms.is_some() { 0 } else { 20 }, |r| r.between(0, 90_000)),
            deadline_ms: random.maybe(15, |r| r.between(0, 20 * 60_000)),
            key: random.maybe(15, |r| r.below(12)),
            payload: random.below(3),
            max_retries: random.maybe(70, |r| r.below(4) as i32),
            steady: random.percent(30),
        }
    }

    fn take(&mut self) -> Take {
        // The same call again, or a fresh one.
        let again = self.random.percent(8) && self.claims > 0;
        if !again {
            self.claims += 1;
        }
        let mut queues: Vec<usize> = (0..QUEUES).collect();
        queues.rotate_left(self.random.below(QUEUES));
        queues.truncate(1 + self.random.below(QUEUES));
        let mut profiles = Profile::ALL.to_vec();
        profiles.rotate_left(self.random.below(Profile::ALL.len()));
        // One kind a claim: kinds take turns in a queue, by heads that a node may know or not; what
        // is sure of that is in the facts about turns.
        profiles.truncate(1);
        Take {
            claim: self.claims,
            session: self.random.below(SESSIONS),
            queues,
            profiles,
            max: self.random.below(6),
            lease_ms: self.random.maybe(40, |r| r.between(1, 120_000)),
            start: self.random.percent(40),
        }
    }

    /// A task, mostly one that is alive; sometimes one that never was.
    fn task(&mut self, wanted: fn(State) -> bool) -> usize {
        let from = self.tasks.saturating_sub(RECENT);
        let status = |n: usize| self.shadow.tasks.get(&task_id(n)).map(|k| k.snapshot.status);
        let alive: Vec<usize> =
            (from..self.tasks).filter(|&n| status(n).is_some_and(wanted)).collect();
        if !alive.is_empty() && self.random.percent(85) {
            return *self.random.pick(&alive);
        }
        from + self.random.below(self.tasks - from + 2)
    }

    /// The lease of its holder, of an earlier one, of another task, or none at all.
    fn lease(&mut self, task: usize) -> Lease {
        let attempts =
            |n: usize| self.shadow.tasks.get(&task_id(n)).map_or(0, |k| k.snapshot.attempt);
        let (now, other) = (attempts(task), self.random.below(self.tasks + 1));
        match self.random.below(100) {
            0..80 => Lease { task, attempt: now },
            80..90 => Lease { task, attempt: now - 1 },
            90..95 => Lease { task: other, attempt: attempts(other) },
            _ => Lease { task, attempt: 999 },
        }
    }

    fn hold(&mut self) -> Hold {
        let task = self.task(State::is_held);
        Hold { task, lease: self.lease(task) }
    }

    fn beat(&mut self) -> BeatOf {
        BeatOf {
            hold: self.hold(),
            lease_ms: self.random.maybe(50, |r| r.between(1, 300_000)),
            checkpoint: self.random.maybe(40, |r| r.below(1_000)),
            progress: self.random.maybe(20, |r| r.below(1_000)),
        }
    }

    fn end(&mut self) -> End {
        let how = match self.random.below(10) {
            0..3 => How::Complete { result: self.random.maybe(70, |r| r.below(3)) },
            3..6 => How::Fail {
                code: CODES[self.random.below(CODES.len())],
                retry_after_ms: self.random.maybe(30, |r| r.between(0, 120_000)),
                chance: self.random.below(1_000) as f64 / 1_000.0,
            },
            _ => How::Release,
        };
        End { hold: self.hold(), how }
    }

    fn ask(&mut self) -> Step {
        match self.random.below(20) {
            0..3 => Step::Ask { task: self.task(|s| !s.is_terminal()), what: What::Cancel },
            3..8 => {
                let Hold { task, lease } = self.hold();
                Step::Ask { task, what: What::Wait { lease } }
            }
            8..13 => Step::Ask { task: self.task(|s| s == State::Waiting), what: What::Wake },
            13..18 => self.ledger(),
            _ => {
                let what = [What::ReleaseTooOften, What::Approve, What::Deny];
                let what = self.random.pick(&what).clone();
                Step::Ask { task: self.task(|s| !s.is_terminal()), what }
            }
        }
    }

    fn ledger(&mut self) -> Step {
        let from = self.tasks.saturating_sub(RECENT);
        let is_open = |n: &usize| {
            self.shadow.tasks.get(&task_id(*n)).is_some_and(|k| {
                k.snapshot.profile == Profile::Ledger && !k.snapshot.status.is_terminal()
            })
        };
        let open: Vec<usize> = (from..self.tasks).filter(is_open).collect();
        let any = open.is_empty() || self.random.percent(10);
        let task = if any { self.task(|_| true) } else { *self.random.pick(&open) };
        if self.random.percent(40) {
            return Step::Ask { task, what: What::ReportBeat };
        }
        let to = *self.random.pick(State::ALL);
        Step::Ask { task, what: What::Report { to, failed: self.random.percent(50) } }
    }

    fn sweep(&mut self) -> Sweep {
        match self.random.below(10) {
            0..5 => Sweep::Leases,
            5..7 => Sweep::Deadlines,
            7 => Sweep::Pending,
            _ => Sweep::Session(self.random.below(SESSIONS)),
        }
    }
}
