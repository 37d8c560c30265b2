//! Whether the upstream answers, asked again and again.
//!
//! Invariant: a provider takes nothing new while its upstream does not answer. What it holds goes
//! on: a slow answer may still come.

use super::Upstream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::watch;

/// How often an upstream that does not answer is asked, at least.
const IMPATIENT: Duration = Duration::from_secs(1);
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is known of the upstream.
pub struct Health {
    is_well: watch::Sender<bool>,
    /// It has no list of models. Some servers have none; others are asked at the wrong address.
    has_no_models: AtomicBool,
}

impl Health {
    /// Nothing is known; taken for ill until it answers.
    pub fn new() -> Health {
        Health { is_well: watch::Sender::new(false), has_no_models: AtomicBool::new(false) }
    }

    /// Whether the upstream may be at another address than we were told.
    pub fn is_elsewhere(&self) -> bool {
        self.has_no_models.load(Ordering::Relaxed)
    }

    /// Resolves when the upstream is well, or ill.
    pub async fn is(&self, well: bool) {
        let mut is_well = self.is_well.subscribe();
        // The sender lives in `self`.
        let _ = is_well.wait_for(|is_well| *is_well == well).await;
    }

    /// A call found nobody there; the next check decides.
    pub fn doubt(&self, why: &str) {
        if self.is_well.send_replace(false) {
            tracing::warn!(why, "the upstream does not answer; taking nothing new");
        }
    }
}

/// Asks until the provider ends.
pub async fn watch(upstream: &Upstream, every: Duration) {
    let health = &upstream.health;
    let mut is_told = false;
    loop {
        let found = check(upstream).await;
        let was_well = *health.is_well.borrow();
        match found {
            Ok(()) => {
                is_told = false;
                if !health.is_well.send_replace(true) {
                    tracing::info!(upstream = upstream.base, "the upstream answers; taking work");
                }
            }
            Err(why) => {
                health.is_well.send_replace(false);
                if was_well || !is_told {
                    let upstream = &upstream.base;
                    tracing::warn!(upstream, why, "the upstream is ill; taking nothing new");
                }
                is_told = true;
            }
        }
        // A doubt that comes meanwhile is settled soon.
        tokio::select! {
            () = tokio::time::sleep(every) => {}
            () = health.is(false) => tokio::time::sleep(every.min(IMPATIENT)).await,
        }
    }
}

/// Whether the upstream answers. A server without a list of models is well, too.
async fn check(upstream: &Upstream) -> Result<(), String> {
    let asked = upstream.request(reqwest::Method::GET, "models").timeout(PATIENCE).send().await;
    let status = asked.map_err(|error| super::cause(&error))?.status();
    let is_missing = status.as_u16() == 404;
    let was_missing = upstream.health.has_no_models.swap(is_missing, Ordering::Relaxed);
    if is_missing && !was_missing {
        let url = format!("{}/models", upstream.base);
        tracing::warn!(
            url,
            "the upstream has no list of models: is --upstream right, with /v1 at its end? Work is \
             taken all the same, for servers without such a list"
        );
    }
    match status.as_u16() {
        401 | 403 => Err(format!("it answered {status}: check --upstream-key-env")),
        500.. => Err(format!("it answered {status}")),
        _ => Ok(()),
    }
}
