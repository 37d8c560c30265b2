//! `windlass migrate up|down|status`.

use super::{Context, Failure, flag};
use crate::print;
use clap::{Args, Subcommand};
use serde_json::json;
use windlass::store::error::Result;
use windlass::store::migration;
use windlass::store::store::Store;

#[derive(Args)]
pub(super) struct Arguments {
    /// Which database: sqlite:FILE or postgres://USER@HOST/NAME
    /// [env: WINDLASS_DATABASE] [default: sqlite:windlass.db].
    #[arg(long, global = true, value_name = "URL")]
    database: Option<String>,
    /// Unsafe: migrate a database that acknowledges what it has not synced
    /// [env: WINDLASS_UNSAFE_DURABILITY].
    #[arg(long, global = true)]
    unsafe_durability: bool,
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
    /// Show what is applied and what is missing. Makes no database where there is none.
    Status,
}

pub(super) async fn run(arguments: Arguments, context: &Context) -> Result<u8, Failure> {
    if let Action::Down { yes: false, .. } = arguments.action {
        let told = "migrating down deletes what the later versions hold: add --yes to do it";
        return Err(Failure::new("configuration", told, 78));
    }
    let durability = arguments.unsafe_durability.then(|| "true".to_owned());
    let flags = [flag("database", &arguments.database), flag("unsafe_durability", &durability)];
    let config = context.config(flags.into())?;
    // Whoever only asks, or takes away, must not find a database made by that.
    if let (Some(file), false) = (
        windlass::database::missing_file(&config.database)?,
        matches!(arguments.action, Action::Up),
    ) {
        return tell_missing(file, &arguments.action, context.json);
    }
    let store = windlass::database::open_with(&config.database, config.unsafe_durability)?;
    let done = act(&store, arguments.action, context.json).await;
    store.close();
    done?;
    Ok(0)
}

/// There is no database, and none is made.
fn tell_missing(file: &str, action: &Action, json: bool) -> Result<u8, Failure> {
    let told = format!("there is no database yet: {} is not there", print::safe(file));
    if let Action::Down { .. } = action {
        let hint = "name the database with --database, or leave it: nothing is to be taken down";
        return Err(Failure::new("configuration", told, 78).hint(hint));
    }
    if !json {
        print::line(&format!("{told}; `windlass migrate up` makes it"));
    }
    print_status(&migration::missing_all(), json);
    Ok(0)
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
        print::json_line(&json!({ what: versions }));
    } else if versions.is_empty() {
        print::line("nothing to do: the schema is where it should be");
    } else {
        for version in versions {
            print::line(&format!("{what} {version}"));
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
        print::json_line(&json!({ "applied": applied, "missing": status.missing }));
        return;
    }
    for a in &status.applied {
        print::line(&format!("{:>4}  {:<24} applied {}", a.version, a.name, a.applied_at));
    }
    for version in &status.missing {
        print::line(&format!("{version:>4}  {:<24} missing: run `windlass migrate up`", ""));
    }
}
