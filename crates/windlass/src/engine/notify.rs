//! Sending notices: the duty between the outbox and whoever delivers.
//!
//! Invariant: at least once. A notice is taken for a try, handed to every receiver that does not
//! have it yet, and settled; if this node dies in between, another one tries again under the same
//! id after a minute. A receiver that fails holds up no other.
//! Absent: how a receiver is reached. The server brings that ([`Deliver`]); without one, notices
//! are only stored.

use futures_util::future::join_all;
use serde_json::{Value as Json, json};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use uuid::Uuid;
use windlass_domain::notice::Severity;
use windlass_domain::time::Timestamp;
use windlass_store::notice::{Claimed, Settled};

use super::duty::{Duty, Report, Sweep};
use super::{Engine, Result};

/// How often the outbox is looked at.
const EVERY: Duration = Duration::from_secs(1);
/// How many urgent notices are on their way at once.
const URGENT_AT_ONCE: usize = 20;
/// How many notices go together at most.
const BATCH: usize = 100;
/// How many rounds one look takes at most: a flood must not hold up the shutdown.
const ROUNDS: usize = 50;

/// What is handed to a receiver: one urgent notice, or many others.
#[derive(Clone, Debug, PartialEq)]
pub struct Parcel {
    /// The id of the first notice in it.
    pub id: Uuid,
    /// When this try began, by the database's clock.
    pub at: Timestamp,
    /// What is sent: `{"notices": [{id, kind, severity, subject_id, created_at, body}]}`.
    pub content: Json,
}

/// A delivery under way: why it failed, in words.
pub type Delivery<'a> = Pin<Box<dyn Future<Output = Result<(), String>> + Send + 'a>>;

/// Reaches receivers.
pub trait Deliver: Send + Sync + 'static {
    /// Names of the receivers: stable, shown to users, free of secrets.
    fn receivers(&self) -> Vec<String>;
    /// Hands a parcel to one of them. Must end by itself within 30 seconds.
    fn deliver<'a>(&'a self, receiver: &'a str, parcel: &'a Parcel) -> Delivery<'a>;
}

/// What became of notices on this node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // The names say it.
pub struct NoticeStats {
    pub delivered: u64,
    pub put_off: u64,
    pub given_up: u64,
}

#[derive(Default)]
pub(super) struct Counted {
    delivered: AtomicU64,
    put_off: AtomicU64,
    given_up: AtomicU64,
}

struct Sender {
    deliver: Arc<dyn Deliver>,
    batch_ms: i64,
}

impl Duty for Sender {
    fn name(&self) -> &'static str {
        "notices"
    }

    fn every(&self) -> Duration {
        EVERY
    }

    fn sweep<'a>(&'a self, engine: &'a Engine) -> Sweep<'a> {
        Box::pin(async { self.send(engine).await })
    }
}

impl Sender {
    async fn send(&self, engine: &Engine) -> Result<Report> {
        let mut report = Report::default();
        for severity in Severity::ALL {
            for _ in 0..ROUNDS {
                let limit = if severity.is_urgent() { URGENT_AT_ONCE } else { BATCH };
                let claimed = engine.notices().claim(*severity, self.batch_ms, limit).await?;
                if claimed.is_empty() {
                    break;
                }
                report.scanned += claimed.len();
                let settled = if severity.is_urgent() {
                    let each = claimed.chunks(1).map(|one| self.hand_over(one));
                    join_all(each).await.into_iter().flatten().collect()
                } else {
                    self.hand_over(&claimed).await
                };
                let done = engine.notices().settle(settled).await?;
                report.changed += done.delivered + done.given_up;
                let counted = &engine.inner.notified;
                let add = |counter: &AtomicU64, n| counter.fetch_add(n as u64, Ordering::Relaxed);
                add(&counted.delivered, done.delivered);
                add(&counted.put_off, done.put_off);
                add(&counted.given_up, done.given_up);
                if done.given_up > 0 {
                    tracing::warn!(given_up = done.given_up, "notices were given up");
                }
            }
        }
        Ok(report)
    }

    /// Hands notices to everybody who lacks one of them, and says who has which now.
    async fn hand_over(&self, claimed: &[Claimed]) -> Vec<Settled> {
        let receivers = self.deliver.receivers();
        let tries = receivers.iter().map(|receiver| self.hand_to(receiver, claimed));
        let failures: Vec<Option<String>> = join_all(tries).await;
        let mut settled = Vec::new();
        for item in claimed {
            let mut had = item.notice.delivered_to.clone();
            let mut errors = Vec::new();
            for (receiver, failure) in receivers.iter().zip(&failures) {
                match failure {
                    _ if had.contains(receiver) => {}
                    None => had.push(receiver.clone()),
                    Some(error) => errors.push(format!("{receiver}: {error}")),
                }
            }
            settled.push(Settled {
                id: item.notice.id,
                tries: item.notice.tries,
                delivered_to: had,
                error: (!errors.is_empty()).then(|| errors.join("; ")),
            });
        }
        settled
    }

    async fn hand_to(&self, receiver: &String, claimed: &[Claimed]) -> Option<String> {
        let missing = claimed.iter().filter(|item| !item.notice.delivered_to.contains(receiver));
        let missing: Vec<&Claimed> = missing.collect();
        let (id, at) = missing.first().map(|item| (item.notice.id, item.at))?;
        let notices: Vec<Json> = missing.into_iter().map(told).collect();
        let parcel = Parcel { id, at, content: json!({ "notices": notices }) };
        let failed = self.deliver.deliver(receiver, &parcel).await.err();
        if let Some(error) = &failed {
            tracing::warn!(%receiver, notice = %id, %error, "a notice was not taken; tried again");
        }
        failed
    }
}

/// A notice as its receiver sees it.
fn told(item: &Claimed) -> Json {
    let mut body = item.notice.body.clone();
    if let (Json::Object(fields), Some(Json::Object(sealed))) = (&mut body, &item.sealed) {
        fields.extend(sealed.clone());
    }
    json!({
        "id": item.notice.id,
        "kind": item.notice.kind,
        "severity": item.notice.severity,
        "subject_id": item.notice.subject_id,
        "created_at": item.notice.created_at,
        "body": body,
    })
}

impl Engine {
    /// Sends notices from now on: urgent ones at once, the others when the oldest of them has
    /// waited for `batch`. On many nodes one of them sends.
    pub fn deliver_notices(&self, deliver: Arc<dyn Deliver>, batch: Duration) {
        let batch_ms = i64::try_from(batch.as_millis()).unwrap_or(i64::MAX);
        self.add_duty(Arc::new(Sender { deliver, batch_ms }));
    }

    /// What became of notices on this node.
    pub fn notice_stats(&self) -> NoticeStats {
        let counted = &self.inner.notified;
        NoticeStats {
            delivered: counted.delivered.load(Ordering::Relaxed),
            put_off: counted.put_off.load(Ordering::Relaxed),
            given_up: counted.given_up.load(Ordering::Relaxed),
        }
    }

    /// Gives up what nobody tried to send for a day.
    pub async fn expire_notices(&self) -> Result<Report> {
        let changed = self.notices().expire(super::duty::BATCH).await?;
        Ok(Report { scanned: changed, changed })
    }
    /// Forgets alerts that somebody acknowledged, and notices that ended, long ago.
    pub async fn forget_alerts(&self) -> Result<Report> {
        let Some(keep) = self.inner.options.alert_retention else { return Ok(Report::default()) };
        let keep_ms = i64::try_from(keep.as_millis()).unwrap_or(i64::MAX);
        let alerts = self.alerts().forget(keep_ms, super::duty::BATCH).await?;
        let notices = self.notices().forget(keep_ms, super::duty::BATCH).await?;
        Ok(Report { scanned: alerts + notices, changed: alerts + notices })
    }
}
