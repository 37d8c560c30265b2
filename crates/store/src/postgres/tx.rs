//! A transaction on one connection.
//!
//! Invariants: BEGIN travels with the first statement. After the first error nothing more is sent
//! and COMMIT is never tried, whatever the body makes of the error: the server would answer COMMIT
//! with ROLLBACK and no error. Whatever ends badly while COMMIT may have been carried out is
//! ambiguous, unless the server itself said that it undid the transaction.

use super::connection::{Connection, Step};
use super::decode::decode_rows;
use super::encode::encode_call;
use super::error::{Failure, Verdict, failure};
use super::text::text_of_call;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::statement::{Dialect, Statement};
use crate::tx::{Call, Check, Tx};
use crate::value::Row;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use windlass_domain::time::Timestamp;

static NOW: Statement =
    Statement::new("now", "", "SELECT date_trunc('milliseconds', clock_timestamp())");

/// The statement that lets one program migrate at a time.
const MIGRATION_LOCK: &str = "schema/lock";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Nothing was sent.
    Fresh,
    /// BEGIN was sent.
    Begun,
    /// COMMIT was sent.
    Over,
}

/// An open transaction.
pub(super) struct PostgresTx<'a> {
    runtime: &'a Runtime,
    connection: &'a mut Connection,
    clock: &'a Clock,
    answer_timeout: Duration,
    doubted: Option<Instant>,
    phase: Phase,
    now: Option<Timestamp>,
    failure: Option<Failure>,
    scripted: bool,
    /// Goes with the next flight.
    ahead: Vec<(&'static str, Step<'static>)>,
    /// Asked before COMMIT is sent.
    check: Option<Check>,
}

type Answers = Vec<Vec<tokio_postgres::Row>>;

impl<'a> PostgresTx<'a> {
    pub fn new(
        runtime: &'a Runtime,
        connection: &'a mut Connection,
        clock: &'a Clock,
        answer_timeout: Duration,
    ) -> PostgresTx<'a> {
        PostgresTx {
            runtime,
            connection,
            clock,
            answer_timeout,
            doubted: None,
            phase: Phase::Fresh,
            now: None,
            failure: None,
            scripted: false,
            ahead: Vec::new(),
            check: None,
        }
    }

    /// When its job came, if a commit of that was in doubt.
    pub fn doubted(self, doubted: Option<Instant>) -> PostgresTx<'a> {
        PostgresTx { doubted, ..self }
    }

    /// Whether a script ran, here or elsewhere, after which prepared statements may be stale.
    pub fn scripted(&self) -> bool {
        self.scripted
    }

    /// Commits if the body is content, else rolls back.
    pub fn conclude(&mut self, returned: Result<()>) -> Result<(), Failure> {
        let outcome = match (self.failure.take(), returned) {
            // The first error stands, even if the body swallowed it.
            (Some(failure), Ok(())) => Err(failure),
            // A doubt is ours to tell; any other error the body may have put into its own words.
            (Some(failure), Err(_)) if failure.verdict == Verdict::Ambiguous => Err(failure),
            (Some(failure), Err(error)) => Err(Failure { error, ..failure }),
            (None, Err(error)) => Err(Failure::of(error)),
            (None, Ok(())) if self.phase == Phase::Begun => self.end(Vec::new()).map(drop),
            (None, Ok(())) => Ok(()),
        };
        outcome.map_err(|failure| self.roll_back(failure))
    }

    fn roll_back(&mut self, mut failure: Failure) -> Failure {
        if self.phase == Phase::Begun && !failure.discard {
            self.phase = Phase::Over;
            let undone = self.exchange(&[("rollback", Step::Command("ROLLBACK"))]);
            let undone = undone.is_ok_and(|answers| answers.iter().all(Result::is_ok));
            failure.discard |= !undone;
        }
        failure
    }

    /// Refuses further work after a failure or a commit.
    fn usable(&self) -> Result<()> {
        match &self.failure {
            Some(failure) => Err(failure.error.clone()),
            None if self.phase == Phase::Over => Err(Error::Internal {
                operation: "transaction".into(),
                detail: "the body went on after it had committed".into(),
            }),
            None => Ok(()),
        }
    }

    /// Remembers the first failure and tells the body its error.
    fn told<T>(&mut self, outcome: Result<T, Failure>) -> Result<T> {
        outcome.map_err(|failure| {
            let error = failure.error.clone();
            self.failure.get_or_insert(failure);
            error
        })
    }

    fn step<'s>(&mut self, call: &Call<'s>) -> Result<(&'s str, Step<'s>), Failure> {
        let name = call.statement.name;
        if self.connection.is_pooled() {
            let parameters = text_of_call(call).map_err(Failure::of)?;
            let sql = call.statement.text(Dialect::Postgres);
            return Ok((name, Step::ParseAndRun(sql, parameters)));
        }
        let limit = self.answer_timeout;
        let prepared = self
            .runtime
            .block_on(async { tokio::time::timeout(limit, self.connection.prepare(call)).await });
        let prepared = match prepared {
            Ok(Ok(prepared)) => prepared,
            Ok(Err(error)) => return Err(failure(name, &error)),
            Err(_) => return Err(silent(name)),
        };
        let parameters = encode_call(call, &prepared).map_err(Failure::of)?;
        Ok((name, Step::Run(prepared, parameters)))
    }

    fn exchange(
        &self,
        steps: &[(&str, Step<'_>)],
    ) -> Result<Vec<Result<Vec<tokio_postgres::Row>, Failure>>, Failure> {
        self.exchange_within(steps, self.answer_timeout)
    }

    fn exchange_within(
        &self,
        steps: &[(&str, Step<'_>)],
        limit: Duration,
    ) -> Result<Vec<Result<Vec<tokio_postgres::Row>, Failure>>, Failure> {
        let sent = steps.iter().map(|(_, step)| step);
        let answers = self.runtime.block_on(self.connection.pipeline(sent, limit));
        let answers = answers.map_err(|_| silent(steps.last().map_or("", |(name, _)| name)))?;
        let named = answers.into_iter().zip(steps);
        Ok(named.map(|(answer, (name, _))| answer.map_err(|e| failure(name, &e))).collect())
    }

    /// Runs one step inside the transaction, with BEGIN before it if that was not sent yet.
    fn within(
        &mut self,
        step: (&str, Step<'_>),
        limit: Duration,
    ) -> Result<Vec<tokio_postgres::Row>, Failure> {
        let mut steps = Vec::with_capacity(2);
        let fresh = self.phase == Phase::Fresh;
        if fresh {
            steps.push(begin());
            self.phase = Phase::Begun;
        }
        steps.extend(std::mem::take(&mut self.ahead));
        steps.push(step);
        let mut answers = self.exchange_within(&steps, limit)?.into_iter();
        if fresh {
            begun(answers.next())?;
        }
        // The first error is the cause of those behind it.
        let mut last = Vec::new();
        for answer in answers {
            last = answer?;
        }
        Ok(last)
    }

    /// Runs the steps and commits, in one flight.
    fn end(&mut self, mut steps: Vec<(&str, Step<'_>)>) -> Result<Answers, Failure> {
        if let Some(check) = &self.check {
            check().map_err(Failure::of)?;
        }
        let warnings = self.connection.warnings();
        let ahead = self.ahead.len();
        steps.splice(0..0, self.ahead.drain(..));
        // A lone statement is its own transaction: the server commits it before it is ready for
        // the next one, which is what the driver waits for. Behind a pooler it needs its settings.
        let alone = self.phase == Phase::Fresh && steps.len() == 1 && !self.connection.is_pooled();
        let fresh = self.phase == Phase::Fresh && !alone;
        if fresh {
            steps.insert(0, begin());
        }
        if !alone {
            steps.push(("commit", Step::Command("COMMIT")));
        }
        self.phase = Phase::Over;
        let answers = self.exchange(&steps).map_err(|silent| {
            self.connection.overdue = true;
            in_doubt(Failure { discard: false, ..silent })
        })?;
        let mut answers = answers.into_iter();
        if fresh {
            begun(answers.next()).map_err(in_doubt)?;
        }
        let answers: Result<Answers, Failure> = answers.collect();
        let mut rows = answers.map_err(|failure| {
            // An error that the server reports without hanging up means that it undid everything.
            if failure.refused { failure } else { in_doubt(failure) }
        })?;
        rows.drain(..ahead);
        if !alone {
            rows.pop();
        }
        if self.connection.warnings() != warnings {
            // Such as: the wait for the synchronous standby was cancelled. Warnings of the
            // statements count too, as they cannot be told apart; ours raise none.
            let warning = self.connection.last_warning();
            return Err(in_doubt(Failure::of(Error::Unavailable(warning))));
        }
        Ok(rows)
    }
}

impl Tx for PostgresTx<'_> {
    fn dialect(&self) -> Dialect {
        Dialect::Postgres
    }

    fn only_if(&mut self, check: Check) {
        self.check = Some(check);
    }

    fn in_doubt(&self) -> Option<Duration> {
        self.doubted.map(|since| since.elapsed())
    }

    fn now(&mut self) -> Result<Timestamp> {
        if let Some(now) = self.now.or_else(|| self.fixed_now()) {
            self.now = Some(now);
            return Ok(now);
        }
        let rows = self.run(Call::one(&NOW, Vec::new()))?;
        let empty = || Error::Corrupt("the server's clock gave no time".into());
        let now = rows.first().ok_or_else(empty)?.time(0)?;
        self.now = Some(now);
        Ok(now)
    }

    fn fixed_now(&self) -> Option<Timestamp> {
        self.clock.fixed()
    }

    fn run(&mut self, call: Call<'_>) -> Result<Vec<Row>> {
        self.usable()?;
        // Whoever has waited for this lock may find that another program has migrated.
        self.scripted |= call.statement.name == MIGRATION_LOCK;
        let limit = self.answer_timeout;
        let rows = self.step(&call).and_then(|step| self.within(step, limit));
        let rows = self.told(rows)?;
        let decoded = decode_rows(call.statement.name, &rows).map_err(Failure::of);
        self.told(decoded)
    }

    fn ahead(&mut self, call: Call<'static>) -> Result<()> {
        self.usable()?;
        let step = self.step(&call);
        let step = self.told(step)?;
        self.ahead.push(step);
        Ok(())
    }

    fn script(&mut self, sql: &str) -> Result<()> {
        self.usable()?;
        self.scripted = true;
        // A migration takes the time it takes; it sets its own limits on the server.
        let done = self.within(("script", Step::Command(sql)), Duration::MAX);
        self.connection.forget_statements();
        self.told(done.map(drop))
    }

    fn run_and_commit(&mut self, calls: Vec<Call<'_>>) -> Result<Vec<Vec<Row>>> {
        self.usable()?;
        let steps: Result<Vec<_>, Failure> = calls.iter().map(|call| self.step(call)).collect();
        let answers =
            steps.and_then(|steps| match steps.is_empty() && self.phase == Phase::Fresh {
                true => Ok(Vec::new()),
                false => self.end(steps),
            });
        let answers = self.told(answers)?;
        let named = calls.iter().zip(&answers);
        named.map(|(call, rows)| decode_rows(call.statement.name, rows)).collect()
    }
}

fn begin() -> (&'static str, Step<'static>) {
    ("begin", Step::Begin)
}

/// BEGIN hardly ever fails. If it does while a statement is in flight behind it, that statement
/// ran, and was committed, on its own.
fn begun(answer: Option<Result<Vec<tokio_postgres::Row>, Failure>>) -> Result<(), Failure> {
    match answer {
        Some(Err(failure)) if failure.refused => {
            Err(Failure { discard: true, ..in_doubt(failure) })
        }
        Some(Err(failure)) => Err(failure),
        _ => Ok(()),
    }
}

fn silent(operation: &str) -> Failure {
    Failure::lost(Error::Timeout(format!("{operation}: no answer from the server")))
}

fn in_doubt(failure: Failure) -> Failure {
    let error = Error::OutcomeUnknown(format!("no clear answer to COMMIT: {}", failure.error));
    Failure { error, ..failure }.ambiguous()
}
