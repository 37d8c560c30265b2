//! The two sides of every comparison: ours and the floor, behind the same four verbs.

use crate::floor::{postgres, sqlite};
use crate::{Result, load};
use uuid::Uuid;
use windlass_domain::id::{ChangeId, ClaimId, LeaseId, TaskId};
use windlass_domain::profile::Profile;
use windlass_domain::task::NewTask;
use windlass_store::task::{Beat, Claim, Finish, Finishing, Tasks};

/// A task in a caller's hands.
#[derive(Clone, Copy)]
pub struct Held {
    pub id: Uuid,
    pub lease: Uuid,
}

/// Whoever does the work.
#[derive(Clone)]
pub enum Side {
    Ours(Tasks),
    Postgres(postgres::Floor),
    Sqlite(sqlite::Floor),
}

impl Side {
    pub async fn submit(&self, caller: usize, tasks: Vec<NewTask>) -> Result<()> {
        match self {
            Side::Ours(ours) => {
                for outcome in ours.submit(tasks).await {
                    outcome?;
                }
                Ok(())
            }
            Side::Postgres(floor) => floor.submit(caller, &tasks).await,
            Side::Sqlite(floor) => floor.submit(&tasks),
        }
    }

    /// Claims and starts.
    pub async fn claim(&self, caller: usize, max: usize) -> Result<Vec<Held>> {
        match self {
            Side::Ours(ours) => {
                let claim = Claim {
                    claim: ClaimId(Uuid::now_v7()),
                    may_repeat: false,
                    session: load::ACTOR.into(),
                    worker_type: None,
                    queues: vec![load::QUEUE.into()],
                    profiles: vec![Profile::Job],
                    serves: Default::default(),
                    max,
                    lease_ms: None,
                    start: true,
                };
                let taken = ours.claim(claim).await?;
                let held = taken.iter().map(|a| Held { id: a.task.id.0, lease: a.lease_id.0 });
                Ok(held.collect())
            }
            Side::Postgres(floor) => floor.claim(caller, max).await,
            Side::Sqlite(floor) => floor.claim(max),
        }
    }

    pub async fn heartbeat(&self, caller: usize, held: &[Held]) -> Result<()> {
        match self {
            Side::Ours(ours) => {
                let beats = held.iter().map(|held| Beat {
                    task: TaskId(held.id),
                    lease: LeaseId(held.lease),
                    lease_ms: None,
                    checkpoint: None,
                    progress: None,
                    actor: load::ACTOR.into(),
                    change: ChangeId(Uuid::now_v7()),
                });
                for outcome in ours.heartbeat(beats.collect()).await {
                    outcome?;
                }
                Ok(())
            }
            Side::Postgres(floor) => floor.heartbeat(caller, held).await,
            Side::Sqlite(floor) => floor.heartbeat(held),
        }
    }

    pub async fn complete(&self, caller: usize, held: &[Held]) -> Result<()> {
        match self {
            Side::Ours(ours) => {
                let ends = held.iter().map(|held| Finish {
                    task: TaskId(held.id),
                    lease: LeaseId(held.lease),
                    how: Finishing::Complete(Some(load::RESULT.into())),
                    usage: None,
                    actor: load::ACTOR.into(),
                    reason: None,
                    change: ChangeId(Uuid::now_v7()),
                });
                for outcome in ours.finish(ends.collect()).await {
                    outcome?;
                }
                Ok(())
            }
            Side::Postgres(floor) => floor.complete(caller, held).await,
            Side::Sqlite(floor) => floor.complete(held),
        }
    }

    /// What the floor with history must write for a lone task that begins in a worker's hands.
    pub async fn hand_over(&self, task: &NewTask) -> Result<()> {
        match self {
            Side::Ours(_) => Err("ours hands over by itself".into()),
            Side::Postgres(floor) => floor.hand_over(task).await,
            Side::Sqlite(floor) => floor.hand_over(task),
        }
    }

    pub fn close(&self) {
        if let Side::Ours(ours) = self {
            ours.store().close();
        }
    }
}
