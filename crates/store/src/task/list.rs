//! Listing: filters and keyset pages, in either order.
//!
//! One template serves every filter; what differs is the index that leads (the driver), because a
//! filter that is met by few tasks must not be looked for among all of them. The statements are
//! made of fixed parts, one for each driver and direction; no input becomes SQL.

use super::Tasks;
use super::row::{Task, task};
use crate::error::{Error, Result};
use crate::statement::{Dialect, Statement};
use crate::tx::{Call, Tx};
use crate::value::{Row, Value};
use std::collections::HashSet;
use std::sync::OnceLock;
use uuid::Uuid;
use windlass_domain::id::TaskId;
use windlass_domain::page::{Order, Part};
use windlass_domain::profile::{Kind, Profile};
use windlass_domain::state::State;
use windlass_domain::time::Timestamp;

/// The template; see [`Driver::text`].
const TEMPLATE: &str = include_str!("../../sql/task/list.sql");

/// Which tasks. Everything that is set must hold.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(missing_docs)] // Named like the fields of a task.
pub struct Filter {
    /// Any of these states; all if empty.
    pub status: Vec<State>,
    pub kind: Option<Kind>,
    pub queue: Option<String>,
    pub agent: Option<String>,
    pub venture: Option<String>,
    pub portfolio: Option<String>,
    pub stage: Option<String>,
    pub owner: Option<String>,
    pub caller: Option<String>,
    pub callee: Option<String>,
    pub pool: Option<String>,
    pub parent_id: Option<TaskId>,
    pub replay_of: Option<TaskId>,
    pub correlation_id: Option<String>,
    pub name: Option<String>,
    pub tag: Option<(String, String)>,
    /// Created at or after.
    pub since: Option<Timestamp>,
    /// Created before.
    pub until: Option<Timestamp>,
}

/// The order of a list unless another one is asked for.
pub const ORDER: Order = Order::Descending;

/// The last task of a page; the next page begins after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// When it was created.
    pub created_at: Timestamp,
    /// Which it was.
    pub id: TaskId,
}

/// Some tasks, and where the next ones begin.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    /// The tasks.
    pub items: Vec<Task>,
    /// Where the next page begins; `None` at the end.
    pub next: Option<Cursor>,
}

impl Tasks {
    /// One page of tasks.
    pub async fn list(
        &self,
        filter: Filter,
        order: Order,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page> {
        let after = after.map(|cursor| (cursor.created_at, cursor.id.0));
        let part = Part::new(order, after, limit);
        let body = move |tx: &mut dyn Tx| page(tx, &filter, &part);
        self.store.read("list", body).await
    }

    /// Which of these tasks fit.
    pub async fn among(&self, filter: Filter, ids: Vec<TaskId>) -> Result<HashSet<TaskId>> {
        let ids: Vec<Uuid> = ids.into_iter().map(|id| id.0).collect();
        let body = move |tx: &mut dyn Tx| {
            let mut params = values(&filter, &Part::new(ORDER, None, ids.len()));
            params.push(Value::UuidList(ids.clone()));
            let rows = tx.run(Call::one(among(), params))?;
            rows.iter().map(|row| Ok(TaskId(row.uuid(0)?))).collect()
        };
        self.store.read("among", body).await
    }
}

fn page(tx: &mut dyn Tx, filter: &Filter, part: &Part<(Timestamp, Uuid)>) -> Result<Page> {
    let statement = Driver::of(filter).statement(part.order);
    let rows = tx.run(Call::one(statement, values(filter, part)))?;
    let more = rows.len() > part.limit;
    // One row that cannot be read must not hide the others of its page.
    let readable = |row: &Row| match task(row, 0) {
        Err(error @ Error::Corrupt(_)) => {
            tracing::error!(task = ?row.0.first(), %error, "a task cannot be read");
            None
        }
        read => Some(read),
    };
    let items = rows.iter().take(part.limit).filter_map(readable).collect::<Result<Vec<_>>>()?;
    let last = items.last().filter(|_| more);
    let next = last.map(|task| Cursor { created_at: task.created_at, id: task.id });
    Ok(Page { items, next })
}

fn values(filter: &Filter, part: &Part<(Timestamp, Uuid)>) -> Vec<Value> {
    let (first_time, first_id) = part.begin();
    let status = filter.status.iter().map(|s| s.as_str().to_owned()).collect::<Vec<_>>();
    let of_kind = |kind: Kind| Profile::ALL.iter().filter(move |p| p.kind() == kind);
    let profiles = filter.kind.map(|k| of_kind(k).map(|p| p.as_str().to_owned()).collect());
    let (tag_key, tag_value) = filter.tag.clone().unzip();
    vec![
        first_time.into(),
        first_id.into(),
        filter.since.unwrap_or(Timestamp::EPOCH).into(),
        filter.until.unwrap_or(Timestamp::MAX).into(),
        Value::Int(part.most()),
        if status.is_empty() { Value::Null } else { status.into() },
        Value::from(profiles as Option<Vec<String>>),
        filter.queue.clone().into(),
        filter.agent.clone().into(),
        filter.venture.clone().into(),
        filter.portfolio.clone().into(),
        filter.stage.clone().into(),
        filter.owner.clone().into(),
        filter.caller.clone().into(),
        filter.callee.clone().into(),
        filter.pool.clone().into(),
        filter.parent_id.map(|id| id.0).into(),
        filter.replay_of.map(|id| id.0).into(),
        filter.correlation_id.clone().into(),
        filter.name.clone().into(),
        tag_key.into(),
        tag_value.into(),
    ]
}

/// The index that leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Driver {
    Recent,
    Agent,
    Owner,
    Venture,
    Caller,
    Callee,
    Parent,
    Replay,
    Correlation,
    Tag,
    Rare,
    Living,
    /// Their ids are given; only for [`among`].
    Named,
}

const ALL_DRIVERS: [Driver; 12] = [
    Driver::Recent,
    Driver::Agent,
    Driver::Owner,
    Driver::Venture,
    Driver::Caller,
    Driver::Callee,
    Driver::Parent,
    Driver::Replay,
    Driver::Correlation,
    Driver::Tag,
    Driver::Rare,
    Driver::Living,
];
const DRIVERS: usize = ALL_DRIVERS.len();

/// Every statement that a list may use.
pub(super) fn statements() -> impl Iterator<Item = &'static Statement> {
    let lists = ALL_DRIVERS.iter();
    let lists = lists.flat_map(|d| Order::ALL.iter().map(|order| d.statement(*order)));
    lists.chain(std::iter::once(among()))
}

/// Asks which of a few tasks fit, and for nothing else of them.
fn among() -> &'static Statement {
    static MADE: OnceLock<Statement> = OnceLock::new();
    MADE.get_or_init(|| {
        let text = |dialect| {
            let text = Driver::Named.text(dialect).replace("{task_columns}", "s.id");
            &*text.leak()
        };
        Statement::in_order("task/among", text(Dialect::Sqlite), text(Dialect::Postgres), ORDER)
    })
}

/// The states whose index is in time order; `task_state_rare` in the migrations.
const RARE: &[State] = &[
    State::WaitingForApproval,
    State::Waiting,
    State::Retry,
    State::Failed,
    State::Cancelled,
    State::Stuck,
    State::Poisoned,
];

impl Driver {
    /// The most selective index that the filter can use.
    fn of(filter: &Filter) -> Driver {
        let status = &filter.status;
        if filter.parent_id.is_some() {
            Driver::Parent
        } else if filter.replay_of.is_some() {
            Driver::Replay
        } else if filter.correlation_id.is_some() {
            Driver::Correlation
        } else if filter.tag.is_some() {
            Driver::Tag
        } else if !status.is_empty() && status.iter().all(|s| RARE.contains(s)) {
            Driver::Rare
        } else if !status.is_empty() && status.iter().all(|s| !s.is_terminal()) {
            Driver::Living
        } else if filter.agent.is_some() {
            Driver::Agent
        } else if filter.owner.is_some() {
            Driver::Owner
        } else if filter.caller.is_some() {
            Driver::Caller
        } else if filter.callee.is_some() {
            Driver::Callee
        } else if filter.venture.is_some() {
            Driver::Venture
        } else {
            Driver::Recent
        }
    }

    /// `FROM`, condition, time and id of the leading index.
    fn parts(self) -> [&'static str; 4] {
        const SPEC: &str = "task_spec s CROSS JOIN task_state st";
        const STATE: &str = "task_state st CROSS JOIN task_spec s";
        let by = |condition| [SPEC, condition, "s.created_at", "s.id"];
        match self {
            Driver::Recent => by("TRUE"),
            Driver::Agent => by("s.agent = $9::text"),
            Driver::Venture => by("s.venture = $10::text"),
            Driver::Owner => by("s.owner = $13::text"),
            Driver::Caller => by("s.caller = $14::text"),
            Driver::Callee => by("s.callee = $15::text"),
            Driver::Parent => by("s.parent_id = $17::uuid"),
            Driver::Replay => by("s.replay_of = $18::uuid"),
            Driver::Correlation => by("s.correlation_id = $19::text"),
            Driver::Named => by("{named}"),
            Driver::Tag => [
                "task_tag g CROSS JOIN task_spec s CROSS JOIN task_state st",
                "g.key = $21::text AND g.value = $22::text AND s.id = g.task_id",
                "g.created_at",
                "g.task_id",
            ],
            Driver::Rare => [
                STATE,
                "st.status IN ('waiting_for_approval', 'waiting', 'retry', 'failed',
                    'cancelled', 'stuck', 'poisoned') AND {status_among}",
                "st.created_at",
                "st.id",
            ],
            // The indexes of what is alive, one after the other; none holds a finished task.
            Driver::Living => [
                STATE,
                "st.id IN (
      SELECT id FROM task_state WHERE ready
      UNION ALL SELECT id FROM task_state
          WHERE NOT ready AND status IN ({claimable}) AND profile <> 'ledger'
      UNION ALL SELECT id FROM task_state WHERE profile = 'ledger' AND status = 'pending'
      UNION ALL SELECT id FROM task_state WHERE claimed_by IS NOT NULL AND finished_at IS NULL
      UNION ALL SELECT id FROM task_state
          WHERE status IN ('waiting_for_approval', 'waiting', 'retry', 'failed', 'cancelled',
                           'stuck', 'poisoned')
            AND status IN ('waiting_for_approval', 'waiting'))",
                "st.created_at",
                "st.id",
            ],
        }
    }

    fn statement(self, order: Order) -> &'static Statement {
        static MADE: [[OnceLock<Statement>; 2]; DRIVERS] =
            [const { [const { OnceLock::new() }; 2] }; DRIVERS];
        MADE[self as usize][order as usize].get_or_init(|| {
            let text = |dialect| &*self.text(dialect).leak();
            let name = format!("task/list {self:?} {}", order.as_str()).leak();
            Statement::in_order(name, text(Dialect::Sqlite), text(Dialect::Postgres), order)
        })
    }

    fn text(self, dialect: Dialect) -> String {
        let [from, driven, time, id] = self.parts();
        let [status_among, profile_among, named] = match dialect {
            Dialect::Postgres => [
                "st.status = ANY ($6::task_status[])",
                "s.profile = ANY ($7::task_profile[])",
                "s.id = ANY ($23::uuid[])",
            ],
            Dialect::Sqlite => [
                "st.status IN (SELECT value FROM json_each($6))",
                "s.profile IN (SELECT value FROM json_each($7))",
                "s.id IN (SELECT value FROM json_each($23))",
            ],
        };
        TEMPLATE
            .replace("{from}", from)
            .replace("{driven}", driven)
            .replace("{named}", named)
            .replace("{time}", time)
            .replace("{id}", id)
            .replace("{status_among}", status_among)
            .replace("{profile_among}", profile_among)
    }
}
