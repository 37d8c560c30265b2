//! Each reason alone, all together, and their words; `start` has when a task starts.

mod start;

use super::*;
use crate::limit::{Count, Limits, Names, Rate, Rule};
use uuid::Uuid;

const NOON: i64 = 1_769_860_800_000;

fn now() -> Timestamp {
    Timestamp::from_ms(NOON)
}

fn later() -> Timestamp {
    now().plus_ms(60_000)
}

fn task(n: u128) -> TaskId {
    TaskId(Uuid::from_u128(n))
}

fn holder() -> Holder {
    let (session, worker) = ("s1".to_owned(), Some("ann".to_owned()));
    Holder { task_id: task(7), session, worker, since: Some(now()) }
}

/// A ready task in queue `q`, with one worker.
fn facts() -> Facts {
    Facts {
        now: now(),
        status: State::Pending,
        profile: Profile::Job,
        queue: "q".into(),
        run_at: now(),
        attempt: 0,
        retry_count: 0,
        max_retries: 3,
        error: None,
        caller: None,
        pins: Pins::default(),
        finished_at: None,
        holder: None,
        lease_expires_at: None,
        last_heartbeat_at: None,
        awaited: None,
        stops: Vec::new(),
        bounds: Vec::new(),
        counts: Counts::new(),
        rates_until: BTreeMap::new(),
        holders: BTreeMap::new(),
        slots: BTreeMap::new(),
        sharing: BTreeMap::new(),
        busy: None,
        line: Line { workers: 1, slots: 2, ventures: 1, pending: 1, ..Line::default() },
    }
}

fn venture() -> Key {
    Key { scope: Scope::Venture, name: "acme".into() }
}

/// Its venture may have one active task and begin two a minute, and is at both bounds.
fn at_its_limits() -> Facts {
    let rule = Rule {
        scope: Scope::Venture,
        name: Some("acme".into()),
        max_active: Some(1),
        max_pending: Some(0),
        rate: Some(Rate { count: 2, period_ms: 60_000 }),
    };
    let bounds = Limits::new([rule]).binding(&Names { venture: Some("acme"), ..Names::default() });
    Facts {
        bounds,
        counts: [(venture(), Count { active: 1, pending: 9, taken: 2 })].into(),
        rates_until: [(venture(), later())].into(),
        holders: [(venture(), vec![holder()])].into(),
        slots: [(venture(), Slots { held_ms: vec![4_000], run_ms: None })].into(),
        ..facts()
    }
}

fn stop(drains: bool) -> Stop {
    Stop { key: venture(), drains, by: "eve".into(), since: now(), reason: Some("audit".into()) }
}

fn name_of(reason: &Reason) -> String {
    let json = serde_json::to_value(reason).unwrap();
    json["code"].as_str().unwrap().to_owned()
}

fn codes(facts: &Facts) -> Vec<String> {
    why(facts).iter().map(name_of).collect()
}

fn voter(actor: &str) -> Voter {
    Voter { actor: actor.into(), choice: Choice::Approve, at: now() }
}

fn token(approver: &str) -> TokenHolder {
    TokenHolder { approver: approver.into(), expires_at: later() }
}

/// What parks a task, the code of the reason, and what its words must say.
fn parked() -> Vec<(Option<Awaited>, &'static str, &'static str)> {
    let question = Awaited::Approval {
        approval_id: ApprovalId(Uuid::from_u128(1)),
        gate: "pay".into(),
        action: "transfer".into(),
        required: 2,
        approvals: 1,
        until: Some(later()),
        voices: Voices::new(vec![voter("olga")], vec![token("ann"), token("bob")]),
    };
    let doubt = Awaited::Person { step_id: StepId(Uuid::nil()), step: Some("charge".into()) };
    let signal = Awaited::Signal { signal: "go".into(), key: Some("k".into()), until: None };
    let (task_id, until) = (task(9), Some(later()));
    let other = Awaited::Task { task_id, status: Some(State::Running), until };
    vec![
        (
            Some(question),
            "waiting_for_approval",
            "approval 00000000-0000-0000-0000-000000000001 of `transfer` at gate `pay`: 1 of 2 \
             voices so far (approve by `olga`), by 2026-01-31T12:01:00.000Z; tokens are with `ann` \
             and `bob`",
        ),
        (Some(doubt), "in_doubt", "step `charge` (00000000-"),
        (Some(signal), "waiting_for_signal", "the signal `go` with key `k`"),
        (
            Some(other),
            "waiting_for_task",
            "task 00000000-0000-0000-0000-000000000009, which is running, until",
        ),
        (
            Some(Awaited::Time { until: later() }),
            "waiting_for_time",
            "sleeps until 2026-01-31T12:01:00.000Z",
        ),
        (None, "waiting", "moved by hand"),
    ]
}

/// Likewise for tasks that are not parked.
fn others() -> Vec<(Facts, &'static str, &'static str)> {
    let ended = |status, error| Facts { status, error, finished_at: Some(now()), ..facts() };
    let broken = Some(TaskError::new("TIMEOUT", "the model fell silent"));
    let failed = Facts { status: State::Retry, run_at: later(), attempt: 1, ..facts() };
    vec![
        (ended(State::Completed, None), "finished", "ended completed at 2026-01-31T12:00:00.000Z"),
        (
            ended(State::Failed, broken.clone()),
            "finished",
            "ended failed at 2026-01-31T12:00:00.000Z: TIMEOUT: the model fell silent",
        ),
        (
            Facts { status: State::Running, attempt: 2, holder: Some(holder()), ..facts() },
            "held",
            "runs in the hands of worker `ann` (session s1) since 2026-01-31T12:00:00.000Z, \
             attempt 2",
        ),
        (
            Facts { status: State::Claimed, lease_expires_at: Some(now()), ..facts() },
            "held",
            "its lease has run out",
        ),
        (
            Facts { profile: Profile::Ledger, caller: Some("boss".into()), ..facts() },
            "run_elsewhere",
            "`boss` reports",
        ),
        (
            Facts { retry_count: 1, error: broken, ..failed },
            "backing_off",
            "attempt 1 failed (TIMEOUT: the model fell silent); it is tried again at \
             2026-01-31T12:01:00.000Z, retry 1 of 3",
        ),
        (Facts { run_at: later(), ..facts() }, "scheduled", "for 2026-01-31T12:01:00.000Z"),
        (
            Facts { stops: vec![stop(false)], ..facts() },
            "paused",
            "venture `acme` is paused by `eve` since 2026-01-31T12:00:00.000Z (audit)",
        ),
        (
            Facts { line: Line { workers: 0, ..facts().line }, ..facts() },
            "no_worker",
            "takes job tasks of queue `q`",
        ),
        (
            Facts {
                line: Line { workers: 0, ..facts().line },
                pins: Pins { model: Some("m".into()), tier: Some("t".into()), llm: None },
                ..facts()
            },
            "no_worker",
            "takes job tasks of queue `q` and names model `m` and tier `t`: start one",
        ),
        (facts(), "ready", "is ready, first of its venture; 1 worker is there; nothing has left"),
    ]
}

#[test]
fn each_reason_has_its_code_and_says_what_to_know() {
    let parked = parked().into_iter().map(|(awaited, code, words)| {
        let status = match code {
            "waiting_for_approval" => State::WaitingForApproval,
            _ => State::Waiting,
        };
        (Facts { status, awaited, ..facts() }, code, words)
    });
    for (facts, expected, words) in others().into_iter().chain(parked) {
        let reasons = why(&facts);
        assert_eq!(reasons.iter().map(name_of).collect::<Vec<_>>(), [expected]);
        let detail = reasons[0].detail();
        assert!(detail.contains(words), "{expected}: {detail}");
        assert!(!detail.contains('\n') && !detail.is_empty());
    }
}

/// Whoever is first at a limit or a rate was told neither its place nor when it starts.
#[test]
fn the_first_at_a_limit_or_a_rate_is_told_its_place_and_its_start() {
    let only = |change: fn(&mut Facts)| {
        let mut facts = at_its_limits();
        change(&mut facts);
        facts
    };
    let cases: [(Facts, &str, &str, i64); 3] = [
        (
            only(|facts| facts.bounds[0].rate = None),
            "limit_reached",
            "venture `acme` may have 1 active task and has 1; held by task \
             00000000-0000-0000-0000-000000000007 of `ann`",
            4_000,
        ),
        (
            only(|facts| facts.bounds[0].max_active = None),
            "rate_reached",
            "venture `acme` may begin 2 tasks in 1 min, and has; the next from \
             2026-01-31T12:01:00.000Z on",
            60_000,
        ),
        (
            only(|facts| {
                facts.bounds[0].max_active = None;
                facts.bounds[0].rate = Some(Rate { count: 1, period_ms: 60_000 });
            }),
            "rate_reached",
            "venture `acme` may begin 1 task in 1 min, and has",
            60_000,
        ),
    ];
    for (facts, expected, words, start_ms) in cases {
        assert_eq!(codes(&facts), [expected, "in_line"]);
        let told = why(&facts);
        let detail = told[0].detail();
        assert!(detail.contains(words), "{detail}");
        let start = format!("stands in line first of its venture; starts in about {start_ms} ms");
        assert!(told[1].detail().starts_with(&start), "{}", told[1].detail());
    }
}

#[test]
fn everything_that_holds_a_task_back_is_told_in_order() {
    let mut all = at_its_limits();
    all.run_at = later();
    all.stops = vec![stop(true), stop(false)];
    all.line.workers = 0;
    let expected =
        ["scheduled", "paused", "limit_reached", "rate_reached", "no_worker", "draining"];
    assert_eq!(codes(&all), expected);
    // Whatever is over is told no more, and the rest stays in its order.
    all.run_at = now();
    assert_eq!(codes(&all), expected[1..]);
    all.stops.pop();
    assert_eq!(codes(&all), expected[2..]);
    all.counts.clear();
    assert_eq!(codes(&all), expected[4..]);
    all.line.workers = 1;
    assert_eq!(codes(&all), ["draining", "ready"]);
}

#[test]
fn a_task_that_is_held_back_is_told_who_stands_before_it() {
    let mut held = at_its_limits();
    held.line.ahead = 11;
    (held.line.drained, held.line.drained_over_ms, held.line.pending) = (10, 10_000, 12);
    assert_eq!(codes(&held), ["limit_reached", "rate_reached", "in_line"]);
    let words = why(&held).pop().unwrap().detail();
    // Two begin in each minute, the first two in one.
    assert!(words.contains("behind 11 tasks; starts in about 360000 ms"), "{words}");
    // What is stopped does not move, and what is not due yet is in no line.
    held.stops = vec![stop(false)];
    let words = why(&held).pop().unwrap().detail();
    assert!(words.ends_with("behind 11 tasks"), "{words}");
    held.run_at = later();
    assert!(!codes(&held).contains(&"in_line".to_owned()));
}

#[test]
fn busy_workers_are_told_with_the_place_and_the_start() {
    let mut facts = Facts { busy: Some(Busy { held: 2, holders: vec![holder()] }), ..facts() };
    (facts.line.drained, facts.line.drained_over_ms) = (10, 10_000);
    assert_eq!(codes(&facts), ["workers_busy", "in_line"]);
    let told = why(&facts);
    let words = "the only worker that would take it is busy: it holds 2 tasks, and no slot is \
                 free; held by task 00000000-0000-0000-0000-000000000007 of `ann` and 1 more; \
                 start another for `q`";
    assert_eq!(told[0].detail(), words);
    let words = told[1].detail();
    assert!(words.contains("first of its venture; starts in about 1000 ms"), "{words}");
    // What does not depend on workers comes first; where nothing moves, a first place says nothing.
    facts.stops = vec![stop(false), stop(true)];
    assert_eq!(codes(&facts), ["paused", "workers_busy", "draining"]);
}

#[test]
fn limits_come_in_the_order_of_their_scopes() {
    let rule =
        |scope| Rule { scope, name: None, max_active: Some(0), max_pending: None, rate: None };
    let names = Names { venture: Some("acme"), queue: Some("q"), ..Names::default() };
    let bounds =
        Limits::new([Scope::Queue, Scope::Venture, Scope::Global].map(rule)).binding(&names);
    let reasons = why(&Facts { bounds, ..facts() });
    let scope = |reason: &Reason| match reason {
        Reason::LimitReached { scope, .. } => *scope,
        other => panic!("{other:?}"),
    };
    // The last tells its place.
    let scopes: Vec<Scope> = reasons[..3].iter().map(scope).collect();
    assert_eq!(scopes, [Scope::Global, Scope::Venture, Scope::Queue]);
}

#[test]
fn a_task_in_hands_or_at_its_end_is_held_back_by_nothing_else() {
    for status in [State::Running, State::Claimed, State::Completed, State::Waiting] {
        let pressed = at_its_limits();
        let facts = Facts { status, stops: vec![stop(false)], run_at: later(), ..pressed };
        assert_eq!(why(&facts).len(), 1, "{status}");
    }
}

#[test]
fn everything_has_no_name_and_others_have() {
    let everything = Key { scope: Scope::Global, name: String::new() };
    let facts = Facts { stops: vec![Stop { key: everything, ..stop(false) }], ..facts() };
    let reasons = why(&facts);
    assert!(reasons[0].detail().starts_with("all work is paused"), "{}", reasons[0].detail());
    assert_eq!(serde_json::to_value(&reasons[0]).unwrap()["name"], serde_json::Value::Null);
}

#[test]
fn the_place_in_line_is_bounded_and_turns_are_counted() {
    let ready = |line: Line| {
        let mut reasons = why(&Facts { line, ..facts() });
        let reason = reasons.pop().unwrap();
        let Reason::Ready { ahead, ahead_at_least, estimated_wait_ms, .. } = reason else {
            panic!("{reason:?}")
        };
        (ahead, ahead_at_least, estimated_wait_ms)
    };
    let line = Line { workers: 1, ventures: 1, pending: 5_000, drained: 60, ..Line::default() };
    let line = Line { drained_over_ms: 60_000, ..line };
    assert_eq!(ready(Line { ahead: 9, ..line }), (9, false, Some(10_000)));
    // Nine turns of ten ventures and its own; but no more than there are.
    assert_eq!(ready(Line { ahead: 9, ventures: 10, ..line }), (9, false, Some(100_000)));
    let few = Line { ahead: 9, ventures: 10, pending: 20, ..line };
    assert_eq!(ready(few), (9, false, Some(20_000)));
    assert_eq!(ready(Line { ahead: 1_001, drained: 0, ..line }), (1_000, true, None));
}

#[test]
fn what_was_not_counted_to_its_end_is_told_as_at_least() {
    let words = |ahead: i64, more_ahead: bool| {
        let line = Line { ahead, more_ahead, ..facts().line };
        let reason = why(&Facts { line, ..facts() }).remove(0);
        assert!(
            matches!(reason, Reason::Ready { ahead_at_least, .. } if ahead_at_least == more_ahead
                || ahead > MOST_COUNTED)
        );
        reason.detail().split("; ").next().unwrap().to_owned()
    };
    assert_eq!(words(0, false), "is ready, first of its venture");
    assert_eq!(words(0, true), "is ready, perhaps behind others of its venture");
    assert_eq!(words(1, true), "is ready, behind at least 1 task");
    assert_eq!(words(7, true), "is ready, behind at least 7 tasks");
    assert_eq!(words(1_001, false), "is ready, behind more than 1000 tasks");
}

#[test]
fn a_worker_type_that_may_hold_nothing_is_told_so() {
    let words = |limit, held| {
        let holders = if held > 0 { vec![holder()] } else { Vec::new() };
        let (scope, name) = (Scope::WorkerType, Some("crew".into()));
        Reason::LimitReached { scope, name, limit, held, holders }.detail()
    };
    let one = "a session of worker_type `crew` may hold 1 task, and all that would take it do";
    assert!(words(1, 1).starts_with(one), "{}", words(1, 1));
    // It was "may hold 0 tasks, and all that would take it do".
    let none = "a session of worker_type `crew` may hold no task, and all that would take it are \
                of such a type; raise its limit, or start a worker of another type";
    assert_eq!(words(0, 0), none);
    assert!(words(0, 1).contains("; held by task 00000000-"), "{}", words(0, 1));
}

#[test]
fn ten_who_voted_and_ten_who_have_a_token_are_named() {
    let words = |voters: usize, tokens: usize| {
        let voters = (0..voters).map(|n| voter(&format!("v{n}"))).collect();
        let tokens = (0..tokens).map(|n| token(&format!("t{n}"))).collect();
        Reason::WaitingForApproval {
            approval_id: ApprovalId(Uuid::nil()),
            gate: "pay".into(),
            action: "transfer".into(),
            required: 50,
            approvals: 1,
            until: None,
            voices: Voices::new(voters, tokens),
        }
        .detail()
    };
    assert!(words(0, 0).ends_with("1 of 50 voices so far"), "{}", words(0, 0));
    let end = "so far (approve by `v0`, approve by `v1` and approve by `v2`); tokens are with `t0`";
    assert!(words(3, 1).ends_with(end), "{}", words(3, 1));
    assert!(words(10, 10).ends_with("`t8` and `t9`"), "{}", words(10, 10));
    let many = words(11, 14);
    assert!(many.contains("by `v9` and 1 more); tokens are with `t0`, `t1`"), "{many}");
    assert!(many.ends_with("`t9` and 4 more"), "{many}");
}

#[test]
fn words_of_others_cannot_deceive() {
    let question = Reason::WaitingForApproval {
        approval_id: ApprovalId(Uuid::nil()),
        gate: "pay".into(),
        action: "transfer".into(),
        required: 2,
        approvals: 1,
        until: None,
        voices: Voices::new(vec![voter("a\nb")], vec![token("\u{202e}eve")]),
    };
    let detail = question.detail();
    assert!(detail.contains("`a\\u000ab`") && detail.contains("`\\u202eeve`"), "{detail}");
    let mut stop = stop(false);
    stop.reason = Some("done\n\u{202e}ycnan".into());
    let detail = why(&Facts { stops: vec![stop], ..facts() })[0].detail();
    assert!(detail.contains("(done\\u000a\\u202eycnan)"), "{detail}");
    let long = TaskError::new("TIMEOUT", "x".repeat(10_000));
    let facts = Facts { status: State::Failed, error: Some(long), ..facts() };
    assert!(why(&facts)[0].detail().chars().count() < 300);
}
