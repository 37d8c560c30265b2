//! What the hot operations share: one statement for many items, and the fate of the others.
//!
//! Invariant: one bad item never fails its batch. Items of one task do not meet in one statement
//! but follow each other; a statement that fails on data is tried again in halves until the
//! culprit stands alone; an item whose guard did not hold is handed to `missed`, which says why.

use crate::error::{Error, Result};
use crate::group::Outcome;
use crate::store::{Lane, Store};
use crate::tx::Tx;
use crate::value::{Row, Value};
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use uuid::Uuid;

/// Which task a hot statement's row is about: PostgreSQL returns its id, SQLite the item's index.
pub(super) fn task_of(row: &Row, items: &[Uuid]) -> Result<Uuid> {
    let Some(Value::Int(index)) = row.0.first() else { return row.uuid(0) };
    let item = usize::try_from(*index).ok().and_then(|i| items.get(i));
    item.copied().ok_or_else(|| Error::Corrupt(format!("there is no item {index}")))
}

/// Runs one statement; gives the answers of the items whose guard held.
type Run<I, T> = fn(&mut dyn Tx, &[&I]) -> Result<HashMap<Uuid, T>>;
type Later<T> = Pin<Box<dyn Future<Output = Vec<Outcome<T>>> + Send>>;

/// A hot operation over items `I` with answers `T`.
pub(super) struct Hot<I: 'static, T: 'static> {
    /// The transaction's name.
    pub(super) name: &'static str,
    /// Which connection.
    pub(super) lane: Lane,
    /// Which task an item is about.
    pub(super) id: fn(&I) -> Uuid,
    /// Runs and commits the statement; returns the answers of the items whose guard held.
    pub(super) run: Run<I, T>,
    /// Answers for the items whose guard did not hold.
    pub(super) missed: fn(Store, Vec<I>) -> Later<T>,
}

impl<I: Clone + Send + Sync + 'static, T: Send + 'static> Hot<I, T> {
    /// One outcome for each item, in order.
    pub(super) async fn run(&self, store: &Store, items: Arc<Vec<I>>) -> Vec<Outcome<T>> {
        let mut outcomes: Vec<Option<Outcome<T>>> = Vec::new();
        outcomes.resize_with(items.len(), || None);
        let mut missed = Vec::new();
        let mut batches = self.rounds(&items);
        while let Some(batch) = batches.pop() {
            match self.run_batch(store, &items, &batch).await {
                Ok(mut answers) => {
                    for index in batch {
                        match answers.remove(&(self.id)(&items[index])) {
                            Some(answer) => outcomes[index] = Some(Ok(answer)),
                            None => missed.push(index),
                        }
                    }
                }
                Err(error) if error.is_about_data() && batch.len() > 1 => {
                    let half = batch.len() / 2;
                    batches.push(batch[half..].to_vec());
                    batches.push(batch[..half].to_vec());
                }
                Err(error) => {
                    for index in batch {
                        outcomes[index] = Some(Err(error.clone().into()));
                    }
                }
            }
        }
        missed.sort_unstable();
        self.fill_missed(store, &items, &missed, &mut outcomes).await;
        outcomes.into_iter().flatten().collect()
    }

    /// The items in rounds with no task twice in one round; the first round is the last here.
    fn rounds(&self, items: &[I]) -> Vec<Vec<usize>> {
        let mut seen: HashMap<Uuid, usize> = HashMap::with_capacity(items.len());
        let mut rounds: Vec<Vec<usize>> = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let round = seen.entry((self.id)(item)).or_default();
            if *round == rounds.len() {
                rounds.push(Vec::new());
            }
            rounds[*round].push(index);
            *round += 1;
        }
        rounds.reverse();
        rounds
    }

    async fn run_batch(
        &self,
        store: &Store,
        items: &Arc<Vec<I>>,
        batch: &[usize],
    ) -> Result<HashMap<Uuid, T>> {
        let (items, batch, run) = (Arc::clone(items), batch.to_vec(), self.run);
        let store = store.changing(batch.len());
        let body = move |tx: &mut dyn Tx| {
            let refs: Vec<&I> = batch.iter().map(|&i| &items[i]).collect();
            run(tx, &refs)
        };
        store.run(self.lane, self.name, body).await
    }

    async fn fill_missed(
        &self,
        store: &Store,
        items: &[I],
        missed: &[usize],
        outcomes: &mut [Option<Outcome<T>>],
    ) {
        if missed.is_empty() {
            return;
        }
        let cloned = missed.iter().map(|&i| items[i].clone()).collect();
        let answers = (self.missed)(store.clone(), cloned).await;
        for (&index, answer) in missed.iter().zip(answers) {
            outcomes[index] = Some(answer);
        }
    }
}
