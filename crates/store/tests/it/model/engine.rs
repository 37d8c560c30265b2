//! One database under the commands, and its state read back in the model's terms.

use super::line::assigned_line;
use super::oracle::{Entry, Known};
use super::step::*;
use crate::world::World;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;
use uuid::Uuid;
use windlass_domain::id::{ApprovalId, ChangeId, ClaimId, LeaseId, TaskId};
use windlass_domain::snapshot::Snapshot;
use windlass_domain::state::State;
use windlass_store::error::{Error, Rejection, Result};
use windlass_store::group::Outcome;
use windlass_store::statement::{Dialect, Statement};
use windlass_store::task::{Ask, Beat, Beaten, Claim, Finish, Start, SweepReport};
use windlass_store::tx::Call;
use windlass_store::value::Row;

const STATES: &str = "SELECT {snapshot_columns}, p.checkpoint, p.progress, st.finished_at \
    FROM task_state st JOIN task_spec s ON s.id = st.id \
    LEFT JOIN task_progress p ON p.task_id = st.id";
const HISTORY: &str = "SELECT task_id, event, from_status, to_status, actor, lease_id, metadata, \
    at FROM task_history ORDER BY seq";
static READ_STATES: Statement = Statement::new("model/states", STATES, STATES);
static READ_HISTORY: Statement = Statement::new("model/history", HISTORY, HISTORY);

pub struct Engine {
    pub world: World,
    /// Leases are made by the store at random; the answers of claims tell whose they are.
    leases: HashMap<Lease, LeaseId>,
    owners: HashMap<LeaseId, LeaseId>,
    numbers: HashMap<TaskId, usize>,
}

impl Engine {
    /// With the claim floor that `full_scan` gives; zero is none.
    pub async fn new(dialect: Dialect, clock: Arc<AtomicI64>, full_scan: Duration) -> Engine {
        let mut world = World::quick(dialect, clock).await;
        world.tasks = world.tasks.clone().with_full_scan(full_scan);
        let (leases, owners, numbers) = (HashMap::new(), HashMap::new(), HashMap::new());
        Engine { world, leases, owners, numbers }
    }

    pub fn dialect(&self) -> Dialect {
        self.world.dialect()
    }

    fn lease(&self, lease: Lease) -> LeaseId {
        self.leases.get(&lease).copied().unwrap_or_else(|| lease_id(lease))
    }

    /// Does it and says what the caller is told, in the model's words.
    pub async fn apply(&mut self, step: &Step) -> Vec<String> {
        match step {
            Step::Pass { .. } => Vec::new(),
            Step::Submit(items) => self.submit(items).await,
            Step::Claim(take) => self.claim(take).await,
            Step::Start(items) => {
                let starts = items.iter().map(|i| Start {
                    task: task_id(i.task),
                    lease: self.lease(i.lease),
                    actor: ACTOR.into(),
                    change: fresh(),
                });
                let outcomes = self.world.tasks.start(starts.collect()).await;
                outcomes.into_iter().map(told).collect()
            }
            Step::Beat(items) => {
                let beats = items.iter().map(|i| self.beat(i)).collect();
                let outcomes = self.world.tasks.heartbeat(beats).await.into_iter();
                let until =
                    |o: Outcome<Beaten>| o.map(|b| format!("until {:?}", b.lease_expires_at));
                outcomes.map(until).map(said).collect()
            }
            Step::Finish(items) => {
                let ends = items.iter().map(|i| Finish {
                    task: task_id(i.hold.task),
                    lease: self.lease(i.hold.lease),
                    how: i.how.finishing(),
                    usage: i.how.usage(),
                    actor: ACTOR.into(),
                    reason: None,
                    change: fresh(),
                });
                let outcomes = self.world.tasks.finish(ends.collect()).await;
                outcomes.into_iter().map(told).collect()
            }
            Step::Ask { task, what } => {
                let command = what.command(|lease| self.lease(lease));
                let ask = Ask::new(task_id(*task), command, ACTOR);
                vec![told(self.world.tasks.ask(ask).await)]
            }
            Step::Sweep(sweep) => self.sweep(*sweep).await,
        }
    }

    async fn submit(&mut self, items: &[New]) -> Vec<String> {
        let now = self.world.now();
        self.numbers.extend(items.iter().map(|i| (task_id(i.task), i.task)));
        let outcomes = self.world.tasks.submit(items.iter().map(|i| i.task(now)).collect()).await;
        let line = |(item, outcome): (&New, Outcome<windlass_store::task::Submitted>)| {
            said(outcome.map(|s| match s.duplicate {
                false if s.id == task_id(item.task) && s.status == State::Pending => "new".into(),
                false => format!("{s:?}"),
                true => {
                    let differs = s.payload_differs;
                    format!("duplicate of {} ({}), differs: {differs}", s.id, s.status)
                }
            }))
        };
        items.iter().zip(outcomes).map(line).collect()
    }

    async fn claim(&mut self, take: &Take) -> Vec<String> {
        let claim = Claim {
            claim: claim_id(take.claim),
            may_repeat: true,
            session: session(take.session),
            worker_type: None,
            queues: take.queues.iter().map(|&q| queue(q)).collect(),
            profiles: take.profiles.clone(),
            serves: Default::default(),
            max: take.max,
            lease_ms: take.lease_ms,
            start: take.start,
        };
        let assignments = match self.world.tasks.claim(claim).await {
            Ok(assignments) => assignments,
            Err(error) => return vec![format!("error: {error}")],
        };
        for a in &assignments {
            let lease = Lease { task: self.numbers[&a.task.id], attempt: a.attempt };
            let known = self.leases.insert(lease, a.lease_id);
            let owner = self.owners.insert(a.lease_id, lease_id(lease));
            // A repeated claim shows the lease again; otherwise it is fresh and never reused.
            if known != Some(a.lease_id) && (known.is_some() || owner.is_some()) {
                return vec![format!("lease {} of {lease:?} is not fresh", a.lease_id)];
            }
        }
        let line = |a: &windlass_store::task::Assignment| {
            assigned_line(a.task.id, a.task.status, a.attempt, a.lease_expires_at)
        };
        assignments.iter().map(line).collect()
    }

    fn beat(&self, item: &BeatOf) -> Beat {
        Beat {
            task: task_id(item.hold.task),
            lease: self.lease(item.hold.lease),
            lease_ms: item.lease_ms,
            checkpoint: item.checkpoint.map(json),
            progress: item.progress.map(json),
            actor: ACTOR.into(),
            change: fresh(),
        }
    }

    async fn sweep(&self, sweep: Sweep) -> Vec<String> {
        let tasks = &self.world.tasks;
        let swept = match sweep {
            Sweep::Leases => tasks.expire_leases(10_000).await,
            Sweep::Deadlines => tasks.expire_deadlines(10_000).await,
            Sweep::Pending => tasks.time_out_pending(None, 10_000).await,
            Sweep::Session(number) => tasks.lose_session(&session(number)).await,
        };
        let SweepReport { scanned, mut changed, lost_races, .. } = match swept {
            Ok(report) => report,
            Err(error) => return vec![format!("error: {error}")],
        };
        changed.sort();
        let mut lines = vec![format!("scanned {scanned}")];
        lines.extend(changed.iter().map(|(id, state)| format!("{id} {state}")));
        if scanned != changed.len() + lost_races {
            lines.push(format!("but {lost_races} lost races"));
        }
        lines
    }

    /// Everything the database knows, with the model's leases in place of its own.
    pub async fn read(&self) -> Result<BTreeMap<TaskId, Known>> {
        let body = |tx: &mut dyn windlass_store::tx::Tx| {
            let states = tx.run(Call::one(&READ_STATES, vec![]))?;
            Ok((states, tx.run(Call::one(&READ_HISTORY, vec![]))?))
        };
        let (states, history) = self.world.store.read("model", body).await?;
        let mut tasks = BTreeMap::new();
        for row in &states {
            let known = self.known(row)?;
            tasks.insert(known.snapshot.id, known);
        }
        for row in &history {
            let known = tasks.get_mut(&TaskId(row.uuid(0)?));
            let known = known.ok_or_else(|| Error::Corrupt("a history without a task".into()))?;
            known.history.push(self.entry(row)?);
        }
        Ok(tasks)
    }

    fn owner(&self, lease: Uuid) -> LeaseId {
        self.owners.get(&LeaseId(lease)).copied().unwrap_or(LeaseId(lease))
    }

    fn entry(&self, row: &Row) -> Result<Entry> {
        Ok(Entry {
            event: row.named(1)?,
            from: row.maybe(2, |r, i| r.named(i))?,
            to: row.named(3)?,
            actor: row.text(4)?.to_owned(),
            lease: row.maybe(5, |r, i| r.uuid(i))?.map(|lease| self.owner(lease)),
            metadata: row.maybe(6, |r, i| r.json(i))?,
            at: row.time(7)?,
        })
    }

    /// Follows `SNAPSHOT_COLUMNS`, position by position.
    fn known(&self, row: &Row) -> Result<Known> {
        let text = |i: usize| row.maybe(i, |r, i| r.text(i).map(str::to_owned));
        let time = |i: usize| row.maybe(i, |r, i| r.time(i));
        let canonical = |i: usize| {
            row.maybe(i, |r, i| r.json(i).map(|json| windlass_domain::json::canonical(&json)))
        };
        let typed = |i: usize| row.maybe(i, |r, i| r.json(i));
        let snapshot = Snapshot {
            // An oracle knows no lanes.
            lane: 0,
            id: TaskId(row.uuid(0)?),
            profile: row.named(1)?,
            queue: row.text(2)?.to_owned(),
            priority: row.int32(3)?,
            backoff: typed(4)?.map(|json| serde_json::from_value(json).expect("a backoff")),
            max_retries: row.int32(5)?,
            status: row.named(6)?,
            ready: row.bool(7)?,
            order_key: row.int(8)?,
            run_at: row.time(9)?,
            deadline_at: time(10)?,
            attempt: row.int32(11)?,
            retry_count: row.int32(12)?,
            release_count: row.int32(13)?,
            lease_id: row.maybe(14, |r, i| r.uuid(i))?.map(|lease| self.owner(lease)),
            lease_expires_at: time(15)?,
            claim_id: row.maybe(16, |r, i| r.uuid(i))?.map(ClaimId),
            claimed_by: text(17)?,
            claimed_at: time(18)?,
            last_heartbeat_at: time(19)?,
            approval_id: row.maybe(20, |r, i| r.uuid(i))?.map(ApprovalId),
            result: canonical(21)?,
            error: typed(22)?.map(|json| serde_json::from_value(json).expect("an error")),
            usage: typed(23)?.map(|json| serde_json::from_value(json).expect("a usage")),
            created_at: row.time(24)?,
            started_at: time(25)?,
            entered_at: row.time(26)?,
            updated_at: row.time(27)?,
        };
        let ended = snapshot.status.is_terminal().then_some(snapshot.updated_at);
        if time(32)? != ended {
            return Err(Error::Corrupt(format!("{} is finished at {:?}", snapshot.id, time(32)?)));
        }
        let (checkpoint, progress) = (canonical(30)?, canonical(31)?);
        Ok(Known { snapshot, checkpoint, progress, history: Vec::new() })
    }
}

fn fresh() -> ChangeId {
    ChangeId(Uuid::now_v7())
}

fn told(outcome: Outcome<State>) -> String {
    said(outcome.map(|state| state.to_string()))
}

fn said(outcome: Outcome<String>) -> String {
    match outcome {
        Ok(line) => line,
        Err(Rejection::Refused(refusal)) => format!("refused: {}", refusal.code()),
        Err(Rejection::Failed(error)) => format!("error: {error}"),
    }
}
