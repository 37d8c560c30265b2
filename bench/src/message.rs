//! Idle latency of messages in process: from the call of send to the start of the receiver's
//! handler, beside one synced commit of the same database, and beside the least SQL that writes
//! what such a send keeps.

use crate::Result;
use crate::arguments::{Engine, Sizes};
use crate::floor::message::Floor;
use crate::load;
use crate::place::Place;
use crate::reference;
use crate::table::{Table, met, quantile, times};
use serde_json::json;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use windlass::domain::agent::AgentSpec;
use windlass::domain::message::SendRequest;
use windlass::sdk::MessageOptions;
use windlass::{Engine as Windlass, Options};

/// Between two messages, and between two commits.
const IDLE: Duration = Duration::from_millis(2);

pub async fn run(engine: &Engine, sizes: &Sizes) -> Result<()> {
    let place = Place::create(engine).await?;
    let windlass = Windlass::start(place.open()?.store().clone(), Options::default()).await?;
    let agents = windlass::store::agent::Agents::new(windlass.store().clone());
    let spec = AgentSpec { role: Some("ceo".into()), ..AgentSpec::default() };
    agents.put("ceo", spec, load::ACTOR).await?;
    let (started, mut starts) = mpsc::unbounded_channel();
    let handlers = windlass.handle_messages(MessageOptions::role("ceo"), move |_| {
        let _ = started.send(Instant::now());
        async { Ok(()) }
    });
    // The same rows, written by hand on a connection of their own: no rule, no handler.
    let beside = Place::create(engine).await?;
    let floor = Floor::create(&beside).await?;
    let mut least = Vec::new();
    let mut ours = Vec::new();
    let mut commits = Vec::new();
    // In turns, so that a noisy moment meets both.
    for _ in 0..sizes.latencies.div_ceil(20) {
        for _ in 0..20 {
            // All three wait: the last message is acknowledged.
            while windlass.idle_handlers() < 3 {
                tokio::time::sleep(Duration::from_micros(200)).await;
            }
            tokio::time::sleep(IDLE).await;
            let request = SendRequest {
                to: "ceo".into(),
                kind: "note".into(),
                payload: json!({ "text": "good morning" }),
                ..SendRequest::default()
            };
            let asked = Instant::now();
            let sending = windlass.send_message(request, load::ACTOR);
            let (sent, begun) = tokio::join!(sending, starts.recv());
            ours.push(begun.ok_or("the handlers are gone")? - asked);
            sent?;
        }
        commits.extend(reference::commit_times(engine, 20, IDLE).await?);
        for _ in 0..20 {
            tokio::time::sleep(IDLE).await;
            let asked = Instant::now();
            let sent = floor.send().await?;
            least.push(asked.elapsed());
            floor.acknowledge(sent).await?;
        }
    }
    handlers.stop().await;
    windlass.shutdown(Duration::from_secs(5)).await;
    place.remove().await?;
    drop(floor);
    beside.remove().await?;
    let mut table = Table::new(&[
        "idle, in process",
        "p50 µs",
        "p99 µs",
        "one synced commit p50 µs",
        "ratio of p50",
        "target",
    ]);
    let (p50, commit) = (quantile(&mut ours, 0.5), quantile(&mut commits, 0.5));
    let p99 = quantile(&mut ours, 0.99);
    let ratio = p50 / commit;
    let (least_p50, least_p99) = (quantile(&mut least, 0.5), quantile(&mut least, 0.99));
    table.row(vec![
        "its rows by hand, no rules, no handler".into(),
        format!("{least_p50:.0}"),
        format!("{least_p99:.0}"),
        format!("{commit:.0}"),
        times(least_p50 / commit),
        String::new(),
    ]);
    table.row(vec![
        "send to handler start".into(),
        format!("{p50:.0}"),
        format!("{p99:.0}"),
        format!("{commit:.0}"),
        times(ratio),
        met(ratio <= 2.0, "at most 2x"),
    ]);
    table.print("Messages");
    Ok(())
}
