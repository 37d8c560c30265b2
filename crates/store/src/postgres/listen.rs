//! Wake-ups between nodes: LISTEN and NOTIFY on a connection of their own.
//!
//! A wake-up means "look now" and nothing else. It may be lost, and everybody polls as well. It is
//! sent outside the transaction it speaks of, because NOTIFY makes commits wait for each other, and
//! together with whatever else is to be told by then. A node that is alone tells nobody: listeners
//! greet each other, at once when one begins and now and then after that.
//!
//! Invariant: whoever listens is told to look at everything each time a connection was made:
//! what was told before it is gone.
//! Absent: behind a transaction pooler nobody listens, there is only polling (see `pooler`).
//! Whatever else may swallow wake-ups is noticed by a word to oneself.

use super::Shared;
use super::lane::{Backoff, runtime, sleep_until};
use crate::error::{Error, Result};
use crate::store::Wake;
use std::collections::HashSet;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::{Notify, mpsc};
use tokio_postgres::AsyncMessage;
use tokio_postgres::types::Type;

/// What `windlass_submit` tells too: a queue has work.
const READY: &str = "windlass_ready";
/// Something happened to some task.
const EVENT: &str = "windlass_event";
/// Text of some task comes, or is wanted.
const STREAM: &str = "windlass_stream";
/// Some inbox has something.
const MESSAGE: &str = "windlass_message";
/// The word to oneself, and the greetings of those who listen.
const PROBE: &str = "windlass_probe";
/// How long the word to oneself may take.
const PROBE_LIMIT: Duration = Duration::from_secs(3);
/// The first word of whoever begins to listen; everybody answers it.
const HELLO: &str = "hello";
/// That answer, and what everybody says now and then, unasked.
const HERE: &str = "here";
const GREET_EVERY: Duration = Duration::from_secs(5);
/// How long the answer to the first greeting may take; a later one still counts.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);
/// Nobody else is there who was silent for so long: a few greetings may be lost.
const SILENT_AFTER: Duration = Duration::from_secs(20);
/// How long others may learn later that something happened: what follows at once goes with it, and
/// telling takes nothing from those who wait for an answer. Whatever is to be done is told at once.
const EVENT_DELAY: Duration = Duration::from_millis(3);
/// More queues than this are told as "everything".
const MOST_QUEUES: usize = 100;

/// What is to be told, and whether anybody can hear.
#[derive(Default)]
pub(super) struct Wakes {
    pending: Mutex<Pending>,
    more: Notify,
    hears: AtomicBool,
    /// Nobody else is there: then this thread is not even woken.
    alone: AtomicBool,
    closed: AtomicBool,
}

#[derive(Default)]
struct Pending {
    queues: HashSet<String>,
    event: bool,
    stream: bool,
    message: bool,
}

impl Pending {
    /// How long it may wait.
    fn delay(&self) -> Duration {
        let is_news = self.queues.is_empty() && !self.stream && !self.message;
        if is_news { EVENT_DELAY } else { Duration::ZERO }
    }
}

impl Wakes {
    pub(super) fn tell(&self, wake: Wake) {
        if !self.hears() || self.alone.load(Ordering::Relaxed) {
            return;
        }
        let mut pending = self.pending();
        if wake == Wake::Event && pending.event {
            // It is told with the one before; nobody needs to be woken for it.
            return;
        }
        match wake {
            Wake::Ready(queue) => drop(pending.queues.insert(queue)),
            Wake::Event => pending.event = true,
            // Nobody's name: everything.
            Wake::Everything => drop(pending.queues.insert(String::new())),
            Wake::Stream => pending.stream = true,
            Wake::Message => pending.message = true,
        }
        drop(pending);
        self.more.notify_one();
    }

    /// Whether wake-ups arrive on this connection.
    pub(super) fn hears(&self) -> bool {
        self.hears.load(Ordering::Relaxed)
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.more.notify_one();
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }
}

/// Who is told what was heard.
pub(super) type Hear = Box<dyn Fn(Wake) + Send + Sync>;

/// Starts the thread that listens and tells.
pub(super) fn start(shared: Arc<Shared>, hear: Hear) -> Result<JoinHandle<()>> {
    let runtime = runtime()?;
    let listen = move || {
        let mut backoff = Backoff::default();
        while !shared.wakes.is_closed() {
            let ended = runtime.block_on(listen(&shared, &hear));
            shared.wakes.hears.store(false, Ordering::Relaxed);
            shared.wakes.alone.store(false, Ordering::Relaxed);
            match ended {
                Ok(Ended::Closed) => return,
                Ok(Ended::Deaf) => {
                    tracing::warn!("LISTEN hears nothing here; this node only polls");
                    return;
                }
                Err(error) => {
                    tracing::debug!(%error, "no wake-ups from other nodes for now");
                    backoff.grow();
                    sleep_until(&runtime, backoff.next.min(Instant::now() + PROBE_LIMIT));
                }
            }
        }
    };
    let started = std::thread::Builder::new().name("pg-listen".into()).spawn(listen);
    started.map_err(|error| Error::Internal {
        operation: "listen".into(),
        detail: format!("no thread could be started: {error}"),
    })
}

enum Ended {
    Closed,
    Deaf,
}

async fn listen(shared: &Shared, hear: &Hear) -> Result<Ended> {
    let lost = |error: tokio_postgres::Error| Error::Unavailable(error.to_string());
    let (client, mut driver) = shared.connector.raw().await?;
    let (heard, mut hearing) = mpsc::unbounded_channel();
    let driving = tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|cx| driver.poll_message(cx)).await {
            if let AsyncMessage::Notification(told) = message {
                let _ = heard.send(told);
            }
        }
    });
    let channels = [READY, EVENT, STREAM, MESSAGE, PROBE];
    let begin = channels.map(|channel| format!("LISTEN {channel}")).join("; ");
    client.batch_execute(&begin).await.map_err(lost)?;
    let me = client.query_typed("SELECT pg_backend_pid()", &[]).await.map_err(lost)?;
    let me: i32 = me.first().map_or(0, |row| row.get(0));
    greet(&client, HELLO).await.map_err(lost)?;
    let probed = tokio::time::timeout(PROBE_LIMIT, hearing.recv()).await;
    match probed {
        Err(_) => return Ok(Ended::Deaf),
        Ok(None) => return Err(Error::Unavailable("the connection was lost".into())),
        Ok(Some(_)) => {}
    }
    shared.wakes.hears.store(true, Ordering::Relaxed);
    hear(Wake::Everything);
    // Until then somebody else may be there.
    let mut alone_at = Some(tokio::time::Instant::now() + ANSWER_LIMIT);
    let mut greeting = tokio::time::interval(GREET_EVERY);
    let mut due: Option<tokio::time::Instant> = None;
    loop {
        tokio::select! {
            told = hearing.recv() => {
                let Some(told) = told else {
                    driving.abort();
                    return Err(Error::Unavailable("the connection was lost".into()));
                };
                if told.process_id() == me {
                    continue;
                }
                match told.channel() {
                    PROBE => {
                        alone_at = Some(tokio::time::Instant::now() + SILENT_AFTER);
                        shared.wakes.alone.store(false, Ordering::Relaxed);
                        if told.payload() == HELLO {
                            greet(&client, HERE).await.map_err(lost)?;
                        }
                    }
                    READY if told.payload().is_empty() => hear(Wake::Everything),
                    READY => hear(Wake::Ready(told.payload().to_owned())),
                    EVENT => hear(Wake::Event),
                    STREAM => hear(Wake::Stream),
                    MESSAGE => hear(Wake::Message),
                    _ => {}
                }
            }
            () = shared.wakes.more.notified() => {
                if shared.wakes.is_closed() {
                    return Ok(Ended::Closed);
                }
                let delayed = tokio::time::Instant::now() + shared.wakes.pending().delay();
                due = Some(due.map_or(delayed, |due| due.min(delayed)));
            }
            () = until(due), if due.is_some() => {
                due = None;
                let told = std::mem::take(&mut *shared.wakes.pending());
                if alone_at.is_some() {
                    tell(&client, told).await.map_err(lost)?;
                }
            }
            () = until(alone_at), if alone_at.is_some() => {
                alone_at = None;
                shared.wakes.alone.store(true, Ordering::Relaxed);
            }
            _ = greeting.tick() => greet(&client, HERE).await.map_err(lost)?,
        }
    }
}

async fn greet(
    client: &tokio_postgres::Client,
    word: &str,
) -> std::result::Result<(), tokio_postgres::Error> {
    client.batch_execute(&format!("NOTIFY {PROBE}, '{word}'")).await
}

async fn until(due: Option<tokio::time::Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

async fn tell(
    client: &tokio_postgres::Client,
    told: Pending,
) -> std::result::Result<(), tokio_postgres::Error> {
    let mut queues: Vec<String> = told.queues.into_iter().collect();
    if queues.len() > MOST_QUEUES {
        // Nobody's name: everything.
        queues = vec![String::new()];
    }
    let sql = "SELECT pg_notify($1, t) FROM unnest($2) AS t
               UNION ALL SELECT pg_notify($3, '') WHERE $4 OR cardinality($2) > 0
               UNION ALL SELECT pg_notify($5, '') WHERE $6
               UNION ALL SELECT pg_notify($7, '') WHERE $8";
    let params: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 8] = [
        (&READY, Type::TEXT),
        (&queues, Type::TEXT_ARRAY),
        (&EVENT, Type::TEXT),
        (&told.event, Type::BOOL),
        (&STREAM, Type::TEXT),
        (&told.stream, Type::BOOL),
        (&MESSAGE, Type::TEXT),
        (&told.message, Type::BOOL),
    ];
    client.query_typed(sql, &params).await.map(drop)
}
