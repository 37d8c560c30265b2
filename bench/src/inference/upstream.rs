//! A server that speaks just enough of OpenAI's API, as fast as it can be spoken.

use crate::Result;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// How its deltas come.
#[derive(Clone, Copy, Debug)]
pub enum Pace {
    /// All at once.
    AtOnce,
    /// One in each span.
    Every(Duration),
    /// None.
    Never,
}

/// It answers until the benchmark ends.
pub struct Upstream {
    address: std::net::SocketAddr,
    /// What the times in its deltas count from.
    pub began: Instant,
}

impl Upstream {
    pub async fn start(pace: Pace) -> Result<Upstream> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (address, began) = (listener.local_addr()?, Instant::now());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let _ = stream.set_nodelay(true);
                // Whoever breaks off is not answered.
                tokio::spawn(async move { drop(talk(stream, pace, began).await) });
            }
        });
        Ok(Upstream { address, began })
    }

    pub fn url(&self) -> String {
        format!("{}/v1", self.root())
    }

    /// The same without the path that OpenAI's API begins with.
    pub fn root(&self) -> String {
        format!("http://{}", self.address)
    }
}

/// A chunk of a chat completion.
pub fn chunk(content: &str, end: Option<&str>) -> Value {
    json!({ "id": "c", "object": "chat.completion.chunk", "created": 1, "model": "bench",
        "choices": [{ "index": 0, "delta": { "content": content }, "finish_reason": end }] })
}

async fn talk(stream: TcpStream, pace: Pace, began: Instant) -> Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let (mut is_post, mut length) = (false, 0);
        let mut line = String::new();
        loop {
            line.clear();
            if stream.read_line(&mut line).await? == 0 {
                return Ok(());
            }
            let words = line.trim_end().to_ascii_lowercase();
            if words.is_empty() {
                break;
            }
            is_post |= words.starts_with("post ");
            if let Some(number) = words.strip_prefix("content-length:") {
                length = number.trim().parse()?;
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await?;
        if is_post {
            let body: Value = serde_json::from_slice(&body)?;
            complete(stream.get_mut(), &body, pace, began).await?;
        } else {
            let models = r#"{"object":"list","data":[]}"#;
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length:";
            let answer = format!("{head} {}\r\n\r\n{models}", models.len());
            stream.get_mut().write_all(answer.as_bytes()).await?;
        }
    }
}

/// Each delta says its number and when it was sent.
async fn complete(stream: &mut TcpStream, body: &Value, pace: Pace, began: Instant) -> Result<()> {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
        transfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).await?;
    let count = body["deltas"].as_u64().unwrap_or(1);
    for number in 0..count {
        match pace {
            Pace::AtOnce => {}
            Pace::Every(span) => tokio::time::sleep(span).await,
            Pace::Never => std::future::pending().await,
        }
        let content = format!("{number} {}", began.elapsed().as_micros());
        event(stream, &chunk(&content, None).to_string()).await?;
    }
    event(stream, &chunk("", Some("stop")).to_string()).await?;
    event(stream, "[DONE]").await?;
    stream.write_all(b"0\r\n\r\n").await?;
    Ok(())
}

async fn event(stream: &mut TcpStream, data: &str) -> Result<()> {
    let event = format!("data: {data}\n\n");
    let chunk = format!("{:x}\r\n{event}\r\n", event.len());
    Ok(stream.write_all(chunk.as_bytes()).await?)
}
