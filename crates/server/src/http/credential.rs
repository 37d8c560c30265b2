//! Who calls: keys, and the principal that a key names.
//!
//! Invariant: keys are kept as digests and compared in constant time.

use super::problem::{Problem, Result};
use axum::http::{HeaderMap, StatusCode, header};
use sha2::{Digest, Sha256};

/// The keys that the server takes, each with the name of its owner. Without any, everybody who
/// reaches the server may use it.
#[derive(Clone, Debug, Default)]
pub struct Keys {
    keys: Vec<(String, [u8; 32])>,
}

/// Who calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// In whose scope idempotency keys live; empty without keys.
    pub principal: String,
    /// Who stands in the history.
    pub actor: String,
}

impl Keys {
    /// Reads `NAME:KEY` texts.
    pub fn parse(texts: &[String]) -> std::result::Result<Keys, String> {
        let mut keys = Vec::new();
        for text in texts {
            let (name, key) = text.split_once(':').unwrap_or(("default", text));
            if name.is_empty() || key.len() < 16 {
                return Err("a key is written NAME:KEY, and KEY has 16 characters or more".into());
            }
            keys.push((name.to_owned(), digest(key)));
        }
        Ok(Keys { keys })
    }

    /// Whether there are any.
    pub(super) fn are_there(&self) -> bool {
        !self.keys.is_empty()
    }

    pub(super) fn caller(&self, headers: &HeaderMap) -> Result<Caller> {
        if self.keys.is_empty() {
            return Ok(Caller { principal: String::new(), actor: "api".into() });
        }
        let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let given = given.and_then(|text| text.split_once(' '));
        let given = given.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        let given = digest(given.map_or("", |(_, key)| key.trim()));
        let mut found = None;
        for (name, key) in &self.keys {
            // All keys are compared, and all bytes of each.
            let differs = key.iter().zip(&given).fold(0, |all, (a, b)| all | (a ^ b));
            if differs == 0 {
                found = Some(name);
            }
        }
        let Some(name) = found else {
            let detail = "send a valid key: `Authorization: Bearer <key>`";
            return Err(Problem::new(StatusCode::UNAUTHORIZED, "unauthenticated", detail));
        };
        Ok(Caller { principal: name.clone(), actor: name.clone() })
    }
}

fn digest(key: &str) -> [u8; 32] {
    Sha256::digest(key.as_bytes()).into()
}
