//! `windlass serve`: the database, the engine and the HTTP API in one process.

use crate::config::{Config, Secret};
use crate::http::{self, Api, Keys, Nodes};
use crate::webhook::Webhooks;
use std::sync::Arc;
use std::time::Duration;
use windlass::domain::delegation::SweeperSettings;
use windlass::engine::SWEEPER;
use windlass::store::error::{Error, Result};
use windlass::store::migration;
use windlass::{Engine, Options};

/// Serves until the process is told to end.
pub async fn run(config: Config) -> Result<()> {
    log_panics();
    raise_file_limit();
    let keys: Vec<String> = config.keys.iter().map(|key| key.reveal().to_owned()).collect();
    let keys = Keys::parse(&keys).map_err(Error::Configuration)?;
    let webhooks = Webhooks::new(&config).map_err(Error::Configuration)?;
    let shutdown = Duration::from_millis(config.shutdown_ms);
    let delay = Duration::from_millis(config.shutdown_delay_ms);
    if delay > shutdown {
        return Err(Error::Configuration(format!(
            "`shutdown_delay_ms` is {} and must not be more than `shutdown_ms`, which is {}: the \
             delay is part of it",
            config.shutdown_delay_ms, config.shutdown_ms
        )));
    }
    let (sweeper, warnings) = SweeperSettings::read(|name| std::env::var(name).ok());
    warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    let options = Options {
        sweeper,
        without_duties: (!config.delegation_sweeper).then(|| SWEEPER.into()).into_iter().collect(),
        delegation_result_push: config.delegation_result_push,
        advertise: config.advertise.clone(),
        poll: Duration::from_millis(config.poll_ms.max(1)),
        alert_retention: (config.alert_retention_ms > 0)
            .then(|| Duration::from_millis(config.alert_retention_ms)),
        approvers: approvers(&config),
        inference_pending_timeout: Some(Duration::from_millis(config.inference_pending_timeout_ms)),
        inference_retention: Some(Duration::from_millis(config.inference_retention_ms)),
        inference_max_body: config.inference_max_body,
        inference_memory: config.inference_memory,
        ..Options::default()
    };
    let store = windlass::database::open_with(&config.database, config.unsafe_durability)?;
    // Before the schema is touched: a server that cannot be reached changes nothing.
    let listener = tokio::net::TcpListener::bind(config.listen).await.map_err(|error| {
        let address = config.listen;
        Error::Configuration(format!("cannot listen on {address}: {error}; choose another port"))
    })?;
    let address = listener.local_addr().unwrap_or(config.listen);
    let applied = migration::up(&store).await?;
    if !applied.is_empty() {
        tracing::info!(?applied, "the schema was brought up to date");
    }
    let engine = Engine::start(store, options).await.map_err(|error| match error {
        windlass::engine::Error::Store(error) => error,
        other => Error::Configuration(other.to_string()),
    })?;
    if let Some(webhooks) = webhooks {
        let batch = Duration::from_millis(config.webhook_batch_ms);
        engine.deliver_notices(Arc::new(webhooks), batch);
    }
    let threshold = i64::try_from(config.replay_approval_threshold).unwrap_or(i64::MAX);
    let cluster_key = config.cluster_key.as_ref();
    let api = Api::new(engine.clone(), keys)
        .with_replay_threshold(threshold)
        .with_cluster_key(cluster_key.map(Secret::reveal));
    if let Some(key) = cluster_key {
        engine.reach_nodes(Arc::new(Nodes::new(key.clone())));
    }
    // Before anybody is told that the server is there: whoever ends it at once ends it gracefully.
    let signals = Signals::new();
    tracing::info!(%address, node = %engine.node(), "windlass is listening");
    let routes = http::router(api);
    let draining = engine.clone();
    let stop = async {
        signals.next().await;
        tracing::info!("shutting down: no new work; requests may finish; signal again to end now");
        draining.drain();
    };
    let ending = http::Ending { delay, limit: shutdown };
    http::serve(listener, routes, stop, signals.next(), ending).await;
    engine.shutdown(shutdown).await;
    tracing::info!("bye");
    Ok(())
}

/// Who is sent tokens. Without a webhook nobody would get them, so none are made.
fn approvers(config: &Config) -> Vec<String> {
    if config.webhook_url.is_empty() && !config.approvers.is_empty() {
        tracing::warn!("`approvers` is set, but no `webhook_url`: nobody is sent a token");
        return Vec::new();
    }
    config.approvers.clone()
}

/// A panic is told like everything else: as a line of the log.
fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let payload = panic.payload();
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or(payload.downcast_ref::<String>().map(String::as_str));
        let place = panic.location().map(ToString::to_string);
        tracing::error!(
            panic = text.unwrap_or("no words"),
            place,
            "a panic: a defect of this server"
        );
    }));
}

/// Every connection is a file: as many as the system permits this process.
fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if limit.current != limit.maximum && setrlimit(Resource::Nofile, raised).is_err() {
        tracing::warn!(limit = ?limit.current, "the limit of open files could not be raised");
    }
}

/// SIGTERM and Ctrl-C, from the making on.
struct Signals {
    came: Arc<tokio::sync::Semaphore>,
}

impl Signals {
    fn new() -> Signals {
        use tokio::signal::unix::{SignalKind, signal};
        // One permit a signal: whoever asks for the next one gets also what came before it asked.
        let came = Arc::new(tokio::sync::Semaphore::new(0));
        for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
            match signal(kind) {
                Ok(mut signals) => {
                    let came = Arc::clone(&came);
                    tokio::spawn(async move {
                        while signals.recv().await.is_some() {
                            came.add_permits(1);
                        }
                    });
                }
                Err(error) => tracing::error!(%error, ?kind, "this signal cannot be heard"),
            }
        }
        Signals { came }
    }

    /// Resolves with the next signal.
    async fn next(&self) {
        match self.came.acquire().await {
            Ok(permit) => permit.forget(),
            // Nobody closes it.
            Err(_) => std::future::pending().await,
        }
    }
}
