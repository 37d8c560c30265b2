//! Whose turn it is, tried.

use super::*;
use crate::order::order_key;
use crate::time::Timestamp;

fn key(priority: i32) -> i64 {
    order_key(priority, Timestamp::from_ms(1_000))
}

fn take<F: Into<Fit>>(line: &mut Line, max: i64, mut fits: impl FnMut(i64) -> F) -> Vec<Part> {
    line.take(max, &Insight::default(), |lane, _| fits(lane))
}

/// Who gets the next `count` tasks, one claim each; every lane is as long as it says.
fn serve(line: &mut Line, lengths: &mut HashMap<i64, i64>, count: usize) -> Vec<i64> {
    let mut served = Vec::new();
    while served.len() < count {
        let Some(part) = take(line, 1, |_| true).pop() else { break };
        let left = lengths.entry(part.lane).or_default();
        match *left {
            0 => line.close(part.lane),
            _ => {
                *left -= 1;
                served.push(part.lane);
            }
        }
    }
    served
}

#[test]
fn a_long_backlog_gets_no_more_turns_than_a_short_one() {
    let mut line = Line::default();
    let mut lengths = HashMap::from([(0, 10_000)]);
    line.open("big", 0, key(0));
    serve(&mut line, &mut lengths, 1_000);
    for lane in 1..100 {
        line.open(&format!("small {lane}"), lane, key(0));
        lengths.insert(lane, 10);
    }
    let served = serve(&mut line, &mut lengths, 10 * 99 + 15);
    assert_eq!(served.iter().filter(|lane| **lane != 0).count(), 10 * 99);
}

#[test]
fn an_urgent_task_is_next_and_a_second_one_waits_for_its_turn() {
    let mut line = Line::default();
    for lane in 0..100 {
        line.open(&format!("v{lane}"), lane, key(0));
    }
    let mut lengths: HashMap<i64, i64> = (0..100).map(|lane| (lane, 100)).collect();
    serve(&mut line, &mut lengths, 550);
    // Another lane of the same venture, served a moment ago.
    line.open("v7", 1_007, key(5));
    lengths.insert(1_007, 2);
    let served = serve(&mut line, &mut lengths, 101);
    assert_eq!(served[0], 1_007);
    assert!(served[1..].iter().filter(|lane| **lane % 1_000 == 7).count() <= 1);
}

#[test]
fn within_a_venture_the_more_urgent_lane_goes_first() {
    let mut line = Line::default();
    line.open("v", 1, key(0));
    line.open("v", 2, key(3));
    line.open("v", 3, key(-3));
    let first = |line: &mut Line| take(line, 1, |_| true)[0].lane;
    assert_eq!(first(&mut line), 2);
    line.close(2);
    assert_eq!(first(&mut line), 1);
    line.close(1);
    assert_eq!(first(&mut line), 3);
}

#[test]
fn several_turns_of_a_venture_are_taken_from_its_lanes_in_turn() {
    let mut line = Line::default();
    line.open("v", 1, key(9));
    line.open("v", 2, key(5));
    line.open("v", 3, key(0));
    assert_eq!(quotas(&take(&mut line, 2, |_| true)), [(1, 1), (2, 1)]);
    assert_eq!(quotas(&take(&mut line, 7, |_| true)), [(1, 3), (2, 2), (3, 2)]);
    assert_eq!(quotas(&take(&mut line, 4, |lane| lane != 1)), [(2, 2), (3, 2)]);
}

fn quotas(parts: &[Part]) -> Vec<(i64, i64)> {
    parts.iter().map(|part| (part.lane, part.quota)).collect()
}

#[test]
fn what_does_not_fit_holds_nobody_up_is_next_when_it_fits_and_saves_nothing_up() {
    let mut line = Line::default();
    line.open("a", 1, key(0));
    line.open("b", 2, key(0));
    assert_eq!(quotas(&take(&mut line, 50, |lane| lane == 2)), [(2, 50)]);
    assert_eq!(quotas(&take(&mut line, 1, |_| true)), [(1, 1)]);
    assert_eq!(quotas(&take(&mut line, 100, |_| true)), [(1, 50), (2, 50)]);
}

#[test]
fn a_newcomer_is_not_measured_by_those_who_are_held_back() {
    let mut line = Line::default();
    line.open("held back", 1, key(0));
    line.open("old", 2, key(0));
    take(&mut line, 60, |lane| lane != 1);
    line.open("new", 3, key(0));
    assert_eq!(quotas(&take(&mut line, 10, |lane| lane != 1)), [(2, 5), (3, 5)]);
    // Nor when all are, and one is let go.
    take(&mut line, 1, |_| false);
    line.open("newest", 4, key(0));
    assert_eq!(quotas(&take(&mut line, 20, |lane| lane != 1)).len(), 3);
    let served = quotas(&take(&mut line, 40, |_| true));
    assert!(served.iter().all(|(_, quota)| (9..=11).contains(quota)), "{served:?}");
}

#[test]
fn a_lane_with_room_is_found_behind_one_without_in_the_same_venture() {
    let mut line = Line::default();
    line.open("a", 1, key(1));
    line.open("a", 2, key(0));
    assert_eq!(take(&mut line, 1, |lane| lane == 2)[0].lane, 2);
}

#[test]
fn nobody_saves_turns_up_by_staying_away() {
    let mut line = Line::default();
    line.open("early", 1, key(0));
    take(&mut line, 1_000, |_| true);
    line.open("late", 2, key(0));
    let parts = take(&mut line, 10, |_| true);
    assert_eq!(parts.iter().map(|part| part.quota).collect::<Vec<_>>(), [5, 5]);
    line.close(2);
    line.open("late", 2, key(0));
    let parts = take(&mut line, 10, |_| true);
    assert_eq!(parts.iter().map(|part| part.quota).collect::<Vec<_>>(), [5, 5]);
}

#[test]
fn turns_that_were_not_used_come_back() {
    let mut line = Line::default();
    line.open("a", 1, key(0));
    line.open("b", 2, key(0));
    take(&mut line, 100, |_| true);
    line.give_back(1, 40);
    let parts = take(&mut line, 40, |_| true);
    assert_eq!(parts, [Part { lane: 1, from_key: key(0), quota: 40, until_key: i64::MAX }]);
}

#[test]
fn nobody_is_passed_over_for_not_being_counted() {
    let mut line = Line::default();
    line.open("a", 1, key(0));
    line.open("b", 2, key(0));
    let mut counted = false;
    let mut served: BTreeMap<i64, i64> = BTreeMap::new();
    for _ in 0..2 {
        let fits = |lane| if lane == 1 || counted { Fit::Yes } else { Fit::Unknown };
        let left = 10 - served.values().sum::<i64>();
        for part in take(&mut line, left, fits) {
            *served.entry(part.lane).or_default() += part.quota;
        }
        counted = true;
    }
    assert_eq!(served, BTreeMap::from([(1, 5), (2, 5)]));
}

#[test]
fn many_lanes_of_one_share_do_not_hide_the_next_share() {
    let mut line = Line::default();
    (0..1_000).for_each(|lane| line.open("a", lane, key(0)));
    line.open("b", 1_000, key(0));
    let called = |count| {
        let mut called = Vec::new();
        line.next_lanes(count, |lane| {
            called.push(lane);
            true
        });
        called
    };
    assert_eq!((called(0).len(), called(1).len(), called(10).len()), (0, 1, 11));
    assert_eq!(called(10).last(), Some(&1_000));
    let mut looked = 0;
    line.next_lanes(10, |_| {
        looked += 1;
        false
    });
    assert_eq!(looked, 1_001, "what is not open is passed over");
}

#[test]
fn several_at_once_go_by_priority_where_more_than_heads_is_known() {
    let mut line = Line::default();
    let lanes = [(1, [9, 0, 0]), (2, [5, 5, 0]), (3, [7, -1, -1])];
    lanes.iter().for_each(|(lane, all)| line.open("v", *lane, key(all[0])));
    let mixed: BTreeMap<i64, i64> = line.mixed_lanes(1).collect();
    assert_eq!(mixed, BTreeMap::from([(1, key(9)), (2, key(5)), (3, key(7))]));
    let keys = lanes.map(|(lane, all)| (lane, all.map(key).to_vec()));
    let mut insight = Insight { keys: keys.into(), planned: HashMap::new() };
    let all = |_, _| true;
    let parts = line.take(4, &insight, all);
    assert_eq!(quotas(&parts), [(1, 1), (2, 2), (3, 1)]);
    // And so for the next claim of the same look.
    insight.planned = parts.iter().map(|part| (part.lane, part.quota)).collect();
    assert_eq!(quotas(&line.take(3, &insight, all)), [(1, 2), (2, 1)]);
    let first_is_full = |lane, _| lane != 1;
    assert_eq!(quotas(&line.take(2, &insight, first_is_full)), [(2, 1), (3, 1)]);
}

#[test]
fn only_unlike_lanes_of_one_share_are_looked_into() {
    let mut line = Line::default();
    line.open("usual", 1, key(0));
    line.open("usual", 2, key(0));
    line.open("alone", 3, key(9));
    assert_eq!(line.mixed_lanes(9).count(), 0);
    line.open("low", 4, key(0));
    line.open("low", 5, key(-1));
    assert_eq!((line.mixed_lanes(9).count(), line.mixed_lanes(0).count()), (2, 0));
}

#[test]
fn what_is_behind_a_head_is_not_taken_before_the_more_urgent_of_another_lane() {
    let mut line = Line::default();
    line.open("v", 1, key(9));
    line.open("v", 2, key(3));
    line.open("v", 3, key(0));
    line.open("other", 4, key(9));
    let part = |parts: Vec<Part>, lane| parts.into_iter().find(|part| part.lane == lane).unwrap();
    let first = part(take(&mut line, 1, |lane| lane != 4), 1);
    assert!(key(9) < first.until_key && key(3) <= first.until_key && first.until_key < key(2));
    // Those of one priority take no notice of each other's times.
    assert_eq!(first.until_key, order_key(3, Timestamp::MAX));
    // What does not fit has nothing that could come before.
    let parts = take(&mut line, 1, |lane| lane == 1);
    assert!(part(parts, 1).until_key >= key(3));
    let mut line = Line::default();
    line.open("v", 1, key(9));
    line.open("v", 2, key(0));
    let insight = Insight { keys: [(2, vec![key(0)])].into(), planned: HashMap::new() };
    let parts = line.take(2, &insight, |_: i64, _: i64| true);
    assert_eq!(part(parts.clone(), 2).until_key, i64::MAX, "of the other all is planned");
    assert_eq!(part(parts, 1).until_key, i64::MAX);
}

// A claim that asks for more than there is room for took what comes behind a head that another node
// had taken before it.
#[test]
fn what_has_no_more_room_still_comes_before_what_is_behind_a_head() {
    struct Room(i64, Fit);
    impl Gate for Room {
        fn fits(&mut self, _lane: i64, many: i64) -> Fit {
            self.0 -= if self.0 >= many { many } else { return self.1 };
            Fit::Yes
        }
    }
    let mut line = Line::default();
    line.open("v", 1, key(9));
    line.open("v", 2, key(3));
    for full in [Fit::Shut, Fit::No] {
        let parts = line.take(5, &Insight::default(), Room(1, full));
        assert_eq!(quotas(&parts), [(1, 1)]);
        assert_eq!(parts[0].until_key, order_key(3, Timestamp::MAX), "{full:?}");
    }
    // What had no room while another lane went on cannot be what comes before that.
    let keys = [(1, [9, 0, 0].map(key).to_vec()), (2, vec![key(3)])];
    let insight = Insight { keys: keys.into(), planned: HashMap::new() };
    let parts = line.take(3, &insight, |lane, _| lane == 1);
    assert_eq!((quotas(&parts), parts[0].until_key), (vec![(1, 3)], i64::MAX));
}

#[test]
fn of_a_venture_that_is_shut_one_lane_is_asked_for() {
    struct Shut(usize);
    impl Gate for Shut {
        fn fits(&mut self, lane: i64, _many: i64) -> Fit {
            self.0 += 1;
            if lane < 10_000 { Fit::Shut } else { Fit::Yes }
        }
    }
    let mut line = Line::default();
    (0..10_000).for_each(|lane| line.open("a", lane, key(0)));
    line.open("b", 10_000, key(-1));
    let mut looked = 0;
    line.next_lanes(10, |lane| {
        looked += 1;
        if lane < 10_000 { Fit::Shut } else { Fit::Yes }
    });
    assert_eq!(looked, 2);
    let mut gate = Shut(0);
    struct By<'a>(&'a mut Shut);
    impl Gate for By<'_> {
        fn fits(&mut self, lane: i64, many: i64) -> Fit {
            self.0.fits(lane, many)
        }
    }
    let parts = line.take(1, &Insight::default(), By(&mut gate));
    assert_eq!((parts.len(), parts[0].lane, gate.0), (1, 10_000, 2));
}
