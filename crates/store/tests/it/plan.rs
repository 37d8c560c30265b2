//! Among a million finished tasks every statement uses its index, with and without statistics.

use crate::hand;
use crate::plan_case::{Case, cases};
use crate::world::*;
use std::collections::BTreeSet;
use windlass_store::statement::{Dialect, Statement, for_one_item};

/// Indexes that hold few rows, whatever the tables hold: reading all of one is cheap.
const SMALL: &[&str] = &[
    "task_state_ready",
    "task_state_due",
    "task_state_holder",
    "task_state_lease",
    "task_state_delegation",
    "task_state_pending_inference",
    "task_state_pending_ledger",
    "task_tally_pkey",
    // A row for each key and connection: a duty folds those of connections that are gone.
    "limit_count_pkey",
    "message_held",
    "message_lease",
    "message_expiry",
    "inbox_pkey",
    "agent_pkey",
];

conformance!(every_statement_is_understood);

#[test]
fn postgres_uses_its_indexes_among_a_million_tasks() {
    run(postgres_plans, Dialect::Postgres);
}

#[test]
fn sqlite_uses_its_indexes_among_a_million_tasks() {
    run(sqlite_plans, Dialect::Sqlite);
}

async fn every_statement_is_understood(dialect: Dialect) {
    let world = World::new(dialect).await;
    let statements = windlass_store::statements();
    let names: BTreeSet<_> = statements.iter().map(|s| s.name).collect();
    assert_eq!(names.len(), statements.len(), "a name is used twice");
    // A list has a statement for each order, which its name tells behind the file's.
    let told: BTreeSet<_> = names.iter().filter_map(|name| name.split(' ').next()).collect();
    for file in files() {
        assert!(told.contains(file.as_str()), "sql/{file} is not in statements()");
    }
    match &world.place {
        Place::Postgres(_) => understood_by_postgres(&world, &statements),
        Place::Sqlite(folder) => {
            let connection = rusqlite::Connection::open(file(folder)).unwrap();
            for statement in statements {
                let prepared = connection.prepare(statement.text(dialect)).map(drop);
                assert!(prepared.is_ok(), "{}: {prepared:?}", statement.name);
            }
        }
    }
}

/// In one process: hundreds of connections would be most of the time.
fn understood_by_postgres(world: &World, statements: &[&Statement]) {
    let (mut script, mut count) = (String::new(), 0);
    for statement in statements {
        // PREPARE takes no CREATE and no SET; the migration has run these.
        if ["schema/create", "schema/lock"].contains(&statement.name) {
            continue;
        }
        let text = statement.text(Dialect::Postgres);
        for (way, text) in [("all", text), ("one", &for_one_item(text, 0))] {
            let name = format!("{} {way}", statement.name);
            // An error is followed by the name of its statement.
            script.push_str(&format!("PREPARE \"{name}\" AS {text}\n;\n\\if :ERROR\n"));
            script.push_str(&format!("\\warn {name}\n\\endif\n"));
            count += 1;
        }
    }
    script.push_str("SELECT count(*) FROM pg_prepared_statements;\n");
    let (output, errors) = hand::run(world, &script);
    assert!(!errors.contains("ERROR"), "{errors}");
    assert_eq!(output.trim(), count.to_string(), "{errors}");
}

/// The names of all statements under sql/.
fn files() -> BTreeSet<String> {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("sql");
    let mut names = BTreeSet::new();
    for folder in std::fs::read_dir(root).unwrap() {
        let folder = folder.unwrap().path();
        let entity = folder.file_name().unwrap().to_string_lossy().into_owned();
        for file in std::fs::read_dir(&folder).unwrap() {
            let name = file.unwrap().file_name().to_string_lossy().into_owned();
            let name = name.split('.').next().unwrap();
            names.insert(format!("{entity}/{name}"));
        }
    }
    names
}

fn statement(name: &str) -> &'static Statement {
    let found = windlass_store::statements().into_iter().find(|s| s.name == name);
    found.unwrap_or_else(|| panic!("no statement {name}"))
}

async fn postgres_plans(dialect: Dialect) {
    let world = World::new(dialect).await;
    let (_, errors) = hand::run(&world, include_str!("../plan/load.postgres.sql"));
    assert!(!errors.contains("ERROR"), "{errors}");
    let cases = cases();
    let mut wrong = explain_postgres(&world, &cases, "without statistics");
    world.by_hand("ANALYZE").unwrap();
    wrong.extend(explain_postgres(&world, &cases, "with statistics"));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let claim = cases.iter().find(|case| case.name == "task/claim").unwrap();
    let touched = buffers(&world, claim, 100);
    assert!(touched < 2_000, "a claim of 100 touches {touched} buffers");
    crate::plan_sweep::costs_what_is_in_flight(&world).await;
}

pub const HOT: &str = "SET enable_seqscan = off; SET enable_bitmapscan = off;\n\
                   SET plan_cache_mode = force_generic_plan;\n";

fn settings(case: &Case) -> Vec<&'static str> {
    // A prepared read gets a plan for its values at first, and later perhaps one for any.
    let custom = "RESET enable_seqscan; RESET enable_bitmapscan;\n\
                  SET plan_cache_mode = force_custom_plan;\n";
    let generic = "RESET enable_seqscan; RESET enable_bitmapscan;\n\
                   SET plan_cache_mode = force_generic_plan;\n";
    if case.reads { vec![custom, generic] } else { vec![HOT] }
}

/// How many parameters a statement has.
pub fn parameters(text: &str) -> usize {
    (1..100).take_while(|n| text.contains(&format!("${n}"))).count()
}

fn execute(case: &Case) -> String {
    let count = parameters(statement(case.name).text(Dialect::Postgres));
    let value = |n: usize| case.values.iter().find(|(at, _)| *at == n).map_or("NULL", |(_, v)| v);
    let values: Vec<&str> = (1..=count).map(value).collect();
    let list = if values.is_empty() { String::new() } else { format!("({})", values.join(", ")) };
    format!("EXECUTE it{list};\n")
}

pub fn explain_postgres(world: &World, cases: &[Case], when: &str) -> Vec<String> {
    let mut script = "SET jit = off;\n".to_owned();
    let mut asked = Vec::new();
    for case in cases {
        for settings in settings(case) {
            let text = statement(case.name).text(Dialect::Postgres);
            script.push_str(&format!("{settings}PREPARE it AS {text};\n\\echo @\n"));
            script.push_str(&format!("EXPLAIN {}DEALLOCATE it;\n", execute(case)));
            asked.push(case);
        }
    }
    let (output, errors) = hand::run(world, &script);
    assert!(!errors.contains("ERROR"), "{errors}");
    let plans: Vec<&str> = output.split("@\n").skip(1).collect();
    assert_eq!(plans.len(), asked.len());
    let judged = asked.iter().zip(plans).filter_map(|(case, plan)| {
        let why = judge_postgres(case, plan)?;
        Some(format!("{} {when}: {why}\n{plan}", case.name))
    });
    judged.collect()
}

fn judge_postgres(case: &Case, plan: &str) -> Option<String> {
    if let Some(index) = case.postgres.iter().find(|index| !plan.contains(**index)) {
        return Some(format!("{index} is not used"));
    }
    let lines: Vec<&str> = plan.lines().collect();
    for (at, line) in lines.iter().enumerate() {
        let tables = ["task_state", "task_spec", "task_history", "task_tag", "message", "audit"];
        if tables.iter().any(|table| line.contains(&format!("Seq Scan on {table}"))) {
            return Some("a table is read whole".into());
        }
        let scan = line.split_once(" using ").or_else(|| line.split_once("Bitmap Index Scan on "));
        let Some((_, index)) = scan else { continue };
        let index = index.split_whitespace().next().unwrap_or_default();
        let bounded = lines.get(at + 1).is_some_and(|next| next.contains("Index Cond"));
        if !bounded && !SMALL.contains(&index) {
            return Some(format!("{index} is read whole"));
        }
    }
    None
}

/// How many pages a statement touches that gives so many rows.
pub fn buffers(world: &World, case: &Case, rows: usize) -> i64 {
    let text = statement(case.name).text(Dialect::Postgres);
    let explain = format!("EXPLAIN (ANALYZE, BUFFERS, TIMING OFF) {}", execute(case));
    let script = format!("{HOT}BEGIN;\nPREPARE it AS {text};\n{explain}ROLLBACK;\n");
    let (output, errors) = hand::run(world, &script);
    assert!(errors.is_empty(), "{errors}");
    assert!(output.contains(&format!("rows={rows} ")), "{output}");
    let top = output.lines().find(|line| line.contains("Buffers:")).expect("buffers");
    let number = |key: &str| {
        let digits = top.split_once(key).map_or("0", |(_, rest)| rest);
        digits.split(|c: char| !c.is_ascii_digit()).next().and_then(|n| n.parse().ok()).unwrap_or(0)
    };
    number("hit=") + number("read=")
}

/// How many steps SQLite's machine takes for a statement that answers with whatever it does.
pub fn steps(world: &World, name: &str, values: &[&dyn rusqlite::ToSql]) -> i64 {
    let Place::Sqlite(folder) = &world.place else { panic!("a file") };
    let connection = rusqlite::Connection::open(file(folder)).unwrap();
    let mut asked = connection.prepare(statement(name).text(Dialect::Sqlite)).unwrap();
    for (at, value) in values.iter().enumerate() {
        // They are numbered as they first appear, and not all of a statement's appear in it.
        if let Some(place) = asked.parameter_index(&format!("${}", at + 1)).unwrap() {
            asked.raw_bind_parameter(place, value).unwrap();
        }
    }
    let mut rows = asked.raw_query();
    while rows.next().unwrap().is_some() {}
    drop(rows);
    i64::from(asked.get_status(rusqlite::StatementStatus::VmStep))
}

async fn sqlite_plans(dialect: Dialect) {
    let world = World::new(dialect).await;
    let Place::Sqlite(folder) = &world.place else { panic!("a file") };
    let connection = rusqlite::Connection::open(file(folder)).unwrap();
    load_sqlite(&world, &connection);
    let cases = cases();
    let mut wrong = explain_sqlite(&connection, &cases, "without statistics");
    connection.execute_batch("PRAGMA analysis_limit = 1000; ANALYZE;").unwrap();
    drop(connection);
    let connection = rusqlite::Connection::open(file(folder)).unwrap();
    wrong.extend(explain_sqlite(&connection, &cases, "with statistics"));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    drop(connection);
    crate::plan_sweep::costs_what_is_in_flight(&world).await;
}

/// Loads without triggers and indexes, which come back afterwards; by sqlite3, because the library
/// in a test's build is not optimised.
fn load_sqlite(world: &World, connection: &rusqlite::Connection) {
    let sql = "SELECT type, name, sql FROM sqlite_master
               WHERE sql IS NOT NULL AND (type = 'trigger' OR type = 'index')";
    let mut kept = connection.prepare(sql).unwrap();
    let kept: Vec<(String, String, String)> = kept
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .unwrap()
        .collect::<rusqlite::Result<_>>()
        .unwrap();
    let settings = "PRAGMA synchronous = OFF; PRAGMA cache_size = -200000; PRAGMA temp_store = 2;";
    let mut script = format!("{settings}\nBEGIN;\n");
    kept.iter().for_each(|(kind, name, _)| script.push_str(&format!("DROP {kind} {name};\n")));
    script.push_str(include_str!("../plan/load.sqlite.sql"));
    kept.iter().for_each(|(_, _, sql)| script.push_str(&format!("{sql};\n")));
    script.push_str("COMMIT;\n");
    assert_eq!(hand::run(world, &script).1, "");
}

pub fn explain_sqlite(
    connection: &rusqlite::Connection,
    cases: &[Case],
    when: &str,
) -> Vec<String> {
    let mut wrong = Vec::new();
    for case in cases {
        let text = statement(case.name).text(Dialect::Sqlite);
        let mut explain = connection.prepare(&format!("EXPLAIN QUERY PLAN {text}")).unwrap();
        let mut rows = explain.raw_query();
        let mut lines: Vec<String> = Vec::new();
        while let Some(row) = rows.next().unwrap() {
            lines.push(row.get(3).unwrap());
        }
        if let Some(why) = judge_sqlite(case, &lines) {
            wrong.push(format!("{} {when}: {why}\n{}", case.name, lines.join("\n")));
        }
    }
    wrong
}

fn judge_sqlite(case: &Case, lines: &[String]) -> Option<String> {
    let used = |index: &str| lines.iter().any(|line| line.contains(index));
    let tag = |index: &str| index == "task_tag" && used("SEARCH g USING PRIMARY KEY");
    if let Some(index) = case.sqlite.iter().find(|index| !used(index) && !tag(index)) {
        return Some(format!("{index} is not used"));
    }
    for line in lines {
        let Some(rest) = line.strip_prefix("SCAN ") else { continue };
        let table = rest.split_whitespace().next().unwrap_or_default();
        let large: &[&str] = match case.name.split_once('/') {
            Some(("message", _)) => &["message", "m", "h", "d", "e"],
            Some(("audit", _)) => &["audit", "e"],
            _ => &["task_state", "task_spec", "task_history", "task_tag", "st", "s", "g"],
        };
        let small = SMALL.iter().any(|index| rest.ends_with(index));
        if large.contains(&table) && !small {
            return Some("something large is read whole".into());
        }
    }
    None
}
