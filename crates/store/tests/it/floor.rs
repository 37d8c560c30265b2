//! The claim floor hides nothing for longer than the interval of full scans: neither what commits
//! late nor what another node writes; and what the own node writes not at all. PostgreSQL only:
//! SQLite has no floor.

use crate::world::*;
use std::time::{Duration, Instant};
use tokio_postgres::NoTls;
use windlass_domain::id::TaskId;
use windlass_store::statement::Dialect;
use windlass_store::task::{Assignment, Finishing, Tasks};

/// Longer than any test.
const NEVER: Duration = Duration::from_secs(3_600);
const BATCH: usize = 5;

/// A node that claims full batches, far above what it does not look at.
struct Busy {
    world: World,
    claims: usize,
}

impl Busy {
    async fn new(full_scan: Duration) -> Busy {
        let world = World::with_real_clock(Dialect::Postgres).await;
        world.tasks.clone().with_full_scan(full_scan);
        // More wait here than a fresh installation lets in.
        world.by_hand("UPDATE limit_rule SET max_pending = NULL").unwrap();
        let mut busy = Busy { world, claims: 0 };
        busy.refill().await;
        busy.claim().await;
        busy.claim().await;
        busy
    }

    async fn refill(&self) {
        let outcomes = self.world.submit_all((0..1_000).map(|_| job()).collect()).await;
        assert!(outcomes.iter().all(Result::is_ok));
    }

    /// A full claim: a short one would look everywhere by itself.
    async fn claim(&mut self) -> Vec<Assignment> {
        self.claims += 1;
        if self.claims.is_multiple_of(100) {
            self.refill().await;
        }
        let held = self.world.claim("w1", BATCH).await;
        assert_eq!(held.len(), BATCH, "the line must never be empty here");
        held
    }

    async fn takes(&mut self, task: TaskId) -> bool {
        self.claim().await.iter().any(|held| held.task.id == task)
    }

    /// The same tasks through another node.
    fn other_node(&self) -> Tasks {
        Tasks::new(self.world.place.open(None))
    }

    /// Submits with a transaction of the test's own; `late` runs before its COMMIT.
    async fn submit_late(&mut self, options: &str, claims: usize) -> TaskId {
        let Place::Postgres(database) = &self.world.place else { unreachable!("PostgreSQL only") };
        let (client, connection) =
            tokio_postgres::connect(&database.url(), NoTls).await.expect("a connection");
        let driver = tokio::spawn(connection);
        client.batch_execute("BEGIN").await.unwrap();
        let sql = format!("SELECT windlass_submit('q', '{{}}', '{options}')::text");
        let rows = client.simple_query(&sql).await.unwrap();
        let id = rows.iter().find_map(|message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        });
        for _ in 0..claims {
            self.claim().await;
        }
        let seconds = std::env::var("WINDLASS_LATE_SECONDS").ok();
        let late = Duration::from_secs(seconds.map_or(0, |text| text.parse().expect("seconds")));
        let began = Instant::now();
        while began.elapsed() < late {
            self.claim().await;
        }
        client.batch_execute("COMMIT").await.unwrap();
        drop(client);
        driver.await.unwrap().unwrap();
        id.expect("an id").parse().unwrap()
    }
}

/// What lies below the floor whoever writes it: urgent, or due for years.
const BELOW: [&str; 2] = [r#"{"priority": 9}"#, r#"{"run_at": "2020-01-01T00:00:00Z"}"#];

async fn what_commits_late_is_taken_by_the_next_full_scan() {
    for options in BELOW {
        let mut busy = Busy::new(NEVER).await;
        let late = busy.submit_late(options, 20).await;
        // Between two full scans it may be overlooked, and is: otherwise this proves nothing.
        assert!(!busy.takes(late).await, "there is no floor to test");
        busy.world.tasks.clone().with_full_scan(Duration::ZERO);
        assert!(busy.takes(late).await, "the first full scan overlooks {options}");
    }
}

async fn what_another_node_writes_is_taken_by_the_next_full_scan() {
    let mut busy = Busy::new(NEVER).await;
    let other = busy.other_node();
    let urgent = task(|r| r.priority = Some(9));
    other.submit(vec![urgent.clone()]).await.pop().unwrap().unwrap();
    assert!(!busy.takes(urgent.id).await, "there is no floor to test");
    busy.world.tasks.clone().with_full_scan(Duration::ZERO);
    assert!(busy.takes(urgent.id).await);
    other.store().close();
}

/// Claiming all the time, as a busy node does, it waits for the interval and one claim more.
async fn a_late_commit_waits_for_no_longer_than_the_interval() {
    let interval = Duration::from_millis(400);
    let mut busy = Busy::new(interval).await;
    for options in BELOW {
        let late = busy.submit_late(options, 20).await;
        let committed = Instant::now();
        let mut slowest = Duration::ZERO;
        loop {
            let began = Instant::now();
            // A claim that began when the interval was over is a full scan.
            let is_full_scan = began.duration_since(committed) > interval;
            let taken = busy.takes(late).await;
            slowest = slowest.max(began.elapsed());
            if taken {
                break;
            }
            assert!(!is_full_scan, "a full scan {:?} late overlooks it", committed.elapsed());
        }
        assert!(committed.elapsed() <= interval + 2 * slowest + Duration::from_millis(50));
    }
}

async fn the_own_nodes_urgent_submit_is_taken_by_the_very_next_claim() {
    let mut busy = Busy::new(NEVER).await;
    for priority in [9, 10, 3, 9] {
        let urgent = task(|r| r.priority = Some(priority));
        busy.world.submit(urgent.clone()).await;
        assert!(busy.takes(urgent.id).await, "priority {priority}");
        let urgent = task(|r| r.priority = Some(priority));
        busy.world.tasks.submit_atomic(vec![urgent.clone()]).await.unwrap();
        assert!(busy.takes(urgent.id).await, "priority {priority}, atomic");
    }
    let old = task(|r| r.run_at = Some(windlass_domain::time::Timestamp::from_ms(NOON)));
    busy.world.submit(old.clone()).await;
    assert!(busy.takes(old.id).await);
}

async fn what_the_own_node_gives_back_is_taken_by_the_very_next_claim() {
    let mut busy = Busy::new(NEVER).await;
    let held = busy.claim().await;
    for _ in 0..10 {
        busy.claim().await;
    }
    busy.world.finish(&held[0], Finishing::Release).await.unwrap();
    assert!(busy.takes(held[0].task.id).await);
    let at_once = match fail("TIMEOUT") {
        Finishing::Fail { error, chance, .. } => {
            Finishing::Fail { error, retry_after_ms: Some(0), chance }
        }
        other => other,
    };
    let urgent = task(|r| r.priority = Some(9));
    busy.world.submit(urgent.clone()).await;
    let held = busy.claim().await;
    busy.claim().await;
    busy.world.finish(&held[0], at_once).await.unwrap();
    assert!(busy.takes(held[0].task.id).await, "a retry that is due");
}

async fn a_delayed_urgent_task_is_taken_by_the_first_claim_after_its_time() {
    let mut busy = Busy::new(NEVER).await;
    let delayed = task(|r| {
        r.priority = Some(9);
        r.delay_ms = Some(1_500);
    });
    let submitted = Instant::now();
    busy.world.submit(delayed.clone()).await;
    loop {
        let began = Instant::now();
        let taken = busy.takes(delayed.id).await;
        assert!(!taken || submitted.elapsed() > Duration::from_millis(1_500), "too early");
        // A claim that began after its time, and after the next look for what is due.
        if began.duration_since(submitted) > Duration::from_millis(1_700) {
            assert!(taken);
        }
        if taken {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

macro_rules! on_postgres {
    ($($fact:ident),* $(,)?) => {
        mod postgres {
            $(#[test] fn $fact() {
                crate::world::run(|_| super::$fact(), windlass_store::statement::Dialect::Postgres);
            })*
        }
    };
}
on_postgres!(
    what_commits_late_is_taken_by_the_next_full_scan,
    what_another_node_writes_is_taken_by_the_next_full_scan,
    a_late_commit_waits_for_no_longer_than_the_interval,
    the_own_nodes_urgent_submit_is_taken_by_the_very_next_claim,
    what_the_own_node_gives_back_is_taken_by_the_very_next_claim,
    a_delayed_urgent_task_is_taken_by_the_first_claim_after_its_time,
);
