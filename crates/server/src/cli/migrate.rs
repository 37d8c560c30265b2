//! `windlass migrate up|down|status`.

use clap::{Args, Subcommand};
use serde_json::json;
use windlass::store::error::{Error, Result};
use windlass::store::migration;
use windlass::store::store::Store;

#[derive(Args)]
pub(super) struct Arguments {
    /// Which database: sqlite:FILE or postgres://USER@HOST/NAME.
    #[arg(
        long,
        global = true,
        env = "WINDLASS_DATABASE",
        default_value = "sqlite:windlass.db",
        hide_env_values = true
    )]
    database: String,
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Apply every migration that is missing. Safe when many nodes do it at once.
    Up,
    /// Take the schema down to a version. What later versions held is lost.
    Down {
        /// The version to keep; 0 removes everything.
        #[arg(long)]
        to: i64,
        /// Say yes to losing data.
        #[arg(long)]
        yes: bool,
    },
    /// Show what is applied and what is missing.
    Status,
}

pub(super) async fn run(arguments: Arguments, json: bool) -> Result<()> {
    if let Action::Down { yes: false, .. } = arguments.action {
        let told = "migrating down deletes what the later versions hold: add --yes to do it";
        return Err(Error::Configuration(told.into()));
    }
    let store = windlass::database::open(&arguments.database)?;
    let done = act(&store, arguments.action, json).await;
    store.close();
    done
}

async fn act(store: &Store, action: Action, json: bool) -> Result<()> {
    match action {
        Action::Up => print_done("applied", &migration::up(store).await?, json),
        Action::Down { to, .. } => {
            print_done("removed", &migration::down(store, to).await?, json);
        }
        Action::Status => print_status(&migration::status(store).await?, json),
    }
    Ok(())
}

fn print_done(what: &str, versions: &[i64], json: bool) {
    if json {
        println!("{}", json!({ what: versions }));
    } else if versions.is_empty() {
        println!("nothing to do: the schema is where it should be");
    } else {
        for version in versions {
            println!("{what} {version}");
        }
    }
}

fn print_status(status: &migration::Status, json: bool) {
    if json {
        let applied: Vec<_> = status
            .applied
            .iter()
            .map(|a| json!({ "version": a.version, "name": a.name, "applied_at": a.applied_at }))
            .collect();
        println!("{}", json!({ "applied": applied, "missing": status.missing }));
        return;
    }
    for a in &status.applied {
        println!("{:>4}  {:<24} applied {}", a.version, a.name, a.applied_at);
    }
    for version in &status.missing {
        println!("{version:>4}  {:<24} missing: run `windlass migrate up`", "");
    }
}
