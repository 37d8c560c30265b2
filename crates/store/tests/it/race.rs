//! Many holders at once: however claims, sweeps, heartbeats and completions race, a task has one
//! holder at a time and one end.

use crate::world::*;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use windlass_domain::id::{LeaseId, TaskId};
use windlass_domain::state::{Event, State};
use windlass_domain::task::NewTask;
use windlass_store::error::Rejection;
use windlass_store::statement::{Dialect, Statement};
use windlass_store::store::Store;
use windlass_store::task::{Assignment, Claim, Finish, Finishing, History, Tasks};
use windlass_store::tx::{Call, Tx};
use windlass_store::value::Row;

conformance!(
    racing_claims_give_each_task_to_one_holder,
    the_same_claim_on_every_node_at_once_takes_once,
    each_task_is_completed_once_while_leases_run_out,
);

const TASKS: usize = 2_000;
const CLAIMERS: usize = 16;

/// Nodes over one database: four over PostgreSQL, one over a SQLite file, which has one server.
struct Nodes {
    world: World,
    others: Vec<Store>,
    tasks: Vec<Tasks>,
}

impl Nodes {
    async fn new(dialect: Dialect) -> Nodes {
        let world = World::with_real_clock(dialect).await;
        let more = if dialect == Dialect::Postgres { 3 } else { 0 };
        let others: Vec<Store> = (0..more).map(|_| world.place.open(None)).collect();
        let mut tasks = vec![world.tasks.clone()];
        tasks.extend(others.iter().cloned().map(Tasks::new));
        Nodes { world, others, tasks }
    }

    /// One of the nodes, evenly.
    fn node(&self, caller: usize) -> Tasks {
        self.tasks[caller % self.tasks.len()].clone()
    }

    async fn submit(&self, make: fn() -> NewTask) -> Vec<TaskId> {
        let batch: Vec<NewTask> = (0..TASKS).map(|_| make()).collect();
        let ids = batch.iter().map(|t| t.id).collect();
        for part in batch.chunks(500) {
            let outcomes = self.world.submit_all(part.to_vec()).await;
            assert!(outcomes.iter().all(Result::is_ok));
        }
        ids
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        self.others.iter().for_each(Store::close);
    }
}

const HISTORY: &str = "SELECT task_id, seq, from_status, to_status, event, actor, reason, \
    lease_id, metadata, at FROM task_history ORDER BY seq";
static READ_HISTORY: Statement = Statement::new("race/history", HISTORY, HISTORY);

/// The history of every task, oldest first, in one read.
async fn histories(world: &World) -> HashMap<TaskId, Vec<History>> {
    let read = |tx: &mut dyn Tx| tx.run(Call::one(&READ_HISTORY, vec![]));
    let mut histories: HashMap<TaskId, Vec<History>> = HashMap::new();
    for row in world.store.read("histories", read).await.unwrap() {
        let line = history(&row).unwrap();
        histories.entry(line.task_id).or_default().push(line);
    }
    histories
}

fn history(row: &Row) -> windlass_store::error::Result<History> {
    Ok(History {
        task_id: TaskId(row.uuid(0)?),
        seq: row.int(1)?,
        from_status: row.maybe(2, |r, i| r.named(i))?,
        to_status: row.named(3)?,
        event: row.named(4)?,
        actor: row.text(5)?.to_owned(),
        reason: row.maybe(6, |r, i| r.text(i).map(str::to_owned))?,
        lease_id: row.maybe(7, |r, i| r.uuid(i))?.map(|id| LeaseId(id).digest()),
        metadata: row.maybe(8, |r, i| r.json(i))?,
        at: row.time(9)?,
    })
}

/// A batch size, different at every call: no generator needed for that.
fn size(seed: usize) -> usize {
    1 + (seed.wrapping_mul(2_654_435_761) >> 7) % 40
}

async fn racing_claims_give_each_task_to_one_holder(dialect: Dialect) {
    let nodes = Nodes::new(dialect).await;
    let ids = nodes.submit(job).await;
    let mut claimers = Vec::new();
    for caller in 0..CLAIMERS {
        let tasks = nodes.node(caller);
        claimers.push(tokio::spawn(async move {
            let mut held = Vec::new();
            for round in 0.. {
                let max = size(caller * 1_000 + round);
                let session = format!("w{caller}");
                let got = tasks.claim(claim_of(&session, &["q"], max)).await.unwrap();
                assert!(got.len() <= max);
                if got.is_empty() {
                    break;
                }
                held.extend(got);
            }
            held
        }));
    }
    let mut held: Vec<Assignment> = Vec::new();
    for claimer in claimers {
        held.extend(claimer.await.unwrap());
    }
    assert_eq!(held.len(), TASKS);
    let tasks: HashSet<TaskId> = held.iter().map(|a| a.task.id).collect();
    assert_eq!(tasks, ids.into_iter().collect());
    let leases: HashSet<LeaseId> = held.iter().map(|a| a.lease_id).collect();
    assert_eq!(leases.len(), TASKS);
    let histories = histories(&nodes.world).await;
    for held in &held {
        let claims: Vec<_> =
            histories[&held.task.id].iter().filter(|h| h.event == Event::Claim).collect();
        assert_eq!(claims.len(), 1);
        assert_eq!(claims[0].lease_id, Some(held.lease_id.digest()));
        assert_eq!(Some(&claims[0].actor), held.task.claimed_by.as_ref());
    }
}

/// Large enough that one node runs two of them at once, too. Without an answer a worker sends its
/// claim again, perhaps to another node, while the first one is still under way.
async fn the_same_claim_on_every_node_at_once_takes_once(dialect: Dialect) {
    const MAX: usize = 150;
    let nodes = Nodes::new(dialect).await;
    nodes.submit(job).await;
    let mut all = HashSet::new();
    for round in 0..TASKS / MAX {
        let same = claim_of(&format!("w{round}"), &["q"], MAX);
        let repeats: Vec<_> = (0..8)
            .map(|caller| {
                let (tasks, claim) = (nodes.node(caller), same.clone());
                tokio::spawn(async move { tasks.claim(claim).await.unwrap() })
            })
            .collect();
        for repeat in repeats {
            let held = repeat.await.unwrap();
            assert_eq!(held.len(), MAX, "round {round}");
            all.extend(held.iter().map(|held| held.task.id));
        }
        assert_eq!(all.len(), MAX * (round + 1));
    }
}

/// What the workers saw of one run.
#[derive(Default)]
struct Seen {
    completed: Vec<(TaskId, LeaseId)>,
    beaten: Vec<(TaskId, LeaseId)>,
    claimed: Vec<(TaskId, LeaseId)>,
}

/// With leases so short that many run out: a worker that is told `lease_lost` lets go.
async fn each_task_is_completed_once_while_leases_run_out(dialect: Dialect) {
    let nodes = Nodes::new(dialect).await;
    let patient = || task(|r| r.max_retries = Some(100));
    let ids = nodes.submit(patient).await;
    let done = Arc::new(AtomicUsize::new(0));
    let over = Arc::new(AtomicBool::new(false));
    let sweeps = (0..2).map(|n| {
        let (tasks, over) = (nodes.node(n), Arc::clone(&over));
        tokio::spawn(async move {
            while !over.load(Ordering::SeqCst) {
                tasks.expire_leases(100).await.unwrap();
                tokio::time::sleep(Duration::from_millis(3)).await;
            }
        })
    });
    let sweeps: Vec<_> = sweeps.collect();
    let workers: Vec<_> = (0..CLAIMERS)
        .map(|caller| tokio::spawn(work(nodes.node(caller), caller, Arc::clone(&done))))
        .collect();
    let mut seen = Seen::default();
    for worker in workers {
        let mut one = worker.await.unwrap();
        seen.completed.append(&mut one.completed);
        seen.beaten.append(&mut one.beaten);
        seen.claimed.append(&mut one.claimed);
    }
    over.store(true, Ordering::SeqCst);
    for sweep in sweeps {
        sweep.await.unwrap();
    }
    check(&nodes, &ids, &seen).await;
}

/// Claims, beats half of what it holds, dawdles, completes; until all tasks are done.
async fn work(tasks: Tasks, caller: usize, done: Arc<AtomicUsize>) -> Seen {
    let mut seen = Seen::default();
    let start = Instant::now();
    for round in 0.. {
        if done.load(Ordering::SeqCst) >= TASKS {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(120), "the work never ends");
        let (session, number) = (format!("w{caller}"), caller * 1_000 + round);
        let claim = Claim {
            // Short at first, so that many run out; then long, so that a slow machine ends, too,
            // before tasks were given back too often.
            lease_ms: Some(if round < 10 { 30 + (number % 7) as i64 * 20 } else { 60_000 }),
            start: number % 2 == 0,
            ..claim_of(&session, &["q"], size(number))
        };
        let held = tasks.claim(claim).await.unwrap();
        if held.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
            continue;
        }
        seen.claimed.extend(held.iter().map(|a| (a.task.id, a.lease_id)));
        let beats: Vec<_> = held.iter().step_by(2).map(beat_of).collect();
        let beaten = tasks.heartbeat(beats.clone()).await;
        for (beat, outcome) in beats.iter().zip(beaten) {
            match outcome {
                Ok(_) => seen.beaten.push((beat.task, beat.lease)),
                Err(Rejection::Refused(refusal)) => assert_eq!(refusal.code(), "lease_lost"),
                Err(failed) => panic!("{failed}"),
            }
        }
        tokio::time::sleep(Duration::from_millis((number % 5) as u64 * 20)).await;
        complete_all(&tasks, &held, &mut seen, &done).await;
    }
    seen
}

async fn complete_all(tasks: &Tasks, held: &[Assignment], seen: &mut Seen, done: &AtomicUsize) {
    let result = |a: &Assignment| Finishing::Complete(Some(format!("\"{}\"", a.lease_id)));
    let finishes: Vec<Finish> = held.iter().map(|a| finish_of(a, result(a))).collect();
    let outcomes = tasks.finish(finishes).await;
    for (held, outcome) in held.iter().zip(outcomes) {
        match outcome {
            Ok(state) => {
                assert_eq!(state, State::Completed);
                seen.completed.push((held.task.id, held.lease_id));
                done.fetch_add(1, Ordering::SeqCst);
            }
            Err(Rejection::Refused(refusal)) => assert_eq!(refusal.code(), "lease_lost"),
            Err(failed) => panic!("{failed}"),
        }
    }
}

async fn check(nodes: &Nodes, ids: &[TaskId], seen: &Seen) {
    let claimed: HashSet<_> = seen.claimed.iter().collect();
    assert_eq!(claimed.len(), seen.claimed.len(), "a lease was given twice");
    let completed: HashMap<TaskId, LeaseId> = seen.completed.iter().copied().collect();
    assert_eq!(completed.len(), seen.completed.len(), "a task was completed twice");
    assert_eq!(completed.len(), ids.len());
    let histories = histories(&nodes.world).await;
    let mut lost = 0;
    for id in ids {
        lost += follow(&histories[id], completed[id]);
    }
    for id in ids.iter().step_by(50) {
        let result = nodes.world.tasks.show(*id).await.unwrap().unwrap().result;
        assert_eq!(result, Some(serde_json::json!(completed[id].to_string())));
    }
    assert!(lost > 0, "no lease ran out: the run proves nothing");
}

/// Walks a history: every change under a lease belongs to the lease that then held the task.
fn follow(history: &[History], completed_by: LeaseId) -> usize {
    let mut holder = None;
    let (mut claims, mut completions, mut lost) = (0, 0, 0);
    for (before, now) in history.iter().zip(&history[1..]) {
        assert_eq!(now.from_status, Some(before.to_status));
        if now.event == Event::Claim {
            claims += 1;
            assert_eq!(holder, None, "{now:?} while another holds it");
            holder = now.lease_id;
            continue;
        }
        assert_eq!(now.lease_id, holder, "{now:?}");
        match now.event {
            Event::Complete => completions += 1,
            Event::LoseLease => lost += 1,
            _ => {}
        }
        if now.event != Event::Start {
            holder = None;
        }
    }
    // Each attempt was claimed once and ended once.
    assert_eq!((claims, completions), (lost + 1, 1));
    assert_eq!(history.last().unwrap().lease_id, Some(completed_by.digest()));
    lost
}
