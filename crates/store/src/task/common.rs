//! What the tasks of one lane have in common: all that a rule or a claim asks of them.

use super::row::Task;
use crate::error::Result;
use crate::value::{Row, Value};
use windlass_domain::limit::{Bound, Key, Limits, Names, Scope};
use windlass_domain::pins::Pins;
use windlass_domain::profile::Profile;
use windlass_domain::task::NewTask;

/// The names of a lane, empty where its tasks have none. The agent of a delegation is who it is
/// for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Common {
    pub(super) queue: String,
    pub(super) profile: Profile,
    pub(super) venture: String,
    portfolio: String,
    stage: String,
    agent: String,
    pub(super) pins: Pins,
}

impl From<&NewTask> for Common {
    fn from(task: &NewTask) -> Common {
        let NewTask { venture, portfolio, stage, agent, callee, .. } = task;
        let names = [venture, portfolio, stage, agent, callee];
        Common::new(&task.queue, task.profile, names, task.pins())
    }
}

impl From<&Task> for Common {
    fn from(task: &Task) -> Common {
        let Task { venture, portfolio, stage, agent, callee, .. } = task;
        let names = [venture, portfolio, stage, agent, callee];
        let pin = |name: &Option<String>| name.clone();
        let pins = Pins { llm: pin(&task.llm), model: pin(&task.model), tier: pin(&task.tier) };
        Common::new(&task.queue, task.profile, names, pins)
    }
}

impl Common {
    /// How many columns a lane has in a row: its id and its names.
    pub(super) const COLUMNS: usize = 10;

    fn new(queue: &str, profile: Profile, names: [&Option<String>; 5], pins: Pins) -> Common {
        let [venture, portfolio, stage, agent, callee] = names;
        let text = |name: &Option<String>| name.clone().unwrap_or_default();
        Common {
            queue: queue.to_owned(),
            profile,
            venture: text(venture),
            portfolio: text(portfolio),
            stage: text(stage),
            agent: text(if agent.is_some() { agent } else { callee }),
            pins,
        }
    }

    pub(super) fn read(row: &Row) -> Result<(i64, Common)> {
        let text = |at| row.text(at).map(str::to_owned);
        let pin = |at| text(at).map(|name| Some(name).filter(|name| !name.is_empty()));
        let common = Common {
            queue: text(1)?,
            profile: row.named(2)?,
            venture: text(3)?,
            portfolio: text(4)?,
            stage: text(5)?,
            agent: text(6)?,
            pins: Pins { llm: pin(7)?, model: pin(8)?, tier: pin(9)? },
        };
        Ok((row.int(0)?, common))
    }

    pub(super) fn values(&self) -> Vec<Value> {
        let pin = |name: &Option<String>| Value::from(name.as_deref().unwrap_or_default());
        vec![
            self.queue.as_str().into(),
            self.profile.as_str().into(),
            self.venture.as_str().into(),
            self.portfolio.as_str().into(),
            self.stage.as_str().into(),
            self.agent.as_str().into(),
            pin(&self.pins.llm),
            pin(&self.pins.model),
            pin(&self.pins.tier),
        ]
    }

    /// Whether its tasks count for a key.
    pub(super) fn is_of(&self, key: &Key) -> bool {
        let name = match key.scope {
            Scope::Global => return true,
            Scope::Portfolio => &self.portfolio,
            Scope::Venture => &self.venture,
            Scope::Stage => &self.stage,
            Scope::Agent => &self.agent,
            Scope::Queue => &self.queue,
            Scope::WorkerType => return false,
        };
        *name == key.name
    }

    pub(super) fn bounds(&self, limits: &Limits) -> Vec<Bound> {
        if self.profile == Profile::Ledger {
            return Vec::new();
        }
        fn named(name: &str) -> Option<&str> {
            Some(name).filter(|name| !name.is_empty())
        }
        limits.binding(&Names {
            portfolio: named(&self.portfolio),
            venture: named(&self.venture),
            stage: named(&self.stage),
            agent: named(&self.agent),
            queue: Some(&self.queue),
        })
    }
}
