//! The machine and the settings that the figures depend on.

use crate::Result;
use crate::arguments::{Arguments, Engine};
use crate::load::{LIMIT, PAYLOAD_BYTES};
use crate::place::connect;
use crate::table::whole;

const SETTINGS: [&str; 7] = [
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "shared_buffers",
    "max_wal_size",
    "wal_sync_method",
    "autovacuum",
];

pub async fn print(arguments: &Arguments) -> Result<()> {
    println!("# Store benchmark\n");
    let cores = std::thread::available_parallelism()?;
    println!("- Machine: {cores} cores, {}, {}", memory(), std::env::consts::ARCH);
    for engine in &arguments.engines {
        match engine {
            Engine::Sqlite { .. } => {
                let version = rusqlite::version();
                println!("- SQLite {version}: WAL, synchronous = FULL, cache 16 MiB");
            }
            Engine::Postgres { url, .. } => postgres(url).await?,
        }
    }
    let build = if cfg!(debug_assertions) { "debug (figures mean nothing)" } else { "release" };
    println!("- Build: {build}; size: {}", arguments.sizes.name);
    println!(
        "- Load: payload of {PAYLOAD_BYTES} bytes, every commit synced; ours with history, guards \
         and leases, the floor without"
    );
    println!("- Limits of a running engine: {} active and pending in all", whole(LIMIT as f64));
    println!(
        "- Ours and the floor take turns, {} rounds; figures are medians, and a ratio is the \
         median of the rounds' ratios",
        arguments.sizes.rounds
    );
    Ok(())
}

async fn postgres(url: &str) -> Result<()> {
    let client = connect(url).await?;
    let version: String = client.query_one("SHOW server_version", &[]).await?.get(0);
    let mut settings = Vec::new();
    for name in SETTINGS {
        let value: String = client.query_one(&format!("SHOW {name}"), &[]).await?.get(0);
        settings.push(format!("{name} = {value}"));
    }
    println!("- PostgreSQL {version}: {}", settings.join(", "));
    Ok(())
}

fn memory() -> String {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = total.and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
    kib.map_or_else(|| "unknown memory".into(), |kib| format!("{} MiB", whole(kib / 1024.0)))
}
