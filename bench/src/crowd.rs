//! A crowd on one node: a thousand connected sessions and ten thousand open waits, all idle.

use crate::Result;
use crate::arguments::{Engine, Sizes};
use crate::place::Place;
use crate::server::Server;
use crate::table::{Table, met};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const MEGABYTES: f64 = 300.0;
/// Of a core.
const CPU: f64 = 0.05;

pub async fn run(engine: &Engine, sizes: &Sizes) -> Result<()> {
    let (sessions, waits) = sizes.crowd;
    let place = Place::create(engine).await?;
    let server = Server::start(&place.database_url()).await?;
    let http = reqwest::Client::new();
    let task = json!({ "queue": "nobody", "payload": null });
    let task: Value = http
        .post(format!("{}/v1/tasks", server.url))
        .json(&task)
        .send()
        .await?
        .error_for_status()?
        .json()
        .await?;
    let task = task["id"].as_str().ok_or("no task")?.to_owned();
    let mut open = Vec::new();
    for number in 0..sessions {
        let body = json!({ "name": format!("crowd-{number}"), "queues": ["crowd"], "slots": 4 });
        let session: Value = http
            .post(format!("{}/v1/sessions", server.url))
            .json(&body)
            .send()
            .await?
            .error_for_status()?
            .json()
            .await?;
        let id = session["id"].as_str().ok_or("no session")?;
        open.push(get(&server, &format!("/v1/sessions/{id}/stream"), true).await?);
    }
    for _ in 0..waits {
        let path = format!("/v1/tasks/{task}/wait?timeout_ms=300000");
        open.push(get(&server, &path, false).await?);
    }
    let until = Instant::now() + Duration::from_secs(120);
    loop {
        let status: Value =
            http.get(format!("{}/v1/status", server.url)).send().await?.json().await?;
        if status["open_waits"] == waits && status["idle_workers"] == sessions {
            break;
        }
        if Instant::now() > until {
            return Err(format!("the crowd did not come together: {status}").into());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    // What it took to open all of this is over.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let before = server.cpu()?;
    tokio::time::sleep(sizes.crowd_watch).await;
    let cpu = (server.cpu()? - before).as_secs_f64() / sizes.crowd_watch.as_secs_f64();
    let megabytes = server.megabytes()?;
    drop(open);
    server.stop().await?;
    place.remove().await?;
    let mut table =
        Table::new(&["sessions", "waits", "memory MB", "target", "idle CPU of a core", "target "]);
    table.row(vec![
        sessions.to_string(),
        waits.to_string(),
        format!("{megabytes:.0}"),
        met(megabytes < MEGABYTES, "under 300"),
        format!("{:.1} %", cpu * 100.0),
        met(cpu < CPU, "under 5 %"),
    ]);
    table.print("A crowd on one node");
    Ok(())
}

/// A request whose answer is not awaited, on a connection of its own.
async fn get(server: &Server, path: &str, answered: bool) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(server.address()).await?;
    let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    if answered {
        // The head of the answer: the stream is open.
        let mut head = [0; 16];
        stream.read_exact(&mut head).await?;
    }
    Ok(stream)
}
