//! Who calls: keys, the principal that a key names, and what it may do.
//!
//! Invariant: keys are kept as digests and compared in constant time. What needs an operator stands
//! in one table, [`OPERATORS_ONLY`]; no handler asks again.

use super::problem::{Problem, Result};
use axum::http::{HeaderMap, StatusCode, header};
use sha2::{Digest, Sha256};

/// The keys that the server takes, each with the name of its owner. Without any, everybody who
/// reaches the server may use it.
#[derive(Clone, Debug, Default)]
pub struct Keys {
    keys: Vec<(String, Role, [u8; 32])>,
}

/// What a key may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Everything.
    Operator,
    /// Everything that is not [`OPERATORS_ONLY`].
    Worker,
}

/// What a worker's key cannot do: agents that write their own requests must not answer them.
pub const OPERATORS_ONLY: &[(&str, &str)] = &[
    ("POST", "/v1/approvals/{id}/approve"),
    ("POST", "/v1/approvals/{id}/deny"),
    ("POST", "/v1/approvals/{id}/tokens"),
    ("GET", "/v1/audit"),
    ("GET", "/v1/audit/export"),
    ("POST", "/v1/dead-letters/{id}/assign"),
    ("POST", "/v1/dead-letters/{id}/investigate"),
    ("POST", "/v1/dead-letters/{id}/note"),
    ("POST", "/v1/dead-letters/{id}/resolve"),
    ("POST", "/v1/dead-letters/{id}/abandon"),
    ("POST", "/v1/dead-letters/{id}/redeliver"),
    ("POST", "/v1/agents"),
    ("PUT", "/v1/agents/{name}"),
    ("PATCH", "/v1/agents/{name}"),
    ("POST", "/v1/agents/{name}/archive"),
    ("POST", "/v1/agents/{name}/restore"),
    ("POST", "/v1/delegations/sweep"),
    ("POST", "/v1/ventures"),
    ("PUT", "/v1/ventures/{name}"),
    ("POST", "/v1/ventures/{name}/archive"),
    ("POST", "/v1/ventures/{name}/restore"),
    ("POST", "/v1/portfolios"),
    ("POST", "/v1/portfolios/{name}/archive"),
    ("POST", "/v1/portfolios/{name}/restore"),
    ("GET", "/v1/limits"),
    ("GET", "/v1/limits/{scope}"),
    ("PUT", "/v1/limits/{scope}"),
    ("PATCH", "/v1/limits/{scope}"),
    ("DELETE", "/v1/limits/{scope}"),
    ("GET", "/v1/limits/{scope}/{name}"),
    ("PUT", "/v1/limits/{scope}/{name}"),
    ("PATCH", "/v1/limits/{scope}/{name}"),
    ("DELETE", "/v1/limits/{scope}/{name}"),
    ("GET", "/v1/pauses"),
    ("POST", "/v1/pauses"),
    ("DELETE", "/v1/pauses/{scope}"),
    ("DELETE", "/v1/pauses/{scope}/{name}"),
    ("POST", "/v1/poison/{id}/assign"),
    ("POST", "/v1/poison/{id}/investigate"),
    ("POST", "/v1/poison/{id}/note"),
    ("POST", "/v1/poison/{id}/resolve"),
    ("POST", "/v1/poison/{id}/abandon"),
    ("POST", "/v1/alerts/{id}/acknowledge"),
    ("POST", "/v1/steps/{id}/resolve"),
    ("POST", "/v1/tasks/{id}/replay"),
];

/// Takes a key's text apart: `NAME:KEY`, `NAME:worker:KEY`, `NAME:operator:KEY`, or `KEY` alone.
pub fn split(text: &str) -> (&str, Role, &str) {
    let (name, rest) = text.split_once(':').unwrap_or(("default", text));
    match rest.split_once(':') {
        Some(("worker", key)) => (name, Role::Worker, key),
        Some(("operator", key)) => (name, Role::Operator, key),
        _ => (name, Role::Operator, rest),
    }
}

/// Who calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// In whose scope idempotency keys live; empty without keys.
    pub principal: String,
    /// Who stands in the history.
    pub actor: String,
    /// What it may do.
    pub role: Role,
}

impl Caller {
    /// Whether it may call a route.
    pub fn may(&self, method: &str, route: &str) -> bool {
        self.role == Role::Operator || !OPERATORS_ONLY.contains(&(method, route))
    }
}

impl Keys {
    /// Reads `NAME:KEY` and `NAME:ROLE:KEY` texts.
    pub fn parse(texts: &[String]) -> std::result::Result<Keys, String> {
        let mut keys = Vec::new();
        for text in texts {
            let (name, role, key) = split(text);
            if name.is_empty() || key.len() < 16 {
                return Err("a key is written NAME:KEY, and KEY has 16 characters or more".into());
            }
            keys.push((name.to_owned(), role, digest(key)));
        }
        Ok(Keys { keys })
    }

    /// Whether there are any.
    pub(super) fn are_there(&self) -> bool {
        !self.keys.is_empty()
    }

    pub(super) fn caller(&self, headers: &HeaderMap) -> Result<Caller> {
        if self.keys.is_empty() {
            let (principal, actor) = (String::new(), "api".to_owned());
            return Ok(Caller { principal, actor, role: Role::Operator });
        }
        let given = given(headers);
        let mut found = None;
        for (name, role, key) in &self.keys {
            // All keys are compared, and all bytes of each.
            if is_same(key, &given) {
                found = Some((name, *role));
            }
        }
        let Some((name, role)) = found else {
            let detail = "send a valid key: `Authorization: Bearer <key>`";
            return Err(Problem::new(StatusCode::UNAUTHORIZED, "unauthenticated", detail));
        };
        Ok(Caller { principal: name.clone(), actor: name.clone(), role })
    }
}

/// Whether a request brings this very key.
pub(super) fn is_key(headers: &HeaderMap, key: &str) -> bool {
    is_same(&digest(key), &given(headers))
}

/// The digest of the key that a request brings.
fn given(headers: &HeaderMap) -> [u8; 32] {
    let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let given = given.and_then(|text| text.split_once(' '));
    let given = given.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    digest(given.map_or("", |(_, key)| key.trim()))
}

fn is_same(a: &[u8; 32], b: &[u8; 32]) -> bool {
    a.iter().zip(b).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

fn digest(key: &str) -> [u8; 32] {
    Sha256::digest(key.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "0123456789abcdef";

    #[test]
    fn a_key_names_its_owner_and_its_role() {
        for (text, name, role, key) in [
            (KEY.to_owned(), "default", Role::Operator, KEY),
            (format!("ann:{KEY}"), "ann", Role::Operator, KEY),
            (format!("ann:operator:{KEY}"), "ann", Role::Operator, KEY),
            (format!("bot:worker:{KEY}"), "bot", Role::Worker, KEY),
            (format!("ann:with:colon:{KEY}"), "ann", Role::Operator, "with:colon:0123456789abcdef"),
        ] {
            assert_eq!(split(&text), (name, role, key), "{text}");
            assert!(Keys::parse(&[text]).is_ok());
        }
        for wrong in [":0123456789abcdef", "ann:short", "bot:worker:short"] {
            assert!(Keys::parse(&[wrong.to_owned()]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_workers_key_does_not_decide() {
        let keys = Keys::parse(&[format!("bot:worker:{KEY}"), format!("ann:{}", KEY.repeat(2))]);
        let keys = keys.unwrap();
        let call = |key: String| {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, format!("Bearer {key}").parse().unwrap());
            keys.caller(&headers).unwrap()
        };
        let (bot, ann) = (call(KEY.into()), call(KEY.repeat(2)));
        for (method, route) in OPERATORS_ONLY {
            assert!(!bot.may(method, route) && ann.may(method, route));
        }
        assert!(bot.may("POST", "/v1/tasks/{id}/approvals"));
    }
}
