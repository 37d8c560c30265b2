//! Group commit: concurrent requests of one kind share one transaction.
//!
//! Under load the batch fills by itself, while the batch before it is being synced; alone, a
//! request waits for nobody. No timer is involved.
//!
//! Invariant: every request gets its own items' outcomes, in order, whatever the others' items do.

use crate::error::{Error, Rejection};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// One item's outcome.
pub type Outcome<T> = Result<T, Rejection>;

type Running<T> = Pin<Box<dyn Future<Output = Vec<Outcome<T>>> + Send>>;

/// How much one transaction takes, and how many run at once.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Items in one transaction.
    pub items: usize,
    /// Bytes in one transaction, as `weigh` counts them.
    pub bytes: usize,
    /// Transactions at once, where that many pay: one fills while another is being synced.
    pub leaders: usize,
    /// Work that makes another transaction worth its own cost, as the group counts it: items,
    /// where nothing else is said. Less waits for the one under way: a transaction of twenty costs
    /// the database little more than one of ten, and two of ten cost twice as much.
    pub enough: usize,
    /// Items that may wait; more are told to try again.
    pub waiting: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Bounds { items: 1_000, bytes: 8 << 20, leaders: 2, enough: 128, waiting: 50_000 }
    }
}

/// A place where requests of one kind meet.
pub struct Group<I, T> {
    inner: Arc<Inner<I, T>>,
}

struct Inner<I, T> {
    name: &'static str,
    bounds: Bounds,
    weigh: fn(&I) -> usize,
    worth: fn(&I) -> usize,
    run: Box<dyn Fn(Vec<I>) -> Running<T> + Send + Sync>,
    queue: Mutex<Queue<I, T>>,
}

struct Queue<I, T> {
    requests: VecDeque<Request<I, T>>,
    items: usize,
    worth: usize,
    leaders: usize,
}

struct Request<I, T> {
    items: Vec<I>,
    bytes: usize,
    worth: usize,
    answer: oneshot::Sender<Vec<Outcome<T>>>,
}

impl<I: Send + 'static, T: Send + 'static> Group<I, T> {
    /// `run` gets the merged items and returns one outcome for each, in order.
    pub fn new<F>(
        name: &'static str,
        bounds: Bounds,
        weigh: fn(&I) -> usize,
        run: impl Fn(Vec<I>) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Vec<Outcome<T>>> + Send + 'static,
    {
        Group::with_worth(name, bounds, weigh, |_| 1, run)
    }

    /// The same, where one item may be as much work as many: `worth` says as how many.
    pub fn with_worth<F>(
        name: &'static str,
        bounds: Bounds,
        weigh: fn(&I) -> usize,
        worth: fn(&I) -> usize,
        run: impl Fn(Vec<I>) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Vec<Outcome<T>>> + Send + 'static,
    {
        let queue = Queue { requests: VecDeque::new(), items: 0, worth: 0, leaders: 0 };
        let run = Box::new(move |items| -> Running<T> { Box::pin(run(items)) });
        let queue = Mutex::new(queue);
        Group { inner: Arc::new(Inner { name, bounds, weigh, worth, run, queue }) }
    }

    /// Joins the next transaction. Must be called inside a tokio runtime.
    pub async fn join(&self, items: Vec<I>) -> Vec<Outcome<T>> {
        let count = items.len();
        if count == 0 {
            return Vec::new();
        }
        let bytes = items.iter().map(self.inner.weigh).sum();
        let worth = items.iter().map(self.inner.worth).sum();
        let (answer, answered) = oneshot::channel();
        let leads = {
            let mut queue = self.inner.lock();
            if queue.items + count > self.inner.bounds.waiting {
                let busy = Error::Busy(format!("too many items wait to {}", self.inner.name));
                return (0..count).map(|_| Err(busy.clone().into())).collect();
            }
            queue.items += count;
            queue.worth += worth;
            queue.requests.push_back(Request { items, bytes, worth, answer });
            let bounds = &self.inner.bounds;
            let pays = queue.leaders == 0 || queue.worth >= bounds.enough;
            let leads = pays && queue.leaders < bounds.leaders;
            queue.leaders += usize::from(leads);
            leads
        };
        let answered = match leads {
            true => Leading::new(Arc::clone(&self.inner)).until(answered).await,
            false => answered.await,
        };
        answered.unwrap_or_else(|_| {
            let lost = Error::Internal {
                operation: self.inner.name.into(),
                detail: "the transaction's task ended without an answer".into(),
            };
            (0..count).map(|_| Err(lost.clone().into())).collect()
        })
    }
}

impl<I, T> Inner<I, T> {
    fn lock(&self) -> MutexGuard<'_, Queue<I, T>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next requests that fit one transaction; a leader that finds none, or too few where
    /// another one leads, steps down, under the same lock, so that no request is left without one.
    fn next(&self) -> Option<Vec<Request<I, T>>> {
        let mut queue = self.lock();
        if queue.leaders > 1 && queue.worth < self.bounds.enough {
            queue.leaders -= 1;
            return None;
        }
        let (mut items, mut bytes, mut taken) = (0, 0, Vec::new());
        while let Some(next) = queue.requests.front() {
            items += next.items.len();
            bytes += next.bytes;
            let full = items > self.bounds.items || bytes > self.bounds.bytes;
            if full && !taken.is_empty() {
                break;
            }
            taken.extend(queue.requests.pop_front());
        }
        queue.items -= taken.iter().map(|r: &Request<I, T>| r.items.len()).sum::<usize>();
        queue.worth -= taken.iter().map(|r| r.worth).sum::<usize>();
        if taken.is_empty() {
            queue.leaders -= 1;
            return None;
        }
        Some(taken)
    }
}

/// Steps down when it ends early, so that the next request gets a new leader.
struct Leader<I, T> {
    inner: Arc<Inner<I, T>>,
    over: bool,
}

impl<I, T> Drop for Leader<I, T> {
    fn drop(&mut self) {
        if !self.over {
            self.inner.lock().leaders -= 1;
        }
    }
}

/// The leader's work, done by the request that began it until that has its answer: alone, nobody
/// else has to be woken. What is left then, or when its caller goes away, is done by a task.
struct Leading(Option<Pin<Box<dyn Future<Output = ()> + Send>>>);

impl Leading {
    fn new<I: Send + 'static, T: Send + 'static>(inner: Arc<Inner<I, T>>) -> Leading {
        Leading(Some(Box::pin(lead(Leader { inner, over: false }))))
    }

    async fn until<A>(
        mut self,
        mut answered: oneshot::Receiver<A>,
    ) -> Result<A, oneshot::error::RecvError> {
        poll_fn(|cx| {
            if let Some(work) = &mut self.0 {
                // A panic is this transaction's and not its caller's.
                let polled = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx)));
                if !matches!(polled, Ok(Poll::Pending)) {
                    self.0 = None;
                }
            }
            Pin::new(&mut answered).poll(cx)
        })
        .await
    }
}

impl Drop for Leading {
    fn drop(&mut self) {
        if let (Some(rest), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn(rest);
        }
    }
}

async fn lead<I: Send + 'static, T: Send + 'static>(mut leader: Leader<I, T>) {
    loop {
        // Whoever was just answered, or came together with the first, may join before the batch
        // is closed: everything that can run now runs once. Alone this costs a microsecond.
        tokio::task::yield_now().await;
        let Some(requests) = leader.inner.next() else {
            leader.over = true;
            return;
        };
        let mut items = Vec::with_capacity(requests.iter().map(|r| r.items.len()).sum());
        let mut answers = Vec::with_capacity(requests.len());
        for request in requests {
            answers.push((request.items.len(), request.answer));
            items.extend(request.items);
        }
        let mut outcomes = (leader.inner.run)(items).await.into_iter();
        for (count, answer) in answers {
            // The caller may have gone away; what was written stands.
            let _ = answer.send(outcomes.by_ref().take(count).collect());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::sync::Semaphore;

    /// How many transactions are under way when two items of this worth have come one by one.
    async fn under_way(worth: usize) -> usize {
        let (begun, may_end) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
        let (counted, ending) = (Arc::clone(&begun), Arc::clone(&may_end));
        let run = move |items: Vec<usize>| {
            counted.fetch_add(1, Ordering::SeqCst);
            let ending = Arc::clone(&ending);
            async move {
                let _ends = ending.acquire().await;
                items.into_iter().map(Ok).collect()
            }
        };
        let group = Group::with_worth("test", Bounds::default(), |_| 1, |worth| *worth, run);
        let group = Arc::new(group);
        let mut callers = Vec::new();
        for _ in 0..2 {
            let joining = Arc::clone(&group);
            callers.push(tokio::spawn(async move { joining.join(vec![worth]).await }));
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
        }
        let found = begun.load(Ordering::SeqCst);
        may_end.add_permits(2);
        for caller in callers {
            assert!(matches!(caller.await.unwrap()[..], [Ok(told)] if told == worth));
        }
        found
    }

    #[tokio::test]
    async fn an_item_that_is_worth_many_gets_a_transaction_beside_the_one_under_way() {
        assert_eq!(under_way(Bounds::default().enough).await, 2);
    }

    #[tokio::test]
    async fn an_item_that_is_worth_little_waits_for_the_one_under_way() {
        assert_eq!(under_way(1).await, 1);
    }
}
