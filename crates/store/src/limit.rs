//! Limits and pauses as people set them, and what is held of them.
//!
//! Invariant: every change is audited in its own transaction, with what was there before, and makes
//! the version higher: whoever has read everything under one version need not read it again while
//! the version stands.
//! Absent: enforcement. Claims and submits enforce what [`crate::task::Tasks::bind`] was given.

use crate::audit;
use crate::error::{Error, Result};
use crate::statement;
use crate::store::Store;
use crate::tx::{Call, Tx};
use crate::value::{Row, Value};
use serde_json::{Value as Json, json};
use windlass_domain::limit::{Count, Counts, Key, Limits, Maxima, Pause, Rate, Rule, Scope};
use windlass_domain::time::Timestamp;

statement!(shared CHANGE, "limit/change");
statement!(shared VERSION, "limit/version");
statement!(shared RULES, "limit/rules");
statement!(shared RULE, "limit/rule");
statement!(shared PUT_RULE, "limit/put_rule");
statement!(shared DELETE_RULE, "limit/delete_rule");
statement!(shared PAUSES, "limit/pauses");
statement!(shared PAUSE, "limit/pause");
statement!(shared PUT_PAUSE, "limit/put_pause");
statement!(shared DELETE_PAUSE, "limit/delete_pause");
statement!(shared USE, "limit/use");
statement!(shared USE_OF_TYPES, "limit/use_of_types");
statement!(COUNT, "limit/count");

/// All of the above.
pub(crate) static STATEMENTS: &[&statement::Statement] = &[
    &CHANGE,
    &VERSION,
    &RULES,
    &RULE,
    &PUT_RULE,
    &DELETE_RULE,
    &PAUSES,
    &PAUSE,
    &PUT_PAUSE,
    &DELETE_PAUSE,
    &USE,
    &USE_OF_TYPES,
    &COUNT,
];

/// A rule as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptRule {
    /// The rule.
    pub rule: Rule,
    /// Since when it is as it is.
    pub updated_at: Timestamp,
    /// Who made it so.
    pub updated_by: String,
}

/// A pause as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptPause {
    /// The pause.
    pub pause: Pause,
    /// Since when it is as it is.
    pub since: Timestamp,
    /// Who made it so.
    pub by: String,
}

/// Everything that people have set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    /// At least as much is in here as this version stands for.
    pub version: i64,
    /// In the order of their scopes and names.
    pub rules: Vec<KeptRule>,
    /// Likewise.
    pub pauses: Vec<KeptPause>,
}

impl Flow {
    /// What of it is to be enforced.
    pub fn limits(&self) -> Limits {
        Limits::new(self.rules.iter().map(|kept| kept.rule.clone()))
            .with_pauses(self.pauses.iter().map(|kept| kept.pause.clone()))
    }
}

/// The repository of rules and pauses; cheap to clone.
#[derive(Clone)]
pub struct LimitRules {
    store: Store,
}

impl LimitRules {
    /// The rules and pauses of one database.
    pub fn new(store: Store) -> LimitRules {
        LimitRules { store }
    }

    /// What the newest change is called.
    pub async fn version(&self) -> Result<i64> {
        self.store.read("limit_version", version).await
    }

    /// Everything that people have set.
    pub async fn read(&self) -> Result<Flow> {
        self.store.read("limits", read).await
    }

    /// The same, and what is held now of each key that holds anything.
    pub async fn read_with_use(&self) -> Result<(Flow, Counts)> {
        let body = |tx: &mut dyn Tx| {
            let flow = read(tx)?;
            let mut held = in_use(tx)?;
            held.extend(counts(&tx.run(Call::one(&USE_OF_TYPES, Vec::new()))?)?);
            Ok((flow, held))
        };
        self.store.read("limits_use", body).await
    }

    /// Sets a rule. One that says what was said before changes nothing.
    pub async fn put(&self, rule: Rule, actor: &str) -> Result<KeptRule> {
        let (scope, name) = (rule.scope, rule.name.clone());
        self.set(scope, name, move |_, _| rule.clone(), actor).await
    }

    /// Sets all of a rule: what is not said is as in a new one.
    pub async fn replace(
        &self,
        scope: Scope,
        name: Option<String>,
        said: Maxima,
        actor: &str,
    ) -> Result<KeptRule> {
        let own = name.clone();
        self.set(scope, name, move |_, each| said.of(scope, own.clone(), each), actor).await
    }

    /// Changes what is said of a rule and leaves the rest as it stands when it is written, so that
    /// of two who change different things at once neither undoes the other.
    pub async fn amend(
        &self,
        scope: Scope,
        name: Option<String>,
        said: Maxima,
        actor: &str,
    ) -> Result<KeptRule> {
        let own = name.clone();
        let make = move |before: Option<&Rule>, each: Option<&Rule>| {
            said.over(before, scope, own.clone(), each)
        };
        self.set(scope, name, make, actor).await
    }

    /// Makes a rule of what stood there before, and of the rule for each one of the scope.
    async fn set(
        &self,
        scope: Scope,
        name: Option<String>,
        make: impl Fn(Option<&Rule>, Option<&Rule>) -> Rule + Send + 'static,
        actor: &str,
    ) -> Result<KeptRule> {
        let actor = actor.to_owned();
        let body = move |tx: &mut dyn Tx| {
            let place = place(scope, name.as_deref());
            let before = change(tx, &RULE, &place)?.first().map(read_rule).transpose()?;
            let before_rule = before.as_ref().map(|kept| &kept.rule);
            let each = tx.run(Call::one(&RULE, self::place(scope, None)))?;
            let each = each.first().map(read_rule).transpose()?.map(|kept| kept.rule);
            let rule = make(before_rule, each.as_ref());
            if let Some(kept) = before.iter().find(|kept| kept.rule == rule) {
                return Ok(kept.clone());
            }
            let updated_at = tx.now()?;
            let mut params = place;
            params.extend([rule.max_active.into(), rule.max_pending.into()]);
            params.extend([rule.rate.map(|rate| rate.count).into()]);
            params.extend([rule.rate.map(|rate| rate.period_ms).into()]);
            params.extend([updated_at.into(), actor.as_str().into()]);
            tx.run(Call::one(&PUT_RULE, params))?;
            tell(tx, &actor, "limit_set", before_rule, Some(&rule))?;
            Ok(KeptRule { rule, updated_at, updated_by: actor.clone() })
        };
        self.store.write("limit_put", body).await
    }

    /// Removes a rule; what it said, if there was one.
    pub async fn delete(
        &self,
        scope: Scope,
        name: Option<String>,
        actor: &str,
    ) -> Result<Option<KeptRule>> {
        let actor = actor.to_owned();
        let body = move |tx: &mut dyn Tx| {
            let place = place(scope, name.as_deref());
            let before = change(tx, &RULE, &place)?.first().map(read_rule).transpose()?;
            if let Some(kept) = &before {
                tx.run(Call::one(&DELETE_RULE, place))?;
                tell(tx, &actor, "limit_removed", Some(&kept.rule), None)?;
            }
            Ok(before)
        };
        self.store.write("limit_delete", body).await
    }

    /// Stops something. A pause that says what was said before changes nothing.
    pub async fn pause(&self, pause: Pause, actor: &str) -> Result<KeptPause> {
        let actor = actor.to_owned();
        let body = move |tx: &mut dyn Tx| {
            let place = place(pause.scope, pause.name.as_deref());
            let before = change(tx, &PAUSE, &place)?.first().map(read_pause).transpose()?;
            if let Some(kept) = before.iter().find(|kept| kept.pause == pause) {
                return Ok(kept.clone());
            }
            let since = tx.now()?;
            let mut params = place;
            params.extend([pause.mode.as_str().into(), pause.reason.clone().into()]);
            params.extend([since.into(), actor.as_str().into()]);
            tx.run(Call::one(&PUT_PAUSE, params))?;
            tell(tx, &actor, "paused", before.as_ref().map(|kept| &kept.pause), Some(&pause))?;
            Ok(KeptPause { pause: pause.clone(), since, by: actor.clone() })
        };
        self.store.write("pause", body).await
    }

    /// Lets it go on; what had been stopped, if it was.
    pub async fn resume(
        &self,
        scope: Scope,
        name: Option<String>,
        actor: &str,
    ) -> Result<Option<KeptPause>> {
        let actor = actor.to_owned();
        let body = move |tx: &mut dyn Tx| {
            let place = place(scope, name.as_deref());
            let before = change(tx, &PAUSE, &place)?.first().map(read_pause).transpose()?;
            if let Some(kept) = &before {
                tx.run(Call::one(&DELETE_PAUSE, place))?;
                tell(tx, &actor, "resumed", Some(&kept.pause), None)?;
            }
            Ok(before)
        };
        self.store.write("resume", body).await
    }
}

/// What is held of every key that holds anything, without any lock.
pub(crate) fn in_use(tx: &mut dyn Tx) -> Result<Counts> {
    counts(&tx.run(Call::one(&USE, Vec::new()))?)
}

/// What is held of these keys, without any lock.
pub(crate) fn count<'k>(tx: &mut dyn Tx, keys: impl Iterator<Item = &'k Key>) -> Result<Counts> {
    let keys: Vec<String> = keys.map(Key::text).collect();
    if keys.is_empty() {
        return Ok(Counts::new());
    }
    counts(&tx.run(Call::one(&COUNT, vec![keys.into()]))?)
}

fn counts(rows: &[Row]) -> Result<Counts> {
    let count = |row: &Row| {
        let text = row.text(0)?;
        let key = Key::from_text(text);
        let key = key.ok_or_else(|| Error::Corrupt(format!("a limit of {text}")))?;
        Ok((key, Count { active: row.int(1)?, pending: row.int(2)?, taken: 0 }))
    };
    rows.iter().map(count).collect()
}

fn version(tx: &mut dyn Tx) -> Result<i64> {
    let rows = tx.run(Call::one(&VERSION, Vec::new()))?;
    let lost = || Error::Corrupt("limit_version has no row".into());
    rows.first().ok_or_else(lost)?.int(0)
}

/// The version first: what comes after it is at least as new.
pub(crate) fn read(tx: &mut dyn Tx) -> Result<Flow> {
    let version = version(tx)?;
    let rules = tx.run(Call::one(&RULES, Vec::new()))?;
    let pauses = tx.run(Call::one(&PAUSES, Vec::new()))?;
    let mut rules = rules.iter().map(read_rule).collect::<Result<Vec<_>>>()?;
    let mut pauses = pauses.iter().map(read_pause).collect::<Result<Vec<_>>>()?;
    // Here, because databases sort names each in its own way.
    rules.sort_by(|a, b| (a.rule.scope, &a.rule.name).cmp(&(b.rule.scope, &b.rule.name)));
    pauses.sort_by_key(|kept| kept.pause.key());
    Ok(Flow { version, rules, pauses })
}

/// Keeps others from changing anything, and reads what stands at a place.
fn change(tx: &mut dyn Tx, what: &'static statement::Statement, at: &[Value]) -> Result<Vec<Row>> {
    tx.run(Call::one(&CHANGE, Vec::new()))?;
    tx.run(Call::one(what, at.to_vec()))
}

fn place(scope: Scope, name: Option<&str>) -> Vec<Value> {
    vec![scope.as_str().into(), name.unwrap_or_default().into()]
}

fn tell<T: serde::Serialize>(
    tx: &mut dyn Tx,
    actor: &str,
    event: &str,
    before: Option<&T>,
    after: Option<&T>,
) -> Result<()> {
    let told = |value: serde_json::Result<Json>| value.map_err(|e| Error::Data(e.to_string()));
    let (before, after) = (told(serde_json::to_value(before))?, told(serde_json::to_value(after))?);
    audit::write(tx, actor, event, &json!({ "before": before, "after": after }))
}

fn name(row: &Row) -> Result<Option<String>> {
    Ok(Some(row.text(1)?).filter(|name| !name.is_empty()).map(str::to_owned))
}

fn read_rule(row: &Row) -> Result<KeptRule> {
    let (count, period) = (row.maybe(4, Row::int)?, row.maybe(5, Row::int)?);
    let rule = Rule {
        scope: row.named(0)?,
        name: name(row)?,
        max_active: row.maybe(2, Row::int)?,
        max_pending: row.maybe(3, Row::int)?,
        rate: count.zip(period).map(|(count, period_ms)| Rate { count, period_ms }),
    };
    Ok(KeptRule { rule, updated_at: row.time(6)?, updated_by: row.text(7)?.to_owned() })
}

fn read_pause(row: &Row) -> Result<KeptPause> {
    let pause = Pause {
        scope: row.named(0)?,
        name: name(row)?,
        mode: row.named(2)?,
        reason: row.maybe(3, Row::text)?.map(str::to_owned),
    };
    Ok(KeptPause { pause, since: row.time(4)?, by: row.text(5)?.to_owned() })
}
