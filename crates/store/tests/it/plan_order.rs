//! The two orders of a list walk the same index, one forwards and one backwards; nothing is sorted.
//!
//! Absent: which index that is. `plan` and `plan_message` say it of lists that grow large.

use crate::hand;
use crate::plan::parameters;
use crate::world::*;
use std::collections::BTreeMap;
use windlass_store::statement::{Dialect, Statement};

conformance!(both_orders_of_a_list_walk_one_index);

/// Lists that are sorted after they were read, and why that costs little.
const SORTED: &[(&str, &str)] = &[
    ("node/list", "a cluster has few nodes"),
    ("approval/list_of_task", "a task has few approvals; the index has them in order of time"),
    ("task/list Living", "what is alive is read from several small indexes"),
    ("task/list Rare", "on PostgreSQL: several states are as many places in the index"),
    ("step/page", "a task's steps are found by the task; places and sizes are sorted, not results"),
];

async fn both_orders_of_a_list_walk_one_index(dialect: Dialect) {
    let world = World::new(dialect).await;
    let mut lists: BTreeMap<&str, [Option<&Statement>; 2]> = BTreeMap::new();
    for statement in windlass_store::statements() {
        for (place, order) in ["asc", "desc"].into_iter().enumerate() {
            if let Some(list) = statement.name.strip_suffix(order) {
                lists.entry(list.trim()).or_default()[place] = Some(statement);
            }
        }
    }
    assert!(lists.len() > 40, "only {} lists", lists.len());
    let mut wrong = Vec::new();
    for (list, pair) in lists {
        let [Some(up), Some(down)] = pair else { panic!("{list} goes one way only") };
        let (up, down) = (plan(&world, up), plan(&world, down));
        if up != down {
            wrong.push(format!("{list}: the orders differ\n{up}\n---\n{down}"));
        }
        let is_sorted = up.contains("Sort") || up.contains("B-TREE FOR");
        if is_sorted && SORTED.iter().all(|(name, _)| *name != list) {
            wrong.push(format!("{list} is sorted\n{up}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// The plan, without what says in which direction it goes.
fn plan(world: &World, statement: &Statement) -> String {
    let text = statement.text(world.dialect());
    let plan = match world.dialect() {
        Dialect::Postgres => {
            let values = vec!["NULL"; parameters(text)].join(", ");
            let script = format!(
                "SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off;
                 SET plan_cache_mode = force_generic_plan;
                 PREPARE it AS {text};
                 EXPLAIN (COSTS OFF) EXECUTE it ({values});\n"
            );
            let (output, errors) = hand::run(world, &script);
            assert_eq!(errors, "", "{}", statement.name);
            output
        }
        Dialect::Sqlite => {
            let Place::Sqlite(folder) = &world.place else { panic!("a file") };
            let connection = rusqlite::Connection::open(file(folder)).unwrap();
            let mut explain = connection.prepare(&format!("EXPLAIN QUERY PLAN {text}")).unwrap();
            let mut rows = explain.raw_query();
            let mut lines: Vec<String> = Vec::new();
            while let Some(row) = rows.next().unwrap() {
                let line: String = row.get(3).unwrap();
                // Behind it are the bounds, which are told in the order of the walk.
                lines.push(line.split(" (").next().unwrap().to_owned());
            }
            lines.join("\n")
        }
    };
    plan.replace(" Backward", "").replace(" DESC", "").replace('<', ">")
}
