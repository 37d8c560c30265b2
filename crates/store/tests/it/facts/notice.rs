//! Notices: told at least once, under one id, urgent ones at once and the others together.

use crate::world::*;
use serde_json::json;
use uuid::Uuid;
use windlass_domain::notice::{BATCH_MS, CLAIM_MS, MAX_TRIES, MAX_WAIT_MS, Severity, wait_ms};
use windlass_store::error::Error;
use windlass_store::notice::{self, Claimed, Filter, NewNotice, Notice, Notices, Settled};
use windlass_store::statement::Dialect;

conformance!(
    a_notice_is_written_with_its_transaction_or_not_at_all,
    an_urgent_notice_is_taken_at_once_and_by_nobody_else,
    a_try_that_never_ends_is_made_again_under_the_same_id,
    the_others_wait_for_a_batch_and_go_together,
    a_failed_try_is_put_off_and_given_up_in_the_end,
    a_late_word_about_an_old_try_changes_nothing,
    what_is_sealed_is_forgotten_with_the_last_try,
    what_nobody_tries_to_send_is_given_up_after_a_day,
    notices_are_listed_newest_first,
);

fn new(severity: Severity) -> NewNotice {
    NewNotice {
        id: Uuid::now_v7(),
        kind: "alert",
        severity,
        subject_id: Some(Uuid::now_v7()),
        body: json!({ "message": "look" }),
        sealed: None,
    }
}

async fn put(world: &World, new: NewNotice) -> Uuid {
    let id = new.id;
    let body = move |tx: &mut dyn windlass_store::tx::Tx| notice::enqueue(tx, &new);
    world.store.write("test", body).await.unwrap();
    id
}

async fn take(world: &World, severity: Severity) -> Vec<Claimed> {
    Notices::new(world.store.clone()).claim(severity, BATCH_MS, 10).await.unwrap()
}

async fn only(world: &World) -> Notice {
    let notices = Notices::new(world.store.clone());
    notices.list(Filter::default(), None, 10).await.unwrap().0.remove(0)
}

fn settled(claimed: &Claimed, error: Option<&str>) -> Settled {
    Settled {
        id: claimed.notice.id,
        tries: claimed.notice.tries,
        delivered_to: if error.is_none() { vec!["a".into(), "b".into()] } else { vec!["a".into()] },
        error: error.map(str::to_owned),
    }
}

async fn a_notice_is_written_with_its_transaction_or_not_at_all(dialect: Dialect) {
    let world = World::new(dialect).await;
    let lost = new(Severity::Critical);
    let body = move |tx: &mut dyn windlass_store::tx::Tx| -> Result<(), Error> {
        notice::enqueue(tx, &lost)?;
        Err(Error::Data("rolled back".into()))
    };
    assert!(world.store.write("test", body).await.is_err());
    let twice = new(Severity::Critical);
    put(&world, twice.clone()).await;
    put(&world, twice.clone()).await;
    let taken = take(&world, Severity::Critical).await;
    assert_eq!(taken.len(), 1);
    assert_eq!((taken[0].notice.id, taken[0].notice.tries), (twice.id, 1));
    assert_eq!(
        (&taken[0].notice.body, taken[0].notice.subject_id),
        (&twice.body, twice.subject_id)
    );
}

async fn an_urgent_notice_is_taken_at_once_and_by_nobody_else(dialect: Dialect) {
    let world = World::new(dialect).await;
    let id = put(&world, new(Severity::Critical)).await;
    let (one, two) =
        tokio::join!(take(&world, Severity::Critical), take(&world, Severity::Critical));
    assert_eq!(one.len() + two.len(), 1);
    let claimed = one.into_iter().chain(two).next().unwrap();
    let notices = Notices::new(world.store.clone());
    let done = notices.settle(vec![settled(&claimed, None)]).await.unwrap();
    assert_eq!((done.delivered, done.put_off, done.given_up), (1, 0, 0));
    let told = only(&world).await;
    assert_eq!((told.id, told.delivered_at, told.tries), (id, Some(world.now()), 1));
    assert_eq!(told.delivered_to, ["a", "b"]);
    world.pass_ms(10 * CLAIM_MS);
    assert!(take(&world, Severity::Critical).await.is_empty());
}

async fn a_try_that_never_ends_is_made_again_under_the_same_id(dialect: Dialect) {
    let world = World::new(dialect).await;
    let id = put(&world, new(Severity::Critical)).await;
    assert_eq!(take(&world, Severity::Critical).await.len(), 1);
    world.pass_ms(CLAIM_MS - 1);
    assert!(take(&world, Severity::Critical).await.is_empty());
    world.pass_ms(1);
    let again = take(&world, Severity::Critical).await;
    assert_eq!((again[0].notice.id, again[0].notice.tries), (id, 2));
}

async fn the_others_wait_for_a_batch_and_go_together(dialect: Dialect) {
    let world = World::new(dialect).await;
    let first = put(&world, new(Severity::Warning)).await;
    put(&world, new(Severity::Info)).await;
    world.pass_ms(BATCH_MS - 1);
    let second = put(&world, new(Severity::Warning)).await;
    assert!(take(&world, Severity::Warning).await.is_empty());
    world.pass_ms(1);
    let taken = take(&world, Severity::Warning).await;
    let ids: Vec<Uuid> = taken.iter().map(|claimed| claimed.notice.id).collect();
    assert_eq!(ids, [first, second]);
    // A batch that failed is tried again when its time has come, not a whole batch later.
    let notices = Notices::new(world.store.clone());
    let failed = taken.iter().map(|claimed| settled(claimed, Some("down"))).collect();
    assert_eq!(notices.settle(failed).await.unwrap().put_off, 2);
    world.pass_ms(wait_ms(1) - 1);
    assert!(take(&world, Severity::Warning).await.is_empty());
    world.pass_ms(1);
    assert_eq!(take(&world, Severity::Warning).await.len(), 2);
}

async fn a_failed_try_is_put_off_and_given_up_in_the_end(dialect: Dialect) {
    let world = World::new(dialect).await;
    put(&world, new(Severity::Critical)).await;
    let notices = Notices::new(world.store.clone());
    for tries in 1..=MAX_TRIES {
        let claimed = take(&world, Severity::Critical).await.remove(0);
        assert_eq!(claimed.notice.tries, tries);
        let had = if tries == 1 { 0 } else { 1 };
        assert_eq!(claimed.notice.delivered_to.len(), had, "who has it is remembered");
        let done = notices.settle(vec![settled(&claimed, Some("it is\0 down"))]).await.unwrap();
        let last = tries == MAX_TRIES;
        assert_eq!((done.put_off, done.given_up), (usize::from(!last), usize::from(last)));
        assert_eq!(only(&world).await.last_error.as_deref(), Some("it is down"));
        world.pass_ms(wait_ms(tries) - 1);
        assert!(take(&world, Severity::Critical).await.is_empty(), "{tries}");
        world.pass_ms(1);
    }
    let told = only(&world).await;
    assert!(told.given_up_at.is_some() && told.delivered_at.is_none());
}

async fn a_late_word_about_an_old_try_changes_nothing(dialect: Dialect) {
    let world = World::new(dialect).await;
    put(&world, new(Severity::Critical)).await;
    let notices = Notices::new(world.store.clone());
    let first = take(&world, Severity::Critical).await.remove(0);
    world.pass_ms(CLAIM_MS);
    let second = take(&world, Severity::Critical).await.remove(0);
    // The first try failed, but the second is under way: it is not put off.
    assert_eq!(notices.settle(vec![settled(&first, Some("late"))]).await.unwrap().put_off, 0);
    assert_eq!(only(&world).await.last_error, None);
    assert_eq!(notices.settle(vec![settled(&second, None)]).await.unwrap().delivered, 1);
    assert_eq!(
        notices.settle(vec![settled(&second, Some("no"))]).await.unwrap(),
        Default::default()
    );
    assert!(only(&world).await.delivered_at.is_some());
}

async fn what_is_sealed_is_forgotten_with_the_last_try(dialect: Dialect) {
    let world = World::new(dialect).await;
    let secret = NewNotice { sealed: Some(json!({ "token": "t-1" })), ..new(Severity::Critical) };
    put(&world, secret).await;
    let claimed = take(&world, Severity::Critical).await.remove(0);
    assert_eq!(claimed.sealed, Some(json!({ "token": "t-1" })));
    let sealed = "SELECT count(*) FROM notice WHERE sealed IS NOT NULL";
    assert_eq!(world.by_hand(sealed).unwrap(), "1");
    Notices::new(world.store.clone()).settle(vec![settled(&claimed, None)]).await.unwrap();
    assert_eq!(world.by_hand(sealed).unwrap(), "0");
    assert!(world.by_hand("UPDATE notice SET sealed = '{}'").is_err());
}

async fn what_nobody_tries_to_send_is_given_up_after_a_day(dialect: Dialect) {
    let world = World::new(dialect).await;
    let notices = Notices::new(world.store.clone());
    let secret = NewNotice { sealed: Some(json!({ "token": "t-1" })), ..new(Severity::Info) };
    put(&world, secret).await;
    put(&world, new(Severity::Critical)).await;
    assert_eq!(take(&world, Severity::Critical).await.len(), 1);
    world.pass_ms(MAX_WAIT_MS - 1);
    assert_eq!(notices.expire(10).await.unwrap(), 0);
    world.pass_ms(1);
    assert_eq!(notices.expire(10).await.unwrap(), 1, "what is being tried is left alone");
    let filter = Filter { state: Some("given_up"), ..Filter::default() };
    let given_up = notices.list(filter, None, 10).await.unwrap().0;
    assert_eq!(given_up[0].last_error.as_deref(), Some("no webhook was configured"));
    assert_eq!(given_up.len(), 1);
}

async fn notices_are_listed_newest_first(dialect: Dialect) {
    let world = World::new(dialect).await;
    let notices = Notices::new(world.store.clone());
    let mut ids = Vec::new();
    for severity in [Severity::Critical, Severity::Warning, Severity::Info] {
        for _ in 0..2 {
            ids.insert(0, put(&world, new(severity)).await);
            world.pass_ms(1);
        }
    }
    let mut seen = Vec::new();
    let mut after = None;
    loop {
        let (page, next) = notices.list(Filter::default(), after, 4).await.unwrap();
        seen.extend(page.iter().map(|notice| notice.id));
        after = next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(seen, ids);
    let filter = Filter { severity: Some(Severity::Warning), ..Filter::default() };
    assert_eq!(notices.list(filter, None, 10).await.unwrap().0.len(), 2);
    let filter = Filter { kind: Some("approval".into()), ..Filter::default() };
    assert_eq!(notices.list(filter, None, 10).await.unwrap().0.len(), 0);
}
