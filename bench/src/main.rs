//! `store-bench`: measures the store against the least SQL that could do the same work, and the
//! service against the store.
//!
//! Invariant: every figure of ours stands beside its floor's, measured in the same run, in turns,
//! so that a noisy machine disturbs both; only the ratios are claims. The result is Markdown.
//!
//! Absent: an exit code that depends on timing. A machine that others use must not fail a build.

mod arguments;
mod claim_cost;
mod crowd;
mod disk;
mod facts;
mod floor;
mod flow;
mod group_commit;
mod hot;
mod http;
mod inference;
mod kept;
mod latency;
mod load;
mod message;
mod place;
mod reference;
mod server;
mod side;
mod snapshot;
mod steps;
mod table;
mod wake;

use arguments::{Arguments, Engine};
use std::process::ExitCode;

/// What may go wrong: anything; a benchmark only reports it.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn main() -> ExitCode {
    let arguments = match Arguments::read(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(wrong) => {
            eprintln!("store-bench: {wrong}\n\n{}", arguments::USAGE);
            return ExitCode::from(2);
        }
    };
    // reqwest brings TLS without saying whose.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let ran = runtime.map_err(Into::into).and_then(|runtime| runtime.block_on(run(&arguments)));
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("store-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: &Arguments) -> Result<()> {
    facts::print(arguments).await?;
    for engine in &arguments.engines {
        println!("\n## {}", engine.name());
        if arguments.wants("reference") {
            reference::run(engine, &arguments.sizes).await?;
        }
        if arguments.wants("hot") {
            hot::run(engine, &arguments.sizes).await?;
        }
        if arguments.wants("kept") {
            kept::run(engine, &arguments.sizes).await?;
        }
        if arguments.wants("group") {
            group_commit::run(engine, &arguments.sizes).await?;
        }
        if arguments.wants("claim") {
            claim_cost::run(engine, &arguments.sizes).await?;
        }
        if arguments.wants("snapshot") && matches!(engine, Engine::Postgres { .. }) {
            snapshot::run(engine, &arguments.sizes).await?;
        }
        if arguments.wants("disk") {
            disk::run(engine, &arguments.sizes).await?;
        }
        if arguments.wants("latency") {
            latency::run(engine, &arguments.sizes).await?;
        }
        if arguments.wants("http") {
            http::run(engine, &arguments.sizes).await?;
        }
        if arguments.wants("crowd") {
            crowd::run(engine, &arguments.sizes).await?;
        }
        if arguments.wants("steps") {
            steps::run(engine, &arguments.sizes).await?;
        }
        if arguments.wants("wake") {
            wake::run(engine, &arguments.sizes).await?;
        }
        if arguments.wants("flow") {
            flow::run(engine, &arguments.sizes).await?;
        }
        if arguments.wants("inference") {
            inference::run(engine, &arguments.sizes).await?;
        }
        if arguments.wants("message") {
            message::run(engine, &arguments.sizes).await?;
        }
    }
    Ok(())
}
