//! Tokens: one that is good for each approver, for one decision, and known to nobody else.

use crate::world::*;
use serde_json::json;
use uuid::Uuid;
use windlass_domain::approval::token::Token;
use windlass_domain::approval::{Choice, Question, QuestionRequest, Status};
use windlass_domain::id::ApprovalId;
use windlass_domain::notice::Severity;
use windlass_domain::state::State;
use windlass_store::approval::{Announce, Approval, Deciding, Issue, Issued, Right};
use windlass_store::audit::{Audit, Filter};
use windlass_store::group::Outcome;
use windlass_store::notice::Notices;
use windlass_store::statement::Dialect;

conformance!(
    a_token_decides_in_the_name_of_its_approver,
    a_token_is_good_for_one_decision,
    a_wrong_token_tells_nothing_and_is_audited,
    a_token_expires_with_its_time_or_its_question,
    a_newer_token_takes_the_place_of_the_one_before,
    a_token_gives_no_second_voice,
    nobody_who_asked_gets_or_gives_a_token,
    a_closed_question_gives_no_token,
    the_same_issue_again_is_one_token,
    of_two_decisions_by_one_token_at_once_one_counts,
    a_token_is_nowhere_in_the_database,
    a_new_question_is_told_with_a_token_for_each_approver,
);

fn issue(approval: ApprovalId, approver: &str) -> Issue {
    let chance = [Uuid::new_v4(), Uuid::new_v4(), Uuid::new_v4()];
    Issue {
        approval,
        approver: approver.into(),
        expires_ms: 60_000,
        issued_by: "operator".into(),
        token: Token::new(Uuid::now_v7(), chance),
    }
}

async fn issued(world: &World, approval: &Approval, approver: &str) -> Issued {
    world.approvals().issue(issue(approval.id, approver)).await.unwrap()
}

fn by(token: &Token, choice: Choice) -> Deciding {
    let right = Right::Token(token.clone());
    Deciding { right, ..deciding(ApprovalId(Uuid::nil()), "", choice) }
}

async fn use_token(world: &World, token: &Token) -> Outcome<windlass_store::approval::Decided> {
    world.approvals().decide(by(token, Choice::Approve)).await
}

async fn parked(world: &World, required: i64) -> Approval {
    let held = world.running(job()).await;
    world.asked(&held, Question { required, ..question("gate", Some(3_600_000)) }).await
}

async fn audited(world: &World, event: &str) -> Vec<(String, String)> {
    let audit = Audit::new(world.store.clone());
    let entries = audit.list(Filter::of_event(event), None, 100).await.unwrap();
    let code = |detail: &serde_json::Value| detail["code"].as_str().unwrap_or("").to_owned();
    entries.iter().rev().map(|e| (e.actor.clone(), code(&e.detail))).collect()
}

async fn a_token_decides_in_the_name_of_its_approver(dialect: Dialect) {
    let world = World::new(dialect).await;
    let asked = parked(&world, 1).await;
    let given = issued(&world, &asked, "ann@example").await;
    assert_eq!(given.expires_at, world.now().plus_ms(60_000));
    let read = Token::parse(&given.token.reveal()).unwrap();
    let decided = use_token(&world, &read).await.unwrap();
    assert_eq!(decided.approval.status, Status::Approved);
    let (_, votes) = world.approvals().show(asked.id).await.unwrap().unwrap();
    assert_eq!((votes[0].actor.as_str(), votes[0].via.as_str()), ("ann@example", "token"));
    let last = world.tasks.history(asked.task_id, 0, 10).await.unwrap().pop().unwrap();
    assert_eq!(last.actor, "ann@example");
    assert_eq!(audited(&world, "approval_token_issued").await.len(), 1);
}

async fn a_token_is_good_for_one_decision(dialect: Dialect) {
    let world = World::new(dialect).await;
    let asked = parked(&world, 2).await;
    let token = issued(&world, &asked, "ann").await.token;
    use_token(&world, &token).await.unwrap();
    assert_eq!(refused(use_token(&world, &token).await), "already_decided");
    let deny = world.approvals().decide(by(&token, Choice::Deny)).await;
    assert_eq!(refused(deny), "already_decided");
    assert_eq!(world.status(asked.task_id).await, State::WaitingForApproval);
    let spent = ("ann".to_owned(), "already_decided".to_owned());
    assert_eq!(audited(&world, "approval_refused").await, [spent.clone(), spent]);
}

async fn a_wrong_token_tells_nothing_and_is_audited(dialect: Dialect) {
    let world = World::new(dialect).await;
    let asked = parked(&world, 1).await;
    let good = issued(&world, &asked, "ann").await.token;
    // The right id with another secret, and a token that never was.
    let forged = Token::new(good.id(), [1, 2, 3].map(Uuid::from_u128));
    let invented = Token::new(Uuid::now_v7(), [1, 2, 3].map(Uuid::from_u128));
    let mut said = Vec::new();
    for wrong in [forged, invented] {
        let outcome = use_token(&world, &wrong).await;
        said.push(outcome.as_ref().unwrap_err().to_string());
        assert_eq!(refused(outcome), "not_found");
    }
    assert_eq!(said[0], said[1], "whether a token exists is not told");
    let unknown = ("unknown".to_owned(), "not_found".to_owned());
    assert_eq!(audited(&world, "approval_refused").await, [unknown.clone(), unknown]);
    use_token(&world, &good).await.unwrap();
}

async fn a_token_expires_with_its_time_or_its_question(dialect: Dialect) {
    let world = World::new(dialect).await;
    let asked = parked(&world, 1).await;
    let token = issued(&world, &asked, "ann").await.token;
    let long = Issue { expires_ms: 86_400_000, ..issue(asked.id, "bob") };
    let long = world.approvals().issue(long).await.unwrap();
    assert_eq!(Some(long.expires_at), asked.expires_at, "no longer than the question");
    world.pass_ms(60_000);
    assert_eq!(refused(use_token(&world, &token).await), "expired");
    let expired = ("ann".to_owned(), "expired".to_owned());
    assert_eq!(audited(&world, "approval_refused").await, [expired]);
    use_token(&world, &long.token).await.unwrap();
}

async fn a_newer_token_takes_the_place_of_the_one_before(dialect: Dialect) {
    let world = World::new(dialect).await;
    let asked = parked(&world, 2).await;
    let older = issued(&world, &asked, "ann").await.token;
    let newer = issued(&world, &asked, "ann").await.token;
    let other = issued(&world, &asked, "bob").await.token;
    assert_eq!(refused(use_token(&world, &older).await), "not_found");
    use_token(&world, &newer).await.unwrap();
    use_token(&world, &other).await.unwrap();
    assert_eq!(world.status(asked.task_id).await, State::Pending);
}

async fn a_token_gives_no_second_voice(dialect: Dialect) {
    let world = World::new(dialect).await;
    let asked = parked(&world, 2).await;
    world.vote(asked.id, "ann", Choice::Approve).await.unwrap();
    let token = issued(&world, &asked, "ann").await.token;
    assert_eq!(refused(use_token(&world, &token).await), "already_voted");
    assert_eq!(world.status(asked.task_id).await, State::WaitingForApproval);
}

async fn nobody_who_asked_gets_or_gives_a_token(dialect: Dialect) {
    let world = World::new(dialect).await;
    let asked = parked(&world, 1).await;
    let own = world.approvals().issue(issue(asked.id, "w1")).await;
    assert_eq!(refused(own), "self_approval");
    let as_another = Issue { issued_by: "w1".into(), ..issue(asked.id, "ann") };
    assert_eq!(refused(world.approvals().issue(as_another).await), "self_approval");
    let refused: Vec<_> = audited(&world, "approval_token_refused").await;
    assert_eq!(refused.len(), 2);
    assert_eq!(world.by_hand("SELECT count(*) FROM approval_token").unwrap(), "0");
}

async fn a_closed_question_gives_no_token(dialect: Dialect) {
    let world = World::new(dialect).await;
    let asked = parked(&world, 1).await;
    world.cancel(asked.task_id).await.unwrap();
    let late = world.approvals().issue(issue(asked.id, "ann")).await;
    assert_eq!(refused(late), "approval_withdrawn");
    let nowhere = world.approvals().issue(issue(ApprovalId(Uuid::now_v7()), "ann")).await;
    assert_eq!(refused(nowhere), "not_found");
}

async fn the_same_issue_again_is_one_token(dialect: Dialect) {
    let world = World::new(dialect).await;
    let asked = parked(&world, 1).await;
    let call = issue(asked.id, "ann");
    let first = world.approvals().issue(call.clone()).await.unwrap();
    let again = world.approvals().issue(call).await.unwrap();
    assert_eq!(first, again);
    assert_eq!(audited(&world, "approval_token_issued").await.len(), 1);
    use_token(&world, &first.token).await.unwrap();
}

async fn of_two_decisions_by_one_token_at_once_one_counts(dialect: Dialect) {
    let world = World::new(dialect).await;
    for _ in 0..5 {
        let asked = parked(&world, 2).await;
        let token = issued(&world, &asked, "ann").await.token;
        let tries = [Choice::Approve, Choice::Deny].map(|choice| {
            let (approvals, call) = (world.approvals(), by(&token, choice));
            tokio::spawn(async move { approvals.decide(call).await.is_ok() })
        });
        let mut counted = 0;
        for one in tries {
            counted += usize::from(one.await.unwrap());
        }
        assert_eq!(counted, 1);
        let (_, votes) = world.approvals().show(asked.id).await.unwrap().unwrap();
        assert_eq!(votes.len(), 1);
    }
}

async fn a_token_is_nowhere_in_the_database(dialect: Dialect) {
    let world = World::new(dialect).await;
    let asked = parked(&world, 1).await;
    let token = issued(&world, &asked, "ann").await.token;
    use_token(&world, &token).await.unwrap();
    let secret = token.reveal()[36..].to_owned();
    for table in ["approval", "approval_vote", "approval_token", "audit", "task_history"] {
        let rows = match dialect {
            Dialect::Postgres => format!("SELECT string_agg(t::text, '') FROM {table} t"),
            Dialect::Sqlite => format!(".mode list\nSELECT * FROM {table}"),
        };
        let rows = match dialect {
            Dialect::Postgres => world.by_hand(&rows).unwrap(),
            Dialect::Sqlite => crate::hand::run(&world, &rows).0,
        };
        assert!(!rows.is_empty() && !rows.contains(&secret), "{table}");
    }
}

async fn a_new_question_is_told_with_a_token_for_each_approver(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    let nasty = QuestionRequest {
        gate: "pay".into(),
        action: "transfer".into(),
        arguments: json!({ "to": "\u{202e}eve" }),
        ..QuestionRequest::default()
    };
    let mut call = asking(&held, nasty.validate("").unwrap());
    let made = |name: &str| (name.to_owned(), issue(call.id, name).token);
    // Whoever asked gets none.
    let tokens = vec![made("ann"), made("w1"), made("bob")];
    call.announce = Some(Announce { notice: Uuid::now_v7(), tokens: tokens.clone() });
    let asked = world.approvals().ask(call.clone()).await.unwrap().approval;
    assert_eq!(world.approvals().ask(call).await.unwrap().approval, asked, "told once");
    let notices = Notices::new(world.store.clone());
    let claimed = notices.claim(Severity::Critical, 0, 10).await.unwrap().pop().unwrap();
    assert_eq!(claimed.notice.subject_id, Some(asked.id.0));
    let body = &claimed.notice.body;
    assert_eq!(body["arguments"], "{\"to\":\"\\u202eeve\"}", "escaped");
    assert_eq!((&body["digest"], &body["action"]), (&json!(asked.digest), &json!("transfer")));
    assert!(!body.to_string().contains("wla_"), "readers of notices see no token");
    let sealed = claimed.sealed.unwrap();
    let told: Vec<_> =
        sealed["tokens"].as_array().unwrap().iter().map(|t| &t["approver"]).collect();
    assert_eq!(told, ["ann", "bob"]);
    let token = Token::parse(sealed["tokens"][1]["token"].as_str().unwrap()).unwrap();
    assert_eq!(token, tokens[2].1);
    let decided = use_token(&world, &token).await.unwrap();
    assert_eq!(decided.approval.status, Status::Approved);
    let (_, votes) = world.approvals().show(asked.id).await.unwrap().unwrap();
    assert_eq!(votes[0].actor, "bob");
}
