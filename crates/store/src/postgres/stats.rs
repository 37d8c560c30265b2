//! What the adapter counts, for metrics and tests.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts since the database was opened.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Stats {
            $($(#[$doc])* pub $name: u64,)*
        }

        /// The same, counting.
        #[derive(Default)]
        pub(super) struct Counters {
            $(pub $name: AtomicU64,)*
        }

        impl Counters {
            pub fn snapshot(&self) -> Stats {
                Stats { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}
counters! {
    /// Jobs that were answered.
    jobs,
    /// Runs repeated because of a deadlock.
    deadlock_retries,
    /// Runs repeated because of a serialization failure.
    serialization_retries,
    /// Connections made after the first of each thread.
    reconnects,
    /// Commits whose answer was in doubt.
    ambiguous_commits,
    /// Warnings that the server sent.
    warnings,
    /// Bodies that panicked.
    panics,
}

/// One more.
pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
