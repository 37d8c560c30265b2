//! Server-sent events, read for as long as somebody wants them.
//!
//! Invariant: after a broken connection reading goes on behind the last event that was handed
//! out, so nothing is lost and nothing comes twice. A stream that has been silent for longer than
//! its keep-alive is taken for broken.

use super::{Answer, Call, Client, Error, Patience};
use reqwest::header::{ACCEPT, HeaderMap};
use std::collections::VecDeque;
use std::time::Duration;

/// The longest event.
const MAX_EVENT_BYTES: usize = 8 * 1024 * 1024;
/// A server says something at least every 15 seconds, if only a comment.
const SILENCE: Duration = Duration::from_secs(60);
/// How long a stream may take at all; then it is opened again.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// What to resume behind.
    pub id: Option<String>,
    /// Its type; `message` when the server names none.
    pub name: String,
    /// Its data, usually JSON.
    pub data: String,
}

/// A stream that opens itself again.
pub struct Stream {
    client: Client,
    call: Call,
    patience: Patience,
    response: Option<reqwest::Response>,
    parser: Parser,
    last_id: Option<String>,
    failed: u32,
}

impl Stream {
    /// A stream that begins behind an event, or now. Nothing is asked yet.
    pub fn new(client: &Client, call: Call, last_id: Option<String>, patience: Patience) -> Stream {
        let parser = Parser::default();
        let client = client.clone();
        Stream { client, call, patience, response: None, parser, last_id, failed: 0 }
    }

    /// Opens the stream, so that everything from now on will be told.
    pub async fn open(&mut self) -> Result<(), Error> {
        let mut request = self.client.request(&self.call, DAY);
        request = request.header(ACCEPT, "text/event-stream");
        if let Some(id) = &self.last_id {
            request = request.header("Last-Event-ID", id);
        }
        let response = request.send().await.map_err(|error| self.client.unreachable(&error))?;
        let is_stream = |headers: &HeaderMap| {
            let kind = headers.get("content-type").and_then(|value| value.to_str().ok());
            kind.is_some_and(|kind| kind.starts_with("text/event-stream"))
        };
        if response.status().is_success() && is_stream(response.headers()) {
            self.response = Some(response);
            self.parser = Parser::default();
            return Ok(());
        }
        let Answer { .. } = self.client.read(response).await?;
        Err(self.client.unexpected("it answered, but with no stream of events".into()))
    }

    /// The next event. Opens the stream, also again, as long as patience lasts.
    pub async fn next(&mut self) -> Result<Event, Error> {
        loop {
            if let Some(event) = self.parser.next_event() {
                self.failed = 0;
                if let Some(id) = &event.id {
                    self.last_id = Some(id.clone());
                }
                return Ok(event);
            }
            if let Err(error) = self.fill().await {
                self.response = None;
                self.failed += 1;
                let pause = self.patience.pause(self.failed, error.retry_after());
                match pause {
                    Some(pause) if error.is_temporary() => {
                        tracing::debug!(%error, "the stream of events is opened again");
                        tokio::time::sleep(self.parser.retry.unwrap_or(pause)).await;
                    }
                    _ => return Err(error),
                }
            }
        }
    }

    async fn fill(&mut self) -> Result<(), Error> {
        if self.response.is_none() {
            self.open().await?;
        }
        let broken = |cause: &str| Error::Unreachable {
            server: self.client.server.clone(),
            cause: cause.to_owned(),
            is_connect: false,
        };
        let Some(response) = &mut self.response else { return Ok(()) };
        match tokio::time::timeout(SILENCE, response.chunk()).await {
            Err(_) => Err(broken("the stream of events fell silent")),
            Ok(Ok(None)) => Err(broken("the stream of events ended")),
            Ok(Err(error)) => Err(self.client.unreachable(&error)),
            Ok(Ok(Some(chunk))) => {
                if self.parser.feed(&chunk) {
                    Ok(())
                } else {
                    Err(self.client.unexpected("an event is larger than 8 MiB".into()))
                }
            }
        }
    }
}

/// Takes the lines of a stream apart.
#[derive(Default)]
pub struct Parser {
    line: Vec<u8>,
    /// The last byte was a carriage return: a line feed now belongs to it.
    after_return: bool,
    id: Option<String>,
    name: String,
    data: String,
    retry: Option<Duration>,
    events: VecDeque<Event>,
}

impl Parser {
    /// The next event that is complete.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Takes more bytes; false when an event grows beyond its bound.
    pub fn feed(&mut self, bytes: &[u8]) -> bool {
        for &byte in bytes {
            match byte {
                b'\n' if self.after_return => self.after_return = false,
                b'\n' | b'\r' => {
                    self.after_return = byte == b'\r';
                    let line = std::mem::take(&mut self.line);
                    self.take_line(&String::from_utf8_lossy(&line));
                }
                _ => {
                    self.after_return = false;
                    self.line.push(byte);
                }
            }
            if self.line.len() + self.data.len() > MAX_EVENT_BYTES {
                return false;
            }
        }
        true
    }

    fn take_line(&mut self, line: &str) {
        if line.is_empty() {
            let data = std::mem::take(&mut self.data);
            let name = std::mem::take(&mut self.name);
            if !data.is_empty() {
                let name = if name.is_empty() { "message".to_owned() } else { name };
                let data = data.strip_suffix('\n').unwrap_or(&data).to_owned();
                self.events.push_back(Event { id: self.id.clone(), name, data });
            }
            return;
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => {
                self.data.push_str(value);
                self.data.push('\n');
            }
            "event" => self.name = value.to_owned(),
            // An id with a line break or NUL could not go into a header.
            "id" if !value.contains('\0') => self.id = Some(value.to_owned()),
            "retry" => {
                self.retry = value.parse().ok().map(Duration::from_millis);
            }
            // A comment keeps the connection alive; fields we do not know mean nothing.
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(chunks: &[&str]) -> Vec<Event> {
        let mut parser = Parser::default();
        for chunk in chunks {
            assert!(parser.feed(chunk.as_bytes()));
        }
        parser.events.into()
    }

    fn event(id: &str, name: &str, data: &str) -> Event {
        Event { id: Some(id.into()), name: name.into(), data: data.into() }
    }

    #[test]
    fn events_are_read_whatever_the_chunks_and_line_ends() {
        let expected = [event("1", "claim", "{\"a\":\n1}"), event("2", "message", "x")];
        let text = ": hello\n\nid: 1\nevent: claim\ndata: {\"a\":\ndata: 1}\n\nid:2\ndata:x\n\n";
        assert_eq!(parse(&[text]), expected);
        assert_eq!(parse(&[&text.replace('\n', "\r\n")]), expected);
        assert_eq!(parse(&[&text.replace('\n', "\r")]), expected);
        let bytes: Vec<String> = text.chars().map(String::from).collect();
        assert_eq!(parse(&bytes.iter().map(String::as_str).collect::<Vec<_>>()), expected);
    }

    #[test]
    fn an_unfinished_event_is_not_handed_out() {
        assert_eq!(parse(&["id: 1\ndata: {}\n"]), []);
    }

    #[test]
    fn an_event_without_end_is_refused() {
        let mut parser = Parser::default();
        assert!(!parser.feed(&vec![b'x'; MAX_EVENT_BYTES + 1]));
    }
}
