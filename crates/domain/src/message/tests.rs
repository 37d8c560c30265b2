//! The machine of messages, their bounds, and what follows a failed delivery.

use super::*;
use uuid::Uuid;

fn message() -> NewMessage {
    NewMessage::new(MessageId(Uuid::nil()), "vp", "ceo", "report", json!({"n": 1}))
}

#[test]
fn what_has_ended_never_changes_and_every_status_can_be_reached() {
    for status in Status::ALL {
        let leaves = TRANSITIONS.iter().any(|(from, _, _)| from == status);
        assert_eq!(leaves, !status.is_terminal(), "{status}");
        assert!(TRANSITIONS.iter().any(|(_, _, to)| to == status), "{status}");
        assert_eq!(status.as_str().parse(), Ok(*status));
    }
    assert_eq!(step(Status::Pending, Event::Deliver), Some(Status::Delivered));
    assert_eq!(step(Status::Pending, Event::Acknowledge), None);
    assert!(Reason::ALL.iter().all(|reason| reason.as_str().parse() == Ok(*reason)));
}

#[test]
fn a_delivery_is_tried_five_times_with_backoff() {
    let now = Timestamp::from_ms(1_000_000);
    let failed = Failure::Failed { chance: 1.0, retry_after_ms: None };
    let waits: Vec<_> = (1..=5).map(|n| after_failure(n, None, failed, now)).collect();
    let again = |ms| AfterFailure::Again(now.plus_ms(ms));
    assert_eq!(waits[..4], [again(1_000), again(2_000), again(4_000), again(8_000)]);
    assert_eq!(waits[4], AfterFailure::DeadLetter(Reason::DeliveryLimit));
}

#[test]
fn how_a_delivery_failed_decides_what_follows() {
    let now = Timestamp::from_ms(1_000_000);
    let asked = Failure::Failed { chance: 0.5, retry_after_ms: Some(7) };
    assert_eq!(after_failure(1, None, asked, now), AfterFailure::Again(now.plus_ms(7)));
    let silent = Failure::LeaseLost;
    assert_eq!(after_failure(4, None, silent, now), AfterFailure::Again(now));
    assert_eq!(
        after_failure(5, Some(now), silent, now),
        AfterFailure::DeadLetter(Reason::DeliveryLimit)
    );
    assert_eq!(after_failure(1, Some(now), silent, now), AfterFailure::Expired);
    assert_eq!(
        after_failure(1, Some(now), Failure::Rejected, now),
        AfterFailure::DeadLetter(Reason::Rejected)
    );
}

#[test]
fn every_bound_is_named_at_once() {
    assert!(message().check().is_ok());
    let bad = NewMessage {
        from: " vp".into(),
        to: String::new(),
        kind: "x".repeat(MAX_WORKER_BYTES + 1),
        payload: json!("x".repeat(MAX_JSON_BYTES)),
        priority: MAX_PRIORITY + 1,
        correlation_id: Some(String::new()),
        idempotency_key: Some("k".repeat(MAX_NAME_BYTES + 1)),
        ttl_ms: Some(0),
        ..message()
    };
    let Err(Refusal::Invalid(errors)) = bad.check() else { panic!("it must be refused") };
    let found: Vec<_> = errors.iter().map(|error| error.pointer.as_str()).collect();
    let wanted = [
        "/from",
        "/to",
        "/type",
        "/correlation_id",
        "/idempotency_key",
        "/priority",
        "/ttl_ms",
        "/payload",
    ];
    assert_eq!(found, wanted);
}

#[test]
fn the_same_send_has_the_same_digest_whoever_asks() {
    let one = message();
    let again = NewMessage { id: MessageId(Uuid::max()), sent_by: "another".into(), ..message() };
    assert_eq!(one.digest(), again.digest());
    assert_ne!(one.digest(), NewMessage { priority: 1, ..message() }.digest());
}

#[test]
fn a_person_speaks_in_the_own_name() {
    let request = SendRequest { to: "ceo".into(), kind: "note".into(), ..Default::default() };
    let made = new_message(request, MessageId(Uuid::max()), "ann").unwrap();
    assert_eq!((made.from.as_str(), made.sent_by.as_str()), ("ann", "ann"));
    assert_eq!(made.id, MessageId(Uuid::max()));
    assert!(lease_ms(Some(1)).is_err());
    assert_eq!(lease_ms(None), Ok(LEASE_MS));
}
