//! How many transactions share a lock of limits: the database and this program must agree on it.
//! With fewer seats here than there, a hope for room would exceed limits.

use crate::postgres_log::application;
use crate::world::*;
use windlass_store::statement::Dialect;
use windlass_store::task::SEATS;

#[test]
fn the_database_has_as_many_seats_as_this_program_counts_with() {
    run(seats, Dialect::Postgres);
}

async fn seats(dialect: Dialect) {
    let world = World::new(dialect).await;
    for lock in [1, 2] {
        let mut sitting = Vec::new();
        let sit = format!("SET lock_timeout = '300ms'; BEGIN; SELECT windlass_sit({lock})");
        // More than there can be; whoever finds no seat waits for one.
        while sitting.len() < 4 * SEATS as usize {
            let next = application(&world).await;
            if next.batch_execute(&sit).await.is_err() {
                break;
            }
            sitting.push(next);
        }
        assert_eq!(sitting.len() as i64, SEATS, "seats of the lock {lock}");
    }
}

#[test]
fn the_database_leaves_room_for_as_many() {
    run(margins, Dialect::Postgres);
}

async fn margins(dialect: Dialect) {
    let world = World::new(dialect).await;
    let one = application(&world).await;
    let adding = 5;
    let margin = SEATS * adding;
    let bounds = |most: i64| format!("1, {adding}, ARRAY['x'], ARRAY[{most}], ARRAY[{most}]");
    let shared = |most| format!("SELECT margin FROM windlass_share({})", bounds(most));
    let row = one.query_one(&shared(margin), &[]).await.unwrap();
    assert_eq!(row.get::<_, i64>(0), margin, "all that others may add");
    let row = one.query_one(&shared(margin - 1), &[]).await.unwrap();
    assert_eq!(row.get::<_, i64>(0), 0, "the lock is had alone");
    let hoped = |most| format!("SELECT windlass_share_or_fail({})", bounds(most));
    assert!(one.query_one(&hoped(margin), &[]).await.unwrap().get::<_, bool>(0));
    let told = one.query_one(&hoped(margin - 1), &[]).await.unwrap_err();
    assert_eq!(told.code().map(|code| code.code()), Some("WL001"));
}
