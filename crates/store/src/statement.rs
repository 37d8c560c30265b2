//! SQL statements: one a file under `sql/`, named by its path, in one or two dialects.
//!
//! What the domain knows is filled in, so that no SQL file repeats it: `{from:complete}` becomes
//! the quoted list of the states from which the machine permits `complete`, `{held}` the held
//! states, `{lease_ms}` the profiles' lease lengths, `{task_columns}` the columns of a task.
//! A file that serves both databases is written for PostgreSQL; SQLite gets it without casts.
//! A list is one file for both orders: `key {beyond} $1` becomes `key > $1` or `key < $1`, and
//! `ORDER BY key {direction}` goes the same way, so both walk one index.

use std::sync::OnceLock;
use windlass_domain::page::Order;
use windlass_domain::profile::{FirstLease, MAX_ATTEMPT, PROFILES};
use windlass_domain::state::{Event, State};
use windlass_domain::transition;

/// Which database speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// The embedded database.
    Sqlite,
    /// The shared database.
    Postgres,
}

/// A statement that both databases understand, each in its dialect.
pub struct Statement {
    /// Its path under `sql/`, such as `task/claim`.
    pub name: &'static str,
    sqlite: &'static str,
    postgres: &'static str,
    /// Of a list: which of its two statements this is.
    order: Option<Order>,
    expanded: [OnceLock<String>; 2],
    for_one: OnceLock<String>,
}

impl Statement {
    /// Used by [`statement!`](crate::statement!).
    pub const fn new(name: &'static str, sqlite: &'static str, postgres: &'static str) -> Self {
        let expanded = [OnceLock::new(), OnceLock::new()];
        Statement { name, sqlite, postgres, order: None, expanded, for_one: OnceLock::new() }
    }

    /// The same for a list in one order.
    pub const fn in_order(
        name: &'static str,
        sqlite: &'static str,
        postgres: &'static str,
        order: Order,
    ) -> Self {
        let expanded = [OnceLock::new(), OnceLock::new()];
        Statement { name, sqlite, postgres, order: Some(order), expanded, for_one: OnceLock::new() }
    }

    /// The text for one database, everything filled in.
    pub fn text(&self, dialect: Dialect) -> &str {
        let (slot, text) = match dialect {
            Dialect::Sqlite => (0, self.sqlite),
            Dialect::Postgres => (1, self.postgres),
        };
        self.expanded[slot].get_or_init(|| match self.order {
            Some(order) => expand(&directed(text, order), dialect),
            None => expand(text, dialect),
        })
    }

    /// The text for PostgreSQL when there is one item behind `shared` parameters, which are always
    /// as many. It takes the same parameters.
    pub fn text_for_one(&self, shared: usize) -> &str {
        self.for_one.get_or_init(|| for_one_item(self.text(Dialect::Postgres), shared))
    }
}

/// The two statements of a list, one for each order.
pub struct Ordered {
    /// From the lowest key on.
    pub ascending: Statement,
    /// From the highest key on.
    pub descending: Statement,
}

impl Ordered {
    /// The one that walks in this order.
    pub fn in_order(&self, order: Order) -> &Statement {
        match order {
            Order::Ascending => &self.ascending,
            Order::Descending => &self.descending,
        }
    }
}

/// The statements of some lists.
pub(crate) fn both(lists: &'static [&'static Ordered]) -> impl Iterator<Item = &'static Statement> {
    lists.iter().flat_map(|list| [&list.ascending, &list.descending])
}

/// Fills in the direction in which a list is walked along its key.
fn directed(text: &str, order: Order) -> String {
    let (beyond, direction) = match order {
        Order::Ascending => (">", "ASC"),
        Order::Descending => ("<", "DESC"),
    };
    text.replace("{beyond}", beyond).replace("{direction}", direction)
}

/// Declares a statement. `statement!(CLAIM, "task/claim")` reads `sql/task/claim.sqlite.sql` and
/// `sql/task/claim.postgres.sql`; `statement!(shared SHOW, "task/show")` reads `sql/task/show.sql`
/// for both. `statement!(ordered LIST, "trouble/list")` and `statement!(ordered shared LIST, …)`
/// are the [`Ordered`] pair of a list.
#[macro_export]
macro_rules! statement {
    ($name:ident, $path:literal) => {
        static $name: $crate::statement::Statement = $crate::statement::Statement::new(
            $path,
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/sql/", $path, ".sqlite.sql")),
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/sql/", $path, ".postgres.sql")),
        );
    };
    (shared $name:ident, $path:literal) => {
        static $name: $crate::statement::Statement = $crate::statement::Statement::new(
            $path,
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/sql/", $path, ".sql")),
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/sql/", $path, ".sql")),
        );
    };
    (ordered $name:ident, $path:literal) => {
        $crate::statement!(pair $name, $path, ".sqlite.sql", ".postgres.sql");
    };
    (ordered shared $name:ident, $path:literal) => {
        $crate::statement!(pair $name, $path, ".sql", ".sql");
    };
    (pair $name:ident, $path:literal, $sqlite:literal, $postgres:literal) => {
        static $name: $crate::statement::Ordered = $crate::statement::Ordered {
            ascending: $crate::statement::Statement::in_order(
                concat!($path, " asc"),
                include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/sql/", $path, $sqlite)),
                include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/sql/", $path, $postgres)),
                windlass_domain::page::Order::Ascending,
            ),
            descending: $crate::statement::Statement::in_order(
                concat!($path, " desc"),
                include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/sql/", $path, $sqlite)),
                include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/sql/", $path, $postgres)),
                windlass_domain::page::Order::Descending,
            ),
        };
    };
}

/// What `decide` needs, in the order in which `task::row::snapshot` reads it.
pub const SNAPSHOT_COLUMNS: &str = "\
st.id, st.profile, st.queue, s.priority, s.backoff, st.max_retries, st.status, st.ready, \
st.order_key, st.run_at, st.deadline_at, st.attempt, st.retry_count, st.release_count, \
st.lease_id, st.lease_expires_at, st.claim_id, st.claimed_by, st.claimed_at, \
st.last_heartbeat_at, st.approval_id, st.result, st.error, st.usage, st.created_at, \
st.started_at, st.entered_at, st.updated_at, st.lane, st.change_id";

/// What users see of a task, in the order in which `task::row::task` reads it. Only what has ended
/// is replayed, so nothing is counted for a claim.
pub const TASK_COLUMNS: &str = "\
s.id, s.profile, s.name, s.queue, st.status, s.payload, st.result, st.error, st.usage, \
p.checkpoint, p.progress, s.priority, s.tags, s.agent, s.venture, s.portfolio, s.stage, \
s.owner, s.caller, s.callee, s.pool, s.llm, s.model, s.tier, s.parent_id, s.replay_of, \
s.correlation_id, s.idempotency_key, st.attempt, st.retry_count, st.max_retries, \
st.release_count, st.run_at, st.deadline_at, st.claimed_by, st.claimed_at, \
st.lease_expires_at, st.last_heartbeat_at, \
st.stream_started_at, s.created_at, st.started_at, st.updated_at, st.finished_at, \
CASE WHEN st.finished_at IS NULL THEN 0 \
ELSE (SELECT count(*) FROM task_spec r WHERE r.replay_of = s.id) END";

/// Whether the task `st` counts under the limit of the scope $1 and the name $2. Its lane is looked
/// up by itself: as a join it may be planned as a walk over all lanes.
fn under_limit(dialect: Dialect) -> String {
    let text = match dialect {
        Dialect::Postgres => "::text",
        Dialect::Sqlite => "",
    };
    format!(
        "(SELECT CASE $1{text} WHEN 'global' THEN TRUE \
              WHEN 'portfolio' THEN l.portfolio = $2{text} \
              WHEN 'venture' THEN l.venture = $2{text} \
              WHEN 'stage' THEN l.stage = $2{text} \
              WHEN 'agent' THEN l.agent = $2{text} \
              ELSE l.queue = $2{text} END \
          FROM lane l WHERE l.id = st.lane AND l.profile <> 'ledger')"
    )
}

/// Whether a person has still to look at the task `of`, or to decide something of it: a poisoned
/// task, an open question, or a step of which nobody knows whether it ran (see `step/in_doubt`); or
/// another task waits for its end, and was not told of it yet: without the task it never would be.
/// A CASE, so that PostgreSQL does not read the index of all such steps for the few of one task.
fn undecided(of: &str) -> String {
    format!(
        "(coalesce((SELECT t.closed_at IS NULL FROM trouble t WHERE t.task_id = {of}.id), FALSE) \
         OR (SELECT 1 FROM approval a WHERE a.task_id = {of}.id AND a.status = 'open' LIMIT 1) \
             IS NOT NULL \
         OR (SELECT 1 FROM step d WHERE d.task_id = {of}.id AND CASE d.status \
                 WHEN 'in_doubt' THEN NOT d.idempotent WHEN 'begun' THEN NOT d.idempotent \
                 WHEN 'failed' THEN NOT d.idempotent AND coalesce(d.effect, 'unknown') <> 'none' \
                 ELSE FALSE END LIMIT 1) \
             IS NOT NULL \
         OR (SELECT 1 FROM wait w WHERE w.child_id = {of}.id LIMIT 1) IS NOT NULL)"
    )
}

/// Fills in what the domain knows.
pub fn expand(text: &str, dialect: Dialect) -> String {
    let mut out = text.to_owned();
    for &event in Event::ALL {
        let key = format!("{{from:{event}}}");
        if out.contains(&key) {
            out = out.replace(&key, &quoted(transition::sources(event)));
        }
    }
    let states = |keep: fn(&State) -> bool| quoted(State::ALL.iter().copied().filter(keep));
    for (key, value) in [
        ("{terminal}", states(|s| s.is_terminal())),
        ("{living}", states(|s| !s.is_terminal())),
        ("{held}", states(|s| s.is_held())),
        ("{claimable}", states(|s| s.is_claimable())),
        ("{max_attempt}", MAX_ATTEMPT.to_string()),
        ("{lease_ms}", lease_ms()),
        ("{free_pass}", free_pass()),
        ("{snapshot_columns}", SNAPSHOT_COLUMNS.to_owned()),
        ("{task_columns}", TASK_COLUMNS.to_owned()),
        ("{agent_columns}", crate::agent::COLUMNS.to_owned()),
        ("{alert_columns}", crate::alert::COLUMNS.to_owned()),
        ("{trouble_columns}", crate::trouble::COLUMNS.to_owned()),
        ("{notice_columns}", crate::notice::COLUMNS.to_owned()),
        ("{session_columns}", crate::session::COLUMNS.to_owned()),
        ("{step_columns}", crate::step::COLUMNS.to_owned()),
        ("{under_limit}", under_limit(dialect)),
        ("{undecided:s}", undecided("s")),
        ("{undecided:o}", undecided("o")),
        ("{next_run}", crate::step::next_run(dialect).to_owned()),
        ("{wait_columns}", crate::wait::COLUMNS.to_owned()),
        ("{signal_columns}", crate::signal::COLUMNS.to_owned()),
        ("{message_columns}", crate::message::COLUMNS.to_owned()),
        ("{message_returned}", crate::message::returned()),
        ("{agent_handler}", crate::message::agent_handler()),
        ("{agent_converses}", crate::message::agent_converses()),
        ("{dead_letter_columns}", crate::dead_letter::COLUMNS.to_owned()),
        ("{approval_columns}", crate::approval::COLUMNS.to_owned()),
    ] {
        out = out.replace(key, &value);
    }
    match dialect {
        Dialect::Postgres => out,
        Dialect::Sqlite => without_lists(&without_casts(&out)),
    }
}

fn quoted(states: impl IntoIterator<Item = State>) -> String {
    let names: Vec<_> = states.into_iter().map(|s| format!("'{s}'")).collect();
    names.join(", ")
}

/// The lease length of the row's profile, unless the session asked for its own.
fn lease_ms() -> String {
    let mut out = "CASE profile".to_owned();
    for rules in &PROFILES {
        out += &format!(" WHEN '{}' THEN {}", rules.profile, rules.lease_ms);
    }
    out + " END"
}

/// The profiles whose lease runs only from the first heartbeat.
fn free_pass() -> String {
    let names: Vec<_> = PROFILES
        .iter()
        .filter(|r| r.first_lease == FirstLease::UntilFirstBeat)
        .map(|r| format!("'{}'", r.profile))
        .collect();
    names.join(", ")
}

/// Drops `::type` and `::type[]`. SQLite would read them as part of the parameter's name.
fn without_casts(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("::") {
        out.push_str(&rest[..at]);
        let cast = &rest[at + 2..];
        let end = cast.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(cast.len());
        rest = cast[end..].strip_prefix("[]").unwrap_or(&cast[end..]);
    }
    out.push_str(rest);
    out
}

/// Turns `a IN ('x', 'y', 'z')` into `(a = 'x' OR a = 'y' OR a = 'z')`. SQLite makes a temporary
/// table of a list of three or more constants, at every execution. The migrations are written the
/// same way, because SQLite matches the conditions of partial indexes by their text.
pub fn without_lists(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(" IN (") {
        let after = &rest[at + 5..];
        let Some(end) = after.find(')') else { break };
        let constants: Vec<&str> = after[..end].split(',').map(str::trim).collect();
        let all_quoted =
            constants.iter().all(|c| c.len() > 1 && c.starts_with('\'') && c.ends_with('\''));
        if !all_quoted || constants.len() < 3 {
            out.push_str(&rest[..at + 5]);
            rest = after;
            continue;
        }
        let head = &rest[..at];
        let (head, equals, or) = match head.strip_suffix(" NOT") {
            Some(head) => (head, "<>", " AND "),
            None => (head, "=", " OR "),
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
        let name_at = head.rfind(|c| !is_name(c)).map_or(0, |i| i + 1);
        let name = &head[name_at..];
        let terms: Vec<_> = constants.iter().map(|c| format!("{name} {equals} {c}")).collect();
        out.push_str(&head[..name_at]);
        out.push_str(&format!("({})", terms.join(or)));
        rest = &after[end + 1..];
    }
    out.push_str(rest);
    out
}

/// Turns `unnest($2::uuid[], $3::text[]) AS i (id, name)` into the one row that it would give:
/// PostgreSQL sets up a function and a store of rows for each list, which costs a lone item more
/// than its own insert. Lists that are `shared`, and whatever is written otherwise, stay.
pub fn for_one_item(text: &str, shared: usize) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("unnest(") {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        match one_row(rest, shared) {
            Some((row, length)) => {
                out.push_str(&row);
                rest = &rest[length..];
            }
            None => {
                out.push_str("unnest(");
                rest = &rest["unnest(".len()..];
            }
        }
    }
    out.push_str(rest);
    out
}

/// The row for the `unnest` with which the text begins, and how long that is.
fn one_row(text: &str, shared: usize) -> Option<(String, usize)> {
    let (lists, rest) = text.strip_prefix("unnest(")?.split_once(')')?;
    let rest = rest.trim_start();
    let (numbered, rest) = match rest.strip_prefix("WITH ORDINALITY") {
        Some(rest) => (true, rest.trim_start()),
        None => (false, rest),
    };
    let (alias, rest) = rest.strip_prefix("AS ")?.split_once('(')?;
    let (columns, rest) = rest.split_once(')')?;
    let mut columns = columns.split(',').map(str::trim);
    let mut fields = Vec::new();
    for list in lists.split(',').map(str::trim) {
        let (number, _) = list.split_once("::").unwrap_or((list, ""));
        let number: usize = number.strip_prefix('$')?.parse().ok()?;
        if number <= shared {
            return None;
        }
        fields.push(format!("({list})[1] AS {}", columns.next()?));
    }
    if numbered {
        fields.push(format!("1::bigint AS {}", columns.next()?));
    }
    if columns.next().is_some() {
        return None;
    }
    let row = format!("(SELECT {}) AS {}", fields.join(", "), alias.trim());
    Some((row, text.len() - rest.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_of_constants_become_alternatives_for_sqlite() {
        let text = "x AND st.a NOT IN ('p', 'q', 'r') OR b IN ('p', 'q') OR c IN (SELECT 1)";
        let wanted = "x AND (st.a <> 'p' AND st.a <> 'q' AND st.a <> 'r') \
                      OR b IN ('p', 'q') OR c IN (SELECT 1)";
        assert_eq!(without_lists(text), wanted);
    }

    #[test]
    fn one_item_is_a_row_and_not_a_list() {
        let text = "FROM clock, unnest($2::uuid[],\n $3::text[]) WITH ORDINALITY\n AS i \
                    (id, x, n)\nJOIN unnest($2, $3) AS j (id, y) ON true";
        let wanted = "FROM clock, (SELECT ($2::uuid[])[1] AS id, ($3::text[])[1] AS x, \
                      1::bigint AS n) AS i\nJOIN (SELECT ($2)[1] AS id, ($3)[1] AS y) AS j ON true";
        assert_eq!(for_one_item(text, 1), wanted);
        for kept in [text, "unnest(a.keys) AS k", "unnest($4::text[])", "unnest($4) AS i (a, b)"] {
            assert_eq!(for_one_item(kept, 3), kept);
        }
    }

    #[test]
    fn a_list_goes_either_way() {
        let text = "WHERE (a, b) {beyond} ($1, $2) ORDER BY a {direction}, b {direction}";
        for (order, wanted) in [
            (Order::Ascending, "WHERE (a, b) > ($1, $2) ORDER BY a ASC, b ASC"),
            (Order::Descending, "WHERE (a, b) < ($1, $2) ORDER BY a DESC, b DESC"),
        ] {
            let statement = Statement::in_order("a/list", text, text, order);
            for dialect in [Dialect::Sqlite, Dialect::Postgres] {
                assert_eq!(statement.text(dialect), wanted);
            }
        }
    }

    #[test]
    fn a_guard_lists_the_states_that_the_machine_permits() {
        let text = expand("status IN ({from:complete})", Dialect::Postgres);
        assert_eq!(text, "status IN ('claimed', 'running')");
    }

    #[test]
    fn sqlite_gets_no_casts() {
        let text = expand("id = $1::uuid AND t = ANY ($2::text[]) AND c", Dialect::Sqlite);
        assert_eq!(text, "id = $1 AND t = ANY ($2) AND c");
    }
}
