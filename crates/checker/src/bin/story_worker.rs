//! An agent as a process of its own, so that it can be killed in the middle of its story.
//!
//! Arguments: the server's URL, the file where its effects go, and `hold` if it must stop after its
//! second step, for somebody to kill it. Effects are synced before their steps are recorded.

use serde_json::{Value, json};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use windlass::remote::Remote;
use windlass::sdk::{Ctx, Failure, Handlers, Result};
use windlass::worker::WorkerOptions;

struct Story {
    effects: PathBuf,
    hold: bool,
}

impl Story {
    /// What the world sees of a step.
    async fn happens(&self, ctx: &Ctx, what: &str) -> Result<Value> {
        let mut file = File::options().create(true).append(true).open(&self.effects)?;
        writeln!(file, "{} {what}", ctx.task().id)?;
        file.sync_data()?;
        Ok(json!({ "did": what }))
    }

    /// Six steps with a gate before the fourth, which must not run twice.
    async fn agent(&self, ctx: Ctx, topic: Value) -> Result<Value> {
        ctx.step("read", || self.happens(&ctx, "read")).inputs(&topic).await?;
        ctx.step("plan", || self.happens(&ctx, "plan")).await?;
        if self.hold {
            let _ = self.happens(&ctx, "hold").await?;
            return std::future::pending().await;
        }
        ctx.step("draft", || self.happens(&ctx, "draft")).await?;
        ctx.approve("publish", "publish the report", &json!({ "topic": topic })).await?;
        ctx.step("publish", || self.happens(&ctx, "publish")).once().await?;
        ctx.step("notify", || self.happens(&ctx, "notify")).await?;
        ctx.step("close", || self.happens(&ctx, "close")).await
    }

    /// Fails until somebody mends the world.
    async fn broken(&self, ctx: Ctx, _: Value) -> Result<Value> {
        ctx.step("fetch", || self.happens(&ctx, "fetch")).await?;
        if !mended(&self.effects).exists() {
            return Err(Failure::new("TIMEOUT", "the other side does not answer"));
        }
        ctx.step("store", || self.happens(&ctx, "store")).await
    }
}

fn mended(effects: &Path) -> PathBuf {
    effects.with_extension("mended")
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let (Some(server), Some(effects)) = (arguments.next(), arguments.next()) else {
        panic!("usage: windlass-story-worker SERVER EFFECTS [hold]");
    };
    let hold = arguments.next().is_some_and(|word| word == "hold");
    let story = Arc::new(Story { effects: effects.into(), hold });
    let (agent, broken) = (Arc::clone(&story), story);
    let handlers = Handlers::new()
        .on("agent", move |ctx, topic| {
            let story = Arc::clone(&agent);
            async move { story.agent(ctx, topic).await }
        })
        .on("broken", move |ctx, input| {
            let story = Arc::clone(&broken);
            async move { story.broken(ctx, input).await }
        });
    let remote = Remote::new(&server, None).expect("a server's URL");
    let options = WorkerOptions { lease_ms: Some(1_000), ..WorkerOptions::queue("agent", "q", 4) };
    let worker = remote.run(options, handlers).await.expect("the server takes workers");
    worker.done().await;
}
