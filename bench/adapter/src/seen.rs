//! What handlers tell: how many ran, of which numbers, and when the watched one began.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tokio::sync::oneshot;

/// Shared by all handlers; cheap to clone.
#[derive(Clone, Default)]
pub struct Seen {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    count: AtomicU64,
    sum: AtomicU64,
    /// The watched number, plus one.
    watched: AtomicU64,
    began: Mutex<Option<oneshot::Sender<Instant>>>,
    /// Whether the next one is the first of a drain, and when that was.
    is_first: AtomicBool,
    first: Mutex<Option<Instant>>,
}

impl std::fmt::Debug for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seen").field("count", &self.count()).finish()
    }
}

impl Seen {
    /// A handler begins.
    pub fn handle(&self, number: u64) {
        let inner = &self.inner;
        if inner.watched.load(Ordering::Acquire) == number.wrapping_add(1) {
            let mut began = inner.began.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(began) = began.take() {
                let _ = began.send(Instant::now());
            }
        }
        if inner.is_first.load(Ordering::Relaxed) && inner.is_first.swap(false, Ordering::AcqRel) {
            *inner.first.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        }
        inner.sum.fetch_add(number, Ordering::Relaxed);
        inner.count.fetch_add(1, Ordering::AcqRel);
    }

    /// How many handlers began.
    pub fn count(&self) -> u64 {
        self.inner.count.load(Ordering::Acquire)
    }

    /// The sum of their numbers: with the count it shows whether one ran twice instead of another.
    pub fn sum(&self) -> u64 {
        self.inner.sum.load(Ordering::Acquire)
    }

    /// From now on the first one is of interest.
    pub fn expect_first(&self) {
        *self.inner.first.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.inner.is_first.store(true, Ordering::Release);
    }

    /// When the first one began, if it has.
    pub fn first(&self) -> Option<Instant> {
        *self.inner.first.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells when the handler of this number begins.
    pub fn watch(&self, number: u64) -> oneshot::Receiver<Instant> {
        let (began, begins) = oneshot::channel();
        *self.inner.began.lock().unwrap_or_else(PoisonError::into_inner) = Some(began);
        self.inner.watched.store(number.wrapping_add(1), Ordering::Release);
        begins
    }
}
