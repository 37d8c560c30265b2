//! The table of who may answer what, and when.

use super::*;
use crate::validate::tests::findings;

const NOW: Timestamp = Timestamp::EPOCH;

fn ballot(voices: &[(String, Choice)]) -> Ballot<'_> {
    Ballot {
        status: Status::Open,
        digest: "abc",
        required: 2,
        requested_by: "worker",
        expires_at: None,
        voices,
    }
}

fn voice(actor: &str, choice: Choice) -> Voice<'_> {
    Voice { actor, choice, digest: None }
}

#[test]
fn enough_approvals_decide_and_one_denial_does() {
    let none = [];
    let one = [("ann".to_owned(), Choice::Approve)];
    let yes = voice("bob", Choice::Approve);
    assert_eq!(count(&ballot(&none), &yes, NOW), Ok(Verdict::Counted));
    assert_eq!(count(&ballot(&one), &yes, NOW), Ok(Verdict::Approved));
    let single = Ballot { required: 1, ..ballot(&none) };
    assert_eq!(count(&single, &yes, NOW), Ok(Verdict::Approved));
    let no = voice("bob", Choice::Deny);
    assert_eq!(count(&ballot(&none), &no, NOW), Ok(Verdict::Denied));
    assert_eq!(count(&ballot(&one), &no, NOW), Ok(Verdict::Denied));
}

#[test]
fn a_voice_that_does_not_count_is_told_why() {
    let ann = [("ann".to_owned(), Choice::Approve)];
    let open = ballot(&ann);
    let at = |status| Ballot { status, ..open };
    let bob = voice("bob", Choice::Approve);
    let saw = |digest| Voice { digest: Some(digest), ..bob };
    for (ballot, voice, code) in [
        (open, voice("ann", Choice::Approve), "already_voted"),
        (open, voice("ann", Choice::Deny), "already_voted"),
        (open, voice("worker", Choice::Approve), "self_approval"),
        (open, saw("abd"), "digest_mismatch"),
        (open, saw(""), "digest_mismatch"),
        (at(Status::Approved), bob, "already_decided"),
        (at(Status::Denied), bob, "already_decided"),
        (at(Status::Expired), bob, "expired"),
        (at(Status::Withdrawn), bob, "approval_withdrawn"),
        (Ballot { expires_at: Some(NOW), ..open }, bob, "expired"),
    ] {
        let refused = count(&ballot, &voice, NOW).expect_err(code);
        assert_eq!(refused.code(), code);
        assert_eq!(Refusal::from(refused).code(), code);
    }
    assert_eq!(count(&open, &saw("ABC"), NOW), Ok(Verdict::Approved), "hex is hex");
    let later = Ballot { expires_at: Some(NOW.plus_ms(1)), ..open };
    assert_eq!(count(&later, &bob, NOW), Ok(Verdict::Approved));
    let own_no = voice("worker", Choice::Deny);
    assert_eq!(count(&open, &own_no, NOW), Ok(Verdict::Denied), "who asked may think better");
}

#[test]
fn a_digest_is_of_the_meaning_and_not_of_the_writing() {
    let one = serde_json::from_str(r#"{"a": 1, "b": [true]}"#).unwrap();
    let two = serde_json::from_str(r#"{ "b":[true],"a":1 }"#).unwrap();
    assert_eq!(digest("pay", &one), digest("pay", &two));
    assert_ne!(digest("pay", &one), digest("refund", &one));
    assert_ne!(digest("pay", &one), digest("pay", &json!({ "a": 1, "b": [false] })));
}

#[test]
fn a_question_that_no_person_could_read_is_refused() {
    let request = QuestionRequest {
        gate: "deploy".into(),
        action: "deploy".into(),
        arguments: json!({ "b": 1, "a": "\u{202e}" }),
        ..QuestionRequest::default()
    };
    let question = request.validate("w1").unwrap();
    assert_eq!(question.arguments, "{\"a\":\"\u{202e}\",\"b\":1}");
    assert_eq!((question.required, question.occurrence, question.expires_ms), (1, 0, None));
    let bad = QuestionRequest {
        gate: String::new(),
        action: "pay\u{202e}".into(),
        arguments: json!("x".repeat(MAX_ARGUMENTS_BYTES)),
        expires_ms: Some(0),
        approvers: Some(0),
        occurrence: Some(-1),
    };
    assert_eq!(
        findings(bad.validate("w1").map(drop)),
        [
            ("/gate", "required"),
            ("/action", "bad_character"),
            ("/arguments", "too_long"),
            ("/expires_ms", "out_of_range"),
            ("/approvers", "out_of_range"),
            ("/occurrence", "out_of_range"),
        ]
    );
    assert_eq!(findings(comment(&"x".repeat(1_001))), [("/comment", "too_long")]);
    assert_eq!(findings(token_request("", Some(0)).map(drop)).len(), 2);
    // Whoever reads `ann` must not have to wonder which of two it is.
    for unseen in ["an\u{200b}n", "ann\u{2060}b", "a\u{ad}nn", "ann\u{fe0f}x", "a\u{202e}nn"] {
        let found = findings(token_request(unseen, None).map(drop));
        assert_eq!(found, [("/approver", "bad_character")], "{unseen:?}");
    }
    assert!(token_request("Änne Müller 漢字", None).is_ok());
}
