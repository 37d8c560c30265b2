//! The engine: everything that happens between a call and the database, on one node.
//!
//! Invariant: the database is the only truth. What the engine holds in memory (who waits for work,
//! who waits for a task, which node does which duty) can be lost at any moment without losing work.
//! Absent: HTTP. The server and an application in process use the same calls.

mod agent;
mod approval;
mod delegation;
mod delta;
mod dispatch;
mod durable;
mod duty;
mod error;
mod handed;
mod held;
mod limit;
mod log;
mod message;
mod mirror;
mod notify;
mod post;
mod posting;
mod pressure;
mod session;
mod shutdown;
mod sieve;
mod stream;
mod submit;
mod timer;
mod wait;
mod watching;

pub use approval::{ApprovalRequest, By, DecisionRequest};
pub use delegation::SWEEPER;
pub use duty::{Duty, DutyStats, Report, Sweep};
pub use error::{Error, Result};
pub use log::{Entry, Follower, Lost};
pub use message::{MessageClaim, Returned};
pub use mirror::{Peers, Piece, Pieces};
pub use notify::{Deliver, Delivery, NoticeStats, Parcel};
pub use session::{Beat, BeatAnswer, ClaimRequest, Leased, SessionRequest};
pub use shutdown::Phase;
pub use stream::{Assignments, StreamEvent};
pub use wait::Waited;
pub use watching::{Watched, Watching};

use delta::Deltas;
use dispatch::Dispatcher;
use held::Held;
use log::Log;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use uuid::Uuid;
use wait::Waiters;
use windlass_domain::delegation::SweeperSettings;
use windlass_domain::id::SessionId;
use windlass_store::agent::Agents;
use windlass_store::alert::Alerts;
use windlass_store::approval::{Approvals, carry_out_replay};
use windlass_store::audit::Audit;
use windlass_store::dead_letter::DeadLetters;
use windlass_store::delta::Sources;
use windlass_store::error::Error as StoreError;
use windlass_store::group::{Bounds, Group};
use windlass_store::message::Messages;
use windlass_store::migration;
use windlass_store::node::Nodes;
use windlass_store::notice::Notices;
use windlass_store::pool::Pools;
use windlass_store::response::Responses;
use windlass_store::session::{Sessions, Touch};
use windlass_store::step::Steps;
use windlass_store::store::{Store, Wake};
use windlass_store::task::Tasks;
use windlass_store::trouble::Troubles;
use windlass_store::venture::Ventures;

/// How an engine runs.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where other nodes reach this one, if they can.
    pub advertise: Option<String>,
    /// How often the engine looks without being woken.
    pub poll: Duration,
    /// Which duties are switched off, by name.
    pub without_duties: Vec<String>,
    /// How often the delegation sweeper looks, and how long a delegation may be silent.
    pub sweeper: SweeperSettings,
    /// Whether the end of a delegation is put into its caller's inbox.
    pub delegation_result_push: bool,
    /// Whether submits hand tasks to idle workers in their own transaction.
    pub eager: bool,
    /// How many log entries a reader may be behind before it has to read the database again.
    pub log_entries: usize,
    /// How long acknowledged alerts, and notices that were sent or given up, are kept; for ever
    /// unless it is said.
    pub alert_retention: Option<Duration>,
    /// Who gets a token with the notice of each new approval.
    pub approvers: Vec<String>,
    /// How long inference may wait for a provider before it fails; an hour unless it is said.
    pub inference_pending_timeout: Option<Duration>,
    /// How long finished inference is kept; seven days unless it is said.
    pub inference_retention: Option<Duration>,
    /// The most bytes of an inference's payload, and of its result.
    pub inference_max_body: usize,
    /// The most bytes of running texts that this node keeps in memory.
    pub inference_memory: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            advertise: None,
            poll: Duration::from_secs(1),
            without_duties: Vec::new(),
            sweeper: SweeperSettings::default(),
            delegation_result_push: true,
            eager: true,
            log_entries: 4_096,
            alert_retention: None,
            approvers: Vec::new(),
            inference_pending_timeout: None,
            inference_retention: None,
            inference_max_body: windlass_domain::validate::MAX_JSON_BYTES,
            inference_memory: 256 << 20,
        }
    }
}

/// A running engine; cheap to clone. It runs until [`Engine::shutdown`].
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

struct Inner {
    node: Uuid,
    options: Options,
    store: Store,
    tasks: Tasks,
    sessions: Sessions,
    nodes: Nodes,
    approvals: Approvals,
    audit: Audit,
    wrong_tokens: approval::WrongTokens,
    notices: Notices,
    notified: notify::Counted,
    agents: Agents,
    ventures: Ventures,
    given: agent::Known,
    limits: limit::Known,
    alerts: Alerts,
    troubles: Troubles,
    messages: Messages,
    dead_letters: DeadLetters,
    post: Arc<post::Post>,
    dispatcher: Arc<Dispatcher>,
    steps: Steps,
    waiters: Waiters,
    deltas: Deltas,
    sources: Sources,
    pools: Pools,
    responses: Responses,
    mirrors: mirror::Mirrors,
    timers: Arc<timer::Timers>,
    pressure: pressure::Pressure,
    awaited: timer::Awaited,
    held: Held,
    alive: session::Alive,
    touch: Touch,
    log: Log,
    renewals: Group<SessionId, bool>,
    duties: duty::Running,
    workers: shutdown::Workers,
    phase: watch::Sender<Phase>,
}

impl Engine {
    /// Starts the engine over a database whose schema is up to date. Must be called inside a tokio
    /// runtime.
    pub async fn start(store: Store, options: Options) -> Result<Engine> {
        let tasks = Tasks::new(store.clone());
        let sessions = Sessions::new(store.clone());
        let dispatcher = Arc::new(Dispatcher::new(tasks.clone(), sessions.clone()));
        if options.eager {
            tasks.dispatch_to(&(Arc::clone(&dispatcher) as _));
        }
        tasks.stuck_after(options.sweeper.stuck_ms);
        let renewals = session::renewals(sessions.clone(), Bounds::default());
        let approvals = Approvals::new(tasks.clone());
        approvals.on_approved(Arc::new(carry_out_replay));
        let inner = Arc::new(Inner {
            node: Uuid::now_v7(),
            nodes: Nodes::new(store.clone()),
            approvals,
            audit: Audit::new(store.clone()),
            wrong_tokens: approval::WrongTokens::default(),
            notices: Notices::new(store.clone()),
            notified: notify::Counted::default(),
            agents: Agents::new(store.clone()),
            ventures: Ventures::new(store.clone()),
            given: agent::Known::default(),
            limits: limit::Known::default(),
            alerts: Alerts::new(store.clone()),
            troubles: Troubles::new(store.clone()),
            messages: Messages::new(store.clone()),
            dead_letters: DeadLetters::new(store.clone()),
            post: Arc::new(post::Post::new(Messages::new(store.clone()))),
            steps: Steps::new(store.clone()),
            waiters: Waiters::default(),
            deltas: Deltas::new(options.inference_memory),
            sources: Sources::new(store.clone()),
            pools: Pools::new(store.clone()),
            responses: Responses::new(store.clone()),
            mirrors: mirror::Mirrors::default(),
            timers: Arc::default(),
            pressure: pressure::Pressure::default(),
            awaited: timer::Awaited::default(),
            held: Held::default(),
            alive: session::Alive::default(),
            touch: Touch::default(),
            log: Log::new(options.log_entries),
            duties: duty::Running::default(),
            workers: shutdown::Workers::default(),
            phase: watch::Sender::new(Phase::Running),
            options,
            tasks,
            sessions,
            dispatcher,
            renewals,
            store,
        });
        let engine = Engine { inner };
        // Before anybody can submit or claim.
        engine.learn_limits().await?;
        engine.announce().await?;
        let hearing = Arc::downgrade(&engine.inner);
        engine.inner.store.hear(move |wake| {
            if let Some(inner) = hearing.upgrade() {
                inner.heard(wake);
            }
        })?;
        engine.inner.store.push_results(engine.inner.options.delegation_result_push);
        let pushed = Arc::downgrade(&engine.inner);
        engine.inner.store.on_push(move || {
            if let Some(inner) = pushed.upgrade() {
                Engine { inner }.tell_message();
            }
        });
        engine.inner.learn_awaited().await;
        engine.spawn_log();
        engine.spawn_mirrors();
        engine.spawn_timers();
        engine.spawn_limits();
        engine.watch_pressure().await;
        engine.spawn_poll();
        engine.spawn_announcements();
        for duty in duty::standard() {
            engine.add_duty(duty);
        }
        engine.add_duty(Arc::new(delegation::Sweeper(engine.inner.options.sweeper)));
        Ok(engine)
    }

    /// The repository of tasks: every read, and writes that need nobody woken.
    pub fn tasks(&self) -> &Tasks {
        &self.inner.tasks
    }

    /// The repository of steps: reads.
    pub fn steps(&self) -> &Steps {
        &self.inner.steps
    }

    /// The repository of sessions.
    pub fn sessions(&self) -> &Sessions {
        &self.inner.sessions
    }

    /// The repository of deleted responses.
    pub fn responses(&self) -> &Responses {
        &self.inner.responses
    }

    /// The repository of pools.
    pub fn pools(&self) -> &Pools {
        &self.inner.pools
    }

    /// The repository of nodes.
    pub fn nodes(&self) -> &Nodes {
        &self.inner.nodes
    }

    /// The repository of approvals: every read, and requests to be approved.
    pub fn approvals(&self) -> &Approvals {
        &self.inner.approvals
    }

    /// The audit.
    pub fn audit(&self) -> &Audit {
        &self.inner.audit
    }

    /// The repository of notices.
    pub fn notices(&self) -> &Notices {
        &self.inner.notices
    }

    /// The repository of alerts.
    pub fn alerts(&self) -> &Alerts {
        &self.inner.alerts
    }

    /// The repository of tasks that need a person.
    pub fn troubles(&self) -> &Troubles {
        &self.inner.troubles
    }

    /// The repository of messages: every read.
    pub fn messages(&self) -> &Messages {
        &self.inner.messages
    }

    /// The repository of dead letters.
    pub fn dead_letters(&self) -> &DeadLetters {
        &self.inner.dead_letters
    }

    /// The database underneath.
    pub fn store(&self) -> &Store {
        &self.inner.store
    }

    /// This node's id.
    pub fn node(&self) -> Uuid {
        self.inner.node
    }

    /// How many sessions wait for work on this node, by a long poll, a stream or in process.
    pub fn idle_workers(&self) -> usize {
        self.inner.dispatcher.waiting_sessions()
    }

    /// How many claims wait for work on this node; a session with many slots may have two.
    pub fn waiting_claims(&self) -> usize {
        self.inner.dispatcher.waiting()
    }

    /// How many handlers wait for messages on this node.
    pub fn idle_handlers(&self) -> usize {
        self.inner.post.waiting()
    }

    /// How many waits for a task are open on this node.
    pub fn open_waits(&self) -> usize {
        self.inner.waiters.len()
    }

    /// What each duty did on this node so far.
    pub fn duty_stats(&self) -> Vec<DutyStats> {
        self.inner.duties.stats()
    }

    async fn announce(&self) -> Result<()> {
        let inner = &self.inner;
        let version = env!("CARGO_PKG_VERSION");
        Ok(inner.nodes.announce(inner.node, inner.options.advertise.clone(), version).await?)
    }

    /// The safety net under wake-ups that were lost, and what ripens by itself.
    fn spawn_poll(&self) {
        self.spawn_every("poll", self.inner.options.poll, |inner| async move {
            inner.dispatcher.wake_everything();
            inner.post.wake();
            inner.log.look();
            Engine { inner }.check_texts().await;
        });
    }

    fn spawn_announcements(&self) {
        let every = Duration::from_millis(windlass_store::node::TTL_MS as u64 / 3);
        self.spawn_every("announce", every, |inner| async move {
            let engine = Engine { inner };
            // A node that leaves must not put itself on the list again.
            if engine.phase() != Phase::Running {
                return;
            }
            if let Err(error) = engine.announce().await {
                tracing::warn!(%error, "this node could not announce itself");
            }
            if let Err(error) = engine.renew_streams().await {
                tracing::warn!(%error, "the sessions of this node's streams were not renewed");
            }
            // Another node may have migrated the schema to something that this program breaks.
            if let Err(error @ StoreError::NewerSchema { .. }) =
                migration::require_current(&engine.inner.store).await
            {
                tracing::error!(%error, "this node stops serving");
                engine.drain();
            }
        });
    }

    /// Runs `work` again and again until the engine stops. It holds the engine only while it runs.
    fn spawn_every<F>(
        &self,
        name: &'static str,
        every: Duration,
        work: impl Fn(Arc<Inner>) -> F + Send + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        self.spawn_woken(name, every, Arc::default(), work);
    }

    /// The same, and earlier if somebody wants it.
    fn spawn_woken<F>(
        &self,
        name: &'static str,
        every: Duration,
        wanted: Arc<Notify>,
        work: impl Fn(Arc<Inner>) -> F + Send + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let weak = Arc::downgrade(&self.inner);
        let mut phase = self.inner.phase.subscribe();
        tokio::spawn(async move {
            loop {
                // Not all nodes at once: up to a tenth earlier.
                let early = every.mul_f64(0.1 * chance());
                tokio::select! {
                    () = tokio::time::sleep(every - early) => {}
                    () = wanted.notified() => {}
                    stopped = phase.wait_for(|phase| *phase == Phase::Stopped) => {
                        let _ = stopped;
                        return;
                    }
                }
                let Some(inner) = weak.upgrade() else { return };
                let ran = tokio::spawn(work(inner)).await;
                if ran.is_err() {
                    tracing::error!(name, "panicked; it goes on with the next round");
                }
            }
        });
    }
}

impl Inner {
    /// Another node, or an application's own transaction, says that there is something to see.
    fn heard(&self, wake: Wake) {
        match wake {
            Wake::Ready(queue) => {
                self.tasks.heard();
                self.dispatcher.wake(&queue, 1);
                self.log.look();
            }
            Wake::Event => {
                self.tasks.heard_of_room();
                self.log.look();
            }
            Wake::Stream => self.mirrors.look(),
            Wake::Message => self.post.wake(),
            Wake::Everything => {
                self.tasks.heard();
                self.mirrors.look();
                self.post.wake();
                self.dispatcher.wake_everything();
                self.log.look();
            }
        }
    }
}

/// A number in [0, 1): for jitter, here and in backoffs.
pub(crate) fn chance() -> f64 {
    // 53 random bits of a random uuid: no need for a generator of our own.
    (Uuid::new_v4().as_u128() >> 75) as f64 / (1u64 << 53) as f64
}
