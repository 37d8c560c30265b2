//! Counts of limits are those of the tasks, and become so again when somebody has written them by
//! hand.

use super::flow::many;
use crate::world::*;
use windlass_store::statement::Dialect;
use windlass_store::task::Finishing;

conformance!(
    the_counts_are_what_the_tasks_say,
    what_a_gone_connection_counted_is_kept,
    counts_written_by_hand_are_mended,
    counts_are_mended_while_everybody_works,
);

/// What the database counts by itself is what a walk over all tasks shows.
pub fn counts_are_those_of_the_tasks(world: &World) {
    let counted = "SELECT key, active, pending FROM limit_use
                   WHERE active <> 0 OR pending <> 0 ORDER BY key";
    let keys = [
        "'global:'",
        "'venture:' || venture",
        "'stage:' || stage",
        "'agent:' || agent",
        "'portfolio:' || portfolio",
        "'queue:' || queue",
    ];
    let each =
        keys.map(|key| format!("SELECT {key} AS key, status FROM task WHERE {key} IS NOT NULL"));
    let truth = format!(
        "SELECT key, sum(CASE WHEN status IN ('claimed', 'running') THEN 1 ELSE 0 END),
             sum(CASE WHEN status IN ('pending', 'retry') THEN 1 ELSE 0 END)
         FROM ({}) AS t WHERE status IN ('claimed', 'running', 'pending', 'retry')
         GROUP BY key ORDER BY key",
        each.join(" UNION ALL ")
    );
    assert_eq!(world.by_hand(counted).unwrap(), world.by_hand(&truth).unwrap());
}

/// Who writes counts by hand made a limit wrong for ever.
async fn counts_written_by_hand_are_mended(dialect: Dialect) {
    let world = World::new(dialect).await;
    world.submit_all(many("a", 5)).await;
    world.submit_all(many("b", 3)).await;
    world.submit(task(|r| r.delay_ms = Some(60_000))).await;
    world.submit(ledger()).await;
    let held = world.claim("w1", 2).await;
    world.finish(&held[0], complete()).await.unwrap();
    let counts = "SELECT key, active, pending FROM limit_use ORDER BY key";
    let before = world.by_hand(counts).unwrap();
    assert_eq!(world.tasks.mend_counts().await.unwrap(), [], "nobody has written any");
    let wrong = match dialect {
        Dialect::Sqlite => [
            "UPDATE lane SET active = active + 7 WHERE venture = 'a'",
            "UPDATE lane SET pending = 0, active = 0",
            "UPDATE lane SET pending = -3 WHERE venture = 'b'",
        ],
        Dialect::Postgres => [
            "UPDATE limit_count SET active = active + 7 WHERE key = 'venture:a'",
            "DELETE FROM limit_count",
            "INSERT INTO limit_count (key, backend, active, pending)
             VALUES ('queue:nobody', 0, 3, -4), ('global:', 4711, 5, 6)",
        ],
    };
    for by_hand in wrong {
        world.by_hand(by_hand).unwrap();
        assert_ne!(world.by_hand(counts).unwrap(), before, "{by_hand}");
        let mended = world.tasks.mend_counts().await.unwrap();
        assert!(!mended.is_empty(), "{by_hand}");
        let told = mended.iter().all(|drift| drift.counted != drift.there_are);
        assert!(told, "{mended:?}");
        let nothing = "DELETE FROM limit_count WHERE key = 'queue:nobody'";
        if dialect == Dialect::Postgres {
            world.by_hand(nothing).unwrap();
        }
        assert_eq!(world.by_hand(counts).unwrap(), before, "{by_hand}");
        assert_eq!(world.tasks.mend_counts().await.unwrap(), [], "{by_hand}");
    }
    // The duty's look mends, too; the next one comes when it is time.
    world.by_hand(wrong[0]).unwrap();
    assert!(!world.tasks.recount().await.unwrap().is_empty());
    assert_eq!(world.by_hand(counts).unwrap(), before);
}

/// What others count meanwhile is neither taken for a mistake nor lost.
async fn counts_are_mended_while_everybody_works(dialect: Dialect) {
    let world = World::with_real_clock(dialect).await;
    let work = async |venture: &str| {
        for _ in 0..20 {
            world.submit_all(many(venture, 10)).await;
            for held in world.claim(venture, 5).await {
                world.finish(&held, complete()).await.unwrap();
            }
        }
    };
    let look = async || {
        for _ in 0..30 {
            assert_eq!(world.tasks.mend_counts().await.unwrap(), [], "everything is true");
            tokio::task::yield_now().await;
        }
    };
    tokio::join!(work("a"), work("b"), look(), look());
    let wrong = match dialect {
        Dialect::Sqlite => "UPDATE lane SET active = active + 1000, pending = pending - 1000",
        Dialect::Postgres => {
            "INSERT INTO limit_count AS c (key, backend, active, pending)
             SELECT DISTINCT key, 0, 1000, -1000 FROM limit_count
             ON CONFLICT (key, backend) DO UPDATE
             SET active = c.active + 1000, pending = c.pending - 1000"
        }
    };
    world.by_hand(wrong).unwrap();
    // Two who see the same mistake mend it once.
    let mend = async || world.tasks.mend_counts().await.unwrap().len();
    let (_, _, one, other) = tokio::join!(work("a"), work("b"), mend(), mend());
    assert!((one > 0) != (other > 0), "{one} {other}");
    assert_eq!(world.tasks.mend_counts().await.unwrap(), []);
    counts_are_those_of_the_tasks(&world);
}

async fn the_counts_are_what_the_tasks_say(dialect: Dialect) {
    let world = World::new(dialect).await;
    let mut held = Vec::new();
    for n in 0..20 {
        let new = task(|r| {
            r.venture = Some(format!("v{}", n % 3));
            r.stage = (n % 2 == 0).then(|| "build".into());
            r.agent = Some(format!("a{}", n % 4));
            r.portfolio = (n % 5 == 0).then(|| "p".into());
        });
        world.submit(new).await;
        if n % 3 == 0 {
            held.extend(world.claim("w1", 2).await);
        }
    }
    for (n, assignment) in held.iter().enumerate() {
        match n % 5 {
            0 => drop(world.finish(assignment, Finishing::Complete(None)).await.unwrap()),
            1 => drop(world.finish(assignment, Finishing::Release).await.unwrap()),
            2 => drop(world.start(assignment).await.unwrap()),
            3 => drop(world.cancel(assignment.task.id).await.unwrap()),
            _ => {}
        }
    }
    counts_are_those_of_the_tasks(&world);
}

async fn what_a_gone_connection_counted_is_kept(dialect: Dialect) {
    let world = World::with_real_clock(dialect).await;
    world.submit_all(many("a", 5)).await;
    world.claim("w1", 2).await;
    let counts = "SELECT key, active, pending FROM limit_use ORDER BY key";
    let before = world.by_hand(counts).unwrap();
    if dialect == Dialect::Postgres {
        let other = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                     WHERE pid <> pg_backend_pid() AND datname = current_database()";
        world.by_hand(other).unwrap();
    }
    // The first calls may meet the broken connections.
    while world.tasks.fold_counts().await.is_err() {}
    assert_eq!(world.by_hand(counts).unwrap(), before);
    if dialect == Dialect::Postgres {
        let gone = "SELECT count(*) FROM limit_count c WHERE backend <> 0 AND NOT EXISTS (
                        SELECT 1 FROM pg_stat_activity a WHERE a.pid = c.backend)";
        assert_eq!(world.by_hand(gone).unwrap(), "0");
    }
}
