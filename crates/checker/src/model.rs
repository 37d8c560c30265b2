//! A small server that can be told to be wrong.
//!
//! It answers the calls of the load from memory, by the rules of `windlass-domain`, and with
//! [`Mutant::None`] it keeps every promise. Each other mutant breaks one, so that the tests can
//! show that the checker finds it. The product itself carries no such switch.
//!
//! Invariant: it runs in a runtime of its own, so that a crash cuts every connection in the middle
//! of whatever it was doing, and what was not committed is gone.
//! Absent: speed, limits, sessions that expire, and every route that the load does not use.

mod http;
mod world;

use crate::dump::Dump;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use world::World;

/// What is wrong with the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// Nothing.
    None,
    /// Whoever names the task may write to it, whatever lease it shows.
    NoLeaseGuard,
    /// Every claim of a task makes the same lease id.
    ReusedLease,
    /// Answers are given at once; the state is kept only every half second.
    AcknowledgedBeforeCommit,
    /// A retry is not counted.
    NoAttemptCap,
    /// A heartbeat is let in by the task's name: a zombie renews its successor's lease.
    BeatWithoutLease,
    /// The sweep puts running tasks back in line behind the machine's back.
    SweepAgainstMachine,
    /// Starts and lost leases leave no row in the history.
    ForgottenHistory,
}

/// How often a mutant that does not commit before it answers commits at last.
const COMMIT_EVERY: Duration = Duration::from_millis(500);
/// How often lost leases are looked for.
const SWEEP_EVERY: Duration = Duration::from_millis(50);

/// What the handlers share.
struct Shared {
    mutant: Mutant,
    world: Mutex<World>,
    committed: Mutex<World>,
    changed: Notify,
}

/// A running model.
pub struct Model {
    shared: Arc<Shared>,
    address: SocketAddr,
    runtime: Option<Runtime>,
}

impl Model {
    /// Starts an empty server.
    pub fn start(mutant: Mutant) -> std::io::Result<Model> {
        let (world, committed, changed) = (Mutex::default(), Mutex::default(), Notify::new());
        let shared = Arc::new(Shared { mutant, world, committed, changed });
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut model = Model { shared, address, runtime: None };
        model.listen()?;
        Ok(model)
    }

    /// The base URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Cuts every connection and starts again with what was committed.
    pub fn crash(&mut self) -> std::io::Result<()> {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_secs(5));
        }
        if self.shared.mutant == Mutant::AcknowledgedBeforeCommit {
            let committed = self.shared.committed.lock().expect("no handler panics").clone();
            *self.shared.world.lock().expect("no handler panics") = committed;
        }
        // While nobody listened, somebody else's connection may have been given the port.
        let mut tries = 0;
        while let Err(error) = self.listen() {
            tries += 1;
            if error.kind() != std::io::ErrorKind::AddrInUse || tries == 100 {
                return Err(error);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    /// What it holds.
    pub fn dump(&self) -> Dump {
        self.shared.world.lock().expect("no handler panics").dump()
    }

    fn listen(&mut self) -> std::io::Result<()> {
        let listener = TcpListener::bind(self.address)?;
        listener.set_nonblocking(true)?;
        self.address = listener.local_addr()?;
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let routes = http::routes(Arc::clone(&self.shared));
        runtime.spawn(async move {
            let listener = tokio::net::TcpListener::from_std(listener).expect("it listens");
            axum::serve(listener, routes).await.expect("it serves until it is cut off");
        });
        runtime.spawn(sweep(Arc::clone(&self.shared)));
        if self.shared.mutant == Mutant::AcknowledgedBeforeCommit {
            runtime.spawn(commit(Arc::clone(&self.shared)));
        }
        self.runtime = Some(runtime);
        Ok(())
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        // A runtime must not be dropped where blocking is forbidden.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn sweep(shared: Arc<Shared>) {
    let mut ticks = tokio::time::interval(SWEEP_EVERY);
    loop {
        ticks.tick().await;
        shared.world.lock().expect("no handler panics").sweep(shared.mutant);
        shared.changed.notify_waiters();
    }
}

async fn commit(shared: Arc<Shared>) {
    let mut ticks = tokio::time::interval(COMMIT_EVERY);
    loop {
        ticks.tick().await;
        let world = shared.world.lock().expect("no handler panics").clone();
        *shared.committed.lock().expect("no handler panics") = world;
    }
}
