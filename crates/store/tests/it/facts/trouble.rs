//! Trouble: every task that ends poisoned or stuck gets a person, an alert and a notice.

use crate::hand::{Attempt, attempt_all};
use crate::world::*;
use uuid::Uuid;
use windlass_domain::id::TaskId;
use windlass_domain::notice::Severity;
use windlass_domain::state::State;
use windlass_domain::time::Timestamp;
use windlass_domain::trouble::{Event, Status, TRANSITIONS};
use windlass_store::alert::{Alerts, Filter as AlertFilter};
use windlass_store::notice::{Filter as NoticeFilter, Notices};
use windlass_store::statement::Dialect;
use windlass_store::trouble::{Act, Filter, Trouble, Troubles};

conformance!(
    a_task_that_fails_for_good_enters_with_an_alert_and_a_notice,
    what_ends_well_enters_nothing,
    a_task_that_a_sweep_ends_enters_too,
    a_task_that_is_ended_by_hand_enters_too,
    it_is_assigned_investigated_and_resolved_and_every_act_is_kept,
    whoever_had_it_before_stays_in_its_notes,
    whoever_closes_what_nobody_took_up_takes_it_up_on_the_way,
    of_two_who_close_it_one_wins,
    an_act_whose_transaction_runs_twice_is_one_act,
    what_is_closed_takes_notes_and_nothing_else,
    a_resolution_names_a_task_that_exists,
    trouble_is_listed_oldest_first_with_filters,
    the_database_knows_the_workflow_of_the_domain,
    the_database_keeps_what_happened_and_what_was_noted,
    a_task_goes_with_its_trouble_but_not_before_somebody_closed_it,
);

async fn poisoned(
    world: &World,
    change: impl FnOnce(&mut windlass_domain::request::SubmitRequest),
) -> TaskId {
    let held = world.running(task(change)).await;
    assert_eq!(world.finish(&held, fail("POISON_TASK")).await.unwrap(), State::Poisoned);
    held.task.id
}

fn troubles(world: &World) -> Troubles {
    Troubles::new(world.store.clone())
}

async fn list(world: &World, filter: Filter) -> Vec<Trouble> {
    troubles(world).list(filter, None, 100).await.unwrap().0
}

async fn act(world: &World, task: TaskId, event: Event, actor: &str) -> Trouble {
    troubles(world).act(Act::new(task, event, actor)).await.unwrap()
}

async fn words(world: &World, task: TaskId) -> Vec<String> {
    let (_, notes) = troubles(world).show(task).await.unwrap().unwrap();
    let word = |n: &windlass_store::trouble::Note| {
        format!("{} {} {}", n.author, n.event.as_str(), n.note.as_deref().unwrap_or("-"))
    };
    notes.iter().map(word).collect()
}

async fn a_task_that_fails_for_good_enters_with_an_alert_and_a_notice(dialect: Dialect) {
    let world = World::new(dialect).await;
    let new = task(|r| {
        r.max_retries = Some(2);
        r.agent = Some("scout".into());
        r.backoff = Some(windlass_domain::retry::Backoff { base_ms: 0, ..Default::default() });
    });
    let id = world.submit(new).await;
    for tried in 1..=3 {
        let held = world.claim("w1", 1).await.remove(0);
        assert!(list(&world, Filter::default()).await.is_empty(), "after {tried}");
        world.pass_ms(1_000);
        world.finish(&held, fail("TIMEOUT")).await.unwrap();
    }
    let found = list(&world, Filter::default()).await;
    assert_eq!(found.len(), 1);
    let trouble = &found[0];
    assert_eq!((trouble.task_id, trouble.task_status), (id, State::Poisoned));
    assert_eq!((trouble.status, trouble.failure_count), (Status::Pending, 3));
    assert_eq!((trouble.queue.as_str(), trouble.agent.as_deref()), ("q", Some("scout")));
    assert_eq!(trouble.error.as_ref().unwrap().code, "TIMEOUT");
    assert_eq!((trouble.entered_at, trouble.closed_at), (world.now(), None));
    assert_eq!(world.tasks.failures(id, 0, 10).await.unwrap().len(), 3);
    let alerts = Alerts::new(world.store.clone());
    let alerts = alerts.list(AlertFilter::default(), None, 10).await.unwrap().0;
    assert_eq!(alerts.len(), 1);
    let alert = &alerts[0];
    assert_eq!((alert.kind.as_str(), alert.severity), ("poison_task", Severity::Critical));
    assert_eq!((alert.task_id, alert.created_at), (Some(id), world.now()));
    assert_eq!(alert.message, format!("task {id} in queue q is poisoned: TIMEOUT: it broke"));
    let notices = Notices::new(world.store.clone());
    let notices = notices.list(NoticeFilter::default(), None, 10).await.unwrap().0;
    assert_eq!(notices.len(), 1);
    assert_eq!((notices[0].kind.as_str(), notices[0].subject_id), ("alert", Some(alert.id)));
    let body = serde_json::json!({
        "type": "poison_task", "severity": "critical", "task": id, "message": alert.message,
    });
    assert_eq!(notices[0].body, body);
}

async fn what_ends_well_enters_nothing(dialect: Dialect) {
    let world = World::new(dialect).await;
    let done = world.running(job()).await;
    world.finish(&done, complete()).await.unwrap();
    let failed = world.running(job()).await;
    assert_eq!(world.finish(&failed, fail("INVALID_INPUT")).await.unwrap(), State::Failed);
    let gone = world.submit(job()).await;
    world.cancel(gone).await.unwrap();
    for table in ["trouble", "alert", "notice"] {
        let sql = format!("SELECT count(*) FROM {table}");
        assert_eq!(world.by_hand(&sql).unwrap(), "0", "{table}");
    }
}

async fn a_task_that_a_sweep_ends_enters_too(dialect: Dialect) {
    let world = World::new(dialect).await;
    let silent = world.running(task(|r| r.max_retries = Some(0))).await;
    let stuck = world.running(delegation(|_| {})).await;
    world.beat(&stuck).await.unwrap();
    world.pass_ms(60 * 60 * 1_000);
    world.tasks.expire_leases(10).await.unwrap();
    let worn = world.submit(task(|r| r.queue = Some("worn".into()))).await;
    for _ in 0..20 {
        let held = world.tasks.claim(claim_of("w1", &["worn"], 1)).await.unwrap().remove(0);
        world.finish(&held, windlass_store::task::Finishing::Release).await.unwrap();
    }
    let mut found: Vec<(TaskId, State, String)> = list(&world, Filter::default())
        .await
        .into_iter()
        .map(|t| (t.task_id, t.task_status, t.error.unwrap().code))
        .collect();
    found.sort();
    let mut expected = vec![
        (silent.task.id, State::Poisoned, "LEASE_EXPIRED".to_owned()),
        (stuck.task.id, State::Stuck, "STALE".to_owned()),
        (worn, State::Poisoned, "RELEASED_TOO_OFTEN".to_owned()),
    ];
    expected.sort();
    assert_eq!(found, expected);
    let alerts = Alerts::new(world.store.clone());
    let filter = AlertFilter { kind: Some("stuck_task".into()), ..Default::default() };
    let alerts = alerts.list(filter, None, 10).await.unwrap().0;
    assert_eq!(alerts[0].task_id, Some(stuck.task.id));
}

async fn a_task_that_is_ended_by_hand_enters_too(dialect: Dialect) {
    let world = World::with_real_clock(dialect).await;
    let held = world.running(job()).await;
    let ended = format!(
        "UPDATE task_state SET status = 'poisoned', lease_id = NULL, lease_expires_at = NULL,
         error = '{{\"code\": \"BY_HAND\", \"message\": \"enough\"}}' WHERE id = '{}'",
        held.task.id
    );
    world.by_hand(&ended).unwrap();
    let found = list(&world, Filter::default()).await;
    assert_eq!((found[0].task_id, found[0].failure_count), (held.task.id, 1));
    assert_eq!(found[0].error.as_ref().unwrap().code, "BY_HAND");
    let alerts = Alerts::new(world.store.clone());
    let alerts = alerts.list(AlertFilter::default(), None, 10).await.unwrap().0;
    assert!(alerts[0].message.ends_with("is poisoned: BY_HAND: enough"), "{alerts:?}");
    assert_eq!(world.by_hand("SELECT count(*) FROM notice").unwrap(), "1");
    // It can be acted upon like any other.
    assert_eq!(act(&world, held.task.id, Event::Resolve, "ann").await.status, Status::Resolved);
}

async fn it_is_assigned_investigated_and_resolved_and_every_act_is_kept(dialect: Dialect) {
    let world = World::new(dialect).await;
    let id = poisoned(&world, |_| {}).await;
    let assign = Act { assignee: Some("bob".into()), ..Act::new(id, Event::Assign, "ann") };
    let assigned = troubles(&world).act(assign).await.unwrap();
    assert_eq!((assigned.status, assigned.assignee.as_deref()), (Status::Pending, Some("bob")));
    world.pass_ms(1);
    let taken = act(&world, id, Event::Investigate, "carl").await;
    // It stays whose it was said to be.
    assert_eq!((taken.status, taken.assignee.as_deref()), (Status::Investigating, Some("bob")));
    world.pass_ms(1);
    let note = Act { note: Some("a bad prompt".into()), ..Act::new(id, Event::Note, "bob") };
    troubles(&world).act(note).await.unwrap();
    let fixed = world.submit(job()).await;
    world.pass_ms(1);
    let resolve = Act {
        resolved_by_task: Some(fixed),
        note: Some("fixed".into()),
        ..Act::new(id, Event::Resolve, "bob")
    };
    let resolved = troubles(&world).act(resolve).await.unwrap();
    assert_eq!((resolved.status, resolved.resolved_by_task), (Status::Resolved, Some(fixed)));
    assert_eq!(resolved.closed_at, Some(world.now()));
    let told = ["ann assign -", "carl investigate -", "bob note a bad prompt", "bob resolve fixed"];
    assert_eq!(words(&world, id).await, told);
    assert!(list(&world, Filter::default()).await.is_empty());
    let (shown, _) = troubles(&world).show(id).await.unwrap().unwrap();
    assert_eq!(shown, resolved);
    // The task itself is as it was.
    assert_eq!(world.status(id).await, State::Poisoned);
}

async fn whoever_had_it_before_stays_in_its_notes(dialect: Dialect) {
    let world = World::new(dialect).await;
    let id = poisoned(&world, |_| {}).await;
    for to in [Some("bob"), Some("carl"), None] {
        let assign = Act { assignee: to.map(Into::into), ..Act::new(id, Event::Assign, "ann") };
        troubles(&world).act(assign).await.unwrap();
        world.pass_ms(1);
    }
    act(&world, id, Event::Investigate, "dora").await;
    world.pass_ms(1);
    act(&world, id, Event::Abandon, "eve").await;
    let (_, notes) = troubles(&world).show(id).await.unwrap().unwrap();
    let had: Vec<_> = notes.iter().map(|n| (n.event, n.assignee.as_deref())).collect();
    assert_eq!(
        had,
        [
            (Event::Assign, Some("bob")),
            (Event::Assign, Some("carl")),
            (Event::Assign, None),
            (Event::Investigate, Some("dora")),
            (Event::Abandon, None),
        ]
    );
    let audit = windlass_store::audit::Audit::new(world.store.clone());
    let filter = windlass_store::audit::Filter::of_event("poison_act");
    let entries = audit.list(filter, None, 10).await.unwrap();
    let told: Vec<_> = entries.iter().rev().map(|e| e.detail["assignee"].clone()).collect();
    let nobody = serde_json::Value::Null;
    assert_eq!(told[..3], ["bob".into(), "carl".into(), nobody]);
}

async fn whoever_closes_what_nobody_took_up_takes_it_up_on_the_way(dialect: Dialect) {
    let world = World::new(dialect).await;
    let id = poisoned(&world, |_| {}).await;
    let abandon = Act { note: Some("old".into()), ..Act::new(id, Event::Abandon, "ann") };
    let closed = troubles(&world).act(abandon).await.unwrap();
    assert_eq!((closed.status, closed.assignee.as_deref()), (Status::Abandoned, Some("ann")));
    assert_eq!(words(&world, id).await, ["ann investigate -", "ann abandon old"]);
}

async fn of_two_who_close_it_one_wins(dialect: Dialect) {
    let world = World::new(dialect).await;
    for _ in 0..5 {
        let id = poisoned(&world, |_| {}).await;
        let (one, two) = (troubles(&world), troubles(&world));
        let (resolved, abandoned) = tokio::join!(
            one.act(Act::new(id, Event::Resolve, "ann")),
            two.act(Act::new(id, Event::Abandon, "bob")),
        );
        assert_eq!(usize::from(resolved.is_ok()) + usize::from(abandoned.is_ok()), 1);
        let lost = resolved.err().or(abandoned.err()).unwrap();
        assert_eq!(refused::<()>(Err(lost)), "illegal_transition");
        assert_eq!(words(&world, id).await.len(), 2);
    }
}

async fn an_act_whose_transaction_runs_twice_is_one_act(dialect: Dialect) {
    let world = World::new(dialect).await;
    let id = poisoned(&world, |_| {}).await;
    for event in [Event::Note, Event::Investigate, Event::Resolve] {
        let same = Act { note: Some("said once".into()), ..Act::new(id, event, "ann") };
        let first = troubles(&world).act(same.clone()).await.unwrap();
        assert_eq!(troubles(&world).act(same).await.unwrap(), first);
    }
    assert_eq!(words(&world, id).await.len(), 3);
}

async fn what_is_closed_takes_notes_and_nothing_else(dialect: Dialect) {
    let world = World::new(dialect).await;
    let id = poisoned(&world, |_| {}).await;
    let closed = act(&world, id, Event::Resolve, "ann").await;
    for event in [Event::Assign, Event::Investigate, Event::Resolve, Event::Abandon] {
        let said = troubles(&world).act(Act::new(id, event, "bob")).await;
        assert_eq!(refused(said), "illegal_transition", "{event:?}");
    }
    world.pass_ms(5);
    let note = Act { note: Some("it was DNS".into()), ..Act::new(id, Event::Note, "bob") };
    troubles(&world).act(note).await.unwrap();
    let (after, _) = troubles(&world).show(id).await.unwrap().unwrap();
    assert_eq!(after, closed);
    let unknown = troubles(&world).act(Act::new(TaskId(Uuid::now_v7()), Event::Note, "bob")).await;
    assert_eq!(refused(unknown), "not_found");
}

async fn a_resolution_names_a_task_that_exists(dialect: Dialect) {
    let world = World::new(dialect).await;
    let id = poisoned(&world, |_| {}).await;
    for other in [TaskId(Uuid::now_v7()), id] {
        let resolve = Act { resolved_by_task: Some(other), ..Act::new(id, Event::Resolve, "ann") };
        assert_eq!(refused(troubles(&world).act(resolve).await), "validation_failed");
    }
    assert_eq!(list(&world, Filter::default()).await[0].status, Status::Pending);
}

async fn trouble_is_listed_oldest_first_with_filters(dialect: Dialect) {
    let world = World::new(dialect).await;
    let mut ids = Vec::new();
    for n in 0..6 {
        ids.push(
            poisoned(&world, |r| {
                r.queue = Some(format!("q{}", n % 2));
                r.agent = (n == 4).then(|| "scout".into());
            })
            .await,
        );
        world.pass_ms(n % 2);
    }
    act(&world, ids[0], Event::Resolve, "ann").await;
    act(&world, ids[2], Event::Investigate, "bob").await;
    let mut seen = Vec::new();
    let mut after = None;
    loop {
        let (page, next) = troubles(&world).list(Filter::default(), after, 2).await.unwrap();
        seen.extend(page.iter().map(|trouble| trouble.task_id));
        after = next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(seen, ids[1..]);
    let all = Filter { status: Status::ALL.to_vec(), ..Filter::default() };
    assert_eq!(list(&world, all.clone()).await.len(), 6);
    for (filter, expected) in [
        (Filter { status: vec![Status::Resolved], ..Filter::default() }, vec![ids[0]]),
        (Filter { assignee: Some("bob".into()), ..Filter::default() }, vec![ids[2]]),
        (Filter { queue: Some("q1".into()), ..Filter::default() }, vec![ids[1], ids[3], ids[5]]),
        (Filter { agent: Some("scout".into()), ..Filter::default() }, vec![ids[4]]),
        (Filter { queue: Some("q0".into()), ..all }, vec![ids[0], ids[2], ids[4]]),
    ] {
        let found: Vec<_> = list(&world, filter).await.iter().map(|t| t.task_id).collect();
        assert_eq!(found, expected);
    }
}

async fn the_database_knows_the_workflow_of_the_domain(dialect: Dialect) {
    let world = World::new(dialect).await;
    let id = poisoned(&world, |_| {}).await;
    let set = |status: Status| {
        let closed = if status.is_closed() { "updated_at" } else { "NULL" };
        format!(
            "UPDATE trouble SET status = '{}', assignee = 'ann', closed_at = {closed} \
             WHERE task_id = '{id}'",
            status.as_str()
        )
    };
    for from in Status::ALL {
        for to in Status::ALL {
            // On the way to `from`; a transaction each, rolled back.
            let mut attempt = Attempt::new(set(*to));
            for step in match from {
                Status::Pending => vec![],
                Status::Investigating => vec![Status::Investigating],
                closed => vec![Status::Investigating, *closed],
            } {
                attempt = attempt.after(set(step));
            }
            let outcome = attempt_all(&world, &[attempt]).remove(0);
            let moves = |event: &Event| *event != Event::Note;
            let mut table = TRANSITIONS.iter();
            let is_legal = table.any(|(f, e, t)| (f, t) == (from, to) && moves(e));
            assert_eq!(outcome.refused.is_none(), is_legal, "{from:?} {to:?} {outcome:?}");
        }
    }
}

async fn the_database_keeps_what_happened_and_what_was_noted(dialect: Dialect) {
    let world = World::new(dialect).await;
    let id = poisoned(&world, |_| {}).await;
    let note = Act { note: Some("look".into()), ..Act::new(id, Event::Note, "ann") };
    troubles(&world).act(note).await.unwrap();
    let healthy = world.submit(job()).await;
    let other = Uuid::now_v7();
    let now = crate::refusal::instant(dialect, NOON);
    for tried in [
        "DELETE FROM trouble".into(),
        "DELETE FROM trouble_note".into(),
        "UPDATE trouble_note SET note = 'nothing'".into(),
        "UPDATE trouble SET failure_count = 0".into(),
        "UPDATE trouble SET queue = 'other'".into(),
        format!("UPDATE trouble SET task_id = '{other}'"),
        "UPDATE trouble SET status = 'investigating'".into(),
        "UPDATE trouble SET status = 'solved'".into(),
        "DELETE FROM alert".into(),
        "UPDATE alert SET message = 'all is well'".into(),
        "UPDATE alert SET acknowledged_by = 'ann'".into(),
        format!(
            "INSERT INTO trouble (task_id, task_status, queue, failure_count, entered_at, \
             updated_at) VALUES ('{healthy}', 'poisoned', 'q', 1, {now}, {now})"
        ),
    ] {
        let said = world.by_hand(&tried);
        assert!(said.is_err(), "{tried}: {said:?}");
    }
    if dialect == Dialect::Sqlite {
        let replace = format!(
            "INSERT OR REPLACE INTO trouble (task_id, task_status, queue, failure_count, \
             entered_at, updated_at) VALUES ('{id}', 'poisoned', 'q', 9, {now}, {now})"
        );
        assert!(world.by_hand(&replace).is_err());
    } else {
        assert!(world.by_hand("TRUNCATE trouble, trouble_note, alert").is_err());
    }
    assert_eq!(words(&world, id).await, ["ann note look"]);
}

async fn a_task_goes_with_its_trouble_but_not_before_somebody_closed_it(dialect: Dialect) {
    const DAY_MS: i64 = 24 * 60 * 60 * 1_000;
    let world = World::new(dialect).await;
    world.set_now(Timestamp::from_ms(NOON - 3_650 * DAY_MS));
    let held = world.running(inference()).await;
    world.finish(&held, fail("POISON_TASK")).await.unwrap();
    let id = held.task.id;
    world.pass_ms(8 * DAY_MS);
    let late = world.running(job()).await;
    world.finish(&late, complete()).await.unwrap();
    assert_eq!(world.tasks.remove_expired(None, 10).await.unwrap(), 0);
    act(&world, id, Event::Abandon, "ann").await;
    assert_eq!(world.tasks.remove_expired(None, 10).await.unwrap(), 1);
    assert_eq!(troubles(&world).show(id).await.unwrap(), None);
    assert_eq!(world.by_hand("SELECT count(*) FROM trouble_note").unwrap(), "0");
    // An alert outlives its task; it goes some time after somebody has seen it.
    let alerts = Alerts::new(world.store.clone());
    let (found, _) = alerts.list(AlertFilter::default(), None, 10).await.unwrap();
    assert_eq!(found[0].task_id, Some(id));
    assert_eq!(alerts.forget(DAY_MS, 10).await.unwrap(), 0);
    alerts.acknowledge(found[0].id, "ann").await.unwrap();
    world.pass_ms(DAY_MS - 1);
    assert_eq!(alerts.forget(DAY_MS, 10).await.unwrap(), 0);
    world.pass_ms(1);
    assert_eq!(alerts.forget(DAY_MS, 10).await.unwrap(), 1);
}

/// SQLite's writer runs the trigger for statements that set `retry_count` only: the hot ones pay
/// nothing for it.
#[test]
fn only_the_cold_path_can_end_a_task_badly() {
    for statement in windlass_store::statements() {
        let text = statement.text(Dialect::Sqlite);
        let Some((_, set)) = text.split_once("UPDATE task_state") else { continue };
        let set = set.split_once("WHERE").map_or(set, |(set, _)| set);
        let ends_badly = ["'poisoned'", "'stuck'", "status = $"].iter().any(|to| set.contains(to));
        let is_cold = statement.name == "task/save";
        assert_eq!(set.contains("retry_count ="), is_cold, "{}", statement.name);
        assert!(!ends_badly || is_cold, "{}", statement.name);
    }
}
