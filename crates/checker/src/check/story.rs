//! Hand-made runs for the tests of the checks: each step tells the clients, the ledger and the
//! database the same thing, and a test then spoils one of them.

use super::{Invariant, Run, Violation, check};
use crate::dump::{Moved, TaskRow};
use crate::ledger::{Effect, Phase};
use crate::log::{Answer, Call, Ending, Handed, Held, Operation, Outcome, Renewed};
use serde_json::{Value, json};
use uuid::Uuid;
use windlass_domain::profile::Profile;
use windlass_domain::state::{Event, State};

pub fn task(n: u128) -> Uuid {
    Uuid::from_u128(n)
}

pub fn lease(n: u128) -> Uuid {
    Uuid::from_u128(1_000_000 + n)
}

/// A second passes with each step.
#[derive(Default)]
pub struct Story {
    pub run: Run,
    now_ms: i64,
}

impl Story {
    /// What the checker finds, in its order.
    pub fn found(&self) -> Vec<Invariant> {
        self.violations().iter().map(|violation| violation.invariant).collect()
    }

    pub fn violations(&self) -> Vec<Violation> {
        check(&self.run)
    }

    pub fn submit(&mut self, task: Uuid) -> &mut Self {
        let payload = json!({ "n": task.as_u128() as u64 });
        let row = TaskRow {
            id: task,
            profile: Profile::Job,
            status: State::Pending,
            payload: payload.clone(),
            result: None,
            attempt: 0,
            retry_count: 0,
            max_retries: 3,
            release_count: 0,
        };
        self.run.dump.tasks.insert(task, row);
        self.step();
        self.history(task, None, Event::Submit, State::Pending, None);
        let answer = Answer::Submitted { duplicate: false };
        self.call(Operation::Submit { task, payload }, answer)
    }

    pub fn claim(&mut self, task: Uuid, lease: Uuid) -> &mut Self {
        self.moved(task, Event::Claim, State::Running, Some(lease));
        let attempt = self.run.dump.tasks[&task].attempt;
        let handed = Handed { held: Held { task, lease }, attempt };
        let session = Uuid::from_u128(u128::from(attempt.unsigned_abs()));
        let operation = Operation::Claim { session, claim: Uuid::from_u128(self.now_ms as u128) };
        self.call(operation, Answer::Claimed(vec![handed]))
    }

    pub fn beat(&mut self, task: Uuid, lease: Uuid) -> &mut Self {
        self.step();
        self.say_beaten(task, lease)
    }

    /// Somebody is told that a lease is renewed, whatever the database says.
    pub fn say_beaten(&mut self, task: Uuid, lease: Uuid) -> &mut Self {
        self.step();
        let held = Held { task, lease };
        let operation = Operation::Heartbeat { session: Uuid::nil(), leases: vec![held] };
        let renewed = vec![Renewed { held, at_ms: None }];
        self.call(operation, Answer::Beaten { renewed, lost: vec![], unnamed: vec![] })
    }

    pub fn effect(&mut self, task: Uuid, lease: Uuid) -> &mut Self {
        for phase in [Phase::Begun, Phase::Ended] {
            self.step();
            let place = format!("ledger:{}", self.run.effects.len() + 1);
            let (held, at_ms, worker) = (Held { task, lease }, self.now_ms, "w".to_owned());
            self.run.effects.push(Effect { phase, held, attempt: 1, worker, at_ms, place });
        }
        self
    }

    pub fn complete(&mut self, task: Uuid, lease: Uuid) -> &mut Self {
        self.effect(task, lease);
        self.moved(task, Event::Complete, State::Completed, Some(lease));
        self.run.dump.tasks.get_mut(&task).unwrap().result = Some(result_of(lease));
        self.say_completed(task, lease, lease)
    }

    /// Somebody is told that a result is accepted, whatever the database says.
    pub fn say_completed(&mut self, task: Uuid, lease: Uuid, content_of: Uuid) -> &mut Self {
        let content = result_of(content_of);
        self.finish(task, lease, Ending::Complete, content, State::Completed)
    }

    pub fn fail(&mut self, task: Uuid, lease: Uuid, to: State) -> &mut Self {
        self.moved(task, Event::Fail, to, Some(lease));
        self.finish(task, lease, Ending::Fail, json!({ "code": "X" }), to)
    }

    pub fn release(&mut self, task: Uuid, lease: Uuid) -> &mut Self {
        self.moved(task, Event::Release, State::Pending, Some(lease));
        self.finish(task, lease, Ending::Release, Value::Null, State::Pending)
    }

    pub fn lose(&mut self, task: Uuid, lease: Uuid) -> &mut Self {
        self.moved(task, Event::LoseLease, State::Retry, Some(lease))
    }

    pub fn show(&mut self, task: Uuid) -> &mut Self {
        let row = &self.run.dump.tasks[&task];
        let answer = Answer::Shown { status: row.status, result: row.result.clone() };
        self.call(Operation::Show { task }, answer)
    }

    /// The database moves the task, and counts.
    pub fn moved(&mut self, task: Uuid, event: Event, to: State, lease: Option<Uuid>) -> &mut Self {
        self.step();
        let row = self.run.dump.tasks.get_mut(&task).unwrap();
        let from = row.status;
        row.status = to;
        row.attempt += i32::from(event == Event::Claim);
        row.retry_count += i32::from(to == State::Retry);
        let is_release = to == State::Pending && event != Event::Submit;
        row.release_count += i32::from(is_release);
        self.history(task, Some(from), event, to, lease);
        self
    }

    /// The database forgets the task's last transition.
    pub fn undo(&mut self, task: Uuid) {
        let last = self.run.dump.history.iter().rposition(|row| row.task == task).unwrap();
        let gone = self.run.dump.history.remove(last);
        let row = self.run.dump.tasks.get_mut(&task).unwrap();
        row.status = gone.from.unwrap();
        row.attempt -= i32::from(gone.event == Event::Claim);
        row.result = None;
    }

    /// Everything that is still alive is cancelled.
    pub fn end_all(&mut self) -> &mut Self {
        let tasks: Vec<Uuid> = self.run.dump.tasks.keys().copied().collect();
        for task in tasks {
            if !self.run.dump.tasks[&task].status.is_terminal() {
                self.moved(task, Event::Cancel, State::Cancelled, None);
            }
        }
        self
    }

    /// No client heard anything.
    pub fn forget_answers(&mut self) {
        for call in &mut self.run.calls {
            call.outcome = Outcome::Unknown { why: "timeout".into() };
        }
    }

    fn finish(
        &mut self,
        task: Uuid,
        lease: Uuid,
        ending: Ending,
        content: Value,
        status: State,
    ) -> &mut Self {
        self.step();
        let (held, session) = (Held { task, lease }, Uuid::nil());
        let operation = Operation::Finish { session, held, ending, content };
        self.call(operation, Answer::Finished(status))
    }

    fn step(&mut self) {
        self.now_ms += 1_000;
    }

    fn history(
        &mut self,
        task: Uuid,
        from: Option<State>,
        event: Event,
        to: State,
        lease: Option<Uuid>,
    ) {
        let seq = self.run.dump.history.len() as i64 + 1;
        let at_ms = self.now_ms;
        self.run.dump.history.push(Moved { task, seq, from, event, to, lease, at_ms });
    }

    fn call(&mut self, operation: Operation, answer: Answer) -> &mut Self {
        let place = format!("log:{}", self.run.calls.len() + 1);
        self.run.calls.push(Call {
            client: "c".into(),
            node: "n".into(),
            place,
            invoked_ms: self.now_ms - 1,
            returned_ms: self.now_ms + 1,
            operation,
            outcome: Outcome::Ok(answer),
        });
        self
    }
}

fn result_of(lease: Uuid) -> Value {
    json!({ "by": lease })
}
