//! What the limits promise.

use super::*;
use crate::validate::tests::findings;
use serde_json::json;

const ACME: Names<'_> = Names {
    portfolio: None,
    venture: Some("acme"),
    stage: Some("build"),
    agent: None,
    queue: Some("mail"),
};

fn key(scope: Scope, name: &str) -> Key {
    Key { scope, name: name.into() }
}

fn holding(scope: Scope, name: &str, active: i64, pending: i64) -> Counts {
    Counts::from([(key(scope, name), Count { active, pending, taken: 0 })])
}

fn full(accepted: Result<()>) -> QueueFull {
    match accepted {
        Err(Refusal::QueueFull(full)) => full,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_defaults_are_those_of_a_fresh_installation() {
    let limits: Vec<_> = Limits::default()
        .binding(&ACME)
        .into_iter()
        .map(|b| (b.key.to_string(), b.max_active, b.max_pending))
        .collect();
    assert_eq!(
        limits,
        [
            ("all work".to_owned(), Some(200), Some(1_000)),
            ("venture `acme`".to_owned(), Some(10), Some(50)),
            ("stage `build`".to_owned(), Some(20), None),
        ]
    );
    let rule: Rule = serde_json::from_value(json!({"scope": "queue", "name": "q"})).unwrap();
    assert_eq!((rule.max_active, rule.max_pending), (Some(10), Some(50)));
    let unlimited = json!({"scope": "queue", "max_active": null, "max_pending": null});
    let rule: Rule = serde_json::from_value(unlimited).unwrap();
    assert_eq!((rule.max_active, rule.max_pending), (None, None));
}

#[test]
fn a_rule_binds_only_tasks_that_name_its_scope() {
    let bounds = Limits::default().binding(&Names::default());
    let keys: Vec<_> = bounds.into_iter().map(|b| b.key).collect();
    assert_eq!(keys, [key(Scope::Global, "")]);
}

#[test]
fn a_rule_with_a_name_replaces_that_for_each() {
    let named = Rule { name: Some("acme".into()), max_active: Some(3), ..DEFAULT_RULES[1].clone() };
    let limits = Limits::new(DEFAULT_RULES.into_iter().chain([named]));
    let of = |venture| {
        let names = Names { venture: Some(venture), ..Names::default() };
        limits.binding(&names)[1].max_active
    };
    assert_eq!((of("acme"), of("other")), (Some(3), Some(10)));
}

#[test]
fn a_rule_knows_who_holds_what_it_is_for() {
    let named = Rule { name: Some("acme".into()), ..DEFAULT_RULES[1].clone() };
    let limits = Limits::new(DEFAULT_RULES.into_iter().chain([named.clone()]));
    let count = |active, pending| Count { active, pending, taken: 0 };
    let counts = Counts::from([
        (key(Scope::Global, ""), count(6, 9)),
        (key(Scope::Venture, "acme"), count(3, 3)),
        (key(Scope::Venture, "bolt"), count(1, 2)),
        (key(Scope::Venture, "core"), count(2, 0)),
        (key(Scope::Venture, "dune"), count(1, 4)),
    ]);
    let of = |rule: &Rule| -> Vec<&str> {
        limits.held_by(rule, &counts).into_iter().map(|(key, _)| key.name.as_str()).collect()
    };
    assert_eq!(of(&named), ["acme"]);
    assert_eq!(of(&DEFAULT_RULES[0]), [""]);
    assert_eq!(of(&DEFAULT_RULES[1]), ["core", "dune", "bolt"], "acme has a rule of its own");
    assert!(of(&DEFAULT_RULES[2]).is_empty());
}

#[test]
fn locks_are_taken_in_the_order_of_the_keys() {
    let rules = Scope::ALL.iter().rev().map(|&s| Rule::each(s, Some(1), None));
    let names = Names { portfolio: Some("p"), agent: Some("a"), ..ACME };
    let bounds = Limits::new(rules).binding(&names);
    assert_eq!(bounds.len(), 6);
    assert!(bounds.is_sorted_by_key(|b| b.key.clone()));
}

#[test]
fn room_is_never_negative() {
    for (limit, held, expected) in [
        (10, 0, 10),
        (10, 9, 1),
        (10, 10, 0),
        (10, 11, 0),
        (0, 0, 0),
        (10, -5, 10),
        (i64::MIN, i64::MAX, 0),
        (i64::MAX, i64::MIN, i64::MAX),
    ] {
        assert_eq!(room(limit, held), expected, "{limit} {held}");
    }
}

#[test]
fn as_many_are_admitted_as_the_tightest_limit_allows() {
    let bounds = Limits::default().binding(&ACME);
    assert_eq!(admit(100, &bounds, &Counts::new()), 10);
    assert_eq!(admit(4, &bounds, &Counts::new()), 4);
    assert_eq!(admit(-1, &bounds, &Counts::new()), 0);
    assert_eq!(admit(100, &bounds, &holding(Scope::Venture, "acme", 9, 0)), 1);
    assert_eq!(admit(100, &bounds, &holding(Scope::Venture, "acme", 11, 0)), 0);
    assert_eq!(admit(100, &bounds, &holding(Scope::Global, "", 199, 0)), 1);
    assert_eq!(admit(100, &[], &Counts::new()), 100);
}

#[test]
fn a_full_venture_does_not_hold_up_another() {
    let limits = Limits::default();
    let of = |venture| limits.binding(&Names { venture: Some(venture), ..Names::default() });
    let counts = holding(Scope::Venture, "acme", 9, 0);
    let candidates = [of("acme"), of("acme"), of("other"), of("acme")];
    assert_eq!(admit_each(&candidates, &counts), [true, false, true, false]);
}

#[test]
fn candidates_count_against_each_other_in_every_scope() {
    let limits = Limits::new([Rule::each(Scope::Global, Some(2), None)]);
    let candidates = vec![limits.binding(&ACME); 3];
    assert_eq!(admit_each(&candidates, &Counts::new()), [true, true, false]);
}

#[test]
fn a_submit_over_the_pending_limit_is_refused_with_its_name_and_value() {
    let bounds = Limits::default().binding(&ACME);
    let counts = holding(Scope::Venture, "acme", 0, 49);
    assert_eq!(accept(1, &bounds, &counts), Ok(()));
    let refused = full(accept(2, &bounds, &counts));
    assert_eq!(refused.key, key(Scope::Venture, "acme"));
    assert_eq!((refused.limit, refused.held, refused.code()), (50, 49, "queue_full"));
    assert_eq!(
        refused.to_string(),
        "venture `acme` has 49 pending tasks, the batch has 2 more, and at most 50 are allowed; \
         submit again later, or fewer at once"
    );
    let counts = holding(Scope::Global, "", 0, 1_000);
    assert_eq!(full(accept(1, &bounds, &counts)).limit, 1_000);
}

#[test]
fn a_refusal_says_whether_waiting_helps() {
    let told = |limit, held, adding| {
        let full = QueueFull { key: key(Scope::Queue, "q"), limit, held, adding };
        (full.to_string(), full.may_fit_later())
    };
    for (limit, held, adding, words, helps) in [
        (
            1,
            1,
            1,
            "queue `q` has 1 pending task and at most 1 is allowed; submit again later",
            true,
        ),
        (
            2,
            2,
            1,
            "queue `q` has 2 pending tasks and at most 2 are allowed; submit again later",
            true,
        ),
        (
            0,
            0,
            1,
            "queue `q` has 0 pending tasks and at most 0 are allowed; submit again later",
            true,
        ),
        (
            3,
            0,
            4,
            "the batch has 4 tasks of queue `q` and at most 3 are allowed: submit fewer at once",
            false,
        ),
    ] {
        assert_eq!(told(limit, held, adding), (words.to_owned(), helps));
    }
    let full = QueueFull { key: key(Scope::Queue, "q"), limit: 3, held: 3, adding: 1 };
    let of_batch = full.of_batch(2, 3);
    assert_eq!((of_batch.held, of_batch.adding, of_batch.may_fit_later()), (1, 3, true));
}

#[test]
fn a_reached_active_limit_refuses_no_submit() {
    let bounds = Limits::default().binding(&ACME);
    assert_eq!(accept(1, &bounds, &holding(Scope::Global, "", 200, 0)), Ok(()));
}

fn stop(scope: Scope, name: Option<&str>, mode: Mode) -> Pause {
    Pause { scope, name: name.map(Into::into), mode, reason: Some("a move".into()) }
}

#[test]
fn what_is_paused_is_not_handed_out_and_is_taken_in() {
    for (scope, name) in
        [(Scope::Global, None), (Scope::Venture, Some("acme")), (Scope::Queue, Some("mail"))]
    {
        let pause = stop(scope, name, Mode::Pause);
        let bounds = Limits::new([]).with_pauses([pause.clone()]).binding(&ACME);
        assert_eq!(bounds.len(), 1, "{scope}: it needs no rule");
        assert_eq!((bounds[0].max_active, bounds[0].pause.as_ref()), (None, Some(&pause)));
        assert!(bounds[0].binds_claims() && !bounds[0].binds_submits());
        assert_eq!(admit(5, &bounds, &Counts::new()), 0);
        assert_eq!(accept(5, &bounds, &Counts::new()), Ok(()));
    }
}

#[test]
fn what_drains_is_handed_out_and_takes_nothing_in() {
    let pause = stop(Scope::Queue, Some("mail"), Mode::Drain);
    let bounds = Limits::default().with_pauses([pause]).binding(&ACME);
    assert_eq!(admit(5, &bounds, &Counts::new()), 5);
    // Said before a full queue: room would not help.
    let refused = accept(1, &bounds, &holding(Scope::Global, "", 0, 1_000)).unwrap_err();
    assert_eq!(refused.code(), "draining");
    assert_eq!(refused.to_string(), "queue `mail` takes no new tasks until it is resumed: a move");
}

#[test]
fn a_pause_stops_nothing_else() {
    let pauses = [
        stop(Scope::Venture, Some("other"), Mode::Pause),
        stop(Scope::Agent, Some("mail"), Mode::Drain),
    ];
    let bounds = Limits::default().with_pauses(pauses).binding(&ACME);
    assert!(bounds.iter().all(|bound| bound.pause.is_none()));
    assert_eq!(admit(5, &bounds, &Counts::new()), 5);
    assert_eq!(accept(1, &bounds, &Counts::new()), Ok(()));
}

#[test]
fn a_senseless_pause_is_refused() {
    for (scope, name, pointer, code) in [
        (Scope::Stage, Some("build"), "/scope", "not_allowed"),
        (Scope::Portfolio, None, "/scope", "not_allowed"),
        (Scope::Global, Some("x"), "/name", "not_allowed"),
        (Scope::Queue, None, "/name", "required"),
        (Scope::Queue, Some(""), "/name", "required"),
        (Scope::Queue, Some("."), "/name", "not_allowed"),
        (Scope::Venture, Some(".."), "/name", "not_allowed"),
    ] {
        let pause = stop(scope, name, Mode::Pause);
        assert_eq!(findings(pause.validate()), [(pointer, code)], "{scope} {name:?}");
    }
    let wordy = Pause { reason: Some("x".repeat(1_001)), ..stop(Scope::Global, None, Mode::Pause) };
    assert_eq!(findings(wordy.validate()), [("/reason", "too_long")]);
    let plain: Pause = serde_json::from_value(json!({"scope": "global"})).unwrap();
    assert_eq!((plain.mode, plain.validate()), (Mode::Pause, Ok(())));
}

#[test]
fn slots_are_clamped_by_the_worker_type() {
    for (worker_type, wanted, expected) in [
        (Some("ceo_handler"), Some(50), 5),
        (Some("vp_handler"), Some(50), 10),
        (Some("crew_executor"), Some(50), 1),
        (Some("ceo_handler"), Some(2), 2),
        (Some("ceo_handler"), None, 5),
        (Some("ceo_handler"), Some(0), 1),
        (Some("own_type"), Some(50), 50),
        (Some("own_type"), None, 1),
        (None, Some(i32::MAX), MAX_SLOTS),
        (None, None, 1),
    ] {
        let given = Limits::default().slots(worker_type, wanted);
        assert_eq!(given, expected, "{worker_type:?} {wanted:?}");
    }
    assert!(POOL_SIZES.iter().all(|p| 0 < p.min && p.min <= p.max));
}

#[test]
fn a_senseless_rule_is_refused() {
    let rule = Rule {
        name: Some("x".into()),
        max_active: Some(-1),
        max_pending: Some(MAX_LIMIT + 1),
        ..DEFAULT_RULES[0].clone()
    };
    assert_eq!(
        findings(rule.validate()),
        [
            ("/name", "not_allowed"),
            ("/max_active", "out_of_range"),
            ("/max_pending", "out_of_range"),
        ]
    );
    assert!(DEFAULT_RULES.iter().all(|rule| rule.validate() == Ok(())));
    let named =
        |name: &str| Rule { name: Some(name.into()), ..DEFAULT_RULES[1].clone() }.validate();
    for name in [".", ".."] {
        assert_eq!(findings(named(name)), [("/name", "not_allowed")], "no address can hold it");
    }
    assert_eq!((named("..."), named("a..b")), (Ok(()), Ok(())));
}

fn level(active: i64, pending: i64) -> Level {
    backpressure(&Load {
        active,
        max_active: Some(200),
        pending,
        max_pending: Some(1_000),
        ..Load::default()
    })
    .level
}

#[test]
fn a_level_begins_above_its_threshold() {
    for (active, pending, expected) in [
        (0, 0, Level::Normal),
        (140, 500, Level::Normal),
        (141, 0, Level::Elevated),
        (0, 501, Level::Elevated),
        (180, 800, Level::Elevated),
        (181, 0, Level::Critical),
        (0, 801, Level::Critical),
    ] {
        assert_eq!(level(active, pending), expected, "{active} {pending}");
    }
}

#[test]
fn without_a_limit_there_is_no_pressure() {
    let calm = backpressure(&Load { active: i64::MAX, pending: i64::MAX, ..Load::default() });
    assert_eq!((calm.level, calm.global_utilization), (Level::Normal, 0.0));
}

#[test]
fn utilization_is_in_per_cent() {
    assert_eq!(utilization(50, Some(200)), 25.0);
    assert_eq!(utilization(400, Some(200)), 200.0);
    assert_eq!(utilization(0, Some(0)), 0.0);
    assert_eq!(utilization(1, Some(0)), 100.0);
}

#[test]
fn the_wait_is_the_depth_over_the_drain_rate() {
    assert_eq!(estimated_wait_ms(0, 0, 0), Some(0));
    assert_eq!(estimated_wait_ms(100, 50, 60_000), Some(120_000));
    assert_eq!(estimated_wait_ms(100, 0, 60_000), None);
    assert_eq!(estimated_wait_ms(i64::MAX, 1, i64::MAX), Some(i64::MAX));
}

#[test]
fn pressure_comes_with_advice() {
    let load = Load {
        active: 200,
        max_active: Some(200),
        pending: 900,
        max_pending: Some(1_000),
        held_back: 0,
        in_line: 900,
        stop: None,
        drained: 60,
        drained_over_ms: 60_000,
        still_ms: 0,
    };
    let pressed = backpressure(&load);
    assert_eq!(pressed.recommendations.len(), 2, "{:?}", pressed.recommendations);
    assert_eq!(pressed.estimated_wait_ms, Some(900_000));
    let idle = backpressure(&Load { pending: 3, in_line: 3, ..Load::default() });
    assert_eq!(idle.recommendations, ["start a worker: tasks wait and none runs"]);
    assert!(backpressure(&Load::default()).recommendations.is_empty());
}

#[test]
fn what_waits_for_its_time_keeps_nobody_waiting() {
    let later = backpressure(&Load { pending: 3, in_line: 0, ..Load::default() });
    assert_eq!((later.queue_depth, later.estimated_wait_ms), (3, Some(0)));
    assert!(later.recommendations.is_empty());
}

#[test]
fn what_may_not_begin_is_told_and_not_waited_for() {
    let load = Load { pending: 9, held_back: 9, in_line: 0, ..Load::default() };
    let told = backpressure(&load);
    assert_eq!((told.queue_depth, told.estimated_wait_ms), (9, Some(0)));
    let words = told.recommendations.concat();
    assert!(words.starts_with("9 of the pending tasks may not begin"), "{words}");
}

#[test]
fn the_pace_is_told_in_tasks_a_second() {
    let load = Load { drained: 30, drained_over_ms: 20_000, ..Load::default() };
    assert_eq!(backpressure(&load).drained_per_second, 1.5);
    assert_eq!(backpressure(&Load::default()).drained_per_second, 0.0);
}

#[test]
fn a_rate_is_told_as_short_as_it_can_be_said_exactly() {
    for (count, period_ms, words) in [
        (100, 60_000, "100/min"),
        (5, 1_000, "5/s"),
        (100, 90_000, "100/90 s"),
        (1, 3_600_000, "1/h"),
        (7, 86_400_000, "7/d"),
        (3, 7_200_000, "3/2 h"),
        (2, 1_500, "2/1500 ms"),
        (9, 1, "9/ms"),
        (10, 11_000, "10/11 s"),
    ] {
        assert_eq!(Rate { count, period_ms }.to_string(), words);
    }
}

#[test]
fn a_worker_types_rule_bounds_sessions_and_no_tasks() {
    let rule =
        |said| serde_json::from_value::<Maxima>(said).unwrap().of(Scope::WorkerType, None, None);
    let each = rule(json!({}));
    assert_eq!((each.max_active, each.max_pending), (Some(NEW_RULE_ACTIVE), None));
    assert_eq!(each.validate(), Ok(()));
    assert_eq!(rule(json!({"max_active": null})).max_active, None);
    let wrong = rule(json!({"max_pending": 1, "rate": {"count": 1, "period_ms": 1}}));
    assert_eq!(
        findings(wrong.validate()),
        [("/max_pending", "not_allowed"), ("/rate", "not_allowed")]
    );
    let limits = Limits::new([Rule { max_active: Some(0), ..each }]);
    assert_eq!((limits.most_held(Some("any")), limits.most_held(None)), (Some(0), None));
    assert_eq!(limits.slots(Some("any"), Some(7)), 1);
    assert!(limits.binding(&Names { queue: Some("any"), ..Names::default() }).is_empty());
}

#[test]
fn a_queue_that_takes_nothing_is_critical_and_says_so() {
    let (max_active, max_pending) = (Some(0), Some(0));
    let closed = backpressure(&Load { max_active, max_pending, ..Load::default() });
    assert_eq!((closed.level, closed.global_utilization), (Level::Critical, 0.0));
    let words = closed.recommendations.join("; ");
    assert!(words.contains("every submit is refused"), "{words}");
    // Nothing may begin, but nothing wants to.
    let paused = backpressure(&Load { max_active, ..Load::default() });
    assert_eq!((paused.level, paused.global_utilization), (Level::Normal, 0.0));
}

#[test]
fn only_what_stands_in_line_is_waited_for() {
    let load =
        Load { pending: 900, in_line: 30, drained: 60, drained_over_ms: 60_000, ..Load::default() };
    assert_eq!(backpressure(&load).estimated_wait_ms, Some(30_000));
    let later = Load { in_line: 0, drained: 0, ..load };
    let told = backpressure(&later);
    assert_eq!((told.estimated_wait_ms, told.recommendations.len()), (Some(0), 0));
}

#[test]
fn whoever_is_refused_is_told_to_come_back_when_there_may_be_room() {
    let (drained, drained_over_ms) = (60, 60_000);
    let pace = Load { drained, drained_over_ms, ..Load::default() };
    let told = |load: Load| backpressure(&load).come_back_after_ms(false);
    for (in_line, away_ms) in [(0, 1_000), (7, 7_000), (59, 59_000), (900, LONGEST_AWAY_MS)] {
        assert_eq!(told(Load { pending: 900, in_line, ..pace.clone() }), away_ms, "{in_line}");
    }
    // Nothing has left: nobody says when there is room. At first nobody has watched for long.
    for (still_ms, away_ms) in
        [(0, UNKNOWN_AWAY_MS), (4_999, UNKNOWN_AWAY_MS), (5_000, STILL_AWAY_MS)]
    {
        for in_line in [0, 9] {
            let load = Load { pending: 9, in_line, still_ms, ..Load::default() };
            assert_eq!(told(load), away_ms, "{still_ms} {in_line}");
        }
    }
    // What has stopped has no pace, though tasks left in the last minute; what is slow has one.
    let stopped = |still_ms, drained| {
        let load = Load { pending: 9, in_line: 9, still_ms, drained, ..pace.clone() };
        (told(load.clone()), backpressure(&load).estimated_wait_ms.is_some())
    };
    assert_eq!(stopped(9_999, 60), (9_000, true));
    assert_eq!(stopped(10_000, 60), (STILL_AWAY_MS, false));
    assert_eq!(stopped(5_000, 3_000), (STILL_AWAY_MS, false));
    assert_eq!(stopped(59_000, 6), (LONGEST_AWAY_MS, true));
    // Where nothing may begin, that others move says nothing.
    assert_eq!(backpressure(&pace).come_back_after_ms(true), STILL_AWAY_MS);
}

#[test]
fn what_may_not_begin_is_stopped() {
    let key = |scope, name: &str| Key { scope, name: name.to_owned() };
    let pause = |scope, name: Option<&str>, mode| Pause {
        scope,
        name: name.map(str::to_owned),
        mode,
        reason: None,
    };
    let limits = Limits::default().with_pauses([
        pause(Scope::Queue, Some("paused"), Mode::Pause),
        pause(Scope::Queue, Some("drained"), Mode::Drain),
    ]);
    assert_eq!(limits.stopped(), [key(Scope::Queue, "paused")]);
    let of_queue = |name| limits.is_stopped(&key(Scope::Queue, name));
    assert_eq!((of_queue("paused"), of_queue("drained"), of_queue("q")), (true, false, false));
    assert!(!limits.is_stopped(&key(Scope::Venture, "paused")), "another kind of thing");
    let closed = Rule { name: Some("acme".into()), ..Rule::each(Scope::Venture, Some(0), None) };
    let limits =
        Limits::new([closed]).with_pauses([pause(Scope::Venture, Some("acme"), Mode::Pause)]);
    assert_eq!(limits.stopped(), [key(Scope::Venture, "acme")], "once");
    assert!(limits.is_stopped(&key(Scope::Venture, "acme")));
    assert!(!limits.is_stopped(&key(Scope::Venture, "bolt")));
    let all = Limits::default().with_pauses([pause(Scope::Global, None, Mode::Pause)]);
    assert!(all.stopped().is_empty(), "that is told apart");
    assert!(
        all.is_stopped(&key(Scope::Venture, "bolt")) && all.is_stopped(&key(Scope::Global, ""))
    );
}

#[test]
fn a_full_queue_is_said_to_refuse_now() {
    let advice = |pending| {
        let load = Load { pending, max_pending: Some(100), ..Load::default() };
        backpressure(&load).recommendations.concat()
    };
    assert!(advice(99).contains("will soon be refused"), "{}", advice(99));
    for full in [100, 402] {
        assert!(advice(full).contains("are refused with queue_full now"), "{}", advice(full));
    }
}

#[test]
fn a_stop_of_everything_says_who_stopped_it_and_what_ends_it() {
    let stop = |mode| {
        let since = "2026-01-31T12:00:00.000Z".parse().unwrap();
        let stop = Stop { mode, by: "ann".into(), since, reason: Some("a move".into()) };
        let pace = Load { drained: 60, drained_over_ms: 60_000, ..Load::default() };
        backpressure(&Load { pending: 1, in_line: 1, stop: Some(stop), ..pace })
    };
    let paused = stop(Mode::Pause);
    assert_eq!(paused.estimated_wait_ms, None);
    assert_eq!(
        paused.recommendations,
        ["nothing begins: everything is paused by `ann` since 2026-01-31T12:00:00.000Z (a move); \
          `windlass resume --all` lets it go on"]
    );
    let drains = stop(Mode::Drain);
    assert_eq!(drains.estimated_wait_ms, Some(1_000), "what is there is handed out");
    let words = drains.recommendations.concat();
    assert!(words.starts_with("every submit is refused") && words.contains("`ann`"), "{words}");
}

#[test]
fn what_is_not_said_of_a_rule_stays_as_it_was() {
    let rate = Some(Rate { count: 1, period_ms: 2 });
    let before = Rule { rate, ..Rule::each(Scope::Venture, Some(3), Some(4)) };
    let over = |said: serde_json::Value, before: Option<&Rule>| {
        let said: Maxima = serde_json::from_value(said).unwrap();
        let rule = said.over(before, Scope::Venture, None, None);
        (rule.max_active, rule.max_pending, rule.rate)
    };
    assert_eq!(over(json!({}), Some(&before)), (Some(3), Some(4), rate));
    assert_eq!(over(json!({"max_active": 9}), Some(&before)), (Some(9), Some(4), rate));
    let none = json!({"max_pending": null, "rate": null});
    assert_eq!(over(none, Some(&before)), (Some(3), None, None));
    assert_eq!(over(json!({"max_active": 9}), None), (Some(9), Some(NEW_RULE_PENDING), None));
}

/// Whoever set a rate for a queue found ten active tasks and refused submits.
#[test]
fn whoever_says_only_a_rate_sets_no_other_limit() {
    let rate = Some(Rate { count: 1, period_ms: 2 });
    let each = Rule::each(Scope::Venture, Some(3), Some(4));
    let made = |said: serde_json::Value, name: Option<&str>, each: Option<&Rule>| {
        let said: Maxima = serde_json::from_value(said).unwrap();
        let rule = said.over(None, Scope::Venture, name.map(str::to_owned), each);
        (rule.max_active, rule.max_pending, rule.rate)
    };
    let only = || json!({"rate": {"count": 1, "period_ms": 2}});
    assert_eq!(made(only(), Some("acme"), None), (None, None, rate));
    assert_eq!(made(only(), Some("acme"), Some(&each)), (Some(3), Some(4), rate));
    // The rule for each one replaces itself.
    assert_eq!(made(only(), None, Some(&each)), (None, None, rate));
    // Whoever says anything else, or nothing, makes a new rule as usual.
    let new = (Some(NEW_RULE_ACTIVE), Some(NEW_RULE_PENDING), None);
    assert_eq!(made(json!({}), Some("acme"), Some(&each)), new);
    assert_eq!(made(json!({"rate": null}), Some("acme"), Some(&each)), new);
    let more = json!({"rate": {"count": 1, "period_ms": 2}, "max_active": 9});
    let expected = (Some(9), Some(NEW_RULE_PENDING), rate);
    assert_eq!(made(more, Some("acme"), Some(&each)), expected);
}
