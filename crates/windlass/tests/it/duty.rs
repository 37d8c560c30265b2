//! What happens without anybody's call.

use crate::world::{
    NOON, World, claim, complete, conformance, eventually, register, start_at, status, story,
    submit,
};
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber, span};
use uuid::Uuid;
use windlass::domain::id::SignalId;
use windlass::domain::state::State;
use windlass::domain::wait::SIGNAL_RETENTION_MS;
use windlass::engine::{Duty, Report, Sweep};
use windlass::store::signal::{NewSignal, Signals, Target};
use windlass::store::statement::Dialect;
use windlass::{Engine, Options};

conformance!(
    a_silent_workers_task_is_taken_over,
    a_late_result_of_a_lost_lease_is_refused,
    a_task_past_its_deadline_ends,
    a_duty_that_panics_is_tried_again_and_disturbs_nobody,
    a_duty_that_is_switched_off_does_not_run,
    signals_that_nobody_took_in_time_are_forgotten,
    counts_that_somebody_wrote_are_told_in_the_log,
);

async fn a_silent_workers_task_is_taken_over(dialect: Dialect) {
    let World { engine, place: _place } = World::new(dialect).await;
    let silent = register(&engine, "q", 1, 1_000).await;
    let other = register(&engine, "q", 1, 60_000).await;
    let id = submit(&engine, "q", |_| {}).await;
    let lost = engine.claim(silent, claim(1, Duration::ZERO)).await.unwrap();
    let taken = engine.claim(other, claim(1, Duration::from_secs(20))).await.unwrap();
    assert_eq!(taken[0].task.id, id);
    assert_eq!(taken[0].attempt, 2);
    assert_ne!(taken[0].lease_id, lost[0].lease_id);
    assert_eq!(complete(&engine, &taken[0]).await, State::Completed);
    let told = story(&engine, id).await;
    assert_eq!(told[2..], ["lose_lease retry", "claim running", "complete completed"]);
}

async fn a_late_result_of_a_lost_lease_is_refused(dialect: Dialect) {
    let World { engine, place: _place } = World::new(dialect).await;
    let silent = register(&engine, "q", 1, 1_000).await;
    let id = submit(&engine, "q", |_| {}).await;
    let lost = engine.claim(silent, claim(1, Duration::ZERO)).await.unwrap();
    eventually("the lease is lost", || async { status(&engine, id).await == State::Retry }).await;
    let how = windlass::store::task::Finishing::Complete(None);
    let late = engine.finish(vec![crate::world::finish(&lost[0], how)]).await.pop().unwrap();
    let told = windlass::engine::Error::from(late.unwrap_err());
    assert_eq!(told.code(), "lease_lost");
}

async fn a_task_past_its_deadline_ends(dialect: Dialect) {
    let World { engine, place: _place } = World::new(dialect).await;
    let id = submit(&engine, "q", |request| request.deadline_ms = Some(10)).await;
    let waited = engine.wait_for(id, Duration::from_secs(20)).await.unwrap();
    assert_eq!(waited.task.status, State::Failed);
    assert_eq!(waited.task.error.unwrap().code, "DEADLINE_EXCEEDED");
}

struct Panics(Arc<AtomicUsize>);

impl Duty for Panics {
    fn name(&self) -> &'static str {
        "panics"
    }

    fn every(&self) -> Duration {
        Duration::from_millis(10)
    }

    fn sweep<'a>(&'a self, _: &'a Engine) -> Sweep<'a> {
        Box::pin(async {
            match self.0.fetch_add(1, Ordering::SeqCst) {
                0 => panic!("on purpose"),
                1 => Err(windlass::engine::Error::ShuttingDown),
                _ => Ok(Report::default()),
            }
        })
    }
}

async fn a_duty_that_panics_is_tried_again_and_disturbs_nobody(dialect: Dialect) {
    let World { engine, place: _place } = World::new(dialect).await;
    let runs = Arc::new(AtomicUsize::new(0));
    engine.add_duty(Arc::new(Panics(Arc::clone(&runs))));
    eventually("it ran three times", || async { runs.load(Ordering::SeqCst) >= 3 }).await;
    eventually("all of it was counted", || async {
        let stats = engine.duty_stats();
        let stats = stats.iter().find(|stats| stats.name == "panics").unwrap();
        stats.panics == 1 && stats.errors == 1 && stats.runs >= 3
    })
    .await;
    eventually("the others run", || async {
        engine.duty_stats().iter().any(|stats| stats.name == "leases" && stats.runs > 0)
    })
    .await;
}

async fn a_duty_that_is_switched_off_does_not_run(dialect: Dialect) {
    let options = Options { without_duties: vec!["leases".into()], ..Options::default() };
    let World { engine, place: _place } = World::with(dialect, options).await;
    eventually("another duty ran", || async {
        engine.duty_stats().iter().any(|stats| stats.name == "deadlines" && stats.runs > 0)
    })
    .await;
    assert!(engine.duty_stats().iter().all(|stats| stats.name != "leases"));
}

async fn signals_that_nobody_took_in_time_are_forgotten(dialect: Dialect) {
    let clock = Arc::new(AtomicI64::new(NOON));
    let (engine, _place) = start_at(dialect, &clock).await;
    let id = SignalId(Uuid::now_v7());
    let new = NewSignal {
        id,
        name: "go".into(),
        target: Target::Key("nobody".into()),
        payload: "1".into(),
        sent_by: "tester".into(),
    };
    engine.signal(new).await.unwrap();
    let signals = Signals::new(engine.store().clone());
    engine.expire_steps().await.unwrap();
    assert!(signals.show(id).await.unwrap().is_some());
    clock.fetch_add(SIGNAL_RETENTION_MS, Ordering::SeqCst);
    engine.expire_steps().await.unwrap();
    assert_eq!(signals.show(id).await.unwrap(), None);
}

/// Keeps warnings, each as its fields in words.
struct Heard(Arc<Mutex<Vec<String>>>);

impl Subscriber for Heard {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        struct Words(String);
        impl Visit for Words {
            fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
                self.0.push_str(&format!("{field}={value:?} "));
            }
        }
        let mut words = Words(String::new());
        event.record(&mut words);
        self.0.lock().unwrap().push(words.0);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

async fn counts_that_somebody_wrote_are_told_in_the_log(dialect: Dialect) {
    let without_duties = vec!["limit_counts".to_owned()];
    let options = Options { without_duties, ..Options::default() };
    let World { engine, place } = World::with(dialect, options).await;
    submit(&engine, "q", |_| {}).await;
    let (wrong, what) = match dialect {
        Dialect::Sqlite => ("UPDATE lane SET active = 7", "a lane of queue:q venture:"),
        Dialect::Postgres => (
            "INSERT INTO limit_count (key, backend, active, pending) VALUES ('queue:q', 0, 7, 0)",
            "queue:q",
        ),
    };
    place.by_hand(wrong);
    let heard = Arc::new(Mutex::new(Vec::new()));
    // Of this thread, on which the fact is told: that is where the call goes on after each wait.
    let listening = tracing::subscriber::set_default(Heard(Arc::clone(&heard)));
    assert_eq!(engine.fold_counts().await.unwrap(), Report { scanned: 1, changed: 1 });
    drop(listening);
    let told: Vec<String> = heard.lock().unwrap().clone();
    let expected = format!("what={what} counted_active=7 counted_pending=1 active=0 pending=1 ");
    let is_told = |words: &String| {
        words.contains("somebody has written it by hand") && words.contains(expected.trim_end())
    };
    assert_eq!(told.iter().filter(|words| is_told(words)).count(), 1, "{told:?}");
}
