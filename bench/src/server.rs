//! A real `windlass serve` beside the benchmark.

use crate::Result;
use crate::load::LIMIT;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A running server; killed when dropped.
pub struct Server {
    child: Child,
    pub url: String,
}

impl Server {
    pub async fn start(database: &str) -> Result<Server> {
        Server::start_with(database, None).await
    }

    /// A node that others reach by a key.
    pub async fn start_node(database: &str, key: &str) -> Result<Server> {
        Server::start_with(database, Some(key)).await
    }

    async fn start_with(database: &str, cluster_key: Option<&str>) -> Result<Server> {
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let listen = format!("127.0.0.1:{port}");
        let mut command = Command::new(binary()?);
        if let Some(key) = cluster_key {
            command.env("WINDLASS_CLUSTER_KEY", key);
            command.env("WINDLASS_ADVERTISE", format!("http://{listen}"));
        }
        let child = command
            .args(["serve", "--database", database, "--listen", &listen])
            .env_remove("WINDLASS_PG_SETTINGS")
            .env("WINDLASS_LOG", "warn")
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .spawn()?;
        let server = Server { child, url: format!("http://{listen}") };
        for _ in 0..200 {
            let ready = reqwest::get(format!("{}/readyz", server.url)).await;
            if ready.is_ok_and(|answer| answer.status().is_success()) {
                server.raise_limits().await?;
                return Ok(server);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Err("the server does not get ready".into())
    }

    /// Sets the limit of everything above the load.
    async fn raise_limits(&self) -> Result<()> {
        let limits = serde_json::json!({ "max_active": LIMIT, "max_pending": LIMIT });
        let put = reqwest::Client::new().put(format!("{}/v1/limits/global", self.url));
        put.json(&limits).send().await?.error_for_status()?;
        Ok(())
    }

    pub fn address(&self) -> &str {
        self.url.trim_start_matches("http://")
    }

    /// Its processor time so far.
    pub fn cpu(&self) -> Result<Duration> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        let (_, fields) = stat.rsplit_once(") ").ok_or("no fields in stat")?;
        let fields: Vec<&str> = fields.split(' ').collect();
        let ticks = fields[11].parse::<u64>()? + fields[12].parse::<u64>()?;
        // A tick is a hundredth of a second on every Linux that we know.
        Ok(Duration::from_millis(ticks * 10))
    }

    /// Its resident memory.
    pub fn megabytes(&self) -> Result<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).ok_or("no VmRSS")?;
        let kilobytes: f64 = line.split_whitespace().nth(1).ok_or("no VmRSS")?.parse()?;
        Ok(kilobytes / 1_024.0)
    }

    pub async fn stop(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

fn binary() -> Result<std::path::PathBuf> {
    let binary = std::env::current_exe()?.with_file_name("windlass");
    match binary.exists() {
        true => Ok(binary),
        false => Err(format!("{} is missing: build windlass-server", binary.display()).into()),
    }
}

/// A running `windlass provider`; killed when dropped, without a word to anybody.
pub struct Provider {
    child: Child,
}

impl Provider {
    pub fn start(server: &str, pool: &str, upstream: &str, slots: usize) -> Result<Provider> {
        let slots = slots.to_string();
        let child = Command::new(binary()?)
            .args(["provider", "--server", server, "--pool", pool, "--upstream", upstream])
            .args(["--model", "bench", "--slots", &slots])
            .env("WINDLASS_LOG", "error")
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .spawn()?;
        Ok(Provider { child })
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
