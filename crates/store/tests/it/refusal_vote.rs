//! By hand: what was asked never changes, voices are append-only, tokens are used once.

use crate::hand::{Attempt, all_accepted, all_refused};
use crate::refusal::{CHANGE, instant};
use crate::world::*;
use uuid::Uuid;
use windlass_domain::approval::token::Token;
use windlass_domain::approval::{Choice, Question};
use windlass_store::approval::{Approval, Issue};
use windlass_store::statement::Dialect;

conformance!(
    what_was_asked_never_changes,
    a_voice_is_written_once_for_an_open_question,
    a_token_never_changes_and_is_used_once,
    a_request_is_not_approved_without_its_voices,
);

async fn parked(world: &World) -> Approval {
    let held = world.running(job()).await;
    world.asked(&held, Question { required: 2, ..question("gate", None) }).await
}

fn refused(sql: String, words: &'static str) -> (Attempt, &'static str) {
    (Attempt::new(sql), words)
}

async fn what_was_asked_never_changes(dialect: Dialect) {
    let world = World::new(dialect).await;
    parked(&world).await;
    let once = "what was asked stays";
    let set = |what: &str| refused(format!("UPDATE approval SET {what}"), once);
    all_refused(
        &world,
        &[
            set("action = 'destroy'"),
            set("arguments = '{}'"),
            set("digest = 'abc'"),
            set("occurrence = 1"),
            set("required = 1"),
            set("requested_by = 'nobody'"),
            set("kind = 'replay', request = '{}'"),
        ],
    );
    // An operator may give people more time.
    let later = instant(dialect, NOON + 3_600_000);
    all_accepted(&world, &[Attempt::new(format!("UPDATE approval SET expires_at = {later}"))]);
}

async fn a_voice_is_written_once_for_an_open_question(dialect: Dialect) {
    let world = World::new(dialect).await;
    let (asked, other) = (parked(&world).await, parked(&world).await);
    world.vote(asked.id, "ann", Choice::Approve).await.unwrap();
    world.vote(other.id, "ann", Choice::Deny).await.unwrap();
    let now = instant(dialect, NOON);
    let vote = |approval: &Approval, task: &Approval, actor: &str, choice: &str| {
        format!(
            "INSERT INTO approval_vote (approval_id, task_id, actor, choice, via, vote_id, at)
             VALUES ('{}', '{}', '{actor}', '{choice}', 'key', '{CHANGE}', {now})",
            approval.id, task.task_id
        )
    };
    let changes = "a voice never changes";
    let kept = "only the retention duty";
    let second =
        if dialect == Dialect::Postgres { "approval_vote_pkey" } else { "a voice never changes" };
    let mut attempts = vec![
        refused("UPDATE approval_vote SET choice = 'deny'".into(), changes),
        refused("UPDATE approval_vote SET comment = 'other words'".into(), changes),
        refused("DELETE FROM approval_vote".into(), kept),
        refused(vote(&other, &other, "bob", "approve"), "is not open"),
        refused(vote(&asked, &other, "bob", "approve"), "is not open"),
        refused(vote(&asked, &asked, "w1", "approve"), "somebody else must approve it"),
        refused(vote(&asked, &asked, "ann", "deny"), second),
        refused(vote(&asked, &asked, "bob", "perhaps"), "choice_is_known"),
        refused(vote(&asked, &asked, "", "deny"), "voice_is_bounded"),
    ];
    if dialect == Dialect::Postgres {
        attempts.push(refused("TRUNCATE approval_vote".into(), changes));
    } else {
        let replace = vote(&asked, &asked, "ann", "deny").replace("INSERT", "INSERT OR REPLACE");
        attempts.push(refused(replace, changes));
    }
    all_refused(&world, &attempts);
    all_accepted(&world, &[Attempt::new(vote(&asked, &asked, "bob", "approve"))]);
}

async fn a_token_never_changes_and_is_used_once(dialect: Dialect) {
    let world = World::new(dialect).await;
    let asked = parked(&world).await;
    let token = Token::new(Uuid::now_v7(), [1, 2, 3].map(Uuid::from_u128));
    let (approver, issued_by) = ("ann".to_owned(), "ops".to_owned());
    let issue = Issue { approval: asked.id, approver, expires_ms: 1_000, issued_by, token };
    world.approvals().issue(issue).await.unwrap();
    let fixed = "used or revoked once";
    let (now, later) = (instant(dialect, NOON), instant(dialect, NOON + 3_600_000));
    let set = |what: &str| refused(format!("UPDATE approval_token SET {what}"), fixed);
    let spent = format!("UPDATE approval_token SET spent_at = {now}");
    let again = Attempt::new("UPDATE approval_token SET spent_at = NULL").after(spent.clone());
    all_refused(
        &world,
        &[
            set("approver = 'bob'"),
            set(&format!("digest = '{}'", "0".repeat(64))),
            set(&format!("expires_at = {later}")),
            (again, fixed),
            refused("DELETE FROM approval_token".into(), "only the retention duty"),
        ],
    );
    all_accepted(&world, &[Attempt::new(spent)]);
}

async fn a_request_is_not_approved_without_its_voices(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    world.finish(&held, complete()).await.unwrap();
    let now = instant(dialect, NOON);
    let close = |required: i64, status: &str| {
        let request = format!(
            "INSERT INTO approval (id, task_id, gate, kind, request, required, created_at)
             VALUES ('{CHANGE}', '{}', 'replay', 'replay', '{{}}', {required}, {now})",
            held.task.id
        );
        let sql = format!("UPDATE approval SET status = '{status}', decided_at = {now}");
        Attempt::new(sql).after(request)
    };
    // It said "the voices of 1 people" once.
    let (one, two) = match dialect {
        Dialect::Sqlite => ("needs the voices of more people", "needs the voices of more people"),
        Dialect::Postgres => ("needs the voice of a person", "needs the voices of 2 people"),
    };
    all_refused(&world, &[(close(1, "approved"), one), (close(2, "approved"), two)]);
    all_accepted(&world, &[close(2, "withdrawn")]);
}
