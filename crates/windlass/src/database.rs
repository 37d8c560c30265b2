//! Opening a database by its URL: `sqlite:windlass.db` or `postgres://…`.

use windlass_store::error::{Error, Result};
use windlass_store::store::Store;
use windlass_store::{postgres, sqlite};

/// Opens the database that the URL names. A SQLite file is made when there is none; a schema is
/// not: `windlass_store::migration` does that.
pub fn open(url: &str) -> Result<Store> {
    open_with(url, false)
}

/// The same; `unsafe_durability` permits a PostgreSQL server that may lose acknowledged work.
pub fn open_with(url: &str, unsafe_durability: bool) -> Result<Store> {
    if let Some(path) = file(url)? {
        let database = sqlite::open(path, sqlite::Options::default())?;
        return Ok(Store::new(database));
    }
    let options = postgres::Options { unsafe_durability, ..postgres::Options::default() };
    if url.starts_with("postgres://") || url.starts_with("postgresql://") {
        let database = postgres::open(url, options)?;
        return Ok(Store::new(database));
    }
    // The URL is not repeated: it may hold a password.
    Err(Error::Configuration(
        "the database URL must begin with sqlite: or postgres://, \
         for instance sqlite:windlass.db or postgres://user@host/database"
            .into(),
    ))
}

/// The SQLite file that the URL names and that is not there yet. A PostgreSQL database must be
/// there: opening it says whether it is.
pub fn missing_file(url: &str) -> Result<Option<&str>> {
    let Some(path) = file(url)? else { return Ok(None) };
    Ok(if sqlite::exists(path)? { None } else { Some(path) })
}

/// The file of a SQLite URL.
fn file(url: &str) -> Result<Option<&str>> {
    let Some(path) = url.strip_prefix("sqlite:") else { return Ok(None) };
    let path = path.strip_prefix("//").unwrap_or(path);
    if path.is_empty() {
        return Err(Error::Configuration(
            "sqlite: names no file; write for instance sqlite:windlass.db".into(),
        ));
    }
    Ok(Some(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_of_another_kind_is_refused_without_repeating_it() {
        for url in ["mysql://root:secret@db/x", "windlass.db", "", "sqlite:"] {
            let Err(Error::Configuration(told)) = open(url) else { panic!("{url} was opened") };
            assert!(!told.contains("secret"), "{told}");
        }
    }
}
