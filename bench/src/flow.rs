//! What limits cost, and whether turns are fair: lifecycles with rules beside the same without, in
//! turns, and a backlog of one venture beside ninety-nine others.
//!
//! "Rules" means: present, and checked by every claim and submit; their values are printed.

use crate::Result;
use crate::arguments::{Engine, Sizes};
use crate::load::{self, ACTOR, QUEUE, RESULT};
use crate::place::Place;
use crate::table::{Table, median, met, percent, whole};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use tokio::task::JoinSet;
use uuid::Uuid;
use windlass_domain::id::{ChangeId, ClaimId};
use windlass_domain::limit::{Limits, Rule, Scope};
use windlass_domain::profile::Profile;
use windlass_domain::task::NewTask;
use windlass_store::task::{Assignment, Claim, Finish, Finishing, Tasks};

/// Of one lifecycle with rules that do not bind, beside one without rules.
const UNBOUND: f64 = 0.8;
/// With rules that bind.
const BOUND: f64 = 0.5;
/// Far above any load here.
const HIGH: i64 = 1_000_000;
/// A little above the load.
const NEAR: usize = 10_000;
const SLOTS: usize = 20;

pub async fn run(engine: &Engine, sizes: &Sizes) -> Result<()> {
    let mut table = Table::new(&["load", "rules", "tasks/s", "of the same without", "target"]);
    let few = Load {
        name: "10 ventures, 4 stages, 8 callers that claim 100",
        ventures: 10,
        callers: 8,
        batch: 100,
    };
    let rules =
        vec![rule(Scope::Global, HIGH), rule(Scope::Venture, HIGH), rule(Scope::Stage, HIGH)];
    let words = "global, venture and stage at 1,000,000: not binding";
    cost(engine, sizes, &few, (rules, words), UNBOUND, &mut table).await?;
    // Not far above the load.
    let near = (sizes.flow_tasks + NEAR) as i64;
    let all = [Scope::Global, Scope::Venture, Scope::Stage];
    let rules = all.map(|scope| Rule { max_pending: Some(near), ..rule(scope, near) }).to_vec();
    let words = format!("global, venture and stage at {}: not binding", whole(near as f64));
    cost(engine, sizes, &few, (rules, &words), UNBOUND, &mut table).await?;
    // They want 16,000 at once, and may have 10,000.
    let many = Load {
        name: "1,000 ventures, 4 stages, 16 callers that claim 1,000",
        ventures: 1_000,
        callers: 16,
        batch: 1_000,
    };
    let rules = vec![rule(Scope::Global, HIGH), rule(Scope::Venture, 10)];
    let words = "global at 1,000,000, venture at 10: binding";
    cost(engine, sizes, &many, (rules, words), BOUND, &mut table).await?;
    table.print("Limits");
    fairness(engine, sizes).await
}

struct Load {
    name: &'static str,
    ventures: usize,
    callers: usize,
    /// How many tasks each caller wants to hold at once.
    batch: usize,
}

fn rule(scope: Scope, max: i64) -> Rule {
    Rule { scope, name: None, max_active: Some(max), max_pending: Some(HIGH), rate: None }
}

async fn cost(
    engine: &Engine,
    sizes: &Sizes,
    load: &Load,
    (rules, words): (Vec<Rule>, &str),
    target: f64,
    table: &mut Table,
) -> Result<()> {
    let place = Place::create(engine).await?;
    let tasks = place.open()?;
    lifecycle(&tasks, load, sizes.flow_tasks / 10).await?;
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for number in 0..sizes.rounds {
        place.vacuum().await?;
        for side in [number % 2, (number + 1) % 2] {
            let limits = (side == 1).then(|| Limits::new(rules.clone()));
            tasks.bind(limits);
            let rate = lifecycle(&tasks, load, sizes.flow_tasks).await?;
            if side == 1 { with.push(rate) } else { without.push(rate) }
        }
    }
    tasks.store().close();
    place.remove().await?;
    let (without, with) = (median(without), median(with));
    table.row(vec![load.name.into(), "none".into(), whole(without), String::new(), String::new()]);
    let share = with / without;
    let verdict = met(share >= target, &format!(">= {}", percent(target)));
    table.row(vec![load.name.into(), words.into(), whole(with), percent(share), verdict]);
    Ok(())
}

/// Submits, claims and completes everything, all callers at once; tasks a second.
async fn lifecycle(tasks: &Tasks, load: &Load, count: usize) -> Result<f64> {
    let mut all = load::tasks(count, None)?;
    for (n, task) in all.iter_mut().enumerate() {
        task.venture = Some(format!("venture {}", n % load.ventures));
        task.stage = Some(format!("stage {}", n % 4));
    }
    let count = all.len();
    let done = Arc::new(AtomicUsize::new(0));
    let started = Instant::now();
    let mut callers = JoinSet::new();
    for share in all.chunks(count.div_ceil(load.callers)) {
        let (tasks, share) = (tasks.clone(), share.to_vec());
        callers.spawn(async move { submit(&tasks, share).await });
    }
    while let Some(submitted) = callers.join_next().await {
        submitted??;
    }
    for caller in 0..load.callers {
        let (tasks, done, batch) = (tasks.clone(), Arc::clone(&done), load.batch);
        callers.spawn(async move {
            while done.load(Ordering::Relaxed) < count {
                let held = tasks.claim(claim(caller, batch)).await?;
                if held.is_empty() {
                    tokio::task::yield_now().await;
                }
                done.fetch_add(complete(&tasks, held).await?, Ordering::Relaxed);
            }
            Ok(())
        });
    }
    while let Some(worked) = callers.join_next().await {
        worked??;
    }
    Ok(count as f64 / started.elapsed().as_secs_f64())
}

async fn submit(tasks: &Tasks, mut share: Vec<NewTask>) -> Result<()> {
    while !share.is_empty() {
        let rest = share.split_off(share.len().min(100));
        for outcome in tasks.submit(share).await {
            outcome.map_err(|refused| format!("{refused:?}"))?;
        }
        share = rest;
    }
    Ok(())
}

fn claim(caller: usize, max: usize) -> Claim {
    Claim {
        claim: ClaimId(Uuid::now_v7()),
        may_repeat: false,
        session: format!("caller {caller}"),
        worker_type: None,
        queues: vec![QUEUE.into()],
        profiles: vec![Profile::Job],
        serves: Default::default(),
        max,
        lease_ms: None,
        start: true,
    }
}

async fn complete(tasks: &Tasks, held: Vec<Assignment>) -> Result<usize> {
    let finish = |assignment: &Assignment| Finish {
        task: assignment.task.id,
        lease: assignment.lease_id,
        how: Finishing::Complete(Some(RESULT.into())),
        usage: None,
        actor: ACTOR.into(),
        reason: None,
        change: ChangeId(Uuid::now_v7()),
    };
    for outcome in tasks.finish(held.iter().map(finish).collect()).await {
        outcome.map_err(|refused| format!("{refused:?}"))?;
    }
    Ok(held.len())
}

/// One venture has a long backlog beside ninety-nine with ten tasks each, with limits that do not
/// bind; an urgent task of the first comes while all of them wait.
async fn fairness(engine: &Engine, sizes: &Sizes) -> Result<()> {
    let mut table = Table::new(&["99 x 10 other tasks come", "what", "figure", "target"]);
    let backlog = whole(sizes.flow_backlog as f64);
    for later in [false, true] {
        let (share, claims) = turns(engine, sizes.flow_backlog, later).await?;
        let when = if later { "after the backlog was begun" } else { "at the same time" };
        let what = format!("of the backlog of {backlog}, served before the others were finished");
        let met_share = met(share < 0.05, "< 5 %");
        table.row(vec![when.into(), what, percent(share), met_share]);
        let what = "claims until an urgent task of the backlog begins".into();
        let met_claims = met(claims <= 2 * SLOTS, &format!("<= {}", 2 * SLOTS));
        table.row(vec![when.into(), what, claims.to_string(), met_claims]);
    }
    table.print("Fairness");
    Ok(())
}

/// Which part of the backlog was served before the others were finished, and how many claims it
/// took until its urgent task began.
async fn turns(engine: &Engine, backlog: usize, later: bool) -> Result<(f64, usize)> {
    let place = Place::create(engine).await?;
    let tasks = place.open()?;
    let rules = [rule(Scope::Global, HIGH), rule(Scope::Venture, HIGH), rule(Scope::Stage, HIGH)];
    tasks.bind(Some(Limits::new(rules)));
    submit(&tasks, of("big", backlog)?).await?;
    if later {
        complete(&tasks, tasks.claim(claim(0, SLOTS)).await?).await?;
    }
    for n in 0..99 {
        submit(&tasks, of(&format!("small {n}"), 10)?).await?;
    }
    let (mut big, mut small) = (0, 0);
    let (mut urgent, mut claims, mut begun) = (None, 0, None);
    while small < 990 {
        // A third of the way: all of them still wait.
        if small == 330 && urgent.is_none() {
            let mut new = of("big", 1)?;
            new[0].priority = 10;
            urgent = Some(new[0].id);
            submit(&tasks, new).await?;
        }
        let held = tasks.claim(claim(0, 1)).await?;
        claims += usize::from(urgent.is_some() && begun.is_none());
        for assignment in &held {
            if Some(assignment.task.id) == urgent {
                begun = Some(claims);
            } else if assignment.task.venture.as_deref() == Some("big") {
                big += 1;
            } else {
                small += 1;
            }
        }
        if complete(&tasks, held).await? == 0 {
            return Err("tasks wait and none was handed out".into());
        }
    }
    tasks.store().close();
    place.remove().await?;
    Ok((big as f64 / backlog as f64, begun.unwrap_or(usize::MAX)))
}

fn of(venture: &str, count: usize) -> Result<Vec<NewTask>> {
    let mut tasks = load::tasks(count, None)?;
    tasks.iter_mut().for_each(|task| task.venture = Some(venture.into()));
    Ok(tasks)
}
