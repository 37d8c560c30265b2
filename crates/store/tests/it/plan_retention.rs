//! What retention costs: each task of a family is looked at once, whatever the family's shape.

use crate::plan::{buffers, steps};
use crate::plan_case::writes;
use crate::world::*;
use windlass_domain::id::TaskId;
use windlass_domain::task::NewTask;
use windlass_store::statement::Dialect;

conformance!(a_family_costs_as_many_looks_as_it_has_tasks, a_generation_costs_what_a_brother_does,);

/// How much larger the larger one of two families is.
const TIMES: i64 = 16;
const SMALL: usize = 100;

/// So many tasks of which all repeat the first, or each the one before it. All have ended but the
/// last: that one keeps all others, whoever looks.
async fn family(world: &World, size: usize, is_chain: bool) -> Vec<TaskId> {
    let mut ids = Vec::with_capacity(size);
    let mut new = Vec::with_capacity(size);
    for _ in 0..size {
        let origin = if is_chain { ids.last() } else { ids.first() };
        let task = NewTask { replay_of: origin.copied(), ..inference() };
        ids.push(task.id);
        new.push(task);
    }
    for part in new.chunks(500) {
        let submitted = world.submit_all(part.to_vec()).await;
        assert!(submitted.iter().all(Result::is_ok));
    }
    let asked: Vec<_> = ids[..size - 1]
        .iter()
        .map(|id| {
            let (tasks, id) = (world.tasks.clone(), *id);
            tokio::spawn(async move { tasks.cancel(id, "operator", None).await.unwrap() })
        })
        .collect();
    for cancelled in asked {
        cancelled.await.unwrap();
    }
    ids
}

/// What the looks at a page that has all of a family touch: pages, or steps on SQLite.
fn touched(world: &World, ids: &[TaskId]) -> i64 {
    let ended = ids.len() - 1;
    let (latest, root) = (world.now(), ids[0].to_string());
    match world.dialect() {
        Dialect::Postgres => {
            let list: Vec<_> = ids.iter().map(|id| format!("'{id}'")).collect();
            let list = format!("ARRAY[{}]::uuid[]", list.join(", "));
            let (latest, root) = (format!("'{latest}'"), format!("ARRAY['{root}']::uuid[]"));
            let first = "'00000000-0000-0000-0000-000000000000'";
            let page = [(1, latest.as_str()), (2, "'1970-01-01Z'"), (3, first), (4, "10000")];
            buffers(world, &writes("retention/expired", &page, &[], &[]), ended)
                + buffers(world, &writes("retention/alone", &[(1, &list)], &[], &[]), 0)
                + buffers(world, &writes("retention/roots", &[(1, &list)], &[], &[]), 1)
                + buffers(
                    world,
                    &writes("retention/family", &[(1, &latest), (2, &root)], &[], &[]),
                    0,
                )
        }
        Dialect::Sqlite => {
            let list: Vec<_> = ids.iter().map(ToString::to_string).collect();
            let list = serde_json::to_string(&list).unwrap();
            let (latest, first) = (latest.as_ms(), "");
            steps(world, "retention/expired", &[&latest, &0, &first, &10_000])
                + steps(world, "retention/alone", &[&list])
                + steps(world, "retention/roots", &[&list])
                + steps(world, "retention/family", &[&latest, &root])
        }
    }
}

/// A family sixteen times as large costs about as many times as much: at most twice that, because a
/// look at a deeper tree touches a page more.
async fn grows_with_the_family(dialect: Dialect, is_chain: bool) {
    let mut costs = Vec::new();
    for size in [SMALL, SMALL * TIMES as usize] {
        let world = World::new(dialect).await;
        world.tasks.bind(None);
        let ids = family(&world, size, is_chain).await;
        world.pass_ms(8 * 24 * 60 * 60 * 1_000);
        if dialect == Dialect::Postgres {
            // As autovacuum does by itself, sooner or later.
            world.by_hand("VACUUM (ANALYZE)").unwrap();
        }
        assert_eq!(world.tasks.remove_expired(None, 100).await.unwrap(), 0, "one of them lives");
        costs.push(touched(&world, &ids));
    }
    println!("{dialect:?}: {SMALL} tasks touch {}, {TIMES} times as many {}", costs[0], costs[1]);
    assert!(costs[1] <= 2 * TIMES * costs[0], "{costs:?}");
}

/// Every task of a family was asked for all others: sixteen times as many cost 256 times as much.
async fn a_family_costs_as_many_looks_as_it_has_tasks(dialect: Dialect) {
    grows_with_the_family(dialect, false).await;
}

async fn a_generation_costs_what_a_brother_does(dialect: Dialect) {
    grows_with_the_family(dialect, true).await;
}
