//! Accepting connections: bounded in number, with time limits, and a shutdown that lets requests
//! finish.
//!
//! Invariant: a node that ends says so to whoever asks, for as long as it answers anybody.

use super::impatient::{Impatient, SILENT, STALLED, ask_after};
use axum::Router;
use futures_util::FutureExt;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// Connections at once; more wait in the kernel's line.
const MOST_CONNECTIONS: usize = 20_000;
/// How long a client may take for the head of a request.
const HEAD_LIMIT: Duration = Duration::from_secs(15);
/// The largest head of a request; also how much of a body is read ahead.
const HEAD_BYTES: usize = 64 * 1024;
/// Requests at once on one HTTP/2 connection.
const MOST_STREAMS: u32 = 1_000;

/// How a server ends.
pub struct Ending {
    /// How long it goes on as before, except that it says that it is not ready. A load balancer
    /// looks only now and then, and sends requests here until it has looked.
    pub delay: Duration,
    /// How long all of it may take.
    pub limit: Duration,
}

/// Serves until `stop` resolves; it must have made the node say that it is not ready. Then it still
/// takes connections for the delay and until the requests of those that were open are answered:
/// whoever asks is told, instead of finding nobody. `hurry`, or the limit, ends all of that.
pub async fn serve(
    listener: TcpListener,
    routes: Router,
    stop: impl Future<Output = ()>,
    hurry: impl Future<Output = ()>,
    ending: Ending,
) {
    let mut builder = Builder::new(TokioExecutor::new());
    let mut http1 = builder.http1();
    http1.timer(TokioTimer::new()).header_read_timeout(HEAD_LIMIT).max_buf_size(HEAD_BYTES);
    let mut http2 = builder.http2();
    http2.timer(TokioTimer::new()).max_header_list_size(HEAD_BYTES as u32);
    http2.max_concurrent_streams(MOST_STREAMS);
    http2.keep_alive_interval(Duration::from_secs(30)).keep_alive_timeout(Duration::from_secs(20));
    let room = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    let door = Door { listener, builder, routes, room };
    let open = GracefulShutdown::new();
    door.take_until(&open, stop).await;
    let drained = async move {
        if !ending.delay.is_zero() {
            door.take_until(&open, tokio::time::sleep(ending.delay)).await;
        }
        // Those that come while the others end are watched apart: they have one answer each, and
        // must not keep the node for ever.
        let late = GracefulShutdown::new();
        door.take_until(&late, open.shutdown()).await;
        drop(door);
        late.shutdown().await;
    };
    tokio::select! {
        () = drained => {}
        () = tokio::time::sleep(ending.limit) => {
            tracing::warn!("some requests did not finish in time");
        }
        () = hurry => tracing::warn!("told to end again: running requests are cut off"),
    }
}

/// Where connections come in. Nobody listens once it is dropped.
struct Door {
    listener: TcpListener,
    builder: Builder<TokioExecutor>,
    routes: Router,
    room: Arc<Semaphore>,
}

impl Door {
    /// Takes connections, each watched, until something has happened.
    async fn take_until(&self, watch: &GracefulShutdown, happened: impl Future<Output = ()>) {
        let mut happened = std::pin::pin!(happened);
        loop {
            let accepted = tokio::select! {
                accepted = accept(&self.listener, &self.room) => accepted,
                () = &mut happened => return,
            };
            let Some((stream, place)) = accepted else { continue };
            let service = TowerToHyperService::new(self.routes.clone());
            let stream = TokioIo::new(Impatient::new(stream, STALLED, SILENT));
            let connection = self.builder.serve_connection(stream, service).into_owned();
            // A client that hangs up is no news. Not an async block: that would keep room for the
            // connection twice, for each of thousands.
            tokio::spawn(watch.watch(connection).map(|_| drop(place)));
        }
    }
}

async fn accept(
    listener: &TcpListener,
    room: &Arc<Semaphore>,
) -> Option<(tokio::net::TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let place = Arc::clone(room).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, _)) => {
            // Either fails only for a client that has gone again.
            let _ = (stream.set_nodelay(true), ask_after(&stream));
            Some((stream, place))
        }
        Err(error) => {
            // Out of descriptors, most often: those who leave make room.
            tracing::warn!(%error, "no connection could be accepted");
            tokio::time::sleep(Duration::from_millis(50)).await;
            None
        }
    }
}
