//! Why a task does not run: the facts, read in one snapshot; the domain says what follows. `line`
//! has who would take it and who stands before it.
//!
//! Invariant: nothing is locked, so whoever asks keeps nobody waiting. What could be long (who
//! stands before it, who holds a limit's slots, how fast its queue moves) is looked at within
//! bounds.

mod line;

use super::Tasks;
use super::count;
use super::room;
use crate::approval::{self, Vote};
use crate::error::{Error, Result};
use crate::limit;
use crate::session;
use crate::statement;
use crate::step;
use crate::tx::{Call, Tx};
use crate::value::Row;
use crate::wait;
use std::collections::BTreeMap;
use windlass_domain::id::{ApprovalId, TaskId};
use windlass_domain::limit::{Count, Counts, Key, Limits, Mode, Names, Scope};
use windlass_domain::pins::Pins;
use windlass_domain::state::State;
use windlass_domain::time::Timestamp;
use windlass_domain::wait::WaitingFor;
use windlass_domain::why::{
    self, Awaited, Facts, Holder, Line, MOST_COUNTED, MOST_HOLDERS, Reason, Slots, Stop, Voices,
    Voter,
};

crate::statement!(shared WHY, "task/why");
crate::statement!(shared HOLDERS, "limit/holders");
crate::statement!(RUNS, "history/runs");
/// All of the above.
pub(super) static STATEMENTS: &[&statement::Statement] = &[&WHY, &HOLDERS, &RUNS];
pub(super) use line::STATEMENTS as LINE_STATEMENTS;

/// How many held tasks are looked at to find those that hold a limit's slots.
const HOLDER_ROWS: i64 = 1_000;
/// How many transitions are looked at to find runs that ended under a limit…
const RUN_TRANSITIONS: i64 = 2_000;
/// …and how many such runs.
const RUN_ROWS: i64 = 100;

/// Why a task does not run.
#[derive(Clone, Debug, PartialEq)]
pub struct Why {
    /// Which task.
    pub task: TaskId,
    /// Where it stands.
    pub status: State,
    /// When this was so.
    pub at: Timestamp,
    /// Every reason, the most important first.
    pub reasons: Vec<Reason>,
}

impl Tasks {
    /// Why a task does not run; `None`: there is no such task.
    pub async fn why(&self, id: TaskId) -> Result<Option<Why>> {
        let body = move |tx: &mut dyn Tx| {
            let Some(facts) = facts(tx, id)? else { return Ok(None) };
            let reasons = why::why(&facts);
            Ok(Some(Why { task: id, status: facts.status, at: facts.now, reasons }))
        };
        self.store.read("why", body).await
    }
}

/// What a task names: whom the limits count it for.
struct Belongs {
    queue: String,
    portfolio: Option<String>,
    venture: Option<String>,
    stage: Option<String>,
    agent: Option<String>,
}

impl Belongs {
    fn names(&self) -> Names<'_> {
        Names {
            portfolio: self.portfolio.as_deref(),
            venture: self.venture.as_deref(),
            stage: self.stage.as_deref(),
            agent: self.agent.as_deref(),
            queue: Some(&self.queue),
        }
    }
}

fn facts(tx: &mut dyn Tx, id: TaskId) -> Result<Option<Facts>> {
    let rows = tx.run(Call::one(&WHY, vec![id.0.into()]))?;
    let Some(row) = rows.first() else { return Ok(None) };
    let now = tx.now()?;
    let mut facts = read(row, now)?;
    match facts.status {
        status if status.is_held() => facts.holder = holder(tx, id, row, 10)?,
        State::Waiting | State::WaitingForApproval => facts.awaited = awaited(tx, id, now)?,
        status if status.is_claimable() => {
            let text = |at| row.maybe(at, |r, i| r.text(i).map(str::to_owned));
            let belongs = Belongs {
                queue: facts.queue.clone(),
                portfolio: text(16)?,
                venture: text(17)?,
                stage: text(18)?,
                agent: text(19)?,
            };
            count::prefer_indexes(tx)?;
            let limits = add_limits(tx, &mut facts, &belongs)?;
            let place = line::Place { lane: row.int(14)?, order_key: row.int(15)?, task: id };
            line::add(tx, &mut facts, &limits, place)?;
        }
        _ => {}
    }
    Ok(Some(facts))
}

fn read(row: &Row, now: Timestamp) -> Result<Facts> {
    let text = |at| row.maybe(at, |r, i| r.text(i).map(str::to_owned));
    let damaged = |e: serde_json::Error| Error::Corrupt(format!("the error of a task: {e}"));
    let error = row.maybe(7, Row::json)?;
    Ok(Facts {
        now,
        status: row.named(0)?,
        profile: row.named(1)?,
        queue: row.text(2)?.to_owned(),
        run_at: row.time(3)?,
        attempt: row.int32(4)?,
        retry_count: row.int32(5)?,
        max_retries: row.int32(6)?,
        error: error.map(serde_json::from_value).transpose().map_err(damaged)?,
        caller: text(8)?,
        pins: Pins { llm: text(20)?, model: text(21)?, tier: text(22)? },
        finished_at: row.maybe(9, Row::time)?,
        holder: None,
        lease_expires_at: row.maybe(12, Row::time)?,
        last_heartbeat_at: row.maybe(13, Row::time)?,
        awaited: None,
        stops: Vec::new(),
        bounds: Vec::new(),
        counts: Counts::new(),
        rates_until: BTreeMap::new(),
        holders: BTreeMap::new(),
        slots: BTreeMap::new(),
        sharing: BTreeMap::new(),
        busy: None,
        line: Line::default(),
    })
}

/// Who holds a task: the session and since when stand at `at` and behind it.
fn holder(tx: &mut dyn Tx, task_id: TaskId, row: &Row, at: usize) -> Result<Option<Holder>> {
    let Some(session) = row.maybe(at, Row::text)?.map(str::to_owned) else { return Ok(None) };
    Ok(Some(Holder {
        task_id,
        worker: session::name_of(tx, &session)?,
        since: row.maybe(at + 1, Row::time)?,
        session,
    }))
}

fn awaited(tx: &mut dyn Tx, id: TaskId, now: Timestamp) -> Result<Option<Awaited>> {
    let Some(waiting) = wait::shown(tx, id)? else { return Ok(None) };
    Ok(Some(match waiting {
        WaitingFor::Time { until } => Awaited::Time { until },
        WaitingFor::Signal { name, key, until } => Awaited::Signal { signal: name, key, until },
        WaitingFor::Task { task, until } => {
            let other = wait::other(tx, task)?;
            let status = other.map(|row| row.named(0)).transpose()?;
            Awaited::Task { task_id: task, status, until }
        }
        WaitingFor::Person { step } => {
            let found = step::find(tx, id, step)?;
            Awaited::Person { step_id: step, step: found.map(|step| step.name) }
        }
        WaitingFor::Approval { approval, .. } => {
            let Some(asked) = approval::shown(tx, approval)? else { return Ok(None) };
            Awaited::Approval {
                approval_id: asked.id,
                gate: asked.gate,
                action: asked.action,
                required: asked.required,
                approvals: asked.approvals,
                until: asked.expires_at,
                voices: voices(tx, approval, now)?,
            }
        }
    }))
}

/// Who has answered a question, and who may with a token; more of either than are counted are told
/// as so many.
fn voices(tx: &mut dyn Tx, id: ApprovalId, now: Timestamp) -> Result<Voices> {
    let voter = |vote: Vote| Voter { actor: vote.actor, choice: vote.choice, at: vote.at };
    let voters = approval::votes(tx, id)?.into_iter().map(voter).collect();
    Ok(Voices::new(voters, approval::token_holders(tx, id, now, MOST_COUNTED)?))
}

/// What binds the task, what is held of it, and who has stopped it.
fn add_limits(tx: &mut dyn Tx, facts: &mut Facts, belongs: &Belongs) -> Result<Limits> {
    let set = limit::read(tx)?;
    let limits = set.limits();
    let bounds = limits.binding(&belongs.names());
    facts.stops = set
        .pauses
        .into_iter()
        .filter(|kept| bounds.iter().any(|b| b.pause.is_some() && b.key == kept.pause.key()))
        .map(|kept| Stop {
            key: kept.pause.key(),
            drains: kept.pause.mode == Mode::Drain,
            by: kept.by,
            since: kept.since,
            reason: kept.pause.reason,
        })
        .collect();
    let queue = Key { scope: Scope::Queue, name: belongs.queue.clone() };
    let mut keys: Vec<String> = bounds.iter().map(|bound| bound.key.text()).collect();
    keys.extend((!keys.contains(&queue.text())).then(|| queue.text()));
    for row in tx.run(room::held(keys))? {
        let (key, count, began) = room::read(&row)?;
        let rate = bounds.iter().find(|bound| bound.key == key).and_then(|bound| bound.rate);
        // A period that is over counts for nothing.
        let until = rate.map(|rate| began.plus_ms(rate.period_ms)).filter(|at| *at > facts.now);
        let taken = if until.is_some() { count.taken } else { 0 };
        facts.rates_until.extend(until.map(|at| (key.clone(), at)));
        facts.counts.insert(key, Count { taken, ..count });
    }
    for bound in bounds.iter().filter(|bound| why::is_full(bound, &facts.counts)) {
        let (holders, slots) = holders(tx, &bound.key, facts.now)?;
        facts.holders.insert(bound.key.clone(), holders);
        facts.slots.insert(bound.key.clone(), slots);
    }
    facts.line.pending = facts.counts.get(&queue).map_or(0, |count| count.pending);
    facts.bounds = bounds;
    Ok(limits)
}

/// Some of those who hold a limit's slots, and how long slots are held.
fn holders(tx: &mut dyn Tx, key: &Key, now: Timestamp) -> Result<(Vec<Holder>, Slots)> {
    let (scope, name) = (key.scope.as_str(), key.name.as_str());
    let rows = tx.run(Call::one(&HOLDERS, vec![scope.into(), name.into(), HOLDER_ROWS.into()]))?;
    let mut found = Vec::new();
    for row in rows.iter().take(MOST_HOLDERS as usize) {
        found.extend(holder(tx, TaskId(row.uuid(0)?), row, 1)?);
    }
    let since = rows.iter().map(|row| row.maybe(2, Row::time));
    let since = since.collect::<Result<Vec<_>>>()?.into_iter().flatten();
    // Clocks of two transactions may differ by a little.
    let held_ms = since.map(|since| now.since_ms(since).max(0)).collect();
    let params = [scope.into(), name.into(), RUN_TRANSITIONS.into(), RUN_ROWS.into()];
    let ended = tx.run(Call::one(&RUNS, params.to_vec()))?;
    let run = |row: &Row| Ok(row.time(1)?.since_ms(row.time(0)?).max(0));
    let runs = ended.iter().map(run).collect::<Result<Vec<i64>>>()?;
    let run_ms = (!runs.is_empty()).then(|| runs.iter().sum::<i64>() / runs.len() as i64);
    Ok((found, Slots { held_ms, run_ms }))
}
