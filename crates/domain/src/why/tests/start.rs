//! When a task starts that a rate or a limit holds back.

use super::*;

fn start(facts: &Facts) -> Option<i64> {
    match why(facts).pop() {
        Some(Reason::InLine { estimated_wait_ms, .. }) => estimated_wait_ms,
        told => panic!("{told:?}"),
    }
}

/// The pace of the last minute knows nothing of periods: the fifth of a line of which three begin
/// in each was told to begin with the next.
#[test]
fn behind_a_rate_those_before_a_task_have_their_periods_first() {
    let mut facts = at_its_limits();
    facts.counts.get_mut(&venture()).unwrap().active = 0;
    (facts.line.drained, facts.line.drained_over_ms, facts.line.pending) = (60, 60_000, 9);
    // Two begin in each minute, and the next minute begins in one.
    for (ahead, minutes) in [(1, 1), (2, 2), (3, 2), (4, 3)] {
        facts.line.ahead = ahead;
        assert_eq!(start(&facts), Some(minutes * 60_000), "behind {ahead}");
    }
}

/// A rate of all ventures was reckoned with as if it were its own venture's alone.
#[test]
fn behind_a_rate_of_all_other_ventures_have_their_turns_too() {
    let rate = Rate { count: 2, period_ms: 60_000 };
    let minutes = |scope: Scope, ahead: i64, pending: i64| {
        let name = match scope {
            Scope::Global => String::new(),
            Scope::Queue => "q".into(),
            _ => "acme".into(),
        };
        let key = Key { scope, name };
        let bound =
            Bound { key, max_active: None, max_pending: None, rate: Some(rate), pause: None };
        let mut facts = facts();
        facts.counts = [(bound.key.clone(), Count { taken: 2, ..Count::default() })].into();
        facts.rates_until = [(bound.key.clone(), later())].into();
        facts.bounds = vec![bound];
        (facts.line.ahead, facts.line.ventures, facts.line.pending) = (ahead, 3, pending);
        (facts.line.drained, facts.line.drained_over_ms) = (6_000, 60_000);
        match why(&facts).pop() {
            Some(Reason::InLine { estimated_wait_ms: Some(ms), .. }) => ms / 60_000,
            told => panic!("{told:?}"),
        }
    };
    for scope in [Scope::Global, Scope::Queue] {
        // Four tasks of each of three ventures, the last of which is this one.
        assert_eq!(minutes(scope, 3, 100), 6, "{scope:?}");
        assert_eq!(minutes(scope, 3, 7), 4, "{scope:?}: no more than there are");
    }
    assert_eq!(minutes(Scope::Venture, 3, 100), 2);
}

fn agent() -> Key {
    Key { scope: Scope::Agent, name: "ann".into() }
}

/// An agent's limit or rate, of which `taken` began in the period and `active` are held.
fn at(max_active: Option<i64>, rate: Option<Rate>, active: i64) -> Facts {
    let taken = rate.map_or(0, |rate| rate.count);
    let bound = Bound { key: agent(), max_active, max_pending: None, rate, pause: None };
    let mut facts = facts();
    facts.counts = [(agent(), Count { taken, active, pending: 1_000 })].into();
    facts.rates_until = [(agent(), now().plus_ms(5_000))].into();
    facts.bounds = vec![bound];
    // A fast queue: a hundred in a second.
    (facts.line.drained, facts.line.drained_over_ms) = (6_000, 60_000);
    facts.line.pending = 1_000;
    facts
}

/// The fifth of an agent that may begin one in five seconds was told to begin with the next.
#[test]
fn behind_a_rate_of_an_agent_those_of_the_agent_have_their_periods() {
    let mut facts = at(None, Some(Rate { count: 1, period_ms: 5_000 }), 0);
    facts.line.ahead = 50;
    let mut told = |ahead: i64, ventures: i64| {
        facts.sharing = [(agent(), Sharing { ahead, ventures })].into();
        start(&facts)
    };
    assert_eq!(told(3, 1), Some(20_000));
    assert_eq!(told(0, 1), Some(5_000));
    // It works for two ventures, which take turns.
    assert_eq!(told(3, 2), Some(40_000));
    // Nobody has counted: nothing is told.
    facts.sharing.clear();
    assert_eq!(start(&facts), None);
}

/// Such a task was told the pace of its whole queue, in which others go fast.
#[test]
fn behind_a_limit_the_slots_of_the_limit_tell_when() {
    let mut facts = at(Some(1), None, 1);
    facts.sharing = [(agent(), Sharing { ahead: 4, ventures: 1 })].into();
    let told = |facts: &mut Facts, held_ms: &[i64], run_ms: Option<i64>| {
        facts.slots = [(agent(), Slots { held_ms: held_ms.to_vec(), run_ms })].into();
        start(facts)
    };
    // It has run for four seconds, and is halfway through as far as anybody knows.
    assert_eq!(told(&mut facts, &[4_000], None), Some(36_000));
    // Others have run for eight; this one began a second ago.
    assert_eq!(told(&mut facts, &[1_000], Some(8_000)), Some(39_000));
    // It runs for longer than others did.
    assert_eq!(told(&mut facts, &[20_000], Some(8_000)), Some(80_000));
    // It has just begun, and none has ended: nobody can tell.
    assert_eq!(told(&mut facts, &[0], None), None);
    assert_eq!(told(&mut facts, &[], Some(8_000)), None);
    // The queue is slower than the limit.
    facts.line.drained = 1;
    assert_eq!(told(&mut facts, &[4_000], None), Some(60_000));
    // Nothing has left the queue in a minute: the limit tells all the same.
    facts.line.drained = 0;
    assert_eq!(told(&mut facts, &[4_000], None), Some(36_000));
    // But not when a worker will be free.
    facts.busy = Some(Busy { held: 2, holders: Vec::new() });
    assert_eq!(told(&mut facts, &[4_000], None), None);
}

#[test]
fn each_slot_of_a_limit_is_free_once_in_a_run() {
    let mut facts = at(Some(2), None, 2);
    let slots = Slots { held_ms: vec![7_000, 3_000], run_ms: Some(8_000) };
    facts.slots = [(agent(), slots)].into();
    let told = |facts: &mut Facts, ahead: i64| {
        facts.sharing = [(agent(), Sharing { ahead, ventures: 1 })].into();
        start(facts)
    };
    for (ahead, seconds) in [(0, 1), (1, 5), (2, 9), (3, 13), (4, 17)] {
        assert_eq!(told(&mut facts, ahead), Some(seconds * 1_000), "behind {ahead}");
    }
    // The limit was lowered: the first who ends makes no room.
    facts.bounds[0].max_active = Some(1);
    assert_eq!(told(&mut facts, 0), Some(5_000));
    assert_eq!(told(&mut facts, 1), Some(13_000));
    // Two of many who hold a slot are known.
    facts.bounds[0].max_active = Some(200);
    facts.counts.get_mut(&agent()).unwrap().active = 200;
    assert_eq!(told(&mut facts, 0), Some(1_000));
    assert_eq!(told(&mut facts, 199), Some(5_000));
    assert_eq!(told(&mut facts, 200), Some(9_000));
}

#[test]
fn a_limit_that_lets_nothing_begin_has_no_start() {
    let mut facts = at(Some(0), None, 1);
    facts.sharing = [(agent(), Sharing { ahead: 0, ventures: 1 })].into();
    facts.slots = [(agent(), Slots { held_ms: vec![4_000], run_ms: None })].into();
    assert_eq!(start(&facts), None);
}

/// The queue's pace is that of its own limit, and tells where its slots cannot.
#[test]
fn behind_a_limit_of_the_queue_its_pace_tells_if_nothing_else_does() {
    let mut facts = at(Some(1), None, 1);
    let key = Key { scope: Scope::Queue, name: "q".into() };
    facts.bounds[0].key = key.clone();
    facts.counts = [(key.clone(), Count { active: 1, pending: 9, taken: 0 })].into();
    (facts.line.drained, facts.line.ahead) = (60, 4);
    assert_eq!(start(&facts), Some(5_000));
    facts.slots = [(key, Slots { held_ms: vec![4_000], run_ms: None })].into();
    assert_eq!(start(&facts), Some(36_000));
}
