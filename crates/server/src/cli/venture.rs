//! `windlass venture …` and `windlass portfolio …`: what agents belong to.

use super::agent::segment;
use super::poison::{Listing, Page};
use super::task::{age, text};
use super::{Connection, Context, Failure};
use crate::client::{Call, Client, Patience};
use crate::print::{self, Cell, Paint};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

#[derive(Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Create a venture.
    Create {
        /// The venture's name.
        name: String,
        /// What it belongs to.
        #[arg(long)]
        portfolio: Option<String>,
    },
    /// Set what a venture belongs to; without --portfolio, to nothing. Its agents go along.
    Set {
        /// The venture's name.
        name: String,
        /// What it belongs to.
        #[arg(long)]
        portfolio: Option<String>,
    },
    /// Show a venture.
    Show {
        /// The venture's name.
        name: String,
    },
    /// List ventures, by name.
    List {
        /// Of this portfolio.
        #[arg(long)]
        portfolio: Option<String>,
        /// With those that are archived.
        #[arg(long)]
        archived: bool,
        #[command(flatten)]
        page: Page,
    },
    /// Archive a venture; what names it stays.
    Archive {
        /// The venture's name.
        name: String,
    },
    /// Bring an archived venture back.
    Restore {
        /// The venture's name.
        name: String,
    },
}

#[derive(Args)]
pub(super) struct PortfolioArguments {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    action: PortfolioAction,
}

#[derive(Subcommand)]
enum PortfolioAction {
    /// Create a portfolio.
    Create {
        /// The portfolio's name.
        name: String,
    },
    /// Show a portfolio.
    Show {
        /// The portfolio's name.
        name: String,
    },
    /// List portfolios, by name.
    List {
        /// With those that are archived.
        #[arg(long)]
        archived: bool,
        #[command(flatten)]
        page: Page,
    },
    /// Archive a portfolio; what names it stays.
    Archive {
        /// The portfolio's name.
        name: String,
    },
    /// Bring an archived portfolio back.
    Restore {
        /// The portfolio's name.
        name: String,
    },
}

fn path(name: &str, rest: &str) -> String {
    format!("/v1/ventures/{}{rest}", segment(name))
}

pub(super) async fn run(arguments: Arguments, context: &Context) -> Result<u8, Failure> {
    let client = context.client(&arguments.connection)?;
    let call = match arguments.action {
        Action::Create { name, portfolio } => {
            Call::post("/v1/ventures", json!({ "name": name, "portfolio": portfolio }))
        }
        Action::Set { name, portfolio } => {
            Call::put(path(&name, ""), json!({ "portfolio": portfolio }))
        }
        Action::Show { name } => Call::get(path(&name, "")),
        Action::Archive { name } => Call::post(path(&name, "/archive"), json!({})),
        Action::Restore { name } => Call::post(path(&name, "/restore"), json!({})),
        Action::List { portfolio, archived, page } => {
            let archived = archived.then(|| "true".into());
            let listing = Listing {
                path: "/v1/ventures",
                filters: vec![("portfolio", portfolio), ("archived", archived)],
                page,
                headings: &["NAME", "PORTFOLIO", "CHANGED"],
                row: |venture| {
                    vec![
                        Cell::new(text(&venture["name"])),
                        Cell::new(text(&venture["portfolio"])),
                        Cell::new(&age(&venture["updated_at"])),
                    ]
                },
                empty: "no ventures; create one with `windlass venture create NAME`",
            };
            return listing.show(&client, context).await;
        }
    };
    show(&client, &call, context).await
}

pub(super) async fn run_portfolio(
    arguments: PortfolioArguments,
    context: &Context,
) -> Result<u8, Failure> {
    let client = context.client(&arguments.connection)?;
    let path = |name: &str, rest: &str| format!("/v1/portfolios/{}{rest}", segment(name));
    let call = match arguments.action {
        PortfolioAction::Create { name } => Call::post("/v1/portfolios", json!({ "name": name })),
        PortfolioAction::Show { name } => Call::get(path(&name, "")),
        PortfolioAction::Archive { name } => Call::post(path(&name, "/archive"), json!({})),
        PortfolioAction::Restore { name } => Call::post(path(&name, "/restore"), json!({})),
        PortfolioAction::List { archived, page } => {
            let listing = Listing {
                path: "/v1/portfolios",
                filters: vec![("archived", archived.then(|| "true".into()))],
                page,
                headings: &["NAME", "CHANGED"],
                row: |portfolio| {
                    let (name, changed) = (&portfolio["name"], &portfolio["updated_at"]);
                    vec![Cell::new(text(name)), Cell::new(&age(changed))]
                },
                empty: "no portfolios; create one with `windlass portfolio create NAME`",
            };
            return listing.show(&client, context).await;
        }
    };
    show(&client, &call, context).await
}

async fn show(client: &Client, call: &Call, context: &Context) -> Result<u8, Failure> {
    let kept = client.call(call, Patience::SHORT).await?.body;
    if context.json {
        print::json_line(&kept);
        return Ok(0);
    }
    for name in ["name", "portfolio", "created_at", "updated_at", "archived_at"] {
        let Value::String(shown) = &kept[name] else { continue };
        let heading = print::painted(&format!("{name:<14}"), Paint::Bold);
        print::line(&format!("{heading}{}", print::safe(shown)));
    }
    Ok(0)
}
