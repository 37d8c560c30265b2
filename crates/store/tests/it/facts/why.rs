//! Why a task does not run: each reason from what the database holds. `why_line` has the facts
//! about the line and those who would take from it.

use super::wait::{park, with_key};
use crate::world::*;
use uuid::Uuid;
use windlass_domain::approval::token::Token;
use windlass_domain::approval::{Choice, QuestionRequest};
use windlass_domain::command::Command;
use windlass_domain::id::{ApprovalId, SessionId, StepId, TaskId};
use windlass_domain::limit::{Limits, Mode, Pause, Rate, Rule, Scope};
use windlass_domain::pins::Pins;
use windlass_domain::profile::Kind;
use windlass_domain::state::State;
use windlass_domain::step::{StepInput, check};
use windlass_domain::task::NewTask;
use windlass_domain::wait::Until;
use windlass_domain::why::{Reason, Voices};
use windlass_store::approval::{Deciding, Issue, Issued, Right};
use windlass_store::limit::LimitRules;
use windlass_store::session::{NewSession, Routes, Sessions, TTL_MS};
use windlass_store::statement::Dialect;
use windlass_store::task::{Assignment, BeginStep, Begun, Claim, Finishing, Holder};

conformance!(
    an_unknown_task_has_no_reasons,
    a_finished_task_says_how_and_when_it_ended,
    a_held_task_says_who_holds_it_and_whether_the_lease_has_run_out,
    a_scheduled_task_says_for_when_until_its_time_comes,
    a_task_that_backs_off_says_until_when_and_after_which_error,
    a_question_says_who_has_voted_and_who_has_a_token,
    a_parked_task_says_what_it_waits_for,
    a_step_in_doubt_is_named,
    a_ledger_is_run_elsewhere,
    pauses_and_drains_say_who_and_why,
    a_reached_limit_says_who_holds_the_slots,
    a_rate_says_until_when,
    a_worker_counts_if_it_lives_and_takes_the_queue_and_the_kind,
    a_provider_counts_if_it_names_what_the_task_is_pinned_to,
    everything_that_holds_a_task_back_is_told_in_order,
);

pub async fn why(world: &World, task: TaskId) -> Vec<Reason> {
    world.tasks.why(task).await.unwrap().expect("the task").reasons
}

/// The only reason.
pub async fn the_reason(world: &World, task: TaskId) -> Reason {
    let mut reasons = why(world, task).await;
    assert_eq!(reasons.len(), 1, "{reasons:?}");
    reasons.remove(0)
}

pub async fn codes(world: &World, task: TaskId) -> Vec<String> {
    let name = |reason: &Reason| serde_json::to_value(reason).unwrap()["code"].clone();
    let reasons = why(world, task).await;
    reasons.iter().map(|reason| name(reason).as_str().unwrap().to_owned()).collect()
}

/// A session that is alive and takes queue `q`.
pub async fn worker(world: &World, change: impl FnOnce(&mut Routes)) -> SessionId {
    let mut routes = Routes { queues: vec!["q".into()], ..Routes::default() };
    change(&mut routes);
    let id = SessionId(Uuid::now_v7());
    let (name, slots) = ("ann".to_owned(), 3);
    let new = NewSession { id, name, worker_type: None, routes, slots, lease_ms: None };
    Sessions::new(world.store.clone()).register(new).await.unwrap();
    id
}

pub fn rule(scope: Scope, name: &str) -> Rule {
    let name = Some(name.to_owned()).filter(|name| !name.is_empty());
    Rule { scope, name, max_active: None, max_pending: None, rate: None }
}

pub async fn put(world: &World, rule: Rule) {
    LimitRules::new(world.store.clone()).put(rule, "ops").await.unwrap();
}

pub async fn pause(world: &World, scope: Scope, name: &str, mode: Mode) {
    let name = Some(name.to_owned()).filter(|name| !name.is_empty());
    let pause = Pause { scope, name, mode, reason: Some("audit".into()) };
    LimitRules::new(world.store.clone()).pause(pause, "eve").await.unwrap();
}

pub fn of(venture: &str) -> NewTask {
    task(|r| r.venture = Some(venture.into()))
}

async fn an_unknown_task_has_no_reasons(dialect: Dialect) {
    let world = World::new(dialect).await;
    assert_eq!(world.tasks.why(TaskId(Uuid::now_v7())).await.unwrap(), None);
}

async fn a_finished_task_says_how_and_when_it_ended(dialect: Dialect) {
    let world = World::new(dialect).await;
    let done = world.running(job()).await;
    world.finish(&done, complete()).await.unwrap();
    let Reason::Finished { status, since, error } = the_reason(&world, done.task.id).await else {
        panic!("it has ended")
    };
    assert_eq!((status, since, error), (State::Completed, Some(world.now()), None));
    let broken = world.running(job()).await;
    world.finish(&broken, fail("INVALID_INPUT")).await.unwrap();
    let Reason::Finished { status, error, .. } = the_reason(&world, broken.task.id).await else {
        panic!("it has ended")
    };
    assert_eq!((status, error.unwrap().code.as_str()), (State::Failed, "INVALID_INPUT"));
}

async fn a_held_task_says_who_holds_it_and_whether_the_lease_has_run_out(dialect: Dialect) {
    let world = World::new(dialect).await;
    let session = worker(&world, |_| {}).await.to_string();
    let id = world.submit(job()).await;
    world.claim(&session, 1).await;
    let told = the_reason(&world, id).await;
    let Reason::Held { status, session: by, worker, since, lease_expired, .. } = told else {
        panic!("{told:?}")
    };
    assert_eq!((status, by, worker.as_deref()), (State::Claimed, Some(session), Some("ann")));
    assert_eq!((since, lease_expired), (Some(world.now()), false));
    world.pass_ms(60_000);
    let told = the_reason(&world, id).await;
    assert!(matches!(told, Reason::Held { lease_expired: true, .. }), "{told:?}");
    // Whoever is no session is named as it is.
    let other = world.running(job()).await.task.id;
    let told = the_reason(&world, other).await;
    let Reason::Held { status, session, worker, .. } = told else { panic!("{told:?}") };
    assert_eq!((status, session.as_deref(), worker), (State::Running, Some("w1"), None));
}

async fn a_scheduled_task_says_for_when_until_its_time_comes(dialect: Dialect) {
    let world = World::new(dialect).await;
    worker(&world, |_| {}).await;
    let id = world.submit(task(|r| r.delay_ms = Some(5_000))).await;
    let until = world.now().plus_ms(5_000);
    assert_eq!(the_reason(&world, id).await, Reason::Scheduled { until });
    // Nobody has ripened it; it is ready all the same.
    world.pass_ms(5_000);
    assert_eq!(codes(&world, id).await, ["ready"]);
}

async fn a_task_that_backs_off_says_until_when_and_after_which_error(dialect: Dialect) {
    let world = World::new(dialect).await;
    worker(&world, |_| {}).await;
    let held = world.running(job()).await;
    assert_eq!(world.finish(&held, fail("TIMEOUT")).await.unwrap(), State::Retry);
    let told = the_reason(&world, held.task.id).await;
    let Reason::BackingOff { until, attempt, retry_count, max_retries, error } = told else {
        panic!("{told:?}")
    };
    assert_eq!(until, world.show(held.task.id).await.run_at);
    assert_eq!((attempt, retry_count, max_retries), (1, 1, 3));
    assert_eq!(error.unwrap().code, "TIMEOUT");
    world.set_now(until);
    assert_eq!(codes(&world, held.task.id).await, ["ready"]);
}

async fn issue(world: &World, approval: ApprovalId, to: &str, expires_ms: i64) -> Issued {
    let chance = [Uuid::new_v4(), Uuid::new_v4(), Uuid::new_v4()];
    let token = Token::new(Uuid::now_v7(), chance);
    let (approver, issued_by) = (to.to_owned(), "operator".to_owned());
    let issue = Issue { approval, approver, expires_ms, issued_by, token };
    world.approvals().issue(issue).await.unwrap()
}

async fn a_question_says_who_has_voted_and_who_has_a_token(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    let question = QuestionRequest {
        gate: "pay".into(),
        action: "transfer".into(),
        expires_ms: Some(60_000),
        approvers: Some(20),
        ..QuestionRequest::default()
    };
    let asked = world.asked(&held, question.validate("").unwrap()).await;
    let (began, until) = (world.now(), Some(world.now().plus_ms(60_000)));
    let expected = Reason::WaitingForApproval {
        approval_id: asked.id,
        gate: "pay".into(),
        action: "transfer".into(),
        required: 20,
        approvals: 0,
        until,
        voices: Voices::default(),
    };
    assert_eq!(the_reason(&world, held.task.id).await, expected);
    // Of twelve who get a token one votes with it, one's token has passed, and two get another.
    let mut first = None;
    for n in 0..12 {
        let expires_ms = if n == 1 { 5_000 } else { 50_000 };
        let issued = issue(&world, asked.id, &format!("t{n}"), expires_ms).await;
        first.get_or_insert(issued.token);
        world.pass_ms(1);
    }
    let right = Right::Token(first.unwrap());
    let deciding = Deciding { right, ..deciding(ApprovalId(Uuid::nil()), "", Choice::Approve) };
    world.approvals().decide(deciding).await.unwrap();
    world.set_now(began.plus_ms(5_000));
    for n in [2, 3] {
        issue(&world, asked.id, &format!("t{n}"), 1_000).await;
        world.pass_ms(1);
    }
    for n in 0..11 {
        world.vote(asked.id, &format!("v{n}"), Choice::Approve).await.unwrap();
        world.pass_ms(1);
    }
    let told = the_reason(&world, held.task.id).await;
    let Reason::WaitingForApproval { approvals, voices, .. } = told else { panic!("{told:?}") };
    assert_eq!(approvals, 12);
    let voters: Vec<&str> = voices.voters.iter().map(|voter| voter.actor.as_str()).collect();
    assert_eq!(voters, ["t0", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8"]);
    assert!(voices.voters.iter().all(|voter| voter.choice == Choice::Approve));
    assert_eq!(voices.voters[1].at, began.plus_ms(5_002));
    let holders = &voices.token_holders;
    let names: Vec<&str> = holders.iter().map(|holder| holder.approver.as_str()).collect();
    assert_eq!(names, ["t4", "t5", "t6", "t7", "t8", "t9", "t10", "t11", "t2", "t3"]);
    assert_eq!(holders[8].expires_at, began.plus_ms(6_000));
    assert_eq!((voices.more_voters, voices.more_token_holders), (2, 0));
    for n in 12..15 {
        issue(&world, asked.id, &format!("t{n}"), 50_000).await;
    }
    let told = the_reason(&world, held.task.id).await;
    let Reason::WaitingForApproval { voices, .. } = told else { panic!("{told:?}") };
    assert_eq!((voices.token_holders.len(), voices.more_token_holders), (10, 3));
}

async fn a_parked_task_says_what_it_waits_for(dialect: Dialect) {
    let world = World::new(dialect).await;
    let parked = async |until: Until| -> Reason {
        let held = world.running(job()).await;
        park(&world, &held, until).await.unwrap();
        the_reason(&world, held.task.id).await
    };
    let until = world.now().plus_ms(5_000);
    assert_eq!(parked(Until::DelayMs(5_000)).await, Reason::WaitingForTime { until });
    let (signal, key) = ("go".to_owned(), Some("order-7".to_owned()));
    let told = parked(with_key("go", "order-7")).await;
    assert_eq!(told, Reason::WaitingForSignal { signal, key, until: None });
    let other = world.running(task(|r| r.queue = Some("other".into()))).await.task.id;
    let status = Some(State::Running);
    let told = parked(Until::Task(other)).await;
    assert_eq!(told, Reason::WaitingForTask { task_id: other, status, until: None });
    let held = world.running(job()).await;
    let lease_id = held.lease_id;
    world.ask(held.task.id, Command::Wait { lease_id }).await.unwrap();
    assert_eq!(the_reason(&world, held.task.id).await, Reason::Waiting {});
}

async fn begin(world: &World, held: &Assignment) -> Option<StepId> {
    let input = StepInput { name: "charge", kind: None, inputs: None, occurrence: None };
    let holder = Holder::new(held.task.id, held.lease_id, "w1");
    let item = BeginStep { holder, step: check(&input).unwrap() };
    match world.tasks.begin_step(item).await {
        Ok(Begun::New(id, _)) => Some(id),
        _ => None,
    }
}

async fn a_step_in_doubt_is_named(dialect: Dialect) {
    let world = World::new(dialect).await;
    let first = world.running(job()).await;
    let step_id = begin(&world, &first).await.expect("a new step");
    world.finish(&first, Finishing::Release).await.unwrap();
    let claim = Claim { start: true, ..claim_of("w2", &["q"], 1) };
    let second = world.tasks.claim(claim).await.unwrap().remove(0);
    assert_eq!(begin(&world, &second).await, None);
    let told = the_reason(&world, first.task.id).await;
    assert_eq!(told, Reason::InDoubt { step_id, step: Some("charge".into()) });
}

async fn a_ledger_is_run_elsewhere(dialect: Dialect) {
    let world = World::new(dialect).await;
    let id = world.submit(ledger()).await;
    let caller = Some("boss".to_owned());
    assert_eq!(the_reason(&world, id).await, Reason::RunElsewhere { caller });
}

async fn pauses_and_drains_say_who_and_why(dialect: Dialect) {
    let world = World::new(dialect).await;
    worker(&world, |_| {}).await;
    let id = world.submit(of("acme")).await;
    pause(&world, Scope::Venture, "acme", Mode::Pause).await;
    pause(&world, Scope::Venture, "other", Mode::Pause).await;
    let told = the_reason(&world, id).await;
    let (by, since, reason) = ("eve".to_owned(), world.now(), Some("audit".to_owned()));
    let expected =
        Reason::Paused { scope: Scope::Venture, name: Some("acme".into()), by, since, reason };
    assert_eq!(told, expected);
    pause(&world, Scope::Global, "", Mode::Pause).await;
    assert_eq!(codes(&world, id).await, ["paused", "paused"]);
    let first = why(&world, id).await.remove(0);
    assert!(matches!(first, Reason::Paused { scope: Scope::Global, name: None, .. }), "{first:?}");
    let rules = LimitRules::new(world.store.clone());
    rules.resume(Scope::Global, None, "eve").await.unwrap();
    pause(&world, Scope::Venture, "acme", Mode::Drain).await;
    assert_eq!(codes(&world, id).await, ["draining", "ready"]);
}

async fn a_reached_limit_says_who_holds_the_slots(dialect: Dialect) {
    let world = World::new(dialect).await;
    let session = worker(&world, |_| {}).await.to_string();
    put(&world, Rule { max_active: Some(7), ..rule(Scope::Venture, "acme") }).await;
    let mut held = Vec::new();
    for _ in 0..7 {
        held.push(world.submit(of("acme")).await);
        world.claim(&session, 1).await;
        world.pass_ms(1_000);
    }
    world.submit(of("other")).await;
    world.claim(&session, 1).await;
    let id = world.submit(of("acme")).await;
    let told = why(&world, id).await;
    assert!(matches!(told[1..], [Reason::InLine { ahead: 0, .. }]), "{told:?}");
    let Reason::LimitReached { scope, name, limit, held: count, holders } = told[0].clone() else {
        panic!("{told:?}")
    };
    assert_eq!((scope, name.as_deref()), (Scope::Venture, Some("acme")));
    assert_eq!((limit, count), (7, 7));
    let named: Vec<TaskId> = holders.iter().map(|holder| holder.task_id).collect();
    assert_eq!(named, held[..5], "those that hold longest, and no others");
    assert!(holders.iter().all(|holder| holder.session == session));
    assert_eq!(holders[0].worker.as_deref(), Some("ann"));
    // One that is not of this venture is not bound by its limit.
    let free = world.submit(of("third")).await;
    assert_eq!(codes(&world, free).await, ["ready"]);
}

async fn a_rate_says_until_when(dialect: Dialect) {
    let world = World::new(dialect).await;
    worker(&world, |_| {}).await;
    let rate = Some(Rate { count: 2, period_ms: 60_000 });
    let limit = Rule { rate, ..rule(Scope::Queue, "q") };
    put(&world, limit.clone()).await;
    world.tasks.bind(Some(Limits::new([limit])));
    let until = world.now().plus_ms(60_000);
    world.submit_all((0..3).map(|_| job()).collect()).await;
    let held = world.claim("w1", 3).await;
    assert_eq!(held.len(), 2);
    let id = world.submit(job()).await;
    world.pass_ms(TTL_MS - 1);
    let told = why(&world, id).await;
    let expected = Reason::RateReached {
        scope: Scope::Queue,
        name: Some("q".into()),
        limit: 2,
        period_ms: 60_000,
        until: Some(until),
    };
    assert_eq!(told[0], expected);
    // Another one stands before it, and neither begins before the next period.
    let Reason::InLine { ahead, estimated_start_at, .. } = told[1] else { panic!("{told:?}") };
    assert_eq!((ahead, estimated_start_at), (1, Some(until)));
    world.set_now(until);
    worker(&world, |_| {}).await;
    assert_eq!(codes(&world, id).await, ["ready"]);
}

async fn a_provider_counts_if_it_names_what_the_task_is_pinned_to(dialect: Dialect) {
    let world = World::new(dialect).await;
    let pinned = inference_with(|r| r.model = Some("m".into()));
    let pins = pinned.pins();
    let id = world.submit(pinned).await;
    let nobody = Reason::NoWorker { queue: "q".into(), kind: Kind::Inference, pins };
    let provider = |models: &[&str]| {
        let models = models.iter().map(|model| (*model).to_owned()).collect();
        move |routes: &mut Routes| {
            (routes.kinds, routes.models) = (vec![Kind::Inference], models);
        }
    };
    worker(&world, provider(&[])).await;
    worker(&world, provider(&["other"])).await;
    assert_eq!(the_reason(&world, id).await, nobody);
    worker(&world, provider(&["other", "m"])).await;
    assert_eq!(codes(&world, id).await, ["ready"]);
}

async fn a_worker_counts_if_it_lives_and_takes_the_queue_and_the_kind(dialect: Dialect) {
    let world = World::new(dialect).await;
    let id = world.submit(job()).await;
    let nobody = Reason::NoWorker { queue: "q".into(), kind: Kind::Job, pins: Pins::default() };
    assert_eq!(the_reason(&world, id).await, nobody);
    worker(&world, |routes| routes.queues = vec!["other".into()]).await;
    worker(&world, |routes| routes.kinds = vec![Kind::Inference]).await;
    assert_eq!(the_reason(&world, id).await, nobody);
    let gone = worker(&world, |_| {}).await;
    assert_eq!(codes(&world, id).await, ["ready"]);
    Sessions::new(world.store.clone()).close(gone, "closed").await.unwrap();
    assert_eq!(the_reason(&world, id).await, nobody);
    worker(&world, |routes| routes.pools = vec!["q".into()]).await;
    let told = the_reason(&world, id).await;
    assert!(matches!(told, Reason::Ready { workers: 1, slots: 3, .. }), "{told:?}");
    // It fell silent, and nobody has swept it yet.
    world.pass_ms(TTL_MS);
    assert_eq!(the_reason(&world, id).await, nobody);
}

async fn everything_that_holds_a_task_back_is_told_in_order(dialect: Dialect) {
    let world = World::new(dialect).await;
    put(&world, Rule { max_active: Some(1), ..rule(Scope::Venture, "acme") }).await;
    let holding = world.running(of("acme")).await;
    pause(&world, Scope::Queue, "q", Mode::Pause).await;
    let id = world.submit(task(|r| {
        r.venture = Some("acme".into());
        r.delay_ms = Some(5_000);
    }));
    let id = id.await;
    assert_eq!(codes(&world, id).await, ["scheduled", "paused", "limit_reached", "no_worker"]);
    world.pass_ms(5_000);
    assert_eq!(codes(&world, id).await, ["paused", "limit_reached", "no_worker"]);
    let rules = LimitRules::new(world.store.clone());
    rules.resume(Scope::Queue, Some("q".into()), "eve").await.unwrap();
    assert_eq!(codes(&world, id).await, ["limit_reached", "no_worker"]);
    world.finish(&holding, complete()).await.unwrap();
    assert_eq!(codes(&world, id).await, ["no_worker"]);
    worker(&world, |_| {}).await;
    assert_eq!(codes(&world, id).await, ["ready"]);
    let why = world.tasks.why(id).await.unwrap().unwrap();
    assert_eq!((why.task, why.status, why.at), (id, State::Pending, world.now()));
}
