//! Which entries of the log a follower wants, by what their tasks are.
//!
//! Invariant: what a task is filtered by was said when it was submitted and never changes, so a
//! task is asked for once and then known, up to a bound.
//! Absent: the tail. It reads the log for all followers, and nothing about tasks: whoever filters
//! pays for it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use windlass_domain::id::TaskId;
use windlass_store::error::Result;
use windlass_store::task::{Filter, Tasks};

use super::log::Entry;

/// How many tasks are known at most; beyond, all are asked for again.
const KNOWN: usize = 10_000;

pub(super) struct Sieve {
    filter: Filter,
    known: HashMap<TaskId, bool>,
}

impl Sieve {
    /// `None`: everything fits.
    pub(super) fn new(filter: Filter) -> Option<Sieve> {
        (filter != Filter::default()).then(|| Sieve { filter, known: HashMap::new() })
    }

    /// Those entries whose tasks fit.
    pub(super) async fn fitting(
        &mut self,
        tasks: &Tasks,
        entries: Vec<Arc<Entry>>,
    ) -> Result<Vec<Arc<Entry>>> {
        if self.known.len() > KNOWN {
            self.known.clear();
        }
        let ids = entries.iter().map(|entry| entry.history.task_id);
        let unknown: HashSet<TaskId> = ids.filter(|id| !self.known.contains_key(id)).collect();
        if !unknown.is_empty() {
            let unknown: Vec<TaskId> = unknown.into_iter().collect();
            let fit = tasks.among(self.filter.clone(), unknown.clone()).await?;
            self.known.extend(unknown.into_iter().map(|id| (id, fit.contains(&id))));
        }
        let fits = |entry: &Arc<Entry>| self.known.get(&entry.history.task_id) == Some(&true);
        Ok(entries.into_iter().filter(fits).collect())
    }
}
