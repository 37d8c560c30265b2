//! A connection whose other side must speak, and read, now and then, what is written to it.
//!
//! Invariant: who reads slowly is waited for; who has read nothing for [`STALLED`] is let go, and
//! with it whatever was kept in memory for it alone, such as the rest of a long answer. So is who
//! has not said within [`SILENT`] which protocol it speaks: the time for the head of a request
//! begins only then. And a machine that is gone is noticed as fast as one that does not read.

use socket2::{SockRef, TcpKeepalive};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;

/// How long a write may wait for the other side to read something.
pub const STALLED: Duration = Duration::from_secs(60);

/// How long a connection may take until its first bytes say which protocol it is.
pub const SILENT: Duration = Duration::from_secs(15);
/// How long the other side's machine may be silent before it is asked whether it is there.
const ASKED: Duration = Duration::from_secs(15);
/// What HTTP/2 begins with. Anything else is HTTP/1, and has a time limit of its own.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Has the kernel ask now and then whether the machine at the other end is there. One that has
/// lost its power or its network does not even say that a connection is over: what is written to
/// it seems read, and TCP by itself gives up after a quarter of an hour. So long a worker that gets
/// its work by a stream would be alive, and somebody would compute for a caller who is gone.
pub fn ask_after(stream: &TcpStream) -> io::Result<()> {
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(ASKED).with_interval(ASKED))?;
    // Also while something is under way to it, when nothing is asked. Elsewhere the kernel decides.
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(STALLED))?;
    Ok(())
}

/// The connection.
pub struct Impatient<S> {
    stream: S,
    limit: Duration,
    /// Until the protocol is known, and how much of [`PREFACE`] has come.
    silent: Option<(Pin<Box<Sleep>>, usize)>,
    /// Since a write waits.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<S> Impatient<S> {
    /// Nobody waits yet, and nothing was said.
    pub fn new(stream: S, limit: Duration, silent: Duration) -> Impatient<S> {
        let silent = Some((Box::pin(tokio::time::sleep(silent)), 0));
        Impatient { stream, limit, silent, waiting: None }
    }

    /// What came of a read while the protocol is not known: these bytes, or nothing yet.
    fn listen(&mut self, bytes: Option<&[u8]>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some((sleep, seen)) = &mut self.silent else { return Poll::Pending };
        let Some(bytes) = bytes else {
            let silent = || io::Error::new(io::ErrorKind::TimedOut, "the other side says nothing");
            return sleep.as_mut().poll(context).map(|()| Err(silent()));
        };
        *seen += bytes.len();
        let is_open = !bytes.is_empty() && *seen < PREFACE.len();
        if !(is_open && PREFACE[..*seen].ends_with(bytes)) {
            self.silent = None;
        }
        Poll::Ready(Ok(()))
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
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        match &read {
            _ if self.silent.is_none() => read,
            Poll::Ready(Ok(())) => self.listen(Some(&buffer.filled()[before..]), context),
            Poll::Ready(Err(_)) => read,
            Poll::Pending => self.listen(None, context),
        }
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
        let mut near = Impatient::new(near, limit, limit);
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

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_machine_that_is_gone_is_asked_after_and_let_go_like_one_that_does_not_read() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _far = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (near, _) = listener.accept().await.unwrap();
        ask_after(&near).unwrap();
        let socket = SockRef::from(&near);
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), ASKED);
        assert_eq!(socket.tcp_keepalive_interval().unwrap(), ASKED);
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(STALLED));
    }

    /// Such connections were kept for ever: the time for a head begins with its protocol.
    #[tokio::test]
    async fn who_does_not_say_which_protocol_it_speaks_is_let_go() {
        let limit = Duration::from_millis(100);
        for (said, is_let_go) in [
            (&b""[..], true),
            (b"PRI * HT", true),
            (b"GET / HTTP/1.0\r\n\r\n", false),
            (b"PRI / HTTP/1.1\r\n", false),
            (PREFACE, false),
        ] {
            let (near, mut far) = tokio::io::duplex(64);
            let mut near = Impatient::new(near, STALLED, limit);
            let reading = async {
                let mut bytes = [0; 5];
                loop {
                    if let Err(error) = near.read(&mut bytes).await {
                        return error.kind();
                    }
                }
            };
            far.write_all(said).await.unwrap();
            let read = tokio::time::timeout(limit * 4, reading).await;
            let expected = is_let_go.then_some(io::ErrorKind::TimedOut);
            assert_eq!(read.ok(), expected, "{}", String::from_utf8_lossy(said));
        }
    }
}
