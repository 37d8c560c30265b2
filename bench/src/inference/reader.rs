//! Somebody who asks by OpenAI's API and reads the answer while it comes.

use crate::Result;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// A streamed answer.
pub struct Read {
    response: reqwest::Response,
    buffer: Vec<u8>,
    numbers: Vec<u64>,
    /// What each delta was delayed by.
    pub delays: Vec<Duration>,
}

/// What is asked for: so many deltas.
pub fn body(pool: &str, deltas: usize) -> Value {
    let messages = json!([{ "role": "user", "content": "go" }]);
    json!({ "model": pool, "stream": true, "deltas": deltas, "messages": messages })
}

/// Asks for an answer of so many deltas.
pub async fn ask(http: &reqwest::Client, url: &str, pool: &str, deltas: usize) -> Result<Read> {
    let request = http.post(format!("{url}/v1/chat/completions")).json(&body(pool, deltas));
    let response = request.send().await?.error_for_status()?;
    Ok(Read { response, buffer: Vec::new(), numbers: Vec::new(), delays: Vec::new() })
}

impl Read {
    /// The content of the next delta that has some; none at the end.
    pub async fn next(&mut self) -> Result<Option<String>> {
        loop {
            while let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                let line = String::from_utf8_lossy(&line);
                let Some(data) = line.trim_end().strip_prefix("data: ") else { continue };
                if data == "[DONE]" {
                    return Ok(None);
                }
                let data: Value = serde_json::from_str(data)?;
                if !data["error"].is_null() {
                    return Err(format!("a stream broke: {data}").into());
                }
                match data["choices"][0]["delta"]["content"].as_str() {
                    Some(content) if !content.is_empty() => return Ok(Some(content.to_owned())),
                    _ => {}
                }
            }
            match self.response.chunk().await? {
                Some(chunk) => self.buffer.extend_from_slice(&chunk),
                None => return Err("a stream ended without its end".into()),
            }
        }
    }

    /// Reads on to the end.
    pub async fn rest(&mut self) -> Result<()> {
        while self.next().await?.is_some() {}
        Ok(())
    }

    /// Reads everything, and notes what came and when.
    pub async fn all(&mut self, began: Instant) -> Result<()> {
        while let Some(content) = self.next().await? {
            let now = began.elapsed();
            let (number, sent) = content.split_once(' ').ok_or("a delta without its time")?;
            self.numbers.push(number.parse()?);
            self.delays.push(now.saturating_sub(Duration::from_micros(sent.parse()?)));
        }
        Ok(())
    }

    pub fn lost(&self, deltas: usize) -> usize {
        deltas.saturating_sub(self.numbers.iter().collect::<HashSet<_>>().len())
    }

    pub fn doubled(&self) -> usize {
        self.numbers.len() - self.numbers.iter().collect::<HashSet<_>>().len()
    }

    pub fn unordered(&self) -> usize {
        self.numbers.windows(2).filter(|pair| pair[1] < pair[0]).count()
    }
}

/// Waits until a pool has a provider that is there.
pub async fn is_bound(url: &str, pool: &str) -> Result<()> {
    until(async || {
        let answer = reqwest::get(format!("{url}/v1/pools/{pool}")).await?;
        let pool: Value = answer.json().await?;
        Ok(pool["slots"].as_i64().is_some_and(|slots| slots > 0))
    })
    .await
}

/// Waits until so many wait, and somebody holds some of what they wait for.
pub async fn until_waited(url: &str, waiters: usize) -> Result<()> {
    until(async || {
        let status: Value = reqwest::get(format!("{url}/v1/status")).await?.json().await?;
        let pools: Value = reqwest::get(format!("{url}/v1/pools")).await?.json().await?;
        let running = pools["items"][0]["running"].as_i64().unwrap_or_default();
        Ok(status["open_waits"] == waiters && running > 0)
    })
    .await
}

async fn until(is: impl AsyncFn() -> Result<bool>) -> Result<()> {
    for _ in 0..600 {
        if is().await? {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Err("it did not come about within a minute".into())
}
