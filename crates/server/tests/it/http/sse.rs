//! A reader of server-sent events.

use serde_json::Value as Json;
use std::time::Duration;

/// One event.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    pub name: String,
    pub id: Option<String>,
    pub data: Json,
}

/// An open stream.
pub struct Events {
    response: reqwest::Response,
    unread: String,
}

impl Events {
    /// Opens what a request asks for.
    pub async fn of(request: reqwest::RequestBuilder) -> Events {
        let response = request.send().await.expect("an answer");
        assert_eq!(response.status(), 200, "{:?}", response.text().await);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Events { response, unread: String::new() }
    }

    /// The next event; `None` when the server has ended the stream.
    pub async fn next(&mut self) -> Option<Event> {
        let limit = tokio::time::timeout(Duration::from_secs(40), self.read());
        limit.await.expect("an event, or the end, within a while")
    }

    async fn read(&mut self) -> Option<Event> {
        loop {
            if let Some((block, rest)) = self.unread.split_once("\n\n") {
                let event = parse(block);
                self.unread = rest.to_owned();
                match event {
                    Some(event) => return Some(event),
                    None => continue,
                }
            }
            let chunk = self.response.chunk().await.ok()??;
            self.unread.push_str(std::str::from_utf8(&chunk).expect("whole characters"));
        }
    }

    /// The next event, which must have this name.
    #[track_caller]
    pub fn expect(&mut self, name: &str) -> impl Future<Output = Event> {
        let name = name.to_owned();
        async move {
            let event = self.next().await.expect("the stream is open");
            assert_eq!(event.name, name, "{event:?}");
            event
        }
    }

    /// Whether nothing comes for so long.
    pub async fn is_silent(&mut self, time: Duration) -> bool {
        tokio::time::timeout(time, self.read()).await.is_err()
    }
}

fn parse(block: &str) -> Option<Event> {
    let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name));
    let data = serde_json::from_str(field("data: ")?).expect("the data is JSON");
    let name = field("event: ").unwrap_or("message").to_owned();
    Some(Event { name, id: field("id: ").map(str::to_owned), data })
}
