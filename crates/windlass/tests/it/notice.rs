//! Notices on their way out: who gets them, when, and what a receiver that is down misses.

use crate::world::{NOON, Place, conformance, eventually, start_at};
use serde_json::{Value as Json, json};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use uuid::Uuid;
use windlass::Engine;
use windlass::domain::notice::{BATCH_MS, MAX_TRIES, Severity, wait_ms};
use windlass::engine::{Deliver, Delivery, Parcel};
use windlass::store::notice::{Filter, NewNotice, Notice, enqueue};
use windlass::store::statement::Dialect;

conformance!(
    an_urgent_notice_goes_at_once_and_alone,
    the_others_go_together_when_their_time_has_come,
    a_receiver_that_was_down_gets_it_later_and_the_others_get_it_once,
    a_receiver_that_stays_down_is_given_up,
    without_receivers_notices_are_only_stored,
);

/// An engine whose database has its clock in the test's hand.
struct World {
    engine: Engine,
    clock: Arc<AtomicI64>,
    post: Arc<Post>,
    _place: Place,
}

/// Receivers, of whom some are down.
#[derive(Default)]
struct Post {
    down: Mutex<BTreeSet<&'static str>>,
    got: Mutex<Vec<(String, Json)>>,
}

impl Deliver for Post {
    fn receivers(&self) -> Vec<String> {
        vec!["a".into(), "b".into()]
    }

    fn deliver<'a>(&'a self, receiver: &'a str, parcel: &'a Parcel) -> Delivery<'a> {
        Box::pin(async move {
            if self.down.lock().unwrap().contains(receiver) {
                return Err("it is down".into());
            }
            self.got.lock().unwrap().push((receiver.to_owned(), parcel.content.clone()));
            Ok(())
        })
    }
}

impl Post {
    /// The notices that a receiver has, a list for each parcel.
    fn of(&self, receiver: &str) -> Vec<Vec<Json>> {
        let got = self.got.lock().unwrap();
        let mine = got.iter().filter(|(to, _)| to == receiver);
        mine.map(|(_, content)| content["notices"].as_array().unwrap().clone()).collect()
    }
}

async fn world(dialect: Dialect) -> World {
    let clock = Arc::new(AtomicI64::new(NOON));
    let (engine, place) = start_at(dialect, &clock).await;
    World { engine, clock, post: Arc::new(Post::default()), _place: place }
}

impl World {
    fn send(&self) {
        let post = Arc::clone(&self.post);
        self.engine.deliver_notices(post, Duration::from_millis(BATCH_MS as u64));
    }

    fn pass_ms(&self, ms: i64) {
        self.clock.fetch_add(ms, Ordering::SeqCst);
    }

    async fn put(&self, severity: Severity) -> Uuid {
        let id = Uuid::now_v7();
        let body = move |tx: &mut dyn windlass::store::tx::Tx| {
            let (body, sealed) = (json!({ "message": "look" }), Some(json!({ "token": "t" })));
            let new = NewNotice { id, kind: "alert", severity, subject_id: None, body, sealed };
            enqueue(tx, &new)
        };
        self.engine.store().write("test", body).await.unwrap();
        id
    }

    async fn notice(&self, id: Uuid) -> Notice {
        let all = self.engine.notices().list(Filter::default(), None, 100).await.unwrap().0;
        all.into_iter().find(|notice| notice.id == id).unwrap()
    }

    /// A try is counted when it begins, and put off when its end is written: only then is the time
    /// of the next one known, which a clock that moves before that would put further away.
    async fn tried(&self, id: Uuid, tries: i32) {
        eventually("the try has ended", || async {
            let put_off = self.engine.notice_stats().put_off;
            put_off == u64::try_from(tries).unwrap() && self.notice(id).await.tries == tries
        })
        .await;
    }

    async fn delivered(&self, id: Uuid) {
        eventually("it is delivered", || async { self.notice(id).await.delivered_at.is_some() })
            .await;
    }
}

async fn an_urgent_notice_goes_at_once_and_alone(dialect: Dialect) {
    let world = world(dialect).await;
    world.send();
    let (one, two) = (world.put(Severity::Critical).await, world.put(Severity::Critical).await);
    world.delivered(one).await;
    world.delivered(two).await;
    for receiver in ["a", "b"] {
        let parcels = world.post.of(receiver);
        assert_eq!(parcels.len(), 2);
        assert!(parcels.iter().all(|parcel| parcel.len() == 1));
        // What is sealed is told to receivers, and to nobody else.
        let found = parcels.iter().find(|parcel| parcel[0]["id"] == json!(one)).unwrap();
        assert_eq!(found[0]["body"], json!({ "message": "look", "token": "t" }));
        assert_eq!(
            (&found[0]["kind"], &found[0]["severity"]),
            (&json!("alert"), &json!("critical"))
        );
    }
    assert_eq!(world.notice(one).await.body, json!({ "message": "look" }));
    // Counted after the database knows of it.
    eventually("both are counted", || async {
        let stats = world.engine.notice_stats();
        (stats.delivered, stats.put_off, stats.given_up) == (2, 0, 0)
    })
    .await;
}

async fn the_others_go_together_when_their_time_has_come(dialect: Dialect) {
    let world = world(dialect).await;
    let first = world.put(Severity::Warning).await;
    world.pass_ms(BATCH_MS - 1);
    let second = world.put(Severity::Warning).await;
    world.send();
    let urgent = world.put(Severity::Critical).await;
    world.delivered(urgent).await;
    assert_eq!(world.notice(first).await.tries, 0);
    world.pass_ms(1);
    world.delivered(first).await;
    let parcels = world.post.of("a");
    let ids: Vec<&Json> = parcels[1].iter().map(|notice| &notice["id"]).collect();
    assert_eq!(ids, [&json!(first), &json!(second)]);
}

async fn a_receiver_that_was_down_gets_it_later_and_the_others_get_it_once(dialect: Dialect) {
    let world = world(dialect).await;
    world.post.down.lock().unwrap().insert("b");
    world.send();
    let id = world.put(Severity::Critical).await;
    world.tried(id, 1).await;
    let notice = world.notice(id).await;
    assert_eq!(notice.delivered_to, ["a"]);
    assert_eq!(notice.last_error.as_deref(), Some("b: it is down"));
    assert_eq!(notice.due_at.as_ms(), NOON + wait_ms(1));
    world.pass_ms(wait_ms(1));
    world.tried(id, 2).await;
    world.post.down.lock().unwrap().clear();
    world.pass_ms(wait_ms(2));
    world.delivered(id).await;
    assert_eq!((world.post.of("a").len(), world.post.of("b").len()), (1, 1));
    assert_eq!(world.notice(id).await.delivered_to, ["a", "b"]);
}

async fn a_receiver_that_stays_down_is_given_up(dialect: Dialect) {
    let world = world(dialect).await;
    world.post.down.lock().unwrap().insert("b");
    let id = world.put(Severity::Critical).await;
    // All tries but the last, quicker than the duty would make them.
    for tries in 1..MAX_TRIES {
        let claimed = world.engine.notices().claim(Severity::Critical, 0, 1).await.unwrap();
        let error = Some("down".to_owned());
        let settled = windlass::store::notice::Settled { id, tries, delivered_to: vec![], error };
        assert_eq!(claimed[0].notice.tries, tries);
        world.engine.notices().settle(vec![settled]).await.unwrap();
        world.pass_ms(wait_ms(tries));
    }
    world.send();
    eventually("it is given up", || async { world.notice(id).await.given_up_at.is_some() }).await;
    // It is counted after it is written.
    eventually("it is counted", || async { world.engine.notice_stats().given_up == 1 }).await;
    assert_eq!(world.notice(id).await.delivered_to, ["a"]);
}

async fn without_receivers_notices_are_only_stored(dialect: Dialect) {
    let world = world(dialect).await;
    let id = world.put(Severity::Critical).await;
    assert_eq!(world.engine.expire_notices().await.unwrap().changed, 0);
    world.pass_ms(24 * 60 * 60 * 1_000);
    assert_eq!(world.engine.expire_notices().await.unwrap().changed, 1);
    let notice = world.notice(id).await;
    assert_eq!((notice.tries, notice.given_up_at.is_some()), (0, true));
}
