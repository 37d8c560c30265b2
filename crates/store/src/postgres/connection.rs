//! One connection: prepared statements, pipelines, warnings.
//!
//! Invariant: a pipeline is sent in order and in one flight; its answers come in order.

use super::encode::Encoded;
use super::text::{Text, UNSPECIFIED};
use super::{lane, pooler};
use crate::statement::Dialect;
use crate::tx::Call;
use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Row, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

/// How long we bother to tell the server that nobody waits for an answer any more.
const CANCEL_LIMIT: Duration = Duration::from_secs(1);

/// The warnings that a connection has heard.
#[derive(Default)]
pub(super) struct Notices {
    count: AtomicU64,
    last: Mutex<String>,
}

impl Notices {
    pub fn record(&self, message: &str) {
        message.clone_into(&mut self.last.lock().unwrap_or_else(|e| e.into_inner()));
        self.count.fetch_add(1, Ordering::SeqCst);
    }
}

/// One thing to send.
pub(super) enum Step<'a> {
    /// The beginning of a transaction.
    Begin,
    /// A command without parameters: COMMIT, a script.
    Command(&'a str),
    /// A prepared statement with its parameters.
    Run(Statement, Vec<Encoded>),
    /// A statement without a name, parsed and run in one flight, as behind a pooler.
    ParseAndRun(&'a str, Vec<Text>),
    /// A synced commit that changes nothing.
    Probe,
}

/// The time limit passed before all answers came.
pub(super) struct Silent;

/// An open connection and what it remembers.
pub(super) struct Connection {
    client: Client,
    driver: JoinHandle<()>,
    notices: Arc<Notices>,
    /// By name and whether they are for one item, with the text they were made from.
    prepared: HashMap<(&'static str, bool), (String, Statement)>,
    /// What the schema was when statements and types were asked for.
    pub schema_epoch: u64,
    /// Behind a transaction pooler: how each transaction begins.
    begin: Option<String>,
    /// The answer to a COMMIT is overdue: the server waits for its standby. The connection is
    /// kept and not cancelled. To cancel would show the unconfirmed rows to others, who could
    /// then acknowledge what a failover still loses; to hang up would leave a backend behind.
    pub overdue: bool,
}

impl Connection {
    pub fn new(
        client: Client,
        driver: JoinHandle<()>,
        notices: Arc<Notices>,
        begin: Option<String>,
    ) -> Connection {
        Connection {
            client,
            driver,
            notices,
            prepared: HashMap::new(),
            schema_epoch: 0,
            begin,
            overdue: false,
        }
    }

    pub fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Whether a transaction pooler is in between.
    pub fn is_pooled(&self) -> bool {
        self.begin.is_some()
    }

    /// Whether the driver knows the types of a schema that has changed since: behind a pooler it
    /// cannot ask again.
    pub fn is_outdated(&self, schema_epoch: u64) -> bool {
        self.is_pooled() && self.schema_epoch != schema_epoch && !self.overdue
    }

    /// How many warnings came so far.
    pub fn warnings(&self) -> u64 {
        self.notices.count.load(Ordering::SeqCst)
    }

    pub fn last_warning(&self) -> String {
        self.notices.last.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }

    /// Forgets prepared statements and types if the schema was changed since they were made.
    pub fn refresh(&mut self, schema_epoch: u64) {
        if !self.is_pooled() && self.schema_epoch != schema_epoch {
            self.forget_statements();
            self.schema_epoch = schema_epoch;
        }
    }

    /// Forgets prepared statements and types, but behind a pooler.
    pub fn forget_statements(&mut self) {
        if !self.is_pooled() {
            self.prepared.clear();
            self.client.clear_type_cache();
        }
    }

    /// The prepared form of a call's statement; asks the server only the first time.
    pub async fn prepare(&mut self, call: &Call<'_>) -> Result<Statement, Error> {
        let is_one = call.items.as_ref().is_some_and(|items| items.len() == 1);
        let text = match is_one {
            true => call.statement.text_for_one(call.shared.len()),
            false => call.statement.text(Dialect::Postgres),
        };
        let key = (call.statement.name, is_one);
        match self.prepared.get(&key) {
            // To compare the text is cheaper than to hash it.
            Some((known, prepared)) if known == text => return Ok(prepared.clone()),
            _ => {}
        }
        let prepared = self.client.prepare(text).await?;
        self.prepared.insert(key, (text.to_owned(), prepared.clone()));
        Ok(prepared)
    }

    /// Sends all steps at once and waits for all answers.
    pub async fn pipeline<'s>(
        &'s self,
        steps: impl Iterator<Item = &'s Step<'s>>,
        limit: Duration,
    ) -> Result<Vec<Result<Vec<Row>, Error>>, Silent> {
        let futures = steps.map(|step| self.send(step)).collect();
        timeout(limit, all(futures)).await.map_err(|_| Silent)
    }

    fn send<'a>(&'a self, step: &'a Step<'a>) -> Answer<'a> {
        match step {
            Step::Begin => self.command(self.begin.as_deref().unwrap_or("BEGIN")),
            Step::Command(sql) => self.command(sql),
            Step::Probe => match &self.begin {
                None => self.command(lane::PROBE),
                Some(begin) => Box::pin(async {
                    let probe = pooler::probe(begin);
                    self.client.batch_execute(&probe).await.map(|()| Vec::new())
                }),
            },
            Step::ParseAndRun(sql, parameters) => Box::pin(async {
                let parameters: Vec<_> = parameters
                    .iter()
                    .map(|p| (p as &(dyn ToSql + Sync), UNSPECIFIED.clone()))
                    .collect();
                self.client.query_typed(sql, &parameters).await
            }),
            Step::Run(statement, parameters) => Box::pin(async {
                let parameters: Vec<_> =
                    parameters.iter().map(|p| p as &(dyn ToSql + Sync)).collect();
                self.client.query(statement, &parameters).await
            }),
        }
    }

    fn command<'a>(&'a self, sql: &'a str) -> Answer<'a> {
        Box::pin(async { self.client.batch_execute(sql).await.map(|()| Vec::new()) })
    }

    /// Gives the connection up while the server may still work for it.
    pub async fn abandon(self, tls: MakeRustlsConnect) {
        // A pooler ends the server's connection by itself when its client leaves in mid-work, and
        // pgbouncer 1.18 dies of a cancel request whose sender does not wait.
        if !self.client.is_closed() && !self.is_pooled() {
            // Nobody will commit what is running: spare the server the rest of the work.
            let token = self.client.cancel_token();
            let _ = timeout(CANCEL_LIMIT, token.cancel_query(tls)).await;
        }
        self.driver.abort();
    }

    /// Says goodbye.
    pub async fn close(self) {
        // Prepared statements hold on to the client's channel, whose end makes the driver leave.
        drop(self.prepared);
        drop(self.client);
        let _ = timeout(CANCEL_LIMIT, self.driver).await;
    }
}

type Answer<'a> = Pin<Box<dyn Future<Output = Result<Vec<Row>, Error>> + 'a>>;

/// Polls the futures in order, so that their requests are queued in order before the driver runs.
async fn all(mut futures: Vec<Answer<'_>>) -> Vec<Result<Vec<Row>, Error>> {
    let mut answers: Vec<Option<_>> = futures.iter().map(|_| None).collect();
    poll_fn(|cx| {
        for (future, answer) in futures.iter_mut().zip(&mut answers) {
            if answer.is_none()
                && let Poll::Ready(ready) = future.as_mut().poll(cx)
            {
                *answer = Some(ready);
            }
        }
        if answers.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    answers.into_iter().flatten().collect()
}
