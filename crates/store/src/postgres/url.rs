//! Reads a PostgreSQL URL: what the driver understands, plus `sslrootcert`, the `verify-*` modes
//! and `pooler`, which it does not.
//!
//! Invariant: no error of this module repeats the URL, because it may hold a password.

use crate::error::{Error, Result};
use std::path::PathBuf;
use tokio_postgres::Config;
use tokio_postgres::config::{SslMode, TargetSessionAttrs};

/// How far the server's certificate is checked; the names are libpq's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verification {
    /// `disable`, `prefer`, `require`: encrypted at most, not checked.
    None,
    /// `verify-ca`, or `require` with a root: signed by a trusted root.
    Chain,
    /// `verify-full`: signed by a trusted root, for this host.
    Full,
}

/// A URL taken apart.
pub(super) struct Target {
    pub config: Config,
    pub verification: Verification,
    /// The file with the trusted roots; the system's when absent.
    pub root: Option<PathBuf>,
    /// Whether a transaction pooler is in between; to be found out when not said.
    pub pooled: Option<bool>,
}

/// Takes a URL apart.
pub(super) fn parse(url: &str) -> Result<Target> {
    if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
        return Err(Error::Configuration(
            "the database URL must begin with postgres:// or postgresql://".into(),
        ));
    }
    let (base, query) = url.split_once('?').unwrap_or((url, ""));
    let mut kept = Vec::new();
    let (mut mode, mut root, mut pooler) = (None, None, None);
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some(("sslmode", value)) => mode = Some(value),
            Some(("pooler", value)) => pooler = Some(value),
            Some(("sslrootcert", value)) => root = Some(percent_decoded(value)?),
            _ => kept.push(pair),
        }
    }
    let rest = format!("{base}?{}", kept.join("&"));
    let mut config: Config = rest.parse().map_err(|error: tokio_postgres::Error| {
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
        let cause = cause.unwrap_or_default();
        Error::Configuration(format!("the database URL is not valid: {error}{cause}"))
    })?;
    let (ssl_mode, verification) = match mode {
        Some("disable") => (SslMode::Disable, Verification::None),
        None | Some("prefer" | "allow") => (SslMode::Prefer, Verification::None),
        // As libpq does: whoever names a root wants it to be used.
        Some("require") if root.is_some() => (SslMode::Require, Verification::Chain),
        Some("require") => (SslMode::Require, Verification::None),
        Some("verify-ca") => (SslMode::Require, Verification::Chain),
        Some("verify-full") => (SslMode::Require, Verification::Full),
        Some(_) => {
            return Err(Error::Configuration(
                "sslmode must be disable, prefer, require, verify-ca or verify-full".into(),
            ));
        }
    };
    let pooled = match pooler {
        None | Some("auto") => None,
        Some("transaction") => Some(true),
        Some("none") => Some(false),
        Some(_) => {
            return Err(Error::Configuration(
                "pooler in the database URL must be auto, transaction or none".into(),
            ));
        }
    };
    config.ssl_mode(ssl_mode);
    config.application_name("windlass");
    // We write: of several hosts only the primary will do.
    config.target_session_attrs(TargetSessionAttrs::ReadWrite);
    let root = root.filter(|path| path != "system").map(PathBuf::from);
    Ok(Target { config, verification, root, pooled })
}

fn percent_decoded(text: &str) -> Result<String> {
    let wrong = || Error::Configuration("sslrootcert in the database URL is not valid".into());
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|b| (b as char).to_digit(16));
        let (high, low) = (digit().ok_or_else(wrong)?, digit().ok_or_else(wrong)?);
        bytes.push((high * 16 + low) as u8);
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_and_the_mode_are_taken_out_of_the_url() {
        let url =
            "postgres://u@h/d?sslmode=verify-full&sslrootcert=%2Fca%20x.pem&options=-cjit%3D0";
        let target = parse(url).unwrap();
        assert_eq!(target.verification, Verification::Full);
        assert_eq!(target.root, Some(PathBuf::from("/ca x.pem")));
        assert_eq!(target.config.get_ssl_mode(), SslMode::Require);
        assert_eq!(target.config.get_options(), Some("-cjit=0"));
        assert_eq!(target.pooled, None);
    }

    #[test]
    fn the_pooler_is_taken_out_of_the_url() {
        for (said, meant) in [("auto", None), ("transaction", Some(true)), ("none", Some(false))] {
            let target = parse(&format!("postgres://u@h/d?pooler={said}")).unwrap();
            assert_eq!(target.pooled, meant);
        }
    }

    #[test]
    fn a_wrong_url_is_refused_without_repeating_the_password() {
        for url in [
            "mysql://u:secret@h/d",
            "postgres://u:secret@h:port/d",
            "postgres://u:secret@h/d?colour=red",
            "postgres://u:secret@h/d?sslmode=maybe",
            "postgres://u:secret@h/d?sslrootcert=%zz",
            "postgres://u:secret@h/d?pooler=session",
        ] {
            let error = parse(url).map(|_| ()).unwrap_err();
            assert!(matches!(error, Error::Configuration(_)), "{error}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }
}
