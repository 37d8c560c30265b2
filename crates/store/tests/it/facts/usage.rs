//! Usage: what attempts took, told with their ends.

use crate::world::*;
use serde_json::json;
use windlass_domain::state::State;
use windlass_domain::usage::Usage;
use windlass_store::group::Outcome;
use windlass_store::pool::Pools;
use windlass_store::statement::Dialect;
use windlass_store::task::{Assignment, Finish, Finishing};

conformance!(
    what_all_attempts_took_is_added_up_and_each_share_is_in_the_history,
    an_end_told_twice_is_counted_once,
    a_person_reads_and_corrects_it_until_the_end,
    a_pool_shows_the_tokens_of_the_last_minute,
);

fn usage(prompt: u64, completion: u64) -> Usage {
    let told = json!({ "input_tokens": prompt, "output_tokens": completion, "images": 1 });
    Usage::told("/usage", &told).unwrap()
}

fn end(held: &Assignment, how: Finishing, usage: Usage) -> Finish {
    Finish { usage: Some(usage), ..finish_of(held, how) }
}

async fn finish(world: &World, item: Finish) -> Outcome<State> {
    world.tasks.finish(vec![item]).await.pop().unwrap()
}

async fn what_all_attempts_took_is_added_up_and_each_share_is_in_the_history(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    let id = held.task.id;
    assert_eq!(world.show(id).await.usage, None);
    let retried = finish(&world, end(&held, fail("TIMEOUT"), usage(10, 1))).await;
    assert_eq!(retried.unwrap(), State::Retry);
    assert_eq!(world.show(id).await.usage, Some(usage(10, 1)));
    world.pass_ms(1_000);
    let held = world.claim("w1", 1).await.pop().unwrap();
    assert_eq!(held.task.usage, Some(usage(10, 1)), "whoever goes on knows what was spent");
    let done = finish(&world, end(&held, complete(), usage(20, 2))).await;
    assert_eq!(done.unwrap(), State::Completed);
    let sum = world.show(id).await.usage.unwrap();
    assert_eq!((sum.prompt_tokens, sum.completion_tokens, sum.total_tokens), (30, 3, 33));
    assert_eq!(sum.others["images"], 2);
    let history = world.tasks.history(id, 0, 100).await.unwrap();
    let shares = history.iter().filter_map(|row| Usage::stored(&row.metadata.as_ref()?["usage"]));
    assert_eq!(shares.collect::<Vec<_>>(), [usage(10, 1), usage(20, 2)]);
    assert_eq!(world.tasks.failures(id, 0, 10).await.unwrap()[0].error.code, "TIMEOUT");
}

async fn an_end_told_twice_is_counted_once(dialect: Dialect) {
    let world = World::new(dialect).await;
    for (how, state) in [
        (complete as fn() -> Finishing, State::Completed),
        (|| fail("INVALID_INPUT"), State::Failed),
    ] {
        let held = world.running(job()).await;
        for _ in 0..2 {
            assert_eq!(finish(&world, end(&held, how(), usage(10, 1))).await.unwrap(), state);
            assert_eq!(world.show(held.task.id).await.usage, Some(usage(10, 1)));
        }
        let other = finish(&world, end(&held, how(), usage(10, 2))).await;
        assert_eq!(refused(other), "already_finished");
        assert_eq!(refused(finish(&world, finish_of(&held, how())).await), "already_finished");
        assert_eq!(world.show(held.task.id).await.usage, Some(usage(10, 1)));
    }
}

async fn a_person_reads_and_corrects_it_until_the_end(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    let id = held.task.id;
    let set = |value: &str| {
        world.by_hand(&format!("UPDATE task_state SET usage = '{value}' WHERE id = '{id}'"))
    };
    set(r#"{"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}"#).unwrap();
    assert_eq!(world.show(id).await.usage.unwrap().total_tokens, 3);
    // Nobody understands it, so nobody sees it; the list can be read all the same.
    set(r#"{"tokens": "many"}"#).unwrap();
    assert_eq!(world.show(id).await.usage, None);
    let own = Usage { total_tokens: 7, ..Usage::default() };
    finish(&world, end(&held, complete(), own)).await.unwrap();
    let seen = world.by_hand(&format!("SELECT usage FROM task WHERE id = '{id}'")).unwrap();
    assert!(seen.contains("total_tokens") && seen.contains('7'), "{seen}");
    assert!(set("{}").unwrap_err().contains("windlass: "));
}

async fn a_pool_shows_the_tokens_of_the_last_minute(dialect: Dialect) {
    let world = World::new(dialect).await;
    let tokens = async || Pools::new(world.store.clone()).show("q").await.unwrap();
    for told in [Some(5), Some(windlass_domain::usage::MAX_TOKENS), None] {
        let held = world.running(inference()).await;
        let usage = told.map(|total_tokens| Usage { total_tokens, ..Usage::default() });
        finish(&world, Finish { usage, ..finish_of(&held, complete()) }).await.unwrap();
        if told == Some(5) {
            assert_eq!(tokens().await.unwrap().tokens_last_minute, 5);
        }
    }
    let all = tokens().await.unwrap();
    assert_eq!(all.finished_last_minute, 3);
    assert_eq!(all.tokens_last_minute, windlass_domain::usage::MAX_TOKENS as i64, "bounded");
    world.pass_ms(61_000);
    assert_eq!(tokens().await, None);
}
