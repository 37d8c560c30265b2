//! The signals that ask a program to end, for those who have something to clear up.
//!
//! Absent: the server's own (`serve.rs`), which must not miss one that came while nobody waited.

use tokio::signal::unix::{SignalKind, signal};

/// SIGTERM, SIGINT and SIGHUP, from the making on.
pub struct Signals {
    kinds: Vec<(i32, tokio::signal::unix::Signal)>,
}

impl Signals {
    /// Listens from now on: none of them ends the program by itself any more.
    pub fn new() -> Signals {
        let kinds = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()];
        let listen = |kind: SignalKind| Some((kind.as_raw_value(), signal(kind).ok()?));
        Signals { kinds: kinds.into_iter().filter_map(listen).collect() }
    }

    /// Resolves with the number of the next one.
    pub async fn next(&mut self) -> i32 {
        let each = self.kinds.iter_mut().map(|(number, signal)| {
            let number = *number;
            Box::pin(async move {
                signal.recv().await;
                number
            })
        });
        let each: Vec<_> = each.collect();
        if each.is_empty() {
            return std::future::pending().await;
        }
        futures_util::future::select_all(each).await.0
    }
}
