//! A connection whose other side must read, now and then, what is written to it.
//!
//! Invariant: who reads slowly is waited for; who has read nothing for [`STALLED`] is let go, and
//! with it whatever was kept in memory for it alone, such as the rest of a long answer.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// How long a write may wait for the other side to read something.
pub const STALLED: Duration = Duration::from_secs(60);

/// The connection.
pub struct Impatient<S> {
    stream: S,
    limit: Duration,
    /// Since a write waits.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<S> Impatient<S> {
    /// Nobody waits yet.
    pub fn new(stream: S, limit: Duration) -> Impatient<S> {
        Impatient { stream, limit, waiting: None }
    }

    /// What came of a write: it went on, or it has waited too long.
    fn judge<T>(
        &mut self,
        written: Poll<io::Result<T>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.waiting = None;
            return written;
        }
        let limit = self.limit;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        let stalled = || io::Error::new(io::ErrorKind::TimedOut, "the other side does not read");
        waiting.as_mut().poll(context).map(|()| Err(stalled()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Impatient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Impatient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.judge(written, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.judge(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        match flushed {
            // A stream that has nothing of its own to flush says nothing about its other side.
            Poll::Ready(Ok(())) => flushed,
            _ => self.judge(flushed, context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn who_reads_slowly_is_waited_for_and_who_does_not_read_is_let_go() {
        let limit = Duration::from_millis(400);
        let (near, mut far) = tokio::io::duplex(8);
        let mut near = Impatient::new(near, limit);
        // Each byte is read well within the limit, all of them together far beyond it.
        let reading = async {
            let mut byte = [0];
            for _ in 0..24 {
                tokio::time::sleep(limit / 8).await;
                far.read_exact(&mut byte).await.unwrap();
            }
            far
        };
        let (written, far) = tokio::join!(near.write_all(&[0; 32]), reading);
        written.unwrap();
        let stalled = near.write_all(&[0; 32]).await.unwrap_err();
        assert_eq!(stalled.kind(), io::ErrorKind::TimedOut);
        drop(far);
    }
}
