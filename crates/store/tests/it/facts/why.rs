//! Why a task does not run: each reason from what the database holds.

use super::wait::{park, with_key};
use crate::world::*;
use uuid::Uuid;
use windlass_domain::approval::{Choice, QuestionRequest};
use windlass_domain::command::Command;
use windlass_domain::id::{SessionId, StepId, TaskId};
use windlass_domain::limit::{Limits, Mode, Pause, Rate, Rule, Scope};
use windlass_domain::pins::Pins;
use windlass_domain::profile::Kind;
use windlass_domain::state::State;
use windlass_domain::step::{StepInput, check};
use windlass_domain::task::NewTask;
use windlass_domain::wait::Until;
use windlass_domain::why::Reason;
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
    a_question_says_how_many_voices_it_has,
    a_parked_task_says_what_it_waits_for,
    a_step_in_doubt_is_named,
    a_ledger_is_run_elsewhere,
    pauses_and_drains_say_who_and_why,
    a_reached_limit_says_who_holds_the_slots,
    a_rate_says_until_when,
    a_worker_counts_if_it_lives_and_takes_the_queue_and_the_kind,
    a_provider_counts_if_it_names_what_the_task_is_pinned_to,
    workers_that_hold_all_their_type_allows_are_named,
    workers_that_hold_more_than_a_lowered_limit_are_told_as_they_are,
    the_place_in_line_is_counted_within_its_lane,
    more_than_a_thousand_before_it_are_not_counted,
    the_start_is_estimated_from_the_pace_of_its_queue,
    a_pace_is_that_of_the_last_minute_as_far_as_something_waited,
    everything_that_holds_a_task_back_is_told_in_order,
);

async fn why(world: &World, task: TaskId) -> Vec<Reason> {
    world.tasks.why(task).await.unwrap().expect("the task").reasons
}

/// The only reason.
async fn the_reason(world: &World, task: TaskId) -> Reason {
    let mut reasons = why(world, task).await;
    assert_eq!(reasons.len(), 1, "{reasons:?}");
    reasons.remove(0)
}

async fn codes(world: &World, task: TaskId) -> Vec<String> {
    let name = |reason: &Reason| serde_json::to_value(reason).unwrap()["code"].clone();
    let reasons = why(world, task).await;
    reasons.iter().map(|reason| name(reason).as_str().unwrap().to_owned()).collect()
}

/// A session that is alive and takes queue `q`.
async fn worker(world: &World, change: impl FnOnce(&mut Routes)) -> SessionId {
    let mut routes = Routes { queues: vec!["q".into()], ..Routes::default() };
    change(&mut routes);
    let id = SessionId(Uuid::now_v7());
    let (name, slots) = ("ann".to_owned(), 3);
    let new = NewSession { id, name, worker_type: None, routes, slots, lease_ms: None };
    Sessions::new(world.store.clone()).register(new).await.unwrap();
    id
}

fn rule(scope: Scope, name: &str) -> Rule {
    let name = Some(name.to_owned()).filter(|name| !name.is_empty());
    Rule { scope, name, max_active: None, max_pending: None, rate: None }
}

async fn put(world: &World, rule: Rule) {
    LimitRules::new(world.store.clone()).put(rule, "ops").await.unwrap();
}

async fn pause(world: &World, scope: Scope, name: &str, mode: Mode) {
    let name = Some(name.to_owned()).filter(|name| !name.is_empty());
    let pause = Pause { scope, name, mode, reason: Some("audit".into()) };
    LimitRules::new(world.store.clone()).pause(pause, "eve").await.unwrap();
}

fn of(venture: &str) -> NewTask {
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

async fn a_question_says_how_many_voices_it_has(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    let question = QuestionRequest {
        gate: "pay".into(),
        action: "transfer".into(),
        expires_ms: Some(60_000),
        approvers: Some(2),
        ..QuestionRequest::default()
    };
    let asked = world.asked(&held, question.validate("").unwrap()).await;
    world.vote(asked.id, "olga", Choice::Approve).await.unwrap();
    let told = the_reason(&world, held.task.id).await;
    let Reason::WaitingForApproval { approval_id, gate, action, required, approvals, until } = told
    else {
        panic!("{told:?}")
    };
    assert_eq!((approval_id, gate.as_str(), action.as_str()), (asked.id, "pay", "transfer"));
    assert_eq!((required, approvals, until), (2, 1, Some(world.now().plus_ms(60_000))));
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
    let told = the_reason(&world, id).await;
    let Reason::LimitReached { scope, name, limit, held: count, holders } = told else {
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

async fn workers_that_hold_all_their_type_allows_are_named(dialect: Dialect) {
    let world = World::new(dialect).await;
    let typed = Rule { max_active: Some(1), ..rule(Scope::WorkerType, "crew") };
    put(&world, typed).await;
    let sessions = Sessions::new(world.store.clone());
    let register = async |worker_type: Option<&str>| {
        let routes = Routes { queues: vec!["q".into()], ..Routes::default() };
        let id = SessionId(Uuid::now_v7());
        let (name, worker_type) = ("ann".to_owned(), worker_type.map(str::to_owned));
        let new = NewSession { id, name, worker_type, routes, slots: 1, lease_ms: None };
        sessions.register(new).await.unwrap();
        id.to_string()
    };
    let session = register(Some("crew")).await;
    let first = world.submit(job()).await;
    assert_eq!(codes(&world, first).await, ["ready"]);
    world.claim(&session, 1).await;
    let next = world.submit(job()).await;
    let told = the_reason(&world, next).await;
    let Reason::LimitReached { scope, name, limit, held, holders } = told else {
        panic!("{told:?}")
    };
    assert_eq!((scope, name.as_deref(), limit, held), (Scope::WorkerType, Some("crew"), 1, 1));
    assert_eq!((holders[0].task_id, holders[0].session.as_str()), (first, session.as_str()));
    // Somebody else is free.
    register(None).await;
    assert_eq!(codes(&world, next).await, ["ready"]);
}

async fn workers_that_hold_more_than_a_lowered_limit_are_told_as_they_are(dialect: Dialect) {
    let world = World::new(dialect).await;
    let routes = Routes { queues: vec!["q".into()], ..Routes::default() };
    let id = SessionId(Uuid::now_v7());
    let (name, worker_type) = ("ann".to_owned(), Some("crew".to_owned()));
    let new = NewSession { id, name, worker_type, routes, slots: 5, lease_ms: None };
    Sessions::new(world.store.clone()).register(new).await.unwrap();
    world.submit_all((0..5).map(|_| job()).collect()).await;
    assert_eq!(world.claim(&id.to_string(), 5).await.len(), 5);
    let next = world.submit(job()).await;
    for lowered in [2, 0] {
        put(&world, Rule { max_active: Some(lowered), ..rule(Scope::WorkerType, "crew") }).await;
        let told = the_reason(&world, next).await;
        let Reason::LimitReached { limit, held, holders, .. } = told else { panic!("{told:?}") };
        assert_eq!((limit, held, holders.len()), (lowered, 5, 5));
    }
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

async fn the_place_in_line_is_counted_within_its_lane(dialect: Dialect) {
    let world = World::new(dialect).await;
    worker(&world, |_| {}).await;
    let mut mine = Vec::new();
    for _ in 0..3 {
        mine.push(world.submit(of("acme")).await);
        world.pass_ms(1);
    }
    world.submit_all((0..5).map(|n| of(&format!("other {}", n % 2))).collect()).await;
    let urgent = world.submit(task(|r| {
        r.venture = Some("acme".into());
        r.priority = Some(5);
    }));
    let urgent = urgent.await;
    let place = async |id: TaskId| {
        let told = the_reason(&world, id).await;
        let Reason::Ready { ahead, ahead_at_least, ventures, .. } = told else {
            panic!("{told:?}")
        };
        assert!(!ahead_at_least);
        (ahead, ventures)
    };
    assert_eq!(place(urgent).await, (0, 3));
    assert_eq!(place(mine[0]).await, (1, 3));
    assert_eq!(place(mine[2]).await, (3, 3));
}

async fn more_than_a_thousand_before_it_are_not_counted(dialect: Dialect) {
    let world = World::new(dialect).await;
    worker(&world, |_| {}).await;
    for _ in 0..3 {
        world.submit_all((0..500).map(|_| job()).collect()).await;
    }
    world.pass_ms(1);
    let id = world.submit(job()).await;
    let told = the_reason(&world, id).await;
    assert!(matches!(told, Reason::Ready { ahead: 1_000, ahead_at_least: true, .. }), "{told:?}");
}

async fn the_start_is_estimated_from_the_pace_of_its_queue(dialect: Dialect) {
    let world = World::new(dialect).await;
    let wait = async |id: TaskId| {
        let told = the_reason(&world, id).await;
        let Reason::Ready { estimated_wait_ms, estimated_start_at, .. } = told else {
            panic!("{told:?}")
        };
        assert_eq!(estimated_start_at, estimated_wait_ms.map(|ms| world.now().plus_ms(ms)));
        estimated_wait_ms
    };
    worker(&world, |_| {}).await;
    world.submit_all((0..10).map(|_| job()).collect()).await;
    world.submit_all((0..5).map(|_| task(|r| r.queue = Some("fast".into()))).collect()).await;
    world.tasks.claim(claim_of("w2", &["fast"], 5)).await.unwrap();
    world.pass_ms(10_000);
    let last = world.submit(job()).await;
    assert_eq!(wait(last).await, None, "nothing has left its queue");
    world.claim("w1", 5).await;
    // Five in ten seconds; five stand before it.
    assert_eq!(wait(last).await, Some(12_000));
    // And no more in the next ten, although tasks waited. Once the pace counted from the first move
    // of the last minute on, whatever that was.
    world.pass_ms(10_000);
    worker(&world, |_| {}).await;
    assert_eq!(wait(last).await, Some(24_000));
    world.pass_ms(60_001);
    worker(&world, |_| {}).await;
    assert_eq!(wait(last).await, None, "nothing has left it lately");
}

async fn a_pace_is_that_of_the_last_minute_as_far_as_something_waited(dialect: Dialect) {
    let world = World::new(dialect).await;
    let wait = async |id: TaskId| match the_reason(&world, id).await {
        Reason::Ready { estimated_wait_ms, .. } => estimated_wait_ms,
        told => panic!("{told:?}"),
    };
    // More have waited for longer than a minute when the first of them leave, all at once.
    world.submit_all((0..20).map(|_| job()).collect()).await;
    world.pass_ms(90_000);
    worker(&world, |_| {}).await;
    world.claim("w1", 10).await;
    let last = world.submit(job()).await;
    // Ten in the last minute, and eleven are to leave: it was told as eleven milliseconds.
    assert_eq!(wait(last).await, Some(66_000));
    // A line that was empty for most of the minute moved as fast as while somebody stood in it.
    world.claim("w1", 11).await;
    world.pass_ms(120_000);
    world.submit_all((0..4).map(|_| job()).collect()).await;
    world.pass_ms(2_000);
    world.claim("w1", 2).await;
    let last = world.submit(job()).await;
    worker(&world, |_| {}).await;
    assert_eq!(wait(last).await, Some(3_000));
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
