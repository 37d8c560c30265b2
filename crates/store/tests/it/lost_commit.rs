//! Calls whose COMMIT was carried out but whose answer was lost: none is done twice, and each is
//! answered like one that went well. On a primary whose synchronous standby hangs, the backend is
//! killed while its COMMIT waits. The same behind a transaction pooler.

use crate::bouncer::Bouncer;
use crate::cluster::{Cluster, ClusterOptions, eventually};
use crate::facts::eager::Waiting;
use crate::facts::flow::rule;
use crate::world::*;
use std::sync::Arc;
use std::time::{Duration, Instant};
use windlass_domain::approval::token::Token;
use windlass_domain::approval::{Choice, Question, Status};
use windlass_domain::id::TaskId;
use windlass_domain::limit::{Limits, Scope};
use windlass_domain::state::State;
use windlass_store::approval::{Approvals, Issue, Right};
use windlass_store::audit::{Audit, Filter};
use windlass_store::migration;
use windlass_store::postgres::{self, Options, PostgresDatabase};
use windlass_store::statement::Dialect;
use windlass_store::store::Store;
use windlass_store::task::{Assignment, Claim, Finishing, Tasks};

/// For so long rules are known to be true: longer than a submit takes until its COMMIT.
const TERM: Duration = Duration::from_secs(1);

struct Pair {
    tasks: Tasks,
    database: Arc<PostgresDatabase>,
    _bouncer: Option<Bouncer>,
    standby: Cluster,
    primary: Cluster,
}

impl Pair {
    async fn start(pooled: bool) -> Pair {
        let primary = Cluster::start(ClusterOptions::default());
        let bouncer = pooled.then(|| Bouncer::start(primary.port(), ""));
        let url = bouncer.as_ref().map_or(primary.url(), |bouncer| {
            format!("postgres://windlass@127.0.0.1:{}/postgres", bouncer.port())
        });
        let options = Options { unavailable_after: Duration::from_secs(60), ..Options::default() };
        let database = postgres::open(&url, options).unwrap();
        assert_eq!(database.is_pooled(), pooled);
        let store = Store::new(database.clone());
        migration::up(&store).await.unwrap();
        let standby = primary.standby();
        Pair { tasks: Tasks::new(store), database, _bouncer: bouncer, standby, primary }
    }

    /// Runs `call` so that the answer to its COMMIT is lost.
    async fn in_doubt<T: Send + 'static>(
        &self,
        call: impl Future<Output = T> + Send + 'static,
    ) -> T {
        self.in_doubt_while(async {}, call).await
    }

    /// The same, and it is in doubt while that happens.
    async fn in_doubt_while<T: Send + 'static>(
        &self,
        meanwhile: impl Future<Output = ()>,
        call: impl Future<Output = T> + Send + 'static,
    ) -> T {
        let before = self.database.stats().ambiguous_commits;
        self.standby.pause();
        let call = tokio::spawn(call);
        let waiting =
            || self.primary.sql("SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'");
        let found = || !waiting().is_empty();
        eventually("the commit waits for the standby", found);
        self.primary.sql(&format!("SELECT pg_terminate_backend({})", waiting()));
        eventually("the commit is in doubt", || self.database.stats().ambiguous_commits > before);
        meanwhile.await;
        assert!(!call.is_finished(), "nobody has confirmed it yet");
        self.standby.resume();
        call.await.unwrap()
    }

    async fn story(&self, task: TaskId) -> Vec<String> {
        let history = self.tasks.history(task, 0, 100).await.unwrap();
        history.iter().map(|h| format!("{}:{}", h.event, h.to_status)).collect()
    }

    async fn finish(&self, held: &Assignment, how: Finishing) -> State {
        let (tasks, finish) = (self.tasks.clone(), finish_of(held, how));
        let call = async move { tasks.finish(vec![finish]).await.pop().unwrap().unwrap() };
        self.in_doubt(call).await
    }
}

async fn every_call_is_done_once_and_answered(pooled: bool) {
    let pair = Pair::start(pooled).await;
    let jobs = [job(), job(), job(), job()];
    let other = || task(|r| r.queue = Some("other".into()));
    let (tasks, batch) = (pair.tasks.clone(), jobs.to_vec());
    let submitted = pair.in_doubt(async move { tasks.submit(batch).await }).await;
    for (job, outcome) in jobs.iter().zip(submitted) {
        // Once it was called a duplicate, and so nobody was woken for it.
        let told = outcome.unwrap();
        assert_eq!((told.id, told.status, told.duplicate), (job.id, State::Pending, false));
        assert_eq!(pair.story(job.id).await, ["submit:pending"]);
    }

    // What an earlier call has written is a duplicate, also in doubt.
    let (tasks, again) = (pair.tasks.clone(), vec![other(), jobs[0].clone()]);
    let submitted = pair.in_doubt(async move { tasks.submit(again).await }).await;
    let told = submitted.into_iter().map(|outcome| outcome.unwrap().duplicate);
    assert_eq!(told.collect::<Vec<_>>(), [false, true]);
    let (tasks, whole) = (pair.tasks.clone(), vec![other(), other()]);
    let submitted = pair.in_doubt(async move { tasks.submit_atomic(whole).await }).await.unwrap();
    assert!(submitted.iter().all(|told| !told.duplicate), "{submitted:?}");

    // While a commit is in doubt the rules become old: what is written is not asked for them.
    let (tasks, aging) = (pair.tasks.clone(), vec![other(), jobs[0].clone()]);
    pair.tasks.rules_hold_until(Instant::now() + TERM);
    let call = async move { tasks.submit(aging).await };
    let submitted = pair.in_doubt_while(tokio::time::sleep(TERM), call).await;
    pair.tasks.rules_hold_until(Instant::now() + 3_600 * TERM);
    let told = submitted.into_iter().map(|outcome| outcome.unwrap().duplicate);
    assert_eq!(told.collect::<Vec<_>>(), [false, true]);

    // Nor what is claimed already, when the database has newer rules and nobody reads them.
    let version = pair.primary.sql("SELECT version FROM limit_version").parse().unwrap();
    let wide = rule(Scope::Global, Some(100_000), Some(100_000));
    pair.tasks.bind_version(Limits::new([wide]), version);
    let tasks = pair.tasks.clone();
    let change = "SET synchronous_commit = local;
                  UPDATE limit_version SET version = version + 1";
    let call = async move { tasks.claim(claim_of("w1", &["q"], 3)).await.unwrap() };
    let held = pair.in_doubt_while(async { drop(pair.primary.sql(change)) }, call).await;
    pair.tasks.bind(None);
    assert_eq!(held.len(), 3);
    for held in &held {
        assert_eq!(pair.story(held.task.id).await, ["submit:pending", "claim:claimed"]);
    }

    let (tasks, beat) = (pair.tasks.clone(), beat_of(&held[0]));
    let beaten = pair.in_doubt(async move { tasks.heartbeat(vec![beat]).await }).await;
    assert!(beaten[0].as_ref().unwrap().lease_expires_at.is_some());

    assert_eq!(pair.finish(&held[0], complete()).await, State::Completed);
    assert_eq!(pair.finish(&held[1], Finishing::Release).await, State::Pending);
    assert_eq!(pair.finish(&held[2], fail("TIMEOUT")).await, State::Retry);
    let told = ["submit:pending", "claim:claimed", "start:running", "complete:completed"];
    assert_eq!(pair.story(held[0].task.id).await, told);
    let told = ["submit:pending", "claim:claimed", "release:pending"];
    assert_eq!(pair.story(held[1].task.id).await, told);
    let told = ["submit:pending", "claim:claimed", "fail:retry"];
    assert_eq!(pair.story(held[2].task.id).await, told);

    let left = jobs.iter().find(|j| held.iter().all(|h| h.task.id != j.id)).unwrap().id;
    let tasks = pair.tasks.clone();
    let cancelled = pair.in_doubt(async move { tasks.cancel(left, "boss", None).await }).await;
    assert_eq!(cancelled.unwrap(), State::Cancelled);
    assert_eq!(pair.story(left).await, ["submit:pending", "cancel:cancelled"]);
    // A task that was handed over in the transaction that submits it: its lease is good.
    let waiting = Arc::new(Waiting::default());
    pair.tasks.dispatch_to(&(Arc::clone(&waiting) as _));
    waiting.enter(claim_of("w1", &["alone"], 1));
    let (tasks, alone) = (pair.tasks.clone(), task(|r| r.queue = Some("alone".into())));
    let submitted = pair.in_doubt(async move { tasks.submit(vec![alone]).await }).await;
    let held = waiting.got().concat();
    let told = submitted[0].as_ref().unwrap();
    assert_eq!((held[0].task.id, told.duplicate), (told.id, false));
    assert_eq!(pair.story(held[0].task.id).await, ["submit:pending", "claim:claimed"]);
    assert_eq!(pair.finish(&held[0], complete()).await, State::Completed);
    assert_eq!(pair.database.stats().ambiguous_commits, 12);
    approvals_too(&pair).await;
    pair.tasks.store().close();
}

/// Asking, a token, and each voice: all of them in doubt, all of them once.
async fn approvals_too(pair: &Pair) {
    let asker = task(|r| r.queue = Some("asking".into()));
    pair.tasks.submit(vec![asker]).await.pop().unwrap().unwrap();
    let claim = Claim { start: true, ..claim_of("w1", &["asking"], 1) };
    let held = pair.tasks.claim(claim).await.unwrap().pop().unwrap();
    let approvals = Approvals::new(pair.tasks.clone());
    let (asks, call) =
        (approvals.clone(), asking(&held, Question { required: 2, ..question("g", None) }));
    let asked = pair.in_doubt(async move { asks.ask(call).await }).await.unwrap();
    assert!(asked.parked);
    let id = asked.approval.id;
    let token = Token::new(uuid::Uuid::now_v7(), [1, 2, 3].map(uuid::Uuid::from_u128));
    let (approver, issued_by) = ("ann".to_owned(), "ops".to_owned());
    let issue = Issue { approval: id, approver, expires_ms: 60_000, issued_by, token };
    let (issues, token) = (approvals.clone(), issue.token.clone());
    pair.in_doubt(async move { issues.issue(issue).await }).await.unwrap();
    let mut first = deciding(id, "", Choice::Approve);
    first.right = Right::Token(token);
    for voice in [first, deciding(id, "bob", Choice::Approve)] {
        let votes = approvals.clone();
        pair.in_doubt(async move { votes.decide(voice).await }).await.unwrap();
    }
    let (shown, votes) = approvals.show(id).await.unwrap().unwrap();
    assert_eq!((shown.status, shown.approvals, votes.len()), (Status::Approved, 2, 2));
    let told = ["ask_approval:waiting_for_approval", "approve:pending"];
    assert_eq!(pair.story(held.task.id).await[2..], told);
    let refused = Audit::new(pair.tasks.store().clone());
    assert_eq!(refused.list(Filter::of_event("approval_refused"), None, 10).await.unwrap(), []);
}

#[test]
fn a_call_whose_commit_is_lost_is_done_once_and_answered() {
    run(|_| every_call_is_done_once_and_answered(false), Dialect::Postgres);
}

#[test]
fn behind_a_pooler_too() {
    run(|_| every_call_is_done_once_and_answered(true), Dialect::Postgres);
}
