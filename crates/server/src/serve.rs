//! The server: opens the database and answers HTTP until it is told to stop.

use crate::config::Config;

/// Serves until a signal comes.
pub async fn run(config: Config) -> Result<(), String> {
    let Config { listen, advertise, shutdown_ms, poll_ms, unsafe_durability, .. } = &config;
    tracing::debug!(advertise, shutdown_ms, poll_ms, unsafe_durability, "would serve");
    let cluster = if config.cluster_key.is_some() { " in a cluster" } else { "" };
    Err(format!("this build has no server yet; it would listen on {listen}{cluster}"))
}
