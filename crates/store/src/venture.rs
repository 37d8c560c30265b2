//! Ventures and portfolios: what agents and their tasks belong to.
//!
//! Invariant: a venture is given only a portfolio that is there. Every change is in the audit.
//! Absent: removal. They are archived, and what names them stays; tasks may name a venture that
//! nobody made.

use crate::agent::{absent, lock};
use crate::audit;
use crate::error::{Error, Rejection, Result};
use crate::group::Outcome;
use crate::statement::{self, Ordered, Statement};
use crate::store::Store;
use crate::tx::{Call, Tx};
use crate::value::{Row, Value};
use serde_json::json;
use windlass_domain::agent::Unit;
use windlass_domain::page::{Order, Part};
use windlass_domain::refusal::{FieldError, Refusal};
use windlass_domain::time::Timestamp;

crate::statement!(shared PUT_VENTURE, "venture/put");
crate::statement!(shared SHOW_VENTURE, "venture/show");
crate::statement!(ordered shared LIST_VENTURES, "venture/list");
crate::statement!(shared ARCHIVE_VENTURE, "venture/archive");
crate::statement!(shared PUT_PORTFOLIO, "portfolio/put");
crate::statement!(shared SHOW_PORTFOLIO, "portfolio/show");
crate::statement!(ordered shared LIST_PORTFOLIOS, "portfolio/list");
crate::statement!(shared ARCHIVE_PORTFOLIO, "portfolio/archive");

/// All of the above that are no lists.
pub(crate) static STATEMENTS: &[&statement::Statement] = &[
    &PUT_VENTURE,
    &SHOW_VENTURE,
    &ARCHIVE_VENTURE,
    &PUT_PORTFOLIO,
    &SHOW_PORTFOLIO,
    &ARCHIVE_PORTFOLIO,
];

/// The lists, each in both orders.
pub(crate) static LISTS: &[&statement::Ordered] = &[&LIST_VENTURES, &LIST_PORTFOLIOS];

/// The order of a list unless another one is asked for.
pub const ORDER: Order = Order::Ascending;

/// A venture or a portfolio as users see it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // Named like the columns.
pub struct Kept {
    pub name: String,
    /// What a venture belongs to.
    pub portfolio: Option<String>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub archived_at: Option<Timestamp>,
}

/// The repository of ventures and portfolios; cheap to clone.
#[derive(Clone)]
pub struct Ventures {
    store: Store,
}

struct Statements {
    put: &'static Statement,
    show: &'static Statement,
    list: &'static Ordered,
    archive: &'static Statement,
}

fn of(unit: Unit) -> Statements {
    match unit {
        Unit::Venture => Statements {
            put: &PUT_VENTURE,
            show: &SHOW_VENTURE,
            list: &LIST_VENTURES,
            archive: &ARCHIVE_VENTURE,
        },
        Unit::Portfolio => Statements {
            put: &PUT_PORTFOLIO,
            show: &SHOW_PORTFOLIO,
            list: &LIST_PORTFOLIOS,
            archive: &ARCHIVE_PORTFOLIO,
        },
    }
}

impl Ventures {
    /// The ventures and portfolios of one database.
    pub fn new(store: Store) -> Ventures {
        Ventures { store }
    }

    /// Makes one, or, unless `is_new`, writes what it belongs to anew. One that is there and says
    /// the same is the same.
    pub async fn put(
        &self,
        unit: Unit,
        name: &str,
        portfolio: Option<String>,
        is_new: bool,
        actor: &str,
    ) -> Outcome<Kept> {
        let (name, actor) = (name.to_owned(), actor.to_owned());
        let body = move |tx: &mut dyn Tx| {
            lock(tx)?;
            let before = find(tx, unit, &name)?;
            match before {
                Some(same) if same.portfolio == portfolio && same.archived_at.is_none() => {
                    return Ok(Ok(same));
                }
                Some(_) if is_new => {
                    return Ok(Err(Refusal::AlreadyExists { what: unit.as_str() }));
                }
                _ => {}
            }
            if let Some(portfolio) = &portfolio {
                let found = find(tx, Unit::Portfolio, portfolio)?;
                if found.is_none_or(|found| found.archived_at.is_some()) {
                    let pointer = "/portfolio".to_owned();
                    let detail = absent("portfolio", portfolio);
                    let error = FieldError { pointer, code: "not_found", detail };
                    return Ok(Err(Refusal::Invalid(vec![error])));
                }
            }
            let now = tx.now()?;
            let params = vec![name.as_str().into(), portfolio.clone().into(), now.into()];
            tx.run(Call::one(of(unit).put, params))?;
            let event = if before.is_some() { "changed" } else { "created" };
            let told = json!({
                "name": name,
                "before": before.map(|before| json!({ "portfolio": before.portfolio })),
                "after": { "portfolio": portfolio },
            });
            audit::write(tx, &actor, &format!("{unit}_{event}"), &told)?;
            Ok(Ok(find(tx, unit, &name)?.ok_or_else(lost)?))
        };
        self.store.write("venture_put", body).await?.map_err(Rejection::Refused)
    }

    /// Archives one, or brings it back; whatever names it stays as it is.
    pub async fn archive(
        &self,
        unit: Unit,
        name: &str,
        archived: bool,
        actor: &str,
    ) -> Outcome<Kept> {
        let (name, actor) = (name.to_owned(), actor.to_owned());
        let body = move |tx: &mut dyn Tx| {
            lock(tx)?;
            let Some(kept) = find(tx, unit, &name)? else {
                return Ok(Err(Refusal::Unknown { what: unit.as_str() }));
            };
            if kept.archived_at.is_some() == archived {
                return Ok(Ok(kept));
            }
            let now = tx.now()?;
            let since = archived.then_some(now);
            let params = vec![name.as_str().into(), since.into(), now.into()];
            tx.run(Call::one(of(unit).archive, params))?;
            let event = format!("{unit}_{}", if archived { "archived" } else { "restored" });
            audit::write(tx, &actor, &event, &json!({ "name": name }))?;
            Ok(Ok(Kept { archived_at: since, updated_at: now, ..kept }))
        };
        self.store.write("venture_archive", body).await?.map_err(Rejection::Refused)
    }

    /// One of them.
    pub async fn show(&self, unit: Unit, name: &str) -> Result<Option<Kept>> {
        let name = name.to_owned();
        self.store.read("venture_show", move |tx| find(tx, unit, &name)).await
    }

    /// A page by name, after a name: of all, or of the ventures of a portfolio.
    pub async fn list(
        &self,
        unit: Unit,
        portfolio: Option<String>,
        archived: bool,
        after: &str,
        limit: usize,
    ) -> Result<(Vec<Kept>, Option<String>)> {
        let after = Some(after.to_owned()).filter(|after| !after.is_empty());
        self.page(unit, portfolio, archived, Part::new(ORDER, after, limit)).await
    }

    /// A page by name, in either order: of all, or of the ventures of a portfolio.
    pub async fn page(
        &self,
        unit: Unit,
        portfolio: Option<String>,
        archived: bool,
        part: Part<String>,
    ) -> Result<(Vec<Kept>, Option<String>)> {
        let (after, most) = (part.begin(), part.most());
        let statement = of(unit).list.in_order(part.order);
        let body = move |tx: &mut dyn Tx| {
            let (after, most) = (after.as_str().into(), Value::Int(most));
            let params = vec![after, most, archived.into(), portfolio.clone().into()];
            tx.run(Call::one(statement, params))?.iter().map(read).collect()
        };
        let all: Vec<Kept> = self.store.read("venture_list", body).await?;
        Ok(part.cut(all, |kept| kept.name.clone()))
    }
}

/// One of them, in somebody's transaction.
pub(crate) fn find(tx: &mut dyn Tx, unit: Unit, name: &str) -> Result<Option<Kept>> {
    tx.run(Call::one(of(unit).show, vec![name.into()]))?.first().map(read).transpose()
}

fn lost() -> Error {
    Error::Internal { operation: "venture_put".into(), detail: "no row".into() }
}

fn read(row: &Row) -> Result<Kept> {
    Ok(Kept {
        name: row.text(0)?.to_owned(),
        portfolio: row.maybe(1, Row::text)?.map(str::to_owned),
        created_at: row.time(2)?,
        updated_at: row.time(3)?,
        archived_at: row.maybe(4, Row::time)?,
    })
}
