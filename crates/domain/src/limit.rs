//! How much work may run and wait at once: limits per scope, slots per worker type, pool sizes.
//!
//! Invariant: a reached active limit queues and never refuses; a reached pending limit refuses
//! submits only. What comes back to `pending` is never refused, because it was accepted before.
//! Absent: counting and locking. The store counts what the database holds, under the locks of the
//! scopes that bind, in the order of [`Key`].

mod drain;
mod pause;
mod pressure;
mod rate;
#[cfg(test)]
mod tests;

use crate::refusal::Refusal;
use crate::state::named;
use crate::task::NewTask;
use crate::validate::{Errors, MAX_NAME_BYTES, MAX_SLOTS, Result};
pub use drain::{Drain, WINDOW_MS, drained_by_moves};
pub use pause::{Draining, Mode, PAUSABLE, Pause, check_target};
pub use pressure::{
    Backpressure, LONGEST_AWAY_MS, Level, Load, SHORTEST_AWAY_MS, STILL_AWAY_MS, Stop,
    UNKNOWN_AWAY_MS, backpressure, estimated_wait_ms, utilization,
};
pub use rate::{MAX_PERIOD_MS, Rate, period_in_words};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap};

named! {
    /// What a limit counts over. The order is the order in which claims lock.
    Scope {
        /// Everything.
        Global = "global",
        /// The tasks of one portfolio.
        Portfolio = "portfolio",
        /// The tasks of one venture.
        Venture = "venture",
        /// The tasks of one stage.
        Stage = "stage",
        /// The tasks of one agent; a delegation is its callee's unless it names another.
        Agent = "agent",
        /// The tasks of one queue.
        Queue = "queue",
        /// The tasks that one session of a worker type holds. Tasks name no worker type, so it
        /// bears on sessions alone: it has no pending tasks and no rate.
        WorkerType = "worker_type",
    }
}

/// Active tasks (claimed and running) that a new rule allows unless it says otherwise.
pub const NEW_RULE_ACTIVE: i64 = 10;
/// Pending tasks (pending and retry) that a new rule allows unless it says otherwise.
pub const NEW_RULE_PENDING: i64 = 50;
/// The largest limit; whoever means "no limit" leaves it out.
pub const MAX_LIMIT: i64 = 1_000_000_000;

/// A limit as an operator sets it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// What it counts over.
    pub scope: Scope,
    /// The one venture, queue… it is for. Without a name it is for each one of the scope that has
    /// no rule of its own.
    #[serde(default)]
    pub name: Option<String>,
    /// The most active tasks; `null` is no limit, 0 a pause.
    #[serde(default = "new_rule_active")]
    pub max_active: Option<i64>,
    /// The most pending tasks; `null` is no limit.
    #[serde(default = "new_rule_pending")]
    pub max_pending: Option<i64>,
    /// The most tasks handed out in a period; `null` is no limit.
    #[serde(default)]
    pub rate: Option<Rate>,
}

/// What is said of a rule, apart from what it is for; `null` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)] // Named like the fields of `Rule`.
pub struct Maxima {
    #[serde(default, deserialize_with = "given")]
    pub max_active: Option<Option<i64>>,
    #[serde(default, deserialize_with = "given")]
    pub max_pending: Option<Option<i64>>,
    #[serde(default, deserialize_with = "given")]
    pub rate: Option<Option<Rate>>,
}

fn given<'de, D, T>(input: D) -> Result<Option<Option<T>>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de>,
{
    Option::deserialize(input).map(Some)
}

impl Maxima {
    /// The rule for each one of a scope, or for the one of that name: what is left out is that of a
    /// new rule. Whoever says a rate and nothing else wants no other limit because of it: then what
    /// is left out is as in the rule for `each` one of the scope, which holds until now, or open.
    pub fn of(self, scope: Scope, name: Option<String>, each: Option<&Rule>) -> Rule {
        let only_rate = self.rate.flatten().is_some()
            && self.max_active.is_none()
            && self.max_pending.is_none();
        let (active, pending) = match each.filter(|_| name.is_some()) {
            _ if !only_rate => {
                (new_rule_active(), new_rule_pending().filter(|_| scope != Scope::WorkerType))
            }
            Some(each) => (each.max_active, each.max_pending),
            None => (None, None),
        };
        Rule {
            scope,
            name,
            max_active: self.max_active.unwrap_or(active),
            max_pending: self.max_pending.unwrap_or(pending),
            rate: self.rate.flatten(),
        }
    }

    /// The same where there may be a rule: what is left out stays as it was.
    pub fn over(
        self,
        before: Option<&Rule>,
        scope: Scope,
        name: Option<String>,
        each: Option<&Rule>,
    ) -> Rule {
        let Some(before) = before else { return self.of(scope, name, each) };
        Rule {
            scope,
            name,
            max_active: self.max_active.unwrap_or(before.max_active),
            max_pending: self.max_pending.unwrap_or(before.max_pending),
            rate: self.rate.unwrap_or(before.rate),
        }
    }
}

fn new_rule_active() -> Option<i64> {
    Some(NEW_RULE_ACTIVE)
}

fn new_rule_pending() -> Option<i64> {
    Some(NEW_RULE_PENDING)
}

impl Rule {
    const fn each(scope: Scope, max_active: Option<i64>, max_pending: Option<i64>) -> Rule {
        Rule { scope, name: None, max_active, max_pending, rate: None }
    }

    /// Refuses a rule that makes no sense.
    pub fn validate(&self) -> Result<()> {
        let mut errors = Errors::default();
        match (&self.name, self.scope) {
            (Some(_), Scope::Global) => {
                errors.add("/name", "not_allowed", "the global limit has no name");
            }
            (Some(name), _) => errors.address("/name", name, MAX_NAME_BYTES),
            (None, _) => {}
        }
        for (pointer, max) in [("/max_active", self.max_active), ("/max_pending", self.max_pending)]
        {
            if let Some(max) = max {
                errors.range(pointer, max, 0, MAX_LIMIT);
            }
        }
        if self.scope == Scope::WorkerType {
            let bears = "a worker type limits what a session holds, and nothing else";
            let wrong =
                [("/max_pending", self.max_pending.is_some()), ("/rate", self.rate.is_some())];
            for (pointer, _) in wrong.into_iter().filter(|(_, is_given)| *is_given) {
                errors.add(pointer, "not_allowed", bears);
            }
        }
        if let Some(rate) = self.rate {
            errors.range("/rate/count", rate.count, 1, MAX_LIMIT);
            errors.range("/rate/period_ms", rate.period_ms, 1, MAX_PERIOD_MS);
        }
        errors.into_result()
    }
}

/// The rules of a fresh installation that are for all, or for each one of a scope.
pub const DEFAULT_RULES: [Rule; 3] = [
    Rule::each(Scope::Global, Some(200), Some(1_000)),
    Rule::each(Scope::Venture, Some(10), Some(50)),
    Rule::each(Scope::Stage, Some(20), None),
];

/// Its rules for worker types: how many tasks one session of the type holds.
pub const DEFAULT_TYPES: [(&str, i64); 3] =
    [("ceo_handler", 5), ("vp_handler", 10), ("crew_executor", 1)];

/// All rules of a fresh installation.
pub fn default_rules() -> impl Iterator<Item = Rule> {
    let types = DEFAULT_TYPES.map(|(name, most)| Rule {
        name: Some(name.to_owned()),
        ..Rule::each(Scope::WorkerType, Some(most), None)
    });
    DEFAULT_RULES.into_iter().chain(types)
}

/// One thing that is counted, such as the venture `acme`. Locks are taken in this order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// What kind of thing.
    pub scope: Scope,
    /// Which one; empty for [`Scope::Global`].
    pub name: String,
}

impl Key {
    /// How the database writes it: `venture:acme`, `global:`.
    pub fn text(&self) -> String {
        format!("{}:{}", self.scope, self.name)
    }

    /// What the database wrote.
    pub fn from_text(text: &str) -> Option<Key> {
        let (scope, name) = text.split_once(':')?;
        Some(Key { scope: scope.parse().ok()?, name: name.to_owned() })
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.scope {
            Scope::Global => f.write_str("all work"),
            scope => write!(f, "{scope} `{}`", self.name),
        }
    }
}

/// The scopes that a task names.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)] // Named like the fields of a task.
pub struct Names<'a> {
    pub portfolio: Option<&'a str>,
    pub venture: Option<&'a str>,
    pub stage: Option<&'a str>,
    pub agent: Option<&'a str>,
    pub queue: Option<&'a str>,
}

impl<'a> Names<'a> {
    /// What the task says of this scope. Every task is part of the whole.
    fn of(&self, scope: Scope) -> Option<&'a str> {
        match scope {
            Scope::Global => Some(""),
            Scope::Portfolio => self.portfolio,
            Scope::Venture => self.venture,
            Scope::Stage => self.stage,
            Scope::Agent => self.agent,
            Scope::Queue => self.queue,
            Scope::WorkerType => None,
        }
    }
}

impl<'a> From<&'a NewTask> for Names<'a> {
    fn from(task: &'a NewTask) -> Names<'a> {
        Names {
            portfolio: task.portfolio.as_deref(),
            venture: task.venture.as_deref(),
            stage: task.stage.as_deref(),
            agent: task.agent.as_deref().or(task.callee.as_deref()),
            queue: Some(&task.queue),
        }
    }
}

/// A limit as it binds one task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    /// What is counted.
    pub key: Key,
    /// The most active tasks.
    pub max_active: Option<i64>,
    /// The most pending tasks.
    pub max_pending: Option<i64>,
    /// The most tasks handed out in a period.
    pub rate: Option<Rate>,
    /// What people have stopped, whatever the limits are.
    pub pause: Option<Pause>,
}

impl Bound {
    /// Whether submits have to ask.
    pub fn binds_submits(&self) -> bool {
        self.max_pending.is_some() || self.is(Mode::Drain)
    }

    /// Whether nothing of it begins, whatever is held: no count is needed to know.
    pub fn lets_nothing_begin(&self) -> bool {
        self.is(Mode::Pause) || self.max_active == Some(0)
    }

    /// Whether claims have to ask.
    pub fn binds_claims(&self) -> bool {
        self.max_active.is_some() || self.rate.is_some() || self.is(Mode::Pause)
    }

    fn is(&self, mode: Mode) -> bool {
        self.pause.as_ref().is_some_and(|pause| pause.mode == mode)
    }
}

/// The rules in force, ready to be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    rules: HashMap<Scope, BTreeMap<Option<String>, Rule>>,
    pauses: HashMap<Key, Pause>,
}

impl Default for Limits {
    fn default() -> Self {
        Limits::new(default_rules())
    }
}

impl Limits {
    /// Of two rules for the same thing the later one counts.
    pub fn new(rules: impl IntoIterator<Item = Rule>) -> Limits {
        let mut limits = Limits { rules: HashMap::new(), pauses: HashMap::new() };
        for rule in rules {
            let scope = limits.rules.entry(rule.scope).or_default();
            scope.insert(rule.name.clone(), rule);
        }
        limits
    }

    /// The same, with what people have stopped.
    pub fn with_pauses(mut self, pauses: impl IntoIterator<Item = Pause>) -> Limits {
        self.pauses.extend(pauses.into_iter().map(|pause| (pause.key(), pause)));
        self
    }

    /// What binds a task, in the order of the locks: for each scope that it names, the rule for
    /// that name, or else the rule for each one of the scope; and the pause of that name.
    pub fn binding(&self, names: &Names<'_>) -> Vec<Bound> {
        let bound = |&scope: &Scope| {
            let key = Key { scope, name: names.of(scope)?.to_owned() };
            let (rule, pause) = (self.rule(&key), self.pauses.get(&key).cloned());
            (rule.is_some() || pause.is_some()).then(|| Bound {
                key,
                max_active: rule.and_then(|rule| rule.max_active),
                max_pending: rule.and_then(|rule| rule.max_pending),
                rate: rule.and_then(|rule| rule.rate),
                pause,
            })
        };
        Scope::ALL.iter().filter_map(bound).collect()
    }

    /// What is held of those that a rule is for: who holds most first.
    pub fn held_by<'c>(&self, rule: &Rule, counts: &'c Counts) -> Vec<(&'c Key, Count)> {
        let is_meant = |key: &Key| {
            let in_force = self.rule(key).map(|rule| (rule.scope, &rule.name));
            in_force == Some((rule.scope, &rule.name))
        };
        let held = counts.iter().filter(|(key, _)| is_meant(key));
        let mut held: Vec<_> = held.map(|(key, count)| (key, *count)).collect();
        held.sort_by_key(|(key, count)| (-count.active, -count.pending, *key));
        held
    }

    /// The rule that is in force for this key.
    pub fn rule(&self, key: &Key) -> Option<&Rule> {
        let rules = self.rules.get(&key.scope)?;
        rules.get(&Some(key.name.clone())).or(rules.get(&None))
    }

    /// Whether nothing of this key begins, whatever is held: it is paused, or may have no active
    /// task, or that is so of everything.
    pub fn is_stopped(&self, key: &Key) -> bool {
        let all = Key { scope: Scope::Global, name: String::new() };
        [&all, key].into_iter().any(|key| {
            let pause = self.pauses.get(key);
            pause.is_some_and(|pause| pause.mode == Mode::Pause)
                || self.rule(key).is_some_and(|rule| rule.max_active == Some(0))
        })
    }

    /// The keys that are named, apart from everything, of which nothing begins, whatever is held.
    pub fn stopped(&self) -> Vec<Key> {
        let paused = self.pauses.values().filter(|pause| pause.mode == Mode::Pause);
        let paused = paused.map(Pause::key);
        let rules = self.rules.values().flat_map(BTreeMap::values);
        let closed = rules
            .filter(|rule| rule.max_active == Some(0))
            .filter_map(|rule| rule.name.clone().map(|name| Key { scope: rule.scope, name }));
        let is_apart = |key: &Key| ![Scope::Global, Scope::WorkerType].contains(&key.scope);
        paused.chain(closed).filter(is_apart).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Whether nothing begins of each one of some scope that has no rule of its own: which ones
    /// those are only the counts can tell.
    pub fn closes_each(&self) -> bool {
        let each = self.rules.values().filter_map(|rules| rules.get(&None));
        let mut closed = each.filter(|rule| rule.max_active == Some(0));
        closed.any(|rule| ![Scope::Global, Scope::WorkerType].contains(&rule.scope))
    }

    /// The keys of these, apart from everything, that may have no active task.
    pub fn closed<'k>(&self, keys: impl IntoIterator<Item = &'k Key>) -> Vec<Key> {
        let is_closed = |key: &&Key| {
            ![Scope::Global, Scope::WorkerType].contains(&key.scope)
                && self.rule(key).is_some_and(|rule| rule.max_active == Some(0))
        };
        keys.into_iter().filter(is_closed).cloned().collect()
    }

    /// The most tasks that a session of this type holds at once, if a rule says so.
    pub fn most_held(&self, worker_type: Option<&str>) -> Option<i64> {
        let key = Key { scope: Scope::WorkerType, name: worker_type?.to_owned() };
        self.rule(&key)?.max_active
    }

    /// How many slots a session has: what it asks for, clamped by its type. Without a wish it gets
    /// all that its type allows, and one if no rule is for its type.
    pub fn slots(&self, worker_type: Option<&str>, wanted: Option<i32>) -> i32 {
        let of_type =
            self.most_held(worker_type).map(|most| most.clamp(1, MAX_SLOTS.into()) as i32);
        let wanted = wanted.or(of_type).unwrap_or(1);
        wanted.clamp(1, of_type.unwrap_or(MAX_SLOTS))
    }
}

/// What the database holds of one key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Claimed and running tasks.
    pub active: i64,
    /// Pending and retry tasks.
    pub pending: i64,
    /// Tasks handed out in the period that runs, if the key has a rate.
    pub taken: i64,
}

/// What the database holds, by key; a key that is missing holds nothing.
pub type Counts = BTreeMap<Key, Count>;

/// How many more fit under a limit. Never negative: a lowered limit may already be exceeded.
pub fn room(limit: i64, held: i64) -> i64 {
    limit.saturating_sub(held.max(0)).max(0)
}

/// How many of `wanted` tasks, all bound alike, may become active.
pub fn admit(wanted: i64, bounds: &[Bound], counts: &Counts) -> i64 {
    let rooms = bounds.iter().flat_map(|bound| {
        let held = held(counts, &bound.key);
        let active = bound.max_active.map(|max| room(max, held.active));
        let rate = bound.rate.map(|rate| room(rate.count, held.taken));
        [active, rate, bound.is(Mode::Pause).then_some(0)]
    });
    rooms.flatten().fold(wanted.max(0), i64::min)
}

/// So many more tasks of these bounds become active.
pub fn occupy(many: i64, bounds: &[Bound], counts: &mut Counts) {
    for bound in bounds {
        let count = counts.entry(bound.key.clone()).or_default();
        count.active += many;
        count.taken += many;
    }
}

/// Which candidates may become active, given that those before them do. One that does not fit
/// does not hold up the next, which may be bound by other rules.
pub fn admit_each(candidates: &[Vec<Bound>], counts: &Counts) -> Vec<bool> {
    let mut counts = counts.clone();
    let mut admit_next = |bounds: &Vec<Bound>| {
        let fits = admit(1, bounds, &counts) == 1;
        if fits {
            occupy(1, bounds, &mut counts);
        }
        fits
    };
    candidates.iter().map(&mut admit_next).collect()
}

fn held(counts: &Counts, key: &Key) -> Count {
    counts.get(key).copied().unwrap_or_default()
}

/// A pending limit is reached: the submit is refused, and nothing was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueFull {
    /// Which limit.
    pub key: Key,
    /// Its value.
    pub limit: i64,
    /// How many tasks were pending.
    pub held: i64,
    /// How many were to come in together.
    pub adding: i64,
}

impl std::error::Error for QueueFull {}

impl std::fmt::Display for QueueFull {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let QueueFull { key, limit, held, adding } = self;
        let are = if *limit == 1 { "is" } else { "are" };
        if !self.may_fit_later() {
            return write!(
                f,
                "the batch has {adding} tasks of {key} and at most {limit} {are} allowed: submit \
                 fewer at once"
            );
        }
        write!(f, "{key} has {held} pending {}", if *held == 1 { "task" } else { "tasks" })?;
        match adding {
            ..=1 => write!(f, " and at most {limit} {are} allowed; submit again later"),
            _ => write!(
                f,
                ", the batch has {adding} more, and at most {limit} {are} allowed; submit again \
                 later, or fewer at once"
            ),
        }
    }
}

impl QueueFull {
    /// The stable code that clients rely on; documented in docs/errors.md.
    pub const fn code(&self) -> &'static str {
        "queue_full"
    }

    /// The same of a batch that is taken as a whole or not at all: `own` of its tasks were counted
    /// as if they had come in, and `adding` of them would have to.
    pub fn of_batch(self, own: i64, adding: i64) -> QueueFull {
        QueueFull { held: self.held - own, adding, ..self }
    }

    /// Whether the same may be taken when others are done. More at once than the limit allows never
    /// is. A limit of 0 is what an operator closes with for a while.
    pub fn may_fit_later(&self) -> bool {
        self.adding <= self.limit || self.limit == 0
    }
}

/// Whether `adding` more tasks, all bound alike, may be submitted together. What drains is said
/// first: waiting for room would not help.
pub fn accept(adding: i64, bounds: &[Bound], counts: &Counts) -> Result<(), Refusal> {
    if let Some(bound) = bounds.iter().find(|bound| bound.is(Mode::Drain)) {
        let reason = bound.pause.as_ref().and_then(|pause| pause.reason.clone());
        return Err(Draining { key: bound.key.clone(), reason }.into());
    }
    for bound in bounds {
        let pending = held(counts, &bound.key).pending;
        if let Some(limit) = bound.max_pending
            && room(limit, pending) < adding
        {
            return Err(QueueFull { key: bound.key.clone(), limit, held: pending, adding }.into());
        }
    }
    Ok(())
}

/// How many handlers of one role a node keeps ready, and how many it starts at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolSize {
    /// The role of the agents.
    pub role: &'static str,
    /// Kept ready.
    pub min: usize,
    /// Started at most.
    pub max: usize,
}

/// The sizes of the handler pools unless configured otherwise.
pub const POOL_SIZES: [PoolSize; 3] = [
    PoolSize { role: "ceo", min: 3, max: 5 },
    PoolSize { role: "vp", min: 5, max: 10 },
    PoolSize { role: "crew", min: 10, max: 50 },
];
