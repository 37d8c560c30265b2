//! Alerts: raised with what they speak of, listed newest first, acknowledged once.

use crate::world::*;
use uuid::Uuid;
use windlass_domain::id::TaskId;
use windlass_domain::notice::Severity;
use windlass_store::alert::{Alerts, Filter, NewAlert, raise};
use windlass_store::notice::Notices;
use windlass_store::statement::Dialect;
use windlass_store::tx::Tx;

conformance!(
    an_alert_brings_its_notice,
    an_alert_is_acknowledged_by_the_first_who_says_so,
    alerts_are_listed_newest_first_with_filters,
);

async fn put(world: &World, severity: Severity, task: Option<TaskId>) -> Uuid {
    let id = Uuid::now_v7();
    let body = move |tx: &mut dyn Tx| {
        let message = "the budget\0 is used up".to_owned();
        raise(tx, &NewAlert { id, kind: "budget_exceeded", severity, task, message })
    };
    world.store.write("test", body).await.unwrap();
    id
}

async fn an_alert_brings_its_notice(dialect: Dialect) {
    let world = World::new(dialect).await;
    let id = put(&world, Severity::Warning, None).await;
    let notices = Notices::new(world.store.clone());
    let told = notices.list(Default::default(), None, 10).await.unwrap().0.remove(0);
    assert_eq!((told.subject_id, told.severity), (Some(id), Severity::Warning));
    let body = serde_json::json!({
        "type": "budget_exceeded", "severity": "warning", "task": null,
        "message": "the budget is used up",
    });
    assert_eq!(told.body, body);
}

async fn an_alert_is_acknowledged_by_the_first_who_says_so(dialect: Dialect) {
    let world = World::new(dialect).await;
    let id = put(&world, Severity::Info, None).await;
    let alerts = Alerts::new(world.store.clone());
    let first = alerts.acknowledge(id, "ann").await.unwrap();
    assert_eq!(first.acknowledged_by.as_deref(), Some("ann"));
    assert_eq!(first.acknowledged_at, Some(world.now()));
    world.pass_ms(1);
    assert_eq!(alerts.acknowledge(id, "bob").await.unwrap(), first);
    assert_eq!(refused(alerts.acknowledge(Uuid::now_v7(), "bob").await), "not_found");
}

async fn alerts_are_listed_newest_first_with_filters(dialect: Dialect) {
    let world = World::new(dialect).await;
    let alerts = Alerts::new(world.store.clone());
    let task = world.submit(job()).await;
    let mut ids = Vec::new();
    for severity in [Severity::Critical, Severity::Warning, Severity::Info] {
        for about in [None, Some(task)] {
            ids.insert(0, put(&world, severity, about).await);
            world.pass_ms(1);
        }
    }
    alerts.acknowledge(ids[5], "ann").await.unwrap();
    let mut seen = Vec::new();
    let mut after = None;
    loop {
        let (page, next) = alerts.list(Filter::default(), after, 4).await.unwrap();
        seen.extend(page.iter().map(|alert| alert.id));
        after = next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(seen, ids);
    let of = |change: fn(&mut Filter)| {
        let mut filter = Filter::default();
        change(&mut filter);
        filter
    };
    let about = Filter { task: Some(task), ..Filter::default() };
    for (filter, expected) in [
        (of(|f| f.severity = Some(Severity::Info)), vec![ids[0], ids[1]]),
        (of(|f| f.acknowledged = Some(true)), vec![ids[5]]),
        (of(|f| f.acknowledged = Some(false)), ids[..5].to_vec()),
        (of(|f| f.kind = Some("poison_task".into())), vec![]),
        (about.clone(), vec![ids[0], ids[2], ids[4]]),
        (Filter { acknowledged: Some(true), ..about.clone() }, vec![]),
        (
            Filter { acknowledged: Some(false), severity: Some(Severity::Warning), ..about },
            vec![ids[2]],
        ),
    ] {
        let found = alerts.list(filter.clone(), None, 10).await.unwrap().0;
        let found: Vec<_> = found.iter().map(|alert| alert.id).collect();
        assert_eq!(found, expected, "{filter:?}");
    }
}
