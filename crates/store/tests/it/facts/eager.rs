//! A submit that meets somebody who waits: the task is handed over in the same transaction.

use crate::hand::{Attempt, all_accepted, all_refused};
use crate::refusal::{CHANGE, LEASE, instant};
use crate::world::*;
use std::sync::{Arc, Mutex};
use windlass_domain::id::TaskId;
use windlass_domain::limit::{Limits, Rule, Scope};
use windlass_domain::pins::{Pins, Serves};
use windlass_domain::profile::Profile;
use windlass_domain::state::State;
use windlass_domain::task::NewTask;
use windlass_store::statement::Dialect;
use windlass_store::task::{Assignment, Claim, History, Idle};

conformance!(
    what_is_handed_over_is_what_a_read_shows,
    its_history_is_that_of_a_submit_and_a_claim,
    where_another_task_waits_the_oldest_goes_first,
    a_task_that_is_known_is_not_handed_over_again,
    a_batch_is_handed_over_to_those_who_wait,
    of_a_batch_the_more_urgent_are_handed_over_whatever_lanes_they_stand_in,
    what_is_left_of_a_batch_goes_only_to_those_who_would_take_it,
    everybody_who_waited_is_told_that_all_was_refused,
    by_hand_a_task_begins_held_only_as_a_claim_would_leave_it,
);

/// Claims that wait, and what each of them got.
#[derive(Default)]
pub struct Waiting {
    claims: Mutex<Vec<Claim>>,
    got: Mutex<Vec<Vec<Assignment>>>,
}

impl Waiting {
    pub fn of(world: &World) -> Arc<Waiting> {
        let waiting = Arc::new(Waiting::default());
        world.tasks.dispatch_to(&(Arc::clone(&waiting) as _));
        waiting
    }

    pub fn enter(&self, claim: Claim) {
        self.claims.lock().unwrap().push(claim);
    }

    /// What was delivered since the last look.
    pub fn got(&self) -> Vec<Vec<Assignment>> {
        std::mem::take(&mut self.got.lock().unwrap())
    }
}

impl Idle for Waiting {
    fn room(&self, _queue: &str) {}

    fn offer(&self, queue: &str, profile: Profile, pins: &Pins, count: usize) -> Option<Claim> {
        let takes = |claim: &mut Claim| {
            let is_asked = claim.queues.iter().any(|asked| asked == queue);
            is_asked && claim.profiles.contains(&profile) && claim.serves.has(pins)
        };
        let claim = self.claims.lock().unwrap().pop_if(takes)?;
        let max = claim.max.min(count);
        Some(Claim { queues: vec![queue.into()], max, ..claim })
    }

    fn deliver(&self, _claim: &Claim, assignments: Vec<Assignment>, _new: usize) {
        self.got.lock().unwrap().push(assignments);
    }
}

fn all_kinds() -> Vec<NewTask> {
    let full = task(|r| {
        r.payload = serde_json::json!({
            "b": [1, 2.5, 1e2, -0.0, 1e300, 18_446_744_073_709_551_615_u64, null, true],
            "a": { "text": "ä\u{1F980}\"\\\n", "empty": {} },
        });
        r.priority = Some(7);
        r.tags = Some([("team".to_owned(), "blue".to_owned())].into());
        r.name = Some("full".into());
        r.venture = Some("v".into());
        r.correlation_id = Some("c-1".into());
        r.idempotency_key = Some("k-1".into());
        r.deadline_ms = Some(5_000);
        r.max_retries = Some(9);
    });
    vec![full, job(), delegation(|_| {}), inference_with(|r| r.model = Some("m".into()))]
}

fn waits(session: &str, start: bool) -> Claim {
    let serves = Serves { models: vec!["m".into()], ..Serves::default() };
    Claim { start, serves, ..claim_of(session, &["q"], 1) }
}

async fn what_is_handed_over_is_what_a_read_shows(dialect: Dialect) {
    let world = World::new(dialect).await;
    let waiting = Waiting::of(&world);
    for (number, new) in all_kinds().into_iter().enumerate() {
        for (start, lease_ms) in [(true, None), (false, Some(1_234))] {
            let new = NewTask { id: TaskId(uuid::Uuid::now_v7()), ..new.clone() };
            let new = NewTask { idempotency_key: None, ..new };
            let session = format!("w{number}{start}");
            waiting.enter(Claim { lease_ms, ..waits(&session, start) });
            let id = world.submit(new).await;
            let got = waiting.got().pop().unwrap();
            assert_eq!(got[0].task, world.show(id).await);
            let known = world.tasks.unknown_to(&session, vec![]).await.unwrap();
            assert_eq!(world.tasks.fill_steps(known).await.unwrap(), got);
            let status = if start { State::Running } else { State::Claimed };
            assert_eq!((got[0].task.id, got[0].task.status, got[0].attempt), (id, status, 1));
            assert_eq!(world.finish(&got[0], complete()).await.unwrap(), State::Completed);
        }
    }
}

/// What does not differ from one task to the next.
fn bare(history: Vec<History>) -> Vec<History> {
    let bare = |mut h: History| {
        assert_eq!(h.lease_id.is_some(), h.from_status.is_some(), "{h:?}");
        (h.task_id, h.seq, h.lease_id) = (TaskId(uuid::Uuid::nil()), 0, None);
        h
    };
    history.into_iter().map(bare).collect()
}

async fn its_history_is_that_of_a_submit_and_a_claim(dialect: Dialect) {
    let world = World::new(dialect).await;
    let waiting = Waiting::of(&world);
    for start in [true, false] {
        let plain = world.submit(job()).await;
        world.tasks.claim(waits("w1", start)).await.unwrap();
        waiting.enter(waits("w1", start));
        let eager = world.submit(job()).await;
        let [plain, eager] = [plain, eager].map(|id| world.tasks.history(id, 0, 10));
        assert_eq!(bare(eager.await.unwrap()), bare(plain.await.unwrap()));
    }
}

async fn where_another_task_waits_the_oldest_goes_first(dialect: Dialect) {
    let world = World::new(dialect).await;
    let older = world.submit(job()).await;
    world.pass_ms(1);
    let waiting = Waiting::of(&world);
    waiting.enter(waits("w1", true));
    let newer = world.submit(job()).await;
    assert_eq!(world.status(newer).await, State::Pending);
    // Given at once, or told to look.
    let got = waiting.got().pop().unwrap();
    let got = if got.is_empty() { world.claim("w1", 1).await } else { got };
    assert_eq!(got[0].task.id, older);
    assert_eq!(world.claim("w1", 1).await[0].task.id, newer);
}

async fn a_task_that_is_known_is_not_handed_over_again(dialect: Dialect) {
    let world = World::new(dialect).await;
    let waiting = Waiting::of(&world);
    waiting.enter(waits("w1", true));
    let new = job();
    let id = world.submit(new.clone()).await;
    assert_eq!(waiting.got()[0].len(), 1);
    waiting.enter(waits("w2", true));
    let again = world.submit_all(vec![new]).await.pop().unwrap().unwrap();
    assert_eq!((again.id, again.duplicate, again.status), (id, true, State::Running));
    assert_eq!(waiting.got(), [vec![]]);
    assert_eq!(world.story(id).await.len(), 2);
}

async fn a_batch_is_handed_over_to_those_who_wait(dialect: Dialect) {
    let world = World::new(dialect).await;
    let waiting = Waiting::of(&world);
    waiting.enter(waits("w1", true));
    waiting.enter(Claim { max: 2, ..waits("w2", true) });
    let outcomes = world.submit_all(vec![job(), job(), job(), job()]).await;
    assert!(outcomes.into_iter().all(|outcome| outcome.is_ok()));
    let mut got: Vec<usize> = waiting.got().iter().map(Vec::len).collect();
    got.sort_unstable();
    assert_eq!(got, [1, 2]);
}

/// A limit that lets nothing of the venture `full` in.
fn refused(world: &World) -> NewTask {
    let full = Rule {
        scope: Scope::Venture,
        name: Some("full".into()),
        max_active: None,
        max_pending: Some(0),
        rate: None,
    };
    world.tasks.bind(Some(Limits::new([full])));
    task(|r| r.venture = Some("full".into()))
}

// A claim that was taken along for a task that is refused was once given the other task of the
// batch, whatever that was.
async fn of_a_batch_the_more_urgent_are_handed_over_whatever_lanes_they_stand_in(dialect: Dialect) {
    let rule = Rule {
        scope: Scope::Global,
        name: None,
        max_active: Some(100),
        max_pending: None,
        rate: None,
    };
    let limits = Limits::new([rule]);
    for limits in [None, Some(limits)] {
        let world = World::new(dialect).await;
        world.tasks.bind(limits);
        let waiting = Waiting::of(&world);
        let urgent = |agent: &str, priority: i32| {
            task(|r| {
                (r.venture, r.agent) = (Some("acme".into()), Some(agent.into()));
                r.priority = Some(priority);
            })
        };
        let batch = [("a", 9), ("a", 0), ("a", 0), ("b", 5), ("b", 4), ("b", -1)];
        waiting.enter(claim_of("w1", &["q"], 3));
        world.submit_all(batch.map(|(agent, priority)| urgent(agent, priority)).to_vec()).await;
        let got = waiting.got().concat();
        let mut priorities: Vec<i32> = got.iter().map(|held| held.task.priority).collect();
        priorities.sort_unstable();
        // Once only the heads of the lanes were looked at, and a task of the usual priority went
        // before an urgent one.
        assert_eq!(priorities, [4, 5, 9]);
        // What waits is taken in the same order by the next one who comes.
        let left = world.claim("w2", 2).await;
        assert_eq!(left.iter().map(|held| held.task.priority).collect::<Vec<_>>(), [0, 0]);
    }
}

async fn what_is_left_of_a_batch_goes_only_to_those_who_would_take_it(dialect: Dialect) {
    let world = World::new(dialect).await;
    let refused = refused(&world);
    let waiting = Waiting::of(&world);
    let others = [
        task(|r| r.delay_ms = Some(60_000)),
        task(|r| r.queue = Some("other".into())),
        ledger(),
        inference_with(|r| r.model = Some("another".into())),
    ];
    for other in others {
        let (id, profile) = (other.id, other.profile);
        waiting.enter(waits("w1", true));
        let refused = NewTask { id: TaskId(uuid::Uuid::now_v7()), ..refused.clone() };
        let outcomes = world.submit_all(vec![other, refused]).await;
        assert_eq!(outcomes.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false]);
        assert_eq!(world.status(id).await, State::Pending, "{profile:?}");
        assert_eq!(waiting.got(), [vec![]], "{profile:?}");
    }
}

// Only the first of them was told; the others waited for ever.
async fn everybody_who_waited_is_told_that_all_was_refused(dialect: Dialect) {
    let world = World::new(dialect).await;
    let refused = refused(&world);
    let waiting = Waiting::of(&world);
    ["w1", "w2", "w3"].iter().for_each(|name| waiting.enter(waits(name, true)));
    let all = (0..3).map(|_| NewTask { id: TaskId(uuid::Uuid::now_v7()), ..refused.clone() });
    let outcomes = world.submit_all(all.collect()).await;
    assert!(outcomes.iter().all(Result::is_err), "{outcomes:?}");
    assert_eq!(waiting.got(), [vec![], vec![], vec![]]);
}

async fn by_hand_a_task_begins_held_only_as_a_claim_would_leave_it(dialect: Dialect) {
    let world = World::new(dialect).await;
    let now = instant(dialect, NOON);
    let begun = |profile: &str, columns: &str, values: &str| {
        let spec = format!(
            "INSERT INTO task_spec (id, profile, queue, payload, caller, callee, run_at,
                 max_retries, submitted_by, request_digest, created_at)
             VALUES ('{CHANGE}', '{profile}', 'q', '{{}}', 'a', 'b', {now}, 3, 'me', 'x', {now})"
        );
        let state = format!(
            "INSERT INTO task_state (id, profile, queue, ready, order_key, run_at, max_retries,
                 created_at, entered_at, updated_at, from_status, event, change_id, actor,
                 claimed_by, claim_id, {columns})
             VALUES ('{CHANGE}', '{profile}', 'q', FALSE, 1, {now}, 3, {now}, {now}, {now},
                 'pending', 'claim', '{LEASE}', 'w', 'w', '{LEASE}', {values})"
        );
        Attempt::new(state).after(spec)
    };
    let columns = "status, lease_id, change_lease_id, lease_expires_at, claimed_at, started_at,
        attempt";
    let held = format!("'running', '{LEASE}', '{LEASE}', {now}, {now}, {now}, 1");
    if dialect == Dialect::Sqlite {
        // There the writer makes two statements of it, so nobody else may make one.
        let refused = "a task begins once, as pending";
        return all_refused(&world, &[(begun("job", columns, &held), refused)]);
    }
    let look = "SELECT string_agg(concat_ws(' ', event, from_status, to_status, actor, lease_id),
        ', ' ORDER BY seq) FROM task_history";
    let seen = all_accepted(&world, &[begun("job", columns, &held).look(look)]);
    assert_eq!(seen, [format!("submit pending me, claim pending running w {LEASE}")]);
    let refused = |values: String| {
        (begun("job", columns, &values), "a task begins as pending, or claimed by the statement")
    };
    all_refused(
        &world,
        &[
            refused(format!("'running', '{LEASE}', '{LEASE}', {now}, {now}, {now}, 2")),
            refused(format!("'running', '{LEASE}', '{LEASE}', {now}, {now}, NULL, 1")),
            refused(format!("'claimed', '{LEASE}', '{LEASE}', {now}, {now}, {now}, 1")),
            refused(format!("'running', '{LEASE}', '{CHANGE}', {now}, {now}, {now}, 1")),
            refused(format!("'running', NULL, NULL, {now}, {now}, {now}, 1")),
            refused(format!("'running', '{LEASE}', '{LEASE}', {now}, NULL, {now}, 1")),
            (
                begun("ledger", columns, &held.replace(&format!("'{LEASE}', '"), "NULL, '")),
                "windlass: ",
            ),
            (begun("job", columns, &held.replace("'running'", "'completed'")), "windlass: "),
        ],
    );
}
