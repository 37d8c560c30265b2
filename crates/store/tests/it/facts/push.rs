//! The end of a delegation reaches its caller's inbox in the transaction of the end.

use crate::world::*;
use serde_json::json;
use windlass_domain::agent::AgentSpec;
use windlass_domain::command::Command;
use windlass_domain::delegation::MAX_PUSHED_BYTES;
use windlass_domain::id::TaskId;
use windlass_domain::message::Status;
use windlass_domain::state::State;
use windlass_store::agent::Agents;
use windlass_store::message::{Message, Messages};
use windlass_store::statement::Dialect;
use windlass_store::task::{Ask, Finishing, result_message};

conformance!(
    a_result_lies_in_the_callers_inbox,
    whatever_ends_a_delegation_is_told,
    a_repeated_finish_is_told_once,
    a_result_whose_id_somebody_took_is_told_all_the_same,
    a_caller_that_is_not_there_makes_a_dead_letter_and_the_end_stands,
    an_archived_caller_makes_a_dead_letter_and_the_sweep_stands,
    a_result_may_be_as_deep_as_json_may_be_and_the_end_stands,
    a_result_that_is_too_large_for_a_message_is_left_out,
    a_server_that_does_not_push_tells_nobody,
    jobs_tell_nobody,
    a_retry_is_no_end,
);

async fn world_of(dialect: Dialect, agents: &[&str]) -> World {
    let world = World::new(dialect).await;
    for name in agents {
        let registry = Agents::new(world.store.clone());
        registry.put(name, AgentSpec::default(), "tester").await.unwrap();
    }
    world
}

async fn told(world: &World, id: TaskId) -> Option<Message> {
    Messages::new(world.store.clone()).show(result_message(id)).await.unwrap()
}

async fn report(world: &World, id: TaskId, to: State) {
    let command = Command::Report { to, result: None, error: None, holder: "boss".into() };
    world.tasks.report(Ask::new(id, command, "boss")).await.unwrap();
}

async fn a_result_lies_in_the_callers_inbox(dialect: Dialect) {
    let world = world_of(dialect, &["boss", "crew"]).await;
    let held = world
        .running(delegation(|r| {
            (r.name, r.correlation_id) = (Some("report".into()), Some("c1".into()));
        }))
        .await;
    assert_eq!(told(&world, held.task.id).await, None);
    world.finish(&held, complete()).await.unwrap();
    let message = told(&world, held.task.id).await.unwrap();
    assert_eq!((message.from.as_str(), message.to.as_str()), ("crew", "boss"));
    assert_eq!((message.kind.as_str(), message.status), ("delegation_result", Status::Pending));
    assert_eq!(message.correlation_id, "c1");
    assert_eq!(Some(message.created_at), world.show(held.task.id).await.finished_at);
    let wanted = json!({
        "delegation_id": held.task.id, "callee": "crew", "name": "report", "status": "completed",
        "result": { "ok": true }, "result_omitted": false, "result_preview": "{\"ok\":true}",
        "error": null,
    });
    assert_eq!(message.payload, wanted);
}

async fn whatever_ends_a_delegation_is_told(dialect: Dialect) {
    let world = world_of(dialect, &["boss", "crew"]).await;
    let failed = world.running(delegation(|_| {})).await;
    world.finish(&failed, fail("INVALID_INPUT")).await.unwrap();
    let released = world.running(delegation(|_| {})).await;
    world.finish(&released, Finishing::Release).await.unwrap();
    let cancelled = world.submit(delegation(|_| {})).await;
    world.cancel(cancelled).await.unwrap();
    let reported = world.submit(ledger()).await;
    report(&world, reported, State::Failed).await;
    let overdue = world.submit(delegation(|r| r.deadline_ms = Some(5))).await;
    let by_duty = world.submit(delegation(|r| r.deadline_ms = Some(5))).await;
    let silent = world.submit(ledger()).await;
    report(&world, silent, State::Running).await;
    let beat = Ask::new(silent, Command::ReportBeat, "boss");
    world.tasks.report(beat).await.unwrap();
    world.pass_ms(600_000);
    world.tasks.sweep_found(vec![overdue, silent]).await;
    world.tasks.expire_deadlines(10).await.unwrap();
    for (id, status, code) in [
        (failed.task.id, "failed", json!("INVALID_INPUT")),
        (cancelled, "cancelled", json!(null)),
        (reported, "failed", json!("UNKNOWN")),
        (overdue, "failed", json!("DEADLINE_EXCEEDED")),
        (by_duty, "failed", json!("DEADLINE_EXCEEDED")),
        (silent, "stuck", json!("STALE")),
    ] {
        let message = told(&world, id).await.unwrap_or_else(|| panic!("{status} {code}"));
        assert_eq!(message.payload["status"], status);
        assert_eq!(message.payload["error"]["code"], code);
        assert_eq!(message.correlation_id, id.to_string());
    }
    assert_eq!(told(&world, released.task.id).await, None, "a release is no end");
}

async fn a_repeated_finish_is_told_once(dialect: Dialect) {
    let world = world_of(dialect, &["boss", "crew"]).await;
    let held = world.running(delegation(|_| {})).await;
    for _ in 0..3 {
        assert_eq!(world.finish(&held, complete()).await.unwrap(), State::Completed);
    }
    assert_eq!(world.by_hand("SELECT count(*) FROM message").unwrap(), "1");
}

/// It vanished: the message that lay there was taken for the result.
async fn a_result_whose_id_somebody_took_is_told_all_the_same(dialect: Dialect) {
    let world = world_of(dialect, &["boss", "crew"]).await;
    for taken in 1..6 {
        let held = world.running(delegation(|_| {})).await;
        // Whoever knows how ids are made may take those that would be used, one by one.
        for salt in (0..taken).map(|n: u128| n << 64) {
            let id = result_message(held.task.id).0.as_u128() ^ salt;
            let sql = format!(
                "INSERT INTO message (id, to_agent, type) VALUES ('{}', 'boss', 'x')",
                uuid::Uuid::from_u128(id)
            );
            world.by_hand(&sql).unwrap();
        }
        assert_eq!(world.finish(&held, complete()).await.unwrap(), State::Completed);
        let sql = format!(
            "SELECT count(*), min(to_agent), min(status) FROM message
             WHERE type = 'delegation_result' AND correlation_id = '{}'",
            held.task.id
        );
        assert_eq!(world.by_hand(&sql).unwrap(), "1|boss|pending", "{taken}");
    }
}

async fn a_caller_that_is_not_there_makes_a_dead_letter_and_the_end_stands(dialect: Dialect) {
    let world = world_of(dialect, &[]).await;
    let held = world.running(delegation(|_| {})).await;
    assert_eq!(world.finish(&held, complete()).await.unwrap(), State::Completed);
    assert_eq!(world.status(held.task.id).await, State::Completed);
    let message = told(&world, held.task.id).await.unwrap();
    assert_eq!(message.status, Status::DeadLettered);
    let sql = "SELECT reason FROM dead_letter";
    assert_eq!(world.by_hand(sql).unwrap(), "unknown_agent");
}

async fn an_archived_caller_makes_a_dead_letter_and_the_sweep_stands(dialect: Dialect) {
    let world = world_of(dialect, &["boss", "crew"]).await;
    let id = world.submit(ledger()).await;
    Agents::new(world.store.clone()).archive("boss", true, "tester").await.unwrap();
    world.pass_ms(6 * 3_600_000);
    let report = world.tasks.sweep_delegations(10).await.unwrap();
    assert_eq!((report.failed_deadline, report.errors), (1, 0));
    assert_eq!(told(&world, id).await.unwrap().status, Status::DeadLettered);
    let sql = "SELECT reason FROM dead_letter";
    assert_eq!(world.by_hand(sql).unwrap(), "archived_agent");
}

async fn a_result_may_be_as_deep_as_json_may_be_and_the_end_stands(dialect: Dialect) {
    let world = world_of(dialect, &[]).await;
    // One level more, and nobody could read the message: it is a dead letter for that.
    for (depth, reason) in [(63, "unknown_agent"), (64, "invalid")] {
        let held = world.running(delegation(|_| {})).await;
        let deep = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        let done = world.finish(&held, Finishing::Complete(Some(deep))).await;
        assert_eq!(done.unwrap(), State::Completed);
        let message = told(&world, held.task.id).await.unwrap();
        assert_eq!(message.status, Status::DeadLettered);
        let sql = format!("SELECT reason FROM dead_letter WHERE message_id = '{}'", message.id.0);
        assert_eq!(world.by_hand(&sql).unwrap(), reason);
    }
}

async fn a_result_that_is_too_large_for_a_message_is_left_out(dialect: Dialect) {
    let world = world_of(dialect, &["boss"]).await;
    let held = world.running(delegation(|_| {})).await;
    let large = serde_json::to_string(&"é".repeat(MAX_PUSHED_BYTES / 2 + 1)).unwrap();
    world.finish(&held, Finishing::Complete(Some(large))).await.unwrap();
    let message = told(&world, held.task.id).await.unwrap();
    assert_eq!(message.status, Status::Pending);
    assert_eq!(message.payload["result_omitted"], true);
    assert_eq!(message.payload["result"], json!(null));
    assert_eq!(message.payload["result_preview"].as_str().unwrap().chars().count(), 1_000);
}

async fn a_server_that_does_not_push_tells_nobody(dialect: Dialect) {
    let world = world_of(dialect, &["boss"]).await;
    world.store.push_results(false);
    let held = world.running(delegation(|_| {})).await;
    world.finish(&held, complete()).await.unwrap();
    let id = world.submit(ledger()).await;
    report(&world, id, State::Completed).await;
    assert_eq!(world.by_hand("SELECT count(*) FROM message").unwrap(), "0");
    assert_eq!(world.status(held.task.id).await, State::Completed);
}

async fn jobs_tell_nobody(dialect: Dialect) {
    let world = world_of(dialect, &["boss"]).await;
    let held = world.running(task(|r| r.agent = Some("boss".into()))).await;
    world.finish(&held, complete()).await.unwrap();
    let other = world.submit(job()).await;
    world.cancel(other).await.unwrap();
    assert_eq!(world.by_hand("SELECT count(*) FROM message").unwrap(), "0");
}

async fn a_retry_is_no_end(dialect: Dialect) {
    let world = world_of(dialect, &["boss"]).await;
    let held = world.running(delegation(|r| r.max_retries = Some(1))).await;
    world.finish(&held, fail("TIMEOUT")).await.unwrap();
    assert_eq!(world.status(held.task.id).await, State::Retry);
    assert_eq!(told(&world, held.task.id).await, None);
}
