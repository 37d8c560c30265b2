//! `windlass serve`: the database, the engine and the HTTP API in one process.

use crate::http::{self, Api, Keys};
use std::net::SocketAddr;
use std::time::Duration;
use windlass::store::error::{Error, Result};
use windlass::store::migration;
use windlass::{Engine, Options};

/// How a server runs.
#[derive(Clone, Debug)]
pub struct Serve {
    /// `sqlite:PATH` or `postgres://…`.
    pub database: String,
    /// Where it listens.
    pub listen: SocketAddr,
    /// The keys it takes.
    pub keys: Keys,
    /// How the engine runs.
    pub options: Options,
    /// How long running work may take at the end.
    pub shutdown: Duration,
}

/// Serves until the process is told to end.
pub async fn run(serve: Serve) -> Result<()> {
    if !serve.listen.ip().is_loopback() && serve.keys.is_empty() {
        return Err(Error::Configuration(format!(
            "{} can be reached from other machines, and no keys are configured: set keys, or \
             listen on 127.0.0.1",
            serve.listen
        )));
    }
    let store = windlass::database::open(&serve.database)?;
    let applied = migration::up(&store).await?;
    if !applied.is_empty() {
        tracing::info!(?applied, "the schema was brought up to date");
    }
    let listener = tokio::net::TcpListener::bind(serve.listen).await.map_err(|error| {
        let address = serve.listen;
        Error::Configuration(format!("cannot listen on {address}: {error}; choose another port"))
    })?;
    let address = listener.local_addr().unwrap_or(serve.listen);
    let engine = Engine::start(store, serve.options).await.map_err(|error| match error {
        windlass::engine::Error::Store(error) => error,
        other => Error::Configuration(other.to_string()),
    })?;
    tracing::info!(%address, node = %engine.node(), "windlass is listening");
    let routes = http::router(Api::new(engine.clone(), serve.keys));
    let draining = engine.clone();
    let stop = async move {
        told_to_end().await;
        tracing::info!("shutting down: no new work; requests may finish");
        draining.drain();
    };
    http::serve(listener, routes, stop, serve.shutdown).await;
    engine.shutdown(serve.shutdown).await;
    tracing::info!("bye");
    Ok(())
}

/// SIGTERM or Ctrl-C.
async fn told_to_end() {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut terminate) = signal(SignalKind::terminate()) else {
        return drop(tokio::signal::ctrl_c().await);
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
}
