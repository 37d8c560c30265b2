//! How close this system is to its limits: measured twice a second, and told for nothing.
//!
//! Invariant: whoever asks reads memory, never the database, so that every answer to a submit can
//! say it. What is told is about a second old at most; a node that cannot measure tells the last.
//! Absent: every decision. Claims and submits count for themselves.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};
use tokio::sync::Mutex;
use windlass_domain::limit::{
    Backpressure, Drain, Key, Level, Load, Mode, Names, Scope, Stop, backpressure,
};
use windlass_store::task::{Position, Traffic};

use super::{Engine, Inner, Result};

/// How often it is measured.
const EVERY: Duration = Duration::from_millis(500);

pub(super) struct Pressure {
    /// The level as its place among all levels.
    level: AtomicU8,
    told: RwLock<Arc<Backpressure>>,
    /// One measures at a time.
    measuring: Mutex<Measuring>,
}

struct Measuring {
    drain: Drain,
    began: Instant,
    last: Option<Look>,
    /// Since when tasks have been pending and none has left.
    still_since_ms: Option<i64>,
}

/// What the look before showed.
#[derive(Clone, Copy)]
struct Look {
    at_ms: i64,
    position: Position,
    waited: bool,
}

impl Default for Pressure {
    fn default() -> Self {
        Pressure {
            level: AtomicU8::new(0),
            told: RwLock::new(Arc::new(backpressure(&Load::default()))),
            measuring: Mutex::new(Measuring {
                drain: Drain::default(),
                began: Instant::now(),
                last: None,
                still_since_ms: None,
            }),
        }
    }
}

impl Measuring {
    /// Adds what a look showed; returns what left lately, and how long that took.
    fn add(&mut self, traffic: &Traffic, is_paused: bool, at_ms: i64) -> (i64, i64) {
        // Where people let nothing begin, that nothing leaves says nothing about the pace.
        let waited = traffic.in_line > 0 && !is_paused;
        if let Some(before) = self.last {
            let span = at_ms - before.at_ms;
            self.drain.record(at_ms, span, traffic.left, waited || before.waited);
        }
        let is_still = traffic.pending > 0 && traffic.left == 0;
        self.still_since_ms = self.still_since_ms.or(Some(at_ms)).filter(|_| is_still);
        self.last = Some(Look { at_ms, position: traffic.position, waited });
        self.drain.lately()
    }

    fn still_ms(&self, at_ms: i64) -> i64 {
        self.still_since_ms.map_or(0, |since| at_ms - since)
    }
}

impl Engine {
    /// How close the system is to its limits, as last measured.
    pub fn backpressure(&self) -> Arc<Backpressure> {
        Arc::clone(&self.inner.pressure.told.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The level alone: one atomic read.
    pub fn pressure_level(&self) -> Level {
        let place = self.inner.pressure.level.load(Ordering::Relaxed);
        Level::ALL.get(usize::from(place)).copied().unwrap_or(Level::Critical)
    }

    /// When to submit again after the limit on pending tasks of this key has refused it. It
    /// follows the pace of the whole system, and what people have stopped.
    pub fn come_back_after_ms(&self, key: &Key) -> i64 {
        let limits = self.inner.tasks.limits();
        let is_stopped = limits.is_some_and(|limits| limits.is_stopped(key));
        self.backpressure().come_back_after_ms(is_stopped)
    }

    /// Measures now.
    pub async fn measure_pressure(&self) -> Result<Arc<Backpressure>> {
        self.inner.measure_pressure().await?;
        Ok(self.backpressure())
    }

    /// Measures once before anybody can ask, then again and again.
    pub(super) async fn watch_pressure(&self) {
        if let Err(error) = self.inner.measure_pressure().await {
            tracing::debug!(%error, "the pressure cannot be measured for now");
        }
        self.spawn_every("pressure", EVERY, |inner| async move {
            if let Err(error) = inner.measure_pressure().await {
                tracing::debug!(%error, "the pressure cannot be measured for now");
            }
        });
    }
}

impl Inner {
    fn stop_of_everything(&self) -> Option<Stop> {
        let flow = self.limits.flow();
        let kept = flow.pauses.iter().find(|kept| kept.pause.scope == Scope::Global)?;
        Some(Stop {
            mode: kept.pause.mode,
            by: kept.by.clone(),
            since: kept.since,
            reason: kept.pause.reason.clone(),
        })
    }

    async fn measure_pressure(&self) -> Result<()> {
        let mut measuring = self.pressure.measuring.lock().await;
        let after = match measuring.last {
            Some(look) => look.position,
            None => self.tasks.head().await?,
        };
        let traffic = self.tasks.traffic(after).await?;
        let at_ms = measuring.began.elapsed().as_millis() as i64;
        let stop = self.stop_of_everything();
        let is_paused = stop.as_ref().is_some_and(|stop| stop.mode == Mode::Pause);
        let (drained, drained_over_ms) = measuring.add(&traffic, is_paused, at_ms);
        let limits = self.tasks.limits();
        let bounds = limits.map(|limits| limits.binding(&Names::default())).unwrap_or_default();
        let told = backpressure(&Load {
            active: traffic.active,
            max_active: bounds.first().and_then(|all| all.max_active),
            pending: traffic.pending,
            max_pending: bounds.first().and_then(|all| all.max_pending),
            held_back: traffic.held_back,
            in_line: traffic.in_line,
            stop,
            drained,
            drained_over_ms,
            still_ms: measuring.still_ms(at_ms),
        });
        let place = Level::ALL.iter().position(|level| *level == told.level).unwrap_or_default();
        self.pressure.level.store(place as u8, Ordering::Relaxed);
        *self.pressure.told.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(told);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_still_for_as_long_as_tasks_are_pending_and_none_leaves() {
        let mut measuring = Pressure::default().measuring.into_inner();
        let mut still = |at_ms, pending, left| {
            let traffic = Traffic { pending, left, ..Traffic::default() };
            measuring.add(&traffic, false, at_ms);
            measuring.still_ms(at_ms)
        };
        assert_eq!((still(0, 0, 0), still(500, 3, 0)), (0, 0), "it has just filled up");
        assert_eq!((still(1_000, 3, 0), still(9_000, 5, 0)), (500, 8_500));
        assert_eq!((still(9_500, 4, 1), still(10_000, 4, 0)), (0, 0), "one has left");
        assert_eq!((still(12_000, 4, 0), still(12_500, 0, 0)), (2_000, 0), "nobody waits");
    }
}
