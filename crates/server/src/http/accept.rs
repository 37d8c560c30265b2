//! Accepting connections: bounded in number, with time limits, and a shutdown that lets requests
//! finish.

use super::impatient::{Impatient, SILENT, STALLED};
use axum::Router;
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

/// Serves until `stop` resolves, then lets requests finish, at most for `limit`.
pub async fn serve(
    listener: TcpListener,
    routes: Router,
    stop: impl Future<Output = ()>,
    limit: Duration,
) {
    let mut builder = Builder::new(TokioExecutor::new());
    let mut http1 = builder.http1();
    http1.timer(TokioTimer::new()).header_read_timeout(HEAD_LIMIT).max_buf_size(HEAD_BYTES);
    let mut http2 = builder.http2();
    http2.timer(TokioTimer::new()).max_header_list_size(HEAD_BYTES as u32);
    http2.max_concurrent_streams(MOST_STREAMS);
    http2.keep_alive_interval(Duration::from_secs(30)).keep_alive_timeout(Duration::from_secs(20));
    let graceful = GracefulShutdown::new();
    let room = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    let mut stop = std::pin::pin!(stop);
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &room) => accepted,
            () = &mut stop => break,
        };
        let Some((stream, place)) = accepted else { continue };
        let service = TowerToHyperService::new(routes.clone());
        let stream = TokioIo::new(Impatient::new(stream, STALLED, SILENT));
        let connection = builder.serve_connection(stream, service).into_owned();
        let watched = graceful.watch(connection);
        tokio::spawn(async move {
            // A client that hangs up is no news.
            let _ = watched.await;
            drop(place);
        });
    }
    drop(listener);
    if tokio::time::timeout(limit, graceful.shutdown()).await.is_err() {
        tracing::warn!("some requests did not finish in time");
    }
}

async fn accept(
    listener: &TcpListener,
    room: &Arc<Semaphore>,
) -> Option<(tokio::net::TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let place = Arc::clone(room).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, _)) => {
            let _ = stream.set_nodelay(true);
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
