//! A reader of streams as OpenAI's clients read them, which sees comments, too.

use serde_json::Value as Json;
use std::time::Duration;

/// One thing that a stream says.
#[derive(Clone, Debug, PartialEq)]
pub enum Said {
    Comment(String),
    Data(Json),
    Event(String, Json),
    Done,
}

/// An open stream.
pub struct Reading {
    response: reqwest::Response,
    unread: String,
}

impl Reading {
    pub fn of(response: reqwest::Response) -> Reading {
        Reading { response, unread: String::new() }
    }

    /// What comes next, whatever it is; `None` at the end.
    pub async fn next(&mut self) -> Option<Said> {
        let next = tokio::time::timeout(Duration::from_secs(40), self.read()).await;
        next.expect("a word, or the end, within a while")
    }

    async fn read(&mut self) -> Option<Said> {
        loop {
            if let Some((block, rest)) = self.unread.split_once("\n\n") {
                let said = parse(block);
                self.unread = rest.to_owned();
                return Some(said);
            }
            let chunk = self.response.chunk().await.ok()??;
            self.unread.push_str(std::str::from_utf8(&chunk).expect("whole characters"));
        }
    }

    /// The next thing that is no comment.
    pub async fn word(&mut self) -> Option<Said> {
        loop {
            match self.next().await? {
                Said::Comment(_) => {}
                said => return Some(said),
            }
        }
    }

    /// Everything that is no comment, to the end.
    pub async fn rest(&mut self) -> Vec<Said> {
        let mut all = Vec::new();
        while let Some(said) = self.word().await {
            all.push(said);
        }
        all
    }
}

fn parse(block: &str) -> Said {
    let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name));
    match (field(": ").or(field(":")), field("data: "), field("event: ")) {
        (Some(comment), None, _) => Said::Comment(comment.trim().to_owned()),
        (_, Some("[DONE]"), _) => Said::Done,
        (_, Some(data), Some(name)) => Said::Event(name.to_owned(), json(data)),
        (_, Some(data), None) => Said::Data(json(data)),
        _ => panic!("no event: {block}"),
    }
}

fn json(text: &str) -> Json {
    serde_json::from_str(text).expect("the data is JSON")
}

/// The chunks among what was said.
pub fn chunks(said: &[Said]) -> Vec<Json> {
    let chunk = |said: &Said| match said {
        Said::Data(data) => Some(data.clone()),
        _ => None,
    };
    said.iter().filter_map(chunk).collect()
}

/// The text of chunks, joined.
pub fn text(chunks: &[Json]) -> String {
    let part = |chunk: &Json| chunk["choices"][0]["delta"]["content"].as_str().map(str::to_owned);
    chunks.iter().filter_map(part).collect()
}
